//! File layout. Every offset follows from the geometry, the NOP count and the number of spare
//! slots.
//!
//! ```text
//! 0        header copy 0
//! 4096     header copy 1
//! 8192     block table: one 64-byte entry per block
//! ...      program counts: one byte per page, valid after a clean close only
//! ...      seal map: sectors of 512 bytes, one bit per slot
//! ...      slot headers: one of 64 bytes per slot
//! ...      records of slot after slot, each slot's padded to 4 KiB
//! ...      data pages of slot after slot, each slot's padded to 4 KiB
//! ```
//!
//! What a start reads lies together: headers are read at once, records one slot after the other.
//! Data pages begin at a multiple of [`DATA_ALIGN`], so that large writes fill large folios of the
//! page cache.

use super::record::{CORE_BYTES, HINT_HEAD_BYTES, SLOT_HEADER_BYTES, TABLE_ENTRY_BYTES};
use super::seal::{SEAL_SECTOR_BYTES, SealSector};
use crate::convert::{index, to_u64, to_usize};
use crate::geometry::Geometry;
use crate::invalid::Invalid;

/// Alignment of every area: the host's unit of hole punching and caching.
pub(crate) const PAGE: u64 = 4096;
/// [`PAGE`] as a length in memory.
pub(crate) const PAGE_LEN: usize = to_usize(PAGE);
/// Size of one header copy.
pub(crate) const COPY_BYTES: usize = PAGE_LEN;
/// Smallest write that a host crash leaves intact; no slot header, record core or table entry
/// crosses a multiple of it.
const SECTOR: u64 = 512;
/// Alignment of the data pages, unless a slot has fewer bytes: a large request of the kernel.
const DATA_ALIGN: u64 = 128 << 10;

/// The offsets of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    /// Bytes of one page record.
    pub(crate) record_bytes: usize,
    /// Whether a record ends in a hint: cleared OOB bits.
    pub(crate) hints: bool,
    pub(crate) slots: u32,
    counts_at: u64,
    seals_at: u64,
    headers_at: u64,
    records_at: u64,
    data_at: u64,
    records_bytes: u64,
    data_bytes: u64,
    pub(crate) file_bytes: u64,
}

impl Layout {
    /// Computes the layout, or the reason why there is none.
    pub(crate) fn new(geometry: Geometry, nop: u8, spare_slots: u32) -> Result<Layout, Invalid> {
        geometry.validate()?;
        let slots = geometry
            .blocks
            .checked_add(spare_slots)
            .filter(|_| spare_slots >= 2);
        let slots = slots.ok_or_else(|| Invalid::Image(format!("{spare_slots} spare slots")))?;
        let hints = nop > 1;
        let record_bytes = record_bytes(u64::from(geometry.oob_bytes), hints);
        let pages = u64::from(geometry.pages_per_block);
        // The factors are bounded by `validate`: one slot stays far below 2^40 bytes.
        let records_bytes = (pages * record_bytes).next_multiple_of(PAGE);
        let data_bytes = (pages * u64::from(geometry.page_bytes)).next_multiple_of(PAGE);
        let counts_at =
            2 * PAGE + (to_u64(geometry.block_slots() * TABLE_ENTRY_BYTES)).next_multiple_of(PAGE);
        let seals_at = counts_at + geometry.pages().next_multiple_of(PAGE);
        let seal_bytes = to_u64(seal_sectors(slots) * SEAL_SECTOR_BYTES);
        let headers_at = seals_at + seal_bytes.next_multiple_of(PAGE);
        let header_bytes = u64::from(slots) * to_u64(SLOT_HEADER_BYTES);
        let records_at = headers_at + header_bytes.next_multiple_of(PAGE);
        let align = data_bytes.next_power_of_two().min(DATA_ALIGN);
        let ends = || {
            let data_at = u64::from(slots).checked_mul(records_bytes)?;
            let data_at = (data_at.checked_add(records_at)?).checked_next_multiple_of(align)?;
            let end = u64::from(slots).checked_mul(data_bytes)?;
            // The next part begins there.
            let end = (end.checked_add(data_at)?).checked_next_multiple_of(align)?;
            Some((data_at, end)).filter(|_| i64::try_from(end).is_ok())
        };
        let (data_at, file_bytes) = ends().ok_or_else(too_large)?;
        let areas = [
            counts_at, seals_at, headers_at, records_at, data_at, file_bytes,
        ];
        debug_assert!(
            areas.is_sorted_by(|a, b| a < b) && areas.iter().all(|at| at.is_multiple_of(PAGE)),
            "areas follow one another, and begin at pages of the host"
        );
        let record_bytes = to_usize(record_bytes);
        Ok(Layout {
            geometry,
            record_bytes,
            hints,
            slots,
            counts_at,
            seals_at,
            headers_at,
            records_at,
            data_at,
            records_bytes,
            data_bytes,
            file_bytes,
        })
    }

