//! What the records of scanned blocks say: versions of logical pages, and which pages the cut may
//! have hit.

use super::IN_FLIGHT;
use super::scan::Ends;
use crate::flash::Flash;
use crate::format::Oob;
use nand_model::{PageOrder, Pbn, Ppn, Store};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A page whose record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) oob: Oob,
    pub(crate) ppn: Ppn,
}

/// Host data in the scanned blocks.
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

    /// To be called when everything was added.
    pub(crate) fn sort(&mut self) {
        self.data
            .sort_unstable_by_key(|v| (v.oob.tag.lpn, v.oob.tag.ver, v.oob.pseq));
    }

    pub(crate) fn all(&self) -> &[Version] {
        &self.data
    }

    /// The versions of some logical pages, each page's in rising order.
    pub(crate) fn versions(&self, lpns: Range<u32>) -> &[Version] {
        let from = self.data.partition_point(|v| v.oob.tag.lpn < lpns.start);
        let to = self.data.partition_point(|v| v.oob.tag.lpn < lpns.end);
        &self.data[from..to]
    }

    /// The pages that may rule if the newest one does not, of versions in rising order: down to the
    /// first that no cut can have hit. The suspects among them may be good, and flushed.
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

/// Pages that an interrupted program may have damaged although they read well: the last programmed
/// one of every block and its LSB partner; where pages may go in any order, the one with the newest
/// record, also when an erase that was cut has left no other. Every earlier cut left its mark at
/// such a place too, because mount never continues a block.
#[derive(Default)]
pub(crate) struct Suspects {
    /// The block's end, at each of its suspects.
    pages: FxHashMap<u32, Option<u64>>,
    newest: u64,
    /// Whether no page can be unstable. Pages that an earlier cut tore are still where it struck.
    stable: bool,
}

impl Suspects {
    /// A block was scanned.
    pub(crate) fn note<S: Store>(&mut self, flash: &Flash<S>, block: Pbn, ends: Ends) {
        self.newest = self.newest.max(ends.newest);
        self.pages
            .extend(suspects(flash, block).map(|ppn| (ppn.raw(), ends.last)));
        let any_order = flash.chip().profile().order == PageOrder::Any;
        if let Some((pseq, ppn)) = ends.latest.filter(|_| any_order) {
            self.pages.insert(ppn.raw(), Some(pseq));
        }
    }

    /// The last stop was clean: no suspect has to be programmed again.
    pub(crate) fn assume_stable(&mut self) {
        self.stable = true;
    }

    /// Whether the page has to be read in full before it is trusted.
    pub(crate) fn contains(&self, ppn: Ppn) -> bool {
        self.pages.contains_key(&ppn.raw())
    }

    /// Whether a readable page must be rewritten to stay readable: the block's last program failed,
    /// or ended just before the cut. Pages that an earlier cut hit need no rewrite. The mount after
    /// that cut rewrote them, unless it was cut itself, and then that is the latest cut.
    pub(crate) fn is_shaky(&self, ppn: Ppn) -> bool {
        let recent = |last: u64| last + u64::from(IN_FLIGHT) > self.newest;
        let unstable = self
            .pages
            .get(&ppn.raw())
            .is_some_and(|last| last.is_none_or(recent));
        unstable && !self.stable
    }
}

/// The pages of a block that [`Suspects`] is about.
pub(super) fn suspects<S: Store>(
    flash: &Flash<S>,
    block: Pbn,
) -> impl Iterator<Item = Ppn> + use<S> {
    let geometry = *flash.geometry();
    let last = flash.chip().frontier(block).checked_sub(1);
    let victims: Vec<u32> = last.map_or_else(Vec::new, |last| {
        flash.chip().pairs().victims(last).collect()
    });
    last.into_iter()
        .chain(victims)
        .map(move |offset| geometry.page(block, offset))
}
