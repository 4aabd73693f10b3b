//! Content of a recorded workload. A cut at every operation is little evidence if the run has no
//! GC, checkpoint or trim.

use crate::host::is_barrier;
use crate::workload::HostOp;
use ftl_core::SchemeStats;
use ftl_core::format::{Flags, Oob};
use nand_model::store::Change;
use nand_model::{Geometry, Pbn};
use std::collections::{HashMap, HashSet};

/// Counts of the required content.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Programs and erases.
    pub operations: u64,
    /// Garbage collections.
    pub collections: u64,
    /// LazyFTL's conversions.
    pub converts: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Trims.
    pub trims: u64,
    /// Write-zeroes.
    pub write_zeroes: u64,
    /// Durable-at-once requests.
    pub fuas: u64,
    /// FLUSHes.
    pub flushes: u64,
    /// Blocks that went bad.
    pub bad_blocks: u64,
    /// Pages that were flushed and then overwritten, and whose old block was then erased.
    pub flushed_then_erased: u64,
    places: HashMap<u32, (Pbn, bool)>,
    overwritten: HashMap<Pbn, HashSet<u32>>,
}

impl Coverage {
    /// A request and the changes it made.
    pub fn note(&mut self, geometry: &Geometry, op: &HostOp, changes: &[Change]) {
        changes
            .iter()
            .for_each(|change| self.note_change(geometry, change));
        self.trims += matches!(op, HostOp::Trim { .. }) as u64;
        self.write_zeroes += matches!(op, HostOp::WriteZeroes { .. }) as u64;
        self.flushes += matches!(op, HostOp::Flush) as u64;
        self.fuas += (is_barrier(op) && *op != HostOp::Flush) as u64;
        if is_barrier(op) {
            self.places
                .values_mut()
                .for_each(|(_, flushed)| *flushed = true);
        }
    }

    fn note_change(&mut self, geometry: &Geometry, change: &Change) {
        match change {
            Change::Program { ppn, oob, .. } => {
                self.operations += 1;
                if let Some(oob) = Oob::decode(oob).filter(|oob| oob.tag.role.is_host_data()) {
                    self.note_data(geometry.block_of(*ppn), &oob);
                }
            }
            Change::Erase { block, .. } => {
                self.operations += 1;
                self.flushed_then_erased += self
                    .overwritten
                    .remove(block)
                    .map_or(0, |pages| pages.len() as u64);
            }
            Change::Facts { facts, .. } => self.bad_blocks += facts.bad.is_some() as u64,
            _ => {}
        }
    }

    fn note_data(&mut self, block: Pbn, oob: &Oob) {
        let lpn = oob.tag.lpn;
        let old = self.places.get(&lpn).copied();
        if oob.tag.flags.has(Flags::COPY) {
            self.places
                .insert(lpn, (block, old.is_some_and(|(_, flushed)| flushed)));
            return;
        }
        if let Some((old, true)) = old {
            self.overwritten.entry(old).or_default().insert(lpn);
        }
        self.places.insert(lpn, (block, false));
    }

    /// The scheme's own counts, at the end.
    pub fn note_stats(&mut self, stats: &SchemeStats) {
        self.collections = stats.gc_runs;
        self.converts = stats.converts;
        self.checkpoints = stats.checkpoints;
    }

    /// The content that is still missing; conversions are required for schemes with `converts`,
    /// checkpoints for those that write them during operation.
    pub fn missing(&self, converts: bool, checkpoints: bool) -> Option<String> {
        let wanted = [
            ("programs and erases", self.operations, 400),
            ("collections", self.collections, 5),
            ("conversions", self.converts, if converts { 5 } else { 0 }),
            (
                "checkpoints",
                self.checkpoints,
                if checkpoints { 2 } else { 0 },
            ),
            ("trims", self.trims, 5),
            ("write-zeroes", self.write_zeroes, 5),
            ("FUA requests", self.fuas, 10),
            ("flushes", self.flushes, 20),
            (
                "flushed pages overwritten and then erased",
                self.flushed_then_erased,
                5,
            ),
        ];
        let short = wanted.iter().find(|(_, have, want)| have < want);
        short.map(|(name, have, want)| format!("{have} {name}, need {want}"))
    }
}
