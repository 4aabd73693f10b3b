//! Relocation of the valid pages of a block, one by one, in the families that are mounted by a
//! scan: `units`, `hybrid` and `mlam`. Each family decides where a page of the host goes; TRIM
//! pages go to the common blocks.

use crate::addr::Lpn;
use crate::copy::CopyBuffer;
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role};
use crate::int::to_u32;
use crate::recovery::{CommonParts, MountByScan};
use nand_model::{Cause, Pbn, Ppn};

/// A family that relocates pages one by one.
pub(crate) trait OneByOne: MountByScan {
    /// Returns the logical page of a valid page whose record is lost, by a search, because the case
    /// is very rare.
    fn owner_of_page(&mut self, ppn: Ppn, cause: Cause) -> Result<Option<Lpn>, FtlError>;

    /// Copies a page of the host, if the tables map it at `from`. A page without an owner has the
    /// role `Pad`.
    fn copy_host_page(
        &mut self,
        from: Ppn,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError>;

    /// Loads the first valid pages of a block, at most `most`, and passes them to `work`.
    fn with_pages<R>(
        &mut self,
        block: Pbn,
        most: u32,
        cause: Cause,
        work: impl FnOnce(&mut Self, &CopyBuffer) -> Result<R, FtlError>,
    ) -> Result<R, FtlError> {
        let (space, gc) = self.parts();
        let mut pages = std::mem::take(&mut gc.pages);
        let outcome = pages
            .load_first(space, block, most, cause)
            .and_then(|()| self.name_lost_owners(&mut pages, cause))
            .and_then(|()| work(self, &pages));
        self.parts().1.pages = pages;
        outcome
    }

    /// Copies the first valid pages of a block, at most `most`. Returns their number.
    fn copy_pages(&mut self, block: Pbn, most: u32, cause: Cause) -> Result<u32, FtlError> {
        self.with_pages(block, most, cause, |ftl, pages| {
            let geometry = ftl.parts().0.geometry();
            assert!(
                pages.from.len() <= geometry.block_pages(),
                "{} pages of block {block} are loaded, more than a block has",
                pages.from.len()
            );
            let page = geometry.page_len();
            for (i, data) in (0..pages.from.len()).zip(pages.data.chunks_exact(page)) {
                ftl.copy_page(pages.from[i], pages.tag(i), data, cause)?;
            }
            Ok(to_u32(pages.from.len()))
        })
    }

    fn copy_page(
        &mut self,
        from: Ppn,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let tag = PageTag {
            flags: tag.flags.with(Flags::COPY),
            ..tag
        };
        if tag.role != Role::Trim {
            return self.copy_host_page(from, tag, data, cause);
        }
        let CommonParts {
            space,
            trims,
            common,
            ..
        } = self.common_parts();
        let to = space.append_page(common, tag, data, cause)?;
        trims.on_relocate(from, to);
        space.table.set_invalid(from);
        Ok(())
    }

    /// Finds the owners of the pages whose record is lost. A page without an owner keeps the role
    /// `Pad`.
    fn name_lost_owners(&mut self, pages: &mut CopyBuffer, cause: Cause) -> Result<(), FtlError> {
        let unknown: Vec<(usize, Ppn)> = pages.unknown().collect();
        for (i, ppn) in unknown {
            let parts = self.common_parts();
            let (ver, is_trim) = (*parts.next_ver, parts.trims.holds(ppn));
            if is_trim {
                pages.name(i, Role::Trim, 0, ver);
            } else if let Some(lpn) = self.owner_of_page(ppn, cause)? {
                pages.name(i, Role::Data, lpn.raw(), ver);
            }
            *self.common_parts().next_ver += 1;
        }
        Ok(())
    }
}
