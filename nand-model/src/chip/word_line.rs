//! Effect of a cut on the earlier pages of a word line.

use super::device::Chip;
use crate::addr::Ppn;
use crate::error::NandError;
use crate::fault::PartnerCut;
use crate::store::{Health, Store};

impl<S: Store> Chip<S> {
    /// Applies the interrupted program's outcome to the earlier pages of its word line.
    pub(super) fn spoil_partners(
        &mut self,
        ppn: Ppn,
        partner: PartnerCut,
    ) -> Result<(), NandError> {
        let (block, offset) = (self.split.block_of(ppn), self.split.offset_of(ppn));
        let after = match partner {
            PartnerCut::Intact => return Ok(()),
            PartnerCut::Unstable(reads) => Health::Unstable(reads),
            PartnerCut::Flickering(number) => Health::Flickering(number),
            PartnerCut::Destroyed | PartnerCut::DestroyedOne(_) => Health::Lost,
        };
        let pairs = if self.slc.contains(block) {
            &self.slc.pairs
        } else {
            &self.pairs
        };
        let earlier = pairs.victims(offset).count();
        let only = match partner {
            PartnerCut::DestroyedOne(number) if earlier > 0 => Some(usize::from(number) % earlier),
            _ => None,
        };
        let mut spoiled = Vec::new();
        for (number, victim) in pairs.victims(offset).enumerate() {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            debug_assert!(
                victim < offset,
                "page {victim} is a victim of page {offset}"
            );
            let victim = self.profile.geometry.page(block, victim);
            if !self.is_programmed(victim) {
                continue;
            }
            // A page that is already unreadable does not become unstable.
            let mut before = [Health::Good];
            self.store.read(victim, &mut [], &mut [], &mut before)?;
            if after == Health::Lost || before == [Health::Good] {
                spoiled.push((victim, after));
            }
        }
        Ok(self.store.spoil(ppn, &spoiled)?)
    }
}
