//! Buffer for the valid pages of one block that are being relocated.

use crate::error::FtlError;
use crate::format::{Flags, OOB_SLOT, Oob, PageTag, Role, UNMAPPED};
use crate::int::{index, to_u32, to_u64};
use crate::ram::{vec_bytes, vec_most};
use crate::space::Space;
use nand_model::{Cause, Geometry, Health, Pbn, Ppn};

/// The valid pages of a block, in page order: data, records as read, and source pages.
#[derive(Default)]
pub(crate) struct CopyBuffer {
    pub(crate) data: Vec<u8>,
    pub(crate) records: Vec<[u8; OOB_SLOT]>,
    pub(crate) from: Vec<Ppn>,
    /// Buffer positions of the pages whose record is lost.
    unknown: Vec<usize>,
}

impl CopyBuffer {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let data = vec![0; index(geometry.pages_per_block * geometry.page_bytes)];
        CopyBuffer {
            data,
            records: Vec::new(),
            from: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Reads every valid page of the block. Records carry LOST if the data is unreadable. The
    /// caller must [name](CopyBuffer::name) pages whose own record is lost.
    pub(crate) fn load(
        &mut self,
        space: &mut Space,
        block: Pbn,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.load_first(space, block, u32::MAX, cause)
    }

    /// As [`Self::load`], for a block of the controller's own pages, which
    /// [`Space::append_own_copies`] relocates.
    pub(crate) fn load_own(
        &mut self,
        space: &mut Space,
        block: Pbn,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.list_first(space, block, u32::MAX);
        let data = &mut self.data[..self.from.len() * space.geometry().page_len()];
        let (from, records) = (&self.from, &mut self.records);
        if !from.is_empty() && !(space.flash).read_pages_in_place(from, data, records, cause)? {
            self.mark_lost(0, space.flash.health());
        }
        Ok(())
    }

    /// As [`Self::load`], with at most the first `most` valid pages.
    pub(crate) fn load_first(
        &mut self,
        space: &mut Space,
        block: Pbn,
        most: u32,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.list_first(space, block, most);
        let pages = std::mem::take(&mut self.from);
        let outcome = self.read_run(space, 0, &pages, cause);
        self.from = pages;
        outcome
    }

    fn list_first(&mut self, space: &Space, block: Pbn, most: u32) {
        self.from.clear();
        space.table.list_valid(block, &mut self.from);
        self.from.truncate(index(most));
        debug_assert!(
            self.from.len() <= space.geometry().block_pages(),
            "{} valid pages of block {block}",
            self.from.len()
        );
        self.unknown.clear();
        self.records.resize(self.from.len(), [0; OOB_SLOT]);
    }

    /// As [`Self::load`], with the given pages of any blocks.
    pub(crate) fn load_pages(
        &mut self,
        space: &mut Space,
        pages: &[Ppn],
        cause: Cause,
    ) -> Result<(), FtlError> {
        assert!(
            pages.len() <= space.geometry().block_pages(),
            "{} pages are to be copied at once, more than a block has",
            pages.len()
        );
        let mut from = std::mem::take(&mut self.from);
        from.clear();
        from.extend_from_slice(pages);
        self.load_into(space, from, cause)
    }

    fn load_into(
        &mut self,
        space: &mut Space,
        from: Vec<Ppn>,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.unknown.clear();
        let outcome = self.read(space, &from, cause);
        self.from = from;
        outcome
    }

    /// Reads every programmed page of the block only to let the chip check its health. Returns the
    /// number of pages.
    pub(crate) fn scan_block(
        &mut self,
        space: &mut Space,
        block: Pbn,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        let chip = space.flash.chip();
        let pages = (0..chip.frontier(block)).map(|offset| space.geometry().page(block, offset));
        let programmed: Vec<Ppn> = pages.filter(|ppn| chip.is_programmed(*ppn)).collect();
        space.stalled_by(cause, |space| self.load_into(space, programmed, cause))?;
        Ok(to_u32(self.from.len()))
    }

    /// Reads pages, block by block.
    fn read(&mut self, space: &mut Space, from: &[Ppn], cause: Cause) -> Result<(), FtlError> {
        let geometry = space.geometry();
        self.records.resize(from.len(), [0; OOB_SLOT]);
        let mut done = 0;
        for run in from.chunk_by(|a, b| a < b && geometry.block_of(*a) == geometry.block_of(*b)) {
            self.read_run(space, done, run, cause)?;
            done += run.len();
        }
        debug_assert_eq!(done, from.len(), "pages of all runs");
        Ok(())
    }

    /// Reads ascending pages of one block into the buffer positions from `first` on.
    fn read_run(
        &mut self,
        space: &mut Space,
        first: usize,
        run: &[Ppn],
        cause: Cause,
    ) -> Result<(), FtlError> {
        debug_assert!(
            run.is_sorted(),
            "pages to read are not in ascending order: {run:?}"
        );
        let page = space.geometry().page_len();
        let data = &mut self.data[first * page..][..run.len() * page];
        if !space.flash.read_pages(
            run,
            data,
            &mut self.records[first..first + run.len()],
            cause,
        )? {
            self.mark_lost(first, space.flash.health());
        }
        Ok(())
    }

    #[cold]
    fn mark_lost(&mut self, first: usize, health: &[Health]) {
        const UNKNOWN: PageTag = PageTag {
            role: Role::Pad,
            flags: Flags::NONE,
            lpn: UNMAPPED,
            ver: 0,
        };
        for (i, (record, health)) in (first..).zip(self.records[first..].iter_mut().zip(health)) {
            let found = Oob::decode(record).filter(|_| health.oob_ok());
            let tag = found.map_or(UNKNOWN, |oob| oob.tag);
            if found.is_none() {
                self.unknown.push(i);
            }
            let lost = if health.data_ok() {
                Flags::NONE
            } else {
                Flags::LOST
            };
            *record = Oob {
                tag: PageTag {
                    flags: tag.flags.with(lost),
                    ..tag
                },
                pseq: 0,
                epoch: 0,
            }
            .encode();
        }
    }

    /// Iterates over the pages whose record is lost: buffer position and source page.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (usize, Ppn)> {
        self.unknown.iter().map(|i| (*i, self.from[*i]))
    }

