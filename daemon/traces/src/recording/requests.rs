//! A recording as a trace: its requests in the order in which they began.
//!
//! Entries are stored in the order of their ends. A FLUSH works on the flash when it begins, and
//! ends when the host's storage is done, perhaps many requests later. So requests are put back into
//! the order of their beginnings: every number from 0 on is one moment of one entry.

use super::{Entry, Kind, Reader};
use crate::error::TraceError;
use crate::record::{Op, Record};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum number of moments that wait for an earlier one; beyond it, the earliest of them is
/// taken. Only a recording that was cut off lacks moments.
const WAITING_MAX: usize = 1 << 20;

/// A moment; a request begins at some.
struct Begin(u64, Option<Record>);

impl PartialEq for Begin {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Begin {}

impl PartialOrd for Begin {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Begin {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// The requests of a recording that succeeded. Initial content and marks are no requests.
pub(crate) struct Requests {
    reader: Reader,
    waiting: BinaryHeap<Reverse<Begin>>,
    /// The next moment.
    next: u64,
    /// Time of the first request.
    begin_ns: Option<u64>,
    returned: u64,
}

impl Requests {
    pub(crate) fn new(reader: Reader) -> Requests {
        Requests {
            reader,
            waiting: BinaryHeap::new(),
            next: 0,
            begin_ns: None,
            returned: 0,
        }
    }

    /// Returns the share of the file read so far, 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        self.reader.progress()
    }

    /// Returns the number of requests returned so far.
    pub(crate) fn returned(&self) -> u64 {
        self.returned
    }

    fn take(&mut self) -> Option<Option<Record>> {
        let Reverse(Begin(seq, record)) = self.waiting.pop()?;
        self.next = seq.saturating_add(1);
        Some(record)
    }

    fn record(&mut self, entry: &Entry) -> Option<Record> {
        let op = match entry.kind {
            Kind::Read => Op::Read,
            Kind::Write => Op::Write,
            Kind::Trim | Kind::WriteZeroes => Op::Trim,
            Kind::Flush => Op::Flush,
            Kind::Mark | Kind::Base => return None,
        };
        let (offset_bytes, length_bytes) = match op {
            Op::Flush => (0, 0),
            _ => (entry.offset, entry.length),
        };
        if entry.errno != 0 || (op != Op::Flush && length_bytes == 0) {
            return None;
        }
        Some(Record {
            time_ns: entry.begin.ns,
            op,
            device: 0,
            offset_bytes,
            length_bytes,
        })
    }

    /// Returns the time since the first request that was returned.
    fn since_first(&mut self, ns: u64) -> u64 {
        ns.saturating_sub(*self.begin_ns.get_or_insert(ns))
    }
}

impl Iterator for Requests {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let is_next = |Reverse(begin): &Reverse<Begin>| begin.0 <= self.next;
            if self.waiting.peek().is_some_and(is_next) || self.waiting.len() > WAITING_MAX {
                if let Some(Some(record)) = self.take() {
                    self.returned += 1;
                    let time_ns = self.since_first(record.time_ns);
                    return Some(Ok(Record { time_ns, ..record }));
                }
                continue;
            }
            match self.reader.next() {
                Some(Ok(entry)) => {
                    let record = self.record(&entry);
                    self.waiting.push(Reverse(Begin(entry.begin.seq, record)));
                    self.waiting.push(Reverse(Begin(entry.end.seq, None)));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => match self.waiting.peek() {
                    // The requests behind a gap, in their order.
                    Some(Reverse(begin)) => self.next = begin.0,
                    None => return None,
                },
            }
        }
    }
}
