//! Result of one run: one JSON row.

use super::job::Job;
use super::latency::Responses;
use super::provenance::Provenance;
use super::ram::Ram;
use super::settling::Settling;
use ftld_device::aging::Conditioned;
use ftld_device::counters::{EnergyUsed, Operations, SchemeCounters};
use ftld_kit::convert::{index, to_f64, to_u64};
use ftld_kit::failure::Failure;
use nand_model::{Cause, Counters};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Schema name of a row; a change of meaning changes the number.
pub(crate) const SCHEMA: &str = "ftld.replay/2";

/// Result of one run. Everything but [`Row::run`] follows from [`Row::job`], the build and the
/// trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// The job, without defaults that depend on the machine.
    pub(crate) job: Job,
    /// Name of the scheme.
    pub(crate) scheme: String,
    /// The device.
    pub(crate) device: Device,
    /// The requests.
    pub(crate) requests: Requests,
    /// The preconditioning.
    pub(crate) precondition: Conditioned,
    /// Whether the write amplification had settled; `None` without pages written.
    #[serde(default)]
    pub(crate) settling: Option<Settling>,
    /// The load of an open loop; `None` of a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<Load>,
    /// Flash operations by cause; causes without operations are left out.
    pub(crate) flash: BTreeMap<String, Operations>,
    /// Sum over all causes.
    pub(crate) flash_total: Operations,
    /// Energy of these operations, J; `None` if the profile has no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) energy_j: Option<EnergyUsed>,
    /// Die busy time, ns: the sum of all charges.
    pub(crate) flash_busy_ns: Busy,
    /// Flash programs per page the host wrote.
    pub(crate) write_amplification: WriteAmplification,
    /// Response times in emulated nanoseconds.
    pub(crate) response_ns: Responses,
    /// Emulated time from the start of the first request to the end of the last.
    pub(crate) emulated_ns: u64,
    /// Erases of the good blocks during the measurement.
    pub(crate) erases: Erases,
    /// Host writes that waited for other work, by its cause; causes without such work are left out.
    pub(crate) write_stalls: BTreeMap<String, Stalls>,
    /// Cost of conversions; `None` without conversions.
    pub(crate) convert_cost: Option<ConvertCost>,
    /// Reclaiming of space.
    pub(crate) collected: Collected,
    /// The mapping cache.
    pub(crate) map_cache: MapCache,
    /// RAM of the scheme's tables.
    pub(crate) ram: Ram,
    /// The scheme's own counters.
    pub(crate) scheme_stats: Counts,
    /// The bound for these requests.
    pub(crate) optimum: Optimum,
    /// Values that differ from run to run.
    pub(crate) run: Provenance,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Its profile.
    pub(crate) profile: String,
    /// Size of the device in bytes.
    pub(crate) size_bytes: u64,
    /// Pages the scheme maps.
    pub(crate) logical_pages: u32,
    /// Raw capacity of the flash in bytes, bad blocks included.
    pub(crate) raw_bytes: u64,
    /// Capacity of its blocks in SLC mode in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) slc_bytes: u64,
    /// Erase blocks.
    pub(crate) blocks: u32,
    /// Bad blocks.
    pub(crate) bad_blocks: u32,
    /// Pages per block.
    pub(crate) pages_per_block: u32,
    /// Bytes per page.
    pub(crate) page_bytes: u32,
    /// Dies.
    pub(crate) dies: u32,
    /// Requested over-provisioning in percent; `None` if the raw flash was requested.
    pub(crate) op_percent: Option<f64>,
    /// Good flash beyond the size of the device, in percent of that size: the same rule for every
    /// scheme.
    pub(crate) effective_op_percent: f64,
}

