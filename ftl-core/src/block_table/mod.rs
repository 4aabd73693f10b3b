//! State, role and valid pages of every physical block. The only owner of valid counts.
//!
//! Invariants: the states partition the blocks. A block's valid count is the number of its bits in
//! the bitmap. The victim index contains exactly the full blocks that GC may select, at their valid
//! count. All of it is in RAM; mount rebuilds it.

mod groups;
mod victim_index;

use crate::format::Role;
use crate::int::{index, low_u32, to_u16, to_u32};
use crate::ram::vec_bytes;
use crate::stats::BlockCounts;
pub(crate) use groups::GROUPS_MAX;
use groups::GroupCounts;
use nand_model::{Geometry, PageSplit, Pbn, Ppn};
use victim_index::VictimIndex;

/// State in a block's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Erased, or to be erased when allocated.
    Free,
    /// Open block of a stream.
    Open,
    /// Takes no more programs; may have valid pages.
    Full,
    /// Has no valid page; waits until the new versions of its pages are safe from loss.
    Released,
    /// Never used again.
    Bad,
}

impl State {
    /// Number of states.
    const COUNT: usize = 5;

    /// Returns the index into a table with an entry per state.
    #[inline]
    const fn index(self) -> usize {
        self as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    state: State,
    role: Role,
    valid: u16,
    /// Newest allocation when the valid count last changed or the block was closed: lowest 32 bits
    /// of its number.
    changed: u32,
    epoch: u64,
}

impl Block {
    #[inline]
    fn is_full_of_data(&self) -> bool {
        self.state == State::Full && self.role == Role::Data
    }
}

/// State, role, epoch and valid pages of every block.
#[derive(Clone, Debug)]
pub(crate) struct BlockTable {
    geometry: Geometry,
    split: PageSplit,
    blocks: Vec<Block>,
    valid: Vec<u64>,
    victims: VictimIndex,
    /// By block: whether it is in SLC mode and may be folded. GC does not select such blocks.
    foldable: Vec<bool>,
    by_state: [u32; State::COUNT],
    full_by_role: [u32; Role::SLOTS],
    valid_pages: u64,
    /// Invalid pages by group, if a scheme counts them.
    groups: Option<Box<GroupCounts>>,
    /// Newest allocation: the clock of [`Self::unchanged_for`].
    youngest: u64,
}

impl BlockTable {
    /// Creates a table with all blocks free and no valid page.
    pub(crate) fn new(geometry: Geometry) -> Self {
        let block = Block {
            state: State::Free,
            role: Role::Pad,
            valid: 0,
            changed: 0,
            epoch: 0,
        };
        let mut by_state = [0; State::COUNT];
        by_state[State::Free.index()] = geometry.blocks;
        BlockTable {
            geometry,
            split: geometry.split(),
            blocks: vec![block; geometry.block_slots()],
            valid: vec![0; geometry.page_slots().div_ceil(64)],
            victims: VictimIndex::new(geometry.blocks, geometry.pages_per_block),
            foldable: Vec::new(),
            by_state,
            full_by_role: [0; Role::SLOTS],
            valid_pages: 0,
            groups: None,
            youngest: 0,
        }
    }

    /// Keeps the first blocks, which are in SLC mode, apart: they are folded, GC does not select
    /// them. Requires that no block was used yet.
    pub(crate) fn set_slc_blocks(&mut self, blocks: u32) {
        self.foldable = vec![false; index(blocks)];
    }

    /// Counts invalid pages by group from now on. Requires that no block was used yet.
    pub(crate) fn count_groups(&mut self) {
        self.groups = Some(Box::new(GroupCounts::new(self.geometry.block_slots())));
    }

    /// Moves a block to this group, if groups are counted.
    #[inline]
    pub(crate) fn set_group(&mut self, block: Pbn, group: u8) {
        if self
            .groups
            .as_ref()
            .is_some_and(|groups| groups.of(block) != group)
        {
            self.move_to_group(block, group);
        }
    }

