//! Reads of host data, of the controller's own pages, and of records alone.

use super::deferred::{DeferredRead, DeferredRun};
use super::state::Flash;
use crate::error::FtlError;
use crate::format::{Flags, LOST, OOB_BYTES, OOB_SLOT, Oob, UNMAPPED};
use crate::int::{index, to_u32};
use nand_model::{Cause, Health, NandError, Part, Ppn, Store};

impl Flash {
    /// Reads only a page's record and scheme part. Returns `None` if they are blank, foreign or
    /// lost.
    #[inline]
    pub(crate) fn read_spare(
        &mut self,
        ppn: Ppn,
        cause: Cause,
    ) -> Result<Option<(Oob, &[u8])>, FtlError> {
        match self.chip.read_oob(self.now, ppn, &mut self.spare, cause) {
            Ok(done) => self.now = done,
            Err(NandError::Uncorrectable { .. }) => return Ok(None),
            Err(other) => return Err(other.into()),
        }
        Ok(Oob::decode(&self.spare).map(|oob| (oob, &self.spare[OOB_BYTES..])))
    }

    /// Reads consecutive pages of one block. `pages` receives each page's record and whether its
    /// data is good. The record is `None` if the OOB area is blank, foreign or lost.
    pub(crate) fn read_run(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        pages: &mut Vec<(Option<Oob>, bool)>,
        cause: Cause,
    ) -> Result<(), NandError> {
        let count = data.len() / self.geometry().page_len();
        debug_assert_eq!(
            data.len(),
            count * self.geometry().page_len(),
            "data is not {count} pages long"
        );
        self.oobs.resize(count, [0; OOB_SLOT]);
        self.health.resize(count, Health::Good);
        let oobs = self.oobs.as_flattened_mut();
        self.now = self
            .chip
            .read_run(self.now, first, data, oobs, &mut self.health, cause)?;
        if let Some(kept) = &self.kept {
            kept.restore(
                self.chip.geometry(),
                (first.raw()..).map(Ppn::new).take(count),
                data,
            );
        }
        pages.clear();
        pages.extend(self.oobs.iter().zip(&self.health).map(|(oob, health)| {
            let oob = if health.oob_ok() {
                Oob::decode(oob)
            } else {
                None
            };
            (oob, health.data_ok())
        }));
        Ok(())
    }

    /// Reads `count` logical pages from `lpn` on for the host. `ppn_of` returns the physical page
    /// of each number from 0 on, or [`UNMAPPED`] or [`LOST`]. Physically consecutive pages of a
    /// block are read at once.
    pub(crate) fn read_logical_pages(
        &mut self,
        lpn: u32,
        count: usize,
        ppn_of: impl Fn(usize) -> u32,
        out: &mut [u8],
    ) -> Result<(), FtlError> {
        let page = self.geometry().page_len();
        assert_eq!(
            out.len(),
            count * page,
            "buffer is not {count} logical pages long"
        );
        let mut done = 0;
        let mut parts = self.begin_parts();
        while done < count {
            self.next_part(&mut parts);
            let run = self.run_length(count - done, |i| ppn_of(done + i));
            let (bytes, lpn) = (&mut out[done * page..][..run * page], lpn + to_u32(done));
            match ppn_of(done) {
                UNMAPPED => bytes.fill(0),
                LOST => return Err(FtlError::MediaLost(lpn)),
                ppn => self.read_host(lpn, Ppn::new(ppn), bytes)?,
            }
            done += run;
        }
        self.end_parts(parts);
        Ok(())
    }

    /// Returns how many of these pages are all unmapped, or physically consecutive in one block.
    fn run_length(&self, count: usize, ppn_of: impl Fn(usize) -> u32) -> usize {
        let first = ppn_of(0);
        let block = |ppn: u32| self.geometry().block_of(Ppn::new(ppn));
        let follows = |i: &usize| match (first, ppn_of(*i)) {
            (UNMAPPED, ppn) => ppn == UNMAPPED,
            (LOST, _) => false,
            (first, ppn) => ppn < LOST && ppn == first + to_u32(*i) && block(ppn) == block(first),
        };
        1 + (1..count).take_while(follows).count()
    }

