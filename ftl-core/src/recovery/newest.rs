//! Mount by a scan of all records, which finds the newest readable version of every logical page.
//! It serves schemes without a map on flash, and schemes with the map in many pieces alongside the
//! data. Reading those pieces would cost no less.
//!
//! The scan trusts only records: the newest version wins, of equal versions the latest copy, and a
//! trim discards older versions. Pages that the cut may have left unstable are rewritten
//! ([`ScanResult::rewrite`]). If power fails during this mount, the next mount finds the same
//! versions.

use super::evidence::{Evidence, Version};
use super::resolve::{MapCandidate, read_trims, resolve};
use super::rewrite::{Rewrite, Rewriter, Rewrites};
use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::int::{index, to_u64};
use crate::scan::{Head, scan_block};
use crate::space::{Space, StreamId};
use crate::trims::{TrimPage, Trims};
use nand_model::{Pbn, Ppn};
use std::collections::HashSet;

/// Result of the scan.
pub(crate) struct ScanResult {
    /// Physical page by logical page; [`UNMAPPED`] where there is none.
    map: Vec<u32>,
    /// Program of the newest version, by logical page.
    programmed: Vec<u64>,
    /// The next version number to assign.
    pub(crate) next_ver: u64,
    /// Number of pages that were unreadable or dropped.
    pub(crate) discarded: u64,
    rewrites: Rewrites,
}

/// Reads all records, sets the state of every block, and marks the selected pages valid. `clean` is
/// set after a clean shutdown: no page can be unstable, and the set contains the blocks whose erase
/// is known to have ended.
pub(crate) fn scan_newest(
    space: &mut Space,
    heads: &[Head],
    trims: &mut Trims,
    checkpoints: &Checkpoints,
    logical_pages: u32,
    clean: Option<&HashSet<u32>>,
    scanned: &mut u64,
) -> Result<ScanResult, FtlError> {
    assert_eq!(
        heads.len(),
        space.geometry().block_slots(),
        "number of block heads is not the number of blocks"
    );
    let mut scan = Scan::default();
    for (block, head) in (0..).map(Pbn::new).zip(heads) {
        match *head {
            Head::Factory => {}
            Head::Nothing => {
                space.add_free(block, clean.is_some_and(|free| free.contains(&block.raw())))
            }
            Head::Found {
                role, epoch, pseq, ..
            } => {
                space.observe_epoch(epoch);
                space.flash.observe_pseq(pseq);
                space.adopt_full(block, role, epoch);
                if role != Role::Checkpoint {
                    scan.read_block(space, block, logical_pages, scanned)?;
                }
            }
        }
    }
    if clean.is_some() {
        scan.evidence.suspects.assume_stable();
    }
    scan.evidence.sort();
    let mut newest = ScanResult {
        map: vec![UNMAPPED; index(logical_pages)],
        programmed: vec![0; index(logical_pages)],
        next_ver: scan.newest_ver + 1,
        discarded: 0,
        rewrites: Rewrites::default(),
    };
    let trimmed_at = newest.adopt_trims(space, &mut scan, trims)?;
    let evidence = &scan.evidence;
    for group in evidence
        .all()
        .chunk_by(|a, b| a.oob.tag.lpn == b.oob.tag.lpn)
    {
        let lpn = Lpn::new(group[0].oob.tag.lpn);
        assert!(
            lpn.raw() < logical_pages,
            "scanned versions are of logical page {lpn}, which does not exist"
        );
        let candidate = MapCandidate {
            trimmed_at: trimmed_at[lpn.index()],
            ..MapCandidate::default()
        };
        let (rewrites, discarded) = (&mut newest.rewrites, &mut newest.discarded);
        if let Some(ppn) = resolve(space, evidence, &candidate, group, rewrites, discarded)? {
            let chosen = group.iter().rfind(|version| version.ppn == ppn);
            newest.put(lpn, ppn, chosen.map_or(0, |version| version.oob.pseq));
            space.table.set_valid(ppn);
            trims.map(lpn);
        }
    }
    let mapped = newest.map.iter().filter(|raw| **raw != UNMAPPED).count();
    assert_eq!(
        to_u64(mapped),
        trims.mapped_pages(),
        "pages with a version are not the mapped ones"
    );
    newest.classify_blocks(space, checkpoints, true);
    Ok(newest)
}

#[derive(Default)]
struct Scan {
    evidence: Evidence,
    trims: Vec<Version>,
    newest_ver: u64,
}

impl Scan {
    fn read_block(
        &mut self,
        space: &mut Space,
        block: Pbn,
        logical_pages: u32,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let ends = scan_block(&mut space.flash, block, scanned, |ppn, oob| {
            let version = Version { oob, ppn };
            match oob.tag.role {
                role if role.is_host_data() => {
                    self.newest_ver = self.newest_ver.max(oob.tag.ver);
                    if oob.tag.lpn < logical_pages {
                        self.evidence.add(version);
                    }
                }
                Role::Trim => self.trims.push(version),
                _ => {}
            }
        })?;
        self.evidence.suspects.note(&space.flash, block, ends);
        Ok(())
    }
}

