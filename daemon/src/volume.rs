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

mod clock;
mod histogram;
mod host;
mod pace;
mod request;
mod snapshot;
mod watch;

pub use histogram::{BOUNDS_NS, Histogram, HistogramView};
pub use host::{ErrorClass, HostCounters, HostView, Op, OpView, Queue};
pub use pace::{PAUSE_DEFAULT, PAUSE_MAX, Paused, Step};
pub use request::{Completion, Hold};
pub use snapshot::{FlashSnapshot, WEAR_BOUNDS, Wear};
pub use watch::{BlockMap, CELLS_MAX, Cell, EventsView};

use crate::device::{BlockDevice, Extent, Flush};
use crate::failure::{Failure, panic_text};
use crate::inject::{Injected, Injection, Kind};
use crate::pages::{Paged, slice_bytes, slice_end};
use clock::Clock;
use ftl_core::{Event, Ftl, FtlError, Lpn};
use nand_model::{Nanos, Store};
use pace::Pace;
use request::{Facts, FlushWait, Request};
use snapshot::WearScan;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
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
    fn wait(&self, mark: u64) -> io::Result<()>;
    /// Blocks until what erases up to `mark` have freed can be used again. Never called under the
    /// lock.
    fn reclaim(&self, mark: u64) -> io::Result<()>;
    /// Whether nothing will ever be durable again.
    fn failed(&self) -> bool;
    /// Gives a little of the host's space back; called under the lock while the host is quiet.
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

/// What outlives the lock: counters and the state of health.
struct Shared {
    counters: HostCounters,
    health: AtomicU8,
    trouble: Mutex<Option<String>>,
    /// Errno with which the host's storage refused the last change; 0 if it took it.
    refused: AtomicI32,
    worn_out_told: AtomicBool,
    /// Tells whoever serves the device that its flash lost power.
    power_lost: Notify,
    /// In the order of [`Kind::ALL`].
    injected: [AtomicU64; Kind::COUNT],
    origin: Instant,
    /// End of the last request, in milliseconds since `origin`.
    last_request_ms: AtomicU64,
    /// When somebody looked last, in milliseconds since `origin`; 0 if nobody did.
    watched_ms: AtomicU64,
    pace: Pace,
    /// Events noted, as of the last snapshot or the last request that had to wait.
    events: AtomicU64,
    /// Whether erases run short, and the thread that waits to hear of it.
    short: AtomicBool,
    short_told: (Mutex<()>, Condvar),
    /// How many wait for the host's storage.
    at_storage: AtomicU64,
}

/// Everything is served.
const WELL: u8 = 0;
/// Reads are served, nothing else.
const NO_WRITES: u8 = 1;
/// Nothing is served: the scheme's tables cannot be trusted.
const NO_DATA: u8 = 2;
/// Nothing is served: the flash has no power, and RAM counts as gone.
const NO_POWER: u8 = 3;

