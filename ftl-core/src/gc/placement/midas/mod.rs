//! `midas`: a chain of groups of blocks by age, whose number and sizes follow from a model of the
//! update intervals, and a group of hot pages apart. It chooses streams and victims.
//!
//! Oh, Kim, Han, et al.: *MIDAS: Minimizing Write Amplification in Log-Structured Systems through
//! Adaptive Group Number and Size Configuration*, FAST 2024. Fidelity B: the paper's abstract, its
//! supplemental material, and the rules of the authors' published program
//! (github.com/dgist-datalab/MiDAS); the paper's text was not available. Its parts:
//!
//! - *MiDA, the chain*: host writes enter group 1, copies the group after that of their block, up
//!   to the last one ([`Midas::stream_of_copy`]). This alone is `gc.placement=mida`.
//! - *Victims*: the oldest block of the first group that is larger than its size; else, in the last
//!   group, the block with the fewest valid pages ([`Midas::choose_victim`]).
//! - *HOT*: pages that were overwritten in young blocks of group 1 three times more often than in
//!   old ones (`hot.rs`).
//! - *UID, MCAM, GCS*: at the end of an epoch of four drive writes, the distribution of update
//!   intervals (`intervals.rs`) gives the valid pages of each group's victims under any
//!   configuration; from these follows the write amplification. A search finds the best
//!   configuration (`model.rs`). It is applied if it is better than the epoch was.
//! - *Irregular patterns*: at half of an epoch the valid pages of each group's victims are compared
//!   with the model. Groups from the first one that differs by more than a tenth lose their sizes:
//!   the victim is their block with the fewest valid pages ([`Midas::check`]). Until the first
//!   configuration no group has a size.
//!
//! Deviations: at most six groups besides HOT (the program has nine), as each has an open block.
//! At least 16,384 pages are sampled, also for the shortest intervals, for which the program
//! follows all pages for ten units. Ages count from a page's write in HOT too. A victim without
//! valid pages goes first, whatever its group. The search tries 64 sizes per group.
//!
//! RAM: 2 bits per page; 4 B per sampled page and per interval; 5 B per block. The search for a
//! victim looks at every block. A mount forgets all of it: blocks from before belong to the last
//! group, and the first configuration follows after an epoch.

mod hot;
mod intervals;
mod model;

use crate::gc::policy::{Candidates, DataBlock, Device, HostWrite, PageCopy, Policy};
use hot::HotFilter;
use intervals::Intervals;
use model::{Configuration, GROUPS, Hot, Space};
use nand_model::Pbn;

/// Group of hot pages; those of the chain follow, from 1 to [`GROUPS`].
const HOT_GROUP: usize = 0;
/// Group of a block that is open, or was filled before the mount.
const NONE: u8 = u8::MAX;
/// Streams of the host: of group 1, and of HOT. Stream `n` of copies fills group `n`.
const HOST_STREAM: u32 = 0;
const HOT_STREAM: u32 = 1;
/// Difference from the model at which a pattern is irregular.
const IRREGULAR: f64 = 0.1;

/// A block of data.
#[derive(Clone, Copy)]
struct Block {
    group: u8,
    /// Number of its sealing.
    order: u64,
    /// Time when it was opened.
    opened: u64,
}

pub(super) struct Midas {
    pages_per_block: u32,
    now: u64,
    blocks: Vec<Block>,
    /// Blocks sealed so far.
    sealed: u64,
    /// By group: full blocks, and how many it should have.
    sizes: [u32; GROUPS + 1],
    limits: [u32; GROUPS + 1],
    /// The last group of the chain.
    last: usize,
    /// The first group without a size.
    unsized_from: usize,
    uses_hot: bool,
    /// By group: share of valid pages that the model expects; empty without a configuration.
    expected: Vec<f64>,
    filter: HotFilter,
    intervals: Intervals,
    /// Writes and copies of this epoch.
    writes: u64,
    copied: u64,
    /// Writes of a third and of half an epoch.
    third: u64,
    half: u64,
    /// By group, since a third of the epoch: pages copied, and blocks erased.
    copies: [u64; GROUPS + 1],
    erased: [u64; GROUPS + 1],
    /// Valid pages and candidates at the last choice.
    space: (u64, u32),
}

