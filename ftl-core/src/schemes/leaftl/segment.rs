//! Learned segments (section 3.2): a line through the locations of some pages of a group.
//!
//! A segment has 8 bytes: its first page and its length, a byte each, as offsets in the group; two
//! bytes of slope, whose lowest bit is the kind; the location that it predicts for offset 0. The
//! paper has the slope as a float of 16 bits. Here an *accurate* segment has its stride instead,
//! the inverse of its slope, and an *approximate* one the slope in units of 2^-15. So predictions
//! are integers, equal on every machine.

use crate::int::{index, low_u8, to_u64};

/// Pages of a group: their offsets take a byte.
pub(super) const GROUP: u32 = 256;

/// Units of a slope of 1.
const ONE: i64 = 1 << 15;

/// A page of a group: its offset, and its physical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) offset: u8,
    pub(super) ppn: u32,
}

/// A set of offsets of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offsets([u64; 4]);

impl Offsets {
    #[inline]
    pub(super) fn has(&self, offset: u8) -> bool {
        self.0[usize::from(offset >> 6)] >> (offset & 63) & 1 == 1
    }

    #[inline]
    pub(super) fn add(&mut self, offset: u8) {
        self.0[usize::from(offset >> 6)] |= 1 << (offset & 63);
    }

    #[cfg(test)]
    pub(super) fn remove(&mut self, offset: u8) {
        self.0[usize::from(offset >> 6)] &= !(1 << (offset & 63));
    }

    /// Adds all offsets of the other set.
    pub(super) fn add_all(&mut self, other: &Offsets) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }

    /// Returns these offsets without those of the other set.
    pub(super) fn without(mut self, other: &Offsets) -> Offsets {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= !b);
        self
    }

    /// Returns these offsets that are also in the other set.
    pub(super) fn also_in(mut self, other: &Offsets) -> Offsets {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns the first and the last offset.
    pub(super) fn ends(&self) -> Option<(u8, u8)> {
        let first = self.0.iter().position(|word| *word != 0)?;
        let last = self.0.iter().rposition(|word| *word != 0)?;
        let first = to_u64(first) * 64 + u64::from(self.0[first].trailing_zeros());
        let last = to_u64(last) * 64 + 63 - u64::from(self.0[last].leading_zeros());
        Some((low_u8(first), low_u8(last)))
    }

    /// Returns all offsets of a range, whose ends are included.
    pub(super) fn range(first: u8, last: u8) -> Offsets {
        let word = |i: u64| {
            let (low, high) = (64 * i, 64 * i + 63);
            let (first, last) = (u64::from(first).max(low), u64::from(last).min(high));
            if first > last {
                return 0;
            }
            (u64::MAX >> (63 - (last - first))) << (first - low)
        };
        Offsets([word(0), word(1), word(2), word(3)])
    }

    /// Returns the set of these four words.
    pub(super) fn from_words(word: impl Fn(usize) -> u64) -> Offsets {
        Offsets([word(0), word(1), word(2), word(3)])
    }

    #[cfg(test)]
    pub(super) fn of(offsets: &[u8]) -> Offsets {
        let mut set = Offsets::default();
        offsets.iter().for_each(|offset| set.add(*offset));
        set
    }
}

/// A learned segment (see the module).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u8,
    /// Distance to the last page.
    length: u8,
    /// Bit 0: whether it is approximate. Above: its stride, or its slope.
    slope: u16,
    /// Location that it predicts for offset 0, modulo 2^32.
    base: u32,
}

impl Segment {
    /// Returns the segment of pages `stride` apart, whose locations are consecutive.
    fn accurate(first: Point, last: u8, stride: u8) -> Segment {
        debug_assert!(stride > 0, "a stride of 0");
        Segment {
            first: first.offset,
            length: last - first.offset,
            slope: u16::from(stride) << 1,
            base: first.ppn.wrapping_sub(u32::from(first.offset / stride)),
        }
    }

    /// Returns the approximate segment of this slope, in units of 2^-15, through its first page.
    fn approximate(first: Point, last: u8, slope: u16) -> Segment {
        debug_assert!(i64::from(slope) < ONE, "slope {slope}");
        Segment {
            first: first.offset,
            length: last - first.offset,
            slope: slope << 1 | 1,
            base: first.ppn.wrapping_sub(rise(slope, first.offset)),
        }
    }

    /// Returns whether it predicts the location of each of its pages.
    #[inline]
    pub(super) fn is_accurate(&self) -> bool {
        self.slope & 1 == 0
    }

    /// Returns its last page.
    #[inline]
    pub(super) fn last(&self) -> u8 {
        self.first + self.length
    }

    /// Returns whether the two intervals have an offset in common.
    pub(super) fn overlaps(&self, other: &Segment) -> bool {
        self.first <= other.last() && other.first <= self.last()
    }

