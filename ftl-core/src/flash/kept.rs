//! Copies of the controller's own pages, for a store that keeps no data.

use crate::format::Role;
use crate::int::index;
use nand_model::{Geometry, Pbn, Ppn};
use rustc_hash::FxHashMap;

/// Data of the controller's own pages (all but host data), for a store that keeps none. The chip
/// still counts and times their reads.
#[derive(Default)]
pub(super) struct MetadataCopies {
    /// Pages by block and offset; those without data are empty.
    blocks: FxHashMap<u32, Vec<Box<[u8]>>>,
    /// Memory of removed pages: every new mapping page replaces an old one.
    unused: Vec<Box<[u8]>>,
}

impl MetadataCopies {
    pub(super) fn put(&mut self, geometry: &Geometry, ppn: Ppn, data: &[u8]) {
        debug_assert_eq!(
            data.len(),
            geometry.page_len(),
            "data of page {ppn} is not one page long"
        );
        let pages = self
            .blocks
            .entry(geometry.block_of(ppn).raw())
            .or_insert_with(|| vec![Box::default(); geometry.block_pages()]);
        let page = &mut pages[index(geometry.offset_of(ppn))];
        if page.is_empty()
            && let Some(unused) = self.unused.pop()
        {
            *page = unused;
        }
        match page.is_empty() {
            true => *page = data.into(),
            false => page.copy_from_slice(data),
        }
    }

    pub(super) fn remove(&mut self, geometry: &Geometry, ppn: Ppn) {
        if let Some(pages) = self.blocks.get_mut(&geometry.block_of(ppn).raw()) {
            let page = std::mem::take(&mut pages[index(geometry.offset_of(ppn))]);
            if !page.is_empty() {
                self.unused.push(page);
            }
        }
    }

    /// Removes the pages of an erased block.
    pub(super) fn remove_block(&mut self, block: Pbn) {
        let pages = self.blocks.remove(&block.raw()).unwrap_or_default();
        self.unused
            .extend(pages.into_iter().filter(|page| !page.is_empty()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns all pages with their data.
    pub(super) fn into_pages(self, geometry: &Geometry) -> Vec<(Ppn, Box<[u8]>)> {
        let pages = self.blocks.into_iter().flat_map(|(block, pages)| {
            let pages = pages.into_iter().zip(0..);
            pages.map(move |(data, page)| (geometry.page(Pbn::new(block), page), data))
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
        if let Some(own) = self.blocks.get(&geometry.block_of(first).raw()) {
            let page_bytes = geometry.page_len();
            for (page, ppn) in data.chunks_mut(page_bytes).zip(pages) {
                match &own[index(geometry.offset_of(ppn))] {
                    own if own.is_empty() => {}
                    own => page.copy_from_slice(own),
                }
            }
        }
    }

    pub(super) fn get(&self, geometry: &Geometry, ppn: Ppn) -> Option<&[u8]> {
        let page = &self.blocks.get(&geometry.block_of(ppn).raw())?[index(geometry.offset_of(ppn))];
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
