//! State of a volume outside its lock: counters, health, and why the device failed.
//!
//! Always true: health only gets worse, and the first reason is kept. None of it is stored; after
//! a power failure the next mount starts with a healthy volume.

use super::host::{ErrorClass, HostCounters};
use super::pace::Pace;
use super::request::Facts;
use super::{Durable, EINVAL, EIO, ENOSPC, EPERM, WritesFailing};
use crate::convert::{millis, nanos};
use crate::inject::Kind;
use ftl_core::FtlError;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};
use std::time::Instant;
use strum::EnumCount;
use tokio::sync::Notify;

/// What outlives the lock: counters and the state of health.
pub(super) struct Shared {
    pub(super) counters: HostCounters,
    pub(super) health: AtomicU8,
    pub(super) trouble: Mutex<Option<String>>,
    /// Errno with which the host's storage refused the last change; 0 if it took it.
    pub(super) refused: AtomicI32,
    worn_out_told: AtomicBool,
    /// Tells whoever serves the device that its flash lost power.
    pub(super) power_lost: Notify,
    /// In the order of [`Kind`].
    pub(super) injected: [AtomicU64; Kind::COUNT],
    pub(super) origin: Instant,
    /// End of the last request, in milliseconds since `origin`.
    pub(super) last_request_ms: AtomicU64,
    /// When somebody looked last, in milliseconds since `origin`; 0 if nobody did.
    pub(super) watched_ms: AtomicU64,
    pub(super) pace: Pace,
    /// Events noted, as of the last snapshot or the last request that had to wait.
    pub(super) events: AtomicU64,
    /// Whether erases run short, and the thread that waits to hear of it.
    pub(super) short: AtomicBool,
    pub(super) short_told: (Mutex<()>, Condvar),
    /// How many wait for the host's storage.
    pub(super) at_storage: AtomicU64,
}

/// Everything is served.
pub(super) const WELL: u8 = 0;
/// Reads are served, nothing else.
pub(super) const NO_WRITES: u8 = 1;
/// Nothing is served: the scheme's tables cannot be trusted.
pub(super) const NO_DATA: u8 = 2;
/// Nothing is served: the flash has no power, and RAM counts as gone.
pub(super) const NO_POWER: u8 = 3;

impl Shared {
    pub(super) fn new() -> Self {
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
    pub(super) fn fail(&self, health: u8, why: String) {
        self.health.fetch_max(health, Relaxed);
        self.pace.resume();
        tracing::error!(
            "DEVICE FAILED, no more writes: {why}; restart ftld to mount the image again"
        );
        self.trouble.lock().get_or_insert(why);
    }

    /// Ends everything. What was acknowledged and not flushed may be gone, so the device must not
    /// go on.
    pub(super) fn lose_power(&self) {
        if self.health.swap(NO_POWER, Relaxed) != NO_POWER {
            self.pace.resume();
            tracing::error!(
                "POWER CUT injected: the device fails and goes; a restart mounts what the chip kept"
            );
            let mut trouble = self.trouble.lock();
            trouble.get_or_insert_with(|| "power cut injected".into());
            self.power_lost.notify_one();
        }
    }

    /// The storage took a write.
    pub(super) fn note_accepted(&self) {
        if self.refused.load(Relaxed) != 0 && self.refused.swap(0, Relaxed) != 0 {
            tracing::info!("writes succeed again");
        }
    }

    pub(super) fn note_failed(&self, error: &FtlError) {
        match error {
            FtlError::HostFull => self.note_refused(ENOSPC),
            FtlError::Host(errno) => self.note_refused(*errno),
            _ => {}
        }
    }

    pub(super) fn note_refused(&self, errno: i32) {
        if self.refused.swap(errno, Relaxed) != errno {
            tracing::error!(
                "{}; the next one that succeeds ends this",
                WritesFailing { errno }.text()
            );
        }
    }

    /// Logs what needs attention and gives the errno.
    pub(super) fn refuse(&self, error: &FtlError) -> io::Error {
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

    pub(super) fn wait<S>(&self, durable: &dyn Durable<S>, mark: u64) -> io::Result<()> {
        if self.health.load(Relaxed) != WELL {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let began = Instant::now();
        let synced = self.at_storage(|| durable.wait(mark));
        self.counters.sync.record(nanos(began.elapsed()));
        synced.map_err(|error| self.sync_failed(&error))
    }

    /// Waits for the host's storage, and lets it be seen.
    pub(super) fn at_storage<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.at_storage.fetch_add(1, Relaxed);
        let result = wait();
        self.at_storage.fetch_sub(1, Relaxed);
        result
    }

    pub(super) fn sync_failed(&self, error: &io::Error) -> io::Error {
        self.fail(NO_WRITES, format!("sync of the image failed: {error}"));
        io::Error::from_raw_os_error(EIO)
    }

    /// Counts the end of a request.
    pub(super) fn end(&self, request: &Facts, errno: Option<i32>) {
        let counter = self.counters.of(request.op);
        let now = Instant::now();
        match errno {
            Some(errno) => drop(counter.errors[class(errno).index()].fetch_add(1, Relaxed)),
            None => {
                counter.completed.fetch_add(1, Relaxed);
                counter
                    .held
                    .fetch_add(u64::from(request.due.is_some()), Relaxed);
                counter.bytes.fetch_add(request.bytes, Relaxed);
                // A hold of which a longer one took the place is dropped before it is due.
                let ended = request.due.map_or(now, |due| due.max(now));
                counter.wall.record(nanos(ended - request.began));
                if let Some(ns) = request.emulated {
                    counter.emulated.record(ns);
                }
            }
        }
        self.last_request_ms
            .store(millis(now - self.origin), Relaxed);
        counter.in_flight.fetch_sub(1, Relaxed);
    }
}

/// The only table from a scheme's errors to errnos.
pub(super) fn errno(error: &FtlError) -> i32 {
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

pub(super) fn class(errno: i32) -> ErrorClass {
    match errno {
        EPERM => ErrorClass::Eperm,
        EINVAL => ErrorClass::Einval,
        ENOSPC => ErrorClass::Enospc,
        _ => ErrorClass::Eio,
    }
}
