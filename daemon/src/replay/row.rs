//! What one run found: one JSON row.

use super::job::Job;
use super::measure::Responses;
use super::precondition::Conditioned;
use crate::convert::{index, to_f64, to_u64};
use nand_model::{Cause, Counters, OpCounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names the meaning of a row; a change of meaning changes the number.
pub const SCHEMA: &str = "ftld.replay/1";

/// One run. Everything but [`Row::run`] follows from [`Row::job`], the build and the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was asked for, with nothing left to defaults that depend on the machine.
    pub job: Job,
    /// Name of the scheme.
    pub scheme: String,
    /// The device.
    pub device: Device,
    /// The requests.
    pub requests: Requests,
    /// What was done before.
    pub precondition: Conditioned,
    /// Flash operations by cause, without causes that had none.
    pub flash: BTreeMap<String, Operations>,
    /// Sum over all causes.
    pub flash_total: Operations,
    /// Emulated time that dies worked, ns: the sum of all charges.
    pub flash_busy_ns: Busy,
    /// Flash programs per page the host wrote.
    pub write_amplification: WriteAmplification,
    /// Response times in emulated nanoseconds.
    pub response_ns: Responses,
    /// Emulated time from the first request's beginning to the last one's end.
    pub emulated_ns: u64,
    /// Erases of the good blocks while it was measured.
    pub erases: Erases,
    /// The mapping cache.
    pub map_cache: MapCache,
    /// RAM of the scheme's tables.
    pub ram: Ram,
    /// The scheme's own counters.
    pub scheme_stats: Counts,
    /// The bound for these requests.
    pub optimum: Optimum,
    /// What differs from run to run.
    pub run: Run,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its profile.
    pub profile: String,
    /// Bytes the host sees.
    pub size_bytes: u64,
    /// Pages the scheme maps.
    pub logical_pages: u32,
    /// Bytes of the flash.
    pub raw_bytes: u64,
    /// Erase blocks.
    pub blocks: u32,
    /// Blocks that are bad.
    pub bad_blocks: u32,
    /// Pages per block.
    pub pages_per_block: u32,
    /// Bytes per page.
    pub page_bytes: u32,
    /// Dies.
    pub dies: u32,
    /// Over-provisioning that was asked for, percent.
    pub op_percent: f64,
}

/// The requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Format of the trace; `None` for what is made up.
    pub format: Option<String>,
    /// Requests given to the scheme.
    pub issued: u64,
    /// Requests it completed; the run has failed unless it is as many.
    pub completed: u64,
    /// Requests that the trace has behind a later one; by timestamps, they begin with that.
    pub out_of_order: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes trimmed.
    pub trimmed_bytes: u64,
    /// Pages read for them, those that partial writes need included.
    pub pages_read: u64,
    /// Of these, those that partial writes need.
    pub pages_patched: u64,
    /// Pages written for them.
    pub pages_written: u64,
    /// Pages trimmed for them.
    pub pages_trimmed: u64,
    /// 1 MiB extents that the trace touches, where addresses are compacted.
    pub touched_extents: Option<u64>,
}

/// Flash operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Page reads.
    pub reads: u64,
    /// Reads of the spare bytes or another part.
    pub partial_reads: u64,
    /// Page programs.
    pub programs: u64,
    /// Programs of the spare bytes alone.
    pub oob_programs: u64,
    /// Block erases.
    pub erases: u64,
}

/// Emulated time that dies worked, by verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// Reading.
    pub read: u64,
    /// Programming.
    pub program: u64,
    /// Erasing.
    pub erase: u64,
}

/// Programs per page the host wrote; `None` where it wrote none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WriteAmplification {
    /// Of all causes.
    pub total: Option<f64>,
    /// By cause; the sum is the total.
    pub by_cause: BTreeMap<String, f64>,
    /// Bytes programmed per byte the host wrote: partial pages count too.
    pub of_bytes: Option<f64>,
}

/// How evenly blocks were erased.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Erases {
    /// Of all good blocks together.
    pub total: u64,
    /// Fewest of a block.
    pub min: u32,
    /// Mean of a block.
    pub mean: f64,
    /// Most of a block.
    pub max: u32,
    /// Standard deviation.
    pub stddev: f64,
    /// Classes of equal width: fewest erases of the class, and how many blocks are in it.
    pub distribution: Vec<(u32, u64)>,
    /// Most erases of a block in its whole life, preconditioning included.
    pub life_max: u32,
}

/// Lookups of the mapping cache; both 0 where all is in RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapCache {
    /// Answered from RAM.
    pub hits: u64,
    /// That read flash.
    pub misses: u64,
    /// Share of the hits.
    pub hit_ratio: Option<f64>,
}

/// RAM of the scheme's tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ram {
    /// As the paper accounts it.
    pub paper_bytes: u64,
    /// Really allocated.
    pub real_bytes: u64,
    /// Part by part.
    pub parts: Vec<RamPart>,
}

/// One structure in RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RamPart {
    /// What it is.
    pub part: String,
    /// How many entries.
    pub entries: u64,
    /// As the paper accounts it.
    pub paper_bytes: u64,
    /// Really allocated.
    pub real_bytes: u64,
}

