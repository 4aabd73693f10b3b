//! What every die and bus does at which instant, for a device that suspends erases or programs: a
//! read may start before work that was issued earlier.
//!
//! Invariants: the spans of a timeline are disjoint and ascend; programs and erases of a die keep
//! the order in which they were issued, and no read takes time away from them; a read never starts
//! before the program of its own page is done.

use crate::addr::Ppn;
use crate::convert::index;
use crate::profile::Suspend;
use std::collections::VecDeque;

/// An instant or a span of emulated time, in nanoseconds.
pub type Nanos = u64;

/// Spans that a timeline keeps: the copies of a block of 511 pages, a read and a program each.
/// Nothing starts before the end of one that it has forgotten.
const SPANS_MAX: usize = 1024;

/// A die's program or erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// First and last page that it changes.
    pub(super) pages: (Ppn, Ppn),
    /// Time until a read may start; `None` if it cannot be suspended.
    pub(super) suspend_ns: Option<Nanos>,
}

/// A span of time, from `start` to before `end`; of a read or a transfer if it is no write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: Nanos,
    end: Nanos,
    write: Option<Write>,
}

/// Work of one die or one bus.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    spans: VecDeque<Span>,
    forgotten: Nanos,
}

impl Timeline {
    pub(super) fn end(&self) -> Nanos {
        self.spans.back().map_or(self.forgotten, |last| last.end)
    }

    /// Works for `ns` after everything issued before; returns the end.
    fn append(&mut self, at: Nanos, ns: Nanos, write: Option<Write>) -> Nanos {
        let start = at.max(self.end());
        self.insert(
            self.spans.len(),
            Span {
                start,
                end: start + ns,
                write,
            },
        );
        self.trim();
        start + ns
    }

    /// Works for `ns` in the first gap from `at` on; returns the end.
    pub(super) fn fit(&mut self, at: Nanos, ns: Nanos) -> Nanos {
        let mut start = at.max(self.forgotten);
        let mut place = self.spans.partition_point(|span| span.end <= start);
        while let Some(span) = self.spans.get(place)
            && start + ns > span.start
        {
            start = start.max(span.end);
            place += 1;
        }
        self.insert(
            place,
            Span {
                start,
                end: start + ns,
                write: None,
            },
        );
        self.trim();
        start + ns
    }

    /// Reads a page for `ns`, as soon as work that cannot be suspended leaves a gap; returns the
    /// end. The suspended operation takes `resume_ns` longer, and the work after it moves back.
    fn read(&mut self, at: Nanos, ns: Nanos, ppn: Ppn, resume_ns: Nanos) -> Nanos {
        let mut start = self.programmed(ppn, at.max(self.forgotten));
        let mut place = self.spans.partition_point(|span| span.end <= start);
        let mut rest = None;
        while let Some(span) = self.spans.get_mut(place) {
            match span.write {
                Some(Write {
                    suspend_ns: Some(suspend_ns),
                    ..
                }) => {
                    if start <= span.start {
                        break;
                    }
                    if start + suspend_ns < span.end {
                        start += suspend_ns;
                        rest = Some(Span {
                            start: start + ns,
                            end: span.end + ns + resume_ns,
                            ..*span
                        });
                        span.end = start;
                        place += 1;
                        break;
                    }
                }
                _ if start + ns <= span.start => break,
                _ => {}
            }
            start = start.max(span.end);
            place += 1;
        }
        let end = start + ns;
        let read = Span {
            start,
            end,
            write: None,
        };
        self.insert(place, read);
        if let Some(rest) = rest {
            self.insert(place + usize::from(ns > 0), rest);
        }
        self.trim();
        end
    }

    /// The instant from `at` on at which the page's last program or erase is done.
    fn programmed(&self, ppn: Ppn, at: Nanos) -> Nanos {
        let later = self.spans.iter().rev().take_while(|span| span.end > at);
        let changes = |span: &&Span| {
            span.write
                .is_some_and(|write| (write.pages.0..=write.pages.1).contains(&ppn))
        };
        later.into_iter().find(changes).map_or(at, |span| span.end)
    }

