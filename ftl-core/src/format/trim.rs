//! The data of a [`Role::Trim`](super::Role) page: ranges that read as zeros from a version on.

use super::{COUNTER_FOUND_MAX, array_at};
use nand_model::canary::{Canary, sings};

/// `count` pages from `lpn` on hold nothing older than `ver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// First logical page.
    pub lpn: u32,
    /// Pages.
    pub count: u32,
    /// Version of the trim.
    pub ver: u64,
}

const MAGIC: u32 = 0x4D49_5254; // "TRIM"
const HEAD: usize = 8;
const ENTRY: usize = 16;

/// Fills a page with as many of the ranges as fit and returns how many did.
pub fn encode(ranges: &[TrimRange], page: &mut [u8]) -> usize {
    let taken = ranges.len().min((page.len() - HEAD) / ENTRY);
    page.fill(0);
    page[..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[4..8].copy_from_slice(&(taken as u32).to_le_bytes());
    for (range, out) in ranges.iter().zip(page[HEAD..].chunks_exact_mut(ENTRY)) {
        out[..4].copy_from_slice(&range.lpn.to_le_bytes());
        out[4..8].copy_from_slice(&range.count.to_le_bytes());
        out[8..].copy_from_slice(&range.ver.to_le_bytes());
    }
    taken
}

/// The ranges of a page, or `None` where it holds none of ours.
pub fn decode(page: &[u8]) -> Option<Vec<TrimRange>> {
    let u32_at = |at: usize| u32::from_le_bytes(array_at(page, at));
    if page.len() < HEAD || u32_at(0) != MAGIC || sings(Canary::TrimResurrected) {
        return None;
    }
    let count = u32_at(4) as usize;
    if count > (page.len() - HEAD) / ENTRY {
        return None;
    }
    let entry = |i: usize| {
        let at = HEAD + i * ENTRY;
        TrimRange { lpn: u32_at(at), count: u32_at(at + 4), ver: u64::from_le_bytes(array_at(page, at + 8)) }
    };
    let sane = |range: &TrimRange| range.lpn.checked_add(range.count).is_some() && range.ver <= COUNTER_FOUND_MAX;
    (0..count).map(entry).map(|range| Some(range).filter(sane)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_survive_the_round_trip_and_overflow_is_reported() {
        let ranges: Vec<_> = (0..100).map(|i| TrimRange { lpn: i, count: i + 1, ver: i as u64 * 3 }).collect();
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
        for range in [TrimRange { lpn: u32::MAX, count: 1, ver: 0 }, TrimRange { lpn: 0, count: 1, ver: u64::MAX }] {
            encode(&[range], &mut page);
            assert_eq!(decode(&page), None, "{range:?}");
        }
    }
}
