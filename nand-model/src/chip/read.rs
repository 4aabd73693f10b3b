//! Reads: whole pages, OOBs and runs, and the effects of wear, age and faults.

use super::device::Chip;
use super::slc::read_times;
use crate::addr::{Pbn, Ppn};
use crate::cause::Cause;
use crate::convert::{index, to_u32, to_u64};
use crate::error::{NandError, Part};
use crate::fault::{Fault, FaultState};
use crate::store::{Health, PlacedRun, Store};
use crate::timing::{Clocks, Nanos};

/// How the cells of a page are read, and so how long a read retry takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sense {
    /// The whole page.
    Page,
    /// The OOB alone.
    Short,
}

impl<S: Store> Chip<S> {
    /// Reads a page: data and OOB. Either buffer may be empty; an OOB buffer may be shorter than
    /// the OOB. An erased page reads as all ones. `Uncorrectable` names the first requested part
    /// that is lost; the other part's buffer is filled all the same. Like every read, one close to
    /// the ECC limit adds its block to [`Chip::blocks_to_refresh`].
    ///
    /// `at` is the earliest start of the read, in ns of emulated time. Returns the instant at which
    /// the data has arrived.
    ///
    /// # Errors
    ///
    /// - [`NandError::Uncorrectable`]: a requested part is torn or decayed.
    /// - [`NandError::PowerLost`] while power is off.
    /// - [`NandError::Host`] or [`NandError::HostFull`]: the host refused to read the image, or to
    ///   record the read of an unstable page.
    ///
    /// # Panics
    ///
    /// If the chip has no such page, or a buffer is longer than its part of the page.
    #[inline]
    pub fn read(
        &mut self,
        at: Nanos,
        ppn: Ppn,
        data: &mut [u8],
        oob: &mut [u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let block = self.check_page(ppn)?;
        let cell_ns = self.read_times_of(block).of(self.split.offset_of(ppn));
        self.counters.of_mut(cause).reads += 1;
        let die = self.profile.geometry.die_of(block);
        let done = self.clocks.run((at, die), cause, (cell_ns, 1), |clocks| {
            clocks.read_run(at, die, cell_ns, cell_ns, 1, [(ppn, cell_ns)].into_iter())
        });
        self.counters.read_busy_ns += cell_ns - self.clocks.take_shared();
        self.fetch(done, Sense::Page, ppn, data, oob)
    }

    /// Reads the OOB alone, with the time of a short read.
    ///
    /// # Errors
    ///
    /// As [`Chip::read`] of the OOB alone.
    ///
    /// # Panics
    ///
    /// As [`Chip::read`].
    #[inline]
    pub fn read_oob(
        &mut self,
        at: Nanos,
        ppn: Ppn,
        oob: &mut [u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let block = self.check_page(ppn)?;
        let cell_ns = self.short_read_ns_of(block);
        self.counters.of_mut(cause).partial_reads += 1;
        self.counters.read_busy_ns += cell_ns;
        let die = self.profile.geometry.die_of(block);
        let sense = |clocks: &mut Clocks| clocks.sense(at, die, ppn, cell_ns);
        let done = self.clocks.run((at, die), cause, (cell_ns, 0), sense);
        self.fetch(done, Sense::Short, ppn, &mut [], oob)
    }

    /// Reads `health.len()` pages of one block with one store access; times and counts equal those
    /// of single reads. Pages that cannot be read are reported in `health` instead of as an error;
    /// erased pages read as all ones.
    ///
    /// `data` is empty or holds a page for each element of `health`; `oobs` is empty or holds as
    /// many equal slices.
    ///
    /// # Errors
    ///
    /// [`NandError::PowerLost`], [`NandError::Host`] or [`NandError::HostFull`] as for
    /// [`Chip::read`]; the contents of the buffers are then undefined.
    ///
    /// # Panics
    ///
    /// If the run is empty or leaves its block.
    pub fn read_run(
        &mut self,
        at: Nanos,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let count = to_u32(health.len());
        let (done, block, whole) = self.charge_run(at, first, count, cause)?;
        let pages = first.run(count);
        if whole {
            self.store.read(first, data, oobs, health)?;
        } else {
            self.fetch_each(pages.clone(), data, oobs, health)?;
        }
        self.conclude(done, Sense::Page, block, pages, data, oobs, health)
    }

    /// Reads a run of pages without their bytes, for a caller that copies them by
    /// [`Store::reader`]: times and counts equal those of [`Chip::read_run`]. Returns `None`, and
    /// charges nothing, if the chip itself has to read the run: a page is erased, a fault plan
    /// affects reads, or the store names no place.
    ///
    /// # Errors
    ///
    /// [`NandError::PowerLost`] while power is off.
    ///
    /// # Panics
    ///
    /// As [`Chip::read_run`].
    #[inline]
    pub fn place_run(
        &mut self,
        at: Nanos,
        first: Ppn,
        count: u32,
        cause: Cause,
    ) -> Result<Option<(Nanos, PlacedRun)>, NandError> {
        if self.read_faults || self.strays {
            return Ok(None);
        }
        self.check_page(first)?;
        let run = match self.is_run_programmed(first, count) {
            true => self.store.place(first, count),
            false => None,
        };
        let Some(run) = run else { return Ok(None) };
        let (done, ..) = self.charge_run(at, first, count, cause)?;
        Ok(Some((done, run)))
    }

    /// Charges a read of a run. Returns the instant at which its data has arrived, its block, and
    /// whether all its pages are programmed.
    #[inline]
    fn charge_run(
        &mut self,
        at: Nanos,
        first: Ppn,
        count: u32,
        cause: Cause,
    ) -> Result<(Nanos, Pbn, bool), NandError> {
        let block = self.check_page(first)?;
        assert!(count > 0, "NAND rule: an empty run");
        let offset = self.profile.geometry.offset_of(first);
        assert!(
            offset + count <= self.profile.geometry.pages_per_block,
            "NAND rule: a run leaves its block"
        );
        let times = read_times(block, &self.slc, &self.read_times);
        let cells_ns = times.of_run(offset, count);
        self.counters.of_mut(cause).reads += u64::from(count);
        let die = self.profile.geometry.die_of(block);
        let first_ns = times.of(offset);
        let each = times.each(first, offset, count);
        let done = self
            .clocks
            .run((at, die), cause, (cells_ns, count), |clocks| {
                clocks.read_run(at, die, cells_ns, first_ns, count, each)
            });
        self.counters.read_busy_ns += cells_ns - self.clocks.take_shared();
        Ok((done, block, self.is_run_programmed(first, count)))
    }

    #[inline]
    fn is_run_programmed(&self, first: Ppn, count: u32) -> bool {
        if self.programs.is_empty() {
            let offset = self.split.offset_of(first);
            return offset + count <= self.frontier(self.split.block_of(first));
        }
        self.programs[first.index()..][..index(count)]
            .iter()
            .all(|n| *n > 0)
    }

    /// Reads pages of one block, in ascending order, into consecutive parts of the buffers; times,
    /// counts and reports equal those of [`Chip::read_run`] of each.
    ///
    /// # Errors
    ///
    /// As [`Chip::read_run`].
    ///
    /// # Panics
    ///
    /// If the pages do not ascend or are of more than one block, or `health` does not have one
    /// element per page.
    pub fn read_pages(
        &mut self,
        at: Nanos,
        pages: &[Ppn],
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return Ok(at);
        };
        let block = self.check_page(*first)?;
        self.check_page(*last)?;
        assert!(
            self.profile.geometry.block_of(*last) == block,
            "NAND rule: a run leaves its block"
        );
        assert_eq!(
            health.len(),
            pages.len(),
            "NAND rule: a run has a health for each page"
        );
        // Without a branch per page.
        let ascend = pages
            .windows(2)
            .fold(true, |so_far, pair| so_far & (pair[0] < pair[1]));
        assert!(ascend, "NAND rule: pages of a run ascend");
        let count = to_u32(pages.len());
        let offsets = pages.iter().map(|ppn| self.split.offset_of(*ppn));
        let times = read_times(block, &self.slc, &self.read_times);
        let cells_ns = times.of_pages(offsets, count);
        let cell_ns = |ppn: &Ppn| times.of(self.split.offset_of(*ppn));
        let first_ns = cell_ns(first);
        self.counters.of_mut(cause).reads += u64::from(count);
        let die = self.profile.geometry.die_of(block);
        let each = pages.iter().map(|ppn| (*ppn, cell_ns(ppn)));
        let done = self
            .clocks
            .run((at, die), cause, (cells_ns, count), |clocks| {
                clocks.read_run(at, die, cells_ns, first_ns, count, each)
            });
        self.counters.read_busy_ns += cells_ns - self.clocks.take_shared();
        let whole = if self.programs.is_empty() {
            self.is_programmed(*last)
        } else {
            pages.iter().all(|ppn| self.is_programmed(*ppn))
        };
        if whole {
            self.store.read_pages(pages, data, oobs, health)?;
        } else {
            self.fetch_each(pages.iter().copied(), data, oobs, health)?;
        }
        self.conclude(
            done,
            Sense::Page,
            block,
            pages.iter().copied(),
            data,
            oobs,
            health,
        )
    }

    /// Reads one page; an error if a requested part is lost.
    #[inline]
    pub(super) fn fetch(
        &mut self,
        done: Nanos,
        sense: Sense,
        ppn: Ppn,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Nanos, NandError> {
        debug_assert!(
            data.is_empty() || data.len() == self.profile.geometry.page_len(),
            "NAND rule: read of {} data bytes, page {ppn} has {}",
            data.len(),
            self.profile.geometry.page_bytes
        );
        debug_assert!(
            oob.len() <= self.profile.geometry.oob_len(),
            "NAND rule: read of {} OOB bytes, page {ppn} has {}",
            oob.len(),
            self.profile.geometry.oob_bytes
        );
        let mut health = [self.fetch_health(ppn, data, oob)?];
        if health == [Health::Good] && !self.read_faults {
            return Ok(done);
        }
        let block = self.profile.geometry.block_of(ppn);
        let done = self.conclude(
            done,
            sense,
            block,
            std::iter::once(ppn),
            data,
            oob,
            &mut health,
        )?;
        let [health] = health;
        match (
            data.is_empty() || health.data_ok(),
            oob.is_empty() || health.oob_ok(),
        ) {
            (true, true) => Ok(done),
            (false, _) => Err(NandError::Uncorrectable {
                ppn,
                part: Part::Data,
            }),
            (true, false) => Err(NandError::Uncorrectable {
                ppn,
                part: Part::Oob,
            }),
        }
    }

    /// Reads pages of which some may be erased.
    fn fetch_each(
        &mut self,
        pages: impl Iterator<Item = Ppn>,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> Result<(), NandError> {
        let (page, part) = (data.len() / health.len(), oobs.len() / health.len());
        debug_assert!(
            page == 0 || page == self.profile.geometry.page_len(),
            "NAND rule: read of {page} data bytes per page"
        );
        debug_assert!(
            part <= self.profile.geometry.oob_len(),
            "NAND rule: read of {part} OOB bytes per page"
        );
        for (i, (ppn, health)) in pages.zip(health).enumerate() {
            let (data, oob) = (&mut data[i * page..][..page], &mut oobs[i * part..][..part]);
            *health = self.fetch_health(ppn, data, oob)?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn fetch_health(
        &mut self,
        ppn: Ppn,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Health, NandError> {
        if !self.is_programmed(ppn) {
            data.fill(0xFF);
            oob.fill(0xFF);
            // A stray page belongs to another page or life: its check fails.
            let stray = self.strays && self.store.cells(ppn)?.is_some();
            return Ok(if stray { Health::Lost } else { Health::Good });
        }
        let mut health = [Health::Good];
        self.store.read(ppn, data, oob, &mut health)?;
        Ok(health[0])
    }

    /// Finishes every read: `pages` of one block, their bytes, and what the store could read of
    /// them. Returns the instant at which the chip is done.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the verb, and what it has found out"
    )]
    pub(super) fn conclude(
        &mut self,
        done: Nanos,
        sense: Sense,
        block: Pbn,
        mut pages: impl Iterator<Item = Ppn> + Clone,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> Result<Nanos, NandError> {
        debug_assert!(
            data.len().is_multiple_of(health.len()) && oobs.len().is_multiple_of(health.len()),
            "buffers of {} and {} bytes for {} pages",
            data.len(),
            oobs.len(),
            health.len()
        );
        let (retries, again_ns) = if self.read_faults {
            self.apply_read_faults(done, sense, block, pages.clone(), data, oobs, health)
        } else {
            (0, 0)
        };
        if !self.reads_are_sure() && health.iter().any(|health| *health != Health::Good) {
            let lost = |health: &&Health| {
                (!data.is_empty() && !health.data_ok()) || (!oobs.is_empty() && !health.oob_ok())
            };
            self.counters.uncorrectable_reads += to_u64(health.iter().filter(lost).count());
        }
        if retries == 0 {
            return Ok(done);
        }
        self.counters.read_retries += retries;
        self.counters.read_busy_ns += again_ns;
        let die = self.profile.geometry.die_of(block);
        // Any of the pages: the first read has waited for the programs of them all.
        let page = pages.next().expect("a read has a page");
        Ok(self.clocks.sense(done, die, page, again_ns))
    }

    /// Applies the fault plan to pages that were read. Returns the number of read retries and their
    /// cell time.
    #[cold]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the verb, and what it has found out"
    )]
    fn apply_read_faults(
        &mut self,
        at: Nanos,
        sense: Sense,
        block: Pbn,
        pages: impl Iterator<Item = Ppn>,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> (u64, Nanos) {
        let Some(mut faults) = self.faults.take() else {
            return (0, 0);
        };
        let (page, part) = (data.len() / health.len(), oobs.len() / health.len());
        let dead = faults.has_die_failed(self.profile.geometry.die_of(block));
        let (factor, seed) = (faults.plan().bit_errors, faults.plan().seed);
        let rber = if factor > 0.0 {
            factor * self.rber(at, block, to_u32(health.len()))
        } else {
            0.0
        };
        let (mut retries, mut again_ns) = (0, 0);
        for (i, (ppn, health)) in pages.zip(health).enumerate() {
            let before = retries;
            if dead {
                *health = Health::Lost;
            } else if self.is_programmed(ppn) {
                let (data, oob) = (&mut data[i * page..][..page], &mut oobs[i * part..][..part]);
                self.apply_stale_read(&mut faults, ppn, data, oob, health);
                if rber > 0.0 {
                    let wanted = (
                        !data.is_empty() && health.data_ok(),
                        !oob.is_empty() && health.oob_ok(),
                    );
                    retries += self.correct_errors(rber, seed, ppn, wanted, health);
                }
                let wrong = faults.wrong_bits(ppn);
                if wrong > 0 && !data.is_empty() && health.data_ok() {
                    let found = self.profile.ecc.correct_bits(wrong);
                    retries += self.note_correction(ppn, &found, health);
                }
            }
            let cell_ns = match sense {
                Sense::Page => self.read_times_of(block).of(self.split.offset_of(ppn)),
                Sense::Short => self.short_read_ns_of(block),
            };
            again_ns += cell_ns * (retries - before);
        }
        self.faults = Some(faults);
        (retries, again_ns)
    }

    /// Replaces the content by that from before the last erase, if the plan has this fault. Its tag
    /// is checked like that of any other page.
    fn apply_stale_read(
        &mut self,
        faults: &mut FaultState,
        ppn: Ppn,
        data: &mut [u8],
        oob: &mut [u8],
        health: &mut Health,
    ) {
        let block = self.profile.geometry.block_of(ppn);
        if !faults.erased_contents.contains_key(&ppn) || !faults.read_is_stale(block) {
            return;
        }
        let erased = &faults.erased_contents[&ppn];
        debug_assert!(
            data.len() <= erased.data.len() && oob.len() <= erased.oob.len(),
            "a former life of page {ppn} was kept in part"
        );
        data.copy_from_slice(&erased.data[..data.len()]);
        oob.copy_from_slice(&erased.oob[..oob.len()]);
        *health = if self.store.tag(ppn) == Some(erased.tag) {
            Health::Good
        } else {
            Health::Lost
        };
        self.counters.note_fault(Fault::StaleRead);
    }
}