    fn move_to_group(&mut self, block: Pbn, group: u8) {
        self.count_in_group(block, false);
        if let Some(groups) = &mut self.groups {
            groups.set(block, group);
        }
        self.count_in_group(block, true);
    }

    /// Returns, by group, the invalid pages of its full data blocks.
    pub(crate) fn invalid_by_group(&self) -> &[u64] {
        self.groups.as_ref().map_or(&[], |groups| groups.invalid())
    }

    /// Adds the block's invalid pages to those of its group, or takes them away: before and after a
    /// change of its group, state or role.
    #[inline]
    fn count_in_group(&mut self, block: Pbn, counts: bool) {
        if let Some(groups) = &mut self.groups {
            let entry = &self.blocks[block.index()];
            if entry.is_full_of_data() {
                let invalid = self.geometry.pages_per_block - u32::from(entry.valid);
                groups.count(block, invalid, counts);
            }
        }
    }

    /// Enables [`Self::victims_by_closing`]. Requires that no block was used yet.
    pub(crate) fn keep_order_of_closing(&mut self) {
        self.victims.keep_order();
    }

    #[cfg(test)]
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(crate) fn state(&self, block: Pbn) -> State {
        self.blocks[block.index()].state
    }

    /// Iterates over the state of every block, ascending.
    pub(crate) fn states(&self) -> impl Iterator<Item = State> {
        self.blocks.iter().map(|block| block.state)
    }

    /// Returns whether the block is open or full.
    pub(crate) fn is_in_use(&self, block: Pbn) -> bool {
        matches!(self.state(block), State::Open | State::Full)
    }

    #[inline]
    pub(crate) fn role(&self, block: Pbn) -> Role {
        self.blocks[block.index()].role
    }

    #[inline]
    pub(crate) fn epoch(&self, block: Pbn) -> u64 {
        self.blocks[block.index()].epoch
    }

    #[inline]
    pub(crate) fn valid_count(&self, block: Pbn) -> u32 {
        u32::from(self.blocks[block.index()].valid)
    }

    #[inline]
    pub(crate) fn is_valid(&self, ppn: Ppn) -> bool {
        self.valid[ppn.index() / 64] >> (ppn.index() % 64) & 1 == 1
    }

    /// Moves a block to another state and removes it from the victim index.
    pub(crate) fn set_state(&mut self, block: Pbn, state: State) {
        self.victims.remove(block);
        self.set_foldable(block, false);
        self.count_in_group(block, false);
        let entry = &mut self.blocks[block.index()];
        assert!(
            entry.state != State::Bad || state == State::Bad,
            "bad block {block} cannot become {state:?}"
        );
        self.by_state[entry.state.index()] -= 1;
        self.by_state[state.index()] += 1;
        if entry.state == State::Full {
            self.full_by_role[entry.role.index()] -= 1;
        }
        if state == State::Full {
            self.full_by_role[entry.role.index()] += 1;
        }
        if matches!(state, State::Free | State::Released | State::Bad) {
            assert_eq!(
                entry.valid, 0,
                "block {block} has valid pages when it is released"
            );
        }
        entry.state = state;
        entry.changed = low_u32(self.youngest);
        self.count_in_group(block, true);
    }

    /// Opens an allocated block with its role and epoch.
    pub(crate) fn set_open(&mut self, block: Pbn, role: Role, epoch: u64) {
        assert_ne!(
            self.state(block),
            State::Released,
            "block {block} is opened before its erase"
        );
        self.youngest = self.youngest.max(epoch);
        self.set_state(block, State::Open);
        let entry = &mut self.blocks[block.index()];
        (entry.role, entry.epoch) = (role, epoch);
    }

    /// Adopts a full block that a mount found. Nobody knows when its pages last changed, so it
    /// counts as unchanged since it was opened.
    pub(crate) fn adopt_full(&mut self, block: Pbn, role: Role, epoch: u64) {
        self.set_open(block, role, epoch);
        self.set_state(block, State::Full);
        self.blocks[block.index()].changed = low_u32(epoch);
    }

