//! Decisions of a scheme of units. A policy reads the block lists and changes nothing.

use super::lists::Lists;
use super::slices::Slicing;
use super::tables::Shape;

/// Differences between the schemes of units.
pub(crate) trait Policy: Send {
    /// Name in the table of schemes.
    const NAME: &'static str;

    /// Returns the list length from which GC shrinks a unit before it opens another block.
    fn max_length(&self, shape: &Shape) -> u32;

    /// Returns the unit for GC when blocks are short, among the units that can shrink. `None`
    /// selects the emptiest block of all.
    fn choose(&self, lists: &Lists, can_shrink: &dyn Fn(u32) -> bool) -> Option<u32>;

    /// Returns whether GC takes the emptiest block of all instead of a block of the chosen unit.
    fn victim_is_greedy(&self) -> bool {
        false
    }

    /// Returns whether a unit needs GC although there are free blocks.
    fn has_too_many(&self, _lists: &Lists) -> bool {
        false
    }

    /// Returns the unit for GC in idle time, if one is worth it.
    fn choose_idle(&self, lists: &Lists) -> Option<u32>;

    /// Returns whether GC reads all tables of the unit, as the paper does to find the valid pages.
    fn reads_all_tables(&self) -> bool;

    /// Returns how requests clean blocks in slices (`slices.rs`), instead of GC when free blocks
    /// are short.
    fn slicing(&self) -> Option<Slicing> {
        None
    }

    /// Records that the host wrote a page of this unit.
    fn on_write(&mut self, _unit: u32) {}

    /// Returns the RAM of the map as the paper counts it.
    fn paper_bytes(&self, shape: &Shape, lists: &Lists, units: u64) -> u64;

    /// Returns the bytes of the policy itself.
    fn bytes(&self) -> u64 {
        0
    }
}
