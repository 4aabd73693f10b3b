//! The seal map: one bit per slot, in sectors that each have a number and a check of their own. All
//! numbers are little-endian.
//!
//! A sector is the unit of a host crash, so each is its old or its new state. One that fails its
//! check seals nothing: that only costs reads.

use super::header::SEQ_MAX;
use crate::convert::{to_u32, to_usize};
use crc32c::{crc32c, crc32c_append};

/// Bytes of a sector of the map.
pub(crate) const SEAL_SECTOR_BYTES: usize = 512;
const BITS_AT: usize = 8;
const CHECK_AT: usize = SEAL_SECTOR_BYTES - 4;
const BIT_BYTES: usize = CHECK_AT - BITS_AT;
/// Slots of one sector.
pub(crate) const SLOTS_PER_SECTOR: u32 = (BIT_BYTES * 8) as u32;

/// One sector of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealSector {
    bits: [u8; BIT_BYTES],
}

impl Default for SealSector {
    fn default() -> Self {
        SealSector {
            bits: [0; BIT_BYTES],
        }
    }
}

/// Byte and mask of a slot in its sector.
fn place(slot: u32) -> (usize, u8) {
    let bit = slot % SLOTS_PER_SECTOR;
    (to_usize(u64::from(bit / 8)), 1 << (bit % 8))
}

impl SealSector {
    /// Sector that has a slot's bit.
    pub(crate) fn of(slot: u32) -> usize {
        to_usize(u64::from(slot / SLOTS_PER_SECTOR))
    }

    pub(crate) fn is_set(&self, slot: u32) -> bool {
        let (byte, mask) = place(slot);
        self.bits[byte] & mask != 0
    }

    /// Sets or clears a slot's bit; returns whether that changed it.
    pub(crate) fn set(&mut self, slot: u32, value: bool) -> bool {
        let (byte, mask) = place(slot);
        let before = self.bits[byte];
        self.bits[byte] = if value { before | mask } else { before & !mask };
        self.bits[byte] != before
    }

    /// Encodes sector `number` of the map. Everything up to `synced_seq` is synced.
    pub(crate) fn encode(&self, number: usize, synced_seq: u64) -> [u8; SEAL_SECTOR_BYTES] {
        let mut out = [0; SEAL_SECTOR_BYTES];
        out[..BITS_AT].copy_from_slice(&synced_seq.to_le_bytes());
        out[BITS_AT..CHECK_AT].copy_from_slice(&self.bits);
        let check = check(number, &out);
        out[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Decodes a sector and its synced number; `None` if its check fails.
    pub(crate) fn decode(number: usize, bytes: &[u8]) -> Option<(SealSector, u64)> {
        let synced_seq = u64::from_le_bytes(bytes[..BITS_AT].try_into().expect("eight bytes"));
        let said = u32::from_le_bytes(bytes[CHECK_AT..][..4].try_into().expect("four bytes"));
        if said != check(number, bytes) || synced_seq > SEQ_MAX {
            return None;
        }
        let bits = bytes[BITS_AT..CHECK_AT].try_into().expect("as many bytes");
        Some((SealSector { bits }, synced_seq))
    }
}

/// The check begins with that of the sector's number, so a sector that was never written (all
/// zeros) fails it.
fn check(number: usize, bytes: &[u8]) -> u32 {
    let seed = crc32c(&to_u32(number).to_le_bytes());
    crc32c_append(seed, &bytes[..CHECK_AT])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_holds_only_at_its_place_and_unchanged() {
        let mut sector = SealSector::default();
        let last = SLOTS_PER_SECTOR - 1;
        for slot in [0, 7, 8, last] {
            assert!(sector.set(slot, true) && !sector.set(slot, true));
        }
        assert!(sector.set(7, false));
        let seals = [0, 1, 7, 8, last - 1, last].map(|slot| sector.is_set(slot));
        assert_eq!(seals, [true, false, false, true, false, true]);
        assert_eq!((SealSector::of(last), SealSector::of(last + 1)), (0, 1));
        let bytes = sector.encode(3, 77);
        assert_eq!(SealSector::decode(3, &bytes), Some((sector.clone(), 77)));
        assert_eq!(SealSector::decode(2, &bytes), None);
        for number in 0..3 {
            assert_eq!(SealSector::decode(number, &[0; SEAL_SECTOR_BYTES]), None);
        }
        for bit in 0..8 * SEAL_SECTOR_BYTES {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SealSector::decode(3, &flipped), None, "bit {bit}");
        }
        let beyond = sector.encode(3, SEQ_MAX + 1);
        assert_eq!(SealSector::decode(3, &beyond), None);
    }
}
