//! The status of an instance as others see it: over the control socket, over HTTP, with `--json`.
//!
//! Invariant: a key is declared once, here or in the type of its part. Sizes are in bytes; counters
//! begin at 0 with the daemon. A reader ignores unknown keys, and refuses a document that lacks a
//! known one.

use super::recovery::Recovery;
use super::shadow::Shadow;
use crate::by_name::ByName;
use crate::counters::{EnergyUsed, Operations, SchemeCounters};
use crate::inject::Kind;
use crate::record::RecordingView;
use crate::volume::write_cache::CacheView;
use crate::volume::{BOUNDS_NS, LastWrite, Op, OpView, Wear};
use ftld_kit::path_json::ImagePath;
use nand_model::Cause;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{EnumCount, VariantNames};

/// Status of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the instance.
    pub name: String,
    /// Process of the daemon.
    pub pid: u32,
    /// State in one word, such as `serving`.
    pub state: String,
    /// Source of requests.
    pub target: String,
    /// `ublk` or `nbd`.
    pub transport: String,
    /// The image.
    #[serde(flatten)]
    pub image: ImagePath,
    /// Name of the scheme.
    pub scheme: String,
    /// Name of the flash device.
    pub profile: String,
    /// Size of the device.
    pub size_bytes: u64,
    /// Data bytes of all flash pages.
    pub raw_bytes: u64,
    /// Data bytes of a flash page.
    pub page_bytes: u32,
    /// Latency model of requests: `none` or `emulate`.
    pub latency: String,
    /// When reads check page data: `once` or `always`.
    pub verify: String,
    /// The shards in short; a device of one chip has one.
    pub shards: Vec<Shard>,
    /// Bytes written by the host, at the moment of the flash snapshot.
    pub host_written_bytes: u64,
    /// URL of the metrics; `None` if they are not served.
    pub metrics: Option<String>,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// Why writes are refused; empty if they are not.
    pub read_only_reason: String,
    /// Permanent failure, if any.
    pub failure: Option<String>,
    /// Why the host's storage currently refuses writes, if it does.
    pub writes_failing: Option<String>,
    /// Processes that a requested stop waits for; empty without a stop.
    pub waiting_for: Vec<String>,
    /// Note on a host that is too slow for `--latency emulate`.
    pub host_behind: Option<String>,
    /// The recording, if there is one.
    pub recording: Option<RecordingView>,
    /// The pause, if any.
    pub paused: Option<Pause>,
    /// The recovery at this start; `None` if the image is new or was closed cleanly.
    pub recovery: Option<Recovery>,
    /// Upper bounds of the buckets of all latencies, ns.
    pub latency_bounds_ns: [u64; BOUNDS_NS.len()],
    /// Flash programs per page written since the image was opened; `None` before the first write.
    pub write_amplification: Option<f64>,
    /// The flash snapshot from which the figures of flash and scheme are.
    pub snapshot: Snapshot,
    /// Host requests by operation.
    #[serde(with = "ByName::<Op>")]
    pub host: [OpView; Op::COUNT],
    /// Flash operations by cause, since the image was opened.
    #[serde(with = "ByName::<Cause>")]
    pub nand: [Operations; Cause::COUNT],
    /// Energy of these operations, J; `None` if the flash device has no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<EnergyUsed>,
    /// Flash blocks by state; the counts add up to all blocks.
    #[serde(with = "ByName::<BlockState>")]
    pub blocks: [u32; BlockState::COUNT],
    /// Block erases.
    pub wear: WearOfRated,
    /// The scheme's own counters.
    pub scheme_stats: SchemeStatus,
    /// RAM of the scheme's tables.
    pub ram: Vec<RamPart>,
    /// Injected faults, and the requests that they hit.
    #[serde(with = "ByName::<Kind>")]
    pub faults_injected: [u64; Kind::COUNT],
    /// Faults of requests in force, one phrase each.
    pub faults: Vec<String>,
    /// The write cache; all zero without one.
    pub write_cache: CacheView,
    /// Schemes that follow the requests without data.
    pub shadows: Vec<Shadow>,
}

/// One chip of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Flash page reads.
    pub(crate) reads: u64,
    /// Flash page programs.
    pub programs: u64,
    /// Block erases.
    pub erases: u64,
    /// Free blocks.
    pub free_blocks: u32,
    /// Pages with valid content of any kind.
    pub(crate) valid_pages: u64,
    /// Mean erases of the good blocks.
    pub(crate) erases_mean: f64,
    /// Erases that the store accepts before it needs a sync.
    pub(crate) erase_credit: u32,
    /// Bytes in its part of the write cache that are not on the flash yet.
    pub(crate) write_cache_dirty_bytes: u64,
}

