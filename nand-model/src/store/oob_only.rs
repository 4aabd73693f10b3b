//! The first bytes of every OOB and no data: for simulation, where only placement matters. No
//! health, no checks.
//!
//! How fast a simulation runs depends on how much of this stays in the processor's caches. So of an
//! OOB's first 32 bytes only the first half, which tells pages of one block apart, is kept for
//! every page. The second half is mostly the same all over a block and is kept once; the few pages
//! that have something else there are kept apart. If those become many, every page gets room of its
//! own.

use super::{BlockFacts, Health, Store};
use crate::addr::{Pbn, Ppn};
use crate::geometry::{Geometry, PageSplit};
use std::collections::BTreeMap;
use std::io;

/// OOB bytes kept of every page: the fixed record of every scheme fits.
const SLOT: usize = 32;

/// Half of those, in words: as a caller wrote them a moment ago. A wider load would have to wait
/// for them.
type Half = [u64; 2];

const ERASED: Half = [u64::MAX; 2];

/// One page in so many may have a second half of its own before all get room for one.
const PAGES_PER_OTHER: usize = 64;

/// A store that keeps 32 bytes per page, and the whole OOB once a program brings more. Data reads
/// leave the caller's buffer as it is.
#[derive(Clone, Debug)]
pub struct OobOnlyStore {
    geometry: Geometry,
    split: PageSplit,
    /// By page.
    first_halves: Vec<Half>,
    second_halves: SecondHalves,
    /// Bytes behind those, so many per page: as many as the longest program had so far.
    tails: Vec<u8>,
    tail: usize,
}

#[derive(Clone, Debug)]
enum SecondHalves {
    /// By block, and of the pages that have another than their block.
    Shared(Vec<Shared>, BTreeMap<Ppn, Half>),
    /// By page.
    Own(Vec<Half>),
}

/// The second half that pages of a block share.
#[derive(Clone, Copy, Debug)]
struct Shared {
    half: Half,
    /// Whether a page was programmed since the erase: the first decides.
    decided: bool,
    /// Whether some pages have another one.
    mixed: bool,
}

impl Shared {
    const ERASED: Shared = Shared {
        half: ERASED,
        decided: false,
        mixed: false,
    };
}

impl OobOnlyStore {
    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        let shared = vec![Shared::ERASED; geometry.blocks as usize];
        OobOnlyStore {
            geometry,
            split: geometry.split(),
            first_halves: vec![ERASED; geometry.page_slots()],
            second_halves: SecondHalves::Shared(shared, BTreeMap::new()),
            tails: Vec::new(),
            tail: 0,
        }
    }
}

impl OobOnlyStore {
    #[inline]
    fn slot(&self, ppn: Ppn) -> [u8; SLOT] {
        let second = match &self.second_halves {
            SecondHalves::Shared(blocks, others) => {
                match blocks[self.split.block_of(ppn).index()] {
                    Shared {
                        mixed: true, half, ..
                    } => *others.get(&ppn).unwrap_or(&half),
                    Shared { half, .. } => half,
                }
            }
            SecondHalves::Own(halves) => halves[ppn.index()],
        };
        join(self.first_halves[ppn.index()], second)
    }

    /// The second half of all pages of a block, if they have the same.
    #[inline]
    fn shared(&self, block: Pbn) -> Option<Half> {
        match &self.second_halves {
            SecondHalves::Shared(blocks, _) => {
                Some(blocks[block.index()]).filter(|shared| !shared.mixed)
            }
            SecondHalves::Own(_) => None,
        }
        .map(|shared| shared.half)
    }

    /// Asks memory for all cache lines with records of these ascending pages at once: they come
    /// while the first is waited for.
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

    /// Reads as many bytes of a page's OOB as `oob` has.
    fn read_oob(&self, ppn: Ppn, oob: &mut [u8]) {
        let kept = oob.len().min(SLOT);
        oob[..kept].copy_from_slice(&self.slot(ppn)[..kept]);
        self.read_tail(ppn, oob);
    }

