//! Addresses of a device over its shards: stripe `n` is in shard `n % shards`. Each shard has
//! addresses of its own without gaps.
//!
//! Invariants: every byte of the device is in one shard at one address. A stripe has whole blocks
//! and whole extents: a scheme gets whole-block writes as it would without shards. A range of the
//! device is one range of each shard.

use crate::pages::{extent_bytes, extent_end};
use ftld_kit::convert::{to_u64, to_usize};
use nand_model::{Geometry, Striping};
use std::cmp::Ordering;
use std::ops::Range;

/// The stripes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    shards: u64,
    /// Bytes of a stripe; without limit if there is one shard.
    bytes: u64,
}

/// A part of a request, in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The shard.
    pub shard: usize,
    /// First byte in the shard.
    pub at: u64,
    /// First byte in the device.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) len: u64,
}

/// Returns the stripes of a new device: an extent, or a block if that is larger. An extent has
/// whole blocks if several fit into it.
pub fn striping(geometry: &Geometry, count: u32) -> Option<Striping> {
    let block = u64::from(geometry.pages_per_block) * u64::from(geometry.page_bytes);
    (count > 1).then(|| Striping {
        count,
        stripe_bytes: extent_bytes(geometry).max(block),
    })
}

impl Stripes {
    /// Returns the stripes of this number of shards.
    pub fn new(shards: usize, striping: Option<Striping>) -> Stripes {
        let bytes = striping.map_or(u64::MAX, |striping| striping.stripe_bytes);
        assert!(
            shards == 1 || bytes < u64::MAX && bytes > 0,
            "{shards} shards with stripes of {bytes} bytes"
        );
        Stripes {
            shards: to_u64(shards),
            bytes,
        }
    }

    /// Splits a range of the device at the ends of stripes.
    pub fn pieces(self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let mut offset = range.start;
        std::iter::from_fn(move || {
            if offset >= range.end {
                return None;
            }
            let (shard, at) = self.place(offset);
            let piece = Piece {
                shard,
                at,
                offset,
                len: (range.end - offset).min(self.bytes - offset % self.bytes),
            };
            offset += piece.len;
            Some(piece)
        })
    }

    /// Returns the shard of a byte, and its address there.
    #[inline]
    pub(super) fn place(self, offset: u64) -> (usize, u64) {
        let (stripe, inside) = (offset / self.bytes, offset % self.bytes);
        let at = stripe / self.shards * self.bytes + inside;
        (to_usize(stripe % self.shards), at)
    }

    /// Returns whether one stripe has all of these bytes.
    #[inline]
    pub(super) fn has_one(self, offset: u64, len: u64) -> bool {
        offset % self.bytes + len <= self.bytes
    }

    /// Returns the ranges of the shards that a range of the device has bytes in.
    pub(super) fn ranges(self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let first = range.start / self.bytes;
        let stripes = range.end.div_ceil(self.bytes).saturating_sub(first);
        let count = if range.is_empty() { 0 } else { stripes };
        (first..first + count.min(self.shards)).map(move |stripe| {
            let shard = stripe % self.shards;
            (to_usize(shard), self.range_of(shard, &range))
        })
    }

    /// Returns the range of a shard that is in a range of the device.
    fn range_of(self, shard: u64, range: &Range<u64>) -> Range<u64> {
        // Bytes of the shard before a byte of the device.
        let before = |offset: u64| {
            let (stripe, inside) = (offset / self.bytes, offset % self.bytes);
            let part = match (stripe % self.shards).cmp(&shard) {
                Ordering::Less => 0,
                Ordering::Equal => inside,
                Ordering::Greater => self.bytes,
            };
            stripe / self.shards * self.bytes + part
        };
        before(range.start)..before(range.end)
    }

    /// Returns the address in the device of a byte of a shard.
    pub fn offset_of(self, shard: usize, at: u64) -> u64 {
        let stripe = at / self.bytes * self.shards + to_u64(shard);
        stripe * self.bytes + at % self.bytes
    }

