//! The newest readable version of every logical page, by the records of all pages: the mount of
//! schemes whose map is not on flash as such, or is there beside the data in so many pieces that
//! reading it costs no less.
//!
//! Nothing is believed but records: the newest version rules, of equal ones the latest copy, and
//! trims take what is older than they are. What the cut may have left unstable is programmed again
//! ([`Newest::rescue`]). If power fails in here, the next mount finds the same.

use super::rescue::{Rescue, Rescuer};
use super::{Claim, Evidence, Head, Rescues, Version, read_trims, resolve, scan_block};
use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::convert::index;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::space::{Space, StreamId};
use crate::trims::{TrimPage, Trims};
use nand_model::{Pbn, Ppn, Store};
use std::collections::HashSet;

/// What a mount found.
pub(crate) struct Newest {
    /// Physical page by logical page, [`UNMAPPED`] where there is none.
    map: Vec<u32>,
    /// By logical page: the program that put it there.
    programmed: Vec<u64>,
    /// The next version to give.
    pub(crate) next_ver: u64,
    /// Pages that could not be read or were dropped.
    pub(crate) discarded: u64,
    rescues: Rescues,
}

/// Reads everything and gives every block its state and every chosen page its life. `clean` tells
/// that nothing can be unstable, and which blocks' erases are known to have ended.
pub(crate) fn find_newest<S: Store>(
    space: &mut Space<S>,
    heads: &[Head],
    trims: &mut Trims,
    checkpoints: &Checkpoints,
    logical_pages: u32,
    clean: Option<&HashSet<u32>>,
    scanned: &mut u64,
) -> Result<Newest, FtlError> {
    assert_eq!(
        heads.len(),
        space.geometry().block_slots(),
        "heads of all blocks"
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
                space.saw_epoch(epoch);
                space.flash.saw_pseq(pseq);
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
    let mut newest = Newest {
        map: vec![UNMAPPED; index(logical_pages)],
        programmed: vec![0; index(logical_pages)],
        next_ver: scan.newest_ver + 1,
        discarded: 0,
        rescues: Rescues::default(),
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
            "evidence of no logical page {lpn}"
        );
        let claim = Claim {
            trimmed_at: trimmed_at[lpn.index()],
            ..Claim::default()
        };
        let (rescues, discarded) = (&mut newest.rescues, &mut newest.discarded);
        if let Some(ppn) = resolve(space, evidence, &claim, group, rescues, discarded)? {
            let chosen = group.iter().rfind(|version| version.ppn == ppn);
            newest.put(lpn, ppn, chosen.map_or(0, |version| version.oob.pseq));
            space.table.set_live(ppn);
            trims.map(lpn);
        }
    }
    newest.settle_blocks(space, checkpoints, true);
    Ok(newest)
}

#[derive(Default)]
struct Scan {
    evidence: Evidence,
    trims: Vec<Version>,
    newest_ver: u64,
}

impl Scan {
    fn read_block<S: Store>(
        &mut self,
        space: &mut Space<S>,
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

impl Newest {
    /// Reads the TRIM pages. Returns the version, by logical page, that it holds nothing older
    /// than.
    fn adopt_trims<S: Store>(
        &mut self,
        space: &mut Space<S>,
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
            space.table.set_live(trim.at.ppn);
            trims.adopt(trim.at.ppn, &trim.content);
            if let Some(data) = trim.shaky {
                // What it made obsolete comes back if it is lost.
                let covered: HashSet<u32> = trim.content.pages().collect();
                let obsolete = scan
                    .evidence
                    .all()
                    .iter()
                    .filter(|v| v.oob.tag.ver < ver && covered.contains(&v.oob.tag.lpn))
                    .map(|v| v.ppn);
                self.rescues
                    .pin(&geometry, obsolete.chain(trim.copies.iter().copied()));
                self.rescues.add(&trim.at, data);
            }
        }
        Ok(trimmed_at)
    }

    /// Where the newest content of the page is, if there is any.
    pub(crate) fn place(&self, lpn: Lpn) -> Option<Ppn> {
        let raw = self.map[lpn.index()];
        (raw != UNMAPPED).then(|| Ppn::new(raw))
    }

    /// The table's words for `count` pages upwards, as far as there are any: [`UNMAPPED`] where the
    /// page holds nothing.
    pub(crate) fn words(&self, first: Lpn, count: u32) -> &[u32] {
        let all = &self.map[first.index()..];
        &all[..all.len().min(index(count))]
    }

    /// The program that put it there; 0 if there is none.
    pub(crate) fn programmed(&self, lpn: Lpn) -> u64 {
        self.programmed[lpn.index()]
    }

    fn put(&mut self, lpn: Lpn, ppn: Ppn, pseq: u64) {
        debug_assert_ne!(ppn.raw(), UNMAPPED, "logical page {lpn} at no page");
        self.map[lpn.index()] = ppn.raw();
        self.programmed[lpn.index()] = pseq;
    }

    fn settle_blocks<S: Store>(
        &self,
        space: &mut Space<S>,
        checkpoints: &Checkpoints,
        pinned_wait: bool,
    ) {
        let dead = self
            .rescues
            .settle_blocks(space, checkpoints, pinned_wait, |_| false);
        dead.into_iter().for_each(|block| space.release(block));
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen; then gives up what had to wait for that.
    pub(crate) fn rescue<S: Store>(
        &mut self,
        space: &mut Space<S>,
        trims: &mut Trims,
        checkpoints: &Checkpoints,
        stream: StreamId,
    ) -> Result<(), FtlError> {
        let mut rescues = std::mem::take(&mut self.rescues);
        let mut tables = Tables {
            space,
            trims,
            stream,
            newest: self,
        };
        let programmed = rescues.program(&mut tables);
        self.rescues = rescues;
        self.discarded += programmed?;
        self.settle_blocks(space, checkpoints, false);
        Ok(())
    }
}

/// Where copies are noted.
struct Tables<'a, S> {
    space: &'a mut Space<S>,
    trims: &'a mut Trims,
    stream: StreamId,
    newest: &'a mut Newest,
}

impl<S: Store> Rescuer<S> for Tables<'_, S> {
    fn space(&mut self) -> &mut Space<S> {
        self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        (self.stream, role)
    }

    fn copied(&mut self, rescue: &Rescue, to: Ppn, _: u64) {
        let seq = self.space.flash.pseq();
        debug_assert!(
            self.space.table.is_live(to),
            "the copy {to} of {} is not live",
            rescue.from
        );
        self.space.table.clear_live(rescue.from);
        if rescue.tag.role == Role::Trim {
            self.trims.moved(rescue.from, to);
        } else {
            self.newest.put(Lpn::new(rescue.tag.lpn), to, seq);
        }
    }
}
