//! The state of the family, and its streams.

use super::lists::Lists;
use super::policy::Policy;
use super::slices::Slices;
use super::tables::{Shape, Tables, UnitCache};
use crate::addr::Lpn;
use crate::controller::Controller;
use crate::format::{LOST, UNMAPPED};
use crate::int::index;
use crate::space::{Space, StreamId};
use crate::trims::Trims;
use nand_model::Ppn;

/// Stream of trim records, of pages that a mount programs, and of pages without room in their unit.
pub(super) const COMMON: StreamId = 0;
pub(super) const CHECKPOINT: StreamId = 1;
/// The stream of unit 0.
pub(super) const FIRST_UNIT: StreamId = 2;

/// Returns the stream of a unit.
#[inline]
pub(crate) const fn stream_of(unit: u32) -> StreamId {
    FIRST_UNIT + index(unit)
}

/// Groups allowed in RAM on a device of any size.
pub(super) const MIN_IN_RAM: u32 = 64;

/// Units, their tables and lists.
pub(crate) struct Units<P> {
    pub(super) policy: P,
    pub(super) logical_pages: u32,
    pub(super) shape: Shape,
    pub(crate) lists: Lists,
    pub(super) tables: Tables,
    pub(super) cached_unit: UnitCache,
    pub(super) trims: Trims,
    /// The unit in GC, its number of blocks at the start, and the GC runs on it so far. GC succeeds
    /// when the unit has one block less.
    pub(super) collecting: Option<(u32, u32, u32)>,
    /// Present if the policy cleans blocks in slices.
    pub(super) slices: Option<Slices>,
    /// Group at which the search for groups to write back continues.
    pub(super) next_settled: u32,
    /// OOB areas read for their table so far.
    pub(super) table_reads: u64,
    /// Physical pages of the current read.
    pub(super) ppns: Vec<u32>,
}

/// A scheme of units over a chip.
pub(crate) type UnitFtl<P> = Controller<Units<P>>;

impl<P: Policy> Units<P> {
    /// Returns the unit, the table in it, and the slot in the unit.
    pub(super) fn split(&self, lpn: Lpn) -> (u32, u32, usize) {
        debug_assert!(
            lpn.raw() < self.logical_pages,
            "logical page {lpn} does not exist"
        );
        let Shape { pages, slots, .. } = self.shape;
        let offset = lpn.raw() % pages;
        (lpn.raw() / pages, offset / slots, index(offset))
    }

    /// Returns the number of groups in RAM and of trim pages.
    #[cfg(test)]
    pub(crate) fn groups_in_ram_and_trim_pages(&self) -> (usize, usize) {
        (self.tables.in_ram(), self.trims.len())
    }

    pub(super) fn invalidate_entry(&mut self, space: &mut Space, old: u32) {
        if old != UNMAPPED && old != LOST {
            self.invalidate_page(space, Ppn::new(old));
        }
    }

    pub(super) fn invalidate_page(&mut self, space: &mut Space, ppn: Ppn) {
        space.table.set_invalid(ppn);
        self.note_block(space, space.geometry().block_of(ppn));
    }
}
