//! What a scheme does beside the host's requests, as it happens: the newest events, in a ring that
//! takes no memory of its own later on.
//!
//! An event is noted when it is done, by the part that does it; so one that an error or a power cut
//! stopped is not there. It is RAM, and tells of this run alone.

use crate::convert::{to_u64, to_usize};
use nand_model::{Nanos, Pbn};

/// How many events the ring keeps.
pub const EVENTS_KEPT: usize = 1024;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// The live pages of a block moved elsewhere, and it was given up. In a hybrid scheme, merges
    /// of what it logged come before.
    Collect,
    /// A log block became a data block as it was.
    SwitchMerge,
    /// A log block became a data block after the pages that it lacked were copied to it.
    PartialMerge,
    /// The newest pages of a logical block were put together in another block.
    FullMerge,
    /// The flash's map learned of pages that RAM alone had mapped, or pages were put together so
    /// that they map in coarser steps.
    Convert,
    /// A part of the write buffer went to the flash.
    BufferFlush,
    /// Cold data moved to a worn block.
    WearMove,
    /// Data moved because its cells were fading.
    Refresh,
    /// A checkpoint was completed.
    Checkpoint,
    /// A block failed and is used no more.
    BadBlock,
}

impl EventKind {
    /// How many kinds there are.
    pub const COUNT: usize = 10;

    /// Every kind in the order of its number.
    pub const ALL: [EventKind; Self::COUNT] = [
        EventKind::Collect,
        EventKind::SwitchMerge,
        EventKind::PartialMerge,
        EventKind::FullMerge,
        EventKind::Convert,
        EventKind::BufferFlush,
        EventKind::WearMove,
        EventKind::Refresh,
        EventKind::Checkpoint,
        EventKind::BadBlock,
    ];

    /// The number as an index into a table of [`EventKind::COUNT`] entries.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Collect => "collect",
            EventKind::SwitchMerge => "switch_merge",
            EventKind::PartialMerge => "partial_merge",
            EventKind::FullMerge => "full_merge",
            EventKind::Convert => "convert",
            EventKind::BufferFlush => "buffer_flush",
            EventKind::WearMove => "wear_move",
            EventKind::Refresh => "refresh",
            EventKind::Checkpoint => "checkpoint",
            EventKind::BadBlock => "bad_block",
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub kind: EventKind,
    /// The block it was about: the collected, failed or converted one, the new one of a merge. None
    /// if there were several.
    pub block: Option<Pbn>,
    /// Pages copied; of a conversion or a checkpoint, pages written.
    pub pages: u32,
    /// Emulated instant at which it began.
    pub at: Nanos,
    /// Emulated time it took.
    pub took: Nanos,
}

/// What all events of a kind came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTotals {
    /// How many there were.
    pub count: u64,
    /// Pages that they copied or wrote.
    pub pages: u64,
    /// Emulated time that they took.
    pub took: Nanos,
}

/// The newest events, oldest first, and totals of all.
#[derive(Clone, Debug)]
pub struct EventLog {
    ring: Vec<Event>,
    total: u64,
    by_kind: [EventTotals; EventKind::COUNT],
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog {
            ring: Vec::with_capacity(EVENTS_KEPT),
            total: 0,
            by_kind: Default::default(),
        }
    }
}

/// Where event number so is kept once the ring is full.
fn place(number: u64) -> usize {
    to_usize(number % to_u64(EVENTS_KEPT))
}

impl EventLog {
    /// Adds one. Once the ring is full the oldest goes.
    #[cold]
    pub fn note(&mut self, event: Event) {
        match self.ring.len() {
            EVENTS_KEPT => self.ring[place(self.total)] = event,
            _ => self.ring.push(event),
        }
        self.total += 1;
        let of_kind = &mut self.by_kind[event.kind.index()];
        of_kind.count += 1;
        of_kind.pages += u64::from(event.pages);
        of_kind.took += event.took;
    }

    /// What all events so far came to, in the order of [`EventKind::ALL`].
    pub fn by_kind(&self) -> &[EventTotals; EventKind::COUNT] {
        &self.by_kind
    }

    /// How many there were so far: the number of the next one.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Those from number `from` on that are still there, with their numbers.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (u64, &Event)> {
        let first = from.max(self.total - to_u64(self.ring.len()));
        (first..self.total).map(|number| (number, &self.ring[place(number)]))
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> u64 {
        to_u64(self.ring.capacity() * size_of::<Event>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_newest_and_tells_their_numbers() {
        let mut log = EventLog::default();
        let event = |at| Event {
            kind: EventKind::Collect,
            block: None,
            pages: 1,
            at,
            took: 2,
        };
        assert_eq!(log.since(0).count(), 0);
        let bytes = log.bytes();
        assert!(bytes >= (EVENTS_KEPT * std::mem::size_of::<Event>()) as u64);
        (0..EVENTS_KEPT as u64 + 10).for_each(|at| log.note(event(at)));
        assert_eq!((log.total(), log.bytes()), (EVENTS_KEPT as u64 + 10, bytes));
        let kept: Vec<_> = log
            .since(0)
            .map(|(number, event)| (number, event.at))
            .collect();
        assert_eq!(
            kept,
            (10..EVENTS_KEPT as u64 + 10)
                .map(|at| (at, at))
                .collect::<Vec<_>>()
        );
        assert_eq!(log.since(EVENTS_KEPT as u64 + 8).count(), 2);
        assert_eq!(log.since(u64::MAX).count(), 0);
        let all = EVENTS_KEPT as u64 + 10;
        let collected = EventTotals {
            count: all,
            pages: all,
            took: 2 * all,
        };
        assert_eq!(log.by_kind()[EventKind::Collect as usize], collected);
        assert_eq!(
            log.by_kind()[EventKind::Refresh as usize],
            EventTotals::default()
        );
    }

    #[test]
    fn kinds_are_numbered_as_listed_and_named_once() {
        let names: std::collections::BTreeSet<_> = EventKind::ALL.map(EventKind::name).into();
        assert_eq!(names.len(), EventKind::ALL.len());
        EventKind::ALL
            .iter()
            .enumerate()
            .for_each(|(i, kind)| assert_eq!(i, *kind as usize));
    }
}
