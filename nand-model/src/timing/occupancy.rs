//! What dies and buses did, and why: it explains the time of a request.
//!
//! Definitions. An operation *waits* while its die, and then its bus, is busy with operations that
//! were issued before it; the rest of its time is its own. The time of a request is followed
//! backwards from its end: the operation that ended there explains the time since it was issued,
//! the one that ended at that instant the time before, and so on. So every nanosecond counts once.
//!
//! Invariants: requests begin in ascending order, and what ended before the current one began is
//! forgotten. Memory is bounded: of a longer backlog the oldest operations are forgotten too.

use crate::cause::Cause;
use crate::convert::index;
use crate::timing::Nanos;
use std::collections::VecDeque;

/// Spans of work that a die or a bus remembers, 3 MiB.
const SPANS_MAX: usize = 1 << 17;

/// Where the time of a request went, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSplit {
    /// Operations of each cause, in the order of [`Cause::ALL`]: those of the request, and those
    /// that it waited for.
    pub by_cause: [Nanos; Cause::COUNT],
    /// All other time: steps in RAM, read retries, a backlog beyond memory.
    pub other: Nanos,
    /// The part of all this in which the request waited for operations issued before its own.
    pub waited: Nanos,
}

/// Work of one cause without a gap.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Nanos,
    end: Nanos,
    cause: Cause,
}

/// The work of a die or a bus; spans ascend.
#[derive(Clone, Debug, Default)]
struct Track(VecDeque<Span>);

impl Track {
    fn push(&mut self, span: Span) {
        if span.start >= span.end {
            return;
        }
        match self.0.back_mut() {
            Some(last) if last.end == span.start && last.cause == span.cause => last.end = span.end,
            _ => self.0.push_back(span),
        }
        if self.0.len() > SPANS_MAX {
            self.0.pop_front();
        }
    }

    fn forget_before(&mut self, at: Nanos) {
        while self.0.front().is_some_and(|span| span.end <= at) {
            self.0.pop_front();
        }
    }

    /// Returns whether work was in progress just before this instant.
    fn is_busy_before(&self, at: Nanos) -> bool {
        let place = self.0.partition_point(|span| span.end < at);
        self.0.get(place).is_some_and(|span| span.start < at)
    }

    /// Adds the work in this time, which a request waited for.
    fn explain(&self, from: Nanos, to: Nanos, split: &mut TimeSplit) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|span| span.end <= from);
        let mut covered = 0;
        for span in self.0.range(first..).take_while(|span| span.start < to) {
            let ns = span.end.min(to) - span.start.max(from);
            split.by_cause[span.cause.index()] += ns;
            covered += ns;
        }
        split.other += to - from - covered;
        split.waited += to - from;
    }
}

/// An operation of the current request.
#[derive(Clone, Copy, Debug)]
struct Operation {
    cause: Cause,
    die: u32,
    bus: u32,
    issued: Nanos,
    done: Nanos,
    /// Time until its die was free, from `issued` on.
    die_wait: Nanos,
    /// Time until its bus was free, and the end of that time.
    bus_wait: (Nanos, Nanos),
}

/// State of a die and its bus: the instants at which they are free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) die: Nanos,
    pub(super) bus: Nanos,
}

/// The work of all dies and buses, and the current request.
#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    dies: Vec<Track>,
    buses: Vec<Track>,
    begun: Nanos,
    operations: Vec<Operation>,
}

impl Occupancy {
    pub(super) fn new(dies: usize, buses: usize) -> Occupancy {
        Occupancy {
            dies: vec![Track::default(); dies],
            buses: vec![Track::default(); buses],
            begun: 0,
            operations: Vec::new(),
        }
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, at: Nanos) {
        debug_assert!(at >= self.begun, "requests begin in ascending order");
        self.begun = at;
        self.operations.clear();
        let tracks = self.dies.iter_mut().chain(&mut self.buses);
        tracks.for_each(|track| track.forget_before(at));
    }

    /// Notes an operation that would have taken `own_ns` on an idle device, with the state of its
    /// die and bus before and after it.
    pub(super) fn note(
        &mut self,
        cause: Cause,
        (die, bus): (u32, u32),
        (issued, done): (Nanos, Nanos),
        own_ns: Nanos,
        (before, after): (Free, Free),
    ) {
        let wait = (done - issued).saturating_sub(own_ns);
        let die_wait = wait.min(before.die.saturating_sub(issued));
        self.operations.push(Operation {
            cause,
            die,
            bus,
            issued,
            done,
            die_wait,
            bus_wait: (wait - die_wait, before.bus),
        });
        let span = |free: Nanos, end: Nanos| Span {
            start: free.max(issued),
            end,
            cause,
        };
        self.dies[index(die)].push(span(before.die, after.die));
        self.buses[index(bus)].push(span(before.bus, after.bus));
    }

    /// Returns where the time of the current request went; it ends at `done`.
    pub(super) fn split(&mut self, done: Nanos) -> TimeSplit {
        let (mut split, mut at) = (TimeSplit::default(), done);
        self.operations.sort_by_key(|operation| operation.done);
        while at > self.begun {
            let next = loop {
                match self.operations.pop() {
                    // It did not delay the request.
                    Some(operation) if operation.done > at || operation.issued >= at => {}
                    next => break next,
                }
            };
            let since = next.map_or(self.begun, |operation| operation.done);
            self.explain_gap(since.max(self.begun), at, &mut split);
            if let Some(operation) = next {
                self.explain(&operation, &mut split);
            }
            at = next.map_or(self.begun, |operation| operation.issued);
        }
        split
    }

