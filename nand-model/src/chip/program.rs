//! Programs: the NAND rules, the outcomes of power cuts, and injected faults.

use super::device::Chip;
use super::slc::program_times;
use crate::addr::{Pbn, Ppn};
use crate::cause::Cause;
use crate::convert::{count_up, index, to_u16};
use crate::error::{NandError, RunError};
use crate::fault::{Cut, Fault, LastVerb, ProgramCut, Verdict};
use crate::profile::PageOrder;
use crate::rng::SplitMix;
use crate::store::{Bad, BlockFacts, Cells, Health, Store};
use crate::timing::{Nanos, PageRun};

fn run_error(done: u32, at: Nanos, error: NandError) -> RunError {
    RunError { done, at, error }
}

impl<S: Store> Chip<S> {
    /// Programs one page, data and OOB in one cycle. OOB bytes beyond the slice stay erased.
    ///
    /// `data` is one whole page, `oob` at most the OOB, both in bytes. `at` is the earliest start
    /// of the program, in ns of emulated time; returns the instant at which it is done.
    ///
    /// # Errors
    ///
    /// - [`NandError::ProgramFailed`]: the block is bad, from before or from now on. The caller
    ///   programs the data elsewhere and relocates the block's other pages.
    /// - [`NandError::PowerLost`] while power is off, or if the fault plan cuts it in this program;
    ///   the cut's outcome then determines the state of the page and of its word line.
    /// - [`NandError::HostFull`]: nothing is programmed; the same program may be retried later. In
    ///   a batch, [`Chip::end_batch`] reports it.
    /// - [`NandError::Host`]: the host refused to write the image.
    ///
    /// # Panics
    ///
    /// If the chip has no such page, the page is not erased, or the profile's page order has
    /// another page next.
    #[inline]
    pub fn program(
        &mut self,
        at: Nanos,
        ppn: Ppn,
        data: &[u8],
        oob: &[u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        self.program_run(at, ppn, 1, data, oob, cause)
            .map_err(|run| run.error)
    }

    /// Programs `count` pages of one block, upwards from `first`; `oobs` holds `count` equal
    /// slices. Times, counts and faults equal those of single programs, with one store access. On
    /// an error the first [`RunError::done`] pages are programmed.
    ///
    /// # Errors
    ///
    /// A [`RunError`] with the [`NandError`] of the page that failed, as for [`Chip::program`], and
    /// the number of pages programmed before it.
    ///
    /// # Panics
    ///
    /// As [`Chip::program`], and if the run is empty or leaves its block.
    #[inline(always)]
    pub fn program_run(
        &mut self,
        at: Nanos,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        cause: Cause,
    ) -> Result<Nanos, RunError> {
        assert!(count > 0, "NAND rule: an empty run");
        debug_assert!(
            data.len() == index(count) * self.profile.geometry.page_len()
                || !self.store.keeps_data(),
            "{} data bytes for {count} pages",
            data.len()
        );
        debug_assert!(
            oobs.len().is_multiple_of(index(count))
                && oobs.len() <= index(count) * self.profile.geometry.oob_len(),
            "{} OOB bytes for {count} pages",
            oobs.len()
        );
        let (block, offset) = (self.split.block_of(first), self.split.offset_of(first));
        let facts = self.blocks.get(block.index());
        let succeeds =
            facts.is_some_and(BlockFacts::takes_programs) && self.powered & !self.program_faults;
        let pages = self.pages_in(block);
        // The rules for the most frequent program: one page, the next of a block that has
        // programmed ones and is filled consecutively.
        let Some(frontier) = self.frontier.get_mut(block.index()).filter(|frontier| {
            succeeds
                && count == 1
                && self.programs.is_empty()
                && u32::from(**frontier) == offset
                && offset > 0
                && offset < pages
        }) else {
            return self.program_any_run(at, first, count, data, oobs, cause);
        };
        if let Err(error) = self.store.program(first, count, data, oobs) {
            return Err(run_error(0, at, error.into()));
        }
        *frontier = to_u16(offset.wrapping_add(1)); // At most the pages of a block.
        Ok(self.charge_programs(at, block, first, count, cause))
    }

    /// Begins a batch of operations that are acknowledged together: see [`Store::begin_batch`].
    #[inline]
    pub fn begin_batch(&mut self) {
        self.store.begin_batch();
    }

    /// Ends a batch.
    ///
    /// # Errors
    ///
    /// [`NandError::HostFull`] or [`NandError::Host`]: see [`Store::end_batch`].
    #[inline]
    pub fn end_batch(&mut self) -> Result<(), NandError> {
        Ok(self.store.end_batch()?)
    }

    /// Programs a run of any chip and block, whether or not it succeeds.
    #[inline(never)]
    fn program_any_run(
        &mut self,
        at: Nanos,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        cause: Cause,
    ) -> Result<Nanos, RunError> {
        let fail = |error| Err(run_error(0, at, error));
        let block = match self.check_page(first) {
            Ok(block) => block,
            Err(error) => return fail(error),
        };
        if self.bad(block).is_some() {
            let written = self.write_mark(block);
            return fail(written.err().unwrap_or(NandError::ProgramFailed(first)));
        }
        self.check_program_rules(block, self.split.offset_of(first), count);
        if self.frontier(block) == 0
            && let Err(error) = self.begin_life(at, block)
        {
            return fail(error);
        }
        if self.program_faults || self.blocks[block.index()].erase_interrupted {
            return self.program_run_with_faults(at, block, first, count, data, oobs, cause);
        }
        match self.store.program(first, count, data, oobs) {
            Ok(()) => Ok(self.account_programs(at, block, first, count, cause)),
            Err(error) => fail(error.into()),
        }
    }

    /// Clears those OOB bits of a programmed page that are 0 in `oob`. Legal where the profile's
    /// NOP allows another program.
    ///
    /// # Errors
    ///
    /// - [`NandError::ProgramFailed`] if the page's block is bad; the OOB stays as it is.
    /// - [`NandError::PowerLost`] while power is off.
    /// - [`NandError::HostFull`] or [`NandError::Host`]: the host refused to read or write the
    ///   image.
    ///
    /// # Panics
    ///
    /// If the page is erased, or was programmed as often as NOP allows: see
    /// [`Chip::takes_oob_program`].
    pub fn program_oob(
        &mut self,
        at: Nanos,
        ppn: Ppn,
        oob: &[u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let block = self.check_page(ppn)?;
        assert!(
            self.is_programmed(ppn),
            "NAND rule: OOB program of the erased page {ppn}"
        );
        assert!(
            !self.programs.is_empty() && self.programs[ppn.index()] < self.profile.nop,
            "NAND rule: page {ppn} was programmed {} times, NOP is {}",
            self.programs.get(ppn.index()).unwrap_or(&1),
            self.profile.nop
        );
        assert!(
            oob.len() <= self.profile.geometry.oob_len(),
            "NAND rule: a program of {} OOB bytes, page {ppn} has {}",
            oob.len(),
            self.profile.geometry.oob_bytes
        );
        if self.bad(block).is_some() {
            self.write_mark(block)?;
            return Err(NandError::ProgramFailed(ppn));
        }
        self.store.and_oob(ppn, oob)?;
        self.programs[ppn.index()] += 1;
        self.counters.of_mut(cause).oob_programs += 1;
        self.counters.program_busy_ns += self.profile.timing.oob_program_ns;
        let die = self.profile.geometry.die_of(block);
        let own = (self.profile.timing.oob_program_ns, 0);
        Ok(self.clocks.run((at, die), cause, own, |clocks| {
            clocks.program_oob(at, die, ppn)
        }))
    }

    /// Checks the NAND rules for a program of `count` pages of a block, upwards from `offset`.
    fn check_program_rules(&self, block: Pbn, offset: u32, count: u32) {
        assert!(
            offset + count <= self.profile.geometry.pages_per_block,
            "NAND rule: a run leaves its block"
        );
        assert!(
            offset + count <= self.pages_in(block),
            "NAND rule: program of page {} of block {block}, which is in SLC mode and has {} pages",
            offset + count - 1,
            self.pages_in(block)
        );
        let frontier = self.frontier(block);
        // The later pages of a run follow the first, so in an ordered block only the first can be
        // out of order.
        match self.profile.order {
            PageOrder::Consecutive => {
                assert!(
                    offset >= frontier,
                    "NAND rule: program of page {offset} of block {block}, which is not erased"
                );
                assert!(
                    offset == frontier,
                    "NAND rule: program of page {offset} of block {block}, page {frontier} is next"
                );
            }
            PageOrder::Ascending => {
                assert!(
                    offset >= frontier,
                    "NAND rule: program of page {offset} of block {block} after page {frontier}"
                );
            }
            PageOrder::Any => {
                let first = self.split.page(block, offset).index();
                for (offset, programs) in (offset..).zip(&self.programs[first..][..index(count)]) {
                    assert!(
                        *programs == 0,
                        "NAND rule: program of page {offset} of block {block}, which is not erased"
                    );
                }
            }
        }
    }

    /// Records the first program since the erase: retention counts from here.
    #[cold]
    fn begin_life(&mut self, at: Nanos, block: Pbn) -> Result<(), NandError> {
        debug_assert_eq!(self.frontier(block), 0, "a life begins in an erased block");
        let (since, before) = (self.hour(at), self.blocks[block.index()]);
        if since == before.since {
            return Ok(());
        }
        self.write_hour(at);
        let facts = BlockFacts { since, ..before };
        self.store.set_facts(block, facts)?;
        self.blocks[block.index()] = facts;
        Ok(())
    }

    fn account_programs(
        &mut self,
        at: Nanos,
        block: Pbn,
        first: Ppn,
        count: u32,
        cause: Cause,
    ) -> Nanos {
        self.note_programmed(block, self.split.offset_of(first), count);
        self.charge_programs(at, block, first, count, cause)
    }

    /// Counts the programs of a run and their time.
    #[inline(always)]
    fn charge_programs(
        &mut self,
        at: Nanos,
        block: Pbn,
        first: Ppn,
        count: u32,
        cause: Cause,
    ) -> Nanos {
        let (die, offset) = (self.split.die_of(block), self.split.offset_of(first));
        let times = program_times(block, &self.slc, &self.program_times);
        let cells_ns = times.of_run(offset, count);
        let run = PageRun {
            first,
            offset,
            count,
        };
        let done = self
            .clocks
            .run((at, die), cause, (cells_ns, count), |clocks| {
                clocks.program_run(at, die, times, run)
            });
        debug_assert!(
            done >= at + cells_ns,
            "a program takes its cell time at least"
        );
        self.counters.program_busy_ns += cells_ns - self.clocks.take_shared();
        count_up(&mut self.counters.of_mut(cause).programs, u64::from(count));
        done
    }

    pub(super) fn note_programmed(&mut self, block: Pbn, offset: u32, count: u32) {
        debug_assert!(
            offset + count <= self.profile.geometry.pages_per_block,
            "{count} pages from {offset} on leave block {block}"
        );
        let frontier = &mut self.frontier[block.index()];
        *frontier = (*frontier).max(to_u16(offset + count));
        if !self.programs.is_empty() {
            let first = self.profile.geometry.page(block, offset).index();
            self.programs[first..][..index(count)]
                .iter_mut()
                .for_each(|n| *n = (*n).max(1));
        }
    }

    /// Programs a run page by page while the fault plan may affect programs.
    #[cold]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the verb, and the block it has looked up"
    )]
    fn program_run_with_faults(
        &mut self,
        at: Nanos,
        block: Pbn,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        cause: Cause,
    ) -> Result<Nanos, RunError> {
        let (page, part) = (data.len() / index(count), oobs.len() / index(count));
        let (begin, mut at) = (at, at);
        // Pages of one cached sequence arrive together.
        let cached = self.profile.timing.cache.program;
        for (done, ppn) in (0..).zip(first.run(count)) {
            let (data, oob) = (
                &data[index(done) * page..][..page],
                &oobs[index(done) * part..][..part],
            );
            let from = if cached { begin } else { at };
            match self.program_with_faults(from, block, ppn, data, oob, cause) {
                Ok(end) => at = end,
                Err(error) => return Err(RunError { done, at, error }),
            }
        }
        Ok(at)
    }

