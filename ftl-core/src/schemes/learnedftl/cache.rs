//! The cache: the nodes of TPFTL, and the models where these miss. Both are told of every page that
//! moves.

use super::models::Models;
use crate::families::paged::Policy;
use crate::families::paged::map::entry_at;
use crate::families::paged::pending::Pending;
use crate::mapping::ram_entry;
use crate::schemes::tpftl::nodes::Nodes;
use crate::stats::{Evictions, RamEntry, RamPart};
use nand_model::Ppn;

/// Pages in order that are learned when their row ends.
const SHORTEST_ROW: u32 = 8;

/// Pages of one mapping page that were programmed in the order of their addresses.
#[derive(Clone, Copy, Debug)]
struct Row {
    lpn: u32,
    to: Ppn,
    pages: u32,
}

impl Row {
    fn contains(&self, lpn: u32) -> bool {
        (self.lpn..self.lpn + self.pages).contains(&lpn)
    }

    fn is_continued_by(&self, lpn: u32, to: Ppn, per_page: u32) -> bool {
        let end = self.lpn + self.pages;
        lpn == end && to.raw() == self.to.raw() + self.pages && !end.is_multiple_of(per_page)
    }
}

/// Nodes and models (see the module).
pub(super) struct Learned {
    nodes: Nodes,
    models: Models,
    /// The last programmed pages, while they are in order.
    row: Option<Row>,
    per_page: u32,
    logical_pages: u32,
    /// Lookups that the models answered or could not answer.
    asked: u64,
}

impl Learned {
    /// Creates a cache; mapping pages have `per_page` entries.
    pub(super) fn new(nodes: Nodes, models: Models, per_page: u32, logical_pages: u32) -> Self {
        Learned {
            nodes,
            models,
            row: None,
            per_page,
            logical_pages,
            asked: 0,
        }
    }

    fn pages_of(&self, vtpn: u32) -> std::ops::Range<u32> {
        let first = vtpn * self.per_page;
        first..(first + self.per_page).min(self.logical_pages)
    }

    /// Records that a page was programmed here.
    fn placed(&mut self, lpn: u32, to: Ppn) {
        let row = self.row.as_mut();
        if let Some(row) = row.filter(|row| row.is_continued_by(lpn, to, self.per_page)) {
            row.pages += 1;
        } else {
            self.end_row();
            self.row = Some(Row { lpn, to, pages: 1 });
        }
        self.models.clear(lpn);
    }

    /// Records that a page has no location any more.
    fn unmapped(&mut self, lpn: u32) {
        if self.row.is_some_and(|row| row.contains(lpn)) {
            self.end_row();
        }
        self.models.clear(lpn);
    }

    /// Learns the pages in order (the paper's sequential initialisation).
    fn end_row(&mut self) {
        let row = self.row.take();
        if let Some(row) = row.filter(|row| row.pages >= SHORTEST_ROW) {
            self.models.add_run(row.lpn, row.to, row.pages);
        }
    }

    /// Makes the model of a mapping page from its content and newer, pending entries.
    fn train(&mut self, vtpn: u32, page: &[u8], pending: &Pending) {
        let pages = self.pages_of(vtpn);
        if self.row.is_some_and(|row| pages.contains(&row.lpn)) {
            self.row = None;
        }
        let places = (0..).zip(pages).map(|(index, lpn)| match pending.get(lpn) {
            Some(entry) => entry.ppn(),
            None => entry_at(page, index),
        });
        self.models.train(vtpn, places);
    }
}

impl Policy for Learned {
    const LOOKS_UP_WRITES: bool = true;
    const SORTS_COPIES: bool = true;

    fn get(&mut self, lpn: u32, pending: bool) -> Option<Option<Ppn>> {
        let cached = self.nodes.get(lpn, pending);
        if cached.is_some() {
            return cached;
        }
        self.asked += 1;
        self.models.predict(lpn).map(Some)
    }

    fn peek(&self, lpn: u32) -> Option<Option<Ppn>> {
        let cached = self.nodes.peek(lpn);
        let predicted = self.models.predict(lpn);
        debug_assert!(
            cached.is_none() || predicted.is_none() || cached == Some(predicted),
            "page {lpn} is cached at {cached:?}, its exact prediction is {predicted:?}"
        );
        cached.or(predicted.map(Some))
    }

    fn load(&mut self, vtpn: u32, page: &[u8], lpn: u32, more: u32, pending: &Pending) {
        self.nodes.load(vtpn, page, lpn, more, pending);
        if !self.models.has_seen(vtpn) {
            self.train(vtpn, page, pending);
        }
    }

    fn on_relocate(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        match to {
            Some(to) => self.placed(lpn, to),
            None => self.unmapped(lpn),
        }
        self.nodes.on_relocate(lpn, to)
    }

    fn on_write(&mut self, lpn: u32, to: Ppn, is_new: bool, pending: &Pending) {
        self.placed(lpn, to);
        self.nodes.on_write(lpn, to, is_new, pending);
    }

    fn evict(&mut self, pending: &Pending) -> Option<u32> {
        self.nodes.evict(pending)
    }

    fn on_writeback(&mut self, vtpn: u32, page: &[u8], pending: &Pending) {
        self.train(vtpn, page, pending);
    }

    fn dropped(&mut self, vtpn: u32) {
        let pages = self.pages_of(vtpn);
        if self.row.is_some_and(|row| pages.contains(&row.lpn)) {
            self.row = None;
        }
        self.models.clear_all(vtpn);
        self.nodes.dropped(vtpn);
    }

    fn copy_page(&mut self, _: u32, _: bool, _: &mut [u8]) -> bool {
        false
    }

    /// Returns the steps in the nodes, and one step in the models per miss of the nodes.
    fn lookup_steps(&self) -> u64 {
        self.nodes.lookup_steps() + self.asked
    }

    fn evictions(&self) -> Evictions {
        self.nodes.evictions()
    }

    fn ram(&self) -> Vec<RamEntry> {
        let (paper, now, most) = self.models.bytes();
        let models = ram_entry(RamPart::Map, self.models.exact_pages(), paper, now, most);
        self.nodes.ram().into_iter().chain([models]).collect()
    }
}
