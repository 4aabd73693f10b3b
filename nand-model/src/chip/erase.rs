//! Erases: the outcomes of power cuts, and injected faults.

use super::device::Chip;
use crate::addr::Pbn;
use crate::cause::Cause;
use crate::error::NandError;
use crate::fault::{Cut, EraseCut, Fault, LastVerb, LeftPage, Verdict};
use crate::rng::SplitMix;
use crate::store::{Bad, BlockFacts, Health, Store};
use crate::timing::Nanos;

impl<S: Store> Chip<S> {
    /// Erases a block.
    ///
    /// `at` is the earliest start of the erase, in ns of emulated time; returns the instant at
    /// which the block is erased.
    ///
    /// # Errors
    ///
    /// - [`NandError::EraseFailed`]: the block is bad, from before or from now on. It must not be
    ///   used again.
    /// - [`NandError::PowerLost`] while power is off, or if the fault plan cuts it in this erase;
    ///   the cut's outcome then determines the state of the block.
    /// - [`NandError::HostFull`]: nothing happened; the same erase may be retried later.
    /// - [`NandError::Host`]: the host refused to write the image.
    ///
    /// # Panics
    ///
    /// If the chip has no such block.
    pub fn erase(&mut self, at: Nanos, block: Pbn, cause: Cause) -> Result<Nanos, NandError> {
        assert!(
            block.raw() < self.geometry().blocks,
            "NAND rule: no block {block}"
        );
        if !self.powered {
            return Err(NandError::PowerLost);
        }
        if self.bad(block).is_some() {
            self.write_mark(block)?;
            return Err(NandError::EraseFailed(block));
        }
        let verdict = self.erase_verdict(block);
        let geometry = self.profile.geometry;
        let (die, first) = (geometry.die_of(block), geometry.page(block, 0));
        if let Verdict::Cut(cut) = verdict {
            self.powered = false;
            let cell_ns = self.profile.timing.erase_ns;
            let mut clocks = self.clocks.clone();
            let end = clocks.erase(at, die, first, geometry.pages_per_block);
            let cut = self.cut_in_flight(block, &clocks, (end - cell_ns, end), false, cut)?;
            self.cut_erase(at, block, cut)?;
            return Err(NandError::PowerLost);
        }
        let cell_ns = self.profile.timing.erase_ns;
        self.counters.of_mut(cause).erases += 1;
        let done = self.clocks.run((at, die), cause, (cell_ns, 0), |clocks| {
            clocks.erase(at, die, first, geometry.pages_per_block)
        });
        self.counters.erase_busy_ns += cell_ns - self.clocks.take_shared();
        debug_assert!(
            done >= at + cell_ns,
            "an erase takes its cell time at least"
        );
        let erase_count = self.blocks[block.index()].erase_count + 1;
        let facts = self.fresh_facts(at, erase_count, false);
        match verdict {
            Verdict::Inject(Fault::LostErase) => {
                self.forget_op(block);
                self.lose_erase(block, facts)?;
            }
            Verdict::Inject(fault) => {
                self.forget_op(block);
                self.counters.note_fault(fault);
                self.counters.erase_fails += 1;
                self.mark_bad(block, Bad::FailedErase)?;
                return Err(NandError::EraseFailed(block));
            }
            Verdict::Cut(_) | Verdict::Succeed => {
                self.keep_erased_contents(block)?;
                let before = self.blocks[block.index()];
                let pages = if self.tracks_ops() {
                    self.programmed_pages(block)?
                } else {
                    Vec::new()
                };
                self.forget_pages(block, facts)?;
                self.note_op(block, (done - cell_ns, done), || {
                    LastVerb::Erase(block, before, pages)
                });
            }
        }
        debug_assert_eq!(self.frontier(block), 0, "block {block} is erased");
        Ok(done)
    }

    fn erase_verdict(&mut self, block: Pbn) -> Verdict {
        let Some(faults) = &mut self.faults else {
            return Verdict::Succeed;
        };
        let erases = self.blocks[block.index()].erase_count;
        let worn = match faults.plan().wear_out {
            0.0 => 0.0,
            factor => factor * self.profile.erase_hazard(erases, self.slc.contains(block)),
        };
        faults.erase(self.profile.geometry.die_of(block), block, worn)
    }

    /// Counts the block as erased without changing its cells.
    #[cold]
    fn lose_erase(&mut self, block: Pbn, facts: BlockFacts) -> Result<(), NandError> {
        assert!(
            self.store
                .tag(self.profile.geometry.page(block, 0))
                .is_some(),
            "a lost erase needs a store that tells lives apart"
        );
        self.counters.note_fault(Fault::LostErase);
        self.strays = true;
        let mut kept = Vec::new();
        for offset in 0..self.profile.geometry.pages_per_block {
            let ppn = self.profile.geometry.page(block, offset);
            kept.extend(self.store.cells(ppn)?.map(|cells| (ppn, cells)));
        }
        self.forget_pages(block, facts)?;
        for (ppn, cells) in &kept {
            self.store.put_cells(*ppn, cells)?;
        }
        Ok(())
    }

