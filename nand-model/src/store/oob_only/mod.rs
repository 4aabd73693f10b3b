//! A store of the first bytes of every OOB and no data: for simulation, which needs only placement.
//! No health, no checks.
//!
//! A simulation's speed depends on how much of this store is in the processor's caches. So for
//! every page only the first half of the OOB's first 32 bytes is kept, which differs between pages
//! of a block. The second half is mostly equal in all pages of a block and is kept once; the few
//! exceptions are kept separately. If these become many, every page gets its own second half.

use super::contents::{BlockFacts, Health};
use super::interface::Store;
use crate::addr::{Pbn, Ppn};
use crate::convert::{index, to_u32};
use crate::geometry::{Geometry, PageSplit};
use std::collections::BTreeMap;
use std::io;

/// OOB bytes kept per page: the fixed record of every scheme fits.
const SLOT: usize = 32;

/// Half of those, in words, as the caller has just written them. A wider load would stall on those
/// stores.
type Half = [u64; 2];

const ERASED: Half = [u64::MAX; 2];

/// When more than one page in this many has its own second half, all pages get one.
const PAGES_PER_OTHER: usize = 64;

/// A store of 32 bytes per page, and of the whole OOB after a longer program. Data reads do not
/// change the caller's buffer.
#[derive(Clone, Debug)]
pub struct OobOnlyStore {
    geometry: Geometry,
    split: PageSplit,
    /// First half of each page's OOB area.
    first_halves: Vec<Half>,
    second_halves: SecondHalves,
    /// Further OOB bytes per page: as many as the longest program had so far.
    tails: Vec<u8>,
    tail: usize,
    /// Data that the last owner left.
    left: Vec<(Ppn, Box<[u8]>)>,
}

#[derive(Clone, Debug)]
enum SecondHalves {
    /// One half per block, and the halves of pages that differ from their block.
    Shared(Vec<Shared>, BTreeMap<Ppn, Half>),
    /// One half per page.
    Own(Vec<Half>),
}

/// The second half that pages of a block share.
#[derive(Clone, Copy, Debug)]
struct Shared {
    half: Half,
    pages: Pages,
}

/// The pages of a block that were programmed since its erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// None: the first one determines the shared half.
    Erased,
    /// All have the shared half.
    Alike,
    /// Some have their own.
    Mixed,
}

impl Shared {
    const ERASED: Shared = Shared {
        half: ERASED,
        pages: Pages::Erased,
    };
}

impl OobOnlyStore {
    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        let shared = vec![Shared::ERASED; geometry.block_slots()];
        OobOnlyStore {
            geometry,
            split: geometry.split(),
            first_halves: vec![ERASED; geometry.page_slots()],
            second_halves: SecondHalves::Shared(shared, BTreeMap::new()),
            tails: Vec::new(),
            tail: 0,
            left: Vec::new(),
        }
    }
}

impl OobOnlyStore {
    #[inline]
    fn slot(&self, ppn: Ppn) -> [u8; SLOT] {
        let second = match &self.second_halves {
            SecondHalves::Shared(blocks, others) => {
                let Shared { half, pages } = blocks[self.split.block_of(ppn).index()];
                match pages {
                    Pages::Mixed => *others.get(&ppn).unwrap_or(&half),
                    _ => half,
                }
            }
            SecondHalves::Own(halves) => halves[ppn.index()],
        };
        join(self.first_halves[ppn.index()], second)
    }

    /// The second half of all pages of a block, if they are equal.
    #[inline]
    fn shared(&self, block: Pbn) -> Option<Half> {
        match &self.second_halves {
            SecondHalves::Shared(blocks, _) => {
                Some(blocks[block.index()]).filter(|shared| shared.pages != Pages::Mixed)
            }
            SecondHalves::Own(_) => None,
        }
        .map(|shared| shared.half)
    }

