//! Status of an instance. The metrics are made from a snapshot; all other readers get the document,
//! which is also made from it.

mod document;
mod fill;
mod recovery;
mod shadow;
#[cfg(test)]
mod tests;

pub use document::{BlockState, Mount, Pause, Shard, Status, WearOfRated, page_of};
pub use recovery::{Recovery, RecoveryStep};
pub use shadow::{Figures, LiveCounters, Shadow};

use crate::config::Latency;
use crate::inject::Kind;
use crate::record::{Marked, RecordingView, not_recorded};
use crate::service_counters::{ServiceCounters, ServiceView};
use crate::shadow::ShadowCommand;
use crate::transport::nbd::NbdSnapshot;
use crate::volume::{
    BlockMap, BlockPages, EventsView, FlashSnapshot, HostView, Op, Paused, Places, WritesFailing,
};
use ftld_kit::convert::to_f64;
use ftld_kit::failure::{Exit, Failure};
use nand_model::{Geometry, Profile, Verify};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use strum::EnumCount;

/// Constant properties of a running instance.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    /// Name of the instance: the `device` label.
    pub name: String,
    /// Source of requests.
    pub target: String,
    /// `ublk` or `nbd`.
    pub transport: &'static str,
    /// The image.
    pub image: PathBuf,
    /// The scheme's name.
    pub scheme: &'static str,
    /// The flash device.
    pub profile: Profile,
    /// Number of its chips.
    pub shards: u32,
    /// Device size in bytes.
    pub size: u64,
    /// Bytes that the scheme can map.
    pub logical_bytes: u64,
    /// URL of the metrics, if served.
    pub metrics: Option<String>,
    /// Whether the instance was started read-only.
    pub read_only: bool,
    /// Latency model of requests.
    pub latency: Latency,
    /// When reads check page data.
    pub verify: Verify,
    /// Start time.
    pub started: SystemTime,
    /// Duration of opening the image and mounting its scheme.
    pub opened_in: Duration,
    /// Whether the image had a clean shutdown.
    pub was_clean: bool,
    /// Whether the use of the image before ended with a cut of the emulated power.
    pub power_cut: bool,
    /// Identity of the image.
    pub uuid: [u8; 16],
}

/// State of an instance at one moment.
#[derive(Clone, Debug)]
pub struct StatusSnapshot {
    /// Constant properties.
    pub facts: Arc<InstanceInfo>,
    /// Host requests.
    pub host: HostView,
    /// Flash state, as last published: the sum over all shards.
    pub flash: Arc<FlashSnapshot>,
    /// Flash state of each shard.
    pub flash_by_shard: Vec<Arc<FlashSnapshot>>,
    /// Counters of the NBD server; all zero without one.
    pub nbd: NbdSnapshot,
    /// Requests to the daemon itself.
    pub service: ServiceView,
    /// Injected faults, in the order of [`Kind`].
    pub injected: [u64; Kind::COUNT],
    /// Faults of requests in force, one phrase each.
    pub faults: Vec<String>,
    /// Permanent failure, if any.
    pub failure: Option<String>,
    /// Reason why the host's storage currently refuses writes.
    pub writes_failing: Option<WritesFailing>,
    /// The pause, if any: requests wait as intended.
    pub paused: Option<Paused>,
    /// The recording, if there is one.
    pub recording: Option<RecordingView>,
    /// Schemes that follow the requests.
    pub shadows: Vec<Shadow>,
    /// Processes that a requested stop waits for; empty without a stop.
    pub waiting_for: Vec<String>,
}

/// Source of status snapshots.
pub trait StatusSource: Send + Sync {
    /// Returns the current snapshot; never waits for a request.
    fn view(&self) -> StatusSnapshot;

    /// Returns the counters of requests to the daemon itself.
    fn service(&self) -> &ServiceCounters;

    /// Requests publication of blocks and events for some seconds.
    fn watch(&self);

    /// Returns the blocks as last published; never waits for a request.
    fn blocks(&self) -> Arc<BlockMap>;

    /// Returns the newest published events from number `from` on, at most `most`; never waits for a
    /// request.
    fn events(&self, from: u64, most: usize) -> EventsView;

    /// Puts a mark into the recording and returns where.
    ///
    /// # Errors
    /// Nothing is recorded, or the recording has failed.
    fn mark(&self, _text: &str) -> Result<Marked, Failure> {
        Err(not_recorded())
    }

