//! The map on flash: its directory, its pages, lookups and changes.

use super::policy::Policy;
use super::state::{MAP, PagedFtl, PagedMap};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::gc::GarbageCollect;
use crate::space::Space;
use crate::stats::{Lookups, SchemeStats};
use nand_model::{Cause, Geometry, Ppn};

/// Returns the number of mapping pages of a device.
pub(crate) fn map_pages(geometry: &Geometry, logical_pages: u32) -> u32 {
    logical_pages.div_ceil(geometry.page_bytes / 4)
}

/// Returns the entry at `index` of a mapping page.
#[inline]
pub(crate) fn entry_at(page: &[u8], index: u32) -> Option<Ppn> {
    let bytes = page[4 * index as usize..][..4]
        .try_into()
        .expect("four bytes");
    Some(u32::from_le_bytes(bytes))
        .filter(|raw| *raw != UNMAPPED)
        .map(Ppn::new)
}

impl<P: Policy> PagedMap<P> {
    /// Returns the number of entries per mapping page.
    #[inline]
    pub(crate) fn per_page(&self) -> u32 {
        self.per_page
    }

    /// Returns the logical pages of one mapping page.
    pub(crate) fn pages_of(&self, vtpn: u32) -> std::ops::Range<u32> {
        let first = vtpn * self.per_page();
        debug_assert!(
            first < self.logical_pages,
            "mapping page {vtpn} begins at logical page {first} of {}",
            self.logical_pages
        );
        first..(first + self.per_page()).min(self.logical_pages)
    }

    /// Points a page at its new location, or at none. The old page becomes invalid now if it is
    /// known, else when its mapping page is written. `seq` is not larger than the number of the
    /// program behind the change.
    #[inline]
    pub(crate) fn remap(
        &mut self,
        space: &mut Space,
        lpn: u32,
        to: Option<Ppn>,
        seq: u64,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let known = match self.pending.get(lpn) {
            Some(entry) => Some(entry.ppn()),
            None if P::LOOKS_UP_WRITES => self.policy.peek(lpn),
            None => None,
        };
        self.pending.update_entry(lpn, to, known.is_none(), seq);
        self.mapped.set(lpn, to.is_some());
        known
            .flatten()
            .map_or(Ok(()), |old| self.invalidate(space, old, cause))
    }

    /// Loads the mapping page's content into `map_page`: from the cache, else from flash; all
    /// unmapped if there is none. `plain` as in [`Policy::copy_page`].
    pub(crate) fn load_map_page(
        &mut self,
        space: &mut Space,
        vtpn: u32,
        plain: bool,
        cause: Cause,
    ) -> Result<(), FtlError> {
        if self.directory[vtpn as usize] == UNMAPPED {
            self.map_page.renew().fill(0xFF);
            return Ok(());
        }
        if self.policy.copy_page(vtpn, plain, self.map_page.renew()) {
            return Ok(());
        }
        self.read_map_page(space, vtpn, cause)
    }

    /// Returns the entry at `index` of the mapping page in `map_page`.
    #[inline]
    pub(crate) fn loaded_entry(&self, space: &Space, index: u32) -> Option<Ppn> {
        entry_at(space.flash.own(&self.map_page), index)
    }

    fn read_map_page(
        &mut self,
        space: &mut Space,
        vtpn: u32,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let ppn = Ppn::new(self.directory[vtpn as usize]);
        let oob = space.flash.read_own(ppn, &mut self.map_page, cause)?;
        match oob {
            Some(oob) if oob.tag.role == Role::Map && oob.tag.lpn == vtpn => Ok(()),
            Some(oob) => Err(FtlError::Corrupt(format!(
                "mapping page {vtpn} is at {ppn}, whose record is {:?}",
                oob.tag
            ))),
            None => Err(FtlError::MediaLost(vtpn * self.per_page())),
        }
    }

    /// Points the directory at a new version of a mapping page, or at none, and invalidates the old
    /// one.
    pub(crate) fn set_directory(&mut self, space: &mut Space, vtpn: u32, to: Option<Ppn>) {
        let old = std::mem::replace(
            &mut self.directory[vtpn as usize],
            to.map_or(UNMAPPED, Ppn::raw),
        );
        debug_assert!(
            old == UNMAPPED || to.is_none_or(|to| to.raw() != old),
            "mapping page {vtpn} is replaced by itself"
        );
        if old != UNMAPPED {
            space.table.set_invalid(Ppn::new(old));
            space.flash.forget(Ppn::new(old));
        }
    }

    /// Invalidates a superseded page. On chips that allow it, also marks its OOB area, as the paper
    /// does; nothing relies on the mark.
    #[inline]
    pub(crate) fn invalidate(
        &mut self,
        space: &mut Space,
        ppn: Ppn,
        cause: Cause,
    ) -> Result<(), FtlError> {
        space.table.set_invalid(ppn);
        if self.settings.oob_mark {
            use nand_model::NandError::{Host, HostFull, ProgramFailed};
            match space
                .flash
                .mark(ppn, &crate::format::Oob::invalid_mark(), cause)
            {
                Ok(()) | Err(ProgramFailed(_) | HostFull | Host(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Returns the location of a logical page: from the pending entries, the cache, or a mapping
    /// page read for it. The request continues for `more` pages after it. `count`: the lookups to
    /// count it with.
    #[inline]
    pub(crate) fn locate(
        &mut self,
        lpn: Lpn,
        more: u32,
        count: fn(&mut SchemeStats) -> &mut Lookups,
    ) -> Result<Option<Ppn>, FtlError> {
        let pending = self.map.pending.get(lpn.raw());
        let cached = self.map.policy.get(lpn.raw(), pending.is_some());
        if let Some(found) = pending.map(|entry| entry.ppn()).or(cached) {
            count(&mut self.stats).note(true);
            return Ok(found);
        }
        let (vtpn, index) = (
            lpn.raw() / self.map.per_page(),
            lpn.raw() % self.map.per_page(),
        );
        let is_unmapped = self.map.directory[vtpn as usize] == UNMAPPED;
        count(&mut self.stats).note(is_unmapped);
        if is_unmapped {
            return Ok(None);
        }
        self.stalled_by(Cause::Translation, |ftl| {
            ftl.map
                .read_map_page(&mut ftl.space, vtpn, Cause::Translation)
        })?;
        let page = self.space.flash.own(&self.map.map_page);
        self.map
            .policy
            .load(vtpn, page, lpn.raw(), more, &self.map.pending);
        Ok(entry_at(page, index))
    }

    /// Evicts entries until the cache has its size. In read-only state, evicted entries stay
    /// pending.
    #[inline]
    pub(crate) fn settle_cache(&mut self) -> Result<(), FtlError> {
        while let Some(vtpn) = self.map.policy.evict(&self.map.pending) {
            if self.gc.is_read_only() {
                continue;
            }
            self.ensure_space(MAP)?;
            match self.write_back_evicted(vtpn) {
                // The mapping page is lost. The current request did not cause this, and new entries
                // stay pending.
                Err(FtlError::MediaLost(_)) => {}
                other => other?,
            }
        }
        Ok(())
    }
}
