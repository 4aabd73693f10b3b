//! The rules of `ftl-core/src/space/`: what is unsafe, where the next page goes, which block may be
//! erased.

use crate::flash::{
    Block, Content, EraseCut, Fate, MAX_PAGES, Page, PartnerCut, ProgramCut, Stream, Use,
};
use crate::provisional;
use crate::state::{Breach, Config, Phase, SeededError, State, slot_of};

/// Released blocks that may wait for their erase before padding hurries them.
const MAX_WAITING: u8 = 2;

/// Checkpoints that are kept.
pub const KEPT: usize = 2;

/// One flash operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Programs the next page of the stream's open block; opens this block if it is free.
    Program(Stream, usize, Content),
    /// Erases a block.
    Erase(usize),
}

/// No free block is left.
pub struct NoBlock;

impl Config {
    /// Whether a later program may destroy this page, or no padding commits it yet. Code:
    /// `ftl-core/src/space/streams.rs`: `is_unsafe`.
    pub fn is_unsafe(&self, block: &Block, offset: u8) -> bool {
        let Use::Open { provisional, .. } = block.used else {
            return false;
        };
        let unpaired = self
            .pairs
            .last_threat(offset as u32)
            .is_some_and(|threat| threat >= block.frontier as u32);
        provisional.is_some_and(|first| offset >= first) || unpaired
    }

    /// Sequence number of the oldest page of an open block that can be lost. Code:
    /// `ftl-core/src/space/streams.rs`: `oldest_unsafe`.
    fn oldest_unsafe(&self, block: &Block) -> Option<u8> {
        let at_risk = (0..block.frontier).filter(|offset| self.is_unsafe(block, *offset));
        at_risk
            .filter_map(|offset| block.pages[offset as usize].seq())
            .min()
    }
}

impl State {
    /// Whether a mount after a cut is in progress.
    pub fn is_mounting(&self) -> bool {
        matches!(self.phase, Phase::Mounting(_))
    }

    /// Pages that a block takes. Code: `ftl-core/src/space/state.rs`: `pages_per_block`.
    pub fn pages_per_block(&self, config: &Config) -> u8 {
        config.pages
            - if self.is_mounting() {
                config.kept_back
            } else {
                0
            }
    }

    /// Pages that the stream takes before it needs another block. Code:
    /// `ftl-core/src/space/state.rs`: `room`.
    pub fn room(&self, config: &Config, stream: Stream) -> u8 {
        let open = self.open_block(stream);
        open.map_or(0, |open| {
            self.pages_per_block(config)
                .saturating_sub(self.blocks[open].frontier)
        })
    }

    /// Blocks in the pool.
    pub fn free_blocks(&self) -> u8 {
        self.blocks
            .iter()
            .filter(|block| matches!(block.used, Use::Free { .. }))
            .count() as u8
    }

    /// Blocks that wait for their erase.
    pub fn released_blocks(&self) -> u8 {
        self.blocks
            .iter()
            .filter(|block| matches!(block.used, Use::Released { .. }))
            .count() as u8
    }

    /// The oldest page that can be lost. Code: `ftl-core/src/space/padding.rs`:
    /// `oldest_unsafe_page`.
    pub fn oldest_unsafe(&self, config: &Config) -> Option<u8> {
        self.blocks
            .iter()
            .filter_map(|block| config.oldest_unsafe(block))
            .min()
    }

    /// The open block of a stream that holds a page which can be lost.
    pub fn unsafe_block(&self, config: &Config, stream: Stream) -> Option<usize> {
        self.open_block(stream)
            .filter(|open| config.oldest_unsafe(&self.blocks[*open]).is_some())
    }

    /// The next page of padding that makes all streams safe. Code:
    /// `ftl-core/src/space/padding.rs`: `make_safe`.
    pub fn make_safe(&self, config: &Config) -> Option<Op> {
        Stream::ALL
            .into_iter()
            .find_map(|stream| self.make_stream_safe(config, stream))
    }