    fn explain(&self, operation: &Operation, split: &mut TimeSplit) {
        let Operation {
            issued, die_wait, ..
        } = *operation;
        let (bus_wait, bus_free) = operation.bus_wait;
        self.dies[index(operation.die)].explain(issued, issued + die_wait, split);
        let bus = &self.buses[index(operation.bus)];
        bus.explain(bus_free.saturating_sub(bus_wait), bus_free, split);
        let own = operation.done - issued - die_wait - bus_wait;
        split.by_cause[operation.cause.index()] += own;
    }

    /// Explains time without an operation of the request: it waited for the end of another one's.
    fn explain_gap(&self, from: Nanos, to: Nanos, split: &mut TimeSplit) {
        if from >= to {
            return;
        }
        match self.dies.iter().find(|die| die.is_busy_before(to)) {
            Some(die) => die.explain(from, to, split),
            None => split.other += to - from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two dies on one bus; an operation occupies its die for `cell` and then the bus for `bus`.
    struct Device {
        occupancy: Occupancy,
        dies: [Nanos; 2],
        bus: Nanos,
    }

    impl Device {
        fn new() -> Device {
            Device {
                occupancy: Occupancy::new(2, 1),
                dies: [0; 2],
                bus: 0,
            }
        }

        fn read(&mut self, at: Nanos, die: usize, cell: Nanos, bus: Nanos, cause: Cause) -> Nanos {
            let before = Free {
                die: self.dies[die],
                bus: self.bus,
            };
            self.dies[die] = at.max(self.dies[die]) + cell;
            let mut done = self.dies[die];
            if bus > 0 {
                self.bus = done.max(self.bus) + bus;
                done = self.bus;
            }
            let after = Free {
                die: self.dies[die],
                bus: self.bus,
            };
            let places = (die as u32, 0);
            let times = (at, done);
            (self.occupancy).note(cause, places, times, cell + bus, (before, after));
            done
        }
    }

    fn of(split: &TimeSplit, cause: Cause) -> Nanos {
        split.by_cause[cause.index()]
    }

    #[test]
    fn a_request_explains_its_own_work_and_what_it_waited_for() {
        let mut device = Device::new();
        device.occupancy.begin(0);
        let copied = device.read(0, 0, 100, 0, Cause::Gc);
        let done = device.read(copied, 0, 50, 0, Cause::Host);
        let split = device.occupancy.split(done);
        assert_eq!((of(&split, Cause::Gc), of(&split, Cause::Host)), (100, 50));
        assert_eq!((split.waited, split.other), (0, 0));
        // The next one comes at 30, and waits for the rest of both.
        device.occupancy.begin(30);
        let done = device.read(30, 0, 20, 0, Cause::Host);
        let split = device.occupancy.split(done);
        assert_eq!((done, split.waited), (170, 120));
        assert_eq!((of(&split, Cause::Gc), of(&split, Cause::Host)), (70, 70));
    }

    #[test]
    fn only_the_critical_path_counts() {
        let mut device = Device::new();
        device.occupancy.begin(0);
        // An erase that nobody waits for, and two parts side by side.
        device.read(0, 0, 1000, 0, Cause::Gc);
        let short = device.read(0, 1, 10, 5, Cause::Translation);
        let long = device.read(short, 1, 40, 5, Cause::Host);
        let split = device.occupancy.split(long);
        assert_eq!(
            (of(&split, Cause::Translation), of(&split, Cause::Host)),
            (15, 45)
        );
        assert_eq!(split.by_cause.iter().sum::<u64>(), long);
        // A bus that is busy with the other die's page.
        device.occupancy.begin(2000);
        device.read(2000, 0, 10, 100, Cause::Gc);
        device.occupancy.begin(2005);
        let done = device.read(2005, 1, 10, 100, Cause::Host);
        let split = device.occupancy.split(done);
        assert_eq!((done, split.waited), (2210, 95));
        assert_eq!((of(&split, Cause::Gc), of(&split, Cause::Host)), (95, 110));
        // Without an operation: it waited for the die that ended then.
        device.occupancy.begin(2100);
        let split = device.occupancy.split(done);
        assert_eq!(split.by_cause.iter().sum::<u64>() + split.other, 110);
    }

    #[test]
    fn a_backlog_beyond_memory_is_other_time() {
        let mut device = Device::new();
        device.occupancy.begin(0);
        for i in 0..2 * SPANS_MAX as u64 {
            let cause = [Cause::Host, Cause::Gc][i as usize % 2];
            device.read(0, 0, 1, 0, cause);
        }
        device.occupancy.begin(1);
        let done = device.read(1, 0, 1, 0, Cause::Host);
        let split = device.occupancy.split(done);
        let sum = split.by_cause.iter().sum::<u64>();
        assert_eq!(sum + split.other, done - 1);
        assert!(split.other > 0 && sum > SPANS_MAX as u64 / 2, "{split:?}");
    }
}