    /// Assigns an owner to a page whose record is lost. Its data may be another version than the
    /// wanted one, so reading it stays an error. The version is a new one, so that no older version
    /// replaces it at mount.
    pub(crate) fn name(&mut self, i: usize, role: Role, lpn: u32, ver: u64) {
        let tag = PageTag {
            role,
            flags: Flags::LOST,
            lpn,
            ver,
        };
        debug_assert!(self.unknown.contains(&i), "record of page {i} is not lost");
        self.records[i] = Oob {
            tag,
            pseq: 0,
            epoch: 0,
        }
        .encode();
    }

    /// Takes a page out of the buffer; returns it. Later pages move up.
    #[cold]
    pub(crate) fn remove(&mut self, i: usize, page_bytes: usize) -> Ppn {
        let end = self.from.len() * page_bytes;
        self.data
            .copy_within((i + 1) * page_bytes..end, i * page_bytes);
        self.records.remove(i);
        self.unknown.retain(|unknown| *unknown != i);
        for unknown in &mut self.unknown {
            *unknown -= usize::from(*unknown > i);
        }
        self.from.remove(i)
    }

    /// Sorts the loaded pages, all of which have a record, by their owners; trim records last. Over
    /// a store that keeps no data (`has_data`), only the data of trim records moves along.
    pub(crate) fn sort_by_owner(
        &mut self,
        page_bytes: usize,
        has_data: bool,
        order: &mut Vec<usize>,
    ) {
        self.unknown.clear();
        let key = |record: &[u8; OOB_SLOT]| {
            let (role, lpn) = Oob::owner(record);
            (role == Role::Trim, lpn)
        };
        if self.records.is_sorted_by_key(key) {
            return;
        }
        let count = self.from.len();
        order.clear();
        order.extend(0..count);
        order.sort_unstable_by_key(|i| (key(&self.records[*i]), *i));
        // Cycle by cycle: each swap brings one page to its place.
        for place in 0..count {
            let mut wanted = order[place];
            while wanted < place {
                wanted = order[wanted];
            }
            if wanted == place {
                continue;
            }
            self.records.swap(place, wanted);
            self.from.swap(place, wanted);
            let is_trim = |i: usize| Oob::owner(&self.records[i]).0 == Role::Trim;
            if has_data || is_trim(place) || is_trim(wanted) {
                let (before, from) = self.data.split_at_mut(wanted * page_bytes);
                before[place * page_bytes..][..page_bytes].swap_with_slice(&mut from[..page_bytes]);
            }
        }
    }

