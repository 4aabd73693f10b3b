//! `age`: copies are sorted by the time since they were written, by powers of four: six streams.
//!
//! Ours, after the age-sorted segments of the log-structured file system (Rosenblum, Ousterhout,
//! SOSP 1991). The collector has the version in its hand, so nothing is kept per page and nothing
//! is looked up at a write.

use super::Placement;

/// Streams of copies.
const GROUPS: u32 = 6;
/// Pages written that part the youngest copies from the next group.
const FIRST: u64 = 1 << 12;

pub(super) struct Age;

impl Placement for Age {
    fn streams(&self) -> (u32, u32) {
        (1, GROUPS)
    }

    fn of_copy(&mut self, age: u64, _: u32) -> u32 {
        let group = (age / FIRST).checked_ilog(4).map_or(0, |power| power + 1);
        1 + group.min(GROUPS - 1)
    }
}
