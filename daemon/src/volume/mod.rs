//! The scheme behind its lock: bytes in, pages out. A transport thread runs its request inline:
//! split, run, complete.
//!
//! Invariants: the lock is held for one bounded extent and never across a wait for the host's
//! storage. When a verb returns `Ok`, everything that it acknowledges is in the store and survives
//! the death of this process. Nothing is acknowledged after a failed sync, or after the flash lost
//! power. [`Volume::run`] is the only place that catches a panic of the scheme: the device then
//! refuses writes. If the scheme's tables may be half changed, it refuses reads too, since a wrong
//! page is worse than none.
//!
//! If power fails here, [`Ftl::flush`] followed by the store's sync decides what survives; the
//! volume has no state of its own on the image.

mod background;
mod batch;
mod block_device;
mod cached;
mod clock;
mod control;
mod histogram;
mod host;
mod locked;
mod pause_gate;
mod request;
mod snapshot;
mod unlocked;
mod watch;
pub mod write_cache;

use crate::convert::to_usize;
pub use histogram::{BOUNDS_NS, Histogram, HistogramView};
pub use host::{ErrorClass, HostCounters, HostView, Op, OpView, Queue, SIZE_BOUNDS};
pub use pause_gate::{PAUSE_DEFAULT, PAUSE_MAX, Paused, Step};
pub use snapshot::{FlashSnapshot, LastWrite, WEAR_BOUNDS, Wear};
pub use watch::{BlockMap, CELLS_MAX, Cell, EventsView, UseCounts};

