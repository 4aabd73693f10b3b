//! The newest readable version of every logical page, by the records of all pages: the mount of
//! schemes whose map is not on flash as such, or is there beside the data in so many pieces that
//! reading it costs no less.
//!
//! Nothing is believed but records: the newest version wins, of equal ones the latest copy, and
//! trims take what is older than they are. Pages that the cut may have hit are read in full before
//! they are chosen, and those that may not stay as they are get programmed again
//! ([`Newest::rescue`]); until that is safe, no block is erased that holds what they replaced. If
//! power fails in here, the next mount finds the same.

use super::{Head, Suspects, scan_block};
use crate::block_table::State;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::format::{Flags, Oob, PageTag, Role, UNMAPPED};
use crate::space::{Space, StreamId};
use crate::trims::{TrimPage, Trims};
use nand_model::{Cause, Pbn, Ppn, Store};
use std::collections::HashSet;

struct Version {
    lpn: u32,
    ver: u64,
    pseq: u64,
    ppn: Ppn,
}

/// A page to program again.
struct Rescue {
    tag: PageTag,
    from: Ppn,
    data: Vec<u8>,
}

/// What a mount found.
pub(crate) struct Newest {
    /// Physical page by logical page, [`UNMAPPED`] where there is none.
    pub(crate) map: Vec<u32>,
    /// By logical page: the program that put it there.
    pub(crate) programmed: Vec<u64>,
    /// The next version to give.
    pub(crate) next_ver: u64,
    /// Pages that could not be read or were dropped.
    pub(crate) discarded: u64,
    rescues: Vec<Rescue>,
    /// Blocks that hold what a page to be rescued replaced.
    pinned: HashSet<Pbn>,
    /// Of these, the ones without live pages.
    withheld: Vec<Pbn>,
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
                    scan.read_block(space, block, scanned)?;
                }
            }
        }
    }
    if clean.is_some() {
        scan.suspects.assume_stable();
    }
    let mut newest = Newest {
        map: vec![UNMAPPED; logical_pages as usize],
        programmed: vec![0; logical_pages as usize],
        next_ver: scan
            .versions
            .iter()
            .map(|version| version.ver + 1)
            .max()
            .unwrap_or(1),
        discarded: 0,
        rescues: Vec::new(),
        pinned: HashSet::new(),
        withheld: Vec::new(),
    };
    scan.versions.retain(|version| version.lpn < logical_pages);
    scan.versions
        .sort_unstable_by_key(|version| (version.lpn, version.ver, version.pseq));
    let trimmed_at = newest.read_trims(space, &mut scan, trims)?;
    for group in scan.versions.chunk_by(|a, b| a.lpn == b.lpn) {
        newest.choose(
            space,
            group,
            &scan.suspects,
            trimmed_at[group[0].lpn as usize],
        )?;
    }
    for (lpn, ppn) in (0..).zip(&newest.map).filter(|(_, ppn)| **ppn != UNMAPPED) {
        space.table.set_live(Ppn::new(*ppn));
        trims.map(lpn);
    }
    newest.settle_blocks(space, checkpoints);
    Ok(newest)
}

#[derive(Default)]
struct Scan {
    versions: Vec<Version>,
    trims: Vec<(Ppn, Oob)>,
    suspects: Suspects,
}

impl Scan {
    fn read_block<S: Store>(
        &mut self,
        space: &mut Space<S>,
        block: Pbn,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let ends = scan_block(&mut space.flash, block, scanned, |ppn, oob| {
            match oob.tag.role {
                role if role.is_host_data() => {
                    self.versions.push(Version {
                        lpn: oob.tag.lpn,
                        ver: oob.tag.ver,
                        pseq: oob.pseq,
                        ppn,
                    });
                }
                Role::Trim => self.trims.push((ppn, oob)),
                _ => {}
            }
        })?;
        self.suspects.note(&space.flash, block, ends);
        Ok(())
    }
}

