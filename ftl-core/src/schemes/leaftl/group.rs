//! The segments of a group of 256 pages, in levels (section 3.4), and the list of the pages of its
//! approximate segments: the conflict resolution buffer.
//!
//! Segments of a level are sorted, and their intervals do not overlap. A new segment goes to the
//! top. An overlapped segment keeps the pages that the new one does not have. If the intervals
//! still overlap, it goes down a level. If it overlaps a segment there too, it gets a level of its
//! own.
//!
//! Invariants: the topmost segment that has a page is the newest that was learned for it. A page is
//! in at most one list, and an approximate segment has exactly the pages of its list; an accurate
//! one may have pages that a segment above it has learned since. Compaction drops those.

use super::segment::{Offsets, Point, Segment, learn, list_bytes};
use crate::int::{index, low_u8, low_u16, to_u64};
use crate::ram::{vec_bytes, vec_most};

/// Segments above which a group is compacted at once. Afterwards each has a page of its own.
const SEGMENTS_MOST: usize = 256;

/// Room of a vector beyond its length, at most.
const SLACK: usize = 8;

/// Learned segments of a group.
#[derive(Default)]
pub(super) struct Group {
    /// Level by level from the top, each by its first page.
    segments: Vec<Segment>,
    /// End of each level but the last, which ends with the segments.
    ends: Vec<u16>,
    /// Per approximate segment: number of its pages less 1, and its pages in ascending order.
    lists: Vec<u8>,
    /// Pages learned since the last compaction.
    learned: u16,
}

/// Buffers of a change of a group.
#[derive(Default)]
pub(super) struct Scratch {
    /// Segments that go down a level.
    down: Vec<Segment>,
    /// By level, the offsets in the intervals of its segments.
    occupied: Vec<Offsets>,
    /// Segments and their new levels.
    placed: Vec<(usize, Segment)>,
}

impl Scratch {
    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<Segment>(self.down.capacity())
            + vec_bytes::<Offsets>(self.occupied.capacity())
            + vec_bytes::<(usize, Segment)>(self.placed.capacity())
    }

    pub(super) fn bytes_most() -> u64 {
        let segments = to_u64(SEGMENTS_MOST) + 1;
        vec_most::<Segment>(segments)
            + vec_most::<Offsets>(segments)
            + vec_most::<(usize, Segment)>(segments)
    }
}

/// A found location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predicted {
    pub(super) ppn: u32,
    pub(super) is_accurate: bool,
}

/// Returns a number of segments as the ends of levels have it.
fn count(segments: usize) -> u16 {
    low_u16(to_u64(segments))
}

impl Group {
    /// Returns the predicted location of a page, from the newest segment that has it.
    #[inline]
    pub(super) fn find(&self, offset: u8) -> Option<Predicted> {
        self.newest(offset).map(|(_, segment)| Predicted {
            ppn: segment.predict(offset),
            is_accurate: segment.is_accurate(),
        })
    }

    /// Returns the newest segment that has a page, and its level.
    #[inline]
    pub(super) fn newest(&self, offset: u8) -> Option<(usize, &Segment)> {
        let mut start = 0;
        for level in 0..=self.ends.len() {
            let segments = &self.segments[start..self.end_of(level)];
            let after = segments.partition_point(|segment| segment.first <= offset);
            if let Some(segment) = after.checked_sub(1).map(|i| &segments[i])
                && segment.last() >= offset
                && self.has(segment, offset)
            {
                return Some((level, segment));
            }
            start = self.end_of(level);
        }
        None
    }

    #[inline]
    fn end_of(&self, level: usize) -> usize {
        match self.ends.get(level) {
            Some(end) => usize::from(*end),
            None => self.segments.len(),
        }
    }

    #[inline]
    fn has(&self, segment: &Segment, offset: u8) -> bool {
        if segment.is_accurate() {
            return segment.is_in_stride(offset);
        }
        self.list_of(segment.first)
            .is_some_and(|list| list.contains(&offset))
    }

