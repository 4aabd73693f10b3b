//! The scheme behind its lock: bytes in, pages out. A transport thread runs its request inline:
//! split, run, complete. A device has one chip, or several *shards*: chips of one shape with a lock
//! each, between which its bytes are striped.
//!
//! Invariants: a lock is held for one bounded extent and never across a wait for the host's
//! storage. Nobody holds two locks. When a verb returns `Ok`, everything that it acknowledges is in
//! the store and survives the death of this process. Nothing is acknowledged after a failed sync,
//! or after the flash lost power. [`Volume::run`] is the only place that catches a panic of the
//! scheme: the device then refuses writes. If the scheme's tables may be half changed, it refuses
//! reads too, since a wrong page is worse than none.
//!
//! If power fails here, [`Ftl::flush`] followed by the store's sync decides what survives; the
//! volume has no state of its own on the image.

mod background;
mod batch;
mod block_device;
mod cached;
mod clock;
mod content;
mod control;
mod histogram;
mod host;
mod locked;
mod oob_areas;
mod pause_gate;
mod places;
mod request;
mod shard;
mod snapshot;
mod stripes;
mod sums;
mod unlocked;
mod unsynced;
mod watch;
pub mod write_cache;

pub use clock::Completions;
pub use histogram::{BOUNDS_NS, Histogram, HistogramView};
pub use host::{ErrorClass, HostCounters, HostView, Op, OpView, Queue, SIZE_BOUNDS};
pub use pause_gate::{PAUSE_DEFAULT, PAUSE_MAX, Paused, Step};
pub use places::{
    BlockPages, FlashPage, PLACES_MAX, PagePlaces, Place, Places, parse_range, parse_ranges,
};
pub use snapshot::{FlashSnapshot, LastWrite, WEAR_BOUNDS, Wear};
pub use watch::{BlockMap, CELLS_MAX, Cell, EventsView, UseCounts};

use crate::pages::extent_bytes;
use clock::Clock;
use ftl_core::{Ftl, FtlError};
use ftld_kit::convert::to_u32;
use ftld_kit::failure::panic_text;
use locked::Core;
use nand_model::store::AnyStore;
use nand_model::{Store, Striping, atomic_bytes};
use parking_lot::Mutex;
use request::Mark;
pub use shard::shard_text;
use shard::{Locked, Shard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
pub use stripes::{Stripes, striping};
use unlocked::{NO_DATA, NO_WRITES, Unlocked, WELL, errno};
pub use unsynced::{MOST_AGE as UNSYNCED_AGE_MAX, UnsyncedAge};
use watch::Shown;

/// Maximum pages per extent of a trim, or per block-status query.
const EXTENT_PAGES: u32 = 16_384;
/// Number of remaining erases below which the next change waits for a sync; a quarter of the
/// store's erases if that is less. One extent takes fewer erases.
const ERASES_LOW: u32 = 8;
/// Time after the last [`Volume::watch`] during which the volume counts as watched.
const WATCHED: Duration = Duration::from_secs(5);
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Durability of a store on the host's storage. Stores in memory have none.
pub trait Durable: Send + Sync {
    /// Returns the number of the newest operation in the store; short, called under the lock.
    fn mark(&self, store: &mut AnyStore) -> u64;
    /// Returns the number of the newest operation that a sync covers, with all before it.
    fn synced(&self) -> u64;
    /// Blocks until everything up to `mark` is durable; concurrent waiters share a sync. Never
    /// called under the lock.
    ///
    /// # Errors
    /// The sync failed: no later operation becomes durable.
    fn wait(&self, mark: u64) -> io::Result<()>;
    /// Blocks until the space freed by erases up to `mark` is reusable. Never called under the
    /// lock.
    ///
    /// # Errors
    /// The sync failed, or the host has no space.
    fn wait_for_erased_space(&self, mark: u64) -> io::Result<()>;
    /// Returns whether a sync has failed, so that no later operation becomes durable.
    fn failed(&self) -> bool;
}

/// Options of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Size of the device in bytes; at most the scheme's logical pages.
    pub size: u64,
    /// Whether writes are refused from the start and the image stays unchanged.
    pub read_only: bool,
    /// Whether completions are delayed until the emulated flash has finished.
    pub emulate: bool,
}

