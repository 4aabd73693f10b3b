//! A running instance as HTTP and the control socket observe it.
//!
//! Reading it takes no lock of a request. Nothing here is stored, so power failure does not matter.

use crate::failure::Failure;
pub use crate::live_page::PageState;
use crate::record::not_recorded;
use crate::service_counters::ServiceCounters;
use crate::status::StatusSnapshot;
use crate::volume::{BlockMap, EventsView};
use serde_json::Value;
use std::sync::Arc;

/// Source of status snapshots.
pub trait StatusSource: Send + Sync {
    /// Returns the current snapshot; never waits for a request.
    fn view(&self) -> StatusSnapshot;

    /// Returns the counters of requests to the daemon itself.
    fn service(&self) -> &ServiceCounters;

    /// Requests publication of blocks and events for some seconds.
    fn watch(&self);

    /// Returns the blocks as last published; never waits for a request.
    fn blocks(&self) -> Arc<BlockMap>;

    /// Returns the newest published events from number `from` on, at most `most`; never waits for a
    /// request.
    fn events(&self, from: u64, most: usize) -> EventsView;

    /// Puts a mark into the recording and returns where.
    ///
    /// # Errors
    /// Nothing is recorded, or the recording has failed.
    fn mark(&self, _text: &str) -> Result<Value, Failure> {
        Err(not_recorded())
    }

    /// Returns the state that the daemon keeps for the live page.
    fn page(&self) -> &PageState;
}
