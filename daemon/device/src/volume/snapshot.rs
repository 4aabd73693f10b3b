//! Snapshots that a volume publishes regularly, so that a scrape never takes the request lock.

use super::locked::Core;
use super::write_cache::CacheView;
use ftl_core::{EventKind, EventTotals, Ftl, GcPageClasses, RamReport, SchemeStats, StreamView};
use ftld_kit::convert::{sum_to_f64, to_f64, to_u32};
use nand_model::{Bad, Counters, Nanos, Pbn, Store};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Upper bounds of the erase-count classes of [`Wear::distribution`].
pub const WEAR_BOUNDS: [u32; 14] = [
    0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 3_000, 10_000, 100_000,
];

/// The flash side of a volume at one moment.
#[derive(Clone, Debug)]
pub struct FlashSnapshot {
    /// Time of the snapshot.
    pub taken: Instant,
    /// Host bytes written at the same moment, so that ratios do not mix times.
    pub host_written_bytes: u64,
    /// Emulated time. It advances faster than the wall clock if the host is faster than the flash.
    pub emulated_ns: Nanos,
    /// Newest extent that the host wrote; `None` before the first.
    pub(crate) last_write: Option<LastWrite>,
    /// Programs of every stream since the image was opened.
    pub(crate) streams: Vec<StreamView>,
    /// Flash operations by cause since the image was opened.
    pub counters: Counters,
    /// The scheme's own counters and gauges.
    pub scheme: SchemeStats,
    /// Totals of its events, in the order of [`EventKind::ALL`].
    pub events: [EventTotals; EventKind::COUNT],
    /// GC runs by relocated pages.
    pub gc_pages: GcPageClasses,
    /// RAM of the scheme's tables.
    pub ram: RamReport,
    /// Erase counts of all good blocks, from the last complete scan.
    pub wear: Wear,
    /// Erases that the store accepts before it needs a sync; `u32::MAX` if it needs none.
    pub(crate) erase_credit: u32,
    /// Blocks due for refresh.
    pub blocks_to_refresh: u32,
    /// All blocks.
    pub blocks: u32,
    /// The write cache; all zero without one.
    pub cache: CacheView,
}

/// Extent of a host write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWrite {
    /// Emulated time at which it started. Not in the status.
    #[serde(skip)]
    pub(crate) at: Nanos,
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) bytes: u64,
}

/// Wear distribution and bad blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    /// Lowest erase count of a good block.
    pub min: u32,
    /// Mean over all good blocks.
    pub mean: f64,
    /// Highest erase count of a good block.
    pub max: u32,
    /// Standard deviation over all good blocks.
    pub stddev: f64,
    /// Good blocks per class of erase counts, with [`WEAR_BOUNDS`] as upper bounds; not cumulative.
    /// The last class has no bound. Not in the status.
    #[serde(skip)]
    pub distribution: [u64; WEAR_BOUNDS.len() + 1],
    /// Blocks bad from the factory.
    pub bad_factory: u32,
    /// Grown bad blocks.
    pub bad_grown: u32,
}

/// A scan of every block in slices of [`WearScan::SLICE`], so that even on a large device it holds
/// the lock only briefly.
#[derive(Debug, Default)]
pub(super) struct WearScan {
    next: u32,
    good: u64,
    sum: u64,
    squares: u128,
    wear: Wear,
}

impl WearScan {
    const SLICE: u32 = 8192;

    /// Scans the next slice. Returns the result after the last block.
    pub(super) fn slice(&mut self, ftl: &dyn Ftl) -> Option<Wear> {
        let chip = ftl.chip();
        let blocks = chip.geometry().blocks;
        let end = blocks.min(self.next + Self::SLICE);
        assert!(self.next < end, "a slice of the wear scan is empty");
        for block in (self.next..end).map(Pbn::new) {
            match chip.bad(block) {
                None => self.note(chip.erase_count(block)),
                Some(Bad::Factory) => self.wear.bad_factory += 1,
                Some(Bad::FailedProgram | Bad::FailedErase) => self.wear.bad_grown += 1,
            }
        }
        self.next = end;
        let seen = self.good + u64::from(self.wear.bad_factory) + u64::from(self.wear.bad_grown);
        assert_eq!(
            seen,
            u64::from(end),
            "each block before block {end} is good or bad"
        );
        (end == blocks).then(|| self.finish())
    }

    fn note(&mut self, erases: u32) {
        self.wear.min = if self.good == 0 {
            erases
        } else {
            self.wear.min.min(erases)
        };
        self.wear.max = self.wear.max.max(erases);
        self.good += 1;
        self.sum += u64::from(erases);
        self.squares += (u128::from(erases)).pow(2);
        let class = WEAR_BOUNDS
            .iter()
            .position(|&bound| erases <= bound)
            .unwrap_or(WEAR_BOUNDS.len());
        self.wear.distribution[class] += 1;
    }

    fn finish(&mut self) -> Wear {
        let scan = std::mem::take(self);
        let mut wear = scan.wear;
        assert_eq!(
            wear.distribution.iter().sum::<u64>(),
            scan.good,
            "each good block is in one class of wear"
        );
        assert!(
            wear.min <= wear.max,
            "the fewest erases of a block are {}, the most {}",
            wear.min,
            wear.max
        );
        if scan.good > 0 {
            wear.mean = to_f64(scan.sum) / to_f64(scan.good);
            wear.stddev = (sum_to_f64(scan.squares) / to_f64(scan.good) - wear.mean.powi(2))
                .max(0.0)
                .sqrt();
        }
        wear
    }
}

impl FlashSnapshot {
    pub(super) fn take(core: &Core, host_written_bytes: u64) -> Self {
        let (ftl, wear) = (&core.ftl, core.wear.clone());
        let chip = ftl.chip();
        assert!(
            wear.bad_factory + wear.bad_grown <= chip.geometry().blocks,
            "{} bad blocks of {}",
            wear.bad_factory + wear.bad_grown,
            chip.geometry().blocks
        );
        FlashSnapshot {
            taken: Instant::now(),
            host_written_bytes,
            last_write: core.last_write,
            streams: ftl.streams().to_vec(),
            emulated_ns: core.clock.reached(chip.busy_until()),
            counters: chip.counters().clone(),
            scheme: ftl.stats(),
            events: *ftl.events().by_kind(),
            gc_pages: *ftl.events().gc_pages(),
            ram: ftl.ram_report(),
            wear,
            erase_credit: chip.store().erase_credit(),
            blocks: chip.geometry().blocks,
            blocks_to_refresh: to_u32(chip.blocks_to_refresh().len()),
            cache: core
                .cache
                .as_ref()
                .map_or(core.last_cache, |cache| cache.view()),
        }
    }
}
