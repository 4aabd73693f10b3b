//! Families of schemes: where the mapping table is stored in RAM and on flash. A family is a
//! [`Mapping`](crate::mapping::Mapping); its schemes differ in a policy.
//!
//! - `page_ram`: by page, in RAM, with checkpoints on flash (`pagemap`, `leaftl`);
//! - `paged`: by page, in mapping pages on flash, cached in part (`lazyftl`, `dftl`, `tpftl`,
//!   `dopftl`, `learnedftl`);
//! - `units`: by page within units, in the OOB areas of the pages (`superblock`, `gftl`, `mnftl`);
//! - `hybrid`: data blocks by block, log blocks by page (`nftl1`, `nftln`, `bast`, `fast`, `last`,
//!   `asast`, `rose`).
//!
//! `units`, `hybrid` and `mlam` relocate pages one by one (`one_by_one.rs`).
//!
//! `mlam`, which maps superblocks, halves and quarters, is a family of its own in its folder.

pub(crate) mod hybrid;
pub(crate) mod one_by_one;
pub(crate) mod page_ram;
pub(crate) mod paged;
mod unit_settings;
pub(crate) mod units;