/// What the scheme counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Collections.
    pub gc_runs: u64,
    /// Pages they moved.
    pub gc_pages_moved: u64,
    /// Blocks moved to level wear.
    pub wear_moves: u64,
    /// Blocks whose data was written anew.
    pub refreshes: u64,
    /// Conversions.
    pub converts: u64,
    /// Mapping pages they wrote.
    pub convert_map_pages: u64,
    /// Places in RAM that mapping lookups looked at, under a scheme that counts them.
    pub map_lookup_steps: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Logical pages that hold data at the end.
    pub mapped_pages: u64,
    /// Erased blocks at the end.
    pub free_blocks: u32,
}

/// What no scheme can beat page by page: one read per page read, one program per page written, one
/// erase per block of pages written. Pages that were never written cost a scheme nothing to read,
/// so on a device that was not filled the bound is none for reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Optimum {
    /// Erases.
    pub erases: f64,
    /// Sum of all its charges, ns.
    pub work_ns: f64,
    /// A page read, ns.
    pub page_read_ns: f64,
    /// A page write with its share of an erase, ns.
    pub page_write_ns: f64,
    /// Mean response time of reads, ns; `None` where pages of a request may overlap on several
    /// dies, or where there was none.
    pub mean_read_ns: Option<f64>,
    /// The same of writes, with the reads that partial pages need.
    pub mean_write_ns: Option<f64>,
}

/// What differs from run to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of the program.
    pub version: String,
    /// CPU time of what was measured, seconds.
    pub cpu_seconds: f64,
    /// The same, preconditioning and reading the trace included.
    pub cpu_seconds_total: f64,
    /// Wall time of it all, seconds.
    pub wall_seconds: f64,
}

impl Operations {
    pub(super) fn between(begun: &OpCounts, done: &OpCounts) -> Operations {
        Operations {
            reads: done.reads - begun.reads,
            partial_reads: done.partial_reads - begun.partial_reads,
            programs: done.programs - begun.programs,
            oob_programs: done.oob_programs - begun.oob_programs,
            erases: done.erases - begun.erases,
        }
    }
}

/// Operations by cause between two moments, without causes that had none.
pub(super) fn by_cause(begun: &Counters, done: &Counters) -> BTreeMap<String, Operations> {
    let of = |cause: Cause| {
        (
            cause.name().to_owned(),
            Operations::between(begun.of(cause), done.of(cause)),
        )
    };
    Cause::ALL
        .into_iter()
        .map(of)
        .filter(|(_, operations)| *operations != Operations::default())
        .collect()
}

impl WriteAmplification {
    pub(super) fn new(
        flash: &BTreeMap<String, Operations>,
        requests: &Requests,
        page_bytes: u32,
    ) -> Self {
        let programs: u64 = flash.values().map(|operations| operations.programs).sum();
        let per = |programs: u64, of: u64| (of > 0).then(|| to_f64(programs) / to_f64(of));
        let written = requests.pages_written;
        let of = |(cause, operations): (&String, &Operations)| {
            per(operations.programs, written)
                .filter(|ratio| *ratio > 0.0)
                .map(|ratio| (cause.clone(), ratio))
        };
        WriteAmplification {
            total: per(programs, written),
            by_cause: flash.iter().filter_map(of).collect(),
            of_bytes: per(programs * u64::from(page_bytes), requests.written_bytes),
        }
    }
}

/// Classes of the distribution of erases.
const CLASSES: u32 = 24;

impl Erases {
    /// From what every good block was erased.
    pub(super) fn new(counts: &[u32], life_max: u32) -> Erases {
        let (Some(&min), Some(&max)) = (counts.iter().min(), counts.iter().max()) else {
            return Erases::default();
        };
        let total = counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        let mean = to_f64(total) / to_f64(to_u64(counts.len()));
        let variance = counts
            .iter()
            .map(|&count| (f64::from(count) - mean).powi(2))
            .sum::<f64>()
            / to_f64(to_u64(counts.len()));
        assert!(min <= max, "the fewest erases are at most the most");
        let width = (max - min) / CLASSES + 1;
        let mut distribution: Vec<_> = (0..=(max - min) / width)
            .map(|class| (min + class * width, 0))
            .collect();
        counts
            .iter()
            .for_each(|&count| distribution[index((count - min) / width)].1 += 1);
        Erases {
            total,
            min,
            mean,
            max,
            stddev: variance.sqrt(),
            distribution,
            life_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_in_one_class_of_the_distribution() {
        let counts: Vec<u32> = (0..1000).map(|i| 17 + i * i % 613).collect();
        let erases = Erases::new(&counts, 700);
        assert_eq!(
            (erases.min, erases.max, erases.total),
            (17, 629, counts.iter().map(|c| u64::from(*c)).sum())
        );
        assert_eq!(
            erases.distribution.iter().map(|class| class.1).sum::<u64>(),
            1000
        );
        assert!(erases.distribution.len() <= CLASSES as usize + 1);
        for pair in erases.distribution.windows(2) {
            let within = counts
                .iter()
                .filter(|count| (pair[0].0..pair[1].0).contains(count))
                .count() as u64;
            assert_eq!(within, pair[0].1);
        }
        assert_eq!(Erases::new(&[4, 4, 4], 9).distribution, [(4, 3)]);
        assert_eq!(Erases::new(&[2, 4], 9).stddev, 1.0);
        assert_eq!(Erases::new(&[], 0), Erases::default());
    }
}