impl Midas {
    pub(super) fn new(device: &Device) -> Self {
        let geometry = &device.geometry;
        let none = Block {
            group: NONE,
            order: 0,
            opened: 0,
        };
        Midas {
            pages_per_block: geometry.pages_per_block,
            now: 0,
            blocks: vec![none; geometry.block_slots()],
            sealed: 0,
            sizes: [0; GROUPS + 1],
            limits: [0; GROUPS + 1],
            last: GROUPS,
            unsized_from: HOT_GROUP,
            uses_hot: true,
            expected: Vec::new(),
            filter: HotFilter::new(device.logical_pages),
            intervals: Intervals::new(device.logical_pages, geometry.pages_per_block),
            writes: 0,
            copied: 0,
            third: 4 * u64::from(device.logical_pages) / 3,
            half: 2 * u64::from(device.logical_pages),
            copies: [0; GROUPS + 1],
            erased: [0; GROUPS + 1],
            space: (0, 0),
        }
    }

    /// Returns the group of a block; one from before the mount is in the last group.
    fn group_of(&self, block: Pbn) -> usize {
        match self.blocks[block.index()].group {
            NONE => self.last,
            group => usize::from(group),
        }
    }

    fn set_group(&mut self, block: usize, group: usize) {
        let of_block = &mut self.blocks[block].group;
        self.sizes[usize::from(*of_block)] -= 1;
        self.sizes[group] += 1;
        *of_block = group as u8;
    }

    /// Returns the age of the block of a replaced version, if it is in group 1 or open.
    fn age_in_first(&self, write: &HostWrite) -> Option<u64> {
        let block = &self.blocks[write.replaces?.index()];
        match block.group {
            1 => Some(self.now.saturating_sub(block.opened)),
            NONE => write.lifespan,
            _ => None,
        }
    }

    /// Returns the share of valid pages in the victims of a group since a third of the epoch.
    fn seen_valid(&self, group: usize) -> Option<f64> {
        let pages = self.erased[group] * u64::from(self.pages_per_block);
        (pages > 0).then(|| self.copies[group] as f64 / pages as f64)
    }

    /// Clears or compares the counters of victims when it is time.
    fn check(&mut self) {
        if self.writes == self.third {
            (self.copies, self.erased) = Default::default();
        } else if self.writes == self.half {
            let differs = |(group, expected): &(usize, &f64)| {
                let seen = self.seen_valid(*group);
                seen.is_some_and(|seen| (seen - **expected).abs() > IRREGULAR)
            };
            let irregular = self.expected.iter().enumerate().find(differs);
            if let Some((group, _)) = irregular {
                self.give_up_sizes(group);
            }
        }
    }

    /// Makes the groups from this one on a chain without sizes.
    fn give_up_sizes(&mut self, from: usize) {
        let first = from.max(1);
        for block in 0..self.blocks.len() {
            let group = self.blocks[block].group;
            if group != NONE && usize::from(group) > first {
                self.set_group(block, first);
            }
        }
        self.unsized_from = if first == 1 { HOT_GROUP } else { first };
        self.last = GROUPS;
        self.expected.clear();
    }

    /// Measures the epoch, and applies the best configuration if it is better.
    fn end_epoch(&mut self) {
        let measured = (self.writes + self.copied) as f64 / self.writes as f64;
        let traffic = self.filter.end_epoch();
        let valid = self.seen_valid(HOT_GROUP).unwrap_or(0.0);
        (self.writes, self.copied) = (0, 0);
        let Some(uid) = self.intervals.finish(self.pages_per_block) else {
            return;
        };
        let space = Space {
            used: self.space.0 as f64 / f64::from(self.pages_per_block),
            blocks: f64::from(self.space.1),
        };
        let size = f64::from(self.sizes[HOT_GROUP]);
        let fixed = match HotFilter::is_accurate(traffic, valid) {
            true => None,
            false if size > 0.0 && traffic > 0.0 => Some(Hot {
                size,
                traffic,
                time: size / traffic,
                valid,
            }),
            false => Some(Hot::default()),
        };
        let best = model::search(&uid, space, fixed);
        // One group besides HOT is no chain.
        let is_better =
            |best: &Configuration| !best.sizes.is_empty() && best.amplification < measured;
        if let Some(best) = best.filter(is_better) {
            self.apply(&best);
        }
    }

    /// Applies a configuration. Groups that had no size join the last one. So do blocks above the
    /// size of a group, the oldest first.
    fn apply(&mut self, best: &Configuration) {
        self.uses_hot = best.hot.size > 0.0;
        let before = self.unsized_from;
        self.last = best.sizes.len() + 1;
        self.unsized_from = self.last;
        let sizes = std::iter::once(&best.hot.size).chain(&best.sizes);
        for (limit, size) in self.limits.iter_mut().zip(sizes) {
            *limit = *size as u32;
        }
        self.expected.clear();
        self.expected.push(best.hot.valid);
        self.expected.extend(&best.valid);
        let mut by_age: Vec<usize> = (0..self.blocks.len()).collect();
        by_age.retain(|block| self.blocks[*block].group != NONE);
        by_age.sort_unstable_by_key(|block| self.blocks[*block].order);
        for block in by_age {
            let group = usize::from(self.blocks[block].group);
            let is_of_last = group >= before.min(self.last);
            if is_of_last || self.sizes[group] > self.limits[group] {
                self.set_group(block, self.last);
            }
        }
    }
}

