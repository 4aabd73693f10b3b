//! Operations in flight on several dies when power fails. Each die keeps its last program or erase
//! if a fault plan needs it; with multi-plane commands each plane does, so that a cut tears every
//! page of a joint program on its own.
//!
//! Power fails when the last of them starts, so every accepted operation has started. An operation
//! whose completion the host saw before it issued the next one had ended by then, and is never hit.

use std::collections::BTreeMap;

use super::device::Chip;
use crate::addr::{Pbn, Ppn};
use crate::error::NandError;
use crate::fault::{Cut, EraseCut, LastOp, LastVerb, LeftPage, PartnerCut, ProgramCut};
use crate::rng::SplitMix;
use crate::store::{Bad, BlockFacts, Health, Store};
use crate::timing::{Clocks, Nanos};

/// The operations that a power cut interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutHits {
    /// Outcome of the program that the cut was armed for, and of its word line.
    pub program: Option<(ProgramCut, PartnerCut)>,
    /// Outcome of the erase that the cut was armed for.
    pub erase: Option<EraseCut>,
    /// Programs in flight on other dies or planes, whatever their outcome.
    pub programs: u32,
    /// Erases in flight on other dies or planes, whatever their outcome.
    pub erases: u32,
}

impl<S: Store> Chip<S> {
    /// Returns the operations that the last cut of a fault plan interrupted.
    pub fn cut_hits(&self) -> CutHits {
        self.cut_hits
    }

    /// Whether a cut may hit operations that were issued before.
    pub(super) fn tracks_ops(&self) -> bool {
        self.faults
            .as_ref()
            .is_some_and(|faults| faults.tracks_ops())
    }

    /// Records an operation that a cut may hit later. Programs and erases of a die do not overlap,
    /// so the one before it has ended; reads that suspend them leave nothing that a cut could hit.
    pub(super) fn note_op(
        &mut self,
        block: Pbn,
        (start, end): (Nanos, Nanos),
        what: impl FnOnce() -> LastVerb,
    ) {
        debug_assert!(start <= end, "an operation from {start} to {end} ns");
        let unit = self.unit_of(block);
        if let Some(faults) = self.faults.as_mut().filter(|faults| faults.tracks_ops()) {
            let what = what();
            faults.last_ops.insert(unit, LastOp { start, end, what });
            faults.share_span(unit.0, self.clocks.last_joint(unit.0));
        }
    }

    /// The die of a block, and its plane if planes work on their own: their operations follow each
    /// other.
    fn unit_of(&self, block: Pbn) -> (u32, u32) {
        let geometry = &self.profile.geometry;
        let plane = geometry.place_of(block) % geometry.joint_planes();
        (geometry.die_of(block), plane)
    }

    /// Forgets the die's last operation; a faulty one follows.
    pub(super) fn forget_op(&mut self, block: Pbn) {
        let unit = self.unit_of(block);
        if let Some(faults) = &mut self.faults {
            faults.last_ops.remove(&unit);
        }
    }

    /// Hits the operations in flight on other dies or planes when power fails in the operation on
    /// `block`, which `clocks` include.
    /// Returns the cut of that operation, which is complete if the operation had ended.
    pub(super) fn cut_in_flight(
        &mut self,
        block: Pbn,
        clocks: &Clocks,
        (start, end): (Nanos, Nanos),
        is_program: bool,
        cut: Cut,
    ) -> Result<Cut, NandError> {
        assert!(!self.powered, "what a cut hits, with power on");
        debug_assert!(start <= end, "an operation from {start} to {end} ns");
        let own = self.unit_of(block);
        let joint = clocks.last_joint(own.0);
        // A joint operation begins as a whole, and lasts as long as its longest part.
        let (start, end) = joint.map_or((start, end), |(_, span)| span);
        let mut last_ops = BTreeMap::new();
        if let Some(faults) = &mut self.faults {
            faults.share_span(own.0, joint);
            last_ops = std::mem::take(&mut faults.last_ops);
        }
        let others: Vec<_> = last_ops
            .into_iter()
            .filter(|(unit, _)| *unit != own)
            .map(|(_, op)| op)
            .collect();
        let power_fails = others.iter().map(|op| op.start).fold(start, Nanos::max);
        self.cut_hits = CutHits::default();
        let mut rng = SplitMix::new(!cut.seed);
        for op in others.into_iter().filter(|op| op.end > power_fails) {
            match op.what {
                LastVerb::Program(ppn) => {
                    self.cut_hits.programs += 1;
                    self.hit_program(ppn, cut.flickers(), &mut rng)?;
                }
                LastVerb::Erase(block, before, pages) => {
                    self.cut_hits.erases += 1;
                    self.hit_erase(block, before, pages, &mut rng)?;
                }
            }
        }
        let had_ended = Cut {
            program: ProgramCut::Complete,
            partner: PartnerCut::Intact,
            erase: EraseCut::Complete,
            ..cut
        };
        let cut = if end <= power_fails { had_ended } else { cut };
        self.cut_hits.program = is_program.then_some((cut.program, cut.partner));
        self.cut_hits.erase = (!is_program).then_some(cut.erase);
        Ok(cut)
    }

    /// Tears a page whose program had been accepted.
    fn hit_program(
        &mut self,
        ppn: Ppn,
        flickers: bool,
        rng: &mut SplitMix,
    ) -> Result<(), NandError> {
        let number = rng.byte();
        let health = match rng.number(5 + u32::from(flickers)) {
            0 => Health::Good,
            1 => Health::Lost,
            2 => Health::DataLost,
            3 => Health::OobLost,
            4 => Health::Unstable(number % 4),
            _ => Health::Flickering(number),
        };
        let partner = match rng.number(3 + u32::from(flickers)) {
            0 => PartnerCut::Intact,
            1 => PartnerCut::Destroyed,
            2 => PartnerCut::Unstable(number % 4),
            _ => PartnerCut::Flickering(number),
        };
        // A page that is already damaged keeps its state.
        let mut before = [Health::Good];
        self.store.read(ppn, &mut [], &mut [], &mut before)?;
        if before == [Health::Good] && health != Health::Good {
            self.store.set_health(ppn, health)?;
        }
        self.spoil_partners(ppn, partner)
    }

    /// Undoes a part of an accepted erase.
    fn hit_erase(
        &mut self,
        block: Pbn,
        before: BlockFacts,
        pages: Vec<LeftPage>,
        rng: &mut SplitMix,
    ) -> Result<(), NandError> {
        debug_assert_ne!(
            self.bad(block),
            Some(Bad::Factory),
            "block {block} was never erased"
        );
        let outcome = EraseCut::ALL[rng.index(EraseCut::ALL.len())];
        let erased = self.blocks[block.index()];
        match outcome {
            EraseCut::Complete => Ok(()),
            // If a host crash loses the flag, the erase is complete: an outcome, too.
            EraseCut::LooksBlank => {
                self.blocks[block.index()].erase_interrupted = true;
                Ok(self.store.set_facts(block, self.blocks[block.index()])?)
            }
            // The store erases the block again, uncounted, and programs what is left of its old
            // pages.
            EraseCut::NotStarted | EraseCut::Mixed | EraseCut::AllButOne | EraseCut::OnlyOne => {
                let erase_interrupted = if outcome == EraseCut::NotStarted {
                    before.erase_interrupted
                } else {
                    true
                };
                let facts = BlockFacts {
                    erase_count: erased.erase_count,
                    erase_interrupted,
                    ..before
                };
                self.erase_in_part(block, facts, pages, outcome, rng)
            }
        }
    }
}
