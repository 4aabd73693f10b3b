//! Live page at `/` on the metrics port: one document that loads nothing else, and its JSON
//! requests.

pub(crate) mod api;
pub(crate) mod history;
pub(crate) mod kept;
pub(crate) mod neighbours;
pub(crate) mod page;

use crate::load::Load;
use ftld_device::status::StatusSource;
use history::History;
use kept::Keeper;
use neighbours::Neighbours;
use parking_lot::Mutex;

/// State that the daemon keeps for the live page, besides published snapshots.
#[derive(Debug, Default)]
pub struct PageState {
    pub(crate) history: Mutex<History>,
    /// The file of the history, if it has one.
    pub(crate) keeper: Option<Keeper>,
    pub(crate) neighbours: Neighbours,
}

/// Source of what the live page shows.
pub trait PageSource: StatusSource {
    /// Returns the state that the daemon keeps for the page.
    fn page(&self) -> &PageState;

    /// Returns the load of the daemon's own, if it has one.
    fn load(&self) -> Option<&Load> {
        None
    }
}
