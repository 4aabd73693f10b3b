//! `copies_apart`: copies are colder than host writes and go to blocks of their own (Dayan,
//! Bouganim, Bonnet: *Garbage Collection Techniques for Flash-Resident Page-Mapping FTLs*, 2015,
//! among many; LazyFTL's update and cold area).

use super::rule::Placement;

pub(super) struct CopiesApart;

impl Placement for CopiesApart {
    fn streams(&self) -> (u32, u32) {
        (1, 1)
    }

    fn of_copy(&mut self, _: u64, _: u32) -> u32 {
        1
    }
}