/// Remaining background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// None until the next change.
    Settled,
    /// More, immediately.
    More,
    /// More, once the emulated flash has finished its queued operations.
    After(Duration),
}

impl Idle {
    /// Returns which of two has to be looked at sooner.
    fn soonest(self, other: Idle) -> Idle {
        match (self, other) {
            (Idle::Settled, other) | (other, Idle::Settled) => other,
            (Idle::More, _) | (_, Idle::More) => Idle::More,
            (Idle::After(one), Idle::After(other)) => Idle::After(one.min(other)),
        }
    }
}

/// Reason why the host's storage currently refuses changes. Temporary, unlike [`Volume::failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritesFailing {
    pub(crate) errno: i32,
}

impl WritesFailing {
    /// Returns whether the cause is a full file system or a quota; otherwise it is a storage error.
    pub fn is_disk_full(self) -> bool {
        self.errno == ENOSPC
    }

    /// Returns the state of a device whose writes fail.
    pub fn state(self) -> &'static str {
        if self.is_disk_full() {
            "disk-full"
        } else {
            "host-error"
        }
    }

    /// Returns the cause as text.
    pub fn text(self) -> String {
        match self.is_disk_full() {
            true => "writes fail: the host's file system has no room for the image".into(),
            false => format!(
                "writes of the image fail: {}",
                io::Error::from_raw_os_error(self.errno)
            ),
        }
    }
}

/// A block device over a scheme.
pub struct Volume {
    shape: Shape,
    unlocked: Arc<Unlocked>,
    shards: Vec<Shard>,
    /// The sum of what the shards have published.
    published: Mutex<Arc<FlashSnapshot>>,
    shown: Mutex<Shown>,
}

/// A mounted chip of a device.
pub(crate) struct MountedChip {
    /// The scheme on the chip.
    pub(crate) ftl: Box<dyn Ftl>,
    /// Durability of its store; `None` for a store in memory.
    pub(crate) durable: Option<Arc<dyn Durable>>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    size: u64,
    stripes: Stripes,
    page_bytes: u32,
    extent_bytes: u64,
    /// Maximum bytes of an extent of a write.
    write_bytes: u64,
    /// Unit of atomicity.
    unit_bytes: u32,
    /// Whether completions are delayed until the emulated flash has finished.
    emulate: bool,
    read_only: bool,
    /// Erases left at which a change waits for a sync.
    erases_low: u32,
    /// Erases left at which a sync starts in the background.
    erases_eager: u32,
}

impl Volume {
    /// Creates a volume from a mounted scheme.
    ///
    /// # Panics
    /// If the scheme has fewer pages than `options.size` needs.
    pub fn new(
        ftl: Box<dyn Ftl>,
        options: VolumeOptions,
        durable: Option<Arc<dyn Durable>>,
    ) -> Self {
        Volume::sharded(vec![MountedChip { ftl, durable }], None, options)
    }

