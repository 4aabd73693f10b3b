//! Copies of the controller's own pages, for a store that keeps no data.

use crate::format::Role;
use crate::int::index;
use nand_model::{Geometry, Pbn, Ppn};

/// Data of the controller's own pages (all but host data), for a store that keeps none. The chip
/// still counts and times their reads.
#[derive(Default)]
pub(super) struct MetadataCopies {
    /// By block, its pages by offset, or none at all; pages without data are empty.
    blocks: Vec<Vec<Box<[u8]>>>,
    /// Number of pages with data.
    kept: usize,
    /// Memory of removed pages: every new mapping page replaces an old one.
    unused: Vec<Box<[u8]>>,
    /// Lists of erased blocks, with empty pages.
    unused_lists: Vec<Vec<Box<[u8]>>>,
}

impl MetadataCopies {
    pub(super) fn put(&mut self, geometry: &Geometry, ppn: Ppn, data: &[u8]) {
        debug_assert_eq!(
            data.len(),
            geometry.page_len(),
            "data of page {ppn} is not one page long"
        );
        let page = match self.unused.pop() {
            Some(mut unused) => {
                unused.copy_from_slice(data);
                unused
            }
            None => data.into(),
        };
        self.insert(geometry, ppn, page);
    }

    /// Makes the copy of `from` that of `to`, and changes these words in it.
    pub(super) fn change_owner(
        &mut self,
        geometry: &Geometry,
        from: Ppn,
        to: Ppn,
        changes: &[(u32, u32)],
    ) {
        let mut page = self.take(geometry, from);
        assert!(!page.is_empty(), "page {from} has no copy");
        for (number, word) in changes {
            set_word(&mut page, *number, *word);
        }
        self.insert(geometry, to, page);
    }

    /// Makes the copies of these pages of one block those of the pages from `to` on, in another.
    pub(super) fn change_owners(&mut self, geometry: &Geometry, from: &[Ppn], to: Ppn) {
        let Some(first) = from.first() else { return };
        let (block, offset) = (geometry.block_of(*first), geometry.offset_of(to));
        let mut source = std::mem::take(&mut self.blocks[block.index()]);
        let target = &mut self.pages_of(geometry, geometry.block_of(to))[index(offset)..];
        for (from, place) in from.iter().zip(target) {
            let page = &mut source[index(geometry.offset_of(*from))];
            assert!(!page.is_empty(), "page {from} has no copy");
            // What an earlier life left here goes when the block of the sources is erased.
            std::mem::swap(page, place);
        }
        self.blocks[block.index()] = source;
    }

    /// Keeps these bytes as the copy of a page, in exchange for unused ones.
    pub(super) fn exchange(&mut self, geometry: &Geometry, ppn: Ppn, bytes: &mut Box<[u8]>) {
        let other = match self.unused.pop() {
            Some(unused) => unused,
            None => vec![0; bytes.len()].into(),
        };
        let page = std::mem::replace(bytes, other);
        self.insert(geometry, ppn, page);
    }

    fn insert(&mut self, geometry: &Geometry, ppn: Ppn, page: Box<[u8]>) {
        let pages = self.pages_of(geometry, geometry.block_of(ppn));
        let old = std::mem::replace(&mut pages[index(geometry.offset_of(ppn))], page);
        self.kept += 1;
        self.release(old);
    }

    /// Returns the pages of a block that gets a page.
    fn pages_of(&mut self, geometry: &Geometry, block: Pbn) -> &mut [Box<[u8]>] {
        let block = block.index();
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, Vec::new);
        }
        let pages = &mut self.blocks[block];
        if pages.is_empty() {
            let unused = self.unused_lists.pop();
            *pages = unused.unwrap_or_else(|| vec![Box::default(); geometry.block_pages()]);
        }
        pages
    }

    fn take(&mut self, geometry: &Geometry, ppn: Ppn) -> Box<[u8]> {
        let pages = self.blocks.get_mut(geometry.block_of(ppn).index());
        let page = pages.and_then(|pages| pages.get_mut(index(geometry.offset_of(ppn))));
        let page = page.map(std::mem::take).unwrap_or_default();
        self.kept -= usize::from(!page.is_empty());
        page
    }

    /// Keeps the memory of a page that was replaced.
    fn release(&mut self, page: Box<[u8]>) {
        if !page.is_empty() {
            self.kept -= 1;
            self.unused.push(page);
        }
    }

    pub(super) fn remove(&mut self, geometry: &Geometry, ppn: Ppn) {
        let page = self.take(geometry, ppn);
        if !page.is_empty() {
            self.unused.push(page);
        }
    }

    /// Removes the pages of an erased block.
    pub(super) fn remove_block(&mut self, block: Pbn) {
        let Some(pages) = self.blocks.get_mut(block.index()) else {
            return;
        };
        let mut pages = std::mem::take(pages);
        if !pages.is_empty() {
            for page in &mut pages {
                self.release(std::mem::take(page));
            }
            self.unused_lists.push(pages);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// Returns all pages with their data.
    pub(super) fn into_pages(self, geometry: &Geometry) -> Vec<(Ppn, Box<[u8]>)> {
        let blocks = (0..).map(Pbn::new).zip(self.blocks);
        let pages = blocks.flat_map(|(block, pages)| {
            let pages = pages.into_iter().zip(0..);
            pages.map(move |(data, page)| (geometry.page(block, page), data))
        });
        pages.filter(|(_, data)| !data.is_empty()).collect()
    }

    /// Copies the kept data of these pages of one block into `data`, consecutively.
    #[inline]
    pub(super) fn restore(
        &self,
        geometry: &Geometry,
        pages: impl Iterator<Item = Ppn> + Clone,
        data: &mut [u8],
    ) {
        let Some(first) = pages.clone().next() else {
            return;
        };
        if let Some(own) = self.blocks.get(geometry.block_of(first).index())
            && !own.is_empty()
        {
            let page_bytes = geometry.page_len();
            for (page, ppn) in data.chunks_mut(page_bytes).zip(pages) {
                match &own[index(geometry.offset_of(ppn))] {
                    own if own.is_empty() => {}
                    own => page.copy_from_slice(own),
                }
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, geometry: &Geometry, ppn: Ppn) -> Option<&[u8]> {
        let pages = self.blocks.get(geometry.block_of(ppn).index())?;
        let page = pages.get(index(geometry.offset_of(ppn)))?;
        (!page.is_empty()).then_some(page)
    }
}

/// Returns whether pages of the role with this number are the controller's own, which schemes read
/// back.
#[inline]
pub(super) fn is_own(role: u8) -> bool {
    const OWN: u32 =
        1 << Role::Map.index() | 1 << Role::Trim.index() | 1 << Role::Checkpoint.index();
    OWN.checked_shr(u32::from(role))
        .is_some_and(|own| own & 1 == 1)
}

/// Replaces a word of four bytes, little endian.
#[inline]
pub(super) fn set_word(page: &mut [u8], number: u32, word: u32) {
    page[4 * number as usize..][..4].copy_from_slice(&word.to_le_bytes());
}
