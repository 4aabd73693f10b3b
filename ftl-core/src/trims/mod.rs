//! Trims: the mapped logical pages, and the TRIM pages on flash.
//!
//! A trim programs a TRIM page, its *record*, before it is acknowledged. A record stays true
//! forever ("nothing older than this version"), so a mount may find obsolete ones. A page is
//! released only when something newer has all of its content. Then [`crate::space`] erases its
//! block when everything programmed before the release is safe.
//!
//! Families differ in what replaces records, and so bounds their number:
//!
//! - `bitmaps.rs`: bitmaps of unmapped pages (`units`, `hybrid`, `mlam`);
//! - `until_checkpoint.rs`: checkpoints of the map (`page_ram`);
//! - `until_written.rs`: mapping pages (`paged`).

mod bitmaps;
mod mapped;
mod pages;
mod until_checkpoint;
mod until_written;

pub(crate) use bitmaps::{TrimPage, Trims};
pub(crate) use mapped::Mapped;
pub(crate) use pages::program_record;
pub(crate) use until_checkpoint::{InCheckpoint, UntilCheckpoint};
pub(crate) use until_written::{OfMapPages, UntilWritten, covers};