    /// Returns the role and the logical page, mapping page or other owner of a loaded page.
    #[inline]
    pub(crate) fn owner(&self, i: usize) -> (Role, u32) {
        debug_assert!(i < self.from.len(), "page {i} of {}", self.from.len());
        Oob::owner(&self.records[i])
    }

    /// Returns the tag in a loaded page's record.
    pub(crate) fn tag(&self, i: usize) -> PageTag {
        Oob::decode(&self.records[i])
            .expect("a loaded page has a valid record")
            .tag
    }

    /// Returns the bytes of the buffer: now, and at most.
    pub(crate) fn ram(&self, geometry: &Geometry) -> (u64, u64) {
        let data = vec_bytes::<u8>(self.data.capacity());
        let now = vec_bytes::<[u8; OOB_SLOT]>(self.records.capacity())
            + vec_bytes::<Ppn>(self.from.capacity())
            + vec_bytes::<usize>(self.unknown.capacity());
        let pages = to_u64(geometry.block_pages());
        let most = vec_most::<[u8; OOB_SLOT]>(pages) + vec_most::<Ppn>(pages);
        (data + now, data + most)
    }
}

/// Returns the error for a valid page whose record contradicts the map.
#[cold]
pub(crate) fn misplaced(ppn: Ppn, lpn: u32) -> FtlError {
    FtlError::Corrupt(format!(
        "valid page {ppn} has the record of logical page {lpn}, which is mapped elsewhere"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Flash;
    use crate::space::StreamSpec;
    use nand_model::Store;
    use nand_model::store::MemStore;
    use nand_model::{Chip, Profile};

    /// Two runs load pages of two blocks. A record lost in the second run identifies that page and
    /// no other.
    #[test]
    fn a_lost_record_is_told_apart_in_the_second_run() {
        let profile = Profile::find("slc-2k").unwrap().with_blocks(8);
        let pages = profile.geometry.pages_per_block;
        let spec = StreamSpec::new(crate::stats::StreamKind::Host, Role::Data, true);
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let mut space = Space::new(Flash::new(chip), &[spec]);
        space.format();
        let data = vec![7; profile.geometry.page_bytes as usize];
        let mut write = |lpn| {
            let tag = PageTag {
                role: Role::Data,
                flags: Flags::NONE,
                lpn,
                ver: lpn as u64,
            };
            space.append_page(0, tag, &data, Cause::Host).unwrap()
        };
        let ppns: Vec<Ppn> = (0..pages + 3).map(&mut write).collect();
        let wanted = [pages - 2, pages - 1, pages, pages + 1, pages + 2];
        let from = wanted.map(|lpn| ppns[lpn as usize]);
        space
            .flash
            .chip_mut()
            .store_mut()
            .set_health(from[3], Health::Lost)
            .unwrap();
        let mut buffer = CopyBuffer::new(&space.geometry());
        buffer.load_pages(&mut space, &from, Cause::Gc).unwrap();
        assert_eq!(buffer.unknown().collect::<Vec<_>>(), [(3, from[3])]);
        for (i, lpn) in wanted.into_iter().enumerate().filter(|(i, _)| *i != 3) {
            assert_eq!(buffer.owner(i), (Role::Data, lpn));
        }
        buffer.name(3, Role::Data, wanted[3], 99);
        assert_eq!(
            buffer.tag(3),
            PageTag {
                role: Role::Data,
                flags: Flags::LOST,
                lpn: wanted[3],
                ver: 99
            }
        );
    }
}
