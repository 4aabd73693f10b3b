//! The small fixed parts of an image: slot header, page record, block table entry. All numbers are
//! little-endian.
//!
//! Each part that is changed in place is smaller than a disk sector and inside one, so a host crash
//! leaves its old or its new bytes, never a mixture.

use crate::convert::to_u32;
use crate::invalid::{Invalid, ensure};
use crate::store::{Bad, BlockFacts, Health};
use crc32c::{crc32c, crc32c_append};

/// The fixed part of a page record; the OOB follows it.
pub(crate) const CORE_BYTES: usize = 32;
pub(crate) const SLOT_HEADER_BYTES: usize = 64;
pub(crate) const TABLE_ENTRY_BYTES: usize = 64;
/// The part of a hint before its mask.
pub(crate) const HINT_HEAD_BYTES: usize = 8;

const SLOT_MAGIC: u32 = u32::from_le_bytes(*b"SLOT");
const MARK_AT: usize = 24;
const NO_SLOT: u32 = u32::MAX;

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // In pieces, so that the compiler compares many bytes at once.
    bytes
        .chunks(64)
        .all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The fixed fields of a page record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    pub(crate) seq: u64,
    pub(crate) data_check: u32,
    pub(crate) oob_check: u32,
    /// The tag of the page that was programmed: see [`crate::store`].
    pub(crate) tag: u32,
}

impl Core {
    /// Writes the core of the page at (`slot`, `page`), without any mark.
    #[inline]
    pub(crate) fn encode(&self, slot: u32, page: u32, out: &mut [u8]) {
        debug_assert_ne!(self.seq, 0, "operations are counted from 1");
        out[0..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..12].copy_from_slice(&self.data_check.to_le_bytes());
        out[12..16].copy_from_slice(&self.oob_check.to_le_bytes());
        out[16..20].copy_from_slice(&self.tag.to_le_bytes());
        let check = crc32c_append(place(slot, page), &out[..20]);
        out[20..24].copy_from_slice(&check.to_le_bytes());
        out[MARK_AT..CORE_BYTES].fill(0);
    }

    /// Decodes a core; `None` if it is invalid or was written for another place.
    #[inline]
    pub(crate) fn decode(slot: u32, page: u32, bytes: &[u8]) -> Option<Core> {
        let core = Core {
            seq: u64_at(bytes, 0),
            data_check: u32_at(bytes, 8),
            oob_check: u32_at(bytes, 12),
            tag: u32_at(bytes, 16),
        };
        let good =
            core.seq != 0 && u32_at(bytes, 20) == crc32c_append(place(slot, page), &bytes[..20]);
        good.then_some(core)
    }
}

/// Initial value of a core's check: a record copied to another place fails its check.
#[inline]
fn place(slot: u32, page: u32) -> u32 {
    slot.wrapping_mul(0x9E37_79B1) ^ page
}

/// Health mark of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) health: Health,
    /// Page of the same block whose interrupted program set the mark; the mark is void without that
    /// program.
    pub(crate) cause: Option<u16>,
}

impl From<Health> for Mark {
    fn from(health: Health) -> Self {
        Mark {
            health,
            cause: None,
        }
    }
}

impl Mark {
    /// Where the mark is stored in a record.
    pub(crate) const AT: usize = MARK_AT;

    /// The mark of the page that operation `seq` programmed.
    pub(crate) fn encode(self, seq: u64) -> [u8; 8] {
        debug_assert_ne!(
            self.cause,
            Some(u16::MAX),
            "page 65535 cannot be the cause of a mark: the record stores the page plus one"
        );
        let (kind, left) = match self.health {
            Health::Good => (0, 0),
            Health::DataLost => (1, 0),
            Health::OobLost => (2, 0),
            Health::Lost => (3, 0),
            Health::Unstable(left) => (4, left),
            Health::Flickering(number) => (5, number),
        };
        let mut mark = [kind, left, 0, 0, 0, 0, 0, 0];
        mark[2..4].copy_from_slice(&self.cause.map_or(0, |page| page + 1).to_le_bytes());
        let check = crc32c_append(crc32c(&seq.to_le_bytes()), &mark[..4]);
        mark[4..].copy_from_slice(&check.to_le_bytes());
        mark
    }

    /// Decodes the mark of a record with a valid core; a page without a valid mark is good.
    pub(crate) fn decode(seq: u64, record: &[u8]) -> Mark {
        let mark = &record[MARK_AT..MARK_AT + 8];
        if is_zero(mark) || u32_at(mark, 4) != crc32c_append(crc32c(&seq.to_le_bytes()), &mark[..4])
        {
            return Mark::default();
        }
        let health = match mark[0] {
            1 => Health::DataLost,
            2 => Health::OobLost,
            3 => Health::Lost,
            4 => Health::Unstable(mark[1]),
            5 => Health::Flickering(mark[1]),
            _ => Health::Good,
        };
        Mark {
            health,
            cause: u16::from_le_bytes([mark[2], mark[3]]).checked_sub(1),
        }
    }
}

/// OOB bits cleared after the program, stored separately from the OOB: a torn change loses the hint
/// but not the page.
pub(crate) struct Hint;

