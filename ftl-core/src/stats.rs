//! Counters and gauges of a scheme. The chip counts flash operations by cause
//! ([`nand_model::Counters`]).

use crate::int::count_up;
use crate::stalls::StallTotals;
use nand_model::{Cause, Pbn};

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

/// Kind of a stream: the pages that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Host data. With `gc.placement=single`, also copies.
    Host,
    /// Host data relocated by GC.
    Copies,
    /// Mapping pages.
    Map,
    /// Checkpoints.
    Checkpoint,
    /// Pages of a logical block's data block.
    Data,
    /// Log pages.
    Log,
    /// Pages of one unit.
    Unit,
    /// Pages of a superblock.
    Superblock,
    /// Pages of any unit or logical block.
    Common,
    /// A write buffer's journal.
    Journal,
}

impl StreamKind {
    /// Returns the lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            StreamKind::Host => "host",
            StreamKind::Copies => "copies",
            StreamKind::Map => "map",
            StreamKind::Checkpoint => "checkpoint",
            StreamKind::Data => "data",
            StreamKind::Log => "log",
            StreamKind::Unit => "unit",
            StreamKind::Superblock => "superblock",
            StreamKind::Common => "common",
            StreamKind::Journal => "journal",
        }
    }
}

/// Programs of a stream since the mount began. Lanes count as one stream, and so do all streams of
/// units, of logical blocks and of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// Kind of the stream.
    pub kind: StreamKind,
    /// Number among the streams of its kind, from 1; 0 if there is only one.
    pub number: u8,
    /// Pages programmed, with padding.
    pub pages: u64,
    /// Block of the last program; `None` before the first.
    pub block: Option<Pbn>,
}

impl StreamView {
    /// Records programs in this block.
    #[inline(always)]
    pub(crate) fn note(&mut self, block: Pbn, pages: u32) {
        count_up(&mut self.pages, u64::from(pages));
        self.block = Some(block);
    }
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
    /// Logical pages that hold data after the mount.
    pub pages_kept: u64,
    /// Programmed pages that the mount does not use: unreadable, uncommitted, or without meaning.
    pub pages_dropped: u64,
    /// Pages rewritten because the cut may have left them unstable.
    pub pages_rewritten: u64,
    /// Blocks that these pages were in.
    pub blocks_rewritten: u64,
    /// Blocks that the mount found something in, by kind, then by number. Their number is bounded.
    pub marks: Vec<(Pbn, BlockMark)>,
}

/// Finding of a mount in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMark {
    /// Pages of it were rewritten.
    Rewritten,
    /// Readable pages of it are uncommitted, or without meaning.
    Dropped,
    /// Pages of it are unreadable.
    Torn,
}

impl BlockMark {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            BlockMark::Rewritten => "rewritten",
            BlockMark::Dropped => "dropped",
            BlockMark::Torn => "torn",
        }
    }
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
    /// Lookups that read no flash.
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
    /// Pages the host read.
    pub host_pages_read: u64,
    /// Pages the host wrote.
    pub host_pages_written: u64,
    /// Pages the host trimmed.
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
    /// Merges in which a log block became a data block after its missing pages were copied into it.
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

/// A structure in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RamPart {
    /// Location of every logical page, block or unit.
    Map,
    /// Cached parts of the map on flash.
    MapCache,
    /// DOPFTL's table of cached mapping pages.
    Ctpa,
    /// Offset of every logical page in its data block.
    PageOffsets,
    /// Mapping entries that are newer than the map on flash.
    Pending,
    /// Indexes of the pending entries.
    PendingIndexes,
    /// Location of every mapping page.
    Directory,
    /// LazyFTL's flags of the pending entries.
    Flags,
    /// Which logical pages hold data.
    Mapped,
    /// Trim records.
    Trims,
    /// Stream that filled each block.
    Placement,
    /// Blocks whose GC runs in slices.
    Slices,
    /// Host data that is not on flash yet.
    WriteBuffer,
    /// Valid pages of every block.
    Bitmaps,
    /// Valid counts of the blocks, and the index of victims.
    Gc,
    /// Free blocks, streams and released blocks.
    Blocks,
    /// Buffers for copies and checkpoints.
    Buffers,
    /// Buffers of the request in progress.
    Work,
}

impl RamPart {
    /// All parts.
    pub const ALL: [RamPart; 18] = [
        RamPart::Map,
        RamPart::MapCache,
        RamPart::Ctpa,
        RamPart::PageOffsets,
        RamPart::Pending,
        RamPart::PendingIndexes,
        RamPart::Directory,
        RamPart::Flags,
        RamPart::Mapped,
        RamPart::Trims,
        RamPart::Placement,
        RamPart::Slices,
        RamPart::WriteBuffer,
        RamPart::Bitmaps,
        RamPart::Gc,
        RamPart::Blocks,
        RamPart::Buffers,
        RamPart::Work,
    ];

    /// Returns the lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            RamPart::Map => "map",
            RamPart::MapCache => "map cache",
            RamPart::Ctpa => "ctpa",
            RamPart::PageOffsets => "page offsets",
            RamPart::Pending => "pending",
            RamPart::PendingIndexes => "pending indexes",
            RamPart::Directory => "directory",
            RamPart::Flags => "flags",
            RamPart::Mapped => "mapped",
            RamPart::Trims => "trims",
            RamPart::Placement => "placement",
            RamPart::Slices => "slices",
            RamPart::WriteBuffer => "write buffer",
            RamPart::Bitmaps => "bitmaps",
            RamPart::Gc => "gc",
            RamPart::Blocks => "blocks",
            RamPart::Buffers => "buffers",
            RamPart::Work => "work",
        }
    }

    /// Returns the part of this name.
    pub fn find(name: &str) -> Option<RamPart> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }
}

/// The size of one structure in RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RamEntry {
    /// The structure.
    pub part: RamPart,
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
