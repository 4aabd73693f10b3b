//! Flash translation layers: the code between a host page and a flash page.
//!
//! Data flows one way: a volume calls an [`Ftl`], the scheme chooses a flash page, [`flash`](crate)
//! programs it through the chip. The crate has no socket, thread, wall clock or randomness: every
//! verb takes the time as an argument, so every run is repeatable. `schemes` is a table; all other
//! code iterates over it.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod addr;
pub mod author;
mod block_table;
mod checkpoint;
mod config;
mod controller;
mod copy;
mod error;
mod events;
mod families;
mod flash;
pub mod format;
mod ftl;
mod gc;
mod int;
mod layout;
mod map_cache;
mod mapping;
mod ram;
mod recovery;
mod scan;
pub mod schemes;
mod space;
mod stalls;
mod stats;
mod sum;
mod trims;
mod wear;

pub use addr::{Lpn, Span};
pub use config::{FtlConfig, ParamDoc, Params, near_miss};
pub use error::FtlError;
pub use events::{
    EVENTS_KEPT, Event, EventKind, EventLog, EventTotals, GC_PAGE_BOUNDS, GcPageClasses,
};
pub use flash::DeferredRead;
pub use ftl::{Ftl, Start};
pub use stalls::StallTotals;
pub use stats::{
    BlockCounts, BlockUse, BlockView, Evictions, Lookups, MountReport, RamEntry, RamPart,
    RamReport, SchemeStats, StreamKind, StreamView,
};
pub use sum::{add_ram, add_streams};
