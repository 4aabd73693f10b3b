//! Delayed completions, and the timer for the next one: a request completes when the emulated flash
//! would have finished it.
//!
//! A delayed completion costs a heap entry and no thread. The timer is a file that an event loop
//! polls, because it is exact. A loop's own timers count in ms, and reading a flash page takes tens
//! of us. If the process dies, delayed requests are unacknowledged, like any request in flight.

use crate::device::DelayedCompletion;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Delayed completions, earliest first; those due at the same instant leave in order of insertion.
pub(crate) struct DelayQueue<T> {
    heap: BinaryHeap<Reverse<Held<T>>>,
    pushed: u64,
}

struct Held<T> {
    hold: DelayedCompletion,
    number: u64,
    what: T,
}

impl<T> Held<T> {
    fn key(&self) -> (Instant, u64) {
        (self.hold.due(), self.number)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        DelayQueue {
            heap: BinaryHeap::new(),
            pushed: 0,
        }
    }
}

impl<T> DelayQueue<T> {
    /// Delays `what` until `hold` is due.
    pub(crate) fn push(&mut self, hold: DelayedCompletion, what: T) {
        self.heap.push(Reverse(Held {
            hold,
            number: self.pushed,
            what,
        }));
        self.pushed += 1;
    }

    /// Returns the due time of the first completion.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(held)| held.hold.due())
    }

    /// Removes and returns the first completion, due or not; its request ends here.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let Reverse(first) = self.heap.pop()?;
        debug_assert!(
            self.next_due().is_none_or(|next| first.hold.due() <= next),
            "a completion leaves after one that is due later"
        );
        Some(first.what)
    }

    /// Removes and returns the first completion, if it is due.
    #[cfg(any(test, feature = "ublk"))]
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next_due()? <= now {
            self.pop()
        } else {
            None
        }
    }

    /// Returns the number of delayed completions.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether no completion is delayed.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// A timer that becomes readable when it expires, until it is set again.
#[derive(Debug)]
pub(crate) struct CompletionTimer {
    timer: TimerFd,
    set: Option<Instant>,
}

impl CompletionTimer {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// The kernel cannot create the timer.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(CompletionTimer {
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            set: None,
        })
    }

    /// Sets the timer to expire at `due`; an earlier setting no longer applies.
    ///
    /// # Errors
    /// The kernel refuses to set the timer.
    pub(crate) fn set(&mut self, due: Instant) -> io::Result<()> {
        if self.set == Some(due) {
            return Ok(());
        }
        // A duration of zero would disarm the timer.
        let left = due
            .saturating_duration_since(Instant::now())
            .max(Duration::from_nanos(1));
        self.timer.set(
            Expiration::OneShot(TimeSpec::from(left)),
            TimerSetTimeFlags::empty(),
        )?;
        self.set = Some(due);
        Ok(())
    }

    /// Records that the timer expired: from now on, even the same instant sets it again.
    pub(crate) fn went_off(&mut self) {
        self.set = None;
    }
}

impl AsFd for CompletionTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_leaves_when_it_is_due_and_in_order() {
        let (mut holds, start) = (DelayQueue::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        for (ms, what) in [(30, 'c'), (10, 'a'), (30, 'd'), (20, 'b')] {
            holds.push(DelayedCompletion::until(after(ms)), what);
        }
        assert_eq!((holds.len(), holds.next_due()), (4, Some(after(10))));
        assert_eq!(holds.pop_due(after(9)), None);
        assert_eq!(
            [
                holds.pop_due(after(25)),
                holds.pop_due(after(25)),
                holds.pop_due(after(25))
            ],
            [Some('a'), Some('b'), None]
        );
        assert_eq!(
            [holds.pop(), holds.pop(), holds.pop()],
            [Some('c'), Some('d'), None]
        );
    }

    #[test]
    fn an_alarm_goes_off_not_before_its_time_and_for_what_is_past_at_once() {
        let mut alarm = CompletionTimer::new().unwrap();
        for wait in [Duration::from_millis(5), Duration::ZERO] {
            let due = Instant::now() + wait;
            alarm.set(due).unwrap();
            let mut polled = [nix::poll::PollFd::new(
                alarm.as_fd(),
                nix::poll::PollFlags::POLLIN,
            )];
            nix::poll::poll(&mut polled, nix::poll::PollTimeout::NONE).unwrap();
            assert!(Instant::now() >= due);
            alarm.went_off();
        }
    }
}
