//! The byte format of the image file: header, block table, slots, page records, and their offsets.
//! docs/FORMAT.md describes the same in prose; a change here changes that page and
//! [`FORMAT_VERSION`].
//!
//! Invariants: every offset follows from the header and is computed with checked arithmetic; every
//! value read from a file is validated before it is used as an index or a length. This module does
//! no I/O, so a power failure cannot lose anything here.

mod error;
mod fields;
mod header;
mod info;
mod layout;
mod part;
mod record;
mod seal;
mod sections;

pub use error::ImageError;
pub(crate) use header::{Header, HeaderFault, SEQ_MAX, choose_header};
pub use info::{
    CacheSection, FORMAT_VERSION, ImageInfo, ImageSpec, SHARDS_MAX, ShardSection, Striping,
};
pub(crate) use info::{NAME_BYTES_MAX, PARAMS_BYTES_MAX};
pub(crate) use layout::{COPY_BYTES, Layout, PAGE, PAGE_LEN};
pub(crate) use record::{
    CORE_BYTES, Core, HINT_HEAD_BYTES, Hint, Mark, SLOT_HEADER_BYTES, SlotHeader,
    TABLE_ENTRY_BYTES, TableEntry, is_zero,
};
pub(crate) use seal::{SEAL_SECTOR_BYTES, SealSector};
