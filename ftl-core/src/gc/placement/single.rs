//! `single`: copies go to the open block of host writes, as in a log without hot/cold separation
//! (Rosenblum, Ousterhout, SOSP 1991, before segments are sorted by age).

use super::rule::Placement;

pub(super) struct Single;

impl Placement for Single {
    fn streams(&self) -> (u32, u32) {
        (1, 0)
    }

    fn of_copy(&mut self, _: u64, _: u32) -> u32 {
        0
    }
}