    /// Returns whether a page in the interval of an accurate segment is one of its pages.
    #[inline]
    pub(super) fn is_in_stride(&self, offset: u8) -> bool {
        u16::from(offset - self.first).is_multiple_of(self.slope >> 1)
    }

    /// Returns the pages of an accurate segment.
    pub(super) fn offsets(&self) -> Offsets {
        debug_assert!(self.is_accurate(), "an approximate segment has a list");
        if self.slope >> 1 == 1 {
            return Offsets::range(self.first, self.last());
        }
        let mut offsets = Offsets::default();
        (self.first..=self.last())
            .step_by(usize::from(self.slope >> 1))
            .for_each(|offset| offsets.add(offset));
        offsets
    }

    /// Sets the interval to these pages of the segment. The line stays.
    pub(super) fn shrink(&mut self, (first, last): (u8, u8)) {
        (self.first, self.length) = (first, last - first);
    }

    /// Returns the predicted location.
    #[inline]
    pub(super) fn predict(&self, offset: u8) -> u32 {
        let rise = match self.is_accurate() {
            true => u32::from(offset) / u32::from(self.slope >> 1),
            false => rise(self.slope >> 1, offset),
        };
        self.base.wrapping_add(rise)
    }
}

/// Returns the rounded rise of a line of this slope over an offset.
#[inline]
fn rise(slope: u16, offset: u8) -> u32 {
    (u32::from(slope) * u32::from(offset) + (1 << 14)) >> 15
}

/// Learns the next segment of pages in ascending order, which misses no location by more than
/// `gamma` (section 3.7: a greedy piecewise regression). Returns it and the number of its pages.
///
/// The paper has no rule for the kind of a segment. Here it is approximate where that takes fewer
/// bytes, its list of pages included, than accurate segments for the same pages.
pub(super) fn learn(points: &[Point], gamma: u32) -> (Segment, usize) {
    let exact = accurate_run(points);
    if gamma > 0
        && let Some((segment, count)) = approximate_run(points, exact, gamma)
    {
        return (segment, count);
    }
    let (first, last) = (points[0], points[exact - 1].offset);
    let stride = match points.get(1).filter(|_| exact > 1) {
        Some(second) => second.offset - first.offset,
        None => 1,
    };
    (Segment::accurate(first, last, stride), exact)
}

/// Returns how many of the pages, from the first on, have one stride and consecutive locations.
fn accurate_run(points: &[Point]) -> usize {
    let [first, second, ..] = points else {
        return points.len();
    };
    let stride = second.offset - first.offset;
    let follows = |pair: &[Point]| {
        pair[1].offset - pair[0].offset == stride && Some(pair[1].ppn) == pair[0].ppn.checked_add(1)
    };
    1 + points.windows(2).take_while(|pair| follows(pair)).count()
}

/// Returns the longest approximate segment from the first page on, if it is worth its list of pages
/// against accurate segments, the first of which has `exact` pages.
fn approximate_run(points: &[Point], exact: usize, gamma: u32) -> Option<(Segment, usize)> {
    let (first, gamma) = (points[0], i64::from(gamma));
    let distance = |point: &Point| {
        let run = i64::from(point.offset - first.offset);
        (run, i64::from(point.ppn) - i64::from(first.ppn))
    };
    // Slopes that miss no page so far by more than gamma.
    let (mut low, mut high) = (0, ONE - 1);
    let mut slopes = [0; index(GROUP)];
    let mut most = 1;
    let mut before = first.ppn;
    for point in &points[1..] {
        let (run, rise) = distance(point);
        low = low.max(((rise - gamma) * ONE).div_euclid(run) + 1);
        high = high.min(((rise + gamma) * ONE).div_euclid(run));
        if point.ppn <= before || low > high {
            break;
        }
        before = point.ppn;
        slopes[most] = ((low + high) / 2) as u16;
        most += 1;
    }
    let fits = |segment: &Segment, points: &[Point]| {
        points
            .iter()
            .all(|point| i64::from(segment.predict(point.offset).abs_diff(point.ppn)) <= gamma)
    };
    // Rounding may miss by one more: then the segment is shorter.
    for count in (exact + 1..=most).rev() {
        let last = points[count - 1].offset;
        let segment = Segment::approximate(first, last, slopes[count - 1]);
        if fits(&segment, &points[..count]) {
            return (list_bytes(count) + 8 < 8 * accurate_segments(&points[..count]))
                .then_some((segment, count));
        }
    }
    None
}

/// Returns the bytes of the list of an approximate segment's pages.
pub(super) fn list_bytes(pages: usize) -> usize {
    1 + pages
}

fn accurate_segments(points: &[Point]) -> usize {
    let (mut rest, mut count) = (points, 0);
    while !rest.is_empty() {
        rest = &rest[accurate_run(rest)..];
        count += 1;
    }
    count
}

const _: () = assert!(size_of::<Segment>() == 8 && index(GROUP) == 1 << u8::BITS);
