//! Requests in the order in which they began; the ring has them in the order of their ends.

use super::{Entry, Request};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::Receiver;

/// Maximum of entries that wait for one that began before them. Beyond it, that one was dropped, or
/// is later than its place.
const WAITING_MAX: usize = 4096;

/// An entry that waits.
#[derive(Debug)]
struct Waiting(u64, Option<Request>);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// The requests that a tap passes on.
pub struct Requests {
    entries: Receiver<Entry>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Number of the next request.
    next: u64,
    late: u64,
}

impl Requests {
    pub(super) fn new(entries: Receiver<Entry>) -> Requests {
        Requests {
            entries,
            waiting: BinaryHeap::new(),
            next: 0,
            late: 0,
        }
    }

    /// Appends the requests that have ended, at most about `most`, in the order of their
    /// beginnings. Never waits.
    pub fn take(&mut self, most: usize, to: &mut Vec<Request>) {
        for _ in 0..most {
            let Ok(entry) = self.entries.try_recv() else {
                return;
            };
            match entry.seq == self.next && self.waiting.is_empty() {
                // In nearly all cases.
                true => {
                    self.next += 1;
                    to.extend(entry.request);
                }
                false if entry.seq < self.next => {
                    self.late += u64::from(entry.request.is_some());
                    to.extend(entry.request);
                }
                false => {
                    let waiting = Waiting(entry.seq, entry.request);
                    self.waiting.push(Reverse(waiting));
                    self.put_in_order(to);
                }
            }
        }
    }

    /// Gives up the requests that are missing, and appends those behind them.
    pub fn skip_gaps(&mut self, to: &mut Vec<Request>) {
        while let Some(seq) = self.waiting.peek().map(|Reverse(waiting)| waiting.0) {
            self.next = seq;
            self.put_in_order(to);
        }
    }

    /// Returns whether requests wait for one that began before them.
    pub fn has_gap(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the requests that came too late for their place, and are behind later ones.
    pub fn late(&self) -> u64 {
        self.late
    }

    fn put_in_order(&mut self, to: &mut Vec<Request>) {
        while let Some(Reverse(Waiting(seq, _))) = self.waiting.peek() {
            if *seq != self.next && self.waiting.len() <= WAITING_MAX {
                return;
            }
            let Some(Reverse(Waiting(seq, request))) = self.waiting.pop() else {
                return;
            };
            self.next = seq + 1;
            to.extend(request);
        }
    }
}