/// A pause: requests wait as intended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// Seconds until it ends by itself.
    pub seconds_left: f64,
    /// Whether a step is in progress.
    pub stepping: bool,
    /// Number of ended pauses and of steps; see [`crate::volume::Paused`].
    pub runs: u64,
}

/// The published snapshot of the flash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Seconds since it was taken.
    pub(crate) age_seconds: f64,
    /// Bytes written by the host at that moment.
    pub(crate) host_written_bytes: u64,
    /// Emulated time, ns.
    pub(crate) emulated_ns: u64,
    /// Newest extent that the host wrote; `None` before the first.
    pub(crate) last_write: Option<LastWrite>,
    /// Streams of the scheme.
    pub(crate) streams: Vec<Stream>,
}

/// Programs of a stream since the image was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// Kind of its pages.
    pub(crate) kind: String,
    /// Number among the streams of its kind; 0 if there is only one.
    pub(crate) number: u8,
    /// Pages programmed, with padding.
    pub(crate) pages: u64,
    /// Block of the last program; `None` before the first.
    pub(crate) block: Option<u32>,
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum BlockState {
    /// Erased, or ready for erase.
    Free,
    /// Open.
    Open,
    /// Full, with host data.
    Data,
    /// Full: update and cold blocks, log blocks, or journals.
    Log,
    /// With mapping pages.
    Map,
    /// With checkpoints.
    Checkpoint,
    /// Released by GC, not yet erased.
    Released,
    /// Bad from the factory or grown bad.
    Bad,
}

crate::by_name::named!(BlockState);

/// Block erases, and the rated ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WearOfRated {
    /// Erases of the good blocks, and bad blocks.
    #[serde(flatten)]
    pub wear: Wear,
    /// Rated erases of a block.
    pub rated: u32,
}

/// Counters and gauges of the scheme.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchemeStatus {
    /// Its counters.
    #[serde(flatten)]
    pub counters: SchemeCounters,
    /// Mapping lookups for pages that the host reads.
    pub lookups_read: u64,
    /// Lookups for reads that read no flash.
    pub hits_read: u64,
    /// Mapping lookups for pages that the host writes.
    pub lookups_write: u64,
    /// Lookups for writes that read no flash.
    pub hits_write: u64,
    /// Logical pages that hold data.
    pub(crate) mapped_pages: u64,
    /// Physical pages with valid content of any kind.
    pub(crate) valid_pages: u64,
    /// Free blocks that GC maintains.
    pub(crate) free_threshold_blocks: u32,
    /// Erases that the store accepts before it needs a sync.
    pub(crate) erase_credit: u32,
    /// The mount of this start.
    pub mount: Mount,
}

/// Result of a mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    /// Whether the image had a clean shutdown.
    pub clean: bool,
    /// Pages whose OOB was read.
    pub pages_scanned: u64,
    /// Pages that were unreadable or dropped as suspect.
    pub pages_discarded: u64,
    /// Its steps.
    pub steps: Vec<MountStep>,
}

/// A step of a mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MountStep {
    /// Its name.
    pub(crate) step: String,
    /// Emulated duration, ns.
    pub nanoseconds: u64,
}

/// A structure in RAM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RamPart {
    /// Its name.
    pub(crate) part: String,
    /// Entries.
    pub(crate) entries: u64,
    /// Bytes by the paper's count.
    pub(crate) paper_bytes: u64,
    /// Bytes allocated.
    pub(crate) allocated_bytes: u64,
}

impl Status {
    /// Returns the document, its keys in order.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("a status is plain data")
    }

    /// Returns the host requests of one operation.
    pub fn requests(&self, op: Op) -> &OpView {
        &self.host[op.index()]
    }

    /// Returns the number of blocks in this state.
    pub fn blocks_of(&self, state: BlockState) -> u32 {
        self.blocks[state as usize]
    }

    /// Returns the address of the instance's live page.
    pub fn page(&self) -> Option<&str> {
        self.metrics.as_deref().map(page_of)
    }
}

/// Returns the address of the live page beside this URL of the metrics.
pub fn page_of(metrics: &str) -> &str {
    metrics.strip_suffix("metrics").unwrap_or(metrics)
}