    /// Inserts a span and moves later ones back as far as they must.
    fn insert(&mut self, place: usize, span: Span) {
        if span.start == span.end {
            return;
        }
        let mut end = span.end;
        self.spans.insert(place, span);
        for later in self.spans.range_mut(place + 1..) {
            if later.start >= end {
                break;
            }
            let back = end - later.start;
            (later.start, later.end) = (later.start + back, later.end + back);
            end = later.end;
        }
    }

    fn trim(&mut self) {
        while self.spans.len() > SPANS_MAX {
            self.forgotten = self.spans.pop_front().map_or(0, |span| span.end);
        }
    }
}

/// The timelines of all dies and buses.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    suspend: Suspend,
    dies: Vec<Timeline>,
    buses: Vec<Timeline>,
}

impl Schedule {
    pub(super) fn new(suspend: Suspend, dies: usize, buses: usize) -> Schedule {
        Schedule {
            suspend,
            dies: vec![Timeline::default(); dies],
            buses: vec![Timeline::default(); buses],
        }
    }

    pub(super) fn busy_until(&self) -> Nanos {
        let ends = self.dies.iter().chain(&self.buses).map(Timeline::end);
        ends.max().unwrap_or(0)
    }

    /// Programs spare bytes of a page, which is not suspended.
    pub(super) fn program_oob(&mut self, at: Nanos, die: u32, ppn: Ppn, ns: Nanos) -> Nanos {
        let write = Write {
            pages: (ppn, ppn),
            suspend_ns: None,
        };
        self.dies[index(die)].append(at, ns, Some(write))
    }

    pub(super) fn erase(&mut self, at: Nanos, die: u32, pages: (Ppn, Ppn), ns: Nanos) -> Nanos {
        let suspend_ns = self.suspend.erase_ns;
        self.dies[index(die)].append(at, ns, Some(Write { pages, suspend_ns }))
    }

    /// Senses a page.
    pub(super) fn sense(&mut self, at: Nanos, die: u32, ppn: Ppn, ns: Nanos) -> Nanos {
        self.dies[index(die)].read(at, ns, ppn, self.suspend.resume_ns)
    }

    /// Senses pages in sequence and transfers each. The die does nothing else from the first to the
    /// last.
    pub(super) fn read_run(
        &mut self,
        mut at: Nanos,
        (die, bus): (u32, u32),
        pages: impl Iterator<Item = (Ppn, Nanos)>,
        bus_ns: Nanos,
    ) -> Nanos {
        let mut sensed = None;
        for (ppn, cell_ns) in pages {
            let from = sensed.unwrap_or(at);
            let end = self.sense(from, die, ppn, at - from + cell_ns);
            sensed = Some(end);
            at = self.transfer(end, bus, bus_ns);
        }
        at
    }

    /// Transfers and programs pages in sequence.
    pub(super) fn program_run(
        &mut self,
        mut at: Nanos,
        (die, bus): (u32, u32),
        pages: impl Iterator<Item = (Ppn, Nanos)>,
        bus_ns: Nanos,
    ) -> Nanos {
        let suspend_ns = self.suspend.program_ns;
        for (ppn, cell_ns) in pages {
            let loaded = self.transfer(at, bus, bus_ns);
            let pages = (ppn, ppn);
            let write = Some(Write { pages, suspend_ns });
            at = self.dies[index(die)].append(loaded, cell_ns, write);
        }
        at
    }

    fn transfer(&mut self, at: Nanos, bus: u32, bus_ns: Nanos) -> Nanos {
        if bus_ns == 0 {
            return at;
        }
        self.buses[index(bus)].fit(at, bus_ns)
    }
}

#[cfg(test)]
mod tests;
