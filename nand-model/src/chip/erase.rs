//! Erases: what they leave when power fails, and what else becomes of them.

use super::Chip;
use crate::addr::Pbn;
use crate::canary::{Canary, sings};
use crate::cause::Cause;
use crate::error::NandError;
use crate::fault::{Cut, EraseCut, Fault, Verdict};
use crate::rng::SplitMix;
use crate::store::{Bad, BlockFacts, Health, Store};
use crate::timing::Nanos;

impl<S: Store> Chip<S> {
    /// Erases a block.
    pub fn erase(&mut self, at: Nanos, block: Pbn, cause: Cause) -> Result<Nanos, NandError> {
        assert!(block.raw() < self.geometry().blocks, "law: no block {block}");
        if !self.powered {
            return Err(NandError::PowerLost);
        }
        if self.bad(block).is_some() {
            return Err(NandError::EraseFailed(block));
        }
        let verdict = self.erase_verdict(block);
        if let Verdict::Cut(cut) = verdict {
            self.powered = false;
            self.cut_erase(at, block, cut)?;
            return Err(NandError::PowerLost);
        }
        self.ops += 1;
        let cell_ns = self.profile.timing.erase_ns;
        self.counters.of_mut(cause).erases += 1;
        self.counters.erase_busy_ns += cell_ns;
        let done = self.clocks.work(at, self.profile.geometry.die_of(block), cell_ns);
        let erase_count = self.blocks[block.index()].erase_count + 1;
        let facts = self.fresh_facts(at, erase_count, false);
        match verdict {
            Verdict::Suffer(Fault::LostErase) => self.lose_erase(block, facts)?,
            Verdict::Suffer(_) if sings(Canary::EraseFailureIgnored) => {}
            Verdict::Suffer(fault) => {
                self.counters.note_fault(fault);
                self.counters.erase_fails += 1;
                self.mark_bad(block, Bad::Grown)?;
                return Err(NandError::EraseFailed(block));
            }
            Verdict::Cut(_) | Verdict::Succeed => {
                self.keep_ghosts(block)?;
                self.forget_pages(block, facts)?;
            }
        }
        Ok(done)
    }

    fn erase_verdict(&mut self, block: Pbn) -> Verdict {
        let Some(faults) = &mut self.faults else { return Verdict::Succeed };
        let erases = self.blocks[block.index()].erase_count;
        let worn = match faults.plan().wear_out {
            0.0 => 0.0,
            factor => factor * self.profile.erase_hazard(erases),
        };
        faults.erase(self.profile.geometry.die_of(block), block, worn)
    }

    /// The block counts as erased, its cells stay as they are.
    #[cold]
    fn lose_erase(&mut self, block: Pbn, facts: BlockFacts) -> Result<(), NandError> {
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

    /// Remembers what a block holds before its erase, if a later read may still return it.
    fn keep_ghosts(&mut self, block: Pbn) -> Result<(), NandError> {
        let Some(faults) = self.faults.as_mut().filter(|faults| faults.keeps_ghosts()) else { return Ok(()) };
        for offset in 0..self.profile.geometry.pages_per_block {
            let ppn = self.profile.geometry.page(block, offset);
            faults.ghosts.extend(self.store.cells(ppn)?.map(|cells| (ppn, cells)));
        }
        Ok(())
    }

    /// Facts of a good block at the end of an erase.
    fn fresh_facts(&mut self, at: Nanos, erase_count: u32, weak: bool) -> BlockFacts {
        self.tell_hour(at);
        BlockFacts { erase_count, bad: None, weak, since: self.hour(at), reads: 0 }
    }

    fn cut_erase(&mut self, at: Nanos, block: Pbn, cut: Cut) -> Result<(), NandError> {
        let erase_count = self.blocks[block.index()].erase_count + 1;
        match cut.erase {
            EraseCut::NotStarted => Ok(()),
            EraseCut::Complete | EraseCut::LooksBlank => {
                let facts = self.fresh_facts(at, erase_count, cut.erase == EraseCut::LooksBlank);
                self.forget_pages(block, facts)
            }
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
                let facts = BlockFacts { erase_count, weak: true, ..self.blocks[block.index()] };
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
        if !self.to_refresh.is_empty() {
            self.to_refresh.remove(&block);
        }
        if let Some(faults) = &mut self.faults {
            faults.renew(|ppn| self.profile.geometry.block_of(ppn) == block);
        }
        if !self.programs.is_empty() {
            let geometry = &self.profile.geometry;
            let first = geometry.page(block, 0).index();
            self.programs[first..][..geometry.pages_per_block as usize].fill(0);
        }
        Ok(())
    }
}
