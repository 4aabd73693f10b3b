//! Families of schemes: how a map lies in RAM and on flash. A family is a
//! [`Mapping`](crate::controller::Mapping); what its schemes differ in is a policy of theirs.
//!
//! | family | the map | schemes |
//! |---|---|---|
//! | `page_ram` | by page, in RAM; checkpoints of it on flash | `pagemap` |
//! | `paged` | by page, in mapping pages on flash, parts of it cached | `lazyftl`, `dftl`, `tpftl`, `dopftl` |
//! | `units` | by page within units, in the spare bytes of the pages | `superblock`, `gftl`, `mnftl` |
//! | `hybrid` | data blocks by block, log blocks by page | `nftl1`, `nftln`, `bast`, `fast`, `last`, `asast`, `rose` |
//!
//! `mlam`, which maps superblocks, halves and quarters, is a family of its own in its folder.

pub(crate) mod hybrid;
pub(crate) mod page_ram;
pub(crate) mod paged;
pub(crate) mod units;