    /// Lets schemes follow the requests, or no longer; returns their names. May take as long as
    /// listing the device's content.
    ///
    /// # Errors
    /// The shadow is wrong, there, or not there.
    fn shadow(&self, _command: &ShadowCommand) -> Result<Vec<String>, Failure> {
        Err(Failure::usage("this device has no shadows"))
    }

    /// Looks for the logical pages that hold these bytes of the device, for about `patience`. May
    /// wait for requests: never call it where others wait.
    ///
    /// # Errors
    /// A range is not on the device; the device has failed, or stops.
    fn places(&self, _ranges: &[Range<u64>], _patience: Duration) -> Result<Places, Failure> {
        Err(no_flash())
    }

    /// Returns what the pages of a block hold; otherwise as [`StatusSource::places`].
    ///
    /// # Errors
    /// There is no such block; the device has failed, or stops.
    fn block_pages(&self, _block: u32) -> Result<BlockPages, Failure> {
        Err(no_flash())
    }
}

/// Returns the failure of a source that has no flash to look at.
fn no_flash() -> Failure {
    Failure::new(Exit::NotRunning, "the device does not serve")
}

impl InstanceInfo {
    /// Returns how the use of the image before ended: `clean`, `unclean` or `power cut`.
    pub fn ended(&self) -> &'static str {
        match (self.was_clean, self.power_cut) {
            (true, _) => "clean",
            (false, true) => "power cut",
            (false, false) => "unclean",
        }
    }

    /// Returns the data bytes of all pages of all chips.
    pub fn raw_bytes(&self) -> u64 {
        self.geometry().data_bytes() * u64::from(self.shards)
    }

    /// Returns the pages of all chips.
    pub fn pages(&self) -> u64 {
        self.geometry().pages() * u64::from(self.shards)
    }

    /// Returns the blocks of all chips.
    pub fn blocks(&self) -> u32 {
        self.geometry().blocks * self.shards
    }

    /// Returns the dies of all chips.
    pub fn dies(&self) -> u32 {
        self.geometry().dies() * self.shards
    }

    /// Returns the geometry of each chip.
    pub fn geometry(&self) -> &Geometry {
        &self.profile.geometry
    }

    /// Returns `slc`, `mlc`, `tlc` or `qlc`, as in metric labels.
    pub fn cell(&self) -> &'static str {
        self.profile.cell()
    }
}

impl StatusSnapshot {
    /// Returns the reason why writes are refused; empty if they are not.
    pub fn read_only_reason(&self) -> String {
        let asked = self
            .facts
            .read_only
            .then(|| "requested by --read-only".to_owned());
        let worn = || self.flash.scheme.read_only.map(str::to_owned);
        self.failure
            .clone()
            .or(asked)
            .or_else(worn)
            .unwrap_or_default()
    }

    /// Returns the state in one word.
    pub fn state(&self) -> &'static str {
        match self.writes_failing {
            _ if self.failure.is_some() => "failed",
            Some(failing) => failing.state(),
            None if !self.waiting_for.is_empty() => "stopping",
            None if self.paused.is_some() => "paused",
            None if !self.read_only_reason().is_empty() => "read-only",
            None => "serving",
        }
    }

    /// Returns the warning about a host that is too slow for `--latency emulate`: reads and writes
    /// took over 10 % longer than on the emulated flash, since the start.
    pub(crate) fn host_behind(&self) -> Option<String> {
        if self.facts.latency != Latency::Emulate {
            return None;
        }
        let (reads, writes) = (self.host.of(Op::Read), self.host.of(Op::Write));
        let took = to_f64(reads.wall.sum_ns + writes.wall.sum_ns);
        let flash = to_f64(reads.emulated.sum_ns + writes.emulated.sum_ns);
        (flash > 0.0 && took > flash * 1.1).then(|| {
            let percent = (took / flash - 1.0) * 100.0;
            format!(
                "requests took {percent:.0} % longer than on the emulated flash: the host is too slow for this \
                 load, or requests were paused"
            )
        })
    }

    /// Returns the flash programs per page written by the host, since the image was opened. `None`
    /// before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let page = u64::from(self.facts.geometry().page_bytes);
        let written = self.flash.host_written_bytes;
        let programmed = self.flash.counters.total().programs * page;
        (written > 0).then(|| to_f64(programmed) / to_f64(written))
    }
}