    /// Prefetches all cache lines with records of these ascending pages, so that they load in
    /// parallel.
    #[inline]
    fn fetch_lines(&self, pages: &[Ppn]) {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return;
        };
        let lines = self.first_halves[first.index()..=last.index()]
            .iter()
            .step_by(64 / size_of::<Half>());
        std::hint::black_box(lines.fold(0, |sum, half| sum ^ half[0]));
    }

    /// Reads the first `oob.len()` bytes of a page's OOB.
    fn read_oob(&self, ppn: Ppn, oob: &mut [u8]) {
        let kept = oob.len().min(SLOT);
        oob[..kept].copy_from_slice(&self.slot(ppn)[..kept]);
        self.read_tail(ppn, oob);
    }

    #[inline(always)]
    fn program_slots(&mut self, first: Ppn, slots: &[[u8; SLOT]]) {
        debug_assert!(!slots.is_empty(), "a program of no page");
        let kept = &mut self.first_halves[first.index()..][..slots.len()];
        match &mut self.second_halves {
            SecondHalves::Shared(blocks, _) => {
                let shared = &mut blocks[self.split.block_of(first).index()];
                if shared.pages == Pages::Erased {
                    let half = split(&slots[0]).1;
                    let pages = Pages::Alike;
                    *shared = Shared { half, pages };
                }
                // By word: the compiler keeps both differences in one register.
                let mut differences = [0; 2];
                for (kept, slot) in kept.iter_mut().zip(slots) {
                    let second;
                    (*kept, second) = split(slot);
                    differences[0] |= second[0] ^ shared.half[0];
                    differences[1] |= second[1] ^ shared.half[1];
                }
                if differences[0] | differences[1] != 0 || shared.pages == Pages::Mixed {
                    self.program_mixed(first, slots);
                }
            }
            SecondHalves::Own(halves) => {
                let halves = &mut halves[first.index()..][..slots.len()];
                for (slot, halves) in slots.iter().zip(kept.iter_mut().zip(halves)) {
                    (*halves.0, *halves.1) = split(slot);
                }
            }
        }
    }

    /// Programs second halves in a block whose pages differ.
    #[cold]
    fn program_mixed(&mut self, first: Ppn, slots: &[[u8; SLOT]]) {
        let SecondHalves::Shared(blocks, others) = &mut self.second_halves else {
            return;
        };
        let shared = &mut blocks[self.split.block_of(first).index()];
        shared.pages = Pages::Mixed;
        for (ppn, slot) in (first.raw()..).map(Ppn::new).zip(slots) {
            match split(slot).1 {
                half if half == shared.half => others.remove(&ppn),
                half => others.insert(ppn, half),
            };
        }
        if others.len() > self.first_halves.len() / PAGES_PER_OTHER {
            let pages = Ppn::new(0).run(to_u32(self.first_halves.len()));
            self.second_halves =
                SecondHalves::Own(pages.map(|ppn| split(&self.slot(ppn)).1).collect());
        }
    }

    /// Reads a page's OOB behind the first [`SLOT`] bytes.
    fn read_tail(&self, ppn: Ppn, oob: &mut [u8]) {
        let Some(to) = oob.get_mut(SLOT..) else {
            return;
        };
        let from = &self.tails[ppn.index() * self.tail..][..self.tail];
        let kept = from.len().min(to.len());
        to[..kept].copy_from_slice(&from[..kept]);
        to[kept..].fill(0xFF);
    }

    fn program_tail(&mut self, ppn: Ppn, oob: &[u8]) {
        let from = oob.get(SLOT..).unwrap_or_default();
        if from.len() > self.tail {
            self.widen(from.len());
        }
        let to = &mut self.tails[ppn.index() * self.tail..][..self.tail];
        to[..from.len()].copy_from_slice(from);
        to[from.len()..].fill(0xFF);
    }

    /// Programs any number of OOB bytes of a page.
    fn program_oob(&mut self, ppn: Ppn, oob: &[u8]) {
        let mut slot = [0xFF; SLOT];
        let kept = oob.len().min(SLOT);
        slot[..kept].copy_from_slice(&oob[..kept]);
        self.program_slots(ppn, &[slot]);
        self.program_tail(ppn, oob);
    }

    #[cold]
    fn widen(&mut self, tail: usize) {
        assert!(tail > self.tail, "tails of {} bytes get {tail}", self.tail);
        let mut tails = vec![0xFF; self.geometry.page_slots() * tail];
        if self.tail > 0 {
            let pages = self
                .tails
                .chunks_exact(self.tail)
                .zip(tails.chunks_exact_mut(tail));
            pages.for_each(|(from, to)| to[..from.len()].copy_from_slice(from));
        }
        (self.tails, self.tail) = (tails, tail);
    }
}

