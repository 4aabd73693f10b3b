//! `copies_apart`: copies are colder than host writes and go to blocks of their own (Dayan,
//! Bouganim, Bonnet: *Garbage Collection Techniques for Flash-Resident Page-Mapping FTLs*, 2015,
//! among many; LazyFTL's update and cold area).

use crate::gc::policy::Policy;

pub(super) struct CopiesApart;

/// As the defaults of a policy are: one stream of the host, one of copies.
impl Policy for CopiesApart {}