    /// Iterates over the lists: where each begins, and its pages.
    fn all_lists(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let count = usize::from(*self.lists.get(at)?) + 1;
            let begin = at;
            at += 1 + count;
            Some((begin, &self.lists[begin + 1..at]))
        })
    }

    fn list_of(&self, first: u8) -> Option<&[u8]> {
        let mut lists = self.all_lists();
        let found = lists.find(|(_, pages)| pages[0] == first);
        found.map(|(_, pages)| pages)
    }

    /// Returns the pages of a segment.
    fn offsets(&self, segment: &Segment) -> Offsets {
        if segment.is_accurate() {
            return segment.offsets();
        }
        let mut offsets = Offsets::default();
        let list = self.list_of(segment.first);
        let list = list.expect("an approximate segment has a list");
        list.iter().for_each(|offset| offsets.add(*offset));
        offsets
    }

    /// Learns the locations of pages in ascending order. `mapped`: pages that hold data, these
    /// among them. Compacts the group if it has learned `interval` pages, or has many segments.
    pub(super) fn learn(
        &mut self,
        points: &[Point],
        mapped: &Offsets,
        (gamma, interval): (u32, u16),
        scratch: &mut Scratch,
    ) {
        let mut rest = points;
        while !rest.is_empty() {
            let (segment, count) = learn(rest, gamma);
            let (own, others) = rest.split_at(count);
            self.insert(segment, own, &mut scratch.down);
            rest = others;
            if self.segments.len() > SEGMENTS_MOST {
                self.compact(mapped, scratch);
            }
        }
        self.learned = self.learned.saturating_add(count(points.len()));
        if self.learned >= interval {
            self.compact(mapped, scratch);
        }
        self.release_room();
    }

    /// Adds a segment at the top.
    fn insert(&mut self, segment: Segment, points: &[Point], down: &mut Vec<Segment>) {
        self.segments.reserve_exact(SLACK / 2);
        let mut own = Offsets::default();
        points.iter().for_each(|point| own.add(point.offset));
        self.unlist(&own);
        if !segment.is_accurate() {
            self.lists.reserve_exact(list_bytes(points.len()));
            self.lists.push(low_u8(to_u64(points.len() - 1)));
            self.lists.extend(points.iter().map(|point| point.offset));
        }
        let top = &self.segments[..self.end_of(0)];
        let begin = top.partition_point(|other| other.last() < segment.first);
        let end = begin + top[begin..].partition_point(|other| other.first <= segment.last());
        let mut stay = [None; 2];
        down.clear();
        for mut other in self.segments[begin..end].iter().copied() {
            if other.is_accurate() {
                match other.offsets().without(&own).ends() {
                    None => continue,
                    Some(ends) => other.shrink(ends),
                }
            }
            match other.overlaps(&segment) {
                true => down.push(other),
                false => stay[usize::from(other.first > segment.first)] = Some(other),
            }
        }
        let new = [stay[0], Some(segment), stay[1]].into_iter().flatten();
        let before = self.segments.len();
        self.segments.splice(begin..end, new);
        self.move_ends(0, self.segments.len() as isize - before as isize);
        down.iter().for_each(|other| self.push_down(*other));
    }

    /// Adds `change` to the ends of the levels from this one on.
    fn move_ends(&mut self, level: usize, change: isize) {
        for end in self.ends.iter_mut().skip(level) {
            *end = end
                .checked_add_signed(change as i16)
                .expect("levels are not longer than the segments");
        }
    }

    /// Moves a segment from the top to the second level, or to a new one above it.
    fn push_down(&mut self, segment: Segment) {
        let start = self.end_of(0);
        if self.ends.is_empty() {
            self.ends.push(count(start));
            self.segments.push(segment);
            return;
        }
        let level = &self.segments[start..self.end_of(1)];
        let at = level.partition_point(|other| other.last() < segment.first);
        let is_free = level.get(at).is_none_or(|other| !other.overlaps(&segment));
        let at = if is_free {
            start + at
        } else {
            self.ends.insert(0, count(start));
            start
        };
        self.segments.insert(at, segment);
        self.move_ends(1, 1);
    }

    /// Removes pages from the lists. Approximate segments without pages go.
    fn unlist(&mut self, pages: &Offsets) {
        if self.lists.is_empty() {
            return;
        }
        let lists = std::mem::take(&mut self.lists);
        let mut at = 0;
        while let Some(count) = lists.get(at) {
            let list = &lists[at + 1..][..usize::from(*count) + 1];
            at += 1 + list.len();
            let begin = self.lists.len();
            self.lists.push(0);
            self.lists
                .extend(list.iter().filter(|page| !pages.has(**page)));
            let left = self.lists.len() - begin - 1;
            if left == list.len() {
                self.lists[begin] = *count;
                continue;
            }
            let old = |segment: &Segment| !segment.is_accurate() && segment.first == list[0];
            let i = self.segments.iter().position(old);
            let i = i.expect("a list has a segment");
            if left == 0 {
                self.lists.truncate(begin);
                self.remove(i);
            } else {
                self.lists[begin] = low_u8(to_u64(left - 1));
                let ends = (self.lists[begin + 1], self.lists[begin + left]);
                self.segments[i].shrink(ends);
            }
        }
    }

    fn remove(&mut self, i: usize) {
        let level = self.ends.partition_point(|end| usize::from(*end) <= i);
        self.segments.remove(i);
        self.move_ends(level, -1);
        self.drop_empty_levels();
    }

    fn drop_empty_levels(&mut self) {
        let all = count(self.segments.len());
        let mut before = 0;
        self.ends
            .retain(|end| std::mem::replace(&mut before, *end) != *end && *end != all);
    }

    /// Drops pages that a newer segment has, or that hold no data; moves every segment up as far as
    /// the newer ones allow (section 3.7).
    pub(super) fn compact(&mut self, mapped: &Offsets, scratch: &mut Scratch) {
        self.learned = 0;
        let mut unmapped = Offsets::range(0, u8::MAX);
        unmapped = unmapped.without(mapped);
        self.unlist(&unmapped);
        let mut covered = unmapped;
        let Scratch {
            occupied, placed, ..
        } = scratch;
        occupied.clear();
        placed.clear();
        for mut segment in self.segments.iter().copied() {
            let left = self.offsets(&segment).without(&covered);
            let Some(ends) = left.ends() else { continue };
            covered.add_all(&left);
            segment.shrink(ends);
            let interval = Offsets::range(segment.first, segment.last());
            let taken = |level: &Offsets| !level.also_in(&interval).is_empty();
            let level = occupied
                .iter()
                .rposition(taken)
                .map_or(0, |level| level + 1);
            match occupied.get_mut(level) {
                Some(level) => level.add_all(&interval),
                None => occupied.push(interval),
            }
            placed.push((level, segment));
        }
        placed.sort_unstable_by_key(|(level, segment)| (*level, segment.first));
        self.segments.clear();
        self.ends.clear();
        for (level, segment) in placed.iter() {
            if *level > self.ends.len() {
                self.ends.push(count(self.segments.len()));
            }
            self.segments.push(*segment);
        }
    }

    fn release_room(&mut self) {
        fn fit<T>(vec: &mut Vec<T>) {
            if vec.capacity() > vec.len() + SLACK {
                vec.shrink_to(vec.len());
            }
        }
        fit(&mut self.segments);
        fit(&mut self.ends);
        fit(&mut self.lists);
    }

    /// Returns the bytes by the paper's count: segments and lists.
    pub(super) fn paper_bytes(&self) -> u64 {
        vec_bytes::<Segment>(self.segments.len()) + to_u64(self.lists.len())
    }

    /// Returns the allocated bytes outside the group itself.
    pub(super) fn heap_bytes(&self) -> u64 {
        vec_bytes::<Segment>(self.segments.capacity())
            + vec_bytes::<u16>(self.ends.capacity())
            + vec_bytes::<u8>(self.lists.capacity())
    }

    /// Returns the most bytes that a group has allocated between two changes.
    pub(super) fn heap_bytes_most() -> u64 {
        let segments = SEGMENTS_MOST + SLACK;
        // Each page is in one list at most, and each list has a page.
        let lists = 256 * list_bytes(1) + SLACK;
        vec_bytes::<Segment>(segments) + vec_bytes::<u16>(segments) + vec_bytes::<u8>(lists)
    }

    /// Returns the number of segments, how many are approximate, and the number of levels.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let all = to_u64(self.segments.len());
        let approximate = self.segments.iter().filter(|one| !one.is_accurate());
        let levels = to_u64(self.ends.len()) + u64::from(all > 0);
        (all, to_u64(approximate.count()), levels)
    }

    #[cfg(test)]
    pub(super) fn levels(&self) -> Vec<&[Segment]> {
        let mut start = 0;
        (0..=self.ends.len())
            .map(|level| {
                let segments = &self.segments[start..self.end_of(level)];
                start = self.end_of(level);
                segments
            })
            .collect()
    }

    /// Returns what contradicts the invariants of the module.
    #[cfg(test)]
    pub(super) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut start = 0;
        for level in 0..=self.ends.len() {
            let end = self.end_of(level);
            if end < start || end == start && !self.ends.is_empty() {
                wrong.push(format!("level {level} ends at {end}, begins at {start}"));
                return wrong;
            }
            let segments = &self.segments[start..end];
            let sorted = segments.windows(2).all(|two| two[0].last() < two[1].first);
            if !sorted {
                wrong.push(format!("level {level} is not in order: {segments:?}"));
            }
            start = end;
        }
        let mut listed = Offsets::default();
        let mut lists = 0;
        for (_, pages) in self.all_lists() {
            lists += 1;
            let ends = (pages[0], pages[pages.len() - 1]);
            let owner = |one: &&Segment| !one.is_accurate() && (one.first, one.last()) == ends;
            let owners = self.segments.iter().filter(owner).count();
            let is_listed = pages.iter().any(|page| listed.has(*page));
            if owners != 1 || is_listed || !pages.is_sorted() {
                wrong.push(format!("list {pages:?} has {owners} segments"));
            }
            pages.iter().for_each(|page| listed.add(*page));
        }
        let approximate = self.segments.iter().filter(|one| !one.is_accurate());
        let approximate = approximate.count();
        if approximate != lists {
            wrong.push(format!("{approximate} approximate segments, {lists} lists"));
        }
        wrong
    }
}

const _: () = assert!(SEGMENTS_MOST + 256 < index(1 << 15));