/// The requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// Format of the trace; `None` for a synthetic workload.
    pub(crate) format: Option<String>,
    /// Units of its times, offsets and lengths; `None` for a synthetic workload.
    #[serde(default)]
    pub(crate) units: Option<String>,
    /// Requests given to the scheme.
    pub(crate) issued: u64,
    /// Requests completed; a run fails unless this equals `issued`.
    pub(crate) completed: u64,
    /// Requests after a later one in the trace; with timestamps, they start with that one.
    pub(crate) out_of_order: u64,
    /// Bytes read.
    pub(crate) read_bytes: u64,
    /// Bytes written.
    pub(crate) written_bytes: u64,
    /// Bytes trimmed.
    pub(crate) trimmed_bytes: u64,
    /// FLUSHes, each that of a request with FUA included; only recordings have some.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) flushes: u64,
    /// Pages read for the requests, including the reads for partial writes.
    pub(crate) pages_read: u64,
    /// Pages read for partial writes.
    pub(crate) pages_rmw: u64,
    /// Pages written for the requests.
    pub(crate) pages_written: u64,
    /// Pages trimmed for the requests.
    pub(crate) pages_trimmed: u64,
    /// 1 MiB extents that the trace touches; only with compacted addresses.
    pub(crate) touched_extents: Option<u64>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Requests that arrived, whether or not the device was free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Requests per second that arrived, from the first to the last; `None` if all arrived at once.
    pub(crate) offered_per_second: Option<f64>,
    /// Requests per second that were completed, from the first arrival to the last completion.
    pub(crate) completed_per_second: Option<f64>,
    /// Time from the last arrival to the last completion, ns.
    pub(crate) backlog_ns: u64,
    /// False if less than 99 % of the offered rate was completed, and no request of the second half
    /// found the device without another one, of at least 100 requests: the queue grows as long as
    /// requests arrive.
    pub(crate) is_sustained: bool,
    /// Time of all requests by cause.
    pub(crate) all: Spent,
    /// Time of the slowest 0.1 % of the requests by cause, and of others that took as long within
    /// 3 %.
    pub(crate) slowest: Spent,
    /// Time of the slowest request by cause.
    pub(crate) maximum: Spent,
}

/// Time of some requests by cause, from arrival to completion: means in ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Number of requests.
    pub(crate) requests: u64,
    /// Mean time; the sum of all causes.
    pub(crate) mean_ns: f64,
    /// Part of it in which their operations waited for dies and buses that were busy with
    /// operations issued before; `None` on a device that suspends operations.
    pub(crate) waited_ns: Option<f64>,
    /// Time by the cause of the flash operation on the critical path, of the request itself or one
    /// that it waited for; and `other`, such as steps in RAM. Causes without time are left out.
    pub(crate) by_cause_ns: BTreeMap<String, f64>,
}

/// Die busy time by operation, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Busy {
    /// Reading.
    pub(crate) read: u64,
    /// Programming.
    pub(crate) program: u64,
    /// Erasing.
    pub(crate) erase: u64,
}

/// Flash programs per host page written; `None` without host writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WriteAmplification {
    /// All causes.
    pub(crate) total: Option<f64>,
    /// By cause; the sum is the total.
    pub(crate) by_cause: BTreeMap<String, f64>,
    /// The part of [`TAXES`]; `None` without host writes.
    pub(crate) taxes: Option<f64>,
    /// Bytes programmed per host byte written, with partial pages.
    pub(crate) of_bytes: Option<f64>,
}

/// Reclaiming of space. The bound of copies is 0; that of erases is in [`Optimum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Collected {
    /// Share of the raw flash, bad blocks included, that holds the host's valid pages at the end.
    pub(crate) utilisation: f64,
    /// Valid pages copied: programs with the causes `gc` and `merge`.
    pub(crate) copies: u64,
    /// Block erases.
    pub(crate) erases: u64,
}

/// Distribution of erases over the blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Erases {
    /// Sum over all good blocks.
    pub(crate) total: u64,
    /// Minimum per block.
    pub(crate) min: u32,
    /// Mean per block.
    pub(crate) mean: f64,
    /// Maximum per block.
    pub(crate) max: u32,
    /// Standard deviation.
    pub(crate) stddev: f64,
    /// Classes of equal width: lowest erase count of the class, and its number of blocks.
    pub(crate) distribution: Vec<(u32, u64)>,
    /// Highest erase count of a block since it was new, with preconditioning.
    pub(crate) lifetime_max: u32,
}

/// Host writes that waited for work of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stalls {
    /// Waiting writes as the scheme receives them: an extent of several pages counts once.
    pub(crate) writes: u64,
    /// Emulated time that they waited, ns. Work inside other work counts for the inner cause alone.
    pub(crate) total_ns: u64,
}

/// Mapping pages that a conversion writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConvertCost {
    /// Conversions.
    pub(crate) count: u64,
    /// Mean.
    pub(crate) mean: f64,
    /// Median.
    pub(crate) p50: u64,
    /// 99th percentile.
    pub(crate) p99: u64,
    /// 99.9th percentile.
    pub(crate) p999: u64,
    /// Maximum.
    pub(crate) max: u64,
    /// Number of mapping pages, and number of conversions that wrote this number of them.
    pub(crate) distribution: Vec<(u64, u64)>,
}

