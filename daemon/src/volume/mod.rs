//! The scheme behind its lock: bytes in, pages out. A transport thread runs its request inline:
//! cut, run, complete.
//!
//! What always holds: the lock is held for one bounded extent and never across a wait for the
//! host's storage; a verb that returned `Ok` has everything it acknowledged in the store, so it
//! survives the death of this process; nothing is acknowledged after a sync that failed, or after
//! the flash lost power. A panic below is caught in one place ([`Volume::run`]): the device takes
//! no more writes, and where the scheme's tables may be half changed it gives no more data either,
//! since a wrong page is worse than none.
//!
//! If power fails here, [`Ftl::flush`] followed by the store's sync decides what survives; the
//! volume keeps nothing of its own.

mod background;
mod block_device;
mod clock;
mod control;
mod histogram;
mod host;
mod locked;
mod pace;
mod request;
mod shared;
mod snapshot;
mod watch;

use crate::convert::to_usize;
pub use histogram::{BOUNDS_NS, Histogram, HistogramView};
pub use host::{ErrorClass, HostCounters, HostView, Op, OpView, Queue};
pub use pace::{PAUSE_DEFAULT, PAUSE_MAX, Paused, Step};
pub use snapshot::{FlashSnapshot, WEAR_BOUNDS, Wear};
pub use watch::{BlockMap, CELLS_MAX, Cell, EventsView};

use crate::failure::panic_text;
use crate::pages::slice_bytes;
use clock::Clock;
use ftl_core::{Ftl, FtlError};
use locked::Core;
use nand_model::Store;
use parking_lot::{Mutex, MutexGuard};
use shared::{NO_DATA, NO_WRITES, Shared, WELL, errno};
use snapshot::WearScan;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use watch::{BlockScan, Shown};

/// Pages trimmed, or looked up for block status, in one go.
const SLICE_PAGES: u32 = 16_384;
/// Below this many erases, or a quarter of what the store has if that is less, the next change
/// waits for a sync: more than one extent takes.
const ERASES_LOW: u32 = 8;
/// How long after a look nobody counts as looking.
const WATCHED: Duration = Duration::from_secs(5);
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// How a store's content reaches the host's storage. Stores in memory have none.
pub trait Durable<S>: Send + Sync {
    /// Number of the newest operation the store has taken; short, called under the lock.
    fn mark(&self, store: &mut S) -> u64;
    /// Blocks until everything up to `mark` is durable; shares a sync with whoever else waits.
    /// Never called under the lock.
    ///
    /// # Errors
    /// The sync failed: nothing will be durable any more.
    fn wait(&self, mark: u64) -> io::Result<()>;
    /// Blocks until what erases up to `mark` have freed can be used again. Never called under the
    /// lock.
    ///
    /// # Errors
    /// The sync failed, or the host has no room.
    fn reclaim(&self, mark: u64) -> io::Result<()>;
    /// Whether nothing will ever be durable again.
    fn failed(&self) -> bool;
    /// Gives a little of the host's space back; called under the lock while the host is quiet.
    ///
    /// # Errors
    /// The host refuses to give space back; nothing is lost.
    fn tidy(&self, store: &mut S) -> io::Result<()>;
}

/// How a volume presents itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Bytes the host sees; at most the scheme's logical pages.
    pub size: u64,
    /// Whether writes are refused from the start and the image stays as it is.
    pub read_only: bool,
    /// Whether completions are held until the emulated flash would have been done.
    pub emulate: bool,
}

/// What background work is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// None, until something changes.
    Settled,
    /// More, at once.
    More,
    /// More, once the emulated flash has done what it was given.
    After(Duration),
}

/// Why the host's storage refuses changes at present. Unlike [`Volume::trouble`] this passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritesFailing {
    errno: i32,
}

impl WritesFailing {
    /// Whether the cause is a full file system or a quota; otherwise it is an error of the storage.
    pub fn is_disk_full(self) -> bool {
        self.errno == ENOSPC
    }

    /// The state of a device whose writes fail.
    pub fn state(self) -> &'static str {
        if self.is_disk_full() {
            "disk-full"
        } else {
            "host-error"
        }
    }

    /// The cause in words.
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
    shared: Arc<Shared>,
    core: Mutex<Option<Core<S>>>,
    durable: Option<Arc<dyn Durable<S>>>,
    published: Mutex<Arc<FlashSnapshot>>,
    /// Taken by whoever publishes, before the request lock, and by nobody else.
    scan: Mutex<BlockScan>,
    map: Mutex<Arc<BlockMap>>,
    shown: Mutex<Shown>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    size: u64,
    page_bytes: u32,
    slice_bytes: u64,
    read_only: bool,
    /// Erases left at which a change waits for a sync.
    erases_low: u32,
    /// Erases left at which a sync is begun behind the requests' back.
    erases_eager: u32,
}