    /// Reads consecutive pages of one block for the host: logical pages from `lpn` on, or an error.
    /// Leaves them to the caller of the scheme if it has asked for that, and the chip can.
    pub(crate) fn read_host(
        &mut self,
        lpn: u32,
        first: Ppn,
        out: &mut [u8],
    ) -> Result<(), FtlError> {
        if let Some(runs) = &mut self.deferred {
            let count = to_u32(out.len() / self.chip.geometry().page_len());
            let placed = self.chip.place_run(self.now, first, count, Cause::Host)?;
            if let Some((done, run)) = placed {
                self.now = done;
                runs.push(DeferredRun::new(lpn, run));
                return Ok(());
            }
        }
        let mut found = std::mem::take(&mut self.found);
        let outcome = self.read_run(first, out, &mut found, Cause::Host);
        let ours = |lpn: u32, oob: &Option<Oob>| {
            oob.is_some_and(|o| o.tag.lpn == lpn && !o.tag.flags.has(Flags::LOST))
        };
        let lost = (lpn..)
            .zip(&found)
            .find(|(lpn, (oob, data_ok))| !ours(*lpn, oob) || !data_ok);
        let lost = lost.map(|(lpn, _)| lpn);
        self.found = found;
        outcome?;
        lost.map_or(Ok(()), |lpn| Err(FtlError::MediaLost(lpn)))
    }

    /// Reads ascending pages of one block consecutively into `data` and `records`. Returns whether
    /// all are good. If not, [`Flash::health`] returns the state of each page, and a record may be
    /// invalid.
    pub(crate) fn read_pages(
        &mut self,
        pages: &[Ppn],
        data: &mut [u8],
        records: &mut [[u8; OOB_SLOT]],
        cause: Cause,
    ) -> Result<bool, NandError> {
        let good = self.read_pages_in_place(pages, data, records, cause)?;
        if let Some(kept) = &self.kept {
            kept.restore(self.chip.geometry(), pages.iter().copied(), data);
        }
        Ok(good)
    }

    /// As [`Flash::read_pages`], but over a store that keeps no data, the copies of the
    /// controller's own pages stay where they are. [`Flash::program_own_copies`] moves them.
    pub(crate) fn read_pages_in_place(
        &mut self,
        pages: &[Ppn],
        data: &mut [u8],
        records: &mut [[u8; OOB_SLOT]],
        cause: Cause,
    ) -> Result<bool, NandError> {
        debug_assert_eq!(
            (data.len(), records.len()),
            (pages.len() * self.geometry().page_len(), pages.len()),
            "buffers are not for {} pages: bytes, records",
            pages.len()
        );
        self.health.resize(pages.len(), Health::Good);
        let oobs = records.as_flattened_mut();
        self.now = self
            .chip
            .read_pages(self.now, pages, data, oobs, &mut self.health, cause)?;
        // Avoids a branch per page.
        let all_records = || {
            records
                .iter()
                .fold(true, |so_far, record| so_far & Oob::is_record(record))
        };
        if self.chip.reads_are_sure() {
            debug_assert!(all_records(), "every program has a record");
            return Ok(true);
        }
        let all_good = self.health.iter().fold(true, |so_far, health| {
            so_far & matches!(health, Health::Good)
        });
        Ok(all_good && all_records())
    }

    /// Returns the state of each page of the last [`Flash::read_pages`].
    pub(crate) fn health(&self) -> &[Health] {
        &self.health
    }

