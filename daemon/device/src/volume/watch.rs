//! Block map and newest events of a volume, for the live page. The background thread updates them
//! in slices under the request lock, and only while a client watches.

use ftl_core::{BlockUse, Event, Ftl};
use ftld_kit::convert::{index, narrow, to_u32, to_u64};
use nand_model::Pbn;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum of cells in a map; on a larger device a cell covers several blocks.
pub const CELLS_MAX: u32 = 4096;
/// Maximum of events kept for the live page.
const EVENTS_SHOWN: usize = 4096;
/// Blocks scanned under one lock: some 100 us.
const SLICE: u32 = 8192;
/// Minimum time from the start of one scan to the start of the next.
const ROUND: Duration = Duration::from_millis(500);

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Most frequent use of the blocks.
    pub used: BlockUse,
    /// Valid pages in all of them.
    pub valid: u32,
    /// Pages below their write pointers: valid and invalid ones.
    pub written: u32,
    /// Their mean erase count.
    pub erases: u32,
    /// Mean number of blocks opened after each block with data.
    pub age: u64,
}

/// All blocks of a device.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    /// Number of changes of the cells; 0 before the first scan.
    pub generation: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Blocks per cell; the last cell may have fewer.
    pub per_cell: u32,
    /// The cells in the order of their blocks.
    pub cells: Vec<Cell>,
    /// Blocks per use, in the order of [`BlockUse::ALL`], from the last complete scan.
    pub counts: UseCounts,
}

/// Blocks per use, in the order of [`BlockUse::ALL`].
pub type UseCounts = [u32; BlockUse::ALL.len()];

/// A scan of every block in slices of [`SLICE`].
#[derive(Debug)]
pub(super) struct BlockScan {
    map: BlockMap,
    /// Blocks of the current scan so far, per use.
    counts: UseCounts,
    next: u32,
    began: Option<Instant>,
}

impl BlockScan {
    /// Creates a scan whose map has at most `most` cells.
    pub(super) fn new(blocks: u32, most: u32) -> Self {
        let per_cell = blocks.div_ceil(most).max(1);
        let unseen = Cell {
            used: BlockUse::Free,
            valid: 0,
            written: 0,
            erases: 0,
            age: 0,
        };
        let cells = vec![unseen; index(blocks.div_ceil(per_cell))];
        assert!(
            cells.len() <= index(most),
            "{} cells of {per_cell} blocks, limited to {most}",
            cells.len()
        );
        BlockScan {
            map: BlockMap {
                generation: 0,
                blocks,
                per_cell,
                cells,
                counts: UseCounts::default(),
            },
            counts: UseCounts::default(),
            next: 0,
            began: None,
        }
    }

    /// Scans the next slice if it is due. Returns whether the map changed.
    pub(super) fn slice(&mut self, ftl: &dyn Ftl) -> bool {
        assert_eq!(
            ftl.chip().geometry().blocks,
            self.map.blocks,
            "the blocks of the flash and of their map"
        );
        if self.next == 0 {
            if self.began.is_some_and(|began| began.elapsed() < ROUND) {
                return false;
            }
            self.began = Some(Instant::now());
        }
        let per_cell = self.map.per_cell;
        let mut changed = self.map.generation == 0;
        let mut left = SLICE.div_ceil(per_cell);
        while left > 0 && (index(self.next)) < self.map.cells.len() {
            let first = self.next * per_cell;
            let (cell, uses) = look(ftl, first..self.map.blocks.min(first + per_cell));
            for (sum, blocks) in self.counts.iter_mut().zip(uses) {
                *sum += blocks;
            }
            let place = &mut self.map.cells[index(self.next)];
            changed |= *place != cell;
            *place = cell;
            self.next += 1;
            left -= 1;
        }
        if index(self.next) == self.map.cells.len() {
            self.next = 0;
            let counts = std::mem::take(&mut self.counts);
            assert_eq!(
                counts.iter().sum::<u32>(),
                self.map.blocks,
                "each block has one use"
            );
            changed |= self.map.counts != counts;
            self.map.counts = counts;
        }
        assert!(
            index(self.next) < self.map.cells.len(),
            "the next cell is one of the map"
        );
        self.map.generation += u64::from(changed);
        changed
    }

    pub(super) fn map(&self) -> &BlockMap {
        &self.map
    }
}

/// Returns the cell of these blocks, and their number per use.
fn look(ftl: &dyn Ftl, blocks: std::ops::Range<u32>) -> (Cell, UseCounts) {
    let (mut uses, mut valid, mut written) = (UseCounts::default(), 0, 0);
    let (mut erases, mut age, mut aged) = (0, 0, 0);
    let count = to_u64(blocks.len());
    assert!(
        count > 0,
        "a cell of no blocks, before block {}",
        blocks.end
    );
    for block in blocks.map(Pbn::new) {
        let view = ftl.block(block);
        uses[view.used as usize] += 1;
        valid += view.valid;
        written += ftl.chip().frontier(block);
        erases += u64::from(ftl.chip().erase_count(block));
        age += view.age;
        aged += u64::from(view.age > 0);
    }
    assert!(
        u64::from(valid) <= count * u64::from(ftl.chip().geometry().pages_per_block),
        "{valid} valid pages in a cell of {count} blocks"
    );
    // On a tie the later use wins: it is more informative than `Free`.
    let used = BlockUse::ALL
        .into_iter()
        .max_by_key(|used| uses[*used as usize])
        .unwrap_or(BlockUse::Free);
    let cell = Cell {
        used,
        valid,
        written,
        erases: narrow(erases / count.max(1)),
        age: age.checked_div(aged).unwrap_or(0),
    };
    (cell, uses)
}

