//! Mount: the version of every logical page that it chooses, and the pages that it programs before
//! it serves.

use crate::flash::{Content, Data, Page, Stream, Use};
use crate::provisional;
use crate::space::{KEPT, NoBlock, Op};
use crate::state::{Allowed, Breach, Config, LPNS, Phase, SeededError, Stage, State, slot_of};

/// Flash operations after which a mount is taken for one that does not end.
pub const MOST_MOUNT_OPS: u8 = 100;

/// A version that was found: block and page.
#[derive(Clone, Copy)]
struct Found {
    data: Data,
    at: (usize, usize),
}

impl State {
    /// Reads the flash and draws the mapping table from it; nothing is programmed yet. Code:
    /// `ftl-core/src/families/page_ram/recovery.rs`: `mount_from_checkpoint`, `scan_window`,
    /// `resolve`; `ftl-core/src/recovery/newest.rs`: `scan_newest` (the same without checkpoints).
    pub fn read_flash(&mut self, config: &Config) {
        let sets = self.load_sets();
        let base = sets.last().map(|(_, slot)| *slot);
        let bit = |mask: u8| base.is_some_and(|slot| mask >> slot & 1 == 1);
        let (mut found, mut scanned) = (Vec::new(), Vec::new());
        for (at, block) in self.blocks.iter_mut().enumerate() {
            let has_head = provisional::has_head(config, block);
            let is_scanned = has_head && !(bit(block.before) && block.pages[0].has_record());
            let standing = if is_scanned {
                provisional::committed_pages(config, block)
            } else {
                0
            };
            for page in (0..block.frontier as usize).filter(|page| standing >> page & 1 == 1) {
                let competes = !bit(block.pages[page].known) || bit(block.pages[page].named);
                let data = block.pages[page].data().filter(|_| competes);
                found.extend(data.map(|data| Found {
                    data,
                    at: (at, page),
                }));
            }
            block.used = if has_head {
                Use::Full
            } else {
                Use::Free { confirmed: false }
            };
            scanned.push(is_scanned);
        }
        let mut pinned = vec![false; self.blocks.len()];
        for lpn in 0..LPNS as u8 {
            let group: Vec<Found> = found
                .iter()
                .filter(|found| found.data.lpn == lpn)
                .copied()
                .collect();
            let named = base.and_then(|slot| self.named_page(config, slot, lpn, &scanned));
            self.resolve_page(config, group, named, &mut pinned);
        }
        self.settle_blocks(config, &sets, &pinned);
        self.phase = Phase::Mounting(Stage::Rewrite);
    }

    /// The newest readable sets, oldest first: block and slot. Code:
    /// `ftl-core/src/checkpoint/sets.rs`: `load`, `read_set`.
    fn load_sets(&self) -> Vec<(usize, u8)> {
        let mut sets: Vec<(usize, u8)> = (0..self.blocks.len())
            .flat_map(|at| {
                self.blocks[at]
                    .pages
                    .iter()
                    .filter_map(slot_of)
                    .map(move |slot| (at, slot))
            })
            .collect();
        sets.sort_unstable_by_key(|(_, slot)| *slot);
        sets.split_off(sets.len().saturating_sub(KEPT))
    }

    /// The page that a set's map names, if it can still have the content that the map means. Code:
    /// `ftl-core/src/families/page_ram/recovery.rs`: `is_dangling`.
    fn named_page(
        &self,
        config: &Config,
        slot: u8,
        lpn: u8,
        scanned: &[bool],
    ) -> Option<(usize, usize)> {
        let places = (0..self.blocks.len())
            .flat_map(|at| (0..config.pages as usize).map(move |page| (at, page)));
        places.into_iter().find(|(at, page)| {
            let (block, place) = (&self.blocks[*at], &self.blocks[*at].pages[*page]);
            let is_there =
                !scanned[*at] || provisional::committed_pages(config, block) >> page & 1 == 1;
            let is_of = place.data().is_none_or(|data| data.lpn == lpn);
            place.named >> slot & 1 == 1 && is_of && is_there && block.used == Use::Full
        })
    }

    /// Chooses the newest version that can be read; of copies the last. Code:
    /// `ftl-core/src/recovery/resolve.rs`: `resolve`.
    fn resolve_page(
        &mut self,
        config: &Config,
        mut group: Vec<Found>,
        named: Option<(usize, usize)>,
        pinned: &mut [bool],
    ) {
        group.sort_unstable_by_key(|found| (found.data.ver, found.data.seq));
        for found in group.iter().rev() {
            let (at, page) = found.at;
            let block = &self.blocks[at];
            let suspect = provisional::suspects(config, block) >> page & 1 == 1;
            if suspect && found.data.torn {
                continue;
            }
            let rewrite = suspect && !config.lacks(SeededError::SuspectsNotRewritten);
            let chosen = &mut self.blocks[at].pages[page];
            chosen.valid = true;
            chosen.rewrite = rewrite;
            if rewrite {
                let others = group
                    .iter()
                    .map(|other| other.at)
                    .filter(|other| *other != found.at);
                others.chain(named).for_each(|(at, _)| pinned[at] = true);
            }
            return;
        }
        if let Some((at, page)) = named {
            self.blocks[at].pages[page].valid = true;
        }
    }