/// Joins both halves of a slot.
#[inline(always)]
fn join(first: Half, second: Half) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let words = slot
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip([first, second].into_iter().flatten());
    words.for_each(|(to, word)| *to = word.to_le_bytes());
    slot
}

/// Splits a slot into its halves.
#[inline(always)]
fn split(slot: &[u8; SLOT]) -> (Half, Half) {
    let word = |i: usize| u64::from_le_bytes(slot.as_chunks().0[i]);
    ([word(0), word(1)], [word(2), word(3)])
}

impl Store for OobOnlyStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        let erased = vec![0; self.geometry.block_pages()];
        self.geometry
            .all_blocks()
            .for_each(|block| each(block, BlockFacts::default(), &erased));
        Ok(())
    }

    #[inline]
    fn read(
        &mut self,
        first: Ppn,
        _data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        health.fill(Health::Good);
        let part = oobs.len() / health.len();
        if part > 0 {
            let pages = (first.raw()..).map(Ppn::new);
            pages
                .zip(oobs.chunks_exact_mut(part))
                .for_each(|(ppn, oob)| self.read_oob(ppn, oob));
        }
        Ok(())
    }

    #[inline]
    fn read_pages(
        &mut self,
        pages: &[Ppn],
        _: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        health.fill(Health::Good);
        let part = oobs.len() / pages.len();
        debug_assert!(
            pages
                .iter()
                .all(|ppn| self.split.block_of(*ppn) == self.split.block_of(pages[0])),
            "pages that are read at once are of one block"
        );
        let shared = self.shared(self.split.block_of(pages[0]));
        if let (SLOT, (slots, []), Some(second)) = (part, oobs.as_chunks_mut::<SLOT>(), shared) {
            self.fetch_lines(pages);
            pages
                .iter()
                .zip(slots)
                .for_each(|(ppn, to)| *to = join(self.first_halves[ppn.index()], second));
        } else if part > 0 {
            pages
                .iter()
                .zip(oobs.chunks_exact_mut(part))
                .for_each(|(ppn, oob)| self.read_oob(*ppn, oob));
        }
        Ok(())
    }

    #[inline(always)]
    fn program(&mut self, first: Ppn, count: u32, _data: &[u8], oobs: &[u8]) -> io::Result<()> {
        let part = oobs.len() / index(count);
        if let (SLOT, (slots, []), 0) = (part, oobs.as_chunks(), self.tail) {
            self.program_slots(first, slots);
        } else {
            let pages = first.run(count);
            pages
                .enumerate()
                .for_each(|(i, ppn)| self.program_oob(ppn, &oobs[i * part..][..part]));
        }
        Ok(())
    }

    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], _health: Health) -> io::Result<()> {
        self.program(ppn, 1, data, oob)
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        let mut slot = self.slot(ppn);
        slot.iter_mut()
            .zip(oob)
            .for_each(|(have, new)| *have &= new);
        self.program_slots(ppn, &[slot]);
        Ok(())
    }

    fn set_health(&mut self, _ppn: Ppn, _health: Health) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn erase(&mut self, block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        if let SecondHalves::Shared(blocks, others) = &mut self.second_halves {
            let shared = std::mem::replace(&mut blocks[block.index()], Shared::ERASED);
            if shared.pages == Pages::Mixed {
                others.retain(|ppn, _| self.split.block_of(*ppn) != block);
            }
        }
        Ok(())
    }

    fn leave_data(&mut self, pages: Vec<(Ppn, Box<[u8]>)>) {
        self.left = pages;
    }

    fn take_data(&mut self) -> Vec<(Ppn, Box<[u8]>)> {
        std::mem::take(&mut self.left)
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn set_facts(&mut self, _block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
