//! The first bytes of every OOB and no data: for simulation, where only placement matters. No health, no checks.

use super::{BlockFacts, Health, Store};
use crate::addr::{Pbn, Ppn};
use crate::geometry::Geometry;
use std::io;

/// OOB bytes kept of every page: the fixed record of every scheme fits.
const KEPT: usize = 32;

/// A store that keeps 32 bytes per page, and the whole OOB once a program brings more. Data reads leave the caller's buffer as it is.
#[derive(Clone, Debug)]
pub struct OobOnlyStore {
    geometry: Geometry,
    oob: Vec<[u8; KEPT]>,
    /// Bytes behind those, so many per page: as many as the longest program had so far.
    tails: Vec<u8>,
    tail: usize,
}

impl OobOnlyStore {
    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        OobOnlyStore { geometry, oob: vec![[0xFF; KEPT]; geometry.page_slots()], tails: Vec::new(), tail: 0 }
    }
}

impl OobOnlyStore {
    /// What a page's OOB has behind the first [`KEPT`] bytes.
    fn read_tail(&self, ppn: Ppn, oob: &mut [u8]) {
        let Some(to) = oob.get_mut(KEPT..) else { return };
        let from = &self.tails[ppn.index() * self.tail..][..self.tail];
        let kept = from.len().min(to.len());
        to[..kept].copy_from_slice(&from[..kept]);
        to[kept..].fill(0xFF);
    }

    fn program_tail(&mut self, ppn: Ppn, oob: &[u8]) {
        let Some(from) = oob.get(KEPT..) else { return };
        if from.len() > self.tail {
            self.widen(from.len());
        }
        let to = &mut self.tails[ppn.index() * self.tail..][..self.tail];
        to[..from.len()].copy_from_slice(from);
        to[from.len()..].fill(0xFF);
    }

    #[cold]
    fn widen(&mut self, tail: usize) {
        let mut tails = vec![0xFF; self.geometry.page_slots() * tail];
        if self.tail > 0 {
            let pages = self.tails.chunks_exact(self.tail).zip(tails.chunks_exact_mut(tail));
            pages.for_each(|(from, to)| to[..from.len()].copy_from_slice(from));
        }
        (self.tails, self.tail) = (tails, tail);
    }
}

/// Copies as many bytes as both sides have, at most [`KEPT`]. A record fits one or two 16-byte moves, which overlap; a call of
/// memcpy with a length known only at run time costs more than all else in here.
#[inline(always)]
fn copy_head(from: &[u8], to: &mut [u8]) {
    const HALF: usize = KEPT / 2;
    let len = from.len().min(to.len()).min(KEPT);
    let (from, to) = (&from[..len], &mut to[..len]);
    match (from.first_chunk::<HALF>(), from.last_chunk::<HALF>()) {
        (Some(head), Some(tail)) => {
            let (head, tail) = (*head, *tail);
            to[..HALF].copy_from_slice(&head);
            to[len - HALF..].copy_from_slice(&tail);
        }
        _ => to.copy_from_slice(from),
    }
}

impl Store for OobOnlyStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        let erased = vec![0; self.geometry.pages_per_block as usize];
        self.geometry.all_blocks().for_each(|block| each(block, BlockFacts::default(), &erased));
        Ok(())
    }

    #[inline]
    fn read(&mut self, first: Ppn, _data: &mut [u8], oobs: &mut [u8], health: &mut [Health]) -> io::Result<()> {
        health.fill(Health::Good);
        let part = oobs.len() / health.len();
        if part > 0 {
            let kept = &self.oob[first.index()..][..health.len()];
            kept.iter().zip(oobs.chunks_exact_mut(part)).for_each(|(from, to)| copy_head(from, to));
        }
        if part > KEPT {
            let pages = (first.raw()..).map(Ppn::new);
            pages.zip(oobs.chunks_exact_mut(part)).for_each(|(ppn, oob)| self.read_tail(ppn, oob));
        }
        Ok(())
    }

    #[inline]
    fn read_pages(&mut self, pages: &[Ppn], _: &mut [u8], oobs: &mut [u8], health: &mut [Health]) -> io::Result<()> {
        health.fill(Health::Good);
        let part = oobs.len() / pages.len();
        if let (KEPT, (slots, [])) = (part, oobs.as_chunks_mut::<KEPT>()) {
            pages.iter().zip(slots).for_each(|(ppn, to)| *to = self.oob[ppn.index()]);
        } else if part > 0 {
            for (ppn, to) in pages.iter().zip(oobs.chunks_exact_mut(part)) {
                copy_head(&self.oob[ppn.index()], to);
                self.read_tail(*ppn, to);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn program(&mut self, first: Ppn, count: u32, _data: &[u8], oobs: &[u8]) -> io::Result<()> {
        let part = oobs.len() / count as usize;
        if let (KEPT, (slots, [])) = (part, oobs.as_chunks::<KEPT>()) {
            match slots {
                // In words, as it was written a moment ago: a wider load would have to wait for them.
                [slot] => {
                    let words = slot.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                    let kept = self.oob[first.index()].as_chunks_mut().0;
                    kept.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
                }
                slots => self.oob[first.index()..][..slots.len()].copy_from_slice(slots),
            }
            if self.tail > 0 {
                self.tails[first.index() * self.tail..][..count as usize * self.tail].fill(0xFF);
            }
        } else if part > 0 {
            let kept = &mut self.oob[first.index()..][..count as usize];
            kept.iter_mut().zip(oobs.chunks_exact(part)).for_each(|(to, from)| copy_head(from, to));
            if part > KEPT {
                let pages = (first.raw()..).map(Ppn::new);
                pages.zip(oobs.chunks_exact(part)).for_each(|(ppn, oob)| self.program_tail(ppn, oob));
            }
        }
        Ok(())
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.oob[ppn.index()].iter_mut().zip(oob).for_each(|(have, new)| *have &= new);
        Ok(())
    }

    fn set_health(&mut self, _ppn: Ppn, _health: Health) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn erase(&mut self, _block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        Ok(())
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn set_facts(&mut self, _block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        Ok(())
    }
}
