//! Counters and gauges of a scheme. The chip counts flash operations by cause
//! ([`nand_model::Counters`]).

use crate::stalls::StallTotals;
use nand_model::Cause;

/// Physical blocks by use; the numbers add up to all blocks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Erased, or ready for erase.
    pub free: u32,
    /// Open.
    pub open: u32,
    /// Full, with host data.
    pub data: u32,
    /// Update and cold blocks of LazyFTL, log blocks of a hybrid scheme, or the journal of a
    /// buffer.
    pub log: u32,
    /// With mapping pages.
    pub map: u32,
    /// With checkpoints.
    pub checkpoint: u32,
    /// Released by GC, not yet erased: a new version of their pages can still be lost.
    pub released: u32,
    /// Bad from the factory or grown bad.
    pub bad: u32,
}

/// Use of a block. The values between `Open` and `Released` are full blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockUse {
    /// Erased, or ready for erase.
    Free,
    /// Open.
    Open,
    /// Contains host data.
    Data,
    /// Contains newly written host data, mapped in RAM alone.
    Update,
    /// Contains host data relocated by GC.
    Cold,
    /// Contains log pages, which overwrite pages of data blocks.
    Log,
    /// Contains a buffer's journal.
    Journal,
    /// Contains mapping pages.
    Map,
    /// Contains checkpoints.
    Checkpoint,
    /// Contains only trim records or padding.
    Other,
    /// Released by GC, not yet erased.
    Released,
    /// Bad from the factory or grown bad.
    Bad,
}

impl BlockUse {
    /// Every use, in numeric order.
    pub const ALL: [BlockUse; 12] = [
        BlockUse::Free,
        BlockUse::Open,
        BlockUse::Data,
        BlockUse::Update,
        BlockUse::Cold,
        BlockUse::Log,
        BlockUse::Journal,
        BlockUse::Map,
        BlockUse::Checkpoint,
        BlockUse::Other,
        BlockUse::Released,
        BlockUse::Bad,
    ];

    /// Returns the lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            BlockUse::Free => "free",
            BlockUse::Open => "open",
            BlockUse::Data => "data",
            BlockUse::Update => "update",
            BlockUse::Cold => "cold",
            BlockUse::Log => "log",
            BlockUse::Journal => "journal",
            BlockUse::Map => "map",
            BlockUse::Checkpoint => "checkpoint",
            BlockUse::Other => "other",
            BlockUse::Released => "released",
            BlockUse::Bad => "bad",
        }
    }
}

/// State of one block in the scheme's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Use of the block.
    pub used: BlockUse,
    /// Number of valid pages.
    pub valid: u32,
    /// Number of blocks opened since this one was; 0 if it is empty.
    pub age: u64,
}

/// Results of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// Whether the last shutdown was clean, so that its checkpoint was complete.
    pub clean: bool,
    /// Named steps with their emulated duration in ns.
    pub steps: Vec<(&'static str, u64)>,
    /// Pages whose OOB was read.
    pub pages_scanned: u64,
    /// Pages that were unreadable or dropped as suspect.
    pub pages_discarded: u64,
    /// Empty blocks when the mount began to program, besides those kept for its rewrites.
    pub free_blocks: u32,
}

impl MountReport {
    /// Returns the emulated time of all steps.
    pub fn total_ns(&self) -> u64 {
        self.steps.iter().map(|(_, ns)| ns).sum()
    }

    /// Ends a step that began when the last one ended; `now` counts from the beginning.
    pub(crate) fn end_step(&mut self, name: &'static str, now: u64) {
        self.steps.push((name, now - self.total_ns()));
    }
}

/// Mapping lookups of a scheme whose map is not all in RAM. A lookup finds the location of one
/// logical page for a host request. It is a hit if it reads no flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// All lookups.
    pub total: u64,
    /// Those that read no flash.
    pub hits: u64,
}

impl Lookups {
    /// Counts a lookup.
    #[inline]
    pub(crate) fn note(&mut self, is_hit: bool) {
        self.total += 1;
        self.hits += u64::from(is_hit);
    }
}

/// Entries that left a map cache to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Entries with the same content on flash.
    pub clean: u64,
    /// Dirty entries: the eviction writes their mapping page.
    pub dirty: u64,
}

impl Evictions {
    /// Counts an eviction.
    #[inline]
    pub(crate) fn note(&mut self, is_dirty: bool) {
        self.clean += u64::from(!is_dirty);
        self.dirty += u64::from(is_dirty);
    }
}

/// A snapshot of a scheme's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemeStats {
    /// Pages the host read, wrote and trimmed.
    pub host_pages_read: u64,
    /// As `host_pages_read`.
    pub host_pages_written: u64,
    /// As `host_pages_read`.
    pub host_pages_trimmed: u64,
    /// GC runs and the valid pages they relocated.
    pub gc_runs: u64,
    /// As `gc_runs`.
    pub gc_pages_moved: u64,
    /// Wear-levelling relocations.
    pub wear_moves: u64,
    /// Blocks rewritten because of bit errors.
    pub refreshes: u64,
    /// LazyFTL conversions and the mapping pages they wrote.
    pub converts: u64,
    /// As `converts`.
    pub convert_map_pages: u64,
    /// Merges of log-block schemes in which a log block became a data block without copies.
    pub switch_merges: u64,
    /// Merges in which it became one after its missing pages were copied into it.
    pub partial_merges: u64,
    /// Merges that copied the newest pages of a logical block into another block.
    pub full_merges: u64,
    /// Conversions by the number of mapping pages that they wrote, the index.
    pub convert_costs: Vec<u64>,
    /// Host writes that waited for other work, in the order of [`Cause::ALL`].
    pub write_stalls: [StallTotals; Cause::COUNT],
    /// Mapping lookups for pages that the host reads.
    pub lookups_read: Lookups,
    /// Mapping lookups for pages that the host writes, in schemes that look up the old location.
    pub lookups_write: Lookups,
    /// Steps of mapping lookups in RAM: entries, nodes and mapping pages examined, in schemes that
    /// count them.
    pub map_lookup_steps: u64,
    /// Entries that left the map cache to make room, in the cache's own unit.
    pub map_cache_evictions: Evictions,
    /// Pages in the write buffer.
    pub buffered_pages: u64,
    /// Capacity of the write buffer, in pages; 0 without one.
    pub buffer_capacity_pages: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Pages programmed since the last checkpoint, or since the mount.
    pub pages_since_checkpoint: u64,
    /// Logical pages that hold data.
    pub mapped_pages: u64,
    /// Physical pages with valid content of any kind.
    pub valid_pages: u64,
    /// Free blocks that GC maintains (`gc.free_threshold`).
    pub free_threshold_blocks: u32,
    /// Physical blocks by use.
    pub blocks: BlockCounts,
    /// Reason why the device is read-only, if it is.
    pub read_only: Option<&'static str>,
    /// The last mount.
    pub mount: MountReport,
}

/// One structure in RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RamEntry {
    /// Name of the structure.
    pub part: &'static str,
    /// Number of entries.
    pub entries: u64,
    /// Bytes by the paper's count; 0 for a structure that papers do not count.
    pub paper_bytes: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes that it allocates at most on this device, with these parameters.
    pub most_bytes: u64,
}

/// All RAM of a scheme's tables.
pub type RamReport = Vec<RamEntry>;
