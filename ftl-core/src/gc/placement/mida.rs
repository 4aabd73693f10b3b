//! `mida`: separates pages by the number of their relocations: a page from a stream's block goes to
//! the next stream.
//!
//! Oh, Kim, Han, et al.: *MIDAS: Minimizing Write Amplification in Log-Structured Systems through
//! Adaptive Group Number and Size Configuration*, FAST 2024. The groups are those of the paper;
//! their number is fixed here.

use crate::gc::policy::{PageCopy, Policy};

/// Streams of copies.
const GROUPS: u32 = 4;

pub(super) struct Mida;

impl Policy for Mida {
    fn streams(&self) -> (u32, u32) {
        (1, GROUPS)
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        (copy.stream + 1).min(GROUPS)
    }

    fn needs_age(&self) -> bool {
        false
    }

    fn needs_replaced(&self) -> bool {
        false
    }
}
