//! Plain counters and gauges that a scheme keeps. Flash operations by cause are the chip's
//! ([`nand_model::Counters`]).

/// Where the physical blocks are; the numbers add up to all blocks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Erased, or waiting for the erase that nothing forbids any more.
    pub free: u32,
    /// Being filled.
    pub open: u32,
    /// Full, holding host data.
    pub data: u32,
    /// LazyFTL's update and cold blocks, the log blocks of a hybrid scheme, or the journal of a
    /// buffer.
    pub log: u32,
    /// Holding mapping pages.
    pub map: u32,
    /// Holding checkpoints.
    pub checkpoint: u32,
    /// Collected, not yet erased: a page that replaces theirs could still be lost.
    pub released: u32,
    /// Bad from the factory or grown bad.
    pub bad: u32,
}

/// What a block is used for. Those between `Open` and `Released` are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockUse {
    /// Erased, or waiting for the erase that nothing forbids any more.
    Free,
    /// Being filled.
    Open,
    /// Holds host data.
    Data,
    /// Holds host data newly written, mapped in RAM alone.
    Update,
    /// Holds host data that a collection moved.
    Cold,
    /// Logs changes of data blocks.
    Log,
    /// Holds a buffer's journal.
    Journal,
    /// Holds mapping pages.
    Map,
    /// Holds checkpoints.
    Checkpoint,
    /// Holds only trim records or filler.
    Other,
    /// Collected, not yet erased.
    Released,
    /// Bad from the factory or grown bad.
    Bad,
}

impl BlockUse {
    /// Every use in the order of its number.
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

    /// Lower-case name.
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

/// One block as the scheme's tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// What it is used for.
    pub used: BlockUse,
    /// Pages of live content.
    pub valid: u32,
    /// Blocks that were opened since this one was; 0 if it holds nothing.
    pub age: u64,
}

/// What happened at mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// Whether the last shutdown was clean, so that its checkpoint told everything.
    pub clean: bool,
    /// Named steps with their emulated duration in nanoseconds.
    pub steps: Vec<(&'static str, u64)>,
    /// Pages whose OOB was read.
    pub pages_scanned: u64,
    /// Pages that could not be read or were dropped as suspect.
    pub pages_discarded: u64,
    /// Blocks that held nothing when the mount began to program.
    pub free_blocks: u32,
}

impl MountReport {
    /// Emulated time of all steps.
    pub fn total_ns(&self) -> u64 {
        self.steps.iter().map(|(_, ns)| ns).sum()
    }

    /// What went on since the last step ended was this one; it is `now`, counted from the
    /// beginning.
    pub(crate) fn end_step(&mut self, name: &'static str, now: u64) {
        self.steps.push((name, now - self.total_ns()));
    }
}

/// A snapshot of a scheme's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemeStats {
    /// Pages the host read, wrote and trimmed.
    pub host_pages_read: u64,
    /// See above.
    pub host_pages_written: u64,
    /// See above.
    pub host_pages_trimmed: u64,
    /// Garbage collections and the valid pages they moved.
    pub gc_runs: u64,
    /// See above.
    pub gc_pages_moved: u64,
    /// Wear-levelling relocations.
    pub wear_moves: u64,
    /// Blocks whose data was written anew because bits went wrong.
    pub refreshes: u64,
    /// LazyFTL conversions and the mapping pages they wrote.
    pub converts: u64,
    /// See above.
    pub convert_map_pages: u64,
    /// Mapping lookups answered from RAM, where a mapping cache exists.
    pub map_cache_hits: u64,
    /// Mapping lookups that read flash.
    pub map_cache_misses: u64,
    /// Places in RAM that mapping lookups looked at: cached mapping pages and entries in them
    /// (DOPFTL).
    pub map_lookup_steps: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Logical pages that hold data.
    pub mapped_pages: u64,
    /// Physical pages that hold live content of any kind.
    pub valid_pages: u64,
    /// Free blocks that collection keeps (`gc.free_threshold`).
    pub reserve_blocks: u32,
    /// Where the blocks are.
    pub blocks: BlockCounts,
    /// Why the device takes no writes, if so.
    pub read_only: Option<&'static str>,
    /// The last mount.
    pub mount: MountReport,
}

/// One structure in RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RamEntry {
    /// What it is.
    pub part: &'static str,
    /// How many entries.
    pub entries: u64,
    /// Bytes as the paper accounts them.
    pub paper_bytes: u64,
    /// Bytes really allocated.
    pub real_bytes: u64,
}

/// All RAM a scheme's tables take.
pub type RamReport = Vec<RamEntry>;
