//! The state of a chip, and questions about it.

use super::in_flight::CutHits;
use super::slc::SlcBlocks;
use crate::addr::{Pbn, Ppn};
use crate::convert::{to_u16, to_u32};
use crate::counters::Counters;
use crate::error::NandError;
use crate::fault::FaultState;
use crate::geometry::{Geometry, PageSplit};
use crate::pairing::PairTable;
use crate::profile::{PageOrder, Profile};
use crate::rng::SplitMix;
use crate::store::{AnyStore, Bad, BlockFacts, Store};
use crate::timing::{CellTimes, Clocks, Nanos, TimeSplit};
use std::collections::BTreeSet;

const HOUR_NS: Nanos = 3_600_000_000_000;

/// An emulated flash device over a store.
#[derive(Clone, Debug)]
pub struct Chip<S = AnyStore> {
    pub(super) profile: Profile,
    pub(super) split: PageSplit,
    pub(super) pairs: PairTable,
    pub(super) slc: SlcBlocks,
    pub(super) store: S,
    pub(super) blocks: Vec<BlockFacts>,
    /// Per block: one past the highest page programmed since the erase.
    pub(super) frontier: Vec<u16>,
    /// Per page: programs since the erase; empty when pages are programmed consecutively and once,
    /// where the frontier is sufficient.
    pub(super) programs: Vec<u8>,
    pub(super) clocks: Clocks,
    pub(super) read_times: CellTimes,
    pub(super) program_times: CellTimes,
    pub(super) counters: Counters,
    pub(super) faults: Option<Box<FaultState>>,
    /// Whether programs, and whether reads, must consult the fault plan.
    pub(super) program_faults: bool,
    pub(super) read_faults: bool,
    /// Some cells may differ from what was programmed since power-on.
    pub(super) strays: bool,
    pub(super) powered: bool,
    pub(super) cut_hits: CutHits,
    /// Blocks with a page close to the ECC limit.
    pub(super) to_refresh: BTreeSet<Pbn>,
    /// Bad blocks whose mark the host refused.
    refused_marks: BTreeSet<Pbn>,
    /// Hour of the device's life at emulated instant 0.
    pub(super) hour_base: u32,
    /// The hour last written to the store.
    pub(super) written_hour: u32,
    pub(super) scratch: Vec<u8>,
}

impl Chip {
    /// Opens a chip over a store of any type. Schemes run on such chips.
    ///
    /// # Errors
    ///
    /// As [`Chip::open`].
    ///
    /// # Panics
    ///
    /// As [`Chip::open`].
    pub fn over(profile: Profile, store: impl Store) -> Result<Chip, NandError> {
        Chip::open(profile, AnyStore::new(store))
    }
}

impl<S: Store> Chip<S> {
    /// Opens a chip of this profile over a store that may already hold pages.
    ///
    /// # Errors
    ///
    /// [`NandError::Host`] or [`NandError::HostFull`] if the store cannot list its contents.
    ///
    /// # Panics
    ///
    /// If profile and store differ in their number of blocks.
    pub fn open(profile: Profile, store: S) -> Result<Self, NandError> {
        let geometry = profile.geometry;
        assert_eq!(geometry.validate(), Ok(()), "a chip of an invalid shape");
        assert_eq!(profile.validate(), Ok(()), "a chip of an impossible part");
        let per_page = profile.order != PageOrder::Consecutive || profile.nop > 1;
        let pairs = PairTable::new(profile.pairing, geometry.pages_per_block);
        let times = |times| CellTimes::new(times, &pairs, geometry.pages_per_block);
        let hour = store.hour();
        let mut chip = Chip {
            read_times: times(&profile.timing.read_ns),
            program_times: times(&profile.timing.program_ns),
            slc: SlcBlocks::new(&profile, &pairs),
            pairs,
            clocks: Clocks::new(&geometry, profile.timing),
            split: geometry.split(),
            profile,
            store,
            blocks: vec![BlockFacts::default(); geometry.block_slots()],
            frontier: vec![0; geometry.block_slots()],
            programs: vec![0; if per_page { geometry.page_slots() } else { 0 }],
            counters: Counters::default(),
            faults: None,
            program_faults: false,
            read_faults: false,
            strays: false,
            powered: true,
            cut_hits: CutHits::default(),
            to_refresh: BTreeSet::new(),
            refused_marks: BTreeSet::new(),
            hour_base: hour,
            written_hour: hour,
            scratch: Vec::new(),
        };
        chip.scan_store()?;
        Ok(chip)
    }

