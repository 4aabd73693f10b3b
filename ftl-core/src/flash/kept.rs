//! The controller's own pages, over a store that keeps no data.

use crate::format::Role;
use nand_model::{Geometry, Ppn};
use rustc_hash::FxHashMap;

/// Data of the controller's own pages (everything but host data), where the store keeps none. The
/// chip counts and times their reads as ever.
#[derive(Default)]
pub(super) struct Kept(pub(super) FxHashMap<u32, Vec<Box<[u8]>>>);

impl Kept {
    pub(super) fn put(&mut self, geometry: &Geometry, ppn: Ppn, data: &[u8]) {
        let pages = self.0.entry(geometry.block_of(ppn).raw()).or_default();
        pages.resize(geometry.pages_per_block as usize, Box::default());
        pages[geometry.offset_of(ppn) as usize] = data.into();
    }

    pub(super) fn remove(&mut self, geometry: &Geometry, ppn: Ppn) {
        if let Some(pages) = self.0.get_mut(&geometry.block_of(ppn).raw()) {
            pages[geometry.offset_of(ppn) as usize] = Box::default();
        }
    }

    /// Puts what is kept of these pages of one block into `data`, where they lie one behind the
    /// other.
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
        if let Some(own) = self.0.get(&geometry.block_of(first).raw()) {
            let page_bytes = geometry.page_bytes as usize;
            for (page, ppn) in data.chunks_mut(page_bytes).zip(pages) {
                match &own[geometry.offset_of(ppn) as usize] {
                    own if own.is_empty() => {}
                    own => page.copy_from_slice(own),
                }
            }
        }
    }

    pub(super) fn get(&self, geometry: &Geometry, ppn: Ppn) -> Option<&[u8]> {
        let page = &self.0.get(&geometry.block_of(ppn).raw())?[geometry.offset_of(ppn) as usize];
        (!page.is_empty()).then_some(page)
    }
}

/// Whether pages of the role with this number are the controller's own, which schemes read back.
#[inline]
pub(super) fn is_own(role: u8) -> bool {
    const OWN: u32 = 1 << Role::Map as u32 | 1 << Role::Trim as u32 | 1 << Role::Checkpoint as u32;
    OWN.checked_shr(role as u32).is_some_and(|own| own & 1 == 1)
}