    /// The next page of padding that makes a stream safe. Code: `ftl-core/src/space/padding.rs`:
    /// `make_stream_safe`.
    pub fn make_stream_safe(&self, config: &Config, stream: Stream) -> Option<Op> {
        self.unsafe_block(config, stream)
            .map(|open| Op::Program(stream, open, Content::Pad))
    }

    /// The next operation on the way to a page of this stream: its program, the erase of the free
    /// block that it will open, or the padding of the block that it leaves. Code:
    /// `ftl-core/src/space/append.rs`: `new_frontier`; `ftl-core/src/space/open.rs`: `open_new`,
    /// `allocate_block`.
    pub fn append(&self, config: &Config, stream: Stream, content: Content) -> Result<Op, NoBlock> {
        if self.room(config, stream) > 0 {
            return Ok(Op::Program(
                stream,
                self.open_block(stream).expect("it has room"),
                content,
            ));
        }
        if let Some(Use::Open {
            provisional: Some(_),
            ..
        }) = self.open_block(stream).map(|at| self.blocks[at].used)
            && let Some(pad) = self.make_stream_safe(config, stream)
        {
            return Ok(pad);
        }
        let free = |block: &Block| matches!(block.used, Use::Free { .. });
        let at = self.blocks.iter().position(free).ok_or(NoBlock)?;
        let confirmed = self.blocks[at].used == Use::Free { confirmed: true };
        if confirmed
            || (config.lacks(SeededError::BlankLookTrusted) && self.blocks[at].frontier == 0)
        {
            return Ok(Op::Program(stream, at, content));
        }
        Ok(Op::Erase(at))
    }

    /// Releases a block without valid pages. Code: `ftl-core/src/space/release.rs`: `release_to`.
    pub fn release(&mut self, block: usize) {
        assert_eq!(self.blocks[block].valid(), 0);
        self.blocks[block].used = Use::Released {
            seq: self.last_seq(),
        };
    }

    /// A released block that may be erased: everything programmed before its release is safe. Code:
    /// `ftl-core/src/space/release.rs`: `erase_one_released`, `blocking_stream`.
    pub fn erasable(&self, config: &Config) -> impl Iterator<Item = usize> {
        let oldest = self.oldest_unsafe(config).unwrap_or(u8::MAX);
        let early = config.lacks(SeededError::EraseBeforeSafe);
        let may = move |block: &Block| matches!(block.used, Use::Released { seq } if early || seq < oldest);
        (0..self.blocks.len()).filter(move |at| may(&self.blocks[*at]))
    }

    /// Whether released blocks are hurried along by padding. Code:
    /// `ftl-core/src/space/padding.rs`: `should_pad_released`.
    pub fn should_hurry(&self, config: &Config, wanted: u8, needs: u8) -> bool {
        let (free, waiting) = (self.free_blocks(), self.released_blocks());
        let due = match self.is_mounting() && config.kept_back > 0 {
            false => waiting > MAX_WAITING || free < config.reserve,
            true => free + waiting >= wanted || free <= needs,
        };
        waiting > 0 && due
    }

    /// Free blocks that moving this block's valid pages takes. Code:
    /// `ftl-core/src/families/page_ram/reclaim.rs`: `blocks_to_move`.
    pub fn blocks_to_move(&self, config: &Config, victim: usize) -> u8 {
        let more = self.blocks[victim]
            .valid()
            .saturating_sub(self.room(config, Stream::Gc));
        more.div_ceil(self.pages_per_block(config))
    }

    /// Carries an operation out, or cuts the power in the middle of it.
    pub fn carry_out(&mut self, config: &Config, op: Op, fate: Fate) {
        let powered = fate == Fate::Done;
        match op {
            Op::Program(stream, at, content) => self.program(config, stream, at, content, fate),
            Op::Erase(at) => self.erase(at, fate),
        }
        if powered {
            self.mount_ops += self.is_mounting() as u8;
        } else {
            self.cuts -= (self.cuts < u8::MAX) as u8;
            self.mount_ops = 0;
            self.phase = match self.phase {
                Phase::Broken(breach) => Phase::Broken(breach),
                _ => Phase::Off,
            };
            self.blocks.iter_mut().for_each(Block::forget);
        }
    }