    /// Programs one page while the fault plan may affect programs.
    fn program_with_faults(
        &mut self,
        at: Nanos,
        block: Pbn,
        ppn: Ppn,
        data: &[u8],
        oob: &[u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        debug_assert!(self.powered, "a program without power");
        match self.program_verdict(block) {
            Verdict::Cut(cut) => {
                self.powered = false;
                let (die, cell_ns) = (self.split.die_of(block), self.cell_ns(ppn));
                let run = PageRun {
                    first: ppn,
                    offset: self.split.offset_of(ppn),
                    count: 1,
                };
                let mut clocks = self.clocks.clone();
                let end = clocks.program_run(at, die, self.program_times_of(block), run);
                let cut = self.cut_in_flight(block, &clocks, (end - cell_ns, end), true, cut)?;
                self.cut_program(block, ppn, data, oob, cut)?;
                return Err(NandError::PowerLost);
            }
            Verdict::Inject(fault) => {
                self.counters.note_fault(fault);
                self.forget_op(block);
                match fault {
                    Fault::LostProgram => self.strays = true,
                    Fault::MisdirectedProgram => self.misdirect(ppn, data, oob)?,
                    _ => return self.fail_program(at, block, ppn, data, oob, cause),
                }
            }
            Verdict::Succeed => {
                let erase_interrupted = self.blocks[block.index()].erase_interrupted;
                let health = if erase_interrupted {
                    Health::Lost
                } else {
                    Health::Good
                };
                self.store.program_as(ppn, data, oob, health)?;
                let done = self.account_programs(at, block, ppn, 1, cause);
                self.note_op(block, (done - self.cell_ns(ppn), done), || {
                    LastVerb::Program(ppn)
                });
                return Ok(done);
            }
        }
        Ok(self.account_programs(at, block, ppn, 1, cause))
    }

    /// Cell time of the program of a page.
    fn cell_ns(&self, ppn: Ppn) -> Nanos {
        let block = self.split.block_of(ppn);
        self.program_times_of(block).of(self.split.offset_of(ppn))
    }

    fn program_verdict(&mut self, block: Pbn) -> Verdict {
        let Some(faults) = &mut self.faults else {
            return Verdict::Succeed;
        };
        let erases = self.blocks[block.index()].erase_count;
        let worn = match faults.plan().wear_out {
            0.0 => 0.0,
            factor => {
                factor
                    * self
                        .profile
                        .program_hazard(erases, self.slc.contains(block))
            }
        };
        faults.program(self.profile.geometry.die_of(block), block, worn)
    }

    fn fail_program(
        &mut self,
        at: Nanos,
        block: Pbn,
        ppn: Ppn,
        data: &[u8],
        oob: &[u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        self.store.program_as(ppn, data, oob, Health::Lost)?;
        self.account_programs(at, block, ppn, 1, cause);
        self.counters.program_fails += 1;
        self.mark_bad(block, Bad::FailedProgram)?;
        Err(NandError::ProgramFailed(ppn))
    }

    /// Programs a page's data into another page, in half of the cases one of the same block.
    fn misdirect(&mut self, ppn: Ppn, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        let geometry = self.profile.geometry;
        let faults = self
            .faults
            .as_mut()
            .expect("a plan sent the program astray");
        let mut block = geometry.block_of(ppn).raw();
        if geometry.blocks > 1 && faults.choose(2) == 0 {
            block = (block + 1 + faults.choose(geometry.blocks - 1)) % geometry.blocks;
        }
        let block = Pbn::new(block);
        let pages = if self.slc.contains(block) {
            self.profile.slc_pages()
        } else {
            geometry.pages_per_block
        };
        let mut offset = faults.choose(pages);
        if geometry.page(block, offset) == ppn {
            offset = (offset + 1) % pages;
        }
        debug_assert_ne!(
            geometry.page(block, offset),
            ppn,
            "a program astray hits another page"
        );
        let mut cells = Cells {
            data: data.to_vec(),
            oob: oob.to_vec(),
            tag: self.store.tag(ppn).expect("checked"),
        };
        cells.oob.resize(geometry.oob_len(), 0xFF);
        self.strays = true;
        Ok(self.store.put_cells(geometry.page(block, offset), &cells)?)
    }

    fn cut_program(
        &mut self,
        block: Pbn,
        ppn: Ppn,
        data: &[u8],
        oob: &[u8],
        cut: Cut,
    ) -> Result<(), NandError> {
        assert!(!self.powered, "what a cut leaves, with power on");
        if cut.program == ProgramCut::NotStarted {
            return Ok(());
        }
        let mut rng = SplitMix::new(cut.seed);
        let (mut data, mut oob) = (data.to_vec(), oob.to_vec());
        let mut tear = |bytes: &mut [u8]| bytes.iter_mut().for_each(|b| *b |= rng.byte());
        let health = match cut.program {
            ProgramCut::NotStarted => unreachable!("returned above"),
            ProgramCut::Complete => Health::Good,
            ProgramCut::Unstable(reads) => Health::Unstable(reads),
            ProgramCut::Flickering(number) => Health::Flickering(number),
            ProgramCut::Prefix => {
                let kept = data.len() / 3;
                data[kept..].fill(0xFF);
                oob.fill(0xFF);
                Health::Lost
            }
            ProgramCut::RandomBits => {
                tear(&mut data);
                tear(&mut oob);
                Health::Lost
            }
            ProgramCut::DataTorn => {
                tear(&mut data);
                Health::DataLost
            }
            ProgramCut::OobTorn => {
                tear(&mut oob);
                Health::OobLost
            }
        };
        let offset = self.profile.geometry.offset_of(ppn);
        self.store.program_as(ppn, &data, &oob, health)?;
        self.note_programmed(block, offset, 1);
        self.spoil_partners(ppn, cut.partner)
    }
}
