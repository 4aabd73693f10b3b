//! Flash translation layers: everything between a host page and a flash page.
//!
//! Data flows one way: a volume calls an [`Ftl`], the scheme chooses a place, [`flash`](crate)
//! programs it through the chip. There is no socket, thread, wall clock or randomness in here: time
//! comes in with every verb, so every run repeats. `schemes` is a table; everything else iterates
//! over it.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod addr;
pub mod author;
mod block_table;
mod checkpoint;
mod config;
mod controller;
mod convert;
mod copy;
mod error;
mod events;
mod families;
mod flash;
pub mod format;
mod ftl;
mod gc;
mod mapping;
mod recovery;
pub mod schemes;
mod space;
mod stats;
mod trims;
mod wear;

pub use addr::{Lpn, Span};
pub use config::{FtlConfig, ParamDoc, Params, near_miss};
pub use error::FtlError;
pub use events::{EVENTS_KEPT, Event, EventKind, EventLog, EventTotals};
pub use ftl::{Ftl, Start};
pub use stats::{BlockCounts, BlockUse, BlockView, MountReport, RamEntry, RamReport, SchemeStats};