    /// Slots beyond one per block of a new image: one sync allows that many erases.
    pub(crate) fn spare_slots_for(geometry: &Geometry) -> u32 {
        (geometry.blocks / 8).max(16)
    }

    pub(crate) fn pages(&self) -> usize {
        self.geometry.block_pages()
    }

    pub(crate) fn copy_at(&self, copy: usize) -> u64 {
        assert!(copy < 2, "a header has two copies");
        to_u64(copy) * PAGE
    }

    pub(crate) fn table_at(&self) -> u64 {
        2 * PAGE
    }

    pub(crate) fn table_bytes(&self) -> usize {
        self.geometry.block_slots() * TABLE_ENTRY_BYTES
    }

    pub(crate) fn entry_at(&self, block: usize) -> u64 {
        debug_assert!(
            block <= self.geometry.block_slots(),
            "no table entry {block}"
        );
        self.table_at() + to_u64(block * TABLE_ENTRY_BYTES)
    }

    pub(crate) fn counts_at(&self, block: usize) -> u64 {
        debug_assert!(
            block <= self.geometry.block_slots(),
            "no counts of block {block}"
        );
        self.counts_at + to_u64(block * self.pages())
    }

    /// Sectors of the seal map.
    pub(crate) fn seal_sectors(&self) -> usize {
        seal_sectors(self.slots)
    }

    pub(crate) fn seal_sector_at(&self, number: usize) -> u64 {
        debug_assert!(number < self.seal_sectors(), "no sector {number} of seals");
        self.seals_at + to_u64(number * SEAL_SECTOR_BYTES)
    }

    #[inline]
    pub(crate) fn slot_header_at(&self, slot: u32) -> u64 {
        debug_assert!(slot <= self.slots, "slot {slot} of {}", self.slots);
        self.headers_at + u64::from(slot) * to_u64(SLOT_HEADER_BYTES)
    }

    /// The records of a slot: where they begin. They have [`Layout::records_bytes`].
    #[inline]
    pub(crate) fn records_at(&self, slot: u32) -> u64 {
        debug_assert!(slot <= self.slots, "slot {slot} of {}", self.slots);
        self.records_at + u64::from(slot) * self.records_bytes
    }

    #[inline]
    pub(crate) fn record_at(&self, slot: u32, page: u32) -> u64 {
        debug_assert!(
            page < self.geometry.pages_per_block,
            "no record of page {page}"
        );
        self.records_at(slot) + to_u64(index(page) * self.record_bytes)
    }

    #[inline]
    pub(crate) fn data_at(&self, slot: u32, page: u32) -> u64 {
        debug_assert!(
            page < self.geometry.pages_per_block,
            "no data of page {page}"
        );
        debug_assert!(slot <= self.slots, "slot {slot} of {}", self.slots);
        self.data_at
            + u64::from(slot) * self.data_bytes
            + u64::from(page) * u64::from(self.geometry.page_bytes)
    }

    pub(crate) fn records_bytes(&self) -> usize {
        to_usize(self.records_bytes)
    }

    /// The data pages of a slot, in bytes from that of page 0 on.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The record of a page inside all records of its slot.
    pub(crate) fn record_in<'m>(&self, records: &'m [u8], page: usize) -> &'m [u8] {
        debug_assert_eq!(records.len(), self.records_bytes(), "a slot's records");
        &records[page * self.record_bytes..][..self.record_bytes]
    }
}