    /// Changes the role of a block (LazyFTL's convert).
    pub(crate) fn set_role(&mut self, block: Pbn, role: Role) {
        assert!(
            self.is_in_use(block),
            "block {block} gets role {role:?} in state {:?}",
            self.state(block)
        );
        self.count_in_group(block, false);
        let entry = &mut self.blocks[block.index()];
        if entry.state == State::Full {
            self.full_by_role[entry.role.index()] -= 1;
            self.full_by_role[role.index()] += 1;
        }
        entry.role = role;
        self.count_in_group(block, true);
    }

    /// Records whether a block in SLC mode may be folded. Returns whether the block is in that
    /// mode.
    #[inline]
    fn set_foldable(&mut self, block: Pbn, may: bool) -> bool {
        match self.foldable.get_mut(block.index()) {
            Some(foldable) => {
                *foldable = may;
                true
            }
            None => false,
        }
    }

    /// Adds this full block to the victim index, or to the blocks that may be folded.
    pub(crate) fn set_collectable(&mut self, block: Pbn) {
        assert_eq!(
            self.state(block),
            State::Full,
            "block {block} is not full, so GC cannot select it"
        );
        if !self.set_foldable(block, true) && !self.victims.contains(block) {
            self.victims.insert(block, self.valid_count(block));
        }
    }

    /// Returns whether the victim index contains the block.
    pub(crate) fn is_collectable(&self, block: Pbn) -> bool {
        self.victims.contains(block)
    }

    /// Returns whether the block is in SLC mode and may be folded.
    pub(crate) fn is_foldable(&self, block: Pbn) -> bool {
        self.foldable.get(block.index()) == Some(&true)
    }

    /// Iterates over the blocks that may be folded, ascending. Visits every block of the region.
    pub(crate) fn foldable(&self) -> impl Iterator<Item = Pbn> {
        let blocks = (0..).map(Pbn::new).zip(&self.foldable);
        blocks.filter(|(_, may)| **may).map(|(block, _)| block)
    }

    /// Marks the page valid.
    pub(crate) fn set_valid(&mut self, ppn: Ppn) {
        self.set_valid_in(self.split.block_of(ppn), ppn);
    }

    /// Marks the page of this block valid.
    #[inline(always)]
    pub(crate) fn set_valid_in(&mut self, block: Pbn, ppn: Ppn) {
        debug_assert_eq!(self.split.block_of(ppn), block, "page {ppn} is elsewhere");
        let word = &mut self.valid[ppn.index() / 64];
        let bit = 1 << (ppn.index() % 64);
        assert!(*word & bit == 0, "page {ppn} is already valid");
        *word |= bit;
        self.add_valid(block, 1);
    }

    /// Marks the page invalid.
    #[inline(always)]
    pub(crate) fn set_invalid(&mut self, ppn: Ppn) {
        let word = &mut self.valid[ppn.index() / 64];
        let bit = 1 << (ppn.index() % 64);
        assert!(*word & bit != 0, "page {ppn} is not valid");
        *word &= !bit;
        self.sub_valid(self.split.block_of(ppn), 1);
    }

    /// Marks `count` pages of one block valid, upwards from `first`.
    pub(crate) fn set_valid_run(&mut self, first: Ppn, count: u32) {
        if count == 0 {
            return;
        }
        for (word, bits) in words_of(first.index(), index(count)) {
            let word = &mut self.valid[word];
            assert!(
                *word & bits == 0,
                "one of the {count} pages from {first} on is already valid"
            );
            *word |= bits;
        }
        let block = self.split.block_of(first);
        self.add_valid(block, count);
    }

