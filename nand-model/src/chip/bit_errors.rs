//! Bit errors from wear, age and reads: the rate, the ECC, and the read counts that the rate
//! depends on.
//!
//! Invariant: a block with a page close to the ECC limit is in [`Chip::blocks_to_refresh`]. If
//! power fails, the read counts since the last one that the store took may be lost; the rate is
//! then too low by those reads.

use super::device::Chip;
use crate::addr::{Pbn, Ppn};
use crate::decay::{Correction, ErrorModel};
use crate::rng::SplitMix;
use crate::store::{Health, Store};
use crate::timing::Nanos;

/// The store records a block's read count once per this many reads, so that reads cause few writes.
const READS_PER_NOTE: u32 = 1024;

impl<S: Store> Chip<S> {
    /// Returns the raw bit error rate of a block of which `pages` pages are being read.
    pub(super) fn rber(&mut self, at: Nanos, block: Pbn, pages: u32) -> f64 {
        // A device that is only read, and killed, must not forget the hours of its use.
        self.write_hour(at);
        let hour = self.hour(at);
        let facts = &mut self.blocks[block.index()];
        let before = facts.reads;
        facts.reads = before.saturating_add(pages);
        let facts = *facts;
        if before / READS_PER_NOTE != facts.reads / READS_PER_NOTE
            && self.frontier[block.index()] > 0
        {
            // A count that cannot be stored only makes the rate less exact after the next start.
            let _ = self.store.set_facts(block, facts);
        }
        let days = f64::from(hour.saturating_sub(facts.since)) / 24.0;
        let model = if self.is_slc(block) {
            ErrorModel::Slc
        } else {
            self.profile.error_model
        };
        model.rber(facts.erase_count, days, facts.reads)
    }

    /// Corrects the wanted parts, data and OOB, of one page as far as the ECC can. Returns the
    /// number of read retries.
    pub(super) fn correct_errors(
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

    /// Counts a page's corrected bits and read retries, and sets its health. Returns the number of
    /// read retries.
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

    /// Writes all read counts to the store.
    pub(super) fn write_read_counts(&mut self) {
        for block in self.profile.geometry.all_blocks() {
            let facts = self.blocks[block.index()];
            if !facts.reads.is_multiple_of(READS_PER_NOTE) && self.frontier[block.index()] > 0 {
                // A count that cannot be stored only makes the rate less exact after the next
                // start.
                let _ = self.store.set_facts(block, facts);
            }
        }
    }
}
