//! The only access of schemes to the chip. It encodes and decodes the OOB record, assigns program
//! sequence numbers, and advances the instant along a request's critical path.

mod deferred;
mod findings;
mod kept;
mod own;
mod program;
mod read;
mod state;

pub use deferred::{DeferredRead, DeferredRun};
pub(crate) use own::OwnPage;
pub(crate) use state::Flash;
