//! Faults of requests: FLUSHes that fail, errors of reads and writes, delays and hangs, by `ftld
//! inject`. They act between transport and volume; the flash knows nothing of them.
//!
//! Invariants: without a fault a request costs one relaxed load. A hanging request holds no lock of
//! the volume; a clear, a stop and the end of its time release it. A fault is not stored: it ends
//! with the daemon.

mod device;
mod kinds;
#[cfg(test)]
mod tests;
mod undo;

pub use device::Faulty;
pub use kinds::{Clear, FlushFails, Hang, Hits, RequestFault, RequestKind, Slow, Then};

use crate::device::BlockDevice;
use crate::inject::{Injected, Kind};
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_kit::output::counted;
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strum::EnumCount;
use undo::Undo;

/// A command on faults of requests.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultCommand {
    /// FLUSHes fail.
    FlushFails(FlushFails),
    /// Writes and trims fail.
    WriteErrors(Hits),
    /// Reads fail.
    ReadErrors(Hits),
    /// Requests take longer.
    Slow(Slow),
    /// Requests wait.
    Hang(Hang),
    /// Faults end.
    Clear(Clear),
}

/// Effect of the faults on one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Effect {
    fails: bool,
    /// Whether the data of a failed FLUSH is lost.
    loses: bool,
    extra: Duration,
}

/// A fault in force.
#[derive(Clone, Debug)]
struct Armed {
    fault: RequestFault,
    /// End of its time.
    until: Option<Instant>,
}

impl Armed {
    /// Whether its time has ended.
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// Faults in force.
#[derive(Default)]
pub struct Faults {
    armed: AtomicBool,
    list: Mutex<Vec<Armed>>,
    /// Waited at by hanging requests.
    changed: Condvar,
    hits: [AtomicU64; Kind::COUNT],
    hanging: AtomicU64,
    undo: Mutex<Undo>,
    /// Whether the old content of writes is kept, for a FLUSH that loses them.
    keeps_old: AtomicBool,
    /// Commands that keep old contents for a fault which is not in the list yet.
    arming: AtomicU64,
}

/// A command that is about to arm a fault.
struct Arming<'a>(&'a Faults);

impl<'a> Arming<'a> {
    fn new(faults: &'a Faults) -> Arming<'a> {
        let list = faults.list.lock();
        faults.arming.fetch_add(1, Relaxed);
        faults.note_changed(&list);
        Arming(faults)
    }
}

impl Drop for Arming<'_> {
    fn drop(&mut self) {
        let list = self.0.list.lock();
        self.0.arming.fetch_sub(1, Relaxed);
        self.0.note_changed(&list);
    }
}

impl Faults {
    /// Executes a command. `device` is the device without faults.
    ///
    /// # Errors
    /// The command does not fit the device, or there is no fault to clear.
    pub fn run(
        &self,
        command: &FaultCommand,
        device: &dyn BlockDevice,
    ) -> Result<Injected, Failure> {
        let size = device.size();
        let fault = match command {
            FaultCommand::Clear(clear) => return self.clear(clear.fault),
            FaultCommand::FlushFails(fails) => {
                let hits = Hits {
                    count: Some(fails.count.unwrap_or(1)),
                    ..Hits::default()
                };
                let fault = RequestFault::new(RequestKind::FlushFails, &hits, size)?;
                RequestFault {
                    then: fails.then,
                    ..fault
                }
            }
            FaultCommand::WriteErrors(hits) => {
                RequestFault::new(RequestKind::WriteErrors, hits, size)?
            }
            FaultCommand::ReadErrors(hits) => {
                RequestFault::new(RequestKind::ReadErrors, hits, size)?
            }
            FaultCommand::Slow(slow) => RequestFault {
                time: kinds::time(slow.extra)?,
                lasts: slow.time.map(kinds::time).transpose()?,
                ..RequestFault::new(RequestKind::Slow, &slow.hits, size)?
            },
            FaultCommand::Hang(hang) => {
                let time = kinds::time(hang.time)?;
                RequestFault {
                    time,
                    lasts: Some(time),
                    ..RequestFault::new(RequestKind::Hang, &hang.hits, size)?
                }
            }
        };
        let arming = (fault.then == Then::Lost).then(|| Arming::new(self));
        if arming.is_some() {
            self.keep_old(device)?;
        }
        let text = fault.text(size);
        let until = fault.lasts.map(|lasts| Instant::now() + lasts);
        let kind = fault.kind.of_all();
        let mut list = self.list.lock();
        // A second fault of a kind replaces the first.
        list.retain(|armed| armed.fault.kind != fault.kind);
        list.push(Armed { fault, until });
        self.note_changed(&list);
        drop((list, arming));
        self.changed.notify_all();
        if !self.keeps_old.load(Relaxed) {
            self.forget_all();
        }
        tracing::warn!("injected: {text}; `ftld inject clear` ends it");
        Ok(Injected {
            kind,
            count: 0,
            facts: json!({}),
            cut_seed: None,
            text,
        })
    }