    /// Creates a volume from the mounted schemes of its shards.
    ///
    /// # Panics
    /// If a scheme has fewer pages than its part of `options.size` needs, or the chips differ in
    /// their shape.
    pub(crate) fn sharded(
        chips: Vec<MountedChip>,
        striping: Option<Striping>,
        options: VolumeOptions,
    ) -> Self {
        let geometry = *chips[0].ftl.chip().geometry();
        let page = u64::from(geometry.page_bytes);
        let mapped = striping.map_or(options.size, |of| of.shard_bytes(options.size));
        for MountedChip { ftl, .. } in &chips {
            assert!(
                mapped <= u64::from(ftl.logical_pages()) * page,
                "volume larger than its scheme"
            );
            assert_eq!(*ftl.chip().geometry(), geometry, "shards of one shape");
        }
        let extent_bytes = extent_bytes(&geometry);
        assert!(
            extent_bytes.is_multiple_of(page),
            "an extent of {extent_bytes} bytes does not end at a page"
        );
        assert!(
            page > 0 && page.is_multiple_of(512),
            "pages of {page} bytes"
        );
        let erases = chips[0].ftl.chip().store().erase_credit_full();
        let shape = Shape {
            size: options.size,
            stripes: Stripes::new(chips.len(), striping),
            page_bytes: geometry.page_bytes,
            extent_bytes,
            write_bytes: extent_bytes,
            unit_bytes: atomic_bytes(geometry.page_bytes),
            emulate: options.emulate,
            read_only: options.read_only,
            erases_low: ERASES_LOW.min(erases / 4),
            erases_eager: erases / 2,
        };
        // The emulated time of all mounts ends before the first request.
        let mounted = chips.iter().map(|chip| chip.ftl.chip().busy_until());
        let clock = Clock::new(mounted.max().unwrap_or(0), options.emulate, chips.len());
        let cells = CELLS_MAX / to_u32(chips.len());
        let shard = |(number, chip): (usize, MountedChip)| {
            Shard::new(number, chip.ftl, chip.durable, clock.clone(), cells)
        };
        let shards: Vec<_> = chips.into_iter().enumerate().map(shard).collect();
        let published = Mutex::new(sums::snapshot(&shards));
        Volume {
            shape,
            unlocked: Arc::new(Unlocked::new()),
            shown: Mutex::new(Shown::new(shards.len(), geometry.blocks)),
            shards,
            published,
        }
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the current host counters.
    pub fn host(&self) -> HostView {
        self.unlocked.counters.view()
    }

    /// Returns the requests that use the flash: all but FLUSH.
    pub fn queue(&self) -> Queue {
        self.unlocked.counters.queue()
    }

    /// Returns whether a request waits for the host's storage.
    pub fn waits_for_storage(&self) -> bool {
        self.unlocked.at_storage.load(Relaxed) > 0
    }

    /// Returns the last published flash snapshot, the sum over all shards. Never waits for a
    /// request.
    pub fn flash(&self) -> Arc<FlashSnapshot> {
        self.published.lock().clone()
    }

    /// Returns the last published snapshot of each shard. Never waits for a request.
    pub fn flash_by_shard(&self) -> Vec<Arc<FlashSnapshot>> {
        let shards = self.shards.iter();
        shards.map(|shard| shard.published.lock().clone()).collect()
    }

    /// Returns the cause of a permanent failure, if any.
    pub fn failure(&self) -> Option<String> {
        self.unlocked.failure.lock().clone()
    }

    /// Runs `work` while a request of the first shard keeps its lock.
    #[cfg(any(test, feature = "test-support"))]
    pub fn with_lock_held<R>(&self, work: impl FnOnce() -> R) -> R {
        let _request = self.shards[0].lock();
        work()
    }

    /// Refuses writes because one of the daemon's own threads has died of a panic.
    pub fn note_dead_thread(&self, name: &str, panic: &str) {
        let why = format!("internal error: thread {name} has ended: {panic}");
        self.unlocked.fail(NO_WRITES, why);
    }

    /// Returns why writes fail, from the first failed write to the next successful one.
    pub fn writes_failing(&self) -> Option<WritesFailing> {
        let errno = self.unlocked.refused.load(Relaxed);
        (errno != 0).then_some(WritesFailing { errno })
    }

    /// Returns the number of events of all shards, as far as they are known without their locks.
    fn events_noted(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.events.load(Relaxed)).sum()
    }

    /// Returns the number of events recorded so far; only those of the locked shard are up to date.
    fn noted(&self, locked: &Locked<'_>) -> u64 {
        locked.note_events();
        self.events_noted()
    }

