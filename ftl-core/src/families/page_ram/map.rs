//! What an author writes: a page map in RAM.

use crate::addr::Lpn;
use crate::config::Params;
use crate::error::FtlError;
use crate::gc::placement::NewPlacement;
use crate::gc::policy::NewPolicy;
use nand_model::Ppn;

/// A map LPN -> PPN in RAM, and the policies that go with it. Everything else is the controller's:
/// programs, collection, FLUSH, trims, checkpoints, what a mount makes of a power cut.
///
/// The controller alone decides what the map says. It calls [`set`](PageMap::set) when a page was
/// programmed, moved or trimmed, and at a mount for every page that the device holds.
pub trait PageMap: Send + Sized + 'static {
    /// Name of the scheme.
    const NAME: &'static str;

    /// A map of logical pages `0..logical_pages`, none of which is mapped.
    ///
    /// # Errors
    /// [`FtlError::Config`] where a parameter of the scheme is not a value it can work with; the
    /// text names parameter and reason.
    fn new(logical_pages: u32, params: &Params) -> Result<Self, FtlError>;

    /// Where the page is: what the last [`set`](PageMap::set) of it said.
    fn get(&self, lpn: Lpn) -> Option<Ppn>;

    /// From now on the page is there, or nowhere.
    fn set(&mut self, lpn: Lpn, place: Option<Ppn>);

    /// Bytes of the map: as a paper would count them, and as they are allocated.
    fn bytes(&self) -> (u64, u64);

    /// Victim policies of its own, by the value of `gc.policy` that chooses them. The first is the
    /// default; without any, `greedy` is. The policies of ftld can be chosen all the same.
    const POLICIES: &'static [(&'static str, NewPolicy)] = &[];

    /// Placements of its own, by the value of `gc.placement` that chooses them. The first is the
    /// default; without any, `copies_apart` is. Those of ftld can be chosen all the same.
    const PLACEMENTS: &'static [(&'static str, NewPlacement)] = &[];
}