/// The newest events of all shards with their numbers in the device: those of one shard keep their
/// order.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    next: u64,
    /// Number of the first event of each shard that is not yet added.
    next_of: Vec<u64>,
    /// Blocks of a shard: those of the device are numbered shard by shard.
    blocks: u32,
    events: VecDeque<(u64, Event)>,
}

/// A view of the newest events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventsView {
    /// Number of the next event.
    pub next: u64,
    /// Events with their numbers, oldest first.
    pub events: Vec<(u64, Event)>,
}

impl Shown {
    pub(super) fn new(shards: usize, blocks: u32) -> Shown {
        Shown {
            next: 0,
            next_of: vec![0; shards],
            blocks,
            events: VecDeque::new(),
        }
    }

    /// Returns the number of the first event of a shard that is not yet added.
    pub(super) fn next_of(&self, shard: usize) -> u64 {
        self.next_of[shard]
    }

    pub(super) fn add(&mut self, shard: usize, fresh: Vec<(u64, Event)>) {
        let before = to_u32(shard) * self.blocks;
        for (number, mut event) in fresh {
            let next = &mut self.next_of[shard];
            assert!(
                number >= *next,
                "event {number} was added already: the next is {next}"
            );
            self.next += number + 1 - *next;
            *next = number + 1;
            event.block = event.block.map(|block| Pbn::new(before + block.raw()));
            self.events.push_back((self.next - 1, event));
        }
        self.events
            .drain(..self.events.len().saturating_sub(EVENTS_SHOWN));
        assert!(
            self.events.len() <= EVENTS_SHOWN,
            "more events kept than are shown"
        );
    }