    /// Marks these pages invalid: ascending valid pages of one block, without a valid page in
    /// between.
    pub(crate) fn set_pages_invalid(&mut self, pages: &[Ppn]) {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return;
        };
        let block = self.split.block_of(*first);
        assert!(
            self.split.block_of(*last) == block,
            "pages {first} to {last} are in several blocks"
        );
        let mut cleared = 0;
        for (word, bits) in words_of(first.index(), last.index() + 1 - first.index()) {
            cleared += (self.valid[word] & bits).count_ones();
            self.valid[word] &= !bits;
        }
        assert!(
            index(cleared) == pages.len(),
            "{cleared} of {} pages to invalidate, from {first} to {last}, were valid",
            pages.len()
        );
        self.sub_valid(block, to_u32(pages.len()));
    }

    /// Adds to the valid count. Pages become valid while their block is open, or at mount, never
    /// while the victim index contains the block, or a group its invalid pages.
    #[inline(always)]
    fn add_valid(&mut self, block: Pbn, pages: u32) {
        debug_assert!(
            !self.is_collectable(block) && !self.is_foldable(block),
            "{pages} pages of block {block} become valid while GC can select it"
        );
        // Without overflow checks, here and below: every page counted has its own bit.
        self.valid_pages = self.valid_pages.wrapping_add(u64::from(pages));
        let entry = &mut self.blocks[block.index()];
        entry.valid = entry.valid.wrapping_add(to_u16(pages));
        debug_assert!(
            self.valid_count(block) <= self.geometry.pages_per_block,
            "block {block}: valid count {} exceeds the number of pages, {}",
            self.valid_count(block),
            self.geometry.pages_per_block
        );
    }

    #[inline(always)]
    fn sub_valid(&mut self, block: Pbn, pages: u32) {
        self.valid_pages = self.valid_pages.wrapping_sub(u64::from(pages));
        let entry = &mut self.blocks[block.index()];
        entry.valid = entry.valid.wrapping_sub(to_u16(pages));
        entry.changed = low_u32(self.youngest);
        let valid = u32::from(entry.valid);
        self.victims.update(block, valid);
        if self.groups.is_some() {
            self.lose_in_group(block, pages);
        }
    }

    #[inline(never)]
    fn lose_in_group(&mut self, block: Pbn, pages: u32) {
        if let Some(groups) = &mut self.groups
            && self.blocks[block.index()].is_full_of_data()
        {
            groups.count(block, pages, true);
        }
    }

    /// Appends the block's valid pages, ascending.
    pub(crate) fn list_valid(&self, block: Pbn, pages: &mut Vec<Ppn>) {
        let first = self.geometry.page(block, 0).index();
        for (word, bits) in words_of(first, self.geometry.block_pages()) {
            let mut left = self.valid[word] & bits;
            let base = to_u32(word * 64);
            // An iterator with a known length, so that `extend` reserves once per word.
            pages.extend((0..left.count_ones()).map(|_| {
                let page = Ppn::new(base | left.trailing_zeros());
                left &= left.wrapping_sub(1);
                page
            }));
        }
    }

    /// Removes a block that is about to be emptied from the victim index. So its pages do not move
    /// it from list to list. Returns whether the index contained the block; if so, the caller must
    /// add it again if the block stays. A block that may be folded is treated alike.
    pub(crate) fn withdraw(&mut self, block: Pbn) -> bool {
        let listed = self.victims.contains(block) || self.is_foldable(block);
        self.victims.remove(block);
        self.set_foldable(block, false);
        listed
    }

    /// Returns the block of the victim index with the fewest valid pages.
    pub(crate) fn greedy_victim(&mut self) -> Option<Pbn> {
        self.victims.greedy()
    }

    /// Iterates over the victim index: for every valid count that occurs, the block that has had it
    /// for longest.
    pub(crate) fn victim_heads(&self) -> impl Iterator<Item = Pbn> {
        self.victims.heads()
    }

    /// Iterates over the blocks of the victim index in the order in which they were added.
    pub(crate) fn victims_by_closing(&self) -> impl Iterator<Item = Pbn> {
        self.victims.in_order()
    }