    /// Reads only a page's record. Returns `None` if it is blank, foreign or lost.
    pub(crate) fn read_oob(&mut self, ppn: Ppn, cause: Cause) -> Result<Option<Oob>, FtlError> {
        let mut bytes = [0; OOB_BYTES];
        match self.chip.read_oob(self.now, ppn, &mut bytes, cause) {
            Ok(done) => self.now = done,
            Err(NandError::Uncorrectable { .. }) => return Ok(None),
            Err(other) => return Err(other.into()),
        }
        Ok(Oob::decode(&bytes))
    }

    /// Reads the records of `count` consecutive pages of one block, in ascending order. A record is
    /// `None` if it is blank, foreign or lost.
    pub(crate) fn read_oobs(
        &mut self,
        first: Ppn,
        count: u32,
        cause: Cause,
    ) -> Result<impl Iterator<Item = Option<Oob>> + '_, FtlError> {
        self.oobs.resize(index(count), [0; OOB_SLOT]);
        self.health.resize(index(count), Health::Good);
        if count > 0 {
            let (oobs, health) = (self.oobs.as_flattened_mut(), &mut self.health);
            self.now = self.chip.read_oobs(self.now, first, oobs, health, cause)?;
        }
        let records = self.oobs.iter().zip(&self.health);
        Ok(records.map(|(oob, health)| {
            if health.oob_ok() {
                Oob::decode(oob)
            } else {
                None
            }
        }))
    }

    /// Reads a whole page. Returns `Ok(None)` if data or record is unreadable.
    pub(crate) fn read(
        &mut self,
        ppn: Ppn,
        data: &mut [u8],
        cause: Cause,
    ) -> Result<Option<Oob>, FtlError> {
        let oob = self.read_into(ppn, data, cause)?;
        if let Some(kept) = &self.kept
            && oob.is_some()
            && let Some(own) = kept.get(self.chip.geometry(), ppn)
        {
            data.copy_from_slice(own);
        }
        Ok(oob)
    }

    /// Reads a page as the chip returns it: over a store without data, without its content.
    pub(super) fn read_into(
        &mut self,
        ppn: Ppn,
        data: &mut [u8],
        cause: Cause,
    ) -> Result<Option<Oob>, FtlError> {
        let mut bytes = [0; OOB_BYTES];
        match self.chip.read(self.now, ppn, data, &mut bytes, cause) {
            Ok(done) => self.now = done,
            Err(NandError::Uncorrectable {
                part: Part::Data | Part::Oob,
                ..
            }) => return Ok(None),
            Err(other) => return Err(other.into()),
        }
        Ok(Oob::decode(&bytes))
    }
}

impl Flash {
    /// Makes the following host reads copy their pages.
    #[inline]
    pub(crate) fn copy_reads(&mut self) {
        self.deferred = None;
    }

    /// Makes the following host reads leave their pages to `deferred`, until
    /// [`Flash::end_deferring`].
    pub(crate) fn defer_reads(&mut self, deferred: &mut DeferredRead) {
        deferred.page_bytes = self.geometry().page_len();
        self.deferred = Some(std::mem::take(&mut deferred.runs));
    }

    /// Makes host reads copy their pages again, and passes the deferred runs to `deferred`.
    pub(crate) fn end_deferring(&mut self, deferred: &mut DeferredRead) {
        if let Some(runs) = self.deferred.take() {
            deferred.runs = runs;
        }
    }

    /// Copies the runs that the current read has left to its caller, before an erase frees their
    /// place.
    pub(super) fn copy_deferred(&mut self) {
        let Some(runs) = &mut self.deferred else {
            return;
        };
        let (page, mut records) = (self.chip.geometry().page_len(), Vec::new());
        for run in runs.iter_mut().filter(|run| run.copy.is_none()) {
            let (reader, pin) = (self.chip.store().reader(), self.chip.store().pin());
            let mut data = vec![0; run.place.count() as usize * page];
            let is_good = reader
                .zip(pin)
                .is_some_and(|(reader, pin)| run.read(&reader, &pin, &mut records, &mut data));
            run.copy = Some(if is_good { data } else { Vec::new() });
        }
    }
}