    /// Blocks without valid pages are released, or withheld until the rewritten pages are
    /// committed. Code: `ftl-core/src/families/page_ram/recovery.rs`: `classify_blocks`.
    fn settle_blocks(&mut self, config: &Config, sets: &[(usize, u8)], pinned: &[bool]) {
        let early = config.lacks(SeededError::MountReleasesEarly);
        for (at, is_pinned) in pinned.iter().enumerate() {
            if self.blocks[at].used != Use::Full || self.blocks[at].valid() > 0 {
                continue;
            }
            if sets.iter().any(|(block, _)| *block == at) {
                self.blocks[at].used = Use::Set;
            } else if *is_pinned && !early {
                self.blocks[at].used = Use::Withheld;
            } else {
                self.release(at);
            }
        }
    }

    /// The next flash operation of a mount; `None` when it is done. Code:
    /// `ftl-core/src/families/page_ram/recovery.rs`: `rewrite_suspects`, `refill_pool`;
    /// `ftl-core/src/space/mount.rs`: `begin_mount`, `end_mount`.
    pub fn mount_op(&mut self, config: &Config) -> Option<Op> {
        loop {
            let Phase::Mounting(stage) = self.phase else {
                return None;
            };
            let next = match stage {
                Stage::Rewrite => self.rewrite_op(config),
                Stage::Commit => Ok(self.make_safe(config)),
                Stage::Refill => self.collect_op(config, config.threshold + 1),
                Stage::Finish => Ok(self.make_safe(config)),
            };
            match (next, stage) {
                (Err(NoBlock), _) => self.phase = Phase::Broken(Breach::Stuck),
                (Ok(Some(_)), _) if self.mount_ops > MOST_MOUNT_OPS => {
                    self.phase = Phase::Broken(Breach::Stuck)
                }
                (Ok(Some(op)), _) => return Some(op),
                (Ok(None), Stage::Rewrite) => self.phase = Phase::Mounting(Stage::Commit),
                (Ok(None), Stage::Commit) => {
                    let withheld = |at: &usize| self.blocks[*at].used == Use::Withheld;
                    let withheld: Vec<usize> = (0..self.blocks.len()).filter(withheld).collect();
                    withheld.into_iter().for_each(|at| self.release(at));
                    self.phase = Phase::Mounting(Stage::Refill);
                }
                (Ok(None), Stage::Refill) => self.phase = Phase::Mounting(Stage::Finish),
                (Ok(None), Stage::Finish) => self.end_mount(),
            }
        }
    }

    fn rewrite_op(&self, config: &Config) -> Result<Option<Op>, NoBlock> {
        let Some(data) = self.pages().find(|page| page.rewrite).and_then(Page::data) else {
            return Ok(None);
        };
        if self.room(config, Stream::Host) == 0
            && let Some(at) = self.erasable(config).next()
        {
            return Ok(Some(Op::Erase(at)));
        }
        let copy = Content::Data(Data {
            seq: self.last_seq() + 1,
            ..data
        });
        self.append(config, Stream::Host, copy).map(Some)
    }

    /// Returns the next operation of garbage collection until `wanted` blocks are free. Code:
    /// `ftl-core/src/gc/collector.rs`: `run_gc_until`, `gc_one`, `no_victim`, `frees_space`.
    fn collect_op(&mut self, config: &Config, wanted: u8) -> Result<Option<Op>, NoBlock> {
        loop {
            if let Some(victim) = self
                .blocks
                .iter()
                .position(|block| block.used == Use::Victim)
            {
                match self.evacuate_op(config, victim)? {
                    Some(op) => return Ok(Some(op)),
                    None => continue,
                }
            }
            if let Some(at) = self.erasable(config).next() {
                return Ok(Some(Op::Erase(at)));
            }
            if self.free_blocks() >= wanted {
                return Ok(None);
            }
            let full = |at: &usize| self.blocks[*at].used == Use::Full;
            let greedy = (0..self.blocks.len())
                .filter(full)
                .min_by_key(|at| self.blocks[*at].valid());
            let needs = greedy.map_or(0, |victim| self.blocks_to_move(config, victim));
            if self.should_hurry(config, wanted, needs) {
                return Ok(self.make_safe(config));
            }
            let pays = |at: &usize| self.blocks[*at].valid() < self.pages_per_block(config);
            match greedy.filter(pays).filter(|_| needs <= self.free_blocks()) {
                Some(victim) => self.blocks[victim].used = Use::Victim,
                None if self.released_blocks() > 0 => return Ok(self.make_safe(config)),
                None if self.free_blocks() >= wanted.min(config.reserve) => return Ok(None),
                None => return Err(NoBlock),
            }
        }
    }

    /// The next copy out of the victim; releases it when it holds no valid page. Code:
    /// `ftl-core/src/gc/collector.rs`: `evacuate`; `ftl-core/src/families/page_ram/reclaim.rs`:
    /// `copy_valid`.
    pub fn evacuate_op(&mut self, config: &Config, victim: usize) -> Result<Option<Op>, NoBlock> {
        let Some(data) = self.blocks[victim]
            .pages
            .iter()
            .find(|page| page.valid)
            .and_then(Page::data)
        else {
            self.release(victim);
            return Ok(None);
        };
        let copy = Content::Data(Data {
            seq: self.last_seq() + 1,
            provisional: false,
            ..data
        });
        self.append(config, Stream::Gc, copy).map(Some)
    }

    /// The mount returns: the versions that it found are from now on the content of every logical
    /// page.
    fn end_mount(&mut self) {
        self.phase = Phase::Serving;
        self.mount_ops = 0;
        for lpn in 0..LPNS as u8 {
            let (ver, readable) = self.current(lpn);
            if !readable || !self.allowed[lpn as usize].admits(ver) {
                self.phase = Phase::Broken(Breach::Returned(lpn));
                return;
            }
            self.allowed[lpn as usize] = Allowed {
                floor: ver,
                ceiling: self.highest(lpn),
            };
        }
    }
}