/// The error of an image that no file can be.
pub(super) fn too_large() -> Invalid {
    Invalid::Image("more bytes than a file can have".into())
}

fn seal_sectors(slots: u32) -> usize {
    SealSector::of(slots.saturating_sub(1)) + 1
}

/// A record consists of its core, the OOB and optionally a hint. Without a hint, only the cores
/// must not cross a sector; with one, the hint must not either, because it is changed in place.
fn record_bytes(oob_bytes: u64, hints: bool) -> u64 {
    let core = to_u64(CORE_BYTES);
    if !hints {
        return (core + oob_bytes).next_multiple_of(core);
    }
    let whole = core + oob_bytes + to_u64(HINT_HEAD_BYTES) + oob_bytes;
    if whole <= SECTOR {
        whole.next_power_of_two()
    } else {
        whole.next_multiple_of(SECTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PROFILES;

    #[test]
    fn areas_follow_each_other_and_small_parts_stay_inside_sectors() {
        for profile in PROFILES {
            let layout = Layout::new(profile.with_blocks(100).geometry, profile.nop, 16).unwrap();
            let last = layout.geometry.pages_per_block - 1;
            assert!(layout.entry_at(100) <= layout.counts_at(0));
            assert!(layout.counts_at(100) <= layout.seal_sector_at(0));
            let last_sector = layout.seal_sectors() - 1;
            assert!(layout.seal_sector_at(last_sector) < layout.slot_header_at(0));
            assert!(layout.slot_header_at(116) <= layout.records_at(0));
            assert_eq!(
                (layout.records_at(1) % PAGE, layout.data_at(1, 0) % PAGE),
                (0, 0)
            );
            let (record, page) = (
                layout.record_bytes as u64,
                layout.geometry.page_bytes as u64,
            );
            assert!(layout.record_at(0, last) + record <= layout.record_at(1, 0));
            assert!(layout.record_at(115, last) + record <= layout.data_at(0, 0));
            assert!(layout.data_at(0, last) + page <= layout.data_at(1, 0));
            assert!(layout.data_at(115, last) + page <= layout.file_bytes);
            if layout.data_bytes() >= DATA_ALIGN {
                let ends = [layout.data_at(0, 0), layout.file_bytes];
                assert_eq!(ends.map(|at| at % DATA_ALIGN), [0, 0], "{}", profile.name);
            }
            for page in 0..=last {
                let at = layout.record_at(3, page);
                assert_eq!(
                    at / SECTOR,
                    (at + CORE_BYTES as u64 - 1) / SECTOR,
                    "{}: torn core",
                    profile.name
                );
            }
        }
    }

    #[test]
    fn the_default_profile_spends_a_quarter_kilobyte_per_page() {
        let mlc = crate::Profile::default_profile().with_blocks(64);
        assert_eq!(
            Layout::new(mlc.geometry, mlc.nop, 16).unwrap().record_bytes,
            256
        );
    }

    #[test]
    fn records_with_hints_take_a_power_of_two_or_whole_sectors_and_a_file_has_an_end() {
        assert_eq!(
            [16, 64, 224, 448].map(|oob| record_bytes(oob, true)),
            [128, 256, 512, 1024]
        );
        let geometry = Geometry {
            blocks: u32::MAX / 256,
            pages_per_block: 256,
            ..PROFILES[0].geometry
        };
        let error = Layout::new(geometry, 1, u32::MAX - geometry.blocks).err();
        assert!(
            error
                .as_ref()
                .is_none_or(|error| error.to_string().contains("file")),
            "{error:?}"
        );
        let none = Layout::new(PROFILES[0].with_blocks(8).geometry, 1, 1)
            .unwrap_err()
            .to_string();
        assert!(none.contains("1 spare slots"), "{none}");
        let many = Layout::new(PROFILES[0].with_blocks(8).geometry, 1, u32::MAX)
            .unwrap_err()
            .to_string();
        assert!(many.contains("spare slots"), "{many}");
    }
}
