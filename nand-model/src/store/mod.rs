//! Storage of a chip's bytes. A store checks no rules: NAND rules, faults and time belong to the
//! chip.
//!
//! Every programmed page has a *tag* besides its bytes: a number computed from its address and its
//! block's current life. The store sets it when the page is programmed and compares it when the
//! page is read. A page with another tag than that of its place and life reads as [`Health::Lost`]:
//! it was programmed for another page, or before an erase that had no effect.
//!
//! Invariant: a page is programmed at most once between two erases of its block, except by
//! [`Store::and_oob`]; the chip checks this before the call. Only injected faults break it: a page
//! programmed twice is [`Health::Lost`] and belongs to no address.

mod any;
mod contents;
mod file;
mod interface;
mod mem;
mod oob_only;

pub use any::AnyStore;
pub use contents::{Bad, BlockFacts, Cells, Health};
pub use file::{
    Access, CacheArea, Disk, FileStore, OpenReport, PageReader, Pin, PlacedRun, SyncError,
    SyncHandle, SyncStats, Verify, WriteError, peek,
};
pub use interface::Store;
pub use mem::{Change, MemPage, MemStore};
pub use oob_only::OobOnlyStore;