impl Policy for Midas {
    fn streams(&self) -> (u32, u32) {
        (2, GROUPS as u32 - 1)
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        self.now = write.now;
        let age = self.age_in_first(write);
        let is_hot = self.filter.on_write(write.lpn, age);
        self.writes += 1;
        self.check();
        if self.intervals.record(write.lpn) {
            self.end_epoch();
        }
        match is_hot && self.uses_hot {
            true => HOT_STREAM,
            false => HOST_STREAM,
        }
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        let group = self.group_of(copy.block);
        if let Some(lpn) = copy.lpn {
            self.copied += 1;
            self.copies[group] += 1;
            if group <= 1 {
                self.filter.on_copy(lpn, group == HOT_GROUP);
            }
        }
        // Group 1 has a stream of copies too, in case that it is the last one.
        (group + 1).min(self.last).max(2) as u32
    }

    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        let mut oldest = [None; GROUPS + 1];
        let mut emptiest = None;
        let mut count = 0;
        for candidate in candidates.all() {
            count += 1;
            if candidate.utilisation >= 1.0 {
                continue;
            }
            let (group, block) = (self.group_of(candidate.block), candidate.block);
            if group < self.unsized_from {
                let order = self.blocks[block.index()].order;
                let first = &mut oldest[group];
                if first.is_none_or(|(least, _)| order < least) {
                    *first = Some((order, block));
                }
            } else if emptiest.is_none_or(|(least, _)| candidate.utilisation < least) {
                emptiest = Some((candidate.utilisation, block));
            }
        }
        self.space = (candidates.table.valid_pages(), count);
        let is_large = |group: &usize| self.sizes[*group] > self.limits[*group];
        let mut large = (0..self.unsized_from).filter(is_large);
        let first = large.find_map(|group| oldest[group]);
        first
            .map(|(_, block)| block)
            .or(emptiest.map(|(_, block)| block))
    }

    fn on_seal(&mut self, block: &DataBlock) {
        let group = match block.stream {
            HOST_STREAM => 1,
            HOT_STREAM => HOT_GROUP,
            stream => (stream as usize).min(self.last),
        };
        self.on_forget(block.block);
        self.sealed += 1;
        self.sizes[group] += 1;
        self.blocks[block.block.index()] = Block {
            group: group as u8,
            order: self.sealed,
            opened: self.now.saturating_sub(block.age.min(self.now)),
        };
    }

    fn on_erase(&mut self, block: Pbn) {
        let of_block = self.blocks[block.index()];
        if of_block.group != NONE {
            self.erased[usize::from(of_block.group)] += 1;
            if usize::from(of_block.group) == HOT_GROUP {
                self.filter
                    .on_erase(self.now.saturating_sub(of_block.opened));
            }
        }
        self.on_forget(block);
    }

    fn bytes(&self) -> (u64, u64) {
        let both = self.filter.bytes() + self.intervals.bytes();
        let blocks = self.blocks.len() as u64;
        let of_block = std::mem::size_of::<Block>() as u64;
        (both + 5 * blocks, both + of_block * blocks)
    }
}

