//! The contents of a simulated disk: cache, disk, and the writes between them.
//!
//! Invariants: those of the crate.

use crate::faults::{Crash, Freeze, ReadFault, SyncFault, WriteFault, is_due};
use nand_model::SplitMix;
use nand_model::convert::to_u64;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The unit of a crash.
pub(crate) const SECTOR: usize = 512;
/// The unit of allocated space.
pub(crate) const PAGE: usize = 4096;

/// The disk's contents, and its pending faults.
#[derive(Clone, Default)]
pub(crate) struct Sim {
    /// Crashes of the host so far.
    pub(crate) boot: u64,
    pub(crate) cache: Vec<u8>,
    /// Content as of the last completed sync.
    pub(crate) disk: Vec<u8>,
    /// Writes since then.
    pub(crate) log: Vec<(usize, Vec<u8>)>,
    /// The sector in which a failing write ended.
    pub(crate) torn: Option<usize>,
    /// Pages of the file with allocated space.
    pub(crate) room: BTreeSet<usize>,
    /// All writes and syncs so far, including failed ones.
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    pub(crate) write_fault: Option<WriteFault>,
    pub(crate) read_faults: Vec<ReadFault>,
    pub(crate) sync_fault: Option<SyncFault>,
    pub(crate) freeze: Option<Freeze>,
    pub(crate) frozen: Option<Box<Sim>>,
    pub(crate) during_sync: Option<Arc<DuringSync>>,
}

/// Called by a sync between its start and its completion.
pub(crate) type DuringSync = dyn Fn() + Send + Sync;

impl Sim {
    /// Returns the content after a host crash.
    pub(crate) fn survivors(&self, how: Crash) -> Vec<u8> {
        let writes = to_u64(self.log.len());
        let mut rng = SplitMix::new(match how {
            Crash::Nothing => return self.disk.clone(),
            Crash::Mask(seed)
            | Crash::Prefix(seed)
            | Crash::AllBut(seed)
            | Crash::Writes(seed)
            | Crash::Sectors(seed) => seed,
        });
        let chosen = rng.below(writes + 1);
        let mut bytes = self.disk.clone();
        // A sector that lost one write cannot contain the rest of a later one, so it keeps its
        // content.
        let mut stopped = HashSet::new();
        for (i, (at, data)) in (0u64..).zip(&self.log) {
            let whole = match how {
                Crash::Prefix(_) => i < chosen,
                Crash::AllBut(_) => i != chosen,
                Crash::Writes(_) => !rng.one_in(3),
                Crash::Mask(bits) => writes - 1 - i >= 64 || bits >> (writes - 1 - i) & 1 == 1,
                Crash::Nothing | Crash::Sectors(_) => true,
            };
            for sector in at / SECTOR..(at + data.len()).div_ceil(SECTOR) {
                if !whole || matches!(how, Crash::Sectors(_)) && rng.one_in(20) {
                    stopped.insert(sector);
                }
                if !stopped.contains(&sector) {
                    let from = (sector * SECTOR).max(*at);
                    let upto = ((sector + 1) * SECTOR).min(at + data.len());
                    bytes[from..upto].copy_from_slice(&data[from - at..upto - at]);
                }
            }
        }
        debug_assert_eq!(bytes.len(), self.disk.len(), "a file keeps its length");
        bytes
    }

    pub(crate) fn clear_faults(&mut self) {
        (self.write_fault, self.sync_fault) = (None, None);
        self.read_faults.clear();
    }

    /// Copies the disk if this is the requested call.
    pub(crate) fn freeze(&mut self, is_sync: bool) {
        let left = match &mut self.freeze {
            Some(Freeze::Write(left)) if !is_sync => left,
            Some(Freeze::Sync(left)) if is_sync => left,
            _ => return,
        };
        if *left > 0 {
            *left -= 1;
            return;
        }
        self.freeze = None;
        let mut copy = self.clone();
        copy.clear_faults();
        copy.during_sync = None;
        self.frozen = Some(Box::new(copy));
    }

    pub(crate) fn pages(at: usize, bytes: usize) -> Range<usize> {
        at / PAGE..(at + bytes).div_ceil(PAGE)
    }

    /// Returns the fault of a write of this length, if any.
    pub(crate) fn failing_write(&mut self, at: usize, bytes: usize) -> Option<WriteFault> {
        let needs_room = Self::pages(at, bytes).any(|page| !self.room.contains(&page));
        let fault = self
            .write_fault
            .as_mut()
            .filter(|fault| needs_room || !fault.needs_room)
            .filter(|fault| bytes <= fault.longest)?;
        let failing = is_due(&mut fault.after, &mut fault.count).then_some(*fault);
        self.write_fault = self.write_fault.filter(|fault| fault.count > 0);
        failing
    }

    /// Changes the cache with a write that a crash may lose. The host writes whole sectors back:
    /// after a failed sync, a rewritten sector includes all its bytes.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.cache[at..at + bytes.len()].copy_from_slice(bytes);
        let end = (at + bytes.len())
            .next_multiple_of(SECTOR)
            .min(self.cache.len());
        let first = at / SECTOR * SECTOR;
        self.log.push((first, self.cache[first..end].to_vec()));
        self.torn = self.torn.filter(|torn| !(first..end).contains(torn));
    }

    /// Changes the cache in the sector in which a failing write ended. The sector reaches the disk
    /// with its next write, usually one that restores it, or with the next sync. No host writes it
    /// back in the microsecond between the two.
    pub(crate) fn tear(&mut self, at: usize, bytes: &[u8]) {
        debug_assert!(
            at / SECTOR == (at + bytes.len() - 1) / SECTOR,
            "a write is torn inside one sector"
        );
        self.note_torn();
        self.cache[at..at + bytes.len()].copy_from_slice(bytes);
        self.torn = Some(at / SECTOR * SECTOR);
    }

    /// From now on a crash may keep the partial sector of a failing write.
    pub(crate) fn note_torn(&mut self) {
        if let Some(at) = self.torn.take() {
            let end = (at + SECTOR).min(self.cache.len());
            self.log.push((at, self.cache[at..end].to_vec()));
        }
    }
}