    /// Code: `ftl-core/src/space/append.rs`: `program_where`, `note_programmed`;
    /// `ftl-core/src/space/padding.rs`: `pad`; `ftl-core/src/space/open.rs`: `close`;
    /// `nand-model/src/chip/program.rs`: `program_run`, `cut_program`.
    fn program(
        &mut self,
        config: &Config,
        stream: Stream,
        at: usize,
        content: Content,
        fate: Fate,
    ) {
        let (page, partner) = match fate {
            Fate::Done => (ProgramCut::Complete, PartnerCut::Intact),
            Fate::ProgramCut(page, partner) => (page, partner),
            Fate::EraseCut(_) => unreachable!("an erase's fate"),
        };
        if page == ProgramCut::NotStarted {
            return;
        }
        if self.blocks[at].weak {
            self.phase = Phase::Broken(Breach::Weak);
            return;
        }
        self.open_for(stream, at);
        let mounting = self.is_mounting() && config.kept_back > 0;
        let block = &mut self.blocks[at];
        let offset = block.frontier;
        let mut new = Page {
            content,
            unstable: page == ProgramCut::Unstable,
            ..Page::BLANK
        };
        match &mut new.content {
            _ if page == ProgramCut::Lost => new.content = Content::Lost,
            Content::Data(data) => {
                data.provisional = mounting;
                data.torn = page == ProgramCut::DataTorn;
            }
            _ => {}
        }
        for victim in config.pairs.victims(offset as u32) {
            let victim = &mut block.pages[victim as usize];
            match partner {
                PartnerCut::Intact => {}
                PartnerCut::Unstable => victim.unstable |= victim.has_record(),
                PartnerCut::Lost => lose(victim),
            }
        }
        block.pages[offset as usize] = new;
        block.frontier += 1;
        if let Content::Set { slot, .. } = new.content {
            self.note_set(slot);
        }
        if fate == Fate::Done {
            self.note_programmed(config, at, content);
        }
    }

    /// Opens a free block for the stream, and closes the one that it filled.
    fn open_for(&mut self, stream: Stream, at: usize) {
        if matches!(self.blocks[at].used, Use::Open { .. }) {
            return;
        }
        if let Some(before) = self.open_block(stream) {
            self.blocks[before].used = Use::Full;
        }
        self.blocks[at].used = Use::Open {
            stream,
            provisional: None,
        };
    }

    /// Updates RAM: the mapping table, what is provisional, and the block's state.
    fn note_programmed(&mut self, config: &Config, at: usize, content: Content) {
        let mounting = self.is_mounting() && config.kept_back > 0;
        let offset = self.blocks[at].frontier - 1;
        if let Content::Data(data) = content {
            for page in self.pages_mut().filter(|page| page.valid) {
                let is_old = page.data().is_some_and(|old| old.lpn == data.lpn);
                page.valid &= !is_old;
                page.rewrite &= !is_old;
            }
        }
        let block = &mut self.blocks[at];
        block.pages[offset as usize].valid = matches!(content, Content::Data(_));
        let Use::Open {
            stream,
            provisional,
        } = block.used
        else {
            unreachable!("it was opened")
        };
        let commits = || {
            let padding = block.pages[..=offset as usize]
                .iter()
                .rev()
                .take_while(|page| page.content == Content::Pad);
            let padding = padding.count() as u8;
            let unpaired = (0..=offset).any(|page| {
                let threat = config.pairs.last_threat(page as u32);
                block.pages[page as usize].seq().is_some()
                    && threat.is_some_and(|threat| threat > offset as u32)
            });
            let enough = provisional::commits(&config.pairs, offset + 1 - padding..offset + 1);
            (enough || config.lacks(SeededError::ProvisionalCounts)) && !unpaired
        };
        let provisional = match content {
            Content::Pad if commits() => None,
            Content::Pad => provisional,
            _ if mounting => provisional.or(Some(offset)),
            _ => provisional,
        };
        let is_full = block.frontier == config.pages;
        assert!(
            !is_full || provisional.is_none(),
            "a block is closed before its pages are committed"
        );
        block.used = if is_full {
            Use::Full
        } else {
            Use::Open {
                stream,
                provisional,
            }
        };
    }

