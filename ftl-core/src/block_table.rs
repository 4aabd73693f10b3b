//! What every physical block is, and which of its pages are live. The one owner of valid counts.
//!
//! What always holds: the states partition the blocks; a block's valid count is the number of its
//! bits in the bitmap; the victim index holds exactly the full blocks that may be collected, at
//! their count. All of it is RAM; mount rebuilds it.

use crate::convert::{index, low_u32, to_u16, to_u32, to_u64};
use crate::format::Role;
use crate::gc::VictimIndex;
use crate::stats::BlockCounts;
use nand_model::{Geometry, PageSplit, Pbn, Ppn};

/// Where a block is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Erased, or to be erased when taken.
    Free,
    /// A stream is filling it.
    Open,
    /// Takes no more programs; may hold live pages.
    Full,
    /// Holds nothing live; waits until no page that replaces its own can be lost.
    Released,
    /// Never used again.
    Bad,
}

impl State {
    /// How many states there are.
    const COUNT: usize = 5;

    /// The number as an index into a table with an entry for each state.
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
    /// The youngest allocation when the valid count last changed, or the block was closed; of its
    /// number the lowest 32 bits.
    changed: u32,
    epoch: u64,
}

/// State, role, epoch and live pages of every block.
#[derive(Clone, Debug)]
pub(crate) struct BlockTable {
    geometry: Geometry,
    split: PageSplit,
    blocks: Vec<Block>,
    live: Vec<u64>,
    victims: VictimIndex,
    by_state: [u32; State::COUNT],
    full_by_role: [u32; Role::SLOTS],
    valid_pages: u64,
    /// The youngest allocation: the clock of [`Self::unchanged_for`].
    youngest: u64,
}