struct Core<S: Store> {
    ftl: Box<dyn Ftl<S>>,
    /// One page, for requests that cover a part of one.
    scratch: Vec<u8>,
    clock: Clock,
    scan: WearScan,
    wear: Wear,
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
        let page = geometry.page_bytes as u64;
        assert!(
            options.size <= ftl.logical_pages() as u64 * page,
            "volume larger than its scheme"
        );
        let slice_bytes = slice_bytes(&geometry);
        let erases = ftl.chip().store().erase_credit_full();
        // What the mount took is over before the first request.
        let clock = Clock::new(ftl.chip().busy_until(), options.emulate);
        let mut core = Core {
            ftl,
            scratch: vec![0; page as usize],
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
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What went wrong for good, if anything did.
    pub fn trouble(&self) -> Option<String> {
        self.shared
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Why writes fail, from the first that did to the next that succeeds.
    pub fn writes_failing(&self) -> Option<WritesFailing> {
        let errno = self.shared.refused.load(Relaxed);
        (errno != 0).then_some(WritesFailing { errno })
    }

    /// Lets something go wrong with the flash, between two extents.
    pub fn inject(&self, injection: &Injection) -> Result<Injected, Failure> {
        if self.shape.read_only {
            return Err(Failure::failed(
                "the image is served with --read-only and stays as it is",
            ));
        }
        let mut guard = self.lock();
        if let Some(why) = self.trouble() {
            return Err(Failure::failed(format!(
                "the device has failed already ({why}); restart it"
            )));
        }
        let core = guard
            .as_mut()
            .ok_or_else(|| Failure::failed("already stopping"))?;
        let injected = injection.apply(core.ftl.chip_mut())?;
        tracing::warn!("injected: {}", injected.text);
        self.shared.injected[injected.kind as usize].fetch_add(injected.count, Relaxed);
        if !core.ftl.chip().powered() {
            self.shared.lose_power();
        }
        Ok(injected)
    }

    /// What was injected so far, in the order of [`Kind::ALL`].
    pub fn injected(&self) -> [u64; Kind::COUNT] {
        self.shared
            .injected
            .each_ref()
            .map(|count| count.load(Relaxed))
    }

    /// Ends when the flash has lost power; told once.
    pub async fn power_lost(&self) {
        self.shared.power_lost.notified().await;
    }

    /// Whether the flash has lost power.
    pub fn is_powerless(&self) -> bool {
        self.shared.health.load(Relaxed) == NO_POWER
    }

    /// Takes back a power cut that is still to come. Returns whether there is power.
    pub fn keep_power(&self) -> bool {
        if let Some(core) = self
            .lock()
            .as_mut()
            .filter(|core| core.ftl.chip().faults().is_some())
        {
            core.ftl.chip_mut().amend_faults(|plan| plan.cut = None);
        }
        !self.is_powerless()
    }

    /// Lets no further extent begin for so long; requests wait meanwhile. One that runs when this
    /// is asked has ended when it returns.
    pub fn pause(&self, length: Duration) -> Result<(), Failure> {
        if let Some(why) = self.trouble() {
            return Err(Failure::failed(format!(
                "the device has failed ({why}) and stands still anyway; restart it"
            )));
        }
        self.shared.pace.pause(length.min(PAUSE_MAX));
        drop(self.lock());
        tracing::warn!(
            "PAUSED for at most {} s: requests wait; `ftld resume` goes on",
            length.min(PAUSE_MAX).as_secs()
        );
        Ok(())
    }

    /// Lets a paused device on for a step; the pause then lasts as long as it first did.
    /// Returns the number of the first event that it may set off.
    pub fn step(&self, step: Step) -> Result<u64, Failure> {
        let events = self.noted(&self.lock());
        if !self.shared.pace.step(step, events) {
            return Err(Failure::failed(
                "the device is not paused; `ftld pause` pauses it",
            ));
        }
        tracing::info!("paused, going on for {step:?}");
        Ok(events)
    }

    /// Events from number `from` on, the first `most` of them. Waits for the lock.
    pub(crate) fn noted_since(&self, from: u64, most: usize) -> Vec<(u64, Event)> {
        let guard = self.lock();
        let events = guard.iter().flat_map(|core| core.ftl.events().since(from));
        events
            .take(most)
            .map(|(number, event)| (number, *event))
            .collect()
    }

    /// Ends a pause. Returns whether there was one.
    pub fn resume(&self) -> bool {
        let was = self.shared.pace.resume();
        if was {
            tracing::info!("resumed");
        }
        was
    }

    /// The pause, if there is one. Never waits for a request.
    pub fn paused(&self) -> Option<Paused> {
        self.shared.pace.paused(self.shared.events.load(Relaxed))
    }

    /// Events noted so far.
    fn noted(&self, guard: &MutexGuard<'_, Option<Core<S>>>) -> u64 {
        guard.as_ref().map_or(0, |core| core.ftl.events().total())
    }

    /// The lock, when the device's pace lets an extent begin; `first` tells that none of its
    /// request did.
    fn lock_to_begin(&self, first: bool) -> MutexGuard<'_, Option<Core<S>>> {
        loop {
            let guard = self.lock();
            match self.shared.pace.admits(first, || self.noted(&guard)) {
                Ok(()) => return guard,
                Err(wait) => {
                    self.shared.events.store(self.noted(&guard), Relaxed);
                    drop(guard);
                    self.shared.pace.wait(wait);
                }
            }
        }
    }

    /// Time since the last request ended.
    pub fn quiet_for(&self) -> Duration {
        let last = Duration::from_millis(self.shared.last_request_ms.load(Relaxed));
        if self.shared.counters.depth() > 0 {
            return Duration::ZERO;
        }
        self.shared.origin.elapsed().saturating_sub(last)
    }

    /// Somebody looks: from now on, and for some seconds, the map of the blocks and the events are
    /// published, too.
    pub fn watch(&self) {
        let now = self.shared.origin.elapsed().as_millis() as u64;
        self.shared.watched_ms.store(now.max(1), Relaxed);
    }

    fn is_watched(&self) -> bool {
        let last = self.shared.watched_ms.load(Relaxed);
        last > 0
            && self
                .shared
                .origin
                .elapsed()
                .saturating_sub(Duration::from_millis(last))
                < WATCHED
    }

    /// The blocks as last published. Never waits for a request.
    pub fn blocks(&self) -> Arc<BlockMap> {
        self.map
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Of the published events from number `from` on, the newest, at most `most`. Never waits for a
    /// request.
    pub fn events(&self, from: u64, most: usize) -> EventsView {
        self.shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .since(from, most)
    }

    /// Publishes a new snapshot, and what somebody looks at. Waits for the lock only if `insist`;
    /// returns whether it had it.
    pub fn publish(&self, insist: bool) -> bool {
        let mut scan = self
            .is_watched()
            .then(|| self.scan.lock().unwrap_or_else(PoisonError::into_inner));
        let next = self
            .shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next();
        let mut guard = match self.core.try_lock() {
            Ok(guard) => guard,
            Err(_) if insist => self.lock(),
            Err(_) => return false,
        };
        if self.shared.health.load(Relaxed) >= NO_DATA {
            return true;
        }
        let taken = self.run(&mut guard, false, |core| {
            core.look_at_wear();
            self.shared.events.store(core.ftl.events().total(), Relaxed);
            let written = self.shared.counters.of(Op::Write).bytes.load(Relaxed);
            let changed = scan.as_mut().is_some_and(|scan| scan.slice(&*core.ftl));
            let events = match scan {
                Some(_) => core
                    .ftl
                    .events()
                    .since(next)
                    .map(|(number, event)| (number, *event))
                    .collect(),
                None => Vec::new(),
            };
            Ok((
                FlashSnapshot::take(&*core.ftl, core.wear.clone(), written),
                changed,
                events,
            ))
        });
        drop(guard);
        let Ok((snapshot, changed, events)) = taken else {
            return true;
        };
        *self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        if let Some(scan) = scan.filter(|_| changed) {
            *self.map.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(scan.map().clone());
        }
        self.shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(events);
        true
    }

    /// Does background work of about `budget` flash operations, if the lock is free.
    pub fn idle(&self, budget: u32) -> Idle {
        if self.shape.read_only || self.shared.health.load(Relaxed) != WELL {
            return Idle::Settled;
        }
        if self.paused().is_some() {
            return Idle::After(Duration::from_secs(1));
        }
        let Ok(mut guard) = self.core.try_lock() else {
            return Idle::More;
        };
        if guard
            .as_mut()
            .is_some_and(|core| core.erases_left() < self.shape.erases_eager)
        {
            self.tell_short();
            return Idle::Settled;
        }
        let work = |core: &mut Core<S>| match core.clock.until(core.ftl.chip().busy_until()) {
            Some(busy) => Ok(Idle::After(busy)),
            None if core.ftl.idle(core.clock.start(1), budget)? => Ok(Idle::More),
            None => Ok(Idle::Settled),
        };
        self.run(&mut guard, true, work).unwrap_or(Idle::Settled)
    }

    /// Gives a little of the host's space back, if the lock is free.
    pub fn tidy(&self) {
        if self.shape.read_only || self.shared.health.load(Relaxed) != WELL {
            return;
        }
        let (Some(durable), Ok(mut guard)) = (&self.durable, self.core.try_lock()) else {
            return;
        };
        if let Some(Err(error)) = guard
            .as_mut()
            .map(|core| durable.tidy(core.ftl.chip_mut().store_mut()))
        {
            tracing::debug!("giving space back: {error}");
        }
    }

    /// Waits up to `patience` for erases to run short, and then for the sync that makes more of
    /// them possible.
    pub fn reclaim_when_short(&self, patience: Duration) {
        let (lock, told) = &self.shared.short_told;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = |_: &mut ()| !self.shared.short.load(Relaxed);
        drop(
            told.wait_timeout_while(guard, patience, quiet)
                .unwrap_or_else(PoisonError::into_inner),
        );
        if self.shared.short.load(Relaxed) {
            let mark = self.mark(&mut self.lock());
            let _ = self.reclaim(mark);
            self.shared.short.store(false, Relaxed);
        }
    }

    /// Flushes, writes a checkpoint, waits for the host's storage and gives the store back.
    /// Requests that come later fail with `EIO`. A read-only or failed volume only gives the store
    /// back, and so does one whose flash loses power meanwhile.
    pub fn close(&self) -> io::Result<S> {
        self.resume();
        let mut guard = self.lock();
        if guard.is_none() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let well = !self.shape.read_only && self.shared.health.load(Relaxed) == WELL;
        let stopped = if well {
            self.run(&mut guard, true, |core| {
                core.ftl.shutdown(core.clock.start(1)).map(drop)
            })
        } else {
            Ok(())
        };
        let mark = self.mark(&mut guard);
        let Some(core) = guard.take() else {
            return Err(io::Error::from_raw_os_error(EIO));
        };
        drop(guard);
        if !self.is_powerless() {
            stopped?;
            if well {
                self.wait(mark)?;
            }
        }
        Ok(core.ftl.into_chip().into_store())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Core<S>>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Runs one bounded extent of a request that changes the flash.
    fn change(
        &self,
        request: &mut Request<'_>,
        last: bool,
        verb: impl FnOnce(&mut Core<S>, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_begin(request.begins());
        self.writable()?;
        let left = guard.as_ref().map_or(u32::MAX, Core::erases_left);
        if left < self.shape.erases_eager {
            self.tell_short();
        }
        if left < self.shape.erases_low {
            let mark = self.mark(&mut guard);
            drop(guard);
            self.reclaim(mark)?;
            guard = self.lock_to_begin(false);
        }
        let is_write = request.is_write();
        self.run(&mut guard, true, |core| {
            let changed = request.step(core, last, verb);
            match &changed {
                // A trim may have had nothing to program, as a FLUSH.
                Ok(()) if is_write => self.shared.note_accepted(),
                Ok(()) => {}
                Err(error) => self.shared.note_failed(error),
            }
            changed
        })
    }

    fn tell_short(&self) {
        if !self.shared.short.swap(true, Relaxed) {
            let (lock, told) = &self.shared.short_told;
            drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
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

    /// Runs one bounded extent of a request that changes nothing the host could see.
    fn look(
        &self,
        request: &mut Request<'_>,
        last: bool,
        verb: impl FnOnce(&mut Core<S>, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_begin(request.begins());
        self.run(&mut guard, false, |core| request.step(core, last, verb))
    }

    fn writable(&self) -> io::Result<()> {
        match self.shared.health.load(Relaxed) {
            WELL if !self.shape.read_only => Ok(()),
            NO_POWER => Err(io::Error::from_raw_os_error(EIO)),
            _ => Err(io::Error::from_raw_os_error(EPERM)),
        }
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

    /// Checks the range and starts counting.
    fn begin(&self, op: Op, offset: u64, len: u64) -> io::Result<Request<'_>> {
        let request = Request::begin(&self.shared, op, len);
        if offset
            .checked_add(len)
            .is_some_and(|end| end <= self.shape.size)
        {
            let page = self.shape.page_bytes as u64;
            if !(offset.is_multiple_of(page) && len.is_multiple_of(page)) {
                self.shared.counters.of(op).unaligned.fetch_add(1, Relaxed);
            }
            return Ok(request);
        }
        let errno = if matches!(op, Op::Write | Op::WriteZeroes) {
            ENOSPC
        } else {
            EINVAL
        };
        Err(request.fail(io::Error::from_raw_os_error(errno)))
    }

    fn read_slices(
        &self,
        request: &mut Request<'_>,
        mut offset: u64,
        mut buf: &mut [u8],
    ) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        while offset < end {
            let next = slice_end(offset, end, self.shape.slice_bytes);
            let (part, rest) = buf.split_at_mut((next - offset) as usize);
            self.look(request, next == end, |core, at| {
                core.paged().read(at, offset, part)
            })?;
            (buf, offset) = (rest, next);
        }
        Ok(())
    }

    fn write_slices(
        &self,
        request: &mut Request<'_>,
        mut offset: u64,
        mut data: &[u8],
    ) -> io::Result<()> {
        let end = offset + data.len() as u64;
        while offset < end {
            let next = slice_end(offset, end, self.shape.slice_bytes);
            let (part, rest) = data.split_at((next - offset) as usize);
            self.change(request, next == end, |core, at| {
                core.paged().write(at, offset, part)
            })?;
            (data, offset) = (rest, next);
        }
        Ok(())
    }

    fn zero(&self, op: Op, offset: u64, len: u64) -> io::Result<Completion> {
        let mut request = self.begin(op, offset, len)?;
        let result = self.zero_slices(&mut request, offset, offset + len);
        request.end(result)
    }

    fn zero_slices(&self, request: &mut Request<'_>, mut offset: u64, end: u64) -> io::Result<()> {
        let slice = SLICE_PAGES as u64 * self.shape.page_bytes as u64;
        self.writable()?;
        while offset < end {
            let next = slice_end(offset, end, slice);
            self.change(request, next == end, |core, at| {
                core.paged().zero(at, offset, next - offset)
            })?;
            offset = next;
        }
        Ok(())
    }
}

/// The only table from a scheme's errors to errnos.
fn errno(error: &FtlError) -> i32 {
    match error {
        FtlError::HostFull => ENOSPC,
        FtlError::ReadOnly(_) => EPERM,
        FtlError::MediaLost(_)
        | FtlError::PowerLost
        | FtlError::Host(_)
        | FtlError::Corrupt(_)
        | FtlError::Config(_) => EIO,
    }
}

fn class(errno: i32) -> ErrorClass {
    match errno {
        EPERM => ErrorClass::Eperm,
        EINVAL => ErrorClass::Einval,
        ENOSPC => ErrorClass::Enospc,
        _ => ErrorClass::Eio,
    }
}

impl<S: Store> Core<S> {
    /// Erases the store takes before it needs a sync.
    fn erases_left(&self) -> u32 {
        self.ftl.chip().store().erase_credit()
    }

    /// Returns whether every block has been looked at.
    fn look_at_wear(&mut self) -> bool {
        match self.scan.slice(&*self.ftl) {
            Some(wear) => {
                self.wear = wear;
                true
            }
            None => false,
        }
    }

    fn page_bytes(&self) -> u32 {
        self.scratch.len() as u32
    }

    fn paged(&mut self) -> Paged<'_, S> {
        Paged {
            ftl: &mut *self.ftl,
            scratch: &mut self.scratch,
        }
    }

    /// States of `offset..end` in stretches, at most `max`; looks at a bounded number of pages.
    fn extents(&mut self, mut offset: u64, end: u64, max: usize) -> Result<Vec<Extent>, FtlError> {
        let page = self.page_bytes() as u64;
        let mut extents: Vec<Extent> = Vec::new();
        for _ in 0..SLICE_PAGES {
            if offset == end {
                break;
            }
            let next = end.min((offset / page + 1) * page);
            let mapped = self.ftl.is_mapped(Lpn::new((offset / page) as u32))?;
            let stretches = extents.len();
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.len += next - offset,
                _ if stretches == max => break,
                _ => extents.push(Extent {
                    len: next - offset,
                    mapped,
                }),
            }
            offset = next;
        }
        Ok(extents)
    }
}

impl Shared {
    fn new() -> Self {
        Shared {
            counters: HostCounters::default(),
            health: AtomicU8::new(WELL),
            trouble: Mutex::new(None),
            refused: AtomicI32::new(0),
            worn_out_told: AtomicBool::new(false),
            power_lost: Notify::new(),
            injected: Default::default(),
            origin: Instant::now(),
            last_request_ms: AtomicU64::new(0),
            watched_ms: AtomicU64::new(0),
            pace: Pace::default(),
            events: AtomicU64::new(0),
            short: AtomicBool::new(false),
            short_told: (Mutex::new(()), Condvar::new()),
            at_storage: AtomicU64::new(0),
        }
    }

    /// Stops writes (or everything) for good. The first reason is kept.
    fn fail(&self, health: u8, why: String) {
        self.health.fetch_max(health, Relaxed);
        self.pace.resume();
        tracing::error!(
            "DEVICE FAILED, no more writes: {why}; restart ftld to mount the image again"
        );
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why);
    }

    /// Ends everything. What was acknowledged and not flushed may be gone, so the device must not
    /// go on.
    fn lose_power(&self) {
        if self.health.swap(NO_POWER, Relaxed) != NO_POWER {
            self.pace.resume();
            tracing::error!(
                "POWER CUT injected: the device fails and goes; a restart mounts what the chip kept"
            );
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            trouble.get_or_insert_with(|| "power cut injected".into());
            self.power_lost.notify_one();
        }
    }

    /// The storage took a write.
    fn note_accepted(&self) {
        if self.refused.load(Relaxed) != 0 && self.refused.swap(0, Relaxed) != 0 {
            tracing::info!("writes succeed again");
        }
    }

    fn note_failed(&self, error: &FtlError) {
        match error {
            FtlError::HostFull => self.note_refused(ENOSPC),
            FtlError::Host(errno) => self.note_refused(*errno),
            _ => {}
        }
    }

    fn note_refused(&self, errno: i32) {
        if self.refused.swap(errno, Relaxed) != errno {
            tracing::error!(
                "{}; the next one that succeeds ends this",
                WritesFailing { errno }.text()
            );
        }
    }

    /// Logs what needs attention and gives the errno.
    fn refuse(&self, error: &FtlError) -> io::Error {
        match error {
            FtlError::ReadOnly(why) if !self.worn_out_told.swap(true, Relaxed) => {
                tracing::error!("device is read-only from now on: {why}");
            }
            FtlError::ReadOnly(_) => {}
            FtlError::PowerLost => self.lose_power(),
            error => tracing::warn!("request failed: {error}"),
        }
        io::Error::from_raw_os_error(errno(error))
    }

    fn wait<S>(&self, durable: &dyn Durable<S>, mark: u64) -> io::Result<()> {
        if self.health.load(Relaxed) != WELL {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let began = Instant::now();
        let synced = self.at_storage(|| durable.wait(mark));
        self.counters.sync.record(began.elapsed().as_nanos() as u64);
        synced.map_err(|error| self.sync_failed(&error))
    }

    /// Waits for the host's storage, and lets it be seen.
    fn at_storage<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.at_storage.fetch_add(1, Relaxed);
        let result = wait();
        self.at_storage.fetch_sub(1, Relaxed);
        result
    }

    fn sync_failed(&self, error: &io::Error) -> io::Error {
        self.fail(NO_WRITES, format!("sync of the image failed: {error}"));
        io::Error::from_raw_os_error(EIO)
    }

    /// Counts the end of a request.
    fn end(&self, request: &Facts, errno: Option<i32>) {
        let counter = self.counters.of(request.op);
        let now = Instant::now();
        match errno {
            Some(errno) => drop(counter.errors[class(errno) as usize].fetch_add(1, Relaxed)),
            None => {
                counter.completed.fetch_add(1, Relaxed);
                counter
                    .held
                    .fetch_add(u64::from(request.due.is_some()), Relaxed);
                counter.bytes.fetch_add(request.bytes, Relaxed);
                // A hold of which a longer one took the place is dropped before it is due.
                let ended = request.due.map_or(now, |due| due.max(now));
                counter
                    .wall
                    .record((ended - request.began).as_nanos() as u64);
                if let Some(ns) = request.emulated {
                    counter.emulated.record(ns);
                }
            }
        }
        self.last_request_ms
            .store((now - self.origin).as_millis() as u64, Relaxed);
        counter.in_flight.fetch_sub(1, Relaxed);
    }
}

impl<S: Store + 'static> BlockDevice for Volume<S> {
    fn size(&self) -> u64 {
        self.shape.size
    }

    fn logical_block(&self) -> u32 {
        512
    }

    fn physical_block(&self) -> u32 {
        self.shape.page_bytes.min(4096)
    }

    fn preferred_block(&self) -> u32 {
        self.shape.page_bytes
    }

    fn read_only(&self) -> bool {
        self.shape.read_only
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        let mut request = self.begin(Op::Read, offset, buf.len() as u64)?;
        let result = self.read_slices(&mut request, offset, buf);
        request.end(result)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let mut request = self.begin(Op::Write, offset, data.len() as u64)?;
        let result = self
            .writable()
            .and_then(|()| self.write_slices(&mut request, offset, data));
        request.end(result)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.zero(Op::Trim, offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.zero(Op::WriteZeroes, offset, len)
    }

    fn flush(&self) -> io::Result<Box<dyn Flush>> {
        let mut request = Request::begin(&self.shared, Op::Flush, 0);
        if self.shape.read_only {
            return Ok(Box::new(FlushWait::<S>::new(request, None)));
        }
        let mut guard = self.lock_to_begin(true);
        let health = self.shared.health.load(Relaxed);
        let flushed = if health == WELL {
            let flush = |core: &mut Core<S>, at| {
                core.ftl
                    .flush(at)
                    .inspect_err(|error| self.shared.note_failed(error))
            };
            self.run(&mut guard, true, |core| request.step(core, true, flush))
        } else {
            Err(io::Error::from_raw_os_error(EIO))
        };
        let mark = self.mark(&mut guard);
        drop(guard);
        if let Err(error) = flushed {
            return Err(request.fail(error));
        }
        Ok(Box::new(FlushWait::new(
            request,
            self.durable.clone().map(|durable| (durable, mark)),
        )))
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>> {
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= self.shape.size && max > 0);
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
        self.run(&mut self.lock_to_begin(true), false, |core| {
            core.extents(offset, end, max)
        })
    }
}

#[cfg(test)]
mod tests;