    /// A checkpoint names the valid pages, contains every program so far, and need not look into
    /// closed blocks again. Code: `ftl-core/src/checkpoint/writer.rs`:
    /// `begin_checkpoint`, `write_chunk`.
    fn note_set(&mut self, slot: u8) {
        for block in &mut self.blocks {
            let closed = !matches!(
                block.used,
                Use::Free { .. } | Use::Open { .. } | Use::Unknown
            );
            block.before |= (closed as u8) << slot;
            for page in block.pages[..block.frontier as usize]
                .iter_mut()
                .filter(|page| page.data().is_some())
            {
                page.known |= 1 << slot;
                page.named |= (page.valid as u8) << slot;
            }
        }
    }

    /// Code: `nand-model/src/chip/erase.rs`: `erase`, `cut_erase`.
    fn erase(&mut self, at: usize, fate: Fate) {
        let block = &mut self.blocks[at];
        match fate {
            Fate::Done => {
                block.erase();
                block.used = Use::Free { confirmed: true };
            }
            Fate::EraseCut(EraseCut::NotStarted) => {}
            Fate::EraseCut(EraseCut::Complete) => block.erase(),
            Fate::EraseCut(EraseCut::LooksBlank) => {
                block.erase();
                block.weak = true;
            }
            Fate::EraseCut(EraseCut::Mixed(kept)) => {
                (0..MAX_PAGES)
                    .filter(|page| kept >> page & 1 == 0)
                    .for_each(|page| lose(&mut block.pages[page]));
                block.weak = true;
            }
            Fate::ProgramCut(..) => unreachable!("a program's fate"),
        }
    }

    /// What may become of an operation.
    pub fn fates(&self, config: &Config, op: Op) -> Vec<Fate> {
        let mut fates = vec![Fate::Done];
        if self.cuts == 0 {
            return fates;
        }
        match op {
            Op::Program(_, at, content) => {
                let block = &self.blocks[at];
                let holds = |page: u32| block.pages[page as usize].has_record();
                let has_partner = config.pairs.victims(block.frontier as u32).any(holds);
                let pages = [ProgramCut::Lost, ProgramCut::Unstable, ProgramCut::Complete];
                let torn = matches!(content, Content::Data(_)).then_some(ProgramCut::DataTorn);
                fates.push(Fate::ProgramCut(ProgramCut::NotStarted, PartnerCut::Intact));
                for page in pages.into_iter().chain(torn) {
                    fates.push(Fate::ProgramCut(page, PartnerCut::Intact));
                    if has_partner {
                        fates.push(Fate::ProgramCut(page, PartnerCut::Unstable));
                        fates.push(Fate::ProgramCut(page, PartnerCut::Lost));
                    }
                }
            }
            Op::Erase(at) => {
                fates.extend(
                    [
                        EraseCut::NotStarted,
                        EraseCut::Complete,
                        EraseCut::LooksBlank,
                    ]
                    .map(Fate::EraseCut),
                );
                let pages = &self.blocks[at].pages;
                let mask = |keep: &dyn Fn(&Page) -> bool| {
                    (0..MAX_PAGES)
                        .filter(|page| keep(&pages[*page]))
                        .fold(0u16, |mask, page| mask | 1 << page)
                };
                let versions = mask(&|page| page.data().is_some() || slot_of(page).is_some());
                let pads = mask(&|page| page.content == Content::Pad);
                // Every set of versions survives, with the padding and without it.
                let mut kept = versions;
                loop {
                    fates.push(Fate::EraseCut(EraseCut::Mixed(kept)));
                    if pads != 0 {
                        fates.push(Fate::EraseCut(EraseCut::Mixed(kept | pads)));
                    }
                    if kept == 0 {
                        break;
                    }
                    kept = (kept - 1) & versions;
                }
            }
        }
        fates
    }
}

/// The page can no longer be read.
pub fn lose(page: &mut Page) {
    if page.content != Content::Blank {
        *page = Page {
            content: Content::Lost,
            valid: page.valid,
            named: page.named,
            ..Page::BLANK
        };
    }
}
