//! Recovery after an unclean stop: the steps listed in the header of [`super`], in their order.
//!
//! Invariants: the header on the disk records that operations are being undone before the first one
//! is; nothing at or below the cut changes. After an interrupted recovery the next one finds the
//! same cut.

use super::found::{ERASES_MAX, Found};
use super::opener::{Opener, Records, damaged};
use super::report::OpenReport;
use crate::convert::{index, to_u64};
use crate::image::{CORE_BYTES, Header, ImageError, SEQ_MAX, SLOT_HEADER_BYTES, SlotHeader};
use crate::store::Bad;
use crate::store::file::file_store::Block;

impl Opener<'_> {
    /// Recovers an image after an unclean stop: see the module's header. Leaves `header` with the
    /// cut as synced number; the caller syncs and writes it. `copy` is its newest copy.
    /// `rewrites_all`: the page cache may differ from the disk. `trust_synced_only`: the header
    /// records a failed sync, so operations beyond its synced number are dropped.
    pub(super) fn recover(
        &self,
        header: &mut Header,
        copy: usize,
        (rewrites_all, trust_synced_only): (bool, bool),
        report: &mut OpenReport,
    ) -> Result<Found, ImageError> {
        let heads = self.read_heads()?;
        let seals = self.read_seals()?;
        let synced_seq = header.synced_seq.max(seals.synced_seq);
        let mut found = Found::new(self.layout, self.info);
        let pass = self.read_slots(synced_seq, &heads, &seals, trust_synced_only, &mut found)?;
        let cut = pass.cut;
        assert!(
            cut >= synced_seq,
            "a cut at {cut} undoes operation {synced_seq}"
        );
        header.synced_seq = cut;
        report.slots_sealed = pass.sealed;
        report.ops_kept = cut - synced_seq;

        let entries = self.read_entries()?;
        for (block, entry) in found.blocks.iter_mut().zip(&entries) {
            block.facts.bad = entry.facts.bad;
        }
        for (slot, head) in (0..).zip(&heads) {
            let Some(head) = head.filter(|head| head.erase_seq <= cut) else {
                continue;
            };
            let block = &mut found.blocks[index(head.block)];
            if block.slot.is_none() || head.erase_seq > block.erase_seq {
                *block = Block {
                    slot: Some(slot),
                    facts: head.facts(block.facts.bad),
                    erase_seq: head.erase_seq,
                };
                // The hour of a block's first program is a lower bound of the device's hour.
                header.hour = header.hour.max(head.since);
            }
        }
        for (block, entry) in found.blocks.iter_mut().zip(&entries) {
            // The program failed after an erase that is undone: its mark says nothing of the pages
            // before that erase.
            let bad = &mut block.facts.bad;
            if *bad == Some(Bad::FailedProgram) && block.erase_seq != entry.erase_seq {
                *bad = Some(Bad::FailedErase);
            }
        }
        let undone = if pass.newest > cut {
            self.beyond(cut, &heads, &pass.late)?
        } else {
            Vec::new()
        };
        report.ops_dropped = to_u64(undone.len());
        if !undone.is_empty() {
            self.mark_undoing(header, copy, synced_seq)?;
        }
        for (at, bytes) in undone {
            self.write(at, &[0; SLOT_HEADER_BYTES][..bytes])?;
        }
        if !self.read_only {
            if rewrites_all {
                self.rewrite_table()?;
            } else {
                // A mount may rely on the mark of a block that turned bad in use.
                for (block, entry) in entries.iter().enumerate() {
                    if !matches!(entry.facts.bad, None | Some(Bad::Factory)) {
                        self.rewrite_entry(block)?;
                    }
                }
            }
            for (slot, head) in (0..).zip(&heads) {
                if pass.late[index(slot)] || head.is_some_and(|head| head.erase_seq > synced_seq) {
                    self.rewrite_late(slot, synced_seq)?;
                } else if rewrites_all {
                    self.rewrite_slot(slot)?;
                }
            }
        }
        let (mut records, all_programmed) = (Records::default(), vec![1; self.layout.pages()]);
        for block in 0..found.blocks.len() {
            let Block {
                slot, erase_seq, ..
            } = found.blocks[block];
            match slot {
                Some(slot) if seals.is_sealed(slot) => found.counts.set(block, &all_programmed),
                Some(slot) if !pass.collected[index(slot)] => {
                    self.read_records(slot, &mut records)?;
                    found.adopt(self.collect(block, erase_seq, cut, &records));
                }
                _ => {}
            }
        }
        self.clear_void_marks(&found)?;
        self.sort_slots(&mut found)?;
        Ok(found)
    }

    fn read_heads(&self) -> Result<Vec<Option<SlotHeader>>, ImageError> {
        let mut bytes = vec![0; index(self.layout.slots) * SLOT_HEADER_BYTES];
        self.read(self.layout.slot_header_at(0), &mut bytes)?;
        let all = (0..).zip(bytes.chunks_exact(SLOT_HEADER_BYTES));
        all.map(|(slot, bytes)| self.decode_head(slot, bytes))
            .collect()
    }

    fn decode_head(&self, slot: u32, bytes: &[u8]) -> Result<Option<SlotHeader>, ImageError> {
        let head = SlotHeader::decode(slot, bytes).map_err(|reason| damaged(self.path, reason))?;
        let is_sane = head.is_none_or(|head| {
            head.block < self.layout.geometry.blocks
                && head.erase_count <= ERASES_MAX
                && (1..=SEQ_MAX).contains(&head.erase_seq)
        });
        if !is_sane {
            return Err(damaged(
                self.path,
                format!("header of slot {slot} has impossible values"),
            ));
        }
        Ok(head)
    }

    /// Location and length of the record or header of an operation beyond the cut: their numbers
    /// will be reused.
    fn beyond(
        &self,
        cut: u64,
        heads: &[Option<SlotHeader>],
        late: &[bool],
    ) -> Result<Vec<(u64, usize)>, ImageError> {
        assert_eq!(heads.len(), late.len(), "a header and a flag for each slot");
        let (mut places, mut records) = (Vec::new(), Records::default());
        for ((slot, head), late) in (0..).zip(heads).zip(late) {
            if head.is_some_and(|head| head.erase_seq > cut) {
                places.push((self.layout.slot_header_at(slot), SLOT_HEADER_BYTES));
            }
            if *late {
                self.read_records(slot, &mut records)?;
                let gone = (0..self.layout.geometry.pages_per_block)
                    .filter(|page| records.cores[index(*page)].is_some_and(|core| core.seq > cut));
                places.extend(gone.map(|page| (self.layout.record_at(slot, page), CORE_BYTES)));
            }
        }
        Ok(places)
    }
}