impl<S: Store + 'static> Volume<S> {
    /// Puts a mounted scheme behind its lock.
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
        let slice_bytes = slice_bytes(&geometry);
        assert!(
            slice_bytes.is_multiple_of(page),
            "a slice of {slice_bytes} bytes cuts pages"
        );
        let erases = ftl.chip().store().erase_credit_full();
        // What the mount took is over before the first request.
        let clock = Clock::new(ftl.chip().busy_until(), options.emulate);
        let mut core = Core {
            ftl,
            scratch: vec![0; to_usize(page)],
            clock,
            scan: WearScan::default(),
            wear: Wear::default(),
        };
        while !core.look_at_wear() {}
        let published = Mutex::new(Arc::new(FlashSnapshot::take(
            &*core.ftl,
            core.wear.clone(),
            0,
        )));
        Volume {
            shape: Shape {
                size: options.size,
                page_bytes: geometry.page_bytes,
                slice_bytes,
                read_only: options.read_only,
                erases_low: ERASES_LOW.min(erases / 4),
                erases_eager: erases / 2,
            },
            shared: Arc::new(Shared::new()),
            core: Mutex::new(Some(core)),
            durable,
            published,
            scan: Mutex::new(BlockScan::new(geometry.blocks)),
            map: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    /// Host counters now.
    pub fn host(&self) -> HostView {
        self.shared.counters.view()
    }

    /// Requests for the flash: FLUSH is not one.
    pub fn queue(&self) -> Queue {
        self.shared.counters.queue()
    }

    /// Whether somebody waits for the host's storage.
    pub fn waits_for_storage(&self) -> bool {
        self.shared.at_storage.load(Relaxed) > 0
    }

    /// The flash side as last published. Never waits for a request.
    pub fn flash(&self) -> Arc<FlashSnapshot> {
        self.published.lock().clone()
    }

    /// What went wrong for good, if anything did.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().clone()
    }

    /// Why writes fail, from the first that did to the next that succeeds.
    pub fn writes_failing(&self) -> Option<WritesFailing> {
        let errno = self.shared.refused.load(Relaxed);
        (errno != 0).then_some(WritesFailing { errno })
    }

    /// Events noted so far.
    fn noted(&self, guard: &MutexGuard<'_, Option<Core<S>>>) -> u64 {
        guard.as_ref().map_or(0, |core| core.ftl.events().total())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Core<S>>> {
        self.core.lock()
    }

    /// The one place that calls a scheme: turns its errors into errnos and its panics into a
    /// read-only device.
    fn run<R>(
        &self,
        guard: &mut MutexGuard<'_, Option<Core<S>>>,
        changes: bool,
        verb: impl FnOnce(&mut Core<S>) -> Result<R, FtlError>,
    ) -> io::Result<R> {
        let eio = || io::Error::from_raw_os_error(EIO);
        let core = guard.as_mut().ok_or_else(eio)?;
        if self.shared.health.load(Relaxed) >= NO_DATA {
            return Err(eio());
        }
        match catch_unwind(AssertUnwindSafe(|| verb(core))) {
            Ok(result) => result.map_err(|error| self.refuse(&error)),
            Err(panic) => {
                let why = format!(
                    "internal error in scheme {}: {}",
                    self.scheme_name(core),
                    panic_text(&*panic)
                );
                self.shared
                    .fail(if changes { NO_DATA } else { NO_WRITES }, why);
                Err(eio())
            }
        }
    }

    /// Gives the errno. A sync may have failed while the scheme waited for erased space: that is
    /// the device's end.
    fn refuse(&self, error: &FtlError) -> io::Error {
        let of_host = matches!(error, FtlError::Host(_) | FtlError::HostFull);
        let lost = of_host
            && self
                .durable
                .as_ref()
                .is_some_and(|durable| durable.failed());
        if lost && self.shared.health.load(Relaxed) == WELL {
            return self
                .shared
                .sync_failed(&io::Error::from_raw_os_error(errno(error)));
        }
        self.shared.refuse(error)
    }

    fn scheme_name(&self, core: &Core<S>) -> &'static str {
        catch_unwind(AssertUnwindSafe(|| core.ftl.scheme())).unwrap_or("unknown")
    }

    fn tell_short(&self) {
        if !self.shared.short.swap(true, Relaxed) {
            let (lock, told) = &self.shared.short_told;
            drop(lock.lock());
            told.notify_all();
        }
    }

    /// Waits for erased space. That the host has no room for it is the request's error, a failed
    /// sync the device's end.
    fn reclaim(&self, mark: u64) -> io::Result<()> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        self.shared
            .at_storage(|| durable.reclaim(mark))
            .map_err(|error| {
                if durable.failed() {
                    return self.shared.sync_failed(&error);
                }
                tracing::warn!("waiting for erased space: {error}");
                let full = error.kind() == io::ErrorKind::StorageFull
                    || error.kind() == io::ErrorKind::QuotaExceeded;
                let errno = if full { ENOSPC } else { EIO };
                self.shared.note_refused(errno);
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
            .map_or(Ok(()), |durable| self.shared.wait(&**durable, mark))
    }
}

#[cfg(test)]
mod tests;
