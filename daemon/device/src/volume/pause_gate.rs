//! Pausing a device for inspection, and running it step by step.
//!
//! Invariants: a request waits before an extent, outside the lock, and never fails because of the
//! wait. Acknowledged data stays as it is; a pause ends by itself. The gate decides under the lock,
//! so no extent begins after the start of a pause or the end of a step.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Default length of a pause.
pub const PAUSE_DEFAULT: Duration = Duration::from_secs(30);
/// Longest pause. After 2 minutes the kernel logs warnings about tasks that wait for the device.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Length of a step of a paused device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Until `n` more events were recorded: GC runs, merges, conversions and others.
    Events(u64),
    /// Until `n` more requests were served.
    Requests(u64),
}

/// State of a pause, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Time until the pause ends by itself.
    pub(crate) left: Duration,
    /// Whether a step is in progress.
    pub(crate) stepping: bool,
    /// Number of ended pauses and of steps. If it is equal at two moments of a pause, the device
    /// was paused between them.
    pub(crate) runs: u64,
}

/// Gate that every extent passes; closed during a pause.
#[derive(Debug, Default)]
pub(super) struct PauseGate {
    /// Whether there is a pause; the only field read while there is none.
    paused: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pause: Option<Pause>,
    /// Number of changes, so that a waiter misses none.
    changes: u64,
    /// See [`Paused`].
    runs: u64,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    until: Instant,
    goal: Goal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    None,
    /// Total number of events at which the step ends.
    Events(u64),
    /// Requests that may still begin.
    Requests(u64),
}

/// Token of an extent that has to wait; see [`PauseGate::wait`].
pub(super) struct Wait {
    changes: u64,
}

impl PauseGate {
    /// Admits an extent or returns a [`Wait`]; `first` marks the first extent of a request,
    /// `events` returns the number of recorded events.
    #[inline]
    pub(super) fn admits(&self, first: bool, events: impl Fn() -> u64) -> Result<(), Wait> {
        if self.is_paused() {
            self.decide(first, events())
        } else {
            Ok(())
        }
    }

    /// Returns whether there is a pause, with or without a step. A pause that has just timed out
    /// may count.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    #[cold]
    fn decide(&self, first: bool, events: u64) -> Result<(), Wait> {
        let mut state = self.ended();
        let changes = state.changes;
        let Some(pause) = &mut state.pause else {
            return Ok(());
        };
        match &mut pause.goal {
            Goal::Events(wanted) if events < *wanted => Ok(()),
            Goal::Requests(_) if !first => Ok(()),
            Goal::Requests(left @ 1..) => {
                *left -= 1;
                Ok(())
            }
            Goal::Requests(_) => Err(Wait { changes }),
            Goal::None | Goal::Events(_) => {
                pause.goal = Goal::None;
                Err(Wait { changes })
            }
        }
    }

    /// Blocks until the state changes. Never called under the volume's lock.
    pub(super) fn wait(&self, Wait { changes }: Wait) {
        let mut state = self.ended();
        while let Some(pause) = state.pause.as_ref().filter(|_| state.changes == changes) {
            let left = pause.until.saturating_duration_since(Instant::now());
            self.changed.wait_for(&mut state, left);
            drop(state);
            state = self.ended();
        }
    }

    /// Begins a pause, or restarts it with this length.
    pub(super) fn pause(&self, length: Duration) {
        assert!(
            length <= PAUSE_MAX,
            "a pause of {length:?}, limited to {PAUSE_MAX:?}"
        );
        let mut state = self.lock();
        state.pause = Some(Pause {
            length,
            until: Instant::now() + length,
            goal: Goal::None,
        });
        self.changed(state);
    }

    /// Runs a paused device for a step and restarts the pause with its original length. Returns
    /// whether there was a pause.
    pub(super) fn step(&self, step: Step, events: u64) -> bool {
        let mut state = self.ended();
        let Some(pause) = &mut state.pause else {
            return false;
        };
        assert!(
            pause.length <= PAUSE_MAX,
            "a pause of {:?} is prolonged, limited to {PAUSE_MAX:?}",
            pause.length
        );
        pause.until = pause.until.max(Instant::now() + pause.length);
        pause.goal = match step {
            Step::Events(count) => Goal::Events(events.saturating_add(count)),
            Step::Requests(count) => Goal::Requests(count),
        };
        state.runs += 1;
        self.changed(state);
        true
    }

