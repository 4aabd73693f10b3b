//! Pages of a store in memory, shared by its clones. What is shared is never changed: a store that
//! changes a block gets a list of its pages of its own, and their data stays shared.

use crate::store::contents::TAG_NONE;
use std::sync::Arc;

/// A programmed page.
#[derive(Clone, Copy, Debug)]
pub struct MemPage<'a> {
    /// Number of its program: below [`MemStore::APART`](super::MemStore::APART), no other one of
    /// this store or of a clone has it.
    pub program: u64,
    /// Its data.
    pub data: &'a [u8],
    /// The first bytes of its OOB; the rest is erased.
    pub oob: &'a [u8],
}

/// The pages of one block.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    pub(super) programs: Vec<u8>,
    /// Per page; [`TAG_NONE`] while it is blank.
    pub(super) tags: Vec<u32>,
    /// The first `oob_bytes` of the OOB of each page; the rest of it is erased.
    oobs: Vec<u8>,
    oob_bytes: usize,
    /// Number of the program of each page, undefined while it is blank.
    numbers: Vec<u64>,
    /// `None` while blank.
    data: Vec<Option<Arc<[u8]>>>,
}

impl Pages {
    pub(super) fn blank(pages: usize) -> Pages {
        Pages {
            programs: vec![0; pages],
            tags: vec![TAG_NONE; pages],
            oobs: Vec::new(),
            oob_bytes: 0,
            numbers: vec![0; pages],
            data: vec![None; pages],
        }
    }

    /// Returns a page; `None` while it is blank.
    #[inline]
    pub(super) fn page(&self, page: usize) -> Option<MemPage<'_>> {
        let data = self.data[page].as_deref()?;
        Some(MemPage {
            program: self.numbers[page],
            data,
            oob: &self.oobs[page * self.oob_bytes..][..self.oob_bytes],
        })
    }

    /// Programs a blank page.
    pub(super) fn program(&mut self, page: usize, data: &[u8], oob: &[u8], tag: u32, number: u64) {
        self.data[page] = Some(data.into());
        self.numbers[page] = number;
        self.tags[page] = tag;
        self.programs[page] = 1;
        self.oob_mut(page, oob.len())[..oob.len()].copy_from_slice(oob);
    }

    /// Programs over the OOB of a page that is not blank.
    pub(super) fn and_oob(&mut self, page: usize, oob: &[u8]) {
        self.programs[page] += 1;
        let have = self.oob_mut(page, oob.len()).iter_mut();
        have.zip(oob).for_each(|(have, new)| *have &= new);
    }

    /// The first bytes of a page's OOB, at least so many.
    fn oob_mut(&mut self, page: usize, least: usize) -> &mut [u8] {
        if self.oob_bytes < least {
            let mut oobs = vec![0xFF; self.data.len() * least];
            let old = self.oobs.chunks_exact(self.oob_bytes.max(1));
            let new = oobs.chunks_exact_mut(least);
            old.zip(new)
                .for_each(|(old, new)| new[..old.len()].copy_from_slice(old));
            (self.oobs, self.oob_bytes) = (oobs, least);
        }
        &mut self.oobs[page * self.oob_bytes..][..self.oob_bytes]
    }
}

impl MemPage<'_> {
    /// Copies the first bytes of the OOB.
    #[inline]
    pub(super) fn copy_oob(&self, to: &mut [u8]) {
        let known = self.oob.len().min(to.len());
        to[..known].copy_from_slice(&self.oob[..known]);
        to[known..].fill(0xFF);
    }
}