    /// Loads facts and programmed pages from the store. The result is that of a blank check of
    /// every page.
    pub(super) fn scan_store(&mut self) -> Result<(), NandError> {
        let Chip {
            store,
            blocks,
            frontier,
            programs,
            profile,
            ..
        } = self;
        let mut seen = 0;
        store.load(&mut |block, facts, counts| {
            assert_eq!(block.index(), seen, "the store lists its blocks in order");
            assert_eq!(
                counts.len(),
                profile.geometry.block_pages(),
                "store and profile differ in pages per block"
            );
            seen += 1;
            blocks[block.index()] = facts;
            frontier[block.index()] = counts
                .iter()
                .rposition(|&n| n > 0)
                .map_or(0, |last| to_u16(to_u32(last)) + 1);
            if !programs.is_empty() {
                let first = profile.geometry.page(block, 0).index();
                programs[first..first + counts.len()].copy_from_slice(counts);
            }
        })?;
        assert_eq!(seen, blocks.len(), "store and profile differ in blocks");
        Ok(())
    }

    /// Marks the factory-bad blocks of a new device: the profile's share, chosen by `seed`.
    ///
    /// # Errors
    ///
    /// [`NandError::Host`] or [`NandError::HostFull`] if the store cannot record a mark: some
    /// blocks are marked, and the device should be created again.
    pub fn mark_factory_bad(&mut self, seed: u64) -> Result<(), NandError> {
        assert!(
            self.profile.factory_bad_permille < 1000,
            "every block bad from the factory"
        );
        let mut rng = SplitMix::new(seed);
        let wanted = self.profile.factory_bad_blocks();
        let mut marked = 0;
        while marked < wanted {
            let block = Pbn::new(rng.number(self.geometry().blocks));
            if self.bad(block).is_none() {
                self.mark_factory_bad_block(block)?;
                marked += 1;
            }
        }
        Ok(())
    }

