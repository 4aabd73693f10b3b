//! The valid TRIM pages, and their programs.

use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{Flags, PageTag, Role};
use crate::ram::{tree_bytes, tree_most};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Ppn};
use std::collections::BTreeMap;

/// Programs the record of a trim, which is in effect once it is on flash. Returns its page.
pub(crate) fn program_record(
    space: &mut Space,
    stream: StreamId,
    range: TrimRange,
    ver: u64,
) -> Result<Ppn, FtlError> {
    let mut page = vec![0; space.geometry().page_len()];
    trim::encode(&[range], &mut page);
    program_page(space, stream, range.lpn, ver, &page)
}

/// Programs a TRIM page.
pub(super) fn program_page(
    space: &mut Space,
    stream: StreamId,
    lpn: u32,
    ver: u64,
    page: &[u8],
) -> Result<Ppn, FtlError> {
    let tag = PageTag {
        role: Role::Trim,
        flags: Flags::NONE,
        lpn,
        ver,
    };
    let (ppn, _) = space.append(stream, &[tag], page, Cause::Trim)?;
    Ok(ppn)
}

/// Valid TRIM pages, each with the family's record of it.
#[derive(Debug)]
pub(super) struct TrimPages<R>(BTreeMap<Ppn, R>);

impl<R: Copy> TrimPages<R> {
    pub(super) fn new() -> Self {
        TrimPages(BTreeMap::new())
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, ppn: Ppn) -> bool {
        self.0.contains_key(&ppn)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ppn, R)> {
        self.0.iter().map(|(ppn, record)| (*ppn, *record))
    }

    pub(super) fn add(&mut self, ppn: Ppn, record: R) {
        let other = self.0.insert(ppn, record);
        assert!(other.is_none(), "page {ppn} has two trims");
    }

    /// Updates the location of a relocated page.
    pub(super) fn on_relocate(&mut self, from: Ppn, to: Ppn) {
        let record = self.0.remove(&from).expect("the trim page is listed");
        self.add(to, record);
    }

    /// Removes the pages that something newer replaces, and invalidates them.
    pub(super) fn expire(&mut self, space: &mut Space, is_replaced: impl Fn(&R) -> bool) {
        self.0.retain(|ppn, record| {
            let replaced = is_replaced(record);
            if replaced {
                space.table.set_invalid(*ppn);
            }
            !replaced
        });
    }

    /// Returns the bytes of the list: now, and with this many pages.
    pub(super) fn ram(&self, most: u64) -> (u64, u64) {
        (
            tree_bytes::<Ppn, R>(self.0.len()),
            tree_most::<Ppn, R>(most),
        )
    }
}
