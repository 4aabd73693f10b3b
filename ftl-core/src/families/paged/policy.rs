//! Decisions of a scheme of this family: which part of the map is cached, and which mapping page is
//! written when an entry leaves the cache. `convert.rs` has the other reasons to write one.

use super::pending::Pending;
use crate::stats::{Evictions, RamEntry};
use nand_model::Ppn;

/// A cache over the mapping pages. It never contains the only copy of an entry: changes missing on
/// flash are also in [`Pending`]. So any entry may be dropped at any time, and a power cut loses
/// nothing with it.
pub(crate) trait Policy: Send {
    /// Whether a write first looks up the old location of its page, so that the old page becomes
    /// invalid at once. If not, it becomes invalid when its mapping page is written.
    const LOOKS_UP_WRITES: bool;

    /// Whether GC copies the pages of a block in the order of their addresses.
    const SORTS_COPIES: bool = false;

    /// Returns the location of a page, if it is cached, and records the access. `pending` is true
    /// if [`Pending`] already has the location.
    fn get(&mut self, lpn: u32, pending: bool) -> Option<Option<Ppn>>;

    /// Returns the location of a page, if it is cached, without recording an access.
    fn peek(&self, lpn: u32) -> Option<Option<Ppn>>;

    /// Adds a mapping page that was read after a miss of `lpn`; the request continues for `more`
    /// pages after `lpn`. Pending entries are newer than `page`.
    fn load(&mut self, vtpn: u32, page: &[u8], lpn: u32, more: u32, pending: &Pending);

    /// Updates the entry of a relocated page. Returns whether it is cached.
    fn on_relocate(&mut self, lpn: u32, to: Option<Ppn>) -> bool;

    /// Records a host write. Schemes that look up writes cache the entry from now on. `is_new` is
    /// true if its mapping page is not on flash. If the mapping page is on flash and not cached,
    /// the lookup did not need it, because the page is pending.
    fn on_write(&mut self, lpn: u32, to: Ppn, is_new: bool, pending: &Pending);

    /// Makes room if the cache is too large. Returns a mapping page that must be written because
    /// one of its entries leaves the cache.
    fn evict(&mut self, pending: &Pending) -> Option<u32>;

    /// Updates the cache from the content of a mapping page that was written. Pending entries are
    /// as new as `page`, or newer.
    fn on_writeback(&mut self, vtpn: u32, page: &[u8], pending: &Pending);

    /// Drops a mapping page that was trimmed as a whole.
    fn dropped(&mut self, vtpn: u32);

    /// Copies a mapping page with all changes, if the cache contains it in full. `plain` is true if
    /// the cache's newer entries hide no older entry that still matters.
    fn copy_page(&mut self, vtpn: u32, plain: bool, out: &mut [u8]) -> bool;

    /// Returns the elements that [`Policy::get`] has examined so far: pending entries where they
    /// are part of the paper's lookup, nodes or mapping pages of the cache, and their entries.
    fn lookup_steps(&self) -> u64;

    /// Returns the entries that left the cache so far to make room.
    fn evictions(&self) -> Evictions;

    /// Returns the RAM of the cache.
    fn ram(&self) -> Vec<RamEntry>;
}
