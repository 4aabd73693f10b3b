//! State under the request lock: the scheme, its clock and the wear scan.
//!
//! Invariants: the owner of a `Core` reference holds the lock. If power fails, the scheme's own
//! rules apply.

use super::EXTENT_PAGES;
use super::clock::Clock;
use super::snapshot::{LastWrite, Wear, WearScan};
use crate::convert::{narrow, to_u32};
use crate::device::Extent;
use crate::pages::PageIo;
use ftl_core::{Ftl, FtlError, Lpn};
use nand_model::Store;

pub(super) struct Core<S: Store> {
    pub(super) ftl: Box<dyn Ftl<S>>,
    /// Buffer of one page, for requests that cover a part of a page.
    pub(super) scratch: Vec<u8>,
    pub(super) clock: Clock,
    pub(super) scan: WearScan,
    pub(super) wear: Wear,
    /// Newest extent that the host wrote.
    pub(super) last_write: Option<LastWrite>,
}

impl<S: Store> Core<S> {
    /// Returns the erases that the store accepts before it needs a sync.
    pub(super) fn erases_left(&self) -> u32 {
        self.ftl.chip().store().erase_credit()
    }

    /// Scans the next slice of blocks; returns whether the scan has completed a round.
    pub(super) fn look_at_wear(&mut self) -> bool {
        match self.scan.slice(&*self.ftl) {
            Some(wear) => {
                self.wear = wear;
                true
            }
            None => false,
        }
    }

    pub(super) fn page_bytes(&self) -> u32 {
        to_u32(self.scratch.len())
    }

    pub(super) fn paged(&mut self) -> PageIo<'_, S> {
        PageIo {
            ftl: &mut *self.ftl,
            scratch: &mut self.scratch,
        }
    }

    /// Returns at most `max` runs of equal state in `offset..end`, from a bounded number of pages.
    pub(super) fn extents(
        &mut self,
        mut offset: u64,
        end: u64,
        max: usize,
    ) -> Result<Vec<Extent>, FtlError> {
        let page = u64::from(self.page_bytes());
        let begin = offset;
        let mut extents: Vec<Extent> = Vec::new();
        assert!(
            offset <= end,
            "extents of a range that ends before it begins"
        );
        assert!(max > 0, "no extents wanted");
        for _ in 0..EXTENT_PAGES {
            if offset == end {
                break;
            }
            let next = end.min((offset / page + 1) * page);
            let mapped = self.ftl.is_mapped(Lpn::new(narrow(offset / page)))?;
            let stretches = extents.len();
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.len += next - offset,
                _ if stretches == max => break,
                _ => extents.push(Extent {
                    len: next - offset,
                    mapped,
                }),
            }
            offset = next;
        }
        assert!(extents.len() <= max, "more extents than were wanted");
        assert!(
            offset > begin || begin == end,
            "no extent of bytes {begin} to {end}"
        );
        debug_assert_eq!(
            extents.iter().map(|extent| extent.len).sum::<u64>(),
            offset - begin,
            "the lengths of the extents from byte {begin} to {offset}"
        );
        Ok(extents)
    }
}
