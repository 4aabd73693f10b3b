//! What an author writes: a page map in RAM.

use crate::addr::Lpn;
use crate::config::Params;
use crate::error::FtlError;
use crate::gc::placement::{self, Placement};
use crate::gc::policy::{self, VictimPolicy};
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

    /// The rule that chooses the block to collect; `None` is the block with the fewest valid pages.
    /// By default what `gc.policy` says.
    ///
    /// # Errors
    /// [`FtlError::Config`] as in [`PageMap::new`].
    fn victim_policy(params: &Params) -> Result<Option<Box<dyn VictimPolicy>>, FtlError> {
        policy::from_params(params)
    }

    /// The rule that chooses the stream, and so the open block, of a host write and of a copy. By
    /// default what `gc.placement` says.
    ///
    /// # Errors
    /// [`FtlError::Config`] as in [`PageMap::new`].
    fn placement(params: &Params) -> Result<Box<dyn Placement>, FtlError> {
        placement::from_params(params)
    }
}
