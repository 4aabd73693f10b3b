//! Bits that go wrong with wear, age and reads: their rate, what the part corrects of them, and the
//! reads that count for it.
//!
//! What always holds: a block with a page near what can be corrected is among
//! [`Chip::blocks_to_refresh`]. If power fails here, the newest counts of reads may be lost: the
//! rate is then too low by those.

use super::Chip;
use crate::addr::{Pbn, Ppn};
use crate::decay::Correction;
use crate::rng::SplitMix;
use crate::store::{Health, Store};
use crate::timing::Nanos;

/// The store keeps a block's count of reads once per so many: reads write next to nothing.
const READS_PER_NOTE: u32 = 1024;

impl<S: Store> Chip<S> {
    /// The raw bit error rate of a block of which some pages are being read.
    pub(super) fn rber(&mut self, at: Nanos, block: Pbn, pages: u32) -> f64 {
        let hour = self.hour(at);
        let facts = &mut self.blocks[block.index()];
        let before = facts.reads;
        facts.reads = before.saturating_add(pages);
        let facts = *facts;
        if before / READS_PER_NOTE != facts.reads / READS_PER_NOTE
            && self.frontier[block.index()] > 0
        {
            // A count that cannot be kept is only less exact after the next start.
            let _ = self.store.set_facts(block, facts);
        }
        let days = f64::from(hour.saturating_sub(facts.since)) / 24.0;
        self.profile
            .decay
            .rber(facts.erase_count, days, facts.reads)
    }

    /// Corrects the wanted parts, data and OOB, of one page as far as that goes. Returns how many
    /// read retries it took.
    pub(super) fn decay(
        &mut self,
        rber: f64,
        seed: u64,
        ppn: Ppn,
        wanted: (bool, bool),
        health: &mut Health,
    ) -> u64 {
        let geometry = &self.profile.geometry;
        let block = geometry.block_of(ppn);
        let life = u64::from(self.blocks[block.index()].erase_count);
        let page = SplitMix::new(seed ^ (life << 32 | u64::from(ppn.raw()))).next_u64();
        let bytes = |wanted: bool, bytes: u32| if wanted { bytes } else { 0 };
        let (data, oob) = (
            bytes(wanted.0, geometry.page_bytes),
            bytes(wanted.1, geometry.oob_bytes),
        );
        let found = self.profile.ecc.correct(rber, page, data, oob);
        self.note_correction(ppn, &found, health)
    }

    /// Counts what correcting a page took, and says what is lost. Returns how many read retries
    /// there were.
    pub(super) fn note_correction(
        &mut self,
        ppn: Ppn,
        found: &Correction,
        health: &mut Health,
    ) -> u64 {
        debug_assert!(
            found.retries <= self.profile.ecc.retries,
            "{} retries of a part with {}",
            found.retries,
            self.profile.ecc.retries
        );
        self.counters.corrected_bits += u64::from(found.bits);
        if found.near_limit {
            self.to_refresh.insert(self.profile.geometry.block_of(ppn));
        }
        if found.data_lost || found.oob_lost {
            *health = match (
                health.data_ok() && !found.data_lost,
                health.oob_ok() && !found.oob_lost,
            ) {
                (false, false) => Health::Lost,
                (false, true) => Health::DataLost,
                (true, _) => Health::OobLost,
            };
        }
        u64::from(found.retries)
    }

    /// Has the store keep all counts of reads.
    pub(super) fn tell_reads(&mut self) {
        for block in self.profile.geometry.all_blocks() {
            let facts = self.blocks[block.index()];
            if !facts.reads.is_multiple_of(READS_PER_NOTE) && self.frontier[block.index()] > 0 {
                // As above.
                let _ = self.store.set_facts(block, facts);
            }
        }
    }
}