    /// Ends the pause. Returns whether there was one.
    pub(super) fn resume(&self) -> bool {
        let mut state = self.ended();
        let was = state.pause.take().is_some();
        state.runs += u64::from(was);
        self.changed(state);
        was
    }

    /// Returns the pause, if there is one.
    pub(super) fn paused(&self, events: u64) -> Option<Paused> {
        if !self.is_paused() {
            return None;
        }
        let state = self.ended();
        let pause = state.pause.as_ref()?;
        let stepping = match pause.goal {
            Goal::None => false,
            Goal::Events(wanted) => events < wanted,
            Goal::Requests(left) => left > 0,
        };
        let left = pause.until.saturating_duration_since(Instant::now());
        assert!(
            left <= PAUSE_MAX,
            "a pause has {left:?} left, limited to {PAUSE_MAX:?}"
        );
        Some(Paused {
            left,
            stepping,
            runs: state.runs,
        })
    }

    fn changed(&self, mut state: MutexGuard<'_, State>) {
        state.changes += 1;
        self.paused.store(state.pause.is_some(), Relaxed);
        self.changed.notify_all();
    }

    /// Returns the state, after ending a pause whose time is over.
    fn ended(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state
            .pause
            .as_ref()
            .is_some_and(|pause| pause.until <= Instant::now())
        {
            state.pause = None;
            state.runs += 1;
            tracing::info!("pause timed out: the device resumes");
            self.changed(state);
            state = self.lock();
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_let_on_what_they_say_and_no_more() {
        let gate = PauseGate::default();
        let may = |first, events| gate.admits(first, || events).is_ok();
        assert!(
            may(true, 0) && !gate.step(Step::Events(1), 0) && !gate.resume(),
            "nobody paused it"
        );
        gate.pause(PAUSE_DEFAULT);
        assert!(!may(true, 0) && !may(false, 0) && !gate.paused(0).unwrap().stepping);
        assert!(gate.step(Step::Events(2), 10) && gate.paused(10).unwrap().stepping);
        assert!(
            may(true, 10) && may(false, 11) && !may(true, 12) && !gate.paused(12).unwrap().stepping
        );
        assert!(gate.step(Step::Requests(2), 12));
        assert!(
            may(true, 12) && may(false, 12) && may(true, 13) && may(false, 13) && !may(true, 14)
        );
        assert!(may(false, 14), "a request that was let begin is let end");
        assert!(gate.resume() && may(true, 14) && gate.paused(14).is_none());
    }

    #[test]
    fn whoever_looks_twice_sees_that_the_device_ran_between() {
        let gate = PauseGate::default();
        let runs = || gate.paused(0).unwrap().runs;
        gate.pause(PAUSE_DEFAULT);
        let first = runs();
        gate.pause(PAUSE_MAX);
        assert_eq!(runs(), first, "a longer pause lets nothing run");
        assert!(gate.step(Step::Requests(1), 0));
        gate.pause(PAUSE_DEFAULT);
        assert_eq!(runs(), first + 1, "a step");
        assert!(gate.resume() && !gate.resume());
        gate.pause(Duration::ZERO);
        assert!(gate.paused(0).is_none());
        gate.pause(PAUSE_DEFAULT);
        assert_eq!(runs(), first + 3, "a resume and a pause that timed out");
    }

    #[test]
    fn a_pause_ends_by_itself_and_a_step_makes_it_last() {
        let gate = PauseGate::default();
        gate.pause(Duration::ZERO);
        assert!(gate.paused(0).is_none() && gate.admits(true, || 0).is_ok());
        gate.pause(Duration::from_millis(60));
        let Err(wait) = gate.admits(true, || 0) else {
            panic!("it is paused")
        };
        gate.wait(wait);
        assert!(gate.admits(true, || 0).is_ok());
        gate.pause(PAUSE_MAX);
        let before = gate.paused(0).unwrap().left;
        std::thread::sleep(Duration::from_millis(5));
        assert!(gate.paused(0).unwrap().left < before && gate.step(Step::Events(1), 0));
        assert!(gate.paused(0).unwrap().left > before - Duration::from_millis(5));
    }
}
