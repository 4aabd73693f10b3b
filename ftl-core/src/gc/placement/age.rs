//! `age`: separates copies by the time since they were written, in powers of four: six streams.
//!
//! Not from a paper, after the age-sorted segments of the log-structured file system (Rosenblum,
//! Ousterhout, SOSP 1991). GC has the version loaded, so RAM keeps nothing per page, and a write
//! needs no look-up.

use crate::gc::policy::{PageCopy, Policy};

/// Streams of copies.
const GROUPS: u32 = 6;
/// Age in pages written at which the second group of copies begins.
const FIRST: u64 = 1 << 12;

pub(super) struct Age;

impl Policy for Age {
    fn streams(&self) -> (u32, u32) {
        (1, GROUPS)
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        let group = (copy.age / FIRST)
            .checked_ilog(4)
            .map_or(0, |power| power + 1);
        1 + group.min(GROUPS - 1)
    }

    fn needs_age(&self) -> bool {
        false
    }

    fn needs_replaced(&self) -> bool {
        false
    }
}