use crate::failure::panic_text;
use crate::pages::extent_bytes;
use batch::Batch;
use clock::Clock;
use ftl_core::{Ftl, FtlError};
use locked::Core;
use nand_model::{PageReader, Store};
use parking_lot::{Mutex, MutexGuard};
use snapshot::WearScan;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use unlocked::{NO_DATA, NO_WRITES, Unlocked, WELL, errno};
use watch::{BlockScan, Shown};
use write_cache::CacheView;

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
pub trait Durable<S>: Send + Sync {
    /// Returns the number of the newest operation in the store; short, called under the lock.
    fn mark(&self, store: &mut S) -> u64;
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
    /// Discards a bounded part of the image's freed space; called under the lock while the host is
    /// idle.
    ///
    /// # Errors
    /// The host refuses to free space; no data is lost.
    fn discard_freed_space(&self, store: &mut S) -> io::Result<()>;
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

/// Reason why the host's storage currently refuses changes. Temporary, unlike [`Volume::failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritesFailing {
    errno: i32,
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
pub struct Volume<S: Store> {
    shape: Shape,
    unlocked: Arc<Unlocked>,
    core: Mutex<Option<Core<S>>>,
    durable: Option<Arc<dyn Durable<S>>>,
    /// Copies pages outside the lock, where the store permits it.
    reader: Option<PageReader>,
    published: Mutex<Arc<FlashSnapshot>>,
    /// Locked only by [`Volume::publish`], before the request lock.
    scan: Mutex<BlockScan>,
    map: Mutex<Arc<BlockMap>>,
    shown: Mutex<Shown>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    size: u64,
    page_bytes: u32,
    extent_bytes: u64,
    /// Most bytes of an extent of a write.
    write_bytes: u64,
    /// Most bytes of writes that are executed together.
    batch_bytes: u64,
    /// Unit of atomicity.
    unit_bytes: u32,
    /// Whether there is a write cache.
    has_cache: bool,
    /// Whether completions are delayed until the emulated flash has finished.
    emulate: bool,
    read_only: bool,
    /// Erases left at which a change waits for a sync.
    erases_low: u32,
    /// Erases left at which a sync starts in the background.
    erases_eager: u32,
}

impl<S: Store + 'static> Volume<S> {
    /// Creates a volume from a mounted scheme.
    ///
    /// # Panics
    /// If the scheme has fewer pages than `options.size` needs.
    pub fn new(
        ftl: Box<dyn Ftl<S>>,
        options: VolumeOptions,
        durable: Option<Arc<dyn Durable<S>>>,
    ) -> Self {
        let geometry = *ftl.chip().geometry();
        let page = u64::from(geometry.page_bytes);
        assert!(
            options.size <= u64::from(ftl.logical_pages()) * page,
            "volume larger than its scheme"
        );
        let extent_bytes = extent_bytes(&geometry);
        assert!(
            extent_bytes.is_multiple_of(page),
            "an extent of {extent_bytes} bytes does not end at a page"
        );
        assert!(
            page > 0 && page.is_multiple_of(512),
            "pages of {page} bytes"
        );
        let erases = ftl.chip().store().erase_credit_full();
        let reader = ftl.chip().store().reader();
        let scattered = ftl.scattered_pages();
        // The emulated time of the mount ends before the first request.
        let clock = Clock::new(ftl.chip().busy_until(), options.emulate);
        let mut core = Core {
            ftl,
            scratch: vec![0; to_usize(page)],
            batch: Batch::default(),
            clock,
            scan: WearScan::default(),
            wear: Wear::default(),
            last_write: None,
            cache: None,
            last_cache: CacheView::default(),
        };
        while !core.look_at_wear() {}
        let published = Mutex::new(Arc::new(FlashSnapshot::take(&core, 0)));
        Volume {
            shape: Shape {
                size: options.size,
                page_bytes: geometry.page_bytes,
                extent_bytes,
                write_bytes: extent_bytes,
                batch_bytes: extent_bytes.min(u64::from(scattered) * page),
                unit_bytes: geometry.page_bytes.min(4096),
                has_cache: false,
                emulate: options.emulate,
                read_only: options.read_only,
                erases_low: ERASES_LOW.min(erases / 4),
                erases_eager: erases / 2,
            },
            unlocked: Arc::new(Unlocked::new()),
            core: Mutex::new(Some(core)),
            durable,
            reader,
            published,
            scan: Mutex::new(BlockScan::new(geometry.blocks)),
            map: Mutex::default(),
            shown: Mutex::default(),
        }
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

    /// Returns the last published flash snapshot. Never waits for a request.
    pub fn flash(&self) -> Arc<FlashSnapshot> {
        self.published.lock().clone()
    }

    /// Returns the cause of a permanent failure, if any.
    pub fn failure(&self) -> Option<String> {
        self.unlocked.failure.lock().clone()
    }

    /// Returns why writes fail, from the first failed write to the next successful one.
    pub fn writes_failing(&self) -> Option<WritesFailing> {
        let errno = self.unlocked.refused.load(Relaxed);
        (errno != 0).then_some(WritesFailing { errno })
    }

    /// Returns the number of events recorded so far.
    fn noted(&self, guard: &MutexGuard<'_, Option<Core<S>>>) -> u64 {
        guard.as_ref().map_or(0, |core| core.ftl.events().total())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Core<S>>> {
        self.core.lock()
    }

    /// Runs a verb of the scheme; its only caller. Turns errors into errnos and panics into a
    /// read-only device.
    fn run<R>(
        &self,
        guard: &mut MutexGuard<'_, Option<Core<S>>>,
        changes: bool,
        verb: impl FnOnce(&mut Core<S>) -> Result<R, FtlError>,
    ) -> io::Result<R> {
        let eio = || io::Error::from_raw_os_error(EIO);
        let core = guard.as_mut().ok_or_else(eio)?;
        if self.unlocked.health.load(Relaxed) >= NO_DATA {
            return Err(eio());
        }
        match catch_unwind(AssertUnwindSafe(|| verb(&mut *core))) {
            Ok(result) => result.map_err(|error| {
                if matches!(error, FtlError::PowerLost) {
                    core.lose_power();
                }
                self.refuse(&error)
            }),
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
    fn refuse(&self, error: &FtlError) -> io::Error {
        let of_host = matches!(error, FtlError::Host(_) | FtlError::HostFull);
        let lost = of_host
            && self
                .durable
                .as_ref()
                .is_some_and(|durable| durable.failed());
        if lost && self.unlocked.health.load(Relaxed) == WELL {
            return self
                .unlocked
                .sync_failed(&io::Error::from_raw_os_error(errno(error)));
        }
        self.unlocked.refuse(error)
    }

    fn scheme_name(&self, core: &Core<S>) -> &'static str {
        catch_unwind(AssertUnwindSafe(|| core.ftl.scheme())).unwrap_or("unknown")
    }

    fn tell_short(&self) {
        if !self.unlocked.short.swap(true, Relaxed) {
            let (lock, told) = &self.unlocked.short_told;
            drop(lock.lock());
            told.notify_all();
        }
    }

    /// Waits for erased space. A full host fails the request; a failed sync fails the device.
    fn wait_for_erased_space(&self, mark: u64) -> io::Result<()> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        self.unlocked
            .at_storage(|| durable.wait_for_erased_space(mark))
            .map_err(|error| {
                if durable.failed() {
                    return self.unlocked.sync_failed(&error);
                }
                tracing::warn!("waiting for erased space: {error}");
                let full = error.kind() == io::ErrorKind::StorageFull
                    || error.kind() == io::ErrorKind::QuotaExceeded;
                let errno = if full { ENOSPC } else { EIO };
                self.unlocked.note_refused(errno);
                io::Error::from_raw_os_error(errno)
            })
    }

    fn mark(&self, guard: &mut MutexGuard<'_, Option<Core<S>>>) -> u64 {
        match (&self.durable, guard.as_mut()) {
            (Some(durable), Some(core)) => durable.mark(core.ftl.chip_mut().store_mut()),
            _ => 0,
        }
    }

    fn wait(&self, mark: u64) -> io::Result<()> {
        self.durable
            .as_ref()
            .map_or(Ok(()), |durable| self.unlocked.wait(&**durable, mark))
    }
}

#[cfg(test)]
mod tests;
