//! What whoever looks at the live page sees of a volume: a map of its blocks and the newest events. Made by the background thread in
//! slices under the request lock, and only while somebody looks.

use ftl_core::{BlockUse, Event, Ftl};
use nand_model::{Pbn, Store};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Cells of a map at most; on a larger device a cell stands for several blocks.
pub const CELLS_MAX: u32 = 4096;
/// Events that are kept for those who look.
const EVENTS_SHOWN: usize = 4096;
/// Blocks that are looked at under the lock at a time: some hundred microseconds.
const SLICE: u32 = 8192;
/// From one look at every block to the next.
const ROUND: Duration = Duration::from_millis(500);

/// A stretch of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What most of them are used for.
    pub used: BlockUse,
    /// Pages of live content in all of them.
    pub valid: u32,
    /// Their erases, on average.
    pub erases: u32,
    /// Blocks that were opened since the average one of them was, of those that hold something.
    pub age: u64,
}

/// All blocks of a device.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    /// Counts changes of what the cells show; 0 if nobody has looked yet.
    pub generation: u64,
    /// How many blocks there are.
    pub blocks: u32,
    /// How many of them a cell stands for; the last one may have fewer.
    pub per_cell: u32,
    /// The cells in the order of their blocks.
    pub cells: Vec<Cell>,
}

/// Looks at every block, some thousands at a time.
#[derive(Debug)]
pub(super) struct BlockScan {
    map: BlockMap,
    next: u32,
    began: Option<Instant>,
}

impl BlockScan {
    pub(super) fn new(blocks: u32) -> Self {
        let per_cell = blocks.div_ceil(CELLS_MAX).max(1);
        let unseen = Cell { used: BlockUse::Free, valid: 0, erases: 0, age: 0 };
        let cells = vec![unseen; blocks.div_ceil(per_cell) as usize];
        BlockScan { map: BlockMap { generation: 0, blocks, per_cell, cells }, next: 0, began: None }
    }

    /// Looks at the next slice, if it is time for one. Returns whether there is something new.
    pub(super) fn slice<S: Store>(&mut self, ftl: &dyn Ftl<S>) -> bool {
        if self.next == 0 {
            if self.began.is_some_and(|began| began.elapsed() < ROUND) {
                return false;
            }
            self.began = Some(Instant::now());
        }
        let per_cell = self.map.per_cell;
        let mut changed = self.map.generation == 0;
        let mut left = SLICE.div_ceil(per_cell);
        while left > 0 && (self.next as usize) < self.map.cells.len() {
            let first = self.next * per_cell;
            let cell = look(ftl, first..self.map.blocks.min(first + per_cell));
            let place = &mut self.map.cells[self.next as usize];
            changed |= *place != cell;
            *place = cell;
            self.next += 1;
            left -= 1;
        }
        if self.next as usize == self.map.cells.len() {
            self.next = 0;
        }
        self.map.generation += u64::from(changed);
        changed
    }

    pub(super) fn map(&self) -> &BlockMap {
        &self.map
    }
}

fn look<S: Store>(ftl: &dyn Ftl<S>, blocks: std::ops::Range<u32>) -> Cell {
    let (mut uses, mut valid, mut erases, mut age, mut aged) = ([0; BlockUse::ALL.len()], 0, 0, 0, 0);
    let count = blocks.len() as u64;
    for block in blocks.map(Pbn::new) {
        let view = ftl.block(block);
        uses[view.used as usize] += 1;
        valid += view.valid;
        erases += ftl.chip().erase_count(block) as u64;
        age += view.age;
        aged += u64::from(view.age > 0);
    }
    // Of equals the later one: it says more than that some are free.
    let used = BlockUse::ALL.into_iter().max_by_key(|used| uses[*used as usize]).unwrap_or(BlockUse::Free);
    Cell { used, valid, erases: (erases / count.max(1)) as u32, age: age.checked_div(aged).unwrap_or(0) }
}

/// The newest events with their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    next: u64,
    events: VecDeque<(u64, Event)>,
}

/// A look at the newest events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventsView {
    /// Number of the next event.
    pub next: u64,
    /// Events with their numbers, oldest first.
    pub events: Vec<(u64, Event)>,
}

impl Shown {
    /// Number of the first event that is not here yet.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn add(&mut self, fresh: Vec<(u64, Event)>) {
        self.next = fresh.last().map_or(self.next, |(number, _)| number + 1);
        self.events.extend(fresh);
        self.events.drain(..self.events.len().saturating_sub(EVENTS_SHOWN));
    }

    /// Of those from number `from` on, the newest, at most `most`.
    pub(super) fn since(&self, from: u64, most: usize) -> EventsView {
        let newer = self.events.iter().rev().take_while(|(number, _)| *number >= from).take(most);
        let mut events: Vec<_> = newer.copied().collect();
        events.reverse();
        EventsView { next: self.next, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftl_core::EventKind;

    #[test]
    fn the_newest_events_are_shown_and_older_ones_make_room() {
        let mut shown = Shown::default();
        let event = Event { kind: EventKind::Convert, block: None, pages: 0, at: 0, took: 0 };
        shown.add((5..EVENTS_SHOWN as u64 + 10).map(|number| (number, event)).collect());
        let numbers = |from, most| shown.since(from, most).events.iter().map(|(n, _)| *n).collect::<Vec<_>>();
        assert_eq!(numbers(0, usize::MAX).len(), EVENTS_SHOWN);
        let last = EVENTS_SHOWN as u64 + 9;
        assert_eq!((numbers(last - 1, 100), numbers(0, 2)), (vec![last - 1, last], vec![last - 1, last]));
        assert_eq!((numbers(last + 1, 100), shown.next()), (vec![], last + 1));
    }

    #[test]
    fn a_map_has_a_cell_per_block_or_thousands_of_cells() {
        for (blocks, per_cell, cells) in [(1, 1, 1), (4096, 1, 4096), (4097, 2, 2049), (1 << 22, 1024, 4096)] {
            let scan = BlockScan::new(blocks);
            assert_eq!((scan.map.per_cell, scan.map.cells.len()), (per_cell, cells));
        }
    }
}