    /// Runs a verb of the scheme; its only caller. Turns errors into errnos and panics into a
    /// read-only device.
    fn run<R>(
        &self,
        locked: &mut Locked<'_>,
        changes: bool,
        verb: impl FnOnce(&mut Core) -> Result<R, FtlError>,
    ) -> io::Result<R> {
        let eio = || io::Error::from_raw_os_error(EIO);
        let shard = locked.shard;
        let core = locked.as_mut().ok_or_else(eio)?;
        if self.unlocked.health.load(Relaxed) >= NO_DATA {
            return Err(eio());
        }
        match catch_unwind(AssertUnwindSafe(|| verb(&mut *core))) {
            Ok(result) => {
                if self.unlocked.pause_gate.is_paused() {
                    shard.events.store(core.ftl.events().total(), Relaxed);
                }
                result.map_err(|error| {
                    if matches!(error, FtlError::PowerLost) {
                        core.lose_power();
                    }
                    self.refuse(shard, &error)
                })
            }
            Err(panic) => {
                let why = format!(
                    "internal error in scheme {}: {}",
                    self.scheme_name(core),
                    panic_text(&*panic)
                );
                self.unlocked
                    .fail(if changes { NO_DATA } else { NO_WRITES }, why);
                Err(eio())
            }
        }
    }

    /// Returns the errno. If a sync failed while the scheme waited for erased space, the device
    /// fails.
    fn refuse(&self, shard: &Shard, error: &FtlError) -> io::Error {
        let of_host = matches!(error, FtlError::Host(_) | FtlError::HostFull);
        let lost = of_host
            && shard
                .durable
                .as_ref()
                .is_some_and(|durable| durable.failed());
        if lost && self.unlocked.health.load(Relaxed) == WELL {
            return self
                .unlocked
                .sync_failed(&io::Error::from_raw_os_error(errno(error)));
        }
        self.unlocked.refuse(error, |error| {
            let named = shard_text(shard.number, self.shards.len());
            named + &self.error_text(shard.number, error)
        })
    }

    /// Returns the error of a shard as text, with the device's number of a logical page.
    pub(crate) fn error_text(&self, shard: usize, error: &FtlError) -> String {
        let page = u64::from(self.shape.page_bytes);
        match error {
            FtlError::MediaLost(own) => {
                let at = u64::from(*own) * page;
                let number = self.shape.stripes.offset_of(shard, at) / page;
                format!("data of logical page {number} cannot be read")
            }
            error => error.to_string(),
        }
    }

    fn scheme_name(&self, core: &Core) -> &'static str {
        catch_unwind(AssertUnwindSafe(|| core.ftl.scheme())).unwrap_or("unknown")
    }

    fn tell_short(&self, shard: &Shard) {
        if !shard.short.swap(true, Relaxed) {
            let (lock, told) = &self.unlocked.short_told;
            drop(lock.lock());
            told.notify_all();
        }
    }

    /// Waits for erased space of a shard. A full host fails the request; a failed sync fails the
    /// device.
    fn wait_for_erased_space(&self, shard: &Shard, mark: u64) -> io::Result<()> {
        let Some(durable) = &shard.durable else {
            return Ok(());
        };
        self.unlocked
            .at_storage(|| durable.wait_for_erased_space(mark))
            .map_err(|error| {
                if durable.failed() {
                    return self.unlocked.sync_failed(&error);
                }
                tracing::warn!("waiting for erased space: {error}");
                let errno = if is_full(&error) { ENOSPC } else { EIO };
                self.unlocked.note_refused(errno);
                io::Error::from_raw_os_error(errno)
            })
    }

    /// Returns the durability of a shard, with the number of the newest operation in its store.
    fn mark_of(locked: &mut Locked<'_>) -> Option<Mark> {
        let mark = locked.mark();
        let durable = locked.shard.durable.clone()?;
        Some(Mark { durable, mark })
    }
}

/// Returns whether the host has no room: its file system, a quota, or the limit of a file's size.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests;
