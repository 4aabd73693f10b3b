//! State of a volume outside its lock: counters, health, and the cause of a failure.
//!
//! Invariants: health only gets worse, and the first cause is kept. None of it is stored; after a
//! power failure the next mount starts with a healthy volume.

use super::host::{ErrorClass, HostCounters};
use super::pause_gate::PauseGate;
use super::request::{Facts, Mark};
use super::{EINVAL, EIO, ENOSPC, EPERM, WritesFailing};
use crate::inject::Kind;
use ftl_core::FtlError;
use ftld_kit::convert::{millis, nanos};
use ftld_kit::failure::panic_text;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};
use std::time::Instant;
use strum::EnumCount;
use tokio::sync::Notify;

/// State outside the lock: counters and health.
pub(super) struct Unlocked {
    pub(super) counters: HostCounters,
    pub(super) health: AtomicU8,
    pub(super) failure: Mutex<Option<String>>,
    /// Errno of the last refused change; 0 after a successful one.
    pub(super) refused: AtomicI32,
    worn_out_told: AtomicBool,
    /// Whether all shards know that power is lost.
    pub(super) power_is_off: AtomicBool,
    /// Signals the loss of power to the task that serves the device.
    pub(super) power_lost: Notify,
    /// In the order of [`Kind`].
    pub(super) injected: [AtomicU64; Kind::COUNT],
    pub(super) origin: Instant,
    /// End of the last request, in ms since `origin`.
    pub(super) last_request_ms: AtomicU64,
    /// Time of the last [`Volume::watch`](super::Volume::watch), in ms since `origin`; 0 before the
    /// first.
    pub(super) watched_ms: AtomicU64,
    /// Held by a look at the places of pages.
    pub(super) looking: Mutex<()>,
    pub(super) pause_gate: PauseGate,
    /// Signals that erases of a shard run short.
    pub(super) short_told: (Mutex<()>, Condvar),
    /// Number of waits for the host's storage in progress.
    pub(super) at_storage: AtomicU64,
    /// Whether users send neither FLUSH nor FUA: no volatile cache is announced, or the kernel was
    /// told that there is none.
    pub(super) write_through: AtomicBool,
    /// Whether the FLUSH that [`write_through`](Self::write_through) needs has failed.
    pub(super) owes_flush: AtomicBool,
}

/// Everything is served.
pub(super) const WELL: u8 = 0;
/// Reads are served, nothing else.
pub(super) const NO_WRITES: u8 = 1;
/// Nothing is served: the scheme's tables cannot be trusted.
pub(super) const NO_DATA: u8 = 2;
/// Nothing is served: the flash has no power, and RAM counts as lost.
pub(super) const NO_POWER: u8 = 3;

impl Unlocked {
    pub(super) fn new() -> Self {
        Unlocked {
            counters: HostCounters::default(),
            health: AtomicU8::new(WELL),
            failure: Mutex::new(None),
            refused: AtomicI32::new(0),
            worn_out_told: AtomicBool::new(false),
            power_is_off: AtomicBool::new(false),
            power_lost: Notify::new(),
            injected: Default::default(),
            origin: Instant::now(),
            last_request_ms: AtomicU64::new(0),
            watched_ms: AtomicU64::new(0),
            looking: Mutex::new(()),
            pause_gate: PauseGate::default(),
            short_told: (Mutex::new(()), Condvar::new()),
            at_storage: AtomicU64::new(0),
            write_through: AtomicBool::new(false),
            owes_flush: AtomicBool::new(false),
        }
    }

    /// Stops writes, or everything, permanently. The first cause is kept.
    pub(super) fn fail(&self, health: u8, why: String) {
        assert!(
            matches!(health, NO_WRITES | NO_DATA),
            "a failure with health {health}"
        );
        self.health.fetch_max(health, Relaxed);
        self.pause_gate.resume();
        tracing::error!(
            "device failed, writes refused: {why}; restart ftld to mount the image again"
        );
        self.failure.lock().get_or_insert(why);
    }

    /// Stops everything. Acknowledged and unflushed data may be lost, so the device must not
    /// continue.
    pub(super) fn lose_power(&self) {
        if self.health.swap(NO_POWER, Relaxed) != NO_POWER {
            self.pause_gate.resume();
            tracing::error!("power cut injected: device removed; restart to recover");
            let mut failure = self.failure.lock();
            failure.get_or_insert_with(|| "power cut injected".into());
            self.power_lost.notify_one();
        }
    }

    /// Records that the storage accepted a write.
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
                "{}; the next successful write clears this",
                WritesFailing { errno }.text()
            );
        }
    }

    /// Logs an error that needs attention, worded by `told`. Returns its errno.
    pub(super) fn refuse(
        &self,
        error: &FtlError,
        told: impl FnOnce(&FtlError) -> String,
    ) -> io::Error {
        match error {
            FtlError::ReadOnly(_) if !self.worn_out_told.swap(true, Relaxed) => {
                tracing::error!("{}", told(error));
            }
            FtlError::ReadOnly(_) => {}
            FtlError::PowerLost => self.lose_power(),
            error => tracing::warn!("request failed: {}", told(error)),
        }
        io::Error::from_raw_os_error(errno(error))
    }

    /// Waits until the marks of all shards are durable. The sync for the first mark that needs one
    /// serves the others.
    pub(super) fn wait(&self, marks: &[Mark]) -> io::Result<()> {
        if marks.is_empty() {
            return Ok(());
        }
        if self.health.load(Relaxed) != WELL {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let began = Instant::now();
        let wait = |Mark { durable, mark }: &Mark| durable.wait(*mark);
        let synced = self.at_storage(|| marks.iter().try_for_each(wait));
        self.counters.sync.record(nanos(began.elapsed()));
        synced.map_err(|error| self.sync_failed(&error))
    }

    /// Waits for the host's storage and counts the wait while it lasts. A panic fails the device,
    /// whatever thread waits.
    pub(super) fn at_storage(&self, wait: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.at_storage.fetch_add(1, Relaxed);
        let waited = catch_unwind(AssertUnwindSafe(wait));
        let waits = self.at_storage.fetch_sub(1, Relaxed);
        assert!(waits > 0, "a wait for the storage ended twice");
        waited.unwrap_or_else(|panic| {
            let panic = panic_text(&*panic);
            self.fail(NO_WRITES, format!("internal error in a sync: {panic}"));
            Err(io::Error::from_raw_os_error(EIO))
        })
    }

    pub(super) fn sync_failed(&self, error: &io::Error) -> io::Error {
        self.fail(NO_WRITES, format!("sync of the image failed: {error}"));
        io::Error::from_raw_os_error(EIO)
    }

    /// Counts a request that has ended.
    pub(super) fn end(&self, request: &Facts, errno: Option<i32>) {
        let counter = self.counters.own(request.op);
        let now = Instant::now();
        match errno {
            Some(errno) => drop(counter.errors[class(errno).index()].fetch_add(1, Relaxed)),
            None => {
                counter.complete(request.bytes);
                if request.due.is_some() {
                    counter.delayed.fetch_add(1, Relaxed);
                }
                // A delayed completion replaced by a longer one is dropped before it is due.
                let ended = request.due.map_or(now, |due| due.max(now));
                counter.wall.record(nanos(ended - request.began));
                if let Some(ns) = request.emulated {
                    counter.emulated.record(ns);
                }
            }
        }
        let ms = millis(now - self.origin);
        if self.last_request_ms.load(Relaxed) != ms {
            self.last_request_ms.store(ms, Relaxed);
        }
        self.counters.end(request.op, 1);
    }
}

/// Returns the errno of a scheme's error; the only such table.
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