    /// Returns the newest events from number `from` on, at most `most`.
    pub(super) fn since(&self, from: u64, most: usize) -> EventsView {
        let newer = self
            .events
            .iter()
            .rev()
            .take_while(|(number, _)| *number >= from)
            .take(most);
        let mut events: Vec<_> = newer.copied().collect();
        events.reverse();
        assert!(events.len() <= most, "more events than were asked for");
        EventsView {
            next: self.next,
            events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftl_core::schemes::{SCHEMES, Scheme};
    use ftl_core::{EventKind, FtlConfig, Lpn, Params, Start};
    use nand_model::store::MemStore;
    use nand_model::{Chip, Profile};

    #[test]
    fn the_newest_events_are_shown_and_older_ones_make_room() {
        let mut shown = Shown::new(1, 8);
        let event = Event {
            kind: EventKind::Convert,
            block: None,
            pages: 0,
            at: 0,
            took: 0,
        };
        shown.add(
            0,
            (5..EVENTS_SHOWN as u64 + 10)
                .map(|number| (number, event))
                .collect(),
        );
        let numbers = |from, most| {
            shown
                .since(from, most)
                .events
                .iter()
                .map(|(n, _)| *n)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(0, usize::MAX).len(), EVENTS_SHOWN);
        let last = EVENTS_SHOWN as u64 + 9;
        assert_eq!(
            (numbers(last - 1, 100), numbers(0, 2)),
            (vec![last - 1, last], vec![last - 1, last])
        );
        assert_eq!(
            (numbers(last + 1, 100), shown.next_of(0)),
            (vec![], last + 1)
        );
    }

    /// Returns a small device after enough overwrites to erase blocks.
    fn used_device() -> Box<dyn Ftl> {
        let profile = Profile::find("torture").unwrap().with_blocks(64);
        let pagemap = Scheme::find("pagemap").unwrap();
        used_device_of(pagemap, profile, Params::default())
    }

    fn used_device_of(scheme: &Scheme, profile: Profile, params: Params) -> Box<dyn Ftl> {
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let config = FtlConfig {
            logical_pages: 300,
            params,
        };
        let mut ftl = scheme.start(chip, &config, Start::Format).unwrap();
        let page = vec![7; profile.geometry.page_bytes as usize];
        for n in 0..6_000 {
            ftl.write(0, Lpn::new(n * 7 % 300), &page).unwrap();
        }
        ftl
    }

    #[test]
    fn a_scan_sees_every_block_and_counts_what_is_new() {
        let mut ftl = used_device();
        let blocks = ftl.chip().geometry().blocks;
        let mut scan = BlockScan::new(blocks, CELLS_MAX);
        assert!(scan.slice(&*ftl));
        assert_eq!(scan.map().generation, 1);
        let alone: Vec<Cell> = (0..blocks)
            .map(|block| look(&*ftl, block..block + 1).0)
            .collect();
        assert_eq!(scan.map().cells, alone);
        for used in BlockUse::ALL {
            let cells = alone.iter().filter(|cell| cell.used == used);
            assert_eq!(scan.map().counts[used as usize] as usize, cells.count());
        }
        assert!(!scan.slice(&*ftl), "not yet time for the next round");
        scan.began = None;
        assert!(!scan.slice(&*ftl), "nothing changed");
        let page = vec![8; ftl.chip().geometry().page_bytes as usize];
        ftl.write(0, Lpn::new(1), &page).unwrap();
        scan.began = None;
        assert!(scan.slice(&*ftl));
        assert_eq!(scan.map().generation, 2);
    }

    #[test]
    fn a_cell_of_several_blocks_adds_them_up() {
        let ftl = used_device();
        let count = ftl.chip().geometry().blocks;
        let blocks: Vec<Cell> = (0..count)
            .map(|block| look(&*ftl, block..block + 1).0)
            .collect();
        let (cell, uses) = look(&*ftl, 0..count);
        assert_eq!(uses.iter().sum::<u32>(), count);
        assert_eq!(
            cell.valid,
            blocks.iter().map(|block| block.valid).sum::<u32>()
        );
        let programs = (0..count).map(|block| ftl.chip().frontier(Pbn::new(block)));
        assert_eq!(
            cell.written,
            programs.sum::<u32>(),
            "up to the write pointers"
        );
        assert!(cell.written > cell.valid, "some pages are invalid");
        assert_eq!(
            cell.erases,
            blocks.iter().map(|block| block.erases).sum::<u32>() / count
        );
        assert!(cell.erases > 0 && cell.valid > 0);
        let aged: Vec<u64> = blocks
            .iter()
            .map(|block| block.age)
            .filter(|age| *age > 0)
            .collect();
        assert!(aged.len() > 1);
        assert_eq!(cell.age, aged.iter().sum::<u64>() / aged.len() as u64);
    }

    #[test]
    fn the_figures_of_wear_are_those_of_the_chip() {
        let ftl = used_device();
        let wear = crate::volume::snapshot::WearScan::default()
            .slice(&*ftl)
            .expect("one slice is all");
        let counts: Vec<u32> = ftl
            .chip()
            .geometry()
            .all_blocks()
            .map(|block| ftl.chip().erase_count(block))
            .collect();
        assert_eq!(
            (wear.min, wear.max),
            (*counts.iter().min().unwrap(), *counts.iter().max().unwrap())
        );
        assert!(
            (wear.mean - f64::from(counts.iter().sum::<u32>()) / counts.len() as f64).abs() < 1e-9
                && wear.mean > 1.0
        );
        assert_eq!(wear.distribution.iter().sum::<u64>(), counts.len() as u64);
    }

    #[test]
    fn the_streams_of_every_scheme_add_up_to_its_programs() {
        for scheme in SCHEMES {
            let profile = Profile::find("torture").unwrap().with_blocks(201);
            let ftl = used_device_of(scheme, profile, Params::default());
            let pages: u64 = ftl.streams().iter().map(|stream| stream.pages).sum();
            let programs = ftl.chip().counters().total().programs;
            assert_eq!(pages, programs, "{}: {:?}", scheme.name, ftl.streams());
            assert!(programs >= 6_000, "{}: {programs} programs", scheme.name);
        }
    }

    #[test]
    fn streams_of_one_kind_have_numbers_if_the_placement_has_several() {
        let names = |placement: &str| {
            let profile = Profile::find("torture").unwrap().with_blocks(201);
            let mut params = Params::default();
            params.set("gc.placement", placement);
            let ftl = used_device_of(Scheme::find("pagemap").unwrap(), profile, params);
            let streams = ftl.streams().iter();
            let names = streams.map(|stream| (stream.kind.name(), stream.number));
            let names: std::collections::BTreeSet<_> = names.collect();
            assert_eq!(names.len(), ftl.streams().len());
            names.into_iter().collect::<Vec<_>>()
        };
        let one = [("checkpoint", 0), ("copies", 0), ("host", 0)];
        assert_eq!(names("copies_apart"), one);
        let apart = [1, 2, 3, 4].map(|number| ("copies", number));
        let host = [("host", 1), ("host", 2)];
        assert_eq!(
            names("sepbit"),
            [&[("checkpoint", 0)][..], &apart, &host].concat()
        );
    }

    #[test]
    fn a_map_has_a_cell_per_block_or_thousands_of_cells() {
        for (blocks, per_cell, cells) in [
            (1, 1, 1),
            (4096, 1, 4096),
            (4097, 2, 2049),
            (1 << 22, 1024, 4096),
        ] {
            let scan = BlockScan::new(blocks, CELLS_MAX);
            assert_eq!((scan.map.per_cell, scan.map.cells.len()), (per_cell, cells));
        }
    }
}