impl Hint {
    /// Encodes a hint: the page's number of programs, and the mask whose 0 bits are cleared.
    pub(crate) fn encode(seq: u64, programs: u8, mask: &[u8], out: &mut [u8]) {
        debug_assert!(programs > 0, "a hint of no programs");
        out[4..8].copy_from_slice(&[programs, 0, 0, 0]);
        out[HINT_HEAD_BYTES..][..mask.len()].copy_from_slice(mask);
        let check = crc32c_append(
            crc32c(&seq.to_le_bytes()),
            &out[4..HINT_HEAD_BYTES + mask.len()],
        );
        out[..4].copy_from_slice(&check.to_le_bytes());
    }

    /// Decodes the number of programs and the mask of a record with a valid core, if it has a hint.
    /// `record` is the whole record.
    #[inline]
    pub(crate) fn decode(seq: u64, record: &[u8], oob_bytes: usize) -> Option<(u8, &[u8])> {
        let hint = &record[CORE_BYTES + oob_bytes..][..HINT_HEAD_BYTES + oob_bytes];
        let (programs, check) = (hint[4], u32_at(hint, 0));
        if programs == 0 || check != crc32c_append(crc32c(&seq.to_le_bytes()), &hint[4..]) {
            return None;
        }
        Some((programs, &hint[HINT_HEAD_BYTES..]))
    }

    /// Offset of the hint in a record.
    pub(crate) fn at(oob_bytes: usize) -> usize {
        CORE_BYTES + oob_bytes
    }
}

/// The block in a slot, and the operation that put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHeader {
    pub(crate) block: u32,
    pub(crate) erase_seq: u64,
    pub(crate) erase_count: u32,
    pub(crate) erase_interrupted: bool,
    pub(crate) since: u32,
    pub(crate) reads: u32,
}

impl SlotHeader {
    /// Creates the header of a block with these facts; the table stores whether the block is bad.
    pub(crate) fn new(block: u32, erase_seq: u64, facts: BlockFacts) -> Self {
        let BlockFacts {
            erase_count,
            erase_interrupted,
            since,
            reads,
            bad: _,
        } = facts;
        SlotHeader {
            block,
            erase_seq,
            erase_count,
            erase_interrupted,
            since,
            reads,
        }
    }

    /// Returns the block's facts; `bad` comes from the table.
    pub(crate) fn facts(&self, bad: Option<Bad>) -> BlockFacts {
        let SlotHeader {
            erase_count,
            erase_interrupted,
            since,
            reads,
            ..
        } = *self;
        BlockFacts {
            erase_count,
            bad,
            erase_interrupted,
            since,
            reads,
        }
    }

    pub(crate) fn encode(&self, slot: u32) -> [u8; SLOT_HEADER_BYTES] {
        let mut out = [0; SLOT_HEADER_BYTES];
        out[0..4].copy_from_slice(&SLOT_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&self.block.to_le_bytes());
        out[8..16].copy_from_slice(&self.erase_seq.to_le_bytes());
        out[16..20].copy_from_slice(&self.erase_count.to_le_bytes());
        out[20] = u8::from(self.erase_interrupted);
        out[24..28].copy_from_slice(&self.since.to_le_bytes());
        out[28..32].copy_from_slice(&self.reads.to_le_bytes());
        let check = crc32c_append(place(slot, 0), &out[..60]);
        out[60..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Decodes a header; `Ok(None)` for a slot that was never used or whose space was released.
    pub(crate) fn decode(slot: u32, bytes: &[u8]) -> Result<Option<SlotHeader>, Invalid> {
        let bytes = &bytes[..SLOT_HEADER_BYTES];
        if is_zero(bytes) {
            return Ok(None);
        }
        let holds = u32_at(bytes, 0) == SLOT_MAGIC
            && u32_at(bytes, 60) == crc32c_append(place(slot, 0), &bytes[..60]);
        ensure(holds, Invalid::Image, || {
            format!("header of slot {slot} fails its check")
        })?;
        Ok(Some(SlotHeader {
            block: u32_at(bytes, 4),
            erase_seq: u64_at(bytes, 8),
            erase_count: u32_at(bytes, 16),
            erase_interrupted: bytes[20] != 0,
            since: u32_at(bytes, 24),
            reads: u32_at(bytes, 28),
        }))
    }
}

/// Table entry of one block. While an image is in use it is written only when the block turns bad:
/// `bad` and `erase_seq` hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) slot: Option<u32>,
    pub(crate) facts: BlockFacts,
    pub(crate) erase_seq: u64,
    /// Whether some page of the block carries a health mark.
    pub(crate) marked: bool,
    /// Check value of the block's program counts.
    pub(crate) counts_check: u32,
}

impl TableEntry {
    pub(crate) fn encode(&self, block: usize) -> [u8; TABLE_ENTRY_BYTES] {
        assert_ne!(self.slot, Some(NO_SLOT), "slot {NO_SLOT} means none");
        let mut out = [0; TABLE_ENTRY_BYTES];
        out[0..4].copy_from_slice(&self.slot.unwrap_or(NO_SLOT).to_le_bytes());
        out[4..8].copy_from_slice(&self.facts.erase_count.to_le_bytes());
        out[8..16].copy_from_slice(&self.erase_seq.to_le_bytes());
        out[16] = match self.facts.bad {
            None => 0,
            Some(Bad::Factory) => 1,
            Some(Bad::FailedProgram) => 2,
            Some(Bad::FailedErase) => 3,
        };
        out[17] = u8::from(self.facts.erase_interrupted);
        out[18] = u8::from(self.marked);
        out[20..24].copy_from_slice(&self.counts_check.to_le_bytes());
        out[24..28].copy_from_slice(&self.facts.since.to_le_bytes());
        out[28..32].copy_from_slice(&self.facts.reads.to_le_bytes());
        let check = crc32c_append(to_u32(block), &out[..60]);
        out[60..].copy_from_slice(&check.to_le_bytes());
        out
    }