    /// Returns the share of the block's pages that is valid.
    pub(crate) fn utilisation(&self, block: Pbn) -> f64 {
        f64::from(self.valid_count(block)) / f64::from(self.geometry.pages_per_block)
    }

    /// Returns the number of blocks opened since the block's valid count last changed.
    pub(crate) fn unchanged_for(&self, block: Pbn) -> u32 {
        low_u32(self.youngest).wrapping_sub(self.blocks[block.index()].changed)
    }

    /// Returns the number of blocks of the chip.
    pub(crate) fn blocks(&self) -> u32 {
        self.geometry.blocks
    }

    pub(crate) fn valid_pages(&self) -> u64 {
        self.valid_pages
    }

    pub(crate) fn full(&self, role: Role) -> u32 {
        self.full_by_role[role.index()]
    }

    /// Returns the counts for reports.
    pub(crate) fn counts(&self) -> BlockCounts {
        debug_assert_eq!(
            self.full_by_role.iter().sum::<u32>(),
            self.by_state[State::Full.index()],
            "each full block has one role"
        );
        let of = |state: State| self.by_state[state.index()];
        BlockCounts {
            free: of(State::Free),
            open: of(State::Open),
            data: self.full(Role::Data),
            log: [Role::Update, Role::Cold, Role::Log, Role::Journal]
                .map(|role| self.full(role))
                .iter()
                .sum(),
            map: self.full(Role::Map),
            checkpoint: self.full(Role::Checkpoint),
            released: of(State::Released),
            bad: of(State::Bad),
        }
    }

    /// Compares the incremental counts with a fresh count; returns one line per difference.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut total = 0;
        for block in self.geometry.all_blocks() {
            let pages = (0..self.geometry.pages_per_block).map(|o| self.geometry.page(block, o));
            let valid = to_u32(pages.filter(|p| self.is_valid(*p)).count());
            total += u64::from(valid);
            if valid != self.valid_count(block) {
                wrong.push(format!(
                    "block {block}: valid count is {}, but {valid} pages are valid",
                    self.valid_count(block)
                ));
            }
        }
        if total != self.valid_pages {
            wrong.push(format!(
                "the count of all valid pages is {}, but {total} pages are valid",
                self.valid_pages
            ));
        }
        if let Some(groups) = &self.groups {
            let of_data = (0..).map(Pbn::new).zip(&self.blocks);
            let of_data = of_data.filter(|(_, entry)| entry.is_full_of_data());
            let pages = self.geometry.pages_per_block;
            let invalid = of_data.map(|(block, entry)| (block, pages - u32::from(entry.valid)));
            wrong.extend(groups.audit(invalid));
        }
        wrong
    }

    /// Returns the allocated bytes of the groups of blocks.
    pub(crate) fn group_bytes(&self) -> u64 {
        self.groups.as_ref().map_or(0, |groups| groups.bytes())
    }

    /// Returns the allocated bytes: bitmap, victim index, block entries.
    pub(crate) fn bytes(&self) -> (u64, u64, u64) {
        let entries = vec_bytes::<Block>(self.blocks.capacity())
            + vec_bytes::<bool>(self.foldable.capacity());
        (
            vec_bytes::<u64>(self.valid.capacity()),
            self.victims.bytes(),
            entries,
        )
    }
}

