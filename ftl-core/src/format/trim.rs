//! The data of a [`Role::Trim`](super::Role) page: ranges that read as zeros from a version on, or
//! a bitmap of such pages.

use super::bytes::array_at;
use super::oob::COUNTER_FOUND_MAX;
use crate::int::{index, to_u32};

/// Versions below `ver` of `count` pages from `lpn` on are void: without a newer one, a page reads
/// as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// First logical page.
    pub lpn: u32,
    /// Number of pages.
    pub count: u32,
    /// Version of the trim.
    pub ver: u64,
}

const MAGIC: u32 = 0x4D49_5254; // "TRIM"
const HEAD: usize = 8;
const ENTRY: usize = 16;

/// Fills a page with as many ranges as fit; returns their number.
pub fn encode(ranges: &[TrimRange], page: &mut [u8]) -> usize {
    let taken = ranges.len().min((page.len() - HEAD) / ENTRY);
    page.fill(0);
    page[..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[4..8].copy_from_slice(&(to_u32(taken)).to_le_bytes());
    for (range, out) in ranges.iter().zip(page[HEAD..].chunks_exact_mut(ENTRY)) {
        out[..4].copy_from_slice(&range.lpn.to_le_bytes());
        out[4..8].copy_from_slice(&range.count.to_le_bytes());
        out[8..].copy_from_slice(&range.ver.to_le_bytes());
    }
    taken
}

/// Returns the ranges of a page, or `None` if it holds no ranges.
pub fn decode(page: &[u8]) -> Option<Vec<TrimRange>> {
    let u32_at = |at: usize| u32::from_le_bytes(array_at(page, at));
    if page.len() < HEAD || u32_at(0) != MAGIC {
        return None;
    }
    let count = index(u32_at(4));
    if count > (page.len() - HEAD) / ENTRY {
        return None;
    }
    let entry = |i: usize| {
        let at = HEAD + i * ENTRY;
        TrimRange {
            lpn: u32_at(at),
            count: u32_at(at + 4),
            ver: u64::from_le_bytes(array_at(page, at + 8)),
        }
    };
    let sane = |range: &TrimRange| {
        range.lpn.checked_add(range.count).is_some() && range.ver <= COUNTER_FOUND_MAX
    };
    (0..count)
        .map(entry)
        .map(|range| Some(range).filter(sane))
        .collect()
}

const BITMAP_MAGIC: u32 = 0x4D42_5254; // "TRBM"
const BITMAP_HEAD: usize = 24;

/// One bit per page of `count` pages from `lpn` on, lowest first: the page has no content older
/// than `ver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimBitmap {
    /// First logical page.
    pub lpn: u32,
    /// Number of pages.
    pub count: u32,
    /// Version of the bitmap.
    pub ver: u64,
    /// The bits, `count` of them.
    pub bits: Vec<u8>,
}

impl TrimBitmap {
    /// Returns the number of bits that fit into a page of this size.
    pub const fn capacity(page_bytes: u32) -> u32 {
        (page_bytes - to_u32(BITMAP_HEAD)) * 8
    }

    /// Encodes the bitmap into a page, which must be large enough.
    pub fn encode(&self, page: &mut [u8]) {
        assert_eq!(
            self.bits.len(),
            index(self.count.div_ceil(8)),
            "bitmap of {} pages has the wrong number of bytes",
            self.count
        );
        assert!(
            BITMAP_HEAD + self.bits.len() <= page.len(),
            "a bitmap of {} pages in {} bytes",
            self.count,
            page.len()
        );
        page.fill(0);
        page[..4].copy_from_slice(&BITMAP_MAGIC.to_le_bytes());
        page[4..8].copy_from_slice(&self.lpn.to_le_bytes());
        page[8..12].copy_from_slice(&self.count.to_le_bytes());
        page[16..24].copy_from_slice(&self.ver.to_le_bytes());
        page[BITMAP_HEAD..][..self.bits.len()].copy_from_slice(&self.bits);
    }

    /// Returns the bitmap of a page, or `None` if it holds no bitmap.
    pub fn decode(page: &[u8]) -> Option<TrimBitmap> {
        let behind = page.get(BITMAP_HEAD..)?;
        if u32::from_le_bytes(array_at(page, 0)) != BITMAP_MAGIC {
            return None;
        }
        let (lpn, count) = (
            u32::from_le_bytes(array_at(page, 4)),
            u32::from_le_bytes(array_at(page, 8)),
        );
        let ver = u64::from_le_bytes(array_at(page, 16));
        let bits = behind.get(..index(count.div_ceil(8)))?.to_vec();
        let sane = lpn.checked_add(count).is_some() && ver <= COUNTER_FOUND_MAX;
        sane.then_some(TrimBitmap {
            lpn,
            count,
            ver,
            bits,
        })
    }

    /// Iterates over the pages whose bit is set.
    pub fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count)
            .filter(|i| self.bits[index(*i) / 8] >> (i % 8) & 1 == 1)
            .map(|i| self.lpn + i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_survive_the_round_trip_and_lies_are_refused() {
        let bitmap = TrimBitmap {
            lpn: 40,
            count: 19,
            ver: 7,
            bits: vec![0b1000_0001, 0, 0b100],
        };
        let mut page = [0xFF; 64];
        bitmap.encode(&mut page);
        assert_eq!(TrimBitmap::decode(&page), Some(bitmap));
        assert_eq!(
            TrimBitmap::decode(&page)
                .unwrap()
                .pages()
                .collect::<Vec<_>>(),
            [40, 47, 58]
        );
        assert_eq!((decode(&page), TrimBitmap::decode(&[0; 64])), (None, None));
        for (at, byte) in [(9, 200), (4, 0xFF), (23, 1)] {
            let mut lie = page;
            lie[at..][..1].fill(byte);
            lie[5..8].fill(if at == 4 { 0xFF } else { 0 });
            assert_eq!(TrimBitmap::decode(&lie), None, "byte {at}");
        }
    }

    #[test]
    fn ranges_survive_the_round_trip_and_overflow_is_reported() {
        let ranges: Vec<_> = (0..100)
            .map(|i| TrimRange {
                lpn: i,
                count: i + 1,
                ver: i as u64 * 3,
            })
            .collect();
        let mut page = [0; 1024];
        let taken = encode(&ranges, &mut page);
        assert_eq!(taken, 63);
        assert_eq!(decode(&page).unwrap(), ranges[..taken]);
    }

    #[test]
    fn foreign_pages_are_refused() {
        assert_eq!(decode(&[0; 512]), None);
        let mut page = [0; 64];
        encode(&[], &mut page);
        page[4] = 200;
        assert_eq!(decode(&page), None);
        for range in [
            TrimRange {
                lpn: u32::MAX,
                count: 1,
                ver: 0,
            },
            TrimRange {
                lpn: 0,
                count: 1,
                ver: u64::MAX,
            },
        ] {
            encode(&[range], &mut page);
            assert_eq!(decode(&page), None, "{range:?}");
        }
    }
}