impl ScanResult {
    /// Reads the trim pages. Returns, by logical page, the oldest version that no trim has
    /// discarded.
    fn adopt_trims(
        &mut self,
        space: &mut Space,
        scan: &mut Scan,
        trims: &mut Trims,
    ) -> Result<Vec<u64>, FtlError> {
        let geometry = space.geometry();
        let mut trimmed_at = vec![0; self.map.len()];
        let decode = |at: &Version, data: &[u8]| {
            TrimPage::decode(data)
                .filter(|content| trims.is_sane(content) && content.ver() == at.oob.tag.ver)
        };
        let records = std::mem::take(&mut scan.trims);
        let suspects = &scan.evidence.suspects;
        let found = read_trims(space, records, suspects, &mut self.discarded, decode)?;
        for trim in found {
            let ver = trim.content.ver();
            self.next_ver = self.next_ver.max(ver + 1);
            for lpn in trim.content.pages() {
                let at = &mut trimmed_at[index(lpn)];
                *at = ver.max(*at);
            }
            space.table.set_valid(trim.at.ppn);
            trims.adopt(trim.at.ppn, &trim.content);
            if let Some(data) = trim.unstable {
                // If the trim is lost, the versions that it discarded become current again.
                let covered: HashSet<u32> = trim.content.pages().collect();
                let obsolete = scan
                    .evidence
                    .all()
                    .iter()
                    .filter(|v| v.oob.tag.ver < ver && covered.contains(&v.oob.tag.lpn))
                    .map(|v| v.ppn);
                self.rewrites
                    .pin(&geometry, obsolete.chain(trim.copies.iter().copied()));
                self.rewrites.add(&trim.at, data);
            }
        }
        Ok(trimmed_at)
    }

    /// Returns the page with the newest version, if there is one.
    pub(crate) fn ppn_of(&self, lpn: Lpn) -> Option<Ppn> {
        let raw = self.map[lpn.index()];
        (raw != UNMAPPED).then(|| Ppn::new(raw))
    }

    /// Returns the table words of up to `count` pages from `first` on, as far as pages exist;
    /// [`UNMAPPED`] for unmapped pages.
    pub(crate) fn words(&self, first: Lpn, count: u32) -> &[u32] {
        let all = &self.map[first.index()..];
        &all[..all.len().min(index(count))]
    }

    /// Returns the program of the newest version; 0 if there is none.
    pub(crate) fn programmed(&self, lpn: Lpn) -> u64 {
        self.programmed[lpn.index()]
    }

    fn put(&mut self, lpn: Lpn, ppn: Ppn, pseq: u64) {
        debug_assert_ne!(
            ppn.raw(),
            UNMAPPED,
            "newest page of logical page {lpn} is UNMAPPED"
        );
        self.map[lpn.index()] = ppn.raw();
        self.programmed[lpn.index()] = pseq;
    }

    fn classify_blocks(&self, space: &mut Space, checkpoints: &Checkpoints, pinned_wait: bool) {
        let empty = self
            .rewrites
            .classify_blocks(space, checkpoints, pinned_wait, |_| false);
        empty.into_iter().for_each(|block| space.release(block));
    }

    /// Rewrites the pages that the cut may have left unstable, so that they keep the content that
    /// this mount has read. Then releases the blocks that had to wait for the rewrite.
    pub(crate) fn rewrite(
        &mut self,
        space: &mut Space,
        trims: &mut Trims,
        checkpoints: &Checkpoints,
        stream: StreamId,
    ) -> Result<(), FtlError> {
        let mut rewrites = std::mem::take(&mut self.rewrites);
        let mut tables = Tables {
            space,
            trims,
            stream,
            newest: self,
        };
        let programmed = rewrites.program(&mut tables);
        self.rewrites = rewrites;
        self.discarded += programmed?;
        self.classify_blocks(space, checkpoints, false);
        Ok(())
    }
}

/// Tables that a rewrite updates.
struct Tables<'a> {
    space: &'a mut Space,
    trims: &'a mut Trims,
    stream: StreamId,
    newest: &'a mut ScanResult,
}

impl Rewriter for Tables<'_> {
    fn space(&mut self) -> &mut Space {
        self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        (self.stream, role)
    }

    fn copied(&mut self, rewrite: &Rewrite, to: Ppn, _: u64) {
        let seq = self.space.flash.pseq();
        debug_assert!(
            self.space.table.is_valid(to),
            "the copy {to} of {} is not valid",
            rewrite.from
        );
        self.space.table.set_invalid(rewrite.from);
        if rewrite.tag.role == Role::Trim {
            self.trims.on_relocate(rewrite.from, to);
        } else {
            self.newest.put(Lpn::new(rewrite.tag.lpn), to, seq);
        }
    }
}