/// Iterates over the bitmap words that contain `count` bits from `first` on, with a mask of them.
#[inline]
fn words_of(first: usize, count: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / 64..end.div_ceil(64)).map(move |word| {
        let from = u64::MAX << (first.max(word * 64) - word * 64);
        let upto = u64::MAX >> ((word + 1) * 64 - end.min((word + 1) * 64));
        (word, from & upto)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;

    fn table(pages_per_block: u32) -> BlockTable {
        BlockTable::new(Geometry {
            channels: 1,
            ways: 1,
            planes: 1,
            multi_plane: nand_model::MultiPlane::Off,
            blocks: 9,
            pages_per_block,
            page_bytes: 512,
            oob_bytes: 64,
        })
    }

    #[test]
    fn runs_and_lists_of_pages_count_as_the_pages_one_by_one() {
        for pages_per_block in [16, 48, 100, 256] {
            let (mut one, mut many) = (table(pages_per_block), table(pages_per_block));
            let mut rng = SplitMix::new(5);
            for _ in 0..200 {
                let block = Pbn::new(rng.below(9) as u32);
                let (mut valid, mut kept) = (Vec::new(), Vec::new());
                many.list_valid(block, &mut valid);
                valid.iter().for_each(|ppn| one.set_invalid(*ppn));
                many.set_pages_invalid(&valid);
                let offset = rng.below(pages_per_block as u64) as u32;
                let count = 1 + rng.below((pages_per_block - offset) as u64) as u32;
                let pages: Vec<_> = (offset..offset + count)
                    .map(|o| one.geometry.page(block, o))
                    .collect();
                pages.iter().for_each(|ppn| one.set_valid(*ppn));
                many.set_valid_run(pages[0], count);
                many.list_valid(block, &mut kept);
                assert_eq!(
                    (kept, &one.valid, one.valid_pages()),
                    (pages, &many.valid, many.valid_pages())
                );
                assert_eq!((one.audit(), many.audit()), (vec![], vec![]));
            }
        }
    }

    /// Whatever happens to blocks, the invalid pages of a group are those of its full data blocks.
    #[test]
    fn the_invalid_pages_of_groups_follow_every_change() {
        const ROLES: [Role; 3] = [Role::Data, Role::Map, Role::Update];
        let pages = 16;
        let (mut table, mut rng) = (table(pages), SplitMix::new(4));
        table.count_groups();
        let mut group_of = [None; 9];
        let mut seen = 0;
        for _ in 0..4000 {
            let number = rng.below(9) as usize;
            let block = Pbn::new(number as u32);
            let mut valid = Vec::new();
            table.list_valid(block, &mut valid);
            match (table.state(block), rng.below(5)) {
                (State::Free, _) => {
                    table.set_open(block, ROLES[rng.index(3)], 1);
                    table.set_valid_run(table.geometry.page(block, 0), rng.below(16) as u32);
                }
                (State::Open | State::Full, 0) => {
                    group_of[number] = Some(rng.below(3) as u8);
                    table.set_group(block, rng.below(3) as u8);
                    table.set_group(block, group_of[number].unwrap());
                }
                (State::Open, _) => table.set_state(block, State::Full),
                (State::Full, 1) => table.set_role(block, ROLES[rng.index(3)]),
                (State::Full, 2) => {
                    table.set_pages_invalid(&valid);
                    table.set_state(block, State::Released);
                    table.set_state(block, State::Free);
                }
                (State::Full, _) => {
                    let some = rng.index(valid.len() + 1);
                    valid[some..].iter().for_each(|ppn| table.set_invalid(*ppn));
                }
                _ => unreachable!(),
            }
            let mut expected = [0; GROUPS_MAX as usize];
            for (block, group) in (0..).map(Pbn::new).zip(group_of) {
                let is_data = (table.state(block), table.role(block)) == (State::Full, Role::Data);
                if let Some(group) = group.filter(|_| is_data) {
                    expected[usize::from(group)] += u64::from(pages - table.valid_count(block));
                }
            }
            assert_eq!(table.invalid_by_group(), expected);
            assert_eq!(table.audit(), Vec::<String>::new());
            seen = seen.max(expected[2]);
        }
        assert!(seen > 32, "{seen}");
    }

    #[test]
    #[should_panic(expected = "is already valid")]
    fn a_run_over_a_live_page_is_refused() {
        let mut table = table(64);
        table.set_valid(Ppn::new(70));
        table.set_valid_run(Ppn::new(64), 10);
    }
}
