//! What a mount finds and repairs, block by block, for its report.
//!
//! Nothing here decides anything: a mount does the same without it. A block that is scanned again
//! counts once.

use crate::int::to_u64;
use crate::stats::{BlockMark, MountReport};
use nand_model::{Geometry, Pbn, Ppn};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most blocks that a report names, of each kind.
const MARKS_MAX: usize = 100;

/// Findings of a mount that has not ended.
#[derive(Default)]
pub(crate) struct Findings {
    /// Of scanned blocks: pages without a readable record, and uncommitted ones. Others are absent.
    records: FxHashMap<Pbn, (u32, u32)>,
    /// Pages with a readable record and unreadable data.
    lost: FxHashSet<Ppn>,
    /// Readable pages that the mount does not use.
    dropped: FxHashSet<Ppn>,
    /// Pages that were rewritten, by their old block.
    rewritten: FxHashMap<Pbn, u64>,
}

impl Findings {
    /// Notes how many programmed pages of a block have no readable record, and how many are
    /// uncommitted.
    pub(crate) fn scanned(&mut self, block: Pbn, lost: u32, uncommitted: u32) {
        match (lost, uncommitted) {
            (0, 0) => self.records.remove(&block),
            found => self.records.insert(block, found),
        };
    }

    /// Notes a page whose data cannot be read.
    pub(crate) fn lost(&mut self, ppn: Ppn) {
        self.lost.insert(ppn);
    }

    /// Notes a readable page whose content makes no sense any more.
    pub(crate) fn dropped(&mut self, ppn: Ppn) {
        self.dropped.insert(ppn);
    }

    /// Notes the rewrite of a page of this block.
    pub(crate) fn rewrote(&mut self, block: Pbn) {
        *self.rewritten.entry(block).or_default() += 1;
    }

    /// Fills these findings in.
    pub(crate) fn report(self, geometry: &Geometry, report: &mut MountReport) {
        let of_records = |(lost, uncommitted): &(u32, u32)| u64::from(lost + uncommitted);
        let records: u64 = self.records.values().map(of_records).sum();
        report.pages_dropped = records + to_u64(self.lost.len()) + to_u64(self.dropped.len());
        report.pages_rewritten = self.rewritten.values().sum();
        report.blocks_rewritten = to_u64(self.rewritten.len());
        let block = |ppn: &Ppn| geometry.block_of(*ppn);
        let scanned = |counts: fn(&(u32, u32)) -> u32| {
            let found = self.records.iter().filter(move |(_, of)| counts(of) > 0);
            found.map(|(block, _)| *block)
        };
        let torn = scanned(|of| of.0).chain(self.lost.iter().map(block));
        let dropped = scanned(|of| of.1).chain(self.dropped.iter().map(block));
        let kinds = [
            (BlockMark::Rewritten, first(self.rewritten.keys().copied())),
            (BlockMark::Dropped, first(dropped)),
            (BlockMark::Torn, first(torn)),
        ];
        let marks = kinds.iter();
        report.marks = marks
            .flat_map(|(mark, blocks)| blocks.iter().map(|block| (*block, *mark)))
            .collect();
    }
}

/// Returns the first of these blocks, each once.
fn first(blocks: impl Iterator<Item = Pbn>) -> Vec<Pbn> {
    let mut all: Vec<Pbn> = blocks.collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(MARKS_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::Profile;

    #[test]
    fn each_page_counts_once_and_each_block_has_a_mark_of_each_kind() {
        let geometry = Profile::default_profile().with_blocks(4000).geometry;
        let page = |block: u32, offset: u32| geometry.page(Pbn::new(block), offset);
        let mut findings = Findings::default();
        findings.scanned(Pbn::new(7), 2, 3);
        findings.scanned(Pbn::new(7), 2, 0);
        findings.scanned(Pbn::new(8), 1, 0);
        findings.scanned(Pbn::new(8), 0, 0);
        findings.scanned(Pbn::new(9), 0, 4);
        findings.lost(page(7, 1));
        findings.lost(page(7, 1));
        findings.dropped(page(5, 0));
        findings.rewrote(Pbn::new(7));
        findings.rewrote(Pbn::new(7));
        findings.rewrote(Pbn::new(3));
        let mut report = MountReport::default();
        findings.report(&geometry, &mut report);
        assert_eq!(report.pages_dropped, 2 + 4 + 1 + 1);
        assert_eq!((report.pages_rewritten, report.blocks_rewritten), (3, 2));
        let expected = [
            (3, BlockMark::Rewritten),
            (7, BlockMark::Rewritten),
            (5, BlockMark::Dropped),
            (9, BlockMark::Dropped),
            (7, BlockMark::Torn),
        ];
        let expected = expected.map(|(block, mark)| (Pbn::new(block), mark));
        assert_eq!(report.marks, expected);
    }

    #[test]
    fn the_marks_of_a_worn_device_are_bounded() {
        let geometry = Profile::default_profile().with_blocks(4000).geometry;
        let mut findings = Findings::default();
        for block in (0..4000).map(Pbn::new) {
            findings.scanned(block, 1, 1);
            findings.rewrote(block);
        }
        let mut report = MountReport::default();
        findings.report(&geometry, &mut report);
        assert_eq!(
            (report.pages_dropped, report.blocks_rewritten),
            (8000, 4000)
        );
        assert_eq!(report.marks.len(), 3 * MARKS_MAX);
    }
}
