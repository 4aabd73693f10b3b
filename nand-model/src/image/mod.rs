//! The image file's bytes: header, block table, slots, page records, and the offsets of all of
//! them. docs/FORMAT.md says the same in prose; a change here changes that page and
//! [`FORMAT_VERSION`].
//!
//! What always holds: every offset follows from the header and is computed with checked arithmetic;
//! whatever was read from a file is validated before it is used as an index or a length. Nothing
//! here does I/O, so nothing is lost here when power fails.

mod error;
mod fields;
mod header;
mod layout;
mod record;
mod sections;

pub use error::ImageError;
pub(crate) use header::{Header, HeaderFault, SEQ_MAX, choose_header};
pub(crate) use layout::{COPY_BYTES, Layout, PAGE, PAGE_LEN};
pub(crate) use record::{
    CORE_BYTES, Core, HINT_HEAD_BYTES, Hint, Mark, SLOT_HEADER_BYTES, SlotHeader,
    TABLE_ENTRY_BYTES, TableEntry, is_zero,
};

use crate::profile::Profile;

/// The version this build reads and writes.
pub const FORMAT_VERSION: u32 = 3;

/// Longest scheme parameters an image keeps, in bytes.
pub const PARAMS_BYTES_MAX: usize = 2048;

/// Longest scheme or profile name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// What a new image is made from.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    /// The flash, with its number of blocks filled in.
    pub profile: Profile,
    /// Bytes the host sees.
    pub size: u64,
    /// Name of the translation layer.
    pub scheme: String,
    /// Its parameters, opaque here: at most [`PARAMS_BYTES_MAX`] bytes.
    pub params: String,
}

/// What an image says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Identity, given at creation.
    pub uuid: [u8; 16],
    /// The flash.
    pub profile: Profile,
    /// Bytes the host sees.
    pub size: u64,
    /// Name of the translation layer.
    pub scheme: String,
    /// Its parameters, opaque here.
    pub params: String,
    /// Format version.
    pub version: u32,
    /// Whether it was closed in order (as found; an image in use is never clean).
    pub clean: bool,
    /// Whether a sync failed while it was last used (as found).
    pub sync_failed: bool,
}
