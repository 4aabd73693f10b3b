//! Background operations of a scheme: the newest events, in a ring that allocates no memory after
//! start.
//!
//! A component records an event when the operation is done. So the ring does not contain an
//! operation that an error or a power cut stopped. It is in RAM and covers this run only.

use crate::int::{to_u64, to_usize};
use nand_model::{Nanos, Pbn};

/// Capacity of the ring, in events.
pub const EVENTS_KEPT: usize = 1024;

/// Kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// GC relocated the valid pages of a block and released it. In a hybrid scheme, the merges of
    /// its log pages come before.
    Gc,
    /// A log block became a data block without copies.
    SwitchMerge,
    /// A log block became a data block after its missing pages were copied into it.
    PartialMerge,
    /// The newest pages of a logical block were copied into another block.
    FullMerge,
    /// Page mappings that were only in RAM were written to the flash's map, or pages were gathered
    /// so that they map at a coarser granularity.
    Convert,
    /// A part of the write buffer was written to flash.
    BufferFlush,
    /// Cold data was relocated into a worn block.
    WearMove,
    /// Data was rewritten because its cells were near their ECC limit.
    Refresh,
    /// A checkpoint was completed.
    Checkpoint,
    /// A block failed and is no longer used.
    BadBlock,
    /// The valid pages of a block in SLC mode were copied to other blocks, and it was released.
    Fold,
}

impl EventKind {
    /// Number of kinds.
    pub const COUNT: usize = 11;

    /// All kinds, in numeric order.
    pub const ALL: [EventKind; Self::COUNT] = [
        EventKind::Gc,
        EventKind::SwitchMerge,
        EventKind::PartialMerge,
        EventKind::FullMerge,
        EventKind::Convert,
        EventKind::BufferFlush,
        EventKind::WearMove,
        EventKind::Refresh,
        EventKind::Checkpoint,
        EventKind::BadBlock,
        EventKind::Fold,
    ];

    /// Returns the index into a table of [`EventKind::COUNT`] entries.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Gc => "gc",
            EventKind::SwitchMerge => "switch_merge",
            EventKind::PartialMerge => "partial_merge",
            EventKind::FullMerge => "full_merge",
            EventKind::Convert => "convert",
            EventKind::BufferFlush => "buffer_flush",
            EventKind::WearMove => "wear_move",
            EventKind::Refresh => "refresh",
            EventKind::Checkpoint => "checkpoint",
            EventKind::BadBlock => "bad_block",
            EventKind::Fold => "fold",
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Kind of operation.
    pub kind: EventKind,
    /// The GC victim, the failed or converted block, or the new block of a merge. `None` if there
    /// were several.
    pub block: Option<Pbn>,
    /// Pages copied; for a conversion or a checkpoint, pages written.
    pub pages: u32,
    /// Emulated start time.
    pub at: Nanos,
    /// Emulated duration.
    pub took: Nanos,
}

/// Upper bounds of the classes of GC runs by relocated pages.
pub const GC_PAGE_BOUNDS: [u32; 12] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// GC runs by relocated pages, not cumulative; the last class has no bound.
pub type GcPageClasses = [u64; GC_PAGE_BOUNDS.len() + 1];

/// Totals of all events of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTotals {
    /// Number of events.
    pub count: u64,
    /// Pages copied or written.
    pub pages: u64,
    /// Emulated duration.
    pub took: Nanos,
}

/// The newest events, oldest first, and the totals of all events.
#[derive(Clone, Debug)]
pub struct EventLog {
    ring: Vec<Event>,
    total: u64,
    by_kind: [EventTotals; EventKind::COUNT],
    gc_pages: GcPageClasses,
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog {
            ring: Vec::with_capacity(EVENTS_KEPT),
            total: 0,
            by_kind: Default::default(),
            gc_pages: Default::default(),
        }
    }
}

/// Returns the ring position of event `number`, once the ring is full.
fn ring_index(number: u64) -> usize {
    to_usize(number % to_u64(EVENTS_KEPT))
}

impl EventLog {
    /// Adds an event. A full ring drops its oldest event.
    #[cold]
    pub fn note(&mut self, event: Event) {
        match self.ring.len() {
            EVENTS_KEPT => self.ring[ring_index(self.total)] = event,
            _ => self.ring.push(event),
        }
        debug_assert!(
            self.ring.len() <= EVENTS_KEPT,
            "{} events kept, limited to {EVENTS_KEPT}",
            self.ring.len()
        );
        self.total += 1;
        let of_kind = &mut self.by_kind[event.kind.index()];
        of_kind.count += 1;
        of_kind.pages += u64::from(event.pages);
        of_kind.took += event.took;
        if event.kind == EventKind::Gc {
            let class = GC_PAGE_BOUNDS.iter().position(|&most| event.pages <= most);
            self.gc_pages[class.unwrap_or(GC_PAGE_BOUNDS.len())] += 1;
        }
    }

    /// Returns the totals of all events so far, in the order of [`EventKind::ALL`].
    pub fn by_kind(&self) -> &[EventTotals; EventKind::COUNT] {
        &self.by_kind
    }

    /// Returns the GC runs so far, by the pages that each relocated.
    pub fn gc_pages(&self) -> &GcPageClasses {
        &self.gc_pages
    }

    /// Returns the number of events so far, which is the number of the next event.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Iterates over the events in the ring from number `from` on, with their numbers.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (u64, &Event)> {
        let first = from.max(self.total - to_u64(self.ring.len()));
        (first..self.total).map(|number| (number, &self.ring[ring_index(number)]))
    }

    /// Returns the allocated bytes.
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
            kind: EventKind::Gc,
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
        assert_eq!(log.by_kind()[EventKind::Gc as usize], collected);
        assert_eq!(
            log.by_kind()[EventKind::Refresh as usize],
            EventTotals::default()
        );
    }

    #[test]
    fn gc_runs_are_classed_by_their_pages_and_other_events_are_not() {
        let mut log = EventLog::default();
        let mut note = |kind, pages| {
            log.note(Event {
                kind,
                block: None,
                pages,
                at: 0,
                took: 1,
            });
        };
        for pages in [0, 3, 4, 1024, 1025] {
            note(EventKind::Gc, pages);
        }
        note(EventKind::Convert, 4);
        let mut wanted = GcPageClasses::default();
        (wanted[0], wanted[3], wanted[11], wanted[12]) = (1, 2, 1, 1);
        assert_eq!(*log.gc_pages(), wanted);
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
