//! `single`: copies go to the open block of host writes, as in a log without hot/cold separation
//! (Rosenblum, Ousterhout, SOSP 1991, before segments are sorted by age).

use crate::gc::policy::Policy;

pub(super) struct Single;

impl Policy for Single {
    fn streams(&self) -> (u32, u32) {
        (1, 0)
    }
}
