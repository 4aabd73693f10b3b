//! Programs and erases: each program gets the next sequence number and a record.

use super::kept::is_own;
use super::state::Flash;
use crate::error::FtlError;
use crate::format::{Flags, OOB_BYTES, OOB_SLOT, Oob, PageTag, Role, UNMAPPED};
use crate::int::{count_up, to_u32, to_u64};
use nand_model::{Cause, NandError, Part, Pbn, Ppn, RunError};

impl Flash {
    /// Programs a padding page, which has no mark.
    pub(crate) fn program_padding(
        &mut self,
        ppn: Ppn,
        epoch: u64,
        blank: &[u8],
    ) -> Result<(), NandError> {
        debug_assert_eq!(
            blank.len(),
            self.chip.geometry().page_len(),
            "bytes of padding page {ppn}"
        );
        self.pseq += 1;
        let tag = PageTag {
            role: Role::Pad,
            flags: Flags::NONE,
            lpn: UNMAPPED,
            ver: 0,
        };
        let oob = Oob {
            tag,
            pseq: self.pseq,
            epoch,
        }
        .encode();
        let done = self.chip.program(self.now, ppn, blank, &oob, Cause::Pad)?;
        self.proceed(done);
        Ok(())
    }

    /// Programs one page per tag, upwards from `first`. On an error, [`RunError::done`] is the
    /// number of programmed pages.
    #[inline(always)]
    pub(crate) fn program(
        &mut self,
        first: Ppn,
        epoch: u64,
        tags: &[PageTag],
        data: &[u8],
        cause: Cause,
    ) -> Result<(), RunError> {
        debug_assert_eq!(
            data.len(),
            tags.len() * self.chip.geometry().page_len(),
            "data is not {} pages long",
            tags.len()
        );
        if tags.iter().any(|tag| is_own(tag.role.byte())) {
            self.wait();
        }
        let pseq = self.pseq;
        count_up(&mut self.pseq, to_u64(tags.len())); // A record has 48 bits of it, and checks that.
        let mark = self.mark;
        let record = |(pseq, tag): (u64, &PageTag)| {
            let flags = tag.flags.without(Flags::MOUNT_MARKS).with(mark);
            Oob {
                tag: PageTag { flags, ..*tag },
                pseq,
                epoch,
            }
            .encode()
        };
        if let [tag] = tags {
            let oob = record((pseq + 1, tag));
            let done = self
                .chip
                .program_run(self.now, first, 1, data, &oob, cause)?;
            self.proceed(done);
        } else {
            self.oobs.clear();
            self.oobs.extend((pseq + 1..).zip(tags).map(record));
            let oobs = self.oobs.as_flattened();
            let done =
                self.chip
                    .program_run(self.now, first, to_u32(tags.len()), data, oobs, cause)?;
            self.proceed(done);
        }
        self.keep(first, data, tags.iter().map(|tag| tag.role));
        Ok(())
    }

    /// Reserves `bytes` for a scheme part behind the record of a page. Returns an error if the
    /// chip's OOB area is too small.
    pub(crate) fn reserve_spare(&mut self, bytes: usize) -> Result<(), FtlError> {
        let (needed, there) = (OOB_BYTES + bytes, self.chip.geometry().oob_len());
        if needed > there {
            return Err(FtlError::Config(format!(
                "the scheme needs {needed} spare bytes per page ({OOB_BYTES} for the record, {bytes} for its own part), the flash has \
                 {there}: choose a profile with more spare bytes, or smaller tables"
            )));
        }
        self.spare.resize(needed, 0xFF);
        Ok(())
    }

    /// Programs one page with a scheme part, which `fill` writes.
    #[inline]
    pub(crate) fn program_with_spare(
        &mut self,
        ppn: Ppn,
        epoch: u64,
        tag: PageTag,
        fill: impl FnOnce(&mut [u8]),
        data: &[u8],
        cause: Cause,
    ) -> Result<(), RunError> {
        self.pseq += 1;
        let flags = tag.flags.without(Flags::MOUNT_MARKS).with(self.mark);
        let record = Oob {
            tag: PageTag { flags, ..tag },
            pseq: self.pseq,
            epoch,
        }
        .encode();
        assert!(
            self.spare.len() > OOB_BYTES,
            "the spare bytes have no room for a scheme part"
        );
        debug_assert_eq!(
            data.len(),
            self.chip.geometry().page_len(),
            "data of page {ppn} is not one page long"
        );
        self.spare[..OOB_BYTES].copy_from_slice(&record[..OOB_BYTES]);
        fill(&mut self.spare[OOB_BYTES..]);
        let done = self
            .chip
            .program_run(self.now, ppn, 1, data, &self.spare, cause)?;
        self.proceed(done);
        self.keep(ppn, data, std::iter::once(tag.role));
        Ok(())
    }

