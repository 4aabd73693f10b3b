//! What a scheme of this family decides: which part of the map is in RAM, and when the rest of it
//! is written.

use super::pending::Pending;
use crate::stats::RamEntry;
use nand_model::Ppn;

/// A cache over the mapping pages. It never holds the only copy of anything: what the flash does
/// not know is also in [`Pending`], so any entry may be dropped at any time, and a power cut loses
/// nothing with it.
pub(crate) trait Policy: Send {
    /// Whether a write first finds out where its page was, so that the old one dies at once. If
    /// not, it dies when its mapping page is written.
    const LOOKS_UP_WRITES: bool;

    /// Where a page is, if that is cached; it was used. `pending` tells that the answer is known
    /// already.
    fn get(&mut self, lpn: u32, pending: bool) -> Option<Option<Ppn>>;

    /// Where a page is, if that is cached; it was not used.
    fn peek(&self, lpn: u32) -> Option<Option<Ppn>>;

    /// A mapping page was read because `lpn` was missed; the request goes on for `more` pages
    /// behind it. What is pending is newer.
    fn load(&mut self, vtpn: u32, page: &[u8], lpn: u32, more: u32, pending: &Pending);

    /// A page moved. Returns whether its entry is cached.
    fn moved(&mut self, lpn: u32, to: Option<Ppn>) -> bool;

    /// The host wrote a page. Schemes that look up writes have it in their cache from now on.
    /// `is_new` tells that its mapping page is not on flash; one that is and yet is not cached was
    /// not needed to look the page up, because that is pending.
    fn wrote(&mut self, lpn: u32, to: Ppn, is_new: bool, pending: &Pending);

    /// Makes room if the cache is too large. `Some` is a mapping page that has to be written
    /// because an entry of it leaves.
    fn evict(&mut self, pending: &Pending) -> Option<u32>;

    /// A mapping page was written; this is its content.
    fn written(&mut self, vtpn: u32, page: &[u8]);

    /// All of a mapping page was trimmed.
    fn dropped(&mut self, vtpn: u32);

    /// Copies a mapping page with all changes, if the cache has it in full; `plain` tells that the
    /// cache's newer entries do not hide any that still matter.
    fn copy_page(&mut self, vtpn: u32, plain: bool, out: &mut [u8]) -> bool;

    /// Places in RAM that [`Policy::get`] looked at so far, where the scheme is about that.
    fn lookup_steps(&self) -> u64 {
        0
    }

    /// RAM of the cache.
    fn ram(&self) -> Vec<RamEntry>;
}