/// Mapping lookups, one per page that is read or written for the host: a hit reads no flash. All
/// are 0 if the whole map is in RAM; those for writes if the scheme writes without a lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MapCache {
    /// Lookups for pages that the host reads.
    pub(crate) lookups_read: u64,
    /// Hits of these lookups.
    pub(crate) hits_read: u64,
    /// Lookups for pages that the host writes.
    pub(crate) lookups_write: u64,
    /// Hits of these lookups.
    pub(crate) hits_write: u64,
    /// Lookups for pages that are read because a part of them is written or trimmed.
    #[serde(default)]
    pub(crate) lookups_rmw: u64,
    /// Hits of these lookups.
    #[serde(default)]
    pub(crate) hits_rmw: u64,
    /// Hit ratio of reads; `None` without lookups.
    pub(crate) hit_ratio_read: Option<f64>,
    /// Hit ratio of writes; `None` without lookups.
    pub(crate) hit_ratio_write: Option<f64>,
    /// Hit ratio of all lookups; `None` without lookups.
    pub(crate) hit_ratio: Option<f64>,
}

/// Counters and gauges of the scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Counters of the measurement.
    #[serde(flatten)]
    pub(crate) counters: SchemeCounters,
    /// Logical pages that hold data at the end.
    pub(crate) mapped_pages: u64,
    /// Erased blocks at the end.
    pub(crate) free_blocks: u32,
}

/// Lower bound of every scheme, page by page: one read per page read, one program per page written,
/// one erase per block of pages written. A scheme needs no flash read for pages never written, so
/// the bound does not hold for reads on an unfilled device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Optimum {
    /// Erases.
    pub(crate) erases: f64,
    /// Sum of all its charges, ns.
    pub(crate) work_ns: f64,
    /// A page read, ns.
    pub(crate) page_read_ns: f64,
    /// A page write with its share of an erase, ns.
    pub(crate) page_write_ns: f64,
    /// Mean response time of reads, ns; `None` if pages of a request may overlap on several dies,
    /// or without reads.
    pub(crate) mean_read_ns: Option<f64>,
    /// Mean response time of writes, ns, with the reads for partial pages; `None` as for reads.
    pub(crate) mean_write_ns: Option<f64>,
}

/// Causes of programs for crash safety alone, which the papers do not pay: checkpoints, padding of
/// word lines, and the journal of a write buffer.
pub(crate) const TAXES: [Cause; 3] = [Cause::Checkpoint, Cause::Pad, Cause::Journal];

impl Row {
    /// Returns the row as one line of JSON.
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).expect("a row is plain data")
    }

    /// Checks a row that was read from a file: whether its figures are some that a run can have.
    ///
    /// # Errors
    /// They are not; the text names one.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let row = serde_json::to_value(self).expect("a row is plain data");
        check_figures("", &row)?;
        if self.device.blocks == 0 {
            return Err(Failure::failed("device.blocks is 0"));
        }
        let classes = &self.erases.distribution;
        if !classes.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(Failure::failed("erases.distribution does not ascend"));
        }
        Ok(())
    }
}

/// Largest figure of a row: far beyond any time in ns and any number of pages, and small enough for
/// sums and charts.
const FIGURE_MAX: f64 = 1e20;

/// Checks every number of a row but those of its job.
fn check_figures(path: &str, value: &serde_json::Value) -> Result<(), Failure> {
    use serde_json::Value;
    match value {
        Value::Number(number) => {
            let is_figure = |figure: &f64| figure.abs() <= FIGURE_MAX;
            match number.as_f64().filter(is_figure) {
                Some(_) => Ok(()),
                None => Err(Failure::failed(format!("{path} is {number}"))),
            }
        }
        Value::Array(list) => list.iter().try_for_each(|value| check_figures(path, value)),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !path.is_empty() || *name != "job")
            .try_for_each(|(name, value)| {
                let point = if path.is_empty() { "" } else { "." };
                check_figures(&format!("{path}{point}{name}"), value)
            }),
        _ => Ok(()),
    }
}

impl Busy {
    /// Returns the sum over all operations, ns.
    pub(crate) fn total(&self) -> f64 {
        to_f64(self.read) + to_f64(self.program) + to_f64(self.erase)
    }
}

