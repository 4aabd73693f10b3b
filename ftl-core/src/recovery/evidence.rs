//! Evidence from the records of scanned blocks: versions of logical pages, and pages that the cut
//! may have hit.

use crate::flash::Flash;
use crate::format::Oob;
use crate::int::index;
use crate::scan::{BlockEnd, suspects};
use nand_model::{PageOrder, Pbn, Ppn};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A page whose record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) oob: Oob,
    pub(crate) ppn: Ppn,
}

/// Versions of host data in the scanned blocks.
#[derive(Default)]
pub(crate) struct Evidence {
    /// By logical page, then version, then program, once sorted.
    data: Vec<Version>,
    pub(crate) suspects: Suspects,
}

impl Evidence {
    pub(crate) fn add(&mut self, version: Version) {
        self.data.push(version);
    }

    /// Sorts the versions. Call it after the last [`Evidence::add`].
    pub(crate) fn sort(&mut self) {
        self.data
            .sort_unstable_by_key(|v| (v.oob.tag.lpn, v.oob.tag.ver, v.oob.pseq));
    }

    pub(crate) fn all(&self) -> &[Version] {
        &self.data
    }

    /// Returns the versions of a range of logical pages, in ascending order for each page.
    pub(crate) fn versions(&self, lpns: Range<u32>) -> &[Version] {
        debug_assert!(
            lpns.start <= lpns.end,
            "versions of logical pages {} to {}",
            lpns.start,
            lpns.end
        );
        let from = self.data.partition_point(|v| v.oob.tag.lpn < lpns.start);
        let to = self.data.partition_point(|v| v.oob.tag.lpn < lpns.end);
        &self.data[from..to]
    }

    /// Returns candidates for the current version, newest first, down to the first page that no cut
    /// can have hit. `versions` are in ascending order. A suspect among them may be readable, and
    /// may have been flushed.
    pub(crate) fn fallbacks<'a>(
        &'a self,
        versions: &'a [Version],
    ) -> impl Iterator<Item = Ppn> + 'a {
        let falling = versions.iter().rev().map(|v| v.ppn);
        let stable = versions
            .iter()
            .rposition(|v| !self.suspects.contains(v.ppn))
            .unwrap_or(0);
        falling.take(versions.len() - stable)
    }
}

/// Pages that an interrupted program may have damaged although they are readable: the last
/// programmed page of every block and its LSB partner. Where pages may be programmed in any order,
/// also the page with the newest record, even if an interrupted erase left no other. Every earlier
/// cut left its suspects at such positions too, because mount never continues a block.
#[derive(Default)]
pub(crate) struct Suspects {
    pages: FxHashMap<u32, Suspect>,
    /// By [`place`](nand_model::Geometry::place_of): the newest program that no mount made.
    newest: Vec<u64>,
    /// Whether no page can be unstable. Pages torn by an earlier cut remain suspects.
    stable: bool,
}

#[derive(Clone, Copy)]
struct Suspect {
    place: u32,
    /// The last program of the block, if its record is readable.
    last: Option<u64>,
}

impl Suspects {
    /// Adds the suspects of a scanned block.
    pub(crate) fn note(&mut self, flash: &Flash, block: Pbn, ends: BlockEnd) {
        let geometry = flash.geometry();
        let place = geometry.place_of(block);
        self.newest.resize(index(geometry.places()), 0);
        let newest = &mut self.newest[index(place)];
        *newest = ends.newest.max(*newest);
        let last = ends.last;
        self.pages
            .extend(suspects(flash, block).map(|ppn| (ppn.raw(), Suspect { place, last })));
        let any_order = flash.chip().profile().order == PageOrder::Any;
        if let Some((pseq, ppn)) = ends.latest.filter(|_| any_order) {
            let last = Some(pseq);
            self.pages.insert(ppn.raw(), Suspect { place, last });
        }
    }

    /// Marks all pages as stable after a clean shutdown: no suspect needs a rewrite.
    pub(crate) fn assume_stable(&mut self) {
        self.stable = true;
    }

    /// Returns whether the page must be read in full before it is trusted.
    pub(crate) fn contains(&self, ppn: Ppn) -> bool {
        self.pages.contains_key(&ppn.raw())
    }

    /// Returns whether a readable page must be rewritten to stay readable. It must if the block's
    /// last program failed, or may have been in flight at the cut, as the last one of its die (of
    /// its plane, if planes operate together). Pages hit by an earlier cut need no rewrite: the
    /// mount after that cut rewrote them. If that mount was cut too, its cut is the latest one.
    pub(crate) fn needs_rewrite(&self, ppn: Ppn) -> bool {
        let in_flight = |page: &Suspect| {
            page.last
                .is_none_or(|last| last >= self.newest[index(page.place)])
        };
        !self.stable && self.pages.get(&ppn.raw()).is_some_and(in_flight)
    }
}