    /// Marks one block of a new device as bad from the factory.
    ///
    /// # Errors
    ///
    /// [`NandError::Host`] or [`NandError::HostFull`] if the store cannot record the mark.
    ///
    /// # Panics
    ///
    /// If the chip has no such block.
    pub fn mark_factory_bad_block(&mut self, block: Pbn) -> Result<(), NandError> {
        self.mark_bad(block, Bad::Factory)
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

    /// The splitter of its page numbers.
    #[inline]
    pub fn split(&self) -> PageSplit {
        self.split
    }

    /// Which pages share a word line, in blocks that are not in SLC mode.
    #[inline]
    pub fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    /// Counts since the chip was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The instant at which every die and bus is idle.
    pub fn busy_until(&self) -> Nanos {
        self.clocks.busy_until()
    }

    /// From now on remembers what dies and buses do, for [`Chip::time_split`]. A device that
    /// suspends operations remembers nothing.
    pub fn keep_occupancy(&mut self) {
        self.clocks.keep_occupancy();
    }

    /// Begins a request at this instant, not before the last one. Operations up to the next begin
    /// are of this request.
    pub fn begin_request(&mut self, at: Nanos) {
        self.clocks.begin_request(at);
    }

    /// Returns where the time of the current request went; it ends at `done`. `None` if that is not
    /// remembered. Call it once per request.
    pub fn time_split(&mut self, done: Nanos) -> Option<TimeSplit> {
        self.clocks.time_split(done)
    }

    /// Number of programs and erases started since the chip was opened: the index space of
    /// [`Cut::at_op`](crate::Cut::at_op).
    pub fn ops(&self) -> u64 {
        let total = self.counters.total();
        total.programs + total.erases
    }

    /// Whether, and why, a block must not be used.
    #[inline]
    pub fn bad(&self, block: Pbn) -> Option<Bad> {
        self.blocks[block.index()].bad
    }

    /// Erases of this block since the device was new.
    #[inline]
    pub fn erase_count(&self, block: Pbn) -> u32 {
        self.blocks[block.index()].erase_count
    }

    /// Erases of every block, ascending.
    pub fn erase_counts(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().map(|facts| facts.erase_count)
    }

    /// One past the highest page programmed since the last erase, as a blank check of every page
    /// would find it.
    #[inline]
    pub fn frontier(&self, block: Pbn) -> u32 {
        u32::from(self.frontier[block.index()])
    }

    /// The store below, for operations that no flash has (sync points, capacity).
    pub fn store(&self) -> &S {
        &self.store
    }

    /// See [`Chip::store`].
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the store; emulated clocks and counters are discarded.
    pub fn into_store(mut self) -> S {
        self.write_hour(self.clocks.busy_until());
        self.write_read_counts();
        for block in self.refused_marks.clone() {
            // If the host refuses it again, the block is good at the next start.
            let _ = self.write_mark(block);
        }
        self.store
    }

    /// Blocks whose data should soon be rewritten elsewhere. Since power-on, one of their codewords
    /// had three quarters of the correctable wrong bits, or needed a read retry. An erase removes a
    /// block from the set.
    pub fn blocks_to_refresh(&self) -> &BTreeSet<Pbn> {
        &self.to_refresh
    }

    /// Whether the page was programmed since its block was erased.
    #[inline]
    pub fn is_programmed(&self, ppn: Ppn) -> bool {
        if self.programs.is_empty() {
            self.split.offset_of(ppn) < self.frontier(self.split.block_of(ppn))
        } else {
            self.programs[ppn.index()] > 0
        }
    }

    /// Whether [`Chip::program_oob`] of this page is legal: it is programmed, and NOP allows
    /// another program.
    pub fn takes_oob_program(&self, ppn: Ppn) -> bool {
        self.programs
            .get(ppn.index())
            .is_some_and(|programs| (1..self.profile.nop).contains(programs))
    }

    /// Pages of the block programmed since its erase; equals [`Chip::frontier`] where pages are
    /// programmed in order.
    pub fn programmed(&self, block: Pbn) -> u32 {
        let frontier = self.frontier(block);
        if self.programs.is_empty() {
            return frontier;
        }
        let pages = self.profile.geometry.page(block, 0).run(frontier);
        to_u32(pages.filter(|ppn| self.is_programmed(*ppn)).count())
    }

    #[inline]
    pub(super) fn check_page(&mut self, ppn: Ppn) -> Result<Pbn, NandError> {
        let (block, offset, geometry) = (
            self.split.block_of(ppn),
            self.split.offset_of(ppn),
            &self.profile.geometry,
        );
        assert!(
            block.raw() < geometry.blocks && offset < geometry.pages_per_block,
            "NAND rule: no page {ppn}"
        );
        if self.powered {
            Ok(block)
        } else {
            Err(NandError::PowerLost)
        }
    }

    pub(super) fn mark_bad(&mut self, block: Pbn, bad: Bad) -> Result<(), NandError> {
        let facts = &mut self.blocks[block.index()];
        debug_assert!(
            bad == Bad::Factory || facts.bad.is_none(),
            "block {block} goes bad again"
        );
        facts.bad = Some(bad);
        self.refused_marks.insert(block);
        self.write_mark(block)
    }

    /// Writes the mark of a bad block, if the host refused it. Nobody may rely on a mark that a
    /// restart does not find.
    #[cold]
    pub(super) fn write_mark(&mut self, block: Pbn) -> Result<(), NandError> {
        if self.refused_marks.contains(&block) {
            self.store.set_facts(block, self.blocks[block.index()])?;
            self.refused_marks.remove(&block);
        }
        Ok(())
    }

    /// Exposure of a block's data: hours since its first page was programmed, and reads of its
    /// pages since the erase.
    pub fn exposure(&self, at: Nanos, block: Pbn) -> (u32, u32) {
        let facts = self.blocks[block.index()];
        (self.hour(at).saturating_sub(facts.since), facts.reads)
    }

    /// The device's hour at an emulated instant: the clock of retention. It resumes at the hour of
    /// the image's last use.
    pub fn hour(&self, at: Nanos) -> u32 {
        self.hour_base
            .saturating_add(u32::try_from(at / HOUR_NS).unwrap_or(u32::MAX))
    }

    /// Ages every page by this many hours without power.
    pub fn age(&mut self, hours: u32) {
        self.hour_base = self.hour_base.saturating_add(hours);
        self.write_hour(self.clocks.busy_until());
    }

    pub(super) fn write_hour(&mut self, at: Nanos) {
        let hour = self.hour(at);
        if hour > self.written_hour {
            self.store.set_hour(hour);
            self.written_hour = hour;
        }
    }
}
