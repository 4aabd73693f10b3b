//! How an image is opened, and what an open found.

use std::time::Duration;

/// Access mode of an open image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One process reads and writes.
    ReadWrite,
    /// Shared with other readers; every change stays in memory.
    ReadOnly,
}

/// Result of opening an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the image had been closed cleanly.
    pub was_clean: bool,
    /// Whether a sync had failed before.
    pub sync_failed: bool,
    /// Whether its last use ended with a cut of the emulated power.
    pub power_cut: bool,
    /// Complete operations after the last synced one.
    pub ops_kept: u64,
    /// Operations undone because an earlier one was missing.
    pub ops_dropped: u64,
    /// Slots whose records an unclean open did not have to read: their seals say that these are
    /// synced.
    pub slots_sealed: u32,
    /// Duration of the opening.
    pub took: Duration,
}
