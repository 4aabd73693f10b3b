//! The chip: geometry, the law, wear, bad blocks, timing and counters by cause, in one verb each.
//!
//! What always holds, in release builds too: a page is programmed only when erased, in the order its profile allows, at most
//! NOP times; a bad block is never programmed or erased with success. Breaking the law is the caller's bug and panics. What
//! silicon really does (a failed program, a torn page, lost power) is a [`NandError`] that says what to do.
//!
//! If power fails here (a [`Cut`] of the fault plan), the operation under way leaves what the cut's outcome says, and every
//! later verb returns [`NandError::PowerLost`] until [`Chip::power_on`].

use crate::addr::{Pbn, Ppn};
use crate::cause::{Cause, Counters};
use crate::error::{NandError, Part};
use crate::fault::{Cut, EraseCut, FaultPlan, FaultState, PartnerCut, ProgramCut, SplitMix, Verdict};
use crate::geometry::Geometry;
use crate::pairing::PairTable;
use crate::profile::{PageOrder, Profile};
use crate::store::{Bad, BlockFacts, Health, Store};
use crate::timing::{Clocks, Nanos, ProgramTimes};

/// A run of programs that ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunError {
    /// Pages of the run that were programmed before the one that failed.
    pub done: u32,
    /// When the chip was done with them.
    pub at: Nanos,
    /// What happened to the next one.
    pub error: NandError,
}

/// An emulated flash device over a store.
#[derive(Clone, Debug)]
pub struct Chip<S> {
    profile: Profile,
    pairs: PairTable,
    store: S,
    blocks: Vec<BlockFacts>,
    /// Per block: one past the highest page programmed since the erase.
    frontier: Vec<u16>,
    /// Per page: programs since the erase; empty when pages are programmed consecutively and once, where the frontier says all.
    programs: Vec<u8>,
    clocks: Clocks,
    program_times: ProgramTimes,
    counters: Counters,
    faults: Option<Box<FaultState>>,
    powered: bool,
    /// Programs and erases that the chip accepted since it was opened.
    ops: u64,
    scratch: Vec<u8>,
}

impl<S: Store> Chip<S> {
    /// A chip of this profile over a store that may hold pages already.
    pub fn open(profile: Profile, mut store: S) -> Result<Self, NandError> {
        let geometry = profile.geometry;
        let mut blocks = Vec::with_capacity(geometry.blocks as usize);
        let mut frontier = Vec::with_capacity(geometry.blocks as usize);
        let per_page = profile.order != PageOrder::Consecutive || profile.nop > 1;
        let mut programs = vec![0; if per_page { geometry.page_slots() } else { 0 }];
        store.load(&mut |block, facts, counts| {
            blocks.push(facts);
            frontier.push(counts.iter().rposition(|&n| n > 0).map_or(0, |last| last as u16 + 1));
            if per_page {
                let first = geometry.page(block, 0).index();
                programs[first..first + counts.len()].copy_from_slice(counts);
            }
        })?;
        assert_eq!(blocks.len(), geometry.blocks as usize, "store and profile differ in blocks");
        let pairs = PairTable::new(profile.pairing, geometry.pages_per_block);
        Ok(Chip {
            program_times: ProgramTimes::new(&pairs, &profile.timing, geometry.pages_per_block),
            pairs,
            clocks: Clocks::new(&geometry, profile.timing),
            profile,
            store,
            blocks,
            frontier,
            programs,
            counters: Counters::default(),
            faults: None,
            powered: true,
            ops: 0,
            scratch: Vec::new(),
        })
    }

    /// Marks the factory-bad blocks of a new device, the profile's share of them, chosen by `seed`.
    pub fn mark_factory_bad(&mut self, seed: u64) -> Result<(), NandError> {
        let mut rng = SplitMix::new(seed);
        let wanted = self.geometry().blocks as u64 * self.profile.factory_bad_permille as u64 / 1000;
        let mut marked = 0;
        while marked < wanted {
            let block = Pbn::new(rng.below(self.geometry().blocks as u64) as u32);
            if self.bad(block).is_none() {
                self.mark_bad(block, Bad::Factory)?;
                marked += 1;
            }
        }
        Ok(())
    }

