//! The schemes' only door to the chip: encodes and decodes the OOB record, hands out program
//! sequence numbers, and carries the instant along a request's critical path.

use crate::error::FtlError;
use crate::format::{Flags, LOST, OOB_BYTES, OOB_SLOT, Oob, PageTag, Role, UNMAPPED};
use nand_model::{
    Cause, Chip, Geometry, Health, NandError, Nanos, Part, Pbn, Ppn, RunError, Store,
};
use rustc_hash::FxHashMap;

/// Data of the controller's own pages (everything but host data), where the store keeps none. The
/// chip counts and times their reads as ever.
#[derive(Default)]
struct Kept(FxHashMap<u32, Vec<Box<[u8]>>>);

impl Kept {
    fn put(&mut self, geometry: &Geometry, ppn: Ppn, data: &[u8]) {
        let pages = self.0.entry(geometry.block_of(ppn).raw()).or_default();
        pages.resize(geometry.pages_per_block as usize, Box::default());
        pages[geometry.offset_of(ppn) as usize] = data.into();
    }

    fn remove(&mut self, geometry: &Geometry, ppn: Ppn) {
        if let Some(pages) = self.0.get_mut(&geometry.block_of(ppn).raw()) {
            pages[geometry.offset_of(ppn) as usize] = Box::default();
        }
    }

    /// Puts what is kept of these pages of one block into `data`, where they lie one behind the
    /// other.
    #[inline]
    fn restore(
        &self,
        geometry: &Geometry,
        pages: impl Iterator<Item = Ppn> + Clone,
        data: &mut [u8],
    ) {
        let Some(first) = pages.clone().next() else {
            return;
        };
        if let Some(own) = self.0.get(&geometry.block_of(first).raw()) {
            let page_bytes = geometry.page_bytes as usize;
            for (page, ppn) in data.chunks_mut(page_bytes).zip(pages) {
                match &own[geometry.offset_of(ppn) as usize] {
                    own if own.is_empty() => {}
                    own => page.copy_from_slice(own),
                }
            }
        }
    }

    fn get(&self, geometry: &Geometry, ppn: Ppn) -> Option<&[u8]> {
        let page = &self.0.get(&geometry.block_of(ppn).raw())?[geometry.offset_of(ppn) as usize];
        (!page.is_empty()).then_some(page)
    }
}

/// Whether pages of the role with this number are the controller's own, which schemes read back.
#[inline]
fn is_own(role: u8) -> bool {
    const OWN: u32 = 1 << Role::Map as u32 | 1 << Role::Trim as u32 | 1 << Role::Checkpoint as u32;
    OWN.checked_shr(role as u32).is_some_and(|own| own & 1 == 1)
}

/// A chip with the counters that every program needs.
pub(crate) struct Flash<S> {
    chip: Chip<S>,
    now: Nanos,
    /// When the last program that was begun will have ended.
    ended: Nanos,
    pseq: u64,
    /// Set on every program but filler: [`Flags::PROVISIONAL`] while a mount runs.
    mark: Flags,
    /// Records of the run at hand, a slot each.
    oobs: Vec<[u8; OOB_SLOT]>,
    /// Record and scheme part of the page at hand.
    spare: Vec<u8>,
    health: Vec<Health>,
    /// What a host read found, page by page.
    found: Vec<(Option<Oob>, bool)>,
    /// Only over a store that keeps no data.
    kept: Option<Kept>,
}

impl<S: Store> Flash<S> {
    pub(crate) fn new(chip: Chip<S>) -> Self {
        let kept = (!chip.store().keeps_data()).then(Kept::default);
        Flash {
            chip,
            now: 0,
            ended: 0,
            pseq: 0,
            mark: Flags::NONE,
            oobs: Vec::new(),
            spare: Vec::new(),
            health: Vec::new(),
            found: Vec::new(),
            kept,
        }
    }

    pub(crate) fn chip(&self) -> &Chip<S> {
        &self.chip
    }

    pub(crate) fn chip_mut(&mut self) -> &mut Chip<S> {
        &mut self.chip
    }

    pub(crate) fn into_chip(self) -> Chip<S> {
        self.chip
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        self.chip.geometry()
    }

    /// Sets the instant at which the next operation may start.
    pub(crate) fn begin(&mut self, at: Nanos) {
        self.now = at;
    }

    /// When the last operation on the critical path was done.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Waits until all programs have ended, also those of requests that overlap with this one.
    /// Returns when.
    ///
    /// What supersedes pages for good starts here: a mapping page on one die must not be safe while
    /// a page it names is torn on another; nor may a block be gone while the pages that replace its
    /// own are torn.
    pub(crate) fn wait(&mut self) -> Nanos {
        self.now = self.now.max(self.ended);
        self.now
    }

    /// A program ends at this instant.
    #[inline(always)]
    fn proceed(&mut self, done: Nanos) {
        self.now = done;
        self.ended = self.ended.max(done);
    }

    /// Sequence number of the last program.
    pub(crate) fn pseq(&self) -> u64 {
        self.pseq
    }

