//! The learned table: segments of every group, and the pages that are not learned yet.
//!
//! New locations are collected, exactly as they are, while they belong to one group and come in
//! ascending order; then they are learned. So a lookup finds the newest location there first.
//!
//! Invariants: a page is mapped if its bit is set. Then its location is the one collected last, or
//! the one that its group finds. Everything is in RAM; a mount learns it again.

use super::group::{Group, Predicted, Scratch};
use super::segment::{GROUP, Offsets, Point};
use super::settings::Settings;
use crate::addr::Lpn;
use crate::author::PageMap;
use crate::config::Params;
use crate::error::FtlError;
use crate::int::{index, low_u8, to_u64};
use crate::ram::{vec_bytes, vec_most};
use crate::trims::Mapped;
use nand_model::Ppn;

/// Learned map of all logical pages.
pub(super) struct LearnedMap {
    settings: Settings,
    groups: Vec<Group>,
    mapped: Mapped,
    /// Pages that are not learned yet, of one group, in ascending order.
    recent: Vec<Point>,
    recent_group: u32,
    scratch: Scratch,
    /// Bound of the misses of segments that are learned now.
    gamma: u32,
    /// Bytes of all groups: as the paper counts, and allocated outside the groups themselves.
    paper: u64,
    heap: u64,
}

impl LearnedMap {
    /// Learns the recent pages.
    fn learn(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let group = self.recent_group;
        let mapped = self.mapped_of(group);
        let settings = (self.gamma, self.settings.compact_after);
        let of = &mut self.groups[index(group)];
        self.paper -= of.paper_bytes();
        self.heap -= of.heap_bytes();
        of.learn(&self.recent, &mapped, settings, &mut self.scratch);
        self.paper += of.paper_bytes();
        self.heap += of.heap_bytes();
        self.recent.clear();
    }

    fn mapped_of(&self, group: u32) -> Offsets {
        Offsets::from_words(|i| self.mapped.word(index(group) * 4 + i))
    }

    fn find_recent(&self, lpn: Lpn) -> Option<u32> {
        let (group, offset) = split(lpn);
        if group != self.recent_group {
            return None;
        }
        let found = (self.recent).binary_search_by_key(&offset, |point| point.offset);
        found.ok().map(|i| self.recent[i].ppn)
    }

    /// Returns the location of a page.
    fn find(&self, lpn: Lpn) -> Option<Predicted> {
        if !self.mapped.has(lpn.raw()) {
            return None;
        }
        if let Some(ppn) = self.find_recent(lpn) {
            return Some(Predicted {
                ppn,
                is_accurate: true,
            });
        }
        let (group, offset) = split(lpn);
        let found = self.groups[index(group)].find(offset);
        Some(found.expect("a mapped page is recent or learned"))
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }
}

fn split(lpn: Lpn) -> (u32, u8) {
    (lpn.raw() / GROUP, low_u8(u64::from(lpn.raw() % GROUP)))
}

impl PageMap for LearnedMap {
    const SORTED: bool = true;
    const PREDICTS: bool = true;

    fn new(logical_pages: u32, params: &Params) -> Result<Self, FtlError> {
        let groups = logical_pages.div_ceil(GROUP);
        Ok(LearnedMap {
            settings: Settings::new(params)?,
            groups: (0..groups).map(|_| Group::default()).collect(),
            mapped: Mapped::new(groups * GROUP),
            recent: Vec::new(),
            recent_group: 0,
            scratch: Scratch::default(),
            gamma: 0,
            paper: 0,
            heap: 0,
        })
    }

    /// Exact unless [`PageMap::predict`] has a bound for the page.
    fn get(&self, lpn: Lpn) -> Option<Ppn> {
        self.find(lpn).map(|found| Ppn::new(found.ppn))
    }

    fn predict(&self, lpn: Lpn) -> Option<(Ppn, u32)> {
        let found = self.find(lpn)?;
        let bound = if found.is_accurate { 0 } else { self.gamma };
        Some((Ppn::new(found.ppn), bound))
    }

    fn begin_service(&mut self) {
        self.learn();
        self.gamma = self.settings.gamma;
    }

    fn replace(&mut self, lpn: Lpn, from: Ppn, to: Ppn) -> bool {
        let is_near = |(at, bound): (Ppn, u32)| at.raw().abs_diff(from.raw()) <= bound;
        let current = self.predict(lpn).is_some_and(is_near);
        if current {
            self.set(lpn, Some(to));
        }
        current
    }

    fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        let (group, offset) = split(lpn);
        let is_next = group == self.recent_group
            && self.recent.last().is_none_or(|last| last.offset < offset);
        if let Some(ppn) = ppn {
            if !is_next {
                self.learn();
                self.recent_group = group;
            }
            self.recent.push(Point {
                offset,
                ppn: ppn.raw(),
            });
        }
        self.mapped.set(lpn.raw(), ppn.is_some());
    }

    /// The paper counts segments and lists, 8 bytes for a page that is not learned yet.
    fn bytes(&self) -> (u64, u64) {
        let groups = vec_bytes::<Group>(self.groups.capacity());
        let recent = vec_bytes::<Point>(self.recent.capacity());
        let real = groups + self.heap + recent + self.mapped.bytes() + self.scratch.bytes();
        (self.paper + 8 * to_u64(self.recent.len()), real)
    }

    fn bytes_most(&self) -> u64 {
        let groups = to_u64(self.groups.len());
        groups * (to_u64(size_of::<Group>()) + Group::heap_bytes_most())
            + vec_most::<Point>(u64::from(GROUP))
            + self.mapped.bytes()
            + Scratch::bytes_most()
    }
}