    /// Shape of the device.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.profile.geometry
    }

    /// The profile the chip was opened with.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Which pages share a word line.
    #[inline]
    pub fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    /// Counts since the chip was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Programs and erases begun since the chip was opened: the index space of [`Cut::at_op`].
    pub fn ops(&self) -> u64 {
        self.ops
    }

    /// Whether, and why, a block must not be used.
    #[inline]
    pub fn bad(&self, block: Pbn) -> Option<Bad> {
        self.blocks[block.index()].bad
    }

    /// Erases of this block in its life.
    #[inline]
    pub fn erase_count(&self, block: Pbn) -> u32 {
        self.blocks[block.index()].erase_count
    }

    /// One past the highest page programmed since the last erase, as a blank check of every page would tell.
    #[inline]
    pub fn frontier(&self, block: Pbn) -> u32 {
        self.frontier[block.index()] as u32
    }

    /// The store below, for what is beside the flash (sync points, capacity).
    pub fn store(&self) -> &S {
        &self.store
    }

    /// See [`Chip::store`].
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Gives the store back; emulated clocks and counters end here.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Installs a fault plan; its operation count starts at the next verb.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.faults = Some(Box::new(FaultState::new(plan)));
    }

    /// Ends a power cut and removes the fault plan. Whatever ran on the chip must mount again.
    pub fn power_on(&mut self) {
        self.powered = true;
        self.faults = None;
    }

    /// Whether a cut has happened.
    pub fn powered(&self) -> bool {
        self.powered
    }

    /// Cuts power between two operations.
    pub fn power_off(&mut self) {
        self.powered = false;
    }

    /// Reads a page: data and OOB. Either buffer may be empty; an OOB buffer may be shorter than the OOB. An erased page reads
    /// as all ones. `Uncorrectable` names the first part asked for that is lost; the other part's buffer is filled all the same.
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
        let cell_ns = self.profile.timing.read_ns;
        self.counters.of_mut(cause).reads += 1;
        self.counters.read_busy_ns += cell_ns;
        let done = self.clocks.read_run(at, self.profile.geometry.die_of(block), cell_ns, 1);
        self.fetch(ppn, data, oob)?;
        Ok(done)
    }

    /// Reads the OOB alone, at the price of a short read.
    #[inline]
    pub fn read_oob(&mut self, at: Nanos, ppn: Ppn, oob: &mut [u8], cause: Cause) -> Result<Nanos, NandError> {
        let block = self.check_page(ppn)?;
        let cell_ns = self.profile.timing.partial_read_ns;
        self.counters.of_mut(cause).partial_reads += 1;
        self.counters.read_busy_ns += cell_ns;
        let done = self.clocks.work(at, self.profile.geometry.die_of(block), cell_ns);
        self.fetch(ppn, &mut [], oob)?;
        Ok(done)
    }

    /// Reads `health.len()` pages of one block in one go: same time and counts as page by page, one store access. Pages that
    /// cannot be read are reported in `health` instead of as an error; erased pages read as all ones.
    pub fn read_run(
        &mut self,
        at: Nanos,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let block = self.check_page(first)?;
        let count = health.len() as u32;
        let offset = self.profile.geometry.offset_of(first);
        assert!(offset + count <= self.profile.geometry.pages_per_block, "law: a run leaves its block");
        let cell_ns = self.profile.timing.read_ns;
        self.counters.of_mut(cause).reads += count as u64;
        self.counters.read_busy_ns += cell_ns * count as u64;
        let die = self.profile.geometry.die_of(block);
        let done = self.clocks.read_run(at, die, cell_ns, count);
        let whole = if self.programs.is_empty() {
            offset + count <= self.frontier(block)
        } else {
            self.programs[first.index()..][..count as usize].iter().all(|n| *n > 0)
        };
        if whole {
            self.store.read(first, data, oobs, health)?;
            return Ok(done);
        }
        let (page, part) = (data.len() / health.len(), oobs.len() / health.len());
        for (i, health) in health.iter_mut().enumerate() {
            let (data, oob) = (&mut data[i * page..][..page], &mut oobs[i * part..][..part]);
            *health = self.fetch_health(Ppn::new(first.raw() + i as u32), data, oob)?;
        }
        Ok(done)
    }

    /// Reads pages of one block, ascending, one behind the other into the buffers: same time, counts and reports as
    /// [`Chip::read_run`] of each.
    pub fn read_pages(
        &mut self,
        at: Nanos,
        pages: &[Ppn],
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return Ok(at) };
        let block = self.check_page(*first)?;
        self.check_page(*last)?;
        assert!(self.profile.geometry.block_of(*last) == block, "law: a run leaves its block");
        assert!(pages.is_sorted_by(|a, b| a < b), "law: pages of a run ascend");
        let count = pages.len() as u32;
        let cell_ns = self.profile.timing.read_ns;
        self.counters.of_mut(cause).reads += count as u64;
        self.counters.read_busy_ns += cell_ns * count as u64;
        let done = self.clocks.read_run(at, self.profile.geometry.die_of(block), cell_ns, count);
        let whole = if self.programs.is_empty() {
            self.is_programmed(*last)
        } else {
            pages.iter().all(|ppn| self.is_programmed(*ppn))
        };
        if whole {
            self.store.read_pages(pages, data, oobs, health)?;
            return Ok(done);
        }
        let (page, part) = (data.len() / pages.len(), oobs.len() / pages.len());
        for (i, (ppn, health)) in pages.iter().zip(health).enumerate() {
            let (data, oob) = (&mut data[i * page..][..page], &mut oobs[i * part..][..part]);
            *health = self.fetch_health(*ppn, data, oob)?;
        }
        Ok(done)
    }

    /// Programs one page, data and OOB in one cycle. OOB bytes beyond the slice stay erased.
    #[inline]
    pub fn program(&mut self, at: Nanos, ppn: Ppn, data: &[u8], oob: &[u8], cause: Cause) -> Result<Nanos, NandError> {
        self.program_run(at, ppn, 1, data, oob, cause).map_err(|run| run.error)
    }

    /// Programs `count` pages of one block, upwards from `first`; `oobs` holds `count` equal slices. Same time, counts and faults
    /// as page by page, one store access. On an error the first [`RunError::done`] pages are programmed.
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
        let fail = |done, at, error| Err(RunError { done, at, error });
        let block = match self.check_page(first) {
            Ok(block) => block,
            Err(error) => return fail(0, at, error),
        };
        assert!(
            self.profile.geometry.offset_of(first) + count <= self.profile.geometry.pages_per_block,
            "law: a run leaves its block"
        );
        if self.bad(block).is_some() {
            return fail(0, at, NandError::ProgramFailed(first));
        }
        self.judge_programs(first, count);
        if self.faults.is_none() && !self.blocks[block.index()].weak {
            if let Err(error) = self.store.program(first, count, data, oobs) {
                return fail(0, at, error.into());
            }
            return Ok(self.account_programs(at, block, first, count, cause));
        }
        self.program_run_with_faults(at, block, first, count, data, oobs, cause)
    }

    /// Clears OOB bits of a page that is programmed already: those that are 0 in `oob`. Legal where the profile's NOP allows
    /// another program.
    pub fn program_oob(&mut self, at: Nanos, ppn: Ppn, oob: &[u8], cause: Cause) -> Result<Nanos, NandError> {
        let block = self.check_page(ppn)?;
        assert!(self.is_programmed(ppn), "law: OOB program of the erased page {ppn}");
        assert!(
            !self.programs.is_empty() && self.programs[ppn.index()] < self.profile.nop,
            "law: page {ppn} was programmed {} times, NOP is {}",
            self.programs.get(ppn.index()).unwrap_or(&1),
            self.profile.nop
        );
        if self.bad(block).is_some() {
            return Err(NandError::ProgramFailed(ppn));
        }
        self.store.and_oob(ppn, oob)?;
        self.programs[ppn.index()] += 1;
        self.counters.of_mut(cause).oob_programs += 1;
        let cell_ns = self.profile.timing.oob_program_ns;
        self.counters.program_busy_ns += cell_ns;
        Ok(self.clocks.work(at, self.profile.geometry.die_of(block), cell_ns))
    }

    /// Moves a page inside one plane without crossing the bus, with a new OOB. Counts one read and one program.
    pub fn copyback(&mut self, at: Nanos, from: Ppn, to: Ppn, oob: &[u8], cause: Cause) -> Result<Nanos, NandError> {
        let source = self.check_page(from)?;
        let target = self.check_page(to)?;
        let domain = |b: Pbn, g: &Geometry| (g.die_of(b), b.raw() / g.dies() % g.planes);
        let geometry = self.profile.geometry;
        assert_eq!(domain(source, &geometry), domain(target, &geometry), "law: copyback leaves its plane");
        let mut page = std::mem::take(&mut self.scratch);
        page.resize(geometry.page_bytes as usize, 0);
        let result = self.fetch(from, &mut page, &mut []).and_then(|()| {
            let cell_ns = self.profile.timing.read_ns;
            self.counters.of_mut(cause).reads += 1;
            self.counters.read_busy_ns += cell_ns;
            let sensed = self.clocks.work(at, geometry.die_of(source), cell_ns);
            let bus_ns = self.clocks.set_bus_ns(0);
            let programmed = self.program(sensed, to, &page, oob, cause);
            self.clocks.set_bus_ns(bus_ns);
            programmed
        });
        self.scratch = page;
        result
    }

    /// Erases a block.
    pub fn erase(&mut self, at: Nanos, block: Pbn, cause: Cause) -> Result<Nanos, NandError> {
        assert!(block.raw() < self.geometry().blocks, "law: no block {block}");
        if !self.powered {
            return Err(NandError::PowerLost);
        }
        if self.bad(block).is_some() {
            return Err(NandError::EraseFailed(block));
        }
        let verdict = self.faults.as_mut().map_or(Verdict::Succeed, |f| f.erase(block));
        if let Verdict::Cut(cut) = verdict {
            self.powered = false;
            self.cut_erase(block, cut)?;
            return Err(NandError::PowerLost);
        }
        self.ops += 1;
        let cell_ns = self.profile.timing.erase_ns;
        self.counters.of_mut(cause).erases += 1;
        self.counters.erase_busy_ns += cell_ns;
        let done = self.clocks.work(at, self.profile.geometry.die_of(block), cell_ns);
        if matches!(verdict, Verdict::Fail) {
            self.counters.erase_fails += 1;
            self.mark_bad(block, Bad::Grown)?;
            return Err(NandError::EraseFailed(block));
        }
        let erase_count = self.blocks[block.index()].erase_count + 1;
        self.forget_pages(block, BlockFacts { erase_count, bad: None, weak: false })?;
        Ok(done)
    }

    /// Whether the page was programmed since its block was erased.
    #[inline]
    pub fn is_programmed(&self, ppn: Ppn) -> bool {
        let geometry = &self.profile.geometry;
        if self.programs.is_empty() {
            geometry.offset_of(ppn) < self.frontier(geometry.block_of(ppn))
        } else {
            self.programs[ppn.index()] > 0
        }
    }

    #[inline]
    fn check_page(&self, ppn: Ppn) -> Result<Pbn, NandError> {
        assert!(self.profile.geometry.contains(ppn), "law: no page {ppn}");
        if self.powered { Ok(self.profile.geometry.block_of(ppn)) } else { Err(NandError::PowerLost) }
    }

    /// The law of programs, as asked for: `count` pages upwards from `first`.
    #[inline(always)]
    fn judge_programs(&self, first: Ppn, count: u32) {
        let geometry = &self.profile.geometry;
        let (block, offset) = (geometry.block_of(first), geometry.offset_of(first));
        let frontier = self.frontier(block);
        // Pages behind the first follow one another, so in an ordered block only the first can be out of order.
        match self.profile.order {
            PageOrder::Consecutive => {
                assert!(offset >= frontier, "law: program of page {offset} of block {block}, which is not erased");
                assert!(offset == frontier, "law: program of page {offset} of block {block}, page {frontier} is next");
            }
            PageOrder::Ascending => {
                assert!(offset >= frontier, "law: program of page {offset} of block {block} after page {frontier}");
            }
            PageOrder::Any => {
                for (offset, programs) in (offset..).zip(&self.programs[first.index()..][..count as usize]) {
                    assert!(*programs == 0, "law: program of page {offset} of block {block}, which is not erased");
                }
            }
        }
    }

    #[inline(always)]
    fn account_programs(&mut self, at: Nanos, block: Pbn, first: Ppn, count: u32, cause: Cause) -> Nanos {
        let geometry = self.profile.geometry;
        let (die, offset) = (geometry.die_of(block), geometry.offset_of(first));
        let cells_ns = self.program_times.of_run(offset, count);
        let last_ns = self.program_times.of_run(offset + count - 1, 1);
        let done = self.clocks.program_run(at, die, cells_ns, last_ns, count);
        self.counters.program_busy_ns += cells_ns;
        self.ops += count as u64;
        self.counters.of_mut(cause).programs += count as u64;
        self.note_programmed(block, offset, count);
        done
    }

    #[inline(always)]
    fn note_programmed(&mut self, block: Pbn, offset: u32, count: u32) {
        let frontier = &mut self.frontier[block.index()];
        *frontier = (*frontier).max((offset + count) as u16);
        if !self.programs.is_empty() {
            let first = self.profile.geometry.page(block, offset).index();
            self.programs[first..][..count as usize].iter_mut().for_each(|n| *n = (*n).max(1));
        }
    }

    /// A run when chance has a say.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the verb, and the block it has looked up")]
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
        let (page, part) = (data.len() / count as usize, oobs.len() / count as usize);
        let mut at = at;
        for i in 0..count {
            let (data, oob) = (&data[i as usize * page..][..page], &oobs[i as usize * part..][..part]);
            match self.program_with_faults(at, block, Ppn::new(first.raw() + i), data, oob, cause) {
                Ok(done) => at = done,
                Err(error) => return Err(RunError { done: i, at, error }),
            }
        }
        Ok(at)
    }

    /// One page when chance has a say.
    fn program_with_faults(
        &mut self,
        at: Nanos,
        block: Pbn,
        ppn: Ppn,
        data: &[u8],
        oob: &[u8],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        match self.faults.as_mut().map_or(Verdict::Succeed, |f| f.program(block)) {
            Verdict::Succeed => {
                self.store.program(ppn, 1, data, oob)?;
                if self.blocks[block.index()].weak {
                    self.store.set_health(ppn, Health::Lost)?;
                }
                Ok(self.account_programs(at, block, ppn, 1, cause))
            }
            Verdict::Fail => {
                self.store.program(ppn, 1, data, oob)?;
                self.store.set_health(ppn, Health::Lost)?;
                self.account_programs(at, block, ppn, 1, cause);
                self.counters.program_fails += 1;
                self.mark_bad(block, Bad::Grown)?;
                Err(NandError::ProgramFailed(ppn))
            }
            Verdict::Cut(cut) => {
                self.powered = false;
                self.cut_program(block, ppn, data, oob, cut)?;
                Err(NandError::PowerLost)
            }
        }
    }

    fn cut_program(&mut self, block: Pbn, ppn: Ppn, data: &[u8], oob: &[u8], cut: Cut) -> Result<(), NandError> {
        if cut.program == ProgramCut::NotStarted {
            return Ok(());
        }
        let mut rng = SplitMix::new(cut.seed);
        let (mut data, mut oob) = (data.to_vec(), oob.to_vec());
        let mut tear = |bytes: &mut [u8]| bytes.iter_mut().for_each(|b| *b |= rng.next_u64() as u8);
        let health = match cut.program {
            ProgramCut::NotStarted => unreachable!("returned above"),
            ProgramCut::Complete => Health::Good,
            ProgramCut::Unstable(reads) => Health::Unstable(reads),
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
        self.store.program(ppn, 1, &data, &oob)?;
        self.store.set_health(ppn, health)?;
        self.note_programmed(block, offset, 1);
        let partner = match cut.partner {
            PartnerCut::Intact => return Ok(()),
            PartnerCut::Unstable(reads) => Health::Unstable(reads),
            PartnerCut::Destroyed => Health::Lost,
        };
        for victim in self.pairs.victims(offset) {
            let victim = self.profile.geometry.page(block, victim);
            if !self.is_programmed(victim) {
                continue;
            }
            // What cannot be read any more does not come back as unstable.
            let mut before = [Health::Good];
            self.store.read(victim, &mut [], &mut [], &mut before)?;
            if partner == Health::Lost || before == [Health::Good] {
                self.store.set_health(victim, partner)?;
            }
        }
        Ok(())
    }

    fn cut_erase(&mut self, block: Pbn, cut: Cut) -> Result<(), NandError> {
        let erase_count = self.blocks[block.index()].erase_count + 1;
        match cut.erase {
            EraseCut::NotStarted => Ok(()),
            EraseCut::Complete => self.forget_pages(block, BlockFacts { erase_count, bad: None, weak: false }),
            EraseCut::LooksBlank => self.forget_pages(block, BlockFacts { erase_count, bad: None, weak: true }),
            EraseCut::Mixed => {
                // Pages that look blank in the middle of a block cannot be told from unreadable ones once the
                // frontier is past them, so only the tail reads blank.
                let mut rng = SplitMix::new(cut.seed);
                let frontier = self.frontier(block);
                for offset in 0..frontier {
                    if rng.one_in(2) {
                        let ppn = self.profile.geometry.page(block, offset);
                        if self.is_programmed(ppn) {
                            self.store.set_health(ppn, Health::Lost)?;
                        }
                    }
                }
                let facts = BlockFacts { erase_count, bad: None, weak: true };
                self.blocks[block.index()] = facts;
                self.store.set_facts(block, facts)?;
                Ok(())
            }
        }
    }

    fn forget_pages(&mut self, block: Pbn, facts: BlockFacts) -> Result<(), NandError> {
        self.store.erase(block, facts)?;
        self.blocks[block.index()] = facts;
        self.frontier[block.index()] = 0;
        if !self.programs.is_empty() {
            let geometry = &self.profile.geometry;
            let first = geometry.page(block, 0).index();
            self.programs[first..][..geometry.pages_per_block as usize].fill(0);
        }
        Ok(())
    }

    fn mark_bad(&mut self, block: Pbn, bad: Bad) -> Result<(), NandError> {
        let facts = &mut self.blocks[block.index()];
        facts.bad = Some(bad);
        self.store.set_facts(block, *facts)?;
        Ok(())
    }

    #[inline]
    fn fetch(&mut self, ppn: Ppn, data: &mut [u8], oob: &mut [u8]) -> Result<(), NandError> {
        let health = self.fetch_health(ppn, data, oob)?;
        if health == Health::Good {
            return Ok(());
        }
        let lost_data = !data.is_empty() && !health.data_ok();
        let lost_oob = !oob.is_empty() && !health.oob_ok();
        if !lost_data && !lost_oob {
            return Ok(());
        }
        self.counters.uncorrectable_reads += 1;
        Err(NandError::Uncorrectable { ppn, part: if lost_data { Part::Data } else { Part::Oob } })
    }

    #[inline]
    fn fetch_health(&mut self, ppn: Ppn, data: &mut [u8], oob: &mut [u8]) -> Result<Health, NandError> {
        if !self.is_programmed(ppn) {
            data.fill(0xFF);
            oob.fill(0xFF);
            return Ok(Health::Good);
        }
        let mut health = [Health::Good];
        self.store.read(ppn, data, oob, &mut health)?;
        Ok(health[0])
    }
}