    /// Ends faults of a kind, or all, and releases the requests that hang.
    fn clear(&self, kind: Option<RequestKind>) -> Result<Injected, Failure> {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|armed| kind.is_some_and(|kind| kind != armed.fault.kind));
        let cleared = before - list.len();
        self.note_changed(&list);
        drop(list);
        self.changed.notify_all();
        if !self.keeps_old.load(Relaxed) {
            self.forget_all();
        }
        let what = kind.map_or("fault of requests".into(), RequestKind::name);
        if cleared == 0 {
            return Err(Failure::failed(format!("no {what} to clear")));
        }
        let cleared = to_u64(cleared);
        let text = format!("{} of requests cleared", counted(cleared, "fault"));
        tracing::warn!("{text}");
        Ok(Injected {
            kind: kind.map_or(Kind::Hang, RequestKind::of_all),
            count: cleared,
            text,
            facts: json!({}),
            cut_seed: None,
        })
    }

    /// Ends hangs, for a device that is about to stop.
    pub fn release(&self) {
        let _ = self.clear(Some(RequestKind::Hang));
    }

    /// Notes which faults are in force; the caller has the lock of the list.
    fn note_changed(&self, list: &[Armed]) {
        let is_arming = self.arming.load(Relaxed) > 0;
        self.armed.store(is_arming || !list.is_empty(), Relaxed);
        let loses = |armed: &Armed| armed.fault.then == Then::Lost;
        if !is_arming && !list.iter().any(loses) {
            self.keeps_old.store(false, Relaxed);
        }
    }

    /// Returns the requests that faults have hit, in the order of [`Kind`].
    pub fn hits(&self) -> [u64; Kind::COUNT] {
        self.hits.each_ref().map(|count| count.load(Relaxed))
    }

    /// Returns the faults in force as text.
    pub fn in_force(&self, size: u64) -> Vec<String> {
        if !self.is_armed() {
            return Vec::new();
        }
        let list = self.list.lock();
        let now = Instant::now();
        list.iter()
            .filter(|armed| !armed.is_over(now))
            .map(|armed| armed.fault.text(size))
            .collect()
    }

    /// Returns whether requests hang.
    pub fn is_hanging(&self) -> bool {
        self.hanging.load(Relaxed) > 0
    }

    #[inline]
    fn is_armed(&self) -> bool {
        self.armed.load(Relaxed)
    }

    /// Returns whether the next request may hang.
    fn may_hang(&self) -> bool {
        let now = Instant::now();
        let hangs = |armed: &Armed| armed.fault.kind == RequestKind::Hang && !armed.is_over(now);
        self.is_armed() && self.list.lock().iter().any(hangs)
    }

    /// Applies the faults to a request of this range; waits while it hangs. `fails_by` is the kind
    /// of fault by which it fails.
    fn meet(&self, fails_by: RequestKind, range: &Range<u64>) -> Effect {
        let (mut effect, mut hung) = (Effect::default(), false);
        let mut list = self.list.lock();
        // Waits first: faults that are injected meanwhile count.
        loop {
            let hangs = |armed: &&mut Armed| {
                armed.fault.kind == RequestKind::Hang && armed.fault.hits(range)
            };
            let Some(armed) = list.iter_mut().find(hangs) else {
                break;
            };
            let until = armed.until.expect("a hang has an end");
            if until <= Instant::now() || (!hung && armed.fault.left == Some(0)) {
                break;
            }
            if !hung {
                armed.fault.left = armed.fault.left.map(|left| left - 1);
                self.hits[Kind::Hang.index()].fetch_add(1, Relaxed);
                self.hanging.fetch_add(1, Relaxed);
                hung = true;
            }
            self.changed.wait_until(&mut list, until);
        }
        if hung {
            self.hanging.fetch_sub(1, Relaxed);
        }
        let now = Instant::now();
        let hits = |armed: &&mut Armed| armed.fault.hits(range) && !armed.is_over(now);
        for armed in list.iter_mut().filter(hits) {
            let fault = &mut armed.fault;
            let is_delay = fault.kind == RequestKind::Slow;
            if (!is_delay && fault.kind != fails_by) || fault.left == Some(0) {
                continue;
            }
            fault.left = fault.left.map(|left| left - 1);
            self.hits[fault.kind.of_all().index()].fetch_add(1, Relaxed);
            if is_delay {
                effect.extra = fault.time;
            } else {
                effect.fails = true;
                effect.loses = fault.then == Then::Lost;
            }
        }
        // A hang whose requests wait stays until they have left.
        list.retain(|armed| {
            let has_requests = armed.fault.kind == RequestKind::Hang || armed.fault.left != Some(0);
            has_requests && !armed.is_over(now)
        });
        self.note_changed(&list);
        effect
    }
}