impl BlockTable {
    /// All blocks free, nothing live.
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
            live: vec![0; geometry.page_slots().div_ceil(64)],
            victims: VictimIndex::new(geometry.blocks, geometry.pages_per_block),
            by_state,
            full_by_role: [0; Role::SLOTS],
            valid_pages: 0,
            youngest: 0,
        }
    }

    /// [`Self::victims_by_closing`] answers from now on. No block was used yet.
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

    /// The state of every block, ascending.
    pub(crate) fn states(&self) -> impl Iterator<Item = State> {
        self.blocks.iter().map(|block| block.state)
    }

    /// Whether the block is being filled or full.
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
    pub(crate) fn valid(&self, block: Pbn) -> u32 {
        u32::from(self.blocks[block.index()].valid)
    }

    #[inline]
    pub(crate) fn is_live(&self, ppn: Ppn) -> bool {
        self.live[ppn.index() / 64] >> (ppn.index() % 64) & 1 == 1
    }

    /// Moves a block to another state and takes it off the victim index.
    pub(crate) fn set_state(&mut self, block: Pbn, state: State) {
        self.victims.remove(block);
        let entry = &mut self.blocks[block.index()];
        assert!(
            entry.state != State::Bad || state == State::Bad,
            "bad block {block} is used again"
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
            assert_eq!(entry.valid, 0, "block {block} is given up with live pages");
        }
        entry.state = state;
        entry.changed = low_u32(self.youngest);
    }

    /// A new life begins.
    pub(crate) fn set_open(&mut self, block: Pbn, role: Role, epoch: u64) {
        self.youngest = self.youngest.max(epoch);
        self.set_state(block, State::Open);
        let entry = &mut self.blocks[block.index()];
        (entry.role, entry.epoch) = (role, epoch);
    }

    /// Changes what a full block is for (LazyFTL's convert).
    pub(crate) fn set_role(&mut self, block: Pbn, role: Role) {
        let entry = &mut self.blocks[block.index()];
        if entry.state == State::Full {
            self.full_by_role[entry.role.index()] -= 1;
            self.full_by_role[role.index()] += 1;
        }
        entry.role = role;
    }

    /// Lets collectors choose this full block.
    pub(crate) fn set_collectable(&mut self, block: Pbn) {
        assert_eq!(
            self.state(block),
            State::Full,
            "block {block} may not be collected"
        );
        if !self.victims.contains(block) {
            self.victims.insert(block, self.valid(block));
        }
    }

    /// Whether collectors may choose it.
    pub(crate) fn is_collectable(&self, block: Pbn) -> bool {
        self.victims.contains(block)
    }

    /// The page holds the newest content of something.
    #[inline(always)]
    pub(crate) fn set_live(&mut self, ppn: Ppn) {
        let word = &mut self.live[ppn.index() / 64];
        let bit = 1 << (ppn.index() % 64);
        assert!(*word & bit == 0, "page {ppn} is live already");
        *word |= bit;
        self.add_valid(self.split.block_of(ppn), 1);
    }

    /// The page's content was superseded.
    #[inline(always)]
    pub(crate) fn clear_live(&mut self, ppn: Ppn) {
        let word = &mut self.live[ppn.index() / 64];
        let bit = 1 << (ppn.index() % 64);
        assert!(*word & bit != 0, "page {ppn} is not live");
        *word &= !bit;
        self.sub_valid(self.split.block_of(ppn), 1);
    }

    /// `count` pages of one block, upwards from `first`, hold the newest content of something.
    pub(crate) fn set_live_run(&mut self, first: Ppn, count: u32) {
        if count == 0 {
            return;
        }
        for (word, bits) in words_of(first.index(), index(count)) {
            let word = &mut self.live[word];
            assert!(
                *word & bits == 0,
                "a page of {count} from {first} on is live already"
            );
            *word |= bits;
        }
        let block = self.split.block_of(first);
        self.add_valid(block, count);
    }

    /// The content of these pages was superseded: ascending live pages of one block, none left out
    /// in between.
    pub(crate) fn clear_live_pages(&mut self, pages: &[Ppn]) {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return;
        };
        let block = self.split.block_of(*first);
        assert!(
            self.split.block_of(*last) == block,
            "pages {first} to {last} are of several blocks"
        );
        let mut cleared = 0;
        for (word, bits) in words_of(first.index(), last.index() + 1 - first.index()) {
            cleared += (self.live[word] & bits).count_ones();
            self.live[word] &= !bits;
        }
        assert!(
            index(cleared) == pages.len(),
            "{cleared} live pages from {first} to {last}, not {}",
            pages.len()
        );
        self.sub_valid(block, to_u32(pages.len()));
    }

    /// Pages become live while their block is open, or at mount: never while collectors may choose
    /// it.
    #[inline(always)]
    fn add_valid(&mut self, block: Pbn, pages: u32) {
        debug_assert!(
            !self.is_collectable(block),
            "pages of block {block}, which may be collected, become live"
        );
        self.valid_pages += u64::from(pages);
        self.blocks[block.index()].valid += to_u16(pages);
        debug_assert!(
            self.valid(block) <= self.geometry.pages_per_block,
            "block {block} has more live pages than pages"
        );
    }

    #[inline(always)]
    fn sub_valid(&mut self, block: Pbn, pages: u32) {
        self.valid_pages -= u64::from(pages);
        let entry = &mut self.blocks[block.index()];
        entry.valid -= to_u16(pages);
        entry.changed = low_u32(self.youngest);
        let valid = u32::from(entry.valid);
        self.victims.update(block, valid);
    }

    /// Appends the block's live pages, ascending.
    pub(crate) fn live_pages(&self, block: Pbn, pages: &mut Vec<Ppn>) {
        let first = self.geometry.page(block, 0).index();
        for (word, bits) in words_of(first, self.geometry.block_pages()) {
            let mut left = self.live[word] & bits;
            let base = to_u32(word * 64);
            // With a count, so that room is made once per word.
            pages.extend((0..left.count_ones()).map(|_| {
                let page = Ppn::new(base | left.trailing_zeros());
                left &= left.wrapping_sub(1);
                page
            }));
        }
    }

    /// Keeps collectors off a block that is about to be emptied, so that its pages do not move it
    /// from list to list. Returns whether they could choose it: then it must be made collectable
    /// again if it stays.
    pub(crate) fn withdraw(&mut self, block: Pbn) -> bool {
        let listed = self.victims.contains(block);
        self.victims.remove(block);
        listed
    }

    /// The collectable block with the fewest live pages.
    pub(crate) fn greedy_victim(&mut self) -> Option<Pbn> {
        self.victims.greedy()
    }

    /// Of every valid count that occurs among the collectable blocks, the block that has had it for
    /// longest.
    pub(crate) fn victim_heads(&self) -> impl Iterator<Item = Pbn> {
        self.victims.heads()
    }

    /// The collectable blocks in the order in which they became that.
    pub(crate) fn victims_by_closing(&self) -> impl Iterator<Item = Pbn> {
        self.victims.in_order()
    }

    /// Share of the block's pages that is valid.
    pub(crate) fn utilisation(&self, block: Pbn) -> f64 {
        f64::from(self.valid(block)) / f64::from(self.geometry.pages_per_block)
    }

    /// Blocks opened since the block's valid count last changed.
    pub(crate) fn unchanged_for(&self, block: Pbn) -> u32 {
        low_u32(self.youngest).wrapping_sub(self.blocks[block.index()].changed)
    }

    /// All blocks of the chip.
    pub(crate) fn blocks(&self) -> u32 {
        self.geometry.blocks
    }

    pub(crate) fn valid_pages(&self) -> u64 {
        self.valid_pages
    }

    pub(crate) fn full(&self, role: Role) -> u32 {
        self.full_by_role[role.index()]
    }

    /// Counts for reports.
    pub(crate) fn counts(&self) -> BlockCounts {
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

    /// Compares the incremental counts with a fresh count; one line per difference.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut total = 0;
        for block in self.geometry.all_blocks() {
            let pages = (0..self.geometry.pages_per_block).map(|o| self.geometry.page(block, o));
            let live = to_u32(pages.filter(|p| self.is_live(*p)).count());
            total += u64::from(live);
            if live != self.valid(block) {
                wrong.push(format!(
                    "block {block}: {} pages counted valid, {live} are",
                    self.valid(block)
                ));
            }
        }
        if total != self.valid_pages {
            wrong.push(format!(
                "{} valid pages counted, {total} are",
                self.valid_pages
            ));
        }
        wrong
    }

    /// Bytes really allocated: bitmap, victim index, block entries.
    pub(crate) fn bytes(&self) -> (u64, u64, u64) {
        let entries = self.blocks.len() * std::mem::size_of::<Block>();
        (
            8 * to_u64(self.live.len()),
            self.victims.bytes(),
            to_u64(entries),
        )
    }
}

/// The bitmap words that `count` bits from `first` on touch, and which of their bits.
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
                let (mut live, mut kept) = (Vec::new(), Vec::new());
                many.live_pages(block, &mut live);
                live.iter().for_each(|ppn| one.clear_live(*ppn));
                many.clear_live_pages(&live);
                let offset = rng.below(pages_per_block as u64) as u32;
                let count = 1 + rng.below((pages_per_block - offset) as u64) as u32;
                let pages: Vec<_> = (offset..offset + count)
                    .map(|o| one.geometry.page(block, o))
                    .collect();
                pages.iter().for_each(|ppn| one.set_live(*ppn));
                many.set_live_run(pages[0], count);
                many.live_pages(block, &mut kept);
                assert_eq!(
                    (kept, &one.live, one.valid_pages()),
                    (pages, &many.live, many.valid_pages())
                );
                assert_eq!((one.audit(), many.audit()), (vec![], vec![]));
            }
        }
    }

    #[test]
    #[should_panic(expected = "is live already")]
    fn a_run_over_a_live_page_is_refused() {
        let mut table = table(64);
        table.set_live(Ppn::new(70));
        table.set_live_run(Ppn::new(64), 10);
    }
}