/// Returns the operations by cause between two moments; causes without operations are left out.
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

impl ConvertCost {
    /// Computes the statistics from the conversions by number of mapping pages, at two moments.
    pub(super) fn between(begun: &[u64], done: &[u64]) -> Option<ConvertCost> {
        let earlier = begun.iter().copied().chain(std::iter::repeat(0));
        let grown = (0..).zip(done.iter().zip(earlier).map(|(done, begun)| done - begun));
        let distribution: Vec<(u64, u64)> = grown.filter(|(_, count)| *count > 0).collect();
        let total: u64 = distribution.iter().map(|(_, count)| count).sum();
        let pages: u64 = distribution
            .iter()
            .map(|(pages, count)| pages * count)
            .sum();
        // Smallest cost that is not exceeded by `thousandths` of the conversions.
        let at = |thousandths: u64| {
            let mut seen = 0;
            let reached = distribution.iter().find(|(_, count)| {
                seen += count;
                seen * 1000 >= thousandths * total
            });
            reached.map_or(0, |(pages, _)| *pages)
        };
        let max = distribution.last()?.0;
        Some(ConvertCost {
            count: total,
            mean: to_f64(pages) / to_f64(total),
            p50: at(500),
            p99: at(990),
            p999: at(999),
            max,
            distribution,
        })
    }
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
        let taxes = TAXES.iter().filter_map(|cause| flash.get(cause.name()));
        let taxes = taxes.map(|operations| operations.programs).sum();
        WriteAmplification {
            total: per(programs, written),
            taxes: per(taxes, written),
            by_cause: flash.iter().filter_map(of).collect(),
            of_bytes: per(programs * u64::from(page_bytes), requests.written_bytes),
        }
    }
}

impl Collected {
    pub(super) fn new(
        flash: &BTreeMap<String, Operations>,
        erases: u64,
        device: &Device,
        mapped_pages: u64,
    ) -> Self {
        let raw_pages = u64::from(device.blocks) * u64::from(device.pages_per_block);
        let programs = |cause: Cause| flash.get(cause.name()).map_or(0, |of| of.programs);
        Collected {
            utilisation: to_f64(mapped_pages) / to_f64(raw_pages),
            copies: programs(Cause::Gc) + programs(Cause::Merge),
            erases,
        }
    }
}

/// Maximum of classes in the distribution of erases.
const CLASSES: u32 = 24;

impl Erases {
    /// Computes the statistics from the erase count of every good block.
    pub(super) fn new(counts: &[u32], lifetime_max: u32) -> Erases {
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
        assert!(
            f64::from(min) <= mean && mean <= f64::from(max),
            "a mean of {mean} erases, of {min} to {max}"
        );
        let width = (max - min) / CLASSES + 1;
        let mut distribution: Vec<_> = (0..=(max - min) / width)
            .map(|class| (min + class * width, 0))
            .collect();
        counts
            .iter()
            .for_each(|&count| distribution[index((count - min) / width)].1 += 1);
        assert!(
            distribution.len() <= index(CLASSES),
            "{} classes of erases, limited to {CLASSES}",
            distribution.len()
        );
        assert_eq!(
            distribution.iter().map(|class| class.1).sum::<u64>(),
            to_u64(counts.len()),
            "each good block is in one class of erases"
        );
        Erases {
            total,
            min,
            mean,
            max,
            stddev: variance.sqrt(),
            distribution,
            lifetime_max,
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
                .filter(|count| (pair[0].0..pair[1].0).contains(*count))
                .count() as u64;
            assert_eq!(within, pair[0].1);
        }
        assert_eq!(Erases::new(&[4, 4, 4], 9).distribution, [(4, 3)]);
        assert_eq!(Erases::new(&[2, 4], 9).stddev, 1.0);
        assert_eq!(Erases::new(&[], 0), Erases::default());
    }

    #[test]
    fn the_cost_of_conversions_is_that_of_the_measured_ones() {
        let cost = ConvertCost::between(&[2, 5], &[2, 105, 98, 0, 2]).unwrap();
        assert_eq!(cost.distribution, [(1, 100), (2, 98), (4, 2)]);
        assert_eq!((cost.count, cost.mean, cost.max), (200, 1.52, 4));
        assert_eq!((cost.p50, cost.p99, cost.p999), (1, 2, 4));
        assert_eq!(ConvertCost::between(&[2, 5], &[2, 5]), None);
    }
}
