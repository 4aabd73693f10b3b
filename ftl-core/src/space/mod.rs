//! Physical space: streams append pages; blocks are opened, filled, released and erased.
//!
//! Schemes choose the pages to write and the blocks to release. This module opens blocks, obeys
//! page order and pairing, handles failed programs and erases, and decides *when* a released block
//! may be erased.
//!
//! Invariants: no page is erased in favour of a page that can still be lost. If power fails during
//! the program of an MSB page, its LSB partner can be destroyed. Until the MSB page is programmed,
//! the LSB page is *unsafe*. A block is released with the sequence number of the last program so
//! far. It is erased only when every page programmed up to that number is safe, so the new versions
//! of its pages cannot be lost any more. If power fails between release and erase, mount finds a
//! block without valid pages and erases it.
//!
//! If a unit's pages are replaced only by pages of the same unit, its blocks need not wait for
//! those of others: see [`Space::release_in_stream`].
//!
//! A block that a mount finds partly filled is never continued, so its LSB pages stay safe. (After
//! a clean shutdown it may be continued, because the shutdown made its unsafe pages safe.)
//!
//! Power may fail during a mount, too, and its leftovers must not accumulate. So the pages that a
//! mount programs are *provisional*, another kind of unsafe: a page is committed once padding
//! follows it in its block. Until then no page that it replaces is erased, and the next mount skips
//! it ([`crate::scan`]). The next mount finds the same state as this one, and the blocks that
//! this one took are free again.

mod append;
mod audit;
mod mount;
mod open;
mod padding;
mod planes;
mod pool;
mod release;
mod slc;
mod state;
mod streams;

pub(crate) use state::{BlockEvent, Space};
pub(crate) use streams::{StreamId, StreamSpec};
