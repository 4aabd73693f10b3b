//! Page contents with their own address, version and seed, so that a wrong page identifies itself:
//! another address's, an older version, a mixture of two writes, or no page of the tests.

use nand_model::SplitMix;
use std::fmt;

/// Bytes per record; a page consists of equal records, so that a mixture is visible at any offset.
const RECORD: usize = 32;

/// The content of a page that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Zeros: never written, trimmed, or written with zeros.
    Zeros,
    /// A whole page of the tests.
    Page {
        /// Its address.
        lpn: u32,
        /// Its version.
        version: u64,
        /// Its seed.
        seed: u64,
    },
    /// Records of different pages, or a record of the tests next to other bytes; the address and
    /// version of the first and of the first different one.
    Mixture(Option<(u32, u64)>, Option<(u32, u64)>),
    /// No record of the tests.
    Foreign,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Zeros => write!(f, "zeros"),
            Seen::Page { lpn, version, seed } => {
                write!(f, "page {lpn} version {version} of seed {seed}")
            }
            Seen::Mixture(one, other) => write!(f, "a mixture of {one:?} and {other:?}"),
            Seen::Foreign => write!(f, "nothing ever written"),
        }
    }
}

/// Fills a page; its length is a multiple of 32. Version 0 is zeros.
///
/// # Panics
/// The length is no multiple of 32.
pub fn fill(page: &mut [u8], lpn: u32, version: u64, seed: u64) {
    assert!(page.len().is_multiple_of(RECORD));
    if version == 0 {
        page.fill(0);
        return;
    }
    for (index, record) in (0..).zip(page.chunks_exact_mut(RECORD)) {
        record.copy_from_slice(&encode(lpn, index, version, seed));
    }
}

/// Identifies a page's content.
pub fn identify(page: &[u8]) -> Seen {
    // In pieces, so that the compiler compares many bytes at once.
    if page
        .chunks(64)
        .all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
    {
        return Seen::Zeros;
    }
    if let Some((lpn, version, seed)) = decode(&page[..RECORD], 0)
        && is_whole(page, lpn, version, seed)
    {
        return Seen::Page { lpn, version, seed };
    }
    let records: Vec<_> = (0..)
        .zip(page.chunks_exact(RECORD))
        .map(|(index, r)| decode(r, index))
        .collect();
    let name = |record: Option<(u32, u64, u64)>| record.map(|(lpn, version, _)| (lpn, version));
    match records.iter().find(|record| **record != records[0]) {
        Some(odd) => Seen::Mixture(name(records[0]), name(*odd)),
        None => records[0].map_or(Seen::Foreign, |(lpn, version, seed)| Seen::Page {
            lpn,
            version,
            seed,
        }),
    }
}

/// The common case of [`identify`], which reads every page of the device after every cut.
fn is_whole(page: &[u8], lpn: u32, version: u64, seed: u64) -> bool {
    let check = check_of(lpn, version, seed);
    (0..).zip(page.chunks_exact(RECORD)).all(|(index, record)| {
        let words = [
            lpn as u64 | (index as u64) << 32,
            version,
            seed,
            digest(check, index),
        ];
        record
            .chunks_exact(8)
            .zip(words)
            .all(|(bytes, word)| bytes == word.to_le_bytes())
    })
}

fn encode(lpn: u32, index: u32, version: u64, seed: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..4].copy_from_slice(&lpn.to_le_bytes());
    record[4..8].copy_from_slice(&index.to_le_bytes());
    record[8..16].copy_from_slice(&version.to_le_bytes());
    record[16..24].copy_from_slice(&seed.to_le_bytes());
    record[24..].copy_from_slice(&digest(check_of(lpn, version, seed), index).to_le_bytes());
    record
}

fn decode(record: &[u8], index: u32) -> Option<(u32, u64, u64)> {
    let u64_at =
        |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
    let (lpn, found) = (u64_at(0) as u32, (u64_at(0) >> 32) as u32);
    let (version, seed) = (u64_at(8), u64_at(16));
    (found == index && u64_at(24) == digest(check_of(lpn, version, seed), index))
        .then_some((lpn, version, seed))
}

/// The check value that all records of a page share.
fn check_of(lpn: u32, version: u64, seed: u64) -> u64 {
    SplitMix::new(seed ^ version.rotate_left(20) ^ ((lpn as u64) << 40)).next_u64()
}

fn digest(check: u64, index: u32) -> u64 {
    check.wrapping_add((index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lpn: u32, version: u64, seed: u64) -> Vec<u8> {
        let mut page = vec![0xEE; 1024];
        fill(&mut page, lpn, version, seed);
        page
    }

    #[test]
    fn page_bytes_identify_address_version_and_seed() {
        assert_eq!(
            identify(&page(7, 9, 11)),
            Seen::Page {
                lpn: 7,
                version: 9,
                seed: 11
            }
        );
        assert_eq!(identify(&page(7, 0, 11)), Seen::Zeros);
        assert_eq!(identify(&[0xFF; 1024]), Seen::Foreign);
    }

    #[test]
    fn mixed_shifted_or_flipped_bytes_are_no_page() {
        let mut torn = page(7, 9, 11);
        torn[512..].copy_from_slice(&page(7, 8, 11)[512..]);
        assert_eq!(identify(&torn), Seen::Mixture(Some((7, 9)), Some((7, 8))));
        let mut zero_tail = page(7, 9, 11);
        zero_tail[992..].fill(0);
        assert_eq!(identify(&zero_tail), Seen::Mixture(Some((7, 9)), None));
        let mut shifted = page(7, 9, 11);
        shifted.rotate_left(RECORD);
        assert_eq!(identify(&shifted), Seen::Foreign);
        let mut flipped = page(7, 9, 11);
        flipped[1000] ^= 4;
        assert!(matches!(identify(&flipped), Seen::Mixture(..)));
    }
}