    pub(crate) fn decode(block: usize, bytes: &[u8]) -> Result<TableEntry, Invalid> {
        let holds = u32_at(bytes, 60) == crc32c_append(to_u32(block), &bytes[..60]);
        ensure(holds, Invalid::Image, || {
            format!("table entry of block {block} fails its check")
        })?;
        let bad = match bytes[16] {
            0 => None,
            1 => Some(Bad::Factory),
            2 => Some(Bad::FailedProgram),
            3 => Some(Bad::FailedErase),
            other => {
                return Err(Invalid::Image(format!(
                    "table entry of block {block} has bad = {other}"
                )));
            }
        };
        let slot = u32_at(bytes, 0);
        Ok(TableEntry {
            slot: (slot != NO_SLOT).then_some(slot),
            facts: BlockFacts {
                erase_count: u32_at(bytes, 4),
                bad,
                erase_interrupted: bytes[17] != 0,
                since: u32_at(bytes, 24),
                reads: u32_at(bytes, 28),
            },
            erase_seq: u64_at(bytes, 8),
            marked: bytes[18] != 0,
            counts_check: u32_at(bytes, 20),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_holds_only_at_its_place_and_unchanged() {
        let core = Core {
            seq: 77,
            data_check: 1,
            oob_check: 2,
            tag: 3,
        };
        let mut bytes = [0xAA; CORE_BYTES];
        core.encode(5, 6, &mut bytes);
        assert_eq!(Core::decode(5, 6, &bytes), Some(core));
        assert_eq!(
            (
                Core::decode(6, 5, &bytes),
                Core::decode(5, 6, &[0; CORE_BYTES])
            ),
            (None, None)
        );
        for i in 0..MARK_AT {
            let mut flipped = bytes;
            flipped[i] ^= 1;
            assert_eq!(Core::decode(5, 6, &flipped), None, "byte {i}");
        }
    }

    #[test]
    fn marks_and_hints_belong_to_one_program() {
        let mut record = vec![0; CORE_BYTES + 2 * 16 + HINT_HEAD_BYTES];
        let all = [
            Health::DataLost,
            Health::OobLost,
            Health::Lost,
            Health::Unstable(9),
            Health::Good,
        ];
        for health in all.into_iter().chain([Health::Flickering(8)]) {
            for cause in [None, Some(0), Some(700)] {
                let mark = Mark { health, cause };
                record[Mark::AT..][..8].copy_from_slice(&mark.encode(3));
                assert_eq!(
                    (Mark::decode(3, &record), Mark::decode(4, &record)),
                    (mark, Mark::default())
                );
            }
        }
        assert!(Hint::decode(3, &record, 16).is_none());
        Hint::encode(3, 2, &[0x0F; 16], &mut record[Hint::at(16)..]);
        assert_eq!(Hint::decode(3, &record, 16), Some((2, &[0x0F; 16][..])));
        assert!(Hint::decode(4, &record, 16).is_none());
    }

    #[test]
    fn slot_headers_and_entries_round_trip_and_refuse_every_flip() {
        let facts = BlockFacts {
            erase_count: 8,
            bad: Some(Bad::FailedErase),
            erase_interrupted: true,
            since: 700,
            reads: 1 << 30,
        };
        let header = SlotHeader::new(9, 1 << 40, facts);
        assert_eq!(header.facts(Some(Bad::FailedErase)), facts);
        let entry = TableEntry {
            slot: Some(3),
            facts,
            erase_seq: 6,
            marked: true,
            counts_check: 99,
        };
        assert_eq!(SlotHeader::decode(4, &header.encode(4)), Ok(Some(header)));
        assert_eq!(SlotHeader::decode(4, &[0; SLOT_HEADER_BYTES]), Ok(None));
        assert_eq!(TableEntry::decode(2, &entry.encode(2)), Ok(entry));
        for bit in 0..8 * SLOT_HEADER_BYTES {
            let mut bytes = header.encode(4);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SlotHeader::decode(4, &bytes).is_err());
        }
        for bit in 0..8 * TABLE_ENTRY_BYTES {
            let mut bytes = entry.encode(2);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(TableEntry::decode(2, &bytes).is_err());
        }
    }
}
