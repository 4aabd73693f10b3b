//! A device that stands still because somebody wants to look at it: paused, and let on step by
//! step.
//!
//! What always holds: a request waits before an extent, outside the lock, and is never failed for
//! it; nothing acknowledged is touched; a pause ends by itself. Whether an extent may begin is
//! asked under the lock, so after a pause began, or a step was done, no further one does.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a pause lasts unless told otherwise.
pub const PAUSE_DEFAULT: Duration = Duration::from_secs(30);
/// The longest pause. From two minutes on, the kernel's log complains of tasks that wait for the
/// device.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);

/// How far a paused device goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Until so many more events were noted: collections, merges, conversions and the like.
    Events(u64),
    /// Until so many more requests were served.
    Requests(u64),
}

/// A pause as it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Until it ends by itself.
    pub left: Duration,
    /// Whether a step is under way.
    pub stepping: bool,
}

/// Lets extents begin, or not.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Whether there is a pause: all that is looked at while there is none.
    paused: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pause: Option<Pause>,
    /// Counts changes, so that whoever waits misses none.
    changes: u64,
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
    /// As many events as there are to be.
    Events(u64),
    /// Requests that may still begin.
    Requests(u64),
}

/// An extent has to wait; see [`Pace::wait`].
pub(super) struct Wait {
    changes: u64,
}

impl Pace {
    /// Whether an extent may begin; `first` tells that none of its request did, `events` how many
    /// were noted so far.
    #[inline]
    pub(super) fn admits(&self, first: bool, events: impl Fn() -> u64) -> Result<(), Wait> {
        if self.paused.load(Relaxed) {
            self.decide(first, events())
        } else {
            Ok(())
        }
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

    /// Blocks until something changed. Never called under the volume's lock.
    pub(super) fn wait(&self, Wait { changes }: Wait) {
        let mut state = self.ended();
        while let Some(pause) = state.pause.as_ref().filter(|_| state.changes == changes) {
            let left = pause.until.saturating_duration_since(Instant::now());
            self.changed.wait_for(&mut state, left);
            drop(state);
            state = self.ended();
        }
    }

    /// Begins a pause, or makes it last from now on.
    pub(super) fn pause(&self, length: Duration) {
        let mut state = self.lock();
        state.pause = Some(Pause {
            length,
            until: Instant::now() + length,
            goal: Goal::None,
        });
        self.changed(state);
    }

    /// Lets a paused device on for a step; the pause lasts as long as it first did from now on.
    /// False if there is none.
    pub(super) fn step(&self, step: Step, events: u64) -> bool {
        let mut state = self.ended();
        let Some(pause) = &mut state.pause else {
            return false;
        };
        pause.until = pause.until.max(Instant::now() + pause.length);
        pause.goal = match step {
            Step::Events(count) => Goal::Events(events + count),
            Step::Requests(count) => Goal::Requests(count),
        };
        self.changed(state);
        true
    }

    /// Ends it. False if there is none.
    pub(super) fn resume(&self) -> bool {
        let mut state = self.ended();
        let was = state.pause.take().is_some();
        self.changed(state);
        was
    }

    /// The pause, if there is one.
    pub(super) fn paused(&self, events: u64) -> Option<Paused> {
        if !self.paused.load(Relaxed) {
            return None;
        }
        let state = self.ended();
        let pause = state.pause.as_ref()?;
        let stepping = match pause.goal {
            Goal::None => false,
            Goal::Events(wanted) => events < wanted,
            Goal::Requests(left) => left > 0,
        };
        Some(Paused {
            left: pause.until.saturating_duration_since(Instant::now()),
            stepping,
        })
    }

    fn changed(&self, mut state: MutexGuard<'_, State>) {
        state.changes += 1;
        self.paused.store(state.pause.is_some(), Relaxed);
        self.changed.notify_all();
    }

    /// The state, a pause whose time is over taken away.
    fn ended(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state
            .pause
            .as_ref()
            .is_some_and(|pause| pause.until <= Instant::now())
        {
            state.pause = None;
            tracing::info!("the pause has lasted as long as it may: the device goes on");
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
        let pace = Pace::default();
        let may = |first, events| pace.admits(first, || events).is_ok();
        assert!(
            may(true, 0) && !pace.step(Step::Events(1), 0) && !pace.resume(),
            "nobody paused it"
        );
        pace.pause(PAUSE_DEFAULT);
        assert!(!may(true, 0) && !may(false, 0) && !pace.paused(0).unwrap().stepping);
        assert!(pace.step(Step::Events(2), 10) && pace.paused(10).unwrap().stepping);
        assert!(
            may(true, 10) && may(false, 11) && !may(true, 12) && !pace.paused(12).unwrap().stepping
        );
        assert!(pace.step(Step::Requests(2), 12));
        assert!(
            may(true, 12) && may(false, 12) && may(true, 13) && may(false, 13) && !may(true, 14)
        );
        assert!(may(false, 14), "a request that was let begin is let end");
        assert!(pace.resume() && may(true, 14) && pace.paused(14).is_none());
    }

    #[test]
    fn a_pause_ends_by_itself_and_a_step_makes_it_last() {
        let pace = Pace::default();
        pace.pause(Duration::ZERO);
        assert!(pace.paused(0).is_none() && pace.admits(true, || 0).is_ok());
        pace.pause(Duration::from_millis(60));
        let Err(wait) = pace.admits(true, || 0) else {
            panic!("it is paused")
        };
        pace.wait(wait);
        assert!(pace.admits(true, || 0).is_ok());
        pace.pause(PAUSE_MAX);
        let before = pace.paused(0).unwrap().left;
        std::thread::sleep(Duration::from_millis(5));
        assert!(pace.paused(0).unwrap().left < before && pace.step(Step::Events(1), 0));
        assert!(pace.paused(0).unwrap().left > before - Duration::from_millis(5));
    }
}
