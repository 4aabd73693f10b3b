//! The cut: the last operation of the longest unbroken sequence in the file.
//!
//! Invariants: operations at or below the synced number are not searched for, because they are on
//! the disk. This module only reads, so after an interrupted open the next one finds the same cut.

use super::Opener;
use crate::convert::{index, to_u32, to_u64, to_usize};
use crate::image::{CORE_BYTES, Core, ImageError, SlotHeader};
use crc32c::crc32c;
use std::ops::Range;

impl Opener<'_> {
    /// Finds the last operation of the unbroken sequence. Sets `late` for slots with records beyond
    /// the synced number.
    pub(super) fn find_cut(
        &self,
        synced_seq: u64,
        heads: &[Option<SlotHeader>],
        late: &mut [bool],
        trust_synced_only: bool,
    ) -> Result<u64, ImageError> {
        assert_eq!(heads.len(), late.len(), "a header and a flag for each slot");
        // Every operation beyond the synced number has its own place in the file, so the number of
        // places bounds their count.
        let places = u64::from(self.layout.slots) * to_u64(self.layout.pages() + 1);
        let mut seen = Seen {
            from: synced_seq + 1,
            bits: vec![0; to_usize(places / 64 + 1)],
        };
        let mut data = Vec::new();
        for (slot, head) in (0..).zip(heads) {
            if let Some(head) = head {
                seen.insert(head.erase_seq);
            }
            let meta = self.read_meta(slot)?;
            let core = |page| Core::decode(slot, to_u32(page), self.layout.record_in(&meta, page));
            let is_late = |&page: &usize| core(page).is_some_and(|core| core.seq > synced_seq);
            let mut page = 0;
            while let Some(first) = (page..self.layout.pages()).find(is_late) {
                late[index(slot)] = true;
                // In groups: one read for all pages, still small enough for the processor's cache.
                page = (first..self.layout.pages().min(first + 32))
                    .find(|page| !is_late(page))
                    .unwrap_or(first + 32);
                page = page.min(self.layout.pages());
                if !trust_synced_only {
                    self.note_whole(slot, first..page, &meta, &mut data, &mut seen)?;
                }
            }
        }
        Ok(if trust_synced_only {
            synced_seq
        } else {
            seen.unbroken()
        })
    }

    /// Records the operations of those pages that are complete in the file.
    fn note_whole(
        &self,
        slot: u32,
        pages: Range<usize>,
        meta: &[u8],
        data: &mut Vec<u8>,
        seen: &mut Seen,
    ) -> Result<(), ImageError> {
        let geometry = self.layout.geometry;
        debug_assert!(pages.end <= self.layout.pages(), "pages beyond their block");
        data.resize(pages.len() * geometry.page_len(), 0);
        self.read(self.layout.data_at(slot, to_u32(pages.start)), data)?;
        for (page, data) in pages.zip(data.chunks_exact(geometry.page_len())) {
            let record = self.layout.record_in(meta, page);
            let oob = &record[CORE_BYTES..][..geometry.oob_len()];
            let core = Core::decode(slot, to_u32(page), record);
            let whole =
                |core: &Core| crc32c(oob) == core.oob_check && crc32c(data) == core.data_check;
            if let Some(core) = core.filter(whole) {
                seen.insert(core.seq);
            }
        }
        Ok(())
    }
}

/// The numbers of a range that occurred.
struct Seen {
    from: u64,
    bits: Vec<u64>,
}

impl Seen {
    fn insert(&mut self, seq: u64) {
        if let Some(i) = seq.checked_sub(self.from)
            && let Some(word) = self.bits.get_mut(to_usize(i / 64))
        {
            *word |= 1 << (i % 64);
        }
    }

    /// The last number before the first missing one.
    fn unbroken(&self) -> u64 {
        let full = self
            .bits
            .iter()
            .take_while(|&&word| word == u64::MAX)
            .count();
        let rest = self.bits.get(full).map_or(0, |word| word.trailing_ones());
        self.from + to_u64(full) * 64 + u64::from(rest) - 1
    }
}