impl Midas {
    /// Removes a block from its group.
    fn on_forget(&mut self, block: Pbn) {
        let group = std::mem::replace(&mut self.blocks[block.index()].group, NONE);
        if group != NONE {
            self.sizes[usize::from(group)] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Lpn;
    use crate::block_table::{BlockTable, State};
    use crate::format::Role;
    use nand_model::{Geometry, Ppn};

    const GEOMETRY: Geometry = Geometry {
        channels: 1,
        ways: 1,
        planes: 1,
        multi_plane: nand_model::MultiPlane::Off,
        blocks: 16,
        pages_per_block: 4,
        page_bytes: 512,
        oob_bytes: 64,
    };

    fn midas() -> Midas {
        Midas::new(&Device {
            geometry: GEOMETRY,
            logical_pages: 48,
        })
    }

    fn seal(midas: &mut Midas, block: u32, stream: u32) {
        midas.on_seal(&DataBlock {
            block: Pbn::new(block),
            stream,
            lifetime: 0,
            age: 0,
            now: 0,
        });
    }

    fn copy(block: u32) -> PageCopy {
        PageCopy {
            lpn: Some(Lpn::new(0)),
            block: Pbn::new(block),
            stream: 0,
            age: 0,
            now: 0,
        }
    }

    fn configuration(sizes: &[f64]) -> Configuration {
        Configuration {
            hot: Hot::default(),
            sizes: sizes.to_vec(),
            valid: vec![0.5; sizes.len() + 1],
            amplification: 1.5,
        }
    }

    /// Blocks of these valid pages, all full.
    fn table(valid: &[u32]) -> BlockTable {
        let mut table = BlockTable::new(GEOMETRY);
        for (block, valid) in GEOMETRY.all_blocks().zip(valid) {
            table.set_open(block, Role::Data, 1 + u64::from(block.raw()));
            table.set_valid_run(GEOMETRY.page(block, 0), 4);
            table.set_state(block, State::Full);
            table.set_collectable(block);
            let first = GEOMETRY.page(block, 0).raw();
            (*valid..4).for_each(|page| table.set_invalid(Ppn::new(first + page)));
        }
        table
    }

    fn victim(midas: &mut Midas, valid: &[u32]) -> Option<u32> {
        let table = table(valid);
        let candidates = Candidates {
            table: &table,
            erases: &|_| 0,
        };
        midas.choose_victim(&candidates).map(Pbn::raw)
    }

    #[test]
    fn a_copy_enters_the_group_behind_that_of_its_block() {
        let mut midas = midas();
        for (block, stream) in (0..).zip([HOT_STREAM, HOST_STREAM, 2, 5, 6]) {
            seal(&mut midas, block, stream);
        }
        let streams = [0, 1, 2, 3, 4].map(|block| midas.stream_of_copy(&copy(block)));
        assert_eq!(streams, [2, 2, 3, 6, 6]);
        // Block 9 is from before a mount: it counts as one of the last group.
        assert_eq!(midas.stream_of_copy(&copy(9)), 6);
        assert_eq!(midas.sizes, [1, 1, 1, 0, 0, 1, 1]);
        // With two groups, 2 is the last one, which gets the blocks of groups without a size.
        midas.apply(&configuration(&[1.0]));
        assert_eq!(midas.sizes, [0, 0, 5, 0, 0, 0, 0]);
        let streams = [0, 1, 2, 3, 4].map(|block| midas.stream_of_copy(&copy(block)));
        assert_eq!(streams, [2; 5]);
    }

    #[test]
    fn groups_that_are_too_large_give_their_oldest_block_the_last_one_its_emptiest() {
        let mut midas = midas();
        for (block, stream) in [(1, HOST_STREAM), (0, HOST_STREAM), (2, 2), (3, 2)] {
            seal(&mut midas, block, stream);
        }
        // Without sizes, the emptiest of all.
        assert_eq!(victim(&mut midas, &[3, 3, 2, 1]), Some(3));
        midas.apply(&configuration(&[1.0]));
        seal(&mut midas, 5, HOST_STREAM);
        let chosen = victim(&mut midas, &[3, 3, 3, 2, 4, 1]);
        assert_eq!(chosen, Some(3), "block 5 is in group 1");
        assert_eq!(midas.space, (16, 6));
        seal(&mut midas, 4, HOST_STREAM);
        let chosen = victim(&mut midas, &[3, 3, 3, 2, 1, 3]);
        assert_eq!(chosen, Some(5), "group 1 has 2 of 1");
        let chosen = victim(&mut midas, &[3, 3, 3, 2, 3, 4]);
        assert_eq!(chosen, Some(4), "block 5 frees nothing");
        // A size below that of a group: its oldest block goes to the last one.
        midas.apply(&configuration(&[1.0]));
        assert_eq!([4, 5].map(|block| midas.group_of(Pbn::new(block))), [1, 2]);
        midas.on_erase(Pbn::new(4));
        assert_eq!(midas.sizes, [0, 0, 5, 0, 0, 0, 0]);
    }

    /// Half of the pages of a victim are expected to be valid, and three of four are.
    #[test]
    fn groups_that_the_model_does_not_describe_lose_their_sizes() {
        for (copies, is_irregular) in [(3, true), (2, false)] {
            let mut midas = midas();
            midas.apply(&configuration(&[9.0, 9.0, 9.0]));
            (2..4).for_each(|block| seal(&mut midas, block, block));
            midas.writes = midas.third;
            midas.check();
            (0..copies).for_each(|_| assert_eq!(midas.stream_of_copy(&copy(2)), 3));
            midas.on_erase(Pbn::new(2));
            midas.writes = midas.half;
            midas.check();
            assert_eq!(midas.unsized_from, if is_irregular { 2 } else { 4 });
            assert_eq!(midas.last, if is_irregular { GROUPS } else { 4 });
            assert_eq!(
                midas.group_of(Pbn::new(3)),
                if is_irregular { 2 } else { 3 }
            );
        }
    }
}