    /// Mount found a program with this number.
    pub(crate) fn saw_pseq(&mut self, pseq: u64) {
        self.pseq = self.pseq.max(pseq);
    }

    /// Marks what is programmed from now on, copies included, instead of what was marked before.
    pub(crate) fn set_mark(&mut self, mark: Flags) {
        self.mark = mark;
    }

    /// Programs a page of filler, which bears no mark.
    pub(crate) fn program_filler(
        &mut self,
        ppn: Ppn,
        epoch: u64,
        blank: &[u8],
    ) -> Result<(), NandError> {
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

    /// Programs one page per tag, upwards from `first`. On an error [`RunError::done`] says how
    /// many are there.
    #[inline(always)]
    pub(crate) fn program(
        &mut self,
        first: Ppn,
        epoch: u64,
        tags: &[PageTag],
        data: &[u8],
        cause: Cause,
    ) -> Result<(), RunError> {
        if tags.iter().any(|tag| is_own(tag.role as u8)) {
            self.wait();
        }
        let pseq = self.pseq;
        self.pseq += tags.len() as u64;
        let mark = self.mark;
        let record = |(pseq, tag): (u64, &PageTag)| {
            let flags = tag.flags.without(Flags::PROVISIONAL).with(mark);
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
                    .program_run(self.now, first, tags.len() as u32, data, oobs, cause)?;
            self.proceed(done);
        }
        self.keep(first, data, tags.iter().map(|tag| tag.role));
        Ok(())
    }

    /// Makes room for a scheme part of so many bytes behind the record of a page; an error where
    /// the part's spare bytes are too few.
    pub(crate) fn reserve_spare(&mut self, bytes: usize) -> Result<(), FtlError> {
        let (needed, there) = (OOB_BYTES + bytes, self.chip.geometry().oob_bytes as usize);
        if needed > there {
            return Err(FtlError::Config(format!(
                "{needed} spare bytes per page are needed ({OOB_BYTES} for the record, {bytes} for the scheme), the flash has \
                 {there}: choose a profile with more, or smaller tables"
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
        let flags = tag.flags.without(Flags::PROVISIONAL).with(self.mark);
        let record = Oob {
            tag: PageTag { flags, ..tag },
            pseq: self.pseq,
            epoch,
        }
        .encode();
        self.spare[..OOB_BYTES].copy_from_slice(&record[..OOB_BYTES]);
        fill(&mut self.spare[OOB_BYTES..]);
        let done = self
            .chip
            .program_run(self.now, ppn, 1, data, &self.spare, cause)?;
        self.proceed(done);
        self.keep(ppn, data, std::iter::once(tag.role));
        Ok(())
    }

    /// Whether a page can be copied without crossing the bus.
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

    /// Copies logical page `lpn` without a transfer over the bus, with its record renewed and a
    /// scheme part, which `fill` writes. `Uncorrectable` where the page is unreadable, belongs to
    /// another address, or is in another plane than `to`.
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

    /// Reads a page's record and scheme part alone: `None` where they are blank, foreign or lost.
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

    /// Clears OOB bits of a page, as a hint: a page that cannot legally take them goes without. It
    /// is blank if its program went astray and the chip has restarted since, or was marked before
    /// and became live again because its mapping page went astray.
    pub(crate) fn mark(&mut self, ppn: Ppn, bits: &[u8], cause: Cause) -> Result<(), NandError> {
        if self.chip.takes_oob_program(ppn) {
            let done = self.chip.program_oob(self.now, ppn, bits, cause)?;
            self.proceed(done);
        }
        Ok(())
    }

    /// Reads consecutive pages of one block. `pages` receives per page its record and whether its
    /// data is good; `None` where the OOB is blank, foreign or lost.
    pub(crate) fn read_run(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        pages: &mut Vec<(Option<Oob>, bool)>,
        cause: Cause,
    ) -> Result<(), NandError> {
        let count = data.len() / self.geometry().page_bytes as usize;
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

    /// Reads `count` logical pages from `lpn` on for the host, wherever they are: `place` of a
    /// number from 0 on says the physical page, [`UNMAPPED`] or [`LOST`]. What lies one behind the
    /// other in a block is read at once.
    pub(crate) fn read_places(
        &mut self,
        lpn: u32,
        count: usize,
        place: impl Fn(usize) -> u32,
        out: &mut [u8],
    ) -> Result<(), FtlError> {
        let page = self.geometry().page_bytes as usize;
        let mut done = 0;
        while done < count {
            let run = self.run_length(count - done, |i| place(done + i));
            let (bytes, lpn) = (&mut out[done * page..][..run * page], lpn + done as u32);
            match place(done) {
                UNMAPPED => bytes.fill(0),
                LOST => return Err(FtlError::MediaLost(lpn)),
                ppn => self.read_host(lpn, Ppn::new(ppn), bytes)?,
            }
            done += run;
        }
        Ok(())
    }

    /// How many of these are unmapped together, or lie one behind the other in one block.
    fn run_length(&self, count: usize, place: impl Fn(usize) -> u32) -> usize {
        let first = place(0);
        let block = |ppn: u32| self.geometry().block_of(Ppn::new(ppn));
        let follows = |i: &usize| match (first, place(*i)) {
            (UNMAPPED, ppn) => ppn == UNMAPPED,
            (LOST, _) => false,
            (first, ppn) => ppn < LOST && ppn == first + *i as u32 && block(ppn) == block(first),
        };
        1 + (1..count).take_while(follows).count()
    }

    /// Reads consecutive pages of one block for the host: logical pages from `lpn` on, or an error.
    pub(crate) fn read_host(
        &mut self,
        lpn: u32,
        first: Ppn,
        out: &mut [u8],
    ) -> Result<(), FtlError> {
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

    /// Reads pages of one block, ascending, one behind the other into `data` and `records`. Returns
    /// whether all is well; if not, [`Flash::health`] tells about each page, and a record may be
    /// none.
    pub(crate) fn read_pages(
        &mut self,
        pages: &[Ppn],
        data: &mut [u8],
        records: &mut [[u8; OOB_SLOT]],
        cause: Cause,
    ) -> Result<bool, NandError> {
        self.health.resize(pages.len(), Health::Good);
        let oobs = records.as_flattened_mut();
        self.now = self
            .chip
            .read_pages(self.now, pages, data, oobs, &mut self.health, cause)?;
        if let Some(kept) = &self.kept {
            kept.restore(self.chip.geometry(), pages.iter().copied(), data);
        }
        // Without a branch per page.
        let all_good = || {
            self.health.iter().fold(true, |so_far, health| {
                so_far & matches!(health, Health::Good)
            })
        };
        let good = self.chip.reads_are_sure() || all_good();
        Ok(good
            && records
                .iter()
                .fold(true, |so_far, record| so_far & Oob::is_record(record)))
    }

    /// What the last [`Flash::read_pages`] found, page by page.
    pub(crate) fn health(&self) -> &[Health] {
        &self.health
    }

    /// Programs copies of pages, upwards from `first`: their records as read, renewed here. On an
    /// error [`RunError::done`] says how many are there.
    pub(crate) fn program_copies(
        &mut self,
        first: Ppn,
        epoch: u64,
        records: &mut [[u8; OOB_SLOT]],
        data: &[u8],
        cause: Cause,
    ) -> Result<(), RunError> {
        let pseq = self.pseq;
        self.pseq += records.len() as u64;
        Oob::recopy(records, self.mark, pseq + 1, epoch);
        let (count, oobs) = (records.len() as u32, records.as_flattened());
        let done = self
            .chip
            .program_run(self.now, first, count, data, oobs, cause)?;
        self.proceed(done);
        // Mostly there are none, and a look at one byte is the cheapest way to know. What was not
        // kept before is none, either.
        let any_kept = self.kept.as_ref().is_some_and(|kept| !kept.0.is_empty());
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

    /// Where the store keeps no data: pages that a scheme reads back itself are kept here.
    #[inline(always)]
    fn keep(&mut self, first: Ppn, data: &[u8], roles: impl Iterator<Item = Role>) {
        let Some(kept) = &mut self.kept else { return };
        let page = self.chip.geometry().page_bytes as usize;
        for (i, _) in roles.enumerate().filter(|(_, role)| is_own(*role as u8)) {
            kept.put(
                self.chip.geometry(),
                Ppn::new(first.raw() + i as u32),
                &data[i * page..][..page],
            );
        }
    }

    /// Nobody will read this page again: where the store keeps no data, neither does the
    /// controller.
    #[inline]
    pub(crate) fn forget(&mut self, ppn: Ppn) {
        if let Some(kept) = &mut self.kept {
            kept.remove(self.chip.geometry(), ppn);
        }
    }

    /// Reads a page's record alone: `None` where it is blank, foreign or lost.
    pub(crate) fn read_oob(&mut self, ppn: Ppn, cause: Cause) -> Result<Option<Oob>, FtlError> {
        let mut bytes = [0; OOB_BYTES];
        match self.chip.read_oob(self.now, ppn, &mut bytes, cause) {
            Ok(done) => self.now = done,
            Err(NandError::Uncorrectable { .. }) => return Ok(None),
            Err(other) => return Err(other.into()),
        }
        Ok(Oob::decode(&bytes))
    }

    /// Reads a whole page. `Ok(None)` where data or record cannot be had.
    pub(crate) fn read(
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
        if let Some(own) = self
            .kept
            .as_ref()
            .and_then(|kept| kept.get(self.chip.geometry(), ppn))
        {
            data.copy_from_slice(own);
        }
        Ok(Oob::decode(&bytes))
    }

    pub(crate) fn erase(&mut self, block: Pbn, cause: Cause) -> Result<(), NandError> {
        let at = self.wait();
        self.now = self.chip.erase(at, block, cause)?;
        if let Some(kept) = &mut self.kept {
            kept.0.remove(&block.raw());
        }
        Ok(())
    }
}