    /// Keeps a block's contents before its erase, if a stale read may return them.
    fn keep_erased_contents(&mut self, block: Pbn) -> Result<(), NandError> {
        let Some(faults) = self
            .faults
            .as_mut()
            .filter(|faults| faults.keeps_erased_contents())
        else {
            return Ok(());
        };
        for offset in 0..self.profile.geometry.pages_per_block {
            let ppn = self.profile.geometry.page(block, offset);
            faults
                .erased_contents
                .extend(self.store.cells(ppn)?.map(|cells| (ppn, cells)));
        }
        Ok(())
    }

    /// Returns the facts of a good block after an erase.
    fn fresh_facts(&mut self, at: Nanos, erase_count: u32, erase_interrupted: bool) -> BlockFacts {
        debug_assert!(erase_count > 0, "no erase of {erase_count}");
        self.write_hour(at);
        BlockFacts {
            erase_count,
            bad: None,
            erase_interrupted,
            since: self.hour(at),
            reads: 0,
        }
    }

    fn cut_erase(&mut self, at: Nanos, block: Pbn, cut: Cut) -> Result<(), NandError> {
        assert!(!self.powered, "what a cut leaves, with power on");
        let erase_count = self.blocks[block.index()].erase_count + 1;
        match cut.erase {
            EraseCut::NotStarted => Ok(()),
            EraseCut::Complete | EraseCut::LooksBlank => {
                let facts = self.fresh_facts(at, erase_count, cut.erase == EraseCut::LooksBlank);
                self.forget_pages(block, facts)
            }
            EraseCut::Mixed | EraseCut::AllButOne | EraseCut::OnlyOne => {
                let facts = BlockFacts {
                    erase_count,
                    erase_interrupted: true,
                    ..self.blocks[block.index()]
                };
                let pages = self.programmed_pages(block)?;
                self.erase_in_part(block, facts, pages, cut.erase, &mut SplitMix::new(cut.seed))
            }
        }
    }

    /// Lists the block's programmed pages with the parts that can be read.
    fn programmed_pages(&mut self, block: Pbn) -> Result<Vec<LeftPage>, NandError> {
        let geometry = self.profile.geometry;
        let offsets = (0..self.frontier(block))
            .filter(|&offset| self.is_programmed(geometry.page(block, offset)));
        let mut pages = Vec::new();
        for offset in offsets.collect::<Vec<_>>() {
            let (mut data, mut oob) = (vec![0; geometry.page_len()], vec![0; geometry.oob_len()]);
            let mut health = [Health::Good];
            self.store.read(
                geometry.page(block, offset),
                &mut data,
                &mut oob,
                &mut health,
            )?;
            pages.push(LeftPage {
                offset,
                data,
                oob,
                health: health[0],
            });
        }
        Ok(pages)
    }

    /// Erases a block and programs again the pages that an interrupted erase leaves. A host crash
    /// that undoes the programs before this erase must undo the erase too, so each step is an erase
    /// or a program. A blank page below the frontier cannot be distinguished from an unreadable
    /// one, so only the tail reads blank.
    pub(super) fn erase_in_part(
        &mut self,
        block: Pbn,
        facts: BlockFacts,
        pages: Vec<LeftPage>,
        outcome: EraseCut,
        rng: &mut SplitMix,
    ) -> Result<(), NandError> {
        assert!(!self.powered, "an erase in part, with power on");
        debug_assert!(
            pages.is_sorted_by(|a, b| a.offset < b.offset),
            "pages that an erase leaves ascend"
        );
        self.forget_pages(block, facts)?;
        let one = rng.index(pages.len().max(1));
        for (
            number,
            LeftPage {
                offset,
                data,
                oob,
                health,
            },
        ) in pages.into_iter().enumerate()
        {
            let spoiled = match outcome {
                EraseCut::AllButOne => number == one,
                EraseCut::OnlyOne => number != one,
                EraseCut::Mixed => rng.one_in(2),
                EraseCut::NotStarted | EraseCut::LooksBlank | EraseCut::Complete => false,
            };
            let health = if spoiled { Health::Lost } else { health };
            self.store.program_as(
                self.profile.geometry.page(block, offset),
                &data,
                &oob,
                health,
            )?;
            self.note_programmed(block, offset, 1);
        }
        Ok(())
    }

    fn forget_pages(&mut self, block: Pbn, facts: BlockFacts) -> Result<(), NandError> {
        debug_assert!(facts.bad.is_none(), "erase of the bad block {block}");
        self.store.erase(block, facts)?;
        self.blocks[block.index()] = facts;
        self.frontier[block.index()] = 0;
        if !self.to_refresh.is_empty() {
            self.to_refresh.remove(&block);
        }
        if let Some(faults) = &mut self.faults {
            faults.renew(|ppn| self.profile.geometry.block_of(ppn) == block);
        }
        if !self.programs.is_empty() {
            let geometry = &self.profile.geometry;
            let first = geometry.page(block, 0).index();
            self.programs[first..][..geometry.block_pages()].fill(0);
        }
        Ok(())
    }
}
