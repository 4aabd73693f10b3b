//! How often each page of every block was programmed, in RAM.
//!
//! What always holds: a page that an operation programmed is counted once that operation's number
//! is published. Nothing here is on the disk: a clean close writes the counts beside the table, any
//! other open works them out from the records.

use crate::image::{ImageInfo, is_zero};
use crate::profile::PageOrder;

/// How often each page was programmed, in the smallest form the page order allows.
#[derive(Debug)]
pub(super) struct Counts {
    pages: usize,
    /// Programmed pages per block, where pages are programmed once and in order.
    frontier: Vec<u16>,
    /// Programs per page, elsewhere.
    programs: Vec<u8>,
}

impl Counts {
    pub(super) fn new(info: &ImageInfo) -> Self {
        let geometry = info.profile.geometry;
        let (blocks, pages) = (geometry.blocks as usize, geometry.pages_per_block as usize);
        if info.profile.order == PageOrder::Consecutive && info.profile.nop == 1 {
            return Counts {
                pages,
                frontier: vec![0; blocks],
                programs: Vec::new(),
            };
        }
        Counts {
            pages,
            frontier: Vec::new(),
            programs: vec![0; blocks * pages],
        }
    }

    pub(super) fn of(&self, block: usize, out: &mut [u8]) {
        if self.programs.is_empty() {
            let frontier = self.frontier[block] as usize;
            out[..frontier].fill(1);
            out[frontier..].fill(0);
        } else {
            out.copy_from_slice(&self.programs[block * self.pages..][..self.pages]);
        }
    }

    pub(super) fn set(&mut self, block: usize, counts: &[u8]) {
        if self.programs.is_empty() {
            self.frontier[block] = counts
                .iter()
                .rposition(|&n| n > 0)
                .map_or(0, |last| last as u16 + 1);
        } else {
            self.programs[block * self.pages..][..self.pages].copy_from_slice(counts);
        }
    }

    #[inline]
    pub(super) fn note_programs(&mut self, block: usize, first: u32, count: u32) {
        if self.programs.is_empty() {
            let frontier = &mut self.frontier[block];
            *frontier = (*frontier).max((first + count) as u16);
        } else {
            self.programs[block * self.pages + first as usize..][..count as usize].fill(1);
        }
    }

    /// Notes how often one page was programmed, on a part that programs pages more than once.
    pub(super) fn set_programs(&mut self, block: usize, page: u32, programs: u8) {
        self.programs[block * self.pages + page as usize] = programs;
    }

    /// Whether some of these pages may hold something already. Never, but for injected faults.
    #[inline]
    pub(super) fn may_hold(&self, block: usize, first: u32, count: u32) -> bool {
        if self.programs.is_empty() {
            return self.frontier[block] as u32 > first;
        }
        !is_zero(&self.programs[block * self.pages + first as usize..][..count as usize])
    }

    pub(super) fn clear(&mut self, block: usize) {
        if self.programs.is_empty() {
            self.frontier[block] = 0;
        } else {
            self.programs[block * self.pages..][..self.pages].fill(0);
        }
    }

    pub(super) fn is_blank(&self, block: usize) -> bool {
        if self.programs.is_empty() {
            return self.frontier[block] == 0;
        }
        is_zero(&self.programs[block * self.pages..][..self.pages])
    }
}