impl Newest {
    /// Reads the TRIM pages, the latest of equal ones. Returns the version, by logical page, that
    /// it holds nothing older than.
    fn read_trims<S: Store>(
        &mut self,
        space: &mut Space<S>,
        scan: &mut Scan,
        trims: &mut Trims,
    ) -> Result<Vec<u64>, FtlError> {
        let mut trimmed_at = vec![0; self.map.len()];
        let mut data = vec![0; space.geometry().page_bytes as usize];
        scan.trims
            .sort_unstable_by_key(|(_, oob)| std::cmp::Reverse((oob.tag.ver, oob.pseq)));
        let mut last = None;
        let mut shaky = Vec::new();
        for (ppn, oob) in &scan.trims {
            if last == Some(oob.tag.ver) {
                // Another copy of one that was read.
                if shaky.last().is_some_and(|(ver, _)| *ver == oob.tag.ver) {
                    self.pinned.insert(space.geometry().block_of(*ppn));
                }
                continue;
            }
            let read = space.flash.read(*ppn, &mut data, Cause::Recovery)?;
            let content = read
                .and_then(|_| TrimPage::decode(&data))
                .filter(|content| trims.is_sane(content));
            let Some(content) = content.filter(|content| content.ver() == oob.tag.ver) else {
                self.discarded += 1;
                continue;
            };
            last = Some(oob.tag.ver);
            self.next_ver = self.next_ver.max(oob.tag.ver + 1);
            for lpn in content.pages() {
                let at = &mut trimmed_at[lpn as usize];
                *at = oob.tag.ver.max(*at);
            }
            space.table.set_live(*ppn);
            trims.adopt(*ppn, &content);
            if scan.suspects.is_shaky(*ppn) {
                self.rescues.push(Rescue {
                    tag: oob.tag,
                    from: *ppn,
                    data: data.clone(),
                });
                shaky.push((oob.tag.ver, content));
            }
        }
        for (ver, content) in shaky {
            // What it made obsolete comes back if it is lost.
            let covered: HashSet<u32> = content.pages().collect();
            let obsolete = scan
                .versions
                .iter()
                .filter(|v| v.ver < ver && covered.contains(&v.lpn));
            self.pinned
                .extend(obsolete.map(|v| space.geometry().block_of(v.ppn)));
        }
        Ok(trimmed_at)
    }

    /// Chooses the newest of a logical page's versions that can be had.
    fn choose<S: Store>(
        &mut self,
        space: &mut Space<S>,
        group: &[Version],
        suspects: &Suspects,
        trimmed_at: u64,
    ) -> Result<(), FtlError> {
        for version in group.iter().rev() {
            if version.ver < trimmed_at {
                return Ok(());
            }
            if !suspects.contains(version.ppn) {
                self.place(version.lpn, version.ppn, version.pseq);
                return Ok(());
            }
            let mut data = vec![0; space.geometry().page_bytes as usize];
            let Some(oob) = space.flash.read(version.ppn, &mut data, Cause::Recovery)? else {
                self.discarded += 1;
                continue;
            };
            self.place(version.lpn, version.ppn, version.pseq);
            if suspects.is_shaky(version.ppn) {
                self.rescues.push(Rescue {
                    tag: oob.tag,
                    from: version.ppn,
                    data,
                });
                let others = group.iter().filter(|other| other.ppn != version.ppn);
                self.pinned
                    .extend(others.map(|other| space.geometry().block_of(other.ppn)));
            }
            return Ok(());
        }
        Ok(())
    }

    fn place(&mut self, lpn: u32, ppn: Ppn, pseq: u64) {
        self.map[lpn as usize] = ppn.raw();
        self.programmed[lpn as usize] = pseq;
    }

    /// Full blocks become collectable, or are released if nothing in them lives and nothing may
    /// come back to life.
    fn settle_blocks<S: Store>(&mut self, space: &mut Space<S>, checkpoints: &Checkpoints) {
        for block in space.geometry().all_blocks() {
            if space.table.state(block) != State::Full {
                continue;
            }
            if checkpoints.owns(block) {
                continue;
            }
            if space.table.valid(block) > 0 {
                space.table.set_collectable(block);
            } else if self.pinned.contains(&block) {
                self.withheld.push(block);
            } else {
                space.release(block);
            }
        }
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen; then gives up what had to wait for that.
    pub(crate) fn rescue<S: Store>(
        &mut self,
        space: &mut Space<S>,
        trims: &mut Trims,
        stream: StreamId,
    ) -> Result<(), FtlError> {
        let rescues = std::mem::take(&mut self.rescues);
        self.discarded += rescues.len() as u64;
        for Rescue { tag, from, data } in rescues {
            if space.room(stream) == 0 {
                space.reclaim(Cause::Recovery)?;
            }
            let tag = PageTag {
                flags: tag.flags.with(Flags::COPY),
                ..tag
            };
            let (to, _) = space.append(stream, &[tag], &data, Cause::Recovery)?;
            space.table.clear_live(from);
            if tag.role == Role::Trim {
                trims.moved(from, to);
            } else {
                self.place(tag.lpn, to, space.flash.pseq());
            }
        }
        space.make_safe()?;
        self.withheld
            .drain(..)
            .for_each(|block| space.release(block));
        Ok(())
    }
}