    /// Returns whether a page can be copied without a transfer over the bus.
    pub(crate) fn can_copy_back(&self, from: Ppn, to: Ppn) -> bool {
        let geometry = self.geometry();
        let plane = |ppn: Ppn| {
            let block = geometry.block_of(ppn);
            (
                geometry.die_of(block),
                block.raw() / geometry.dies() % geometry.planes,
            )
        };
        plane(from) == plane(to)
    }

    /// Copies logical page `lpn` without a transfer over the bus. Renews its record and adds a
    /// scheme part, which `fill` writes. Returns `Uncorrectable` if the page is unreadable, belongs
    /// to another address, or is in another plane than `to`.
    pub(crate) fn copy_back(
        &mut self,
        lpn: u32,
        from: Ppn,
        to: Ppn,
        epoch: u64,
        fill: impl FnOnce(&mut [u8]),
        cause: Cause,
    ) -> Result<(), RunError> {
        if !self.can_copy_back(from, to) {
            let error = NandError::Uncorrectable {
                ppn: from,
                part: Part::Data,
            };
            return Err(RunError {
                done: 0,
                at: self.now,
                error,
            });
        }
        debug_assert_ne!(from, to, "page {from} is to be copied to itself");
        self.pseq += 1;
        let (mark, pseq, at) = (self.mark, self.pseq, self.now);
        let renew = |spare: &mut [u8]| {
            let mut slot = [0xFF; OOB_SLOT];
            slot[..OOB_BYTES].copy_from_slice(&spare[..OOB_BYTES]);
            let is_meant = Oob::decode(&slot)
                .is_some_and(|oob| oob.tag.lpn == lpn && oob.tag.role.is_host_data());
            if is_meant {
                Oob::recopy(std::slice::from_mut(&mut slot), mark, pseq, epoch);
                Oob::assume(&mut slot, Role::Data);
                spare[..OOB_BYTES].copy_from_slice(&slot[..OOB_BYTES]);
                fill(&mut spare[OOB_BYTES..]);
            }
            is_meant
        };
        match self
            .chip
            .copyback(at, from, to, &mut self.spare, renew, cause)
        {
            Ok(done) => self.proceed(done),
            Err(error) => return Err(RunError { done: 0, at, error }),
        }
        Ok(())
    }

    /// Clears OOB bits of a page as a hint; skips a page that cannot legally take the program. Such
    /// a page is blank because its program was misdirected and the chip has restarted since. Or it
    /// was marked before and became valid again because its mapping page was misdirected.
    pub(crate) fn mark(&mut self, ppn: Ppn, bits: &[u8], cause: Cause) -> Result<(), NandError> {
        if self.chip.takes_oob_program(ppn) {
            let done = self.chip.program_oob(self.now, ppn, bits, cause)?;
            self.proceed(done);
        }
        Ok(())
    }

    /// Programs copies of pages, upwards from `first`; renews their records, which are passed as
    /// read. On an error, [`RunError::done`] is the number of programmed pages.
    pub(crate) fn program_copies(
        &mut self,
        first: Ppn,
        epoch: u64,
        records: &mut [[u8; OOB_SLOT]],
        data: &[u8],
        cause: Cause,
    ) -> Result<(), RunError> {
        debug_assert_eq!(
            data.len(),
            records.len() * self.chip.geometry().page_len(),
            "data is not {} pages long",
            records.len()
        );
        let pseq = self.pseq;
        self.pseq += to_u64(records.len());
        Oob::recopy(records, self.mark, pseq + 1, epoch);
        let (pages, oobs) = (to_u32(records.len()), records.as_flattened());
        let done = self
            .chip
            .program_run(self.now, first, pages, data, oobs, cause)?;
        self.proceed(done);
        // Copies are rarely the controller's own pages, and a check of one byte per record is the
        // cheapest test. If no page is kept, no copy is one of them.
        let any_kept = self.kept.as_ref().is_some_and(|kept| !kept.is_empty());
        if any_kept
            && records
                .iter()
                .fold(false, |any, record| any | is_own(record[1]))
        {
            self.keep(
                first,
                data,
                records.iter().map(|record| Oob::owner(record).0),
            );
        }
        Ok(())
    }

    /// Keeps pages that a scheme reads back itself, if the store keeps no data.
    #[inline(always)]
    fn keep(&mut self, first: Ppn, data: &[u8], roles: impl Iterator<Item = Role>) {
        let Some(kept) = &mut self.kept else { return };
        let page = self.chip.geometry().page_len();
        for (i, _) in roles.enumerate().filter(|(_, role)| is_own(role.byte())) {
            kept.put(
                self.chip.geometry(),
                Ppn::new(first.raw() + to_u32(i)),
                &data[i * page..][..page],
            );
        }
    }

    pub(crate) fn erase(&mut self, block: Pbn, cause: Cause) -> Result<(), NandError> {
        self.copy_deferred();
        let at = self.wait();
        self.now = self.chip.erase(at, block, cause)?;
        if let Some(kept) = &mut self.kept {
            kept.remove_block(block);
        }
        Ok(())
    }
}
