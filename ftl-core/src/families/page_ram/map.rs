//! The interface for an author: a page map in RAM, and the scheme that it belongs to.

use crate::addr::Lpn;
use crate::config::Params;
use crate::error::FtlError;
use crate::gc::policy::NewPolicy;
use nand_model::Ppn;

/// A scheme with a page map in RAM: its name, its map and its policies. The controller does the
/// rest: programs, GC, FLUSH, trims, checkpoints, power-cut recovery.
pub trait PageMapScheme: 'static {
    /// Name of the scheme.
    const NAME: &'static str;

    /// Its map.
    type Map: PageMap;

    /// Its policies, by the value of `gc.policy` and of `gc.placement` that selects them. The first
    /// is the default of both; without any, `greedy` and `copies_apart` are. The policies of ftld
    /// remain available.
    const POLICIES: &'static [(&'static str, NewPolicy)] = &[];
}

/// A map LPN -> PPN in RAM.
///
/// Only the controller changes the map. It calls [`set`](PageMap::set) when a page was programmed,
/// relocated or trimmed, and at a mount for every page stored on the device.
pub trait PageMap: Send + Sized + 'static {
    /// Whether pages that are programmed together are first sorted by their addresses: copies of a
    /// block, and buffered writes. Worth it for a map that is smaller if runs of pages are.
    const SORTED: bool = false;

    /// Whether [`predict`](PageMap::predict) may miss. Then the records of the pages around a
    /// prediction decide, which costs reads.
    const PREDICTS: bool = false;

    /// Creates a map of logical pages `0..logical_pages`, all unmapped.
    ///
    /// # Errors
    /// [`FtlError::Config`] if a parameter of the scheme has a value it cannot work with; the text
    /// contains parameter and reason.
    fn new(logical_pages: u32, params: &Params) -> Result<Self, FtlError>;

    /// Returns the location of the page, from the last [`set`](PageMap::set) of it.
    fn get(&self, lpn: Lpn) -> Option<Ppn>;

    /// Returns the location of the page as far as the map knows it, and by how many physical pages
    /// it may miss: [`get`](PageMap::get), which never misses, unless the map
    /// [predicts](PageMap::PREDICTS).
    fn predict(&self, lpn: Lpn) -> Option<(Ppn, u32)> {
        self.get(lpn).map(|ppn| (ppn, 0))
    }

    /// Lets the map miss from now on: a mount is over. Until then it must not.
    fn begin_service(&mut self) {}

    /// Sets the location of the page; `None` unmaps it.
    fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>);

    /// Sets the location of a page that GC relocated to `to`, if it is still `from`; returns
    /// whether it was. A map in an array can do so with one look-up.
    fn replace(&mut self, lpn: Lpn, from: Ppn, to: Ppn) -> bool {
        let current = self.get(lpn) == Some(from);
        if current {
            self.set(lpn, Some(to));
        }
        current
    }

    /// Returns the bytes of the map: as a paper would count them, and as allocated.
    fn bytes(&self) -> (u64, u64);

    /// Returns the most bytes that the map allocates: those of now, unless it grows.
    fn bytes_most(&self) -> u64 {
        self.bytes().1
    }
}