    #[inline(always)]
    fn program_slots(&mut self, first: Ppn, slots: &[[u8; SLOT]]) {
        let kept = &mut self.first_halves[first.index()..][..slots.len()];
        match &mut self.second_halves {
            SecondHalves::Shared(blocks, _) => {
                let shared = &mut blocks[self.split.block_of(first).index()];
                if !shared.decided {
                    *shared = Shared {
                        half: split(&slots[0]).1,
                        decided: true,
                        mixed: false,
                    };
                }
                let mut differences = 0;
                for (kept, slot) in kept.iter_mut().zip(slots) {
                    let second;
                    (*kept, second) = split(slot);
                    differences |= (second[0] ^ shared.half[0]) | (second[1] ^ shared.half[1]);
                }
                if differences != 0 || shared.mixed {
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

    /// Second halves of pages of a block of which some have another than the rest.
    #[cold]
    fn program_mixed(&mut self, first: Ppn, slots: &[[u8; SLOT]]) {
        let SecondHalves::Shared(blocks, others) = &mut self.second_halves else {
            return;
        };
        let shared = &mut blocks[self.split.block_of(first).index()];
        shared.mixed = true;
        for (ppn, slot) in (first.raw()..).map(Ppn::new).zip(slots) {
            match split(slot).1 {
                half if half == shared.half => others.remove(&ppn),
                half => others.insert(ppn, half),
            };
        }
        if others.len() > self.first_halves.len() / PAGES_PER_OTHER {
            let pages = (0..self.first_halves.len() as u32).map(Ppn::new);
            self.second_halves =
                SecondHalves::Own(pages.map(|ppn| split(&self.slot(ppn)).1).collect());
        }
    }

    /// What a page's OOB has behind the first [`SLOT`] bytes.
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

    /// Any number of OOB bytes of a page.
    fn program_oob(&mut self, ppn: Ppn, oob: &[u8]) {
        let mut slot = [0xFF; SLOT];
        let kept = oob.len().min(SLOT);
        slot[..kept].copy_from_slice(&oob[..kept]);
        self.program_slots(ppn, &[slot]);
        self.program_tail(ppn, oob);
    }

    #[cold]
    fn widen(&mut self, tail: usize) {
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

/// The slot made of both halves.
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

/// Both halves of a slot.
#[inline(always)]
fn split(slot: &[u8; SLOT]) -> (Half, Half) {
    let word = |i: usize| u64::from_le_bytes(slot.as_chunks().0[i]);
    ([word(0), word(1)], [word(2), word(3)])
}

impl Store for OobOnlyStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        let erased = vec![0; self.geometry.pages_per_block as usize];
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
        let part = oobs.len() / count as usize;
        if let (SLOT, (slots, []), 0) = (part, oobs.as_chunks(), self.tail) {
            self.program_slots(first, slots);
        } else {
            let pages = (first.raw()..first.raw() + count).map(Ppn::new);
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
            if shared.mixed {
                others.retain(|ppn, _| self.split.block_of(*ppn) != block);
            }
        }
        Ok(())
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn set_facts(&mut self, _block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix;
    use crate::store::MemStore;

    const GEOMETRY: Geometry = Geometry {
        channels: 1,
        ways: 1,
        planes: 1,
        blocks: 16,
        pages_per_block: 16,
        page_bytes: 512,
        oob_bytes: 64,
    };

    /// OOBs whose second halves are mostly those of their block, of several lengths, programmed,
    /// marked, read and erased: they read as in a store that keeps them whole. `odd` in a hundred
    /// are different.
    fn reads_as_if_kept_whole(odd: u64, lengths: &[usize]) -> OobOnlyStore {
        let (mut small, mut whole) = (OobOnlyStore::new(GEOMETRY), MemStore::new(GEOMETRY));
        let mut rng = SplitMix::new(odd + lengths.len() as u64);
        let mut next = [0; 16];
        for _ in 0..3_000 {
            let block = rng.below(16) as u32;
            let at = next[block as usize];
            if at == 16 {
                next[block as usize] = 0;
                for store in [&mut small as &mut dyn Keeps, &mut whole] {
                    store.erase(block);
                }
                continue;
            }
            let first = GEOMETRY.page(Pbn::new(block), at);
            let count = 1 + rng.below((16 - at) as u64) as u32;
            let length = lengths[rng.below(lengths.len() as u64) as usize];
            let mut oobs = Vec::new();
            for _ in 0..count {
                let mut oob = vec![block as u8; length];
                oob.iter_mut()
                    .take(16)
                    .for_each(|byte| *byte = rng.next_u64() as u8);
                if rng.below(100) < odd {
                    oob.iter_mut()
                        .skip(16)
                        .for_each(|byte| *byte = rng.next_u64() as u8);
                }
                oobs.extend(oob);
            }
            next[block as usize] += count;
            let marked = rng.one_in(3).then(|| {
                (
                    Ppn::new(first.raw() + rng.below(count as u64) as u32),
                    rng.next_u64().to_le_bytes(),
                )
            });
            let mut read = Vec::new();
            for store in [&mut small as &mut dyn Keeps, &mut whole] {
                store.program(first, count, &oobs);
                if let Some((ppn, mark)) = &marked {
                    store.mark(*ppn, mark);
                }
                let pages: Vec<_> = (0..next[block as usize])
                    .map(|offset| GEOMETRY.page(Pbn::new(block), offset))
                    .collect();
                read.push([10, 32, 64].map(|part| {
                    (
                        store.run(pages[0], pages.len(), part),
                        store.pages(&pages, part),
                    )
                }));
            }
            assert_eq!(read[0], read[1]);
        }
        small
    }

    /// The verbs that matter here, of both stores.
    trait Keeps {
        fn program(&mut self, first: Ppn, count: u32, oobs: &[u8]);
        fn mark(&mut self, ppn: Ppn, oob: &[u8]);
        fn erase(&mut self, block: u32);
        fn run(&mut self, first: Ppn, count: usize, part: usize) -> Vec<u8>;
        fn pages(&mut self, pages: &[Ppn], part: usize) -> Vec<u8>;
    }

    impl<S: Store> Keeps for S {
        fn program(&mut self, first: Ppn, count: u32, oobs: &[u8]) {
            Store::program(self, first, count, &vec![0; count as usize * 512], oobs).unwrap();
        }
        fn mark(&mut self, ppn: Ppn, oob: &[u8]) {
            self.and_oob(ppn, oob).unwrap();
        }
        fn erase(&mut self, block: u32) {
            Store::erase(self, Pbn::new(block), BlockFacts::default()).unwrap();
        }
        fn run(&mut self, first: Ppn, count: usize, part: usize) -> Vec<u8> {
            let mut oobs = vec![0; count * part];
            self.read(first, &mut [], &mut oobs, &mut vec![Health::Good; count])
                .unwrap();
            oobs
        }
        fn pages(&mut self, pages: &[Ppn], part: usize) -> Vec<u8> {
            let mut oobs = vec![0; pages.len() * part];
            self.read_pages(
                pages,
                &mut [],
                &mut oobs,
                &mut vec![Health::Good; pages.len()],
            )
            .unwrap();
            oobs
        }
    }

    #[test]
    fn oobs_read_as_in_a_store_that_keeps_them_whole() {
        for odd in [0, 1, 100] {
            for lengths in [&[32][..], &[26, 4, 32], &[32, 40, 64, 0]] {
                let store = reads_as_if_kept_whole(odd, lengths);
                let shares = matches!(store.second_halves, SecondHalves::Shared(..));
                assert_eq!(
                    shares,
                    odd == 0 && lengths == [32],
                    "{odd} % odd, {lengths:?} bytes"
                );
            }
        }
    }

    #[test]
    fn what_it_does_not_keep_is_good_and_cannot_go_astray() {
        let mut store = OobOnlyStore::new(GEOMETRY);
        let page = |offset| GEOMETRY.page(Pbn::new(2), offset);
        store
            .program_as(page(0), &[1; 512], &[5; SLOT], Health::Lost)
            .unwrap();
        store.set_health(page(0), Health::Lost).unwrap();
        store
            .set_facts(
                Pbn::new(2),
                BlockFacts {
                    weak: true,
                    ..BlockFacts::default()
                },
            )
            .unwrap();
        let (mut oob, mut health) = ([0; SLOT], [Health::Lost]);
        store
            .read_pages(&[page(0)], &mut [], &mut oob, &mut health)
            .unwrap();
        assert_eq!((oob, health), ([5; SLOT], [Health::Good]));
        store
            .read_pages(&[page(0)], &mut [9; 512], &mut [], &mut health)
            .unwrap();
        let cells = crate::store::Cells {
            data: vec![0; 512],
            oob: vec![0; 64],
            tag: 1,
        };
        assert!(store.cells(page(0)).is_err() && store.put_cells(page(1), &cells).is_err());
        let mut blocks = 0;
        store
            .load(&mut |_, facts, counts| {
                assert_eq!((facts, counts), (BlockFacts::default(), &[0; 16][..]));
                blocks += 1;
            })
            .unwrap();
        assert_eq!(
            (blocks, store.keeps_data(), store.hour(), store.tag(page(0))),
            (16, false, 0, None)
        );
    }
}
