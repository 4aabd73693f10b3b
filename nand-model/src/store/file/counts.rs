//! Program counts of every page, in RAM.
//!
//! Invariant: a programmed page is counted when its operation's number is published, or a batch
//! keeps it. A clean close writes the counts next to the table; any other open computes them from
//! the records.

use crate::convert::{index, to_u16, to_u32};
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
        let (blocks, pages) = (geometry.block_slots(), geometry.block_pages());
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
        debug_assert_eq!(out.len(), self.pages, "a count for each page of a block");
        if self.programs.is_empty() {
            let frontier = usize::from(self.frontier[block]);
            out[..frontier].fill(1);
            out[frontier..].fill(0);
        } else {
            out.copy_from_slice(&self.programs[block * self.pages..][..self.pages]);
        }
    }

    pub(super) fn set(&mut self, block: usize, counts: &[u8]) {
        assert_eq!(counts.len(), self.pages, "a count for each page of a block");
        if self.programs.is_empty() {
            self.frontier[block] = counts
                .iter()
                .rposition(|&n| n > 0)
                .map_or(0, |last| to_u16(to_u32(last)) + 1);
        } else {
            self.programs[block * self.pages..][..self.pages].copy_from_slice(counts);
        }
    }

    #[inline]
    pub(super) fn note_programs(&mut self, block: usize, first: u32, count: u32) {
        debug_assert!(
            index(first + count) <= self.pages,
            "{count} pages from {first} on leave their block"
        );
        if self.programs.is_empty() {
            let frontier = &mut self.frontier[block];
            *frontier = (*frontier).max(to_u16(first + count));
        } else {
            self.programs[block * self.pages + index(first)..][..index(count)].fill(1);
        }
    }

    /// Sets the program count of one page, on a part that programs pages more than once.
    pub(super) fn set_programs(&mut self, block: usize, page: u32, programs: u8) {
        assert!(index(page) < self.pages, "page {page} of {}", self.pages);
        self.programs[block * self.pages + index(page)] = programs;
    }

    /// Whether some of these pages may be programmed already. Only injected faults cause this.
    #[inline]
    pub(super) fn may_hold(&self, block: usize, first: u32, count: u32) -> bool {
        if self.programs.is_empty() {
            return u32::from(self.frontier[block]) > first;
        }
        !is_zero(&self.programs[block * self.pages + index(first)..][..index(count)])
    }

    pub(super) fn clear(&mut self, block: usize) {
        if self.programs.is_empty() {
            self.frontier[block] = 0;
        } else {
            self.programs[block * self.pages..][..self.pages].fill(0);
        }
    }

    /// Whether no page of the block can be programmed again.
    pub(super) fn is_full(&self, block: usize) -> bool {
        self.programs.is_empty() && usize::from(self.frontier[block]) == self.pages
    }

    pub(super) fn is_blank(&self, block: usize) -> bool {
        if self.programs.is_empty() {
            return self.frontier[block] == 0;
        }
        is_zero(&self.programs[block * self.pages..][..self.pages])
    }
}