    /// Returns the end of the next extent of a range of a shard; an extent is inside a stripe.
    pub(super) fn extent_end(self, at: u64, end: u64, extent: u64) -> u64 {
        extent_end(at, end, extent).min(extent_end(at, end, self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::Profile;

    fn stripes(shards: usize, stripe_bytes: u64) -> Stripes {
        let count = u32::try_from(shards).unwrap();
        let striping = Striping {
            count,
            stripe_bytes,
        };
        Stripes::new(shards, Some(striping))
    }

    #[test]
    fn every_byte_has_one_place_and_a_range_is_one_range_of_each_shard() {
        for (shards, bytes) in [(1, u64::MAX), (2, 4), (3, 5), (4, 1)] {
            let stripes = match shards {
                1 => Stripes::new(1, None),
                _ => stripes(shards, bytes),
            };
            let mut places = std::collections::BTreeSet::new();
            for offset in 0..60 {
                let pieces: Vec<_> = stripes.pieces(offset..offset + 1).collect();
                assert_eq!((pieces.len(), pieces[0].len), (1, 1));
                assert!(places.insert((pieces[0].shard, pieces[0].at)));
            }
            for (begin, end) in (0..60).flat_map(|begin| (begin..60).map(move |end| (begin, end))) {
                let mut next = begin;
                let mut of = vec![Vec::new(); shards];
                for piece in stripes.pieces(begin..end) {
                    assert!(piece.offset == next && piece.len > 0);
                    assert_eq!(stripes.offset_of(piece.shard, piece.at), piece.offset);
                    next += piece.len;
                    of[piece.shard].extend(piece.at..piece.at + piece.len);
                }
                assert_eq!(next, end);
                let ranges: Vec<_> = stripes.ranges(begin..end).collect();
                assert!(ranges.iter().all(|(_, range)| !range.is_empty()));
                for (shard, bytes) in of.iter().enumerate() {
                    let mut ranges = ranges.iter().filter(|(own, _)| *own == shard);
                    let range = ranges.next().map_or(0..0, |(_, range)| range.clone());
                    assert!(ranges.next().is_none(), "one range");
                    let offsets = range.clone().map(|at| stripes.offset_of(shard, at));
                    assert!(offsets.is_sorted());
                    assert_eq!(
                        *bytes,
                        range.collect::<Vec<_>>(),
                        "{shards} shards, {shard}"
                    );
                }
            }
        }
        let one = Stripes::new(1, None);
        assert_eq!(
            one.ranges(5..u64::MAX - 1).collect::<Vec<_>>(),
            [(0, 5..u64::MAX - 1)]
        );
        assert_eq!((one.offset_of(0, 77), one.extent_end(5, 90, 64)), (77, 64));
        let all: Vec<_> = one.pieces(5..9).collect();
        assert_eq!((all.len(), all[0].at, all[0].len), (1, 5, 4));
        // An extent does not cross the end of a stripe, nor a multiple of its own length.
        let ends = [0, 3, 4, 9, 10].map(|at| stripes(2, 10).extent_end(at, 30, 4));
        assert_eq!(ends, [4, 4, 8, 10, 12]);
    }

    #[test]
    fn stripes_have_whole_blocks_and_whole_extents() {
        for profile in nand_model::PROFILES {
            let geometry = profile.with_blocks(64).geometry;
            let bytes = striping(&geometry, 2).unwrap().stripe_bytes;
            let block = u64::from(geometry.pages_per_block) * u64::from(geometry.page_bytes);
            assert!(bytes.is_multiple_of(block), "{}: {bytes}", profile.name);
            assert!(
                bytes >= extent_bytes(&geometry),
                "{}: {bytes}",
                profile.name
            );
        }
        let default = Profile::find("mlc-4k").unwrap().geometry;
        assert_eq!(striping(&default, 2).unwrap().stripe_bytes, 512 << 10);
        assert_eq!(striping(&default, 1), None);
    }
}
