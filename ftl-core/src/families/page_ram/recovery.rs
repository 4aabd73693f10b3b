//! Mount, in steps:
//!
//! 1. Read the head of every block.
//! 2. Load the newest complete checkpoint.
//! 3. Read every record of the blocks opened since (all blocks if there is none, or if it has pages
//!    whose location was a prediction).
//! 4. Adopt the newest readable version of each logical page.
//! 5. Rewrite the pages that the cut may have left unstable.
//! 6. Rebuild the counts.
//!
//! If power fails during a mount, the next mount repeats these steps. A mount only adds copies of
//! pages it keeps, and erases only blocks without valid pages.

use super::checkpoint::LoadedCheckpoint;
use super::map::PageMap;
use super::state::{GC, HOST, PageMapFtl, PageRam};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::Role;
use crate::format::trim::{self, TrimRange};
use crate::recovery::{
    Evidence, FoundTrim, MapCandidate, Rewrite, Rewriter, Rewrites, Version, read_trims, resolve,
};
use crate::scan::{Head, scan_block, scan_heads};
use crate::space::{Space, StreamId};
use crate::trims::InCheckpoint;
use nand_model::{Cause, Pbn, Ppn};
use std::collections::{HashMap, HashSet};

impl<M: PageMap> PageRam<M> {
    /// Sets the state and role of every block; valid pages come later.
    fn adopt_blocks(
        &mut self,
        space: &mut Space,
        heads: &[Head],
        loaded: &LoadedCheckpoint,
        window: &Window,
    ) {
        assert_eq!(
            heads.len(),
            space.geometry().block_slots(),
            "heads of all blocks"
        );
        let clean = loaded.clean && !window.touched;
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            match *head {
                Head::Factory => {}
                Head::Nothing => space.add_free(block, clean && loaded.free.contains(&block.raw())),
                Head::Found { role, epoch, .. } => space.adopt_full(block, role, epoch),
            }
        }
    }

    /// Keeps everything that an unstable trim discarded, and its other copies: the trim may still
    /// be lost.
    fn pin_trimmed(
        &self,
        space: &Space,
        trim: &FoundTrim<Vec<TrimRange>>,
        window: &Window,
        rewrites: &mut Rewrites,
    ) {
        if trim.unstable.is_none() {
            return;
        }
        let covered = |lpn: u32| {
            let ranges = trim.content.iter();
            ranges
                .clone()
                .any(|r| r.lpn <= lpn && lpn - r.lpn < r.count)
        };
        let newer = window.evidence.all().iter();
        let newer = newer.filter(|v| covered(v.oob.tag.lpn)).map(|v| v.ppn);
        let older = (0..self.logical_pages).filter(|lpn| covered(*lpn));
        let older = older.filter_map(|lpn| self.pages.get(Lpn::new(lpn)));
        let geometry = space.geometry();
        let copies = trim.copies.iter().copied();
        rewrites.pin(&geometry, newer.chain(older).chain(copies));
    }

    /// Marks a page valid. It must have no other owner, and its block must contain data.
    fn adopt_valid(&mut self, space: &mut Space, ppn: Ppn) -> Result<(), FtlError> {
        let block = space.geometry().block_of(ppn);
        let table = &space.table;
        if table.is_valid(ppn)
            || table.state(block) != State::Full
            || table.role(block) == Role::Checkpoint
        {
            return Err(FtlError::Corrupt(format!(
                "page {ppn} of the map is already valid, or its block contains no data"
            )));
        }
        space.table.set_valid(ppn);
        Ok(())
    }

    fn apply_trims_to_loaded_map(&mut self, loaded: &LoadedCheckpoint, window: &Window) {
        for range in window.trim_ranges() {
            for lpn in range.lpn
                ..range
                    .lpn
                    .saturating_add(range.count)
                    .min(self.logical_pages)
            {
                if range.ver >= loaded.coverage(lpn as usize).ver {
                    self.pages.set(Lpn::new(lpn), None);
                }
            }
        }
    }

    /// Returns whether this entry points into a block that was reused since the checkpoint, but the
    /// scan has not found its page. `versions` begin with those of the logical page.
    fn is_dangling(
        &self,
        space: &Space,
        lpn: Lpn,
        ppn: Ppn,
        loaded: &LoadedCheckpoint,
        versions: &[Version],
    ) -> bool {
        if loaded.coverage.is_empty() {
            return false;
        }
        let block = space.geometry().block_of(ppn);
        let in_window = space.table.epoch(block) >= loaded.begin_epoch;
        let mut own = versions.iter().take_while(|v| v.oob.tag.lpn == lpn.raw());
        space.table.state(block) != State::Full
            || (in_window && !own.any(|version| version.ppn == ppn))
    }
}

impl<M: PageMap> PageMapFtl<M> {
    /// Mounts the scheme from the flash content.
    pub(super) fn mount_from_checkpoint(&mut self) -> Result<(), FtlError> {
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let loaded = self.load_checkpoint(&heads, &mut scanned)?;
        self.end_step("load checkpoint");
        let window = self.scan_window(&heads, &loaded, &mut scanned)?;
        self.end_step("scan window");
        self.map
            .adopt_blocks(&mut self.space, &heads, &loaded, &window);
        let mut rewrites = self.resolve(&loaded, &window)?;
        self.end_step("resolve versions");
        self.stats.mount.pages_scanned = scanned;
        self.stats.mount.clean = loaded.clean && !window.touched;
        self.space.check_counters(self.next_ver)?;
        self.space.begin_mount();
        self.classify_blocks(&rewrites, true);
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        let rewritten = self.rewrite_suspects(&mut rewrites);
        self.end_step("rewrite suspects");
        let repaired = rewritten.and_then(|()| self.refill_pool());
        self.gc.stay_readable(repaired)?;
        self.space.end_mount()?;
        self.end_step("refill pool");
        self.map.writer.begin_interval(self.space.flash.pseq());
        Ok(())
    }

    /// Refills the pool of free blocks. Every mount after a cut abandons the rest of the open
    /// blocks. If GC ran only at host writes, repeated cuts would use up the free blocks.
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean {
            return Ok(());
        }
        self.gc_until(self.gc.threshold + 1)
    }

    /// Reads every record of the blocks that may contain pages newer than the checkpoint.
    fn scan_window(
        &mut self,
        heads: &[Head],
        loaded: &LoadedCheckpoint,
        scanned: &mut u64,
    ) -> Result<Window, FtlError> {
        let mut window = Window::default();
        let mut trim_pages: Vec<Version> = Vec::new();
        let mut unseen: HashSet<Pbn> = HashSet::new();
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            let Head::Found {
                role,
                epoch,
                pseq,
                intact,
                ..
            } = *head
            else {
                continue;
            };
            self.space.observe_epoch(epoch);
            self.space.flash.observe_pseq(pseq);
            let newer = epoch >= loaded.begin_epoch || loaded.open.contains(&block.raw());
            let is_checkpoint = role == Role::Checkpoint;
            // A page 0 lost in an earlier cut stays lost: such a block is scanned, but may be older
            // than the checkpoint.
            window.touched |= newer && !is_checkpoint;
            let is_base = !newer && intact;
            if is_base {
                unseen.insert(block);
                if loaded.unknown.count() == 0 || is_checkpoint {
                    continue;
                }
            }
            let ends = scan_block(&mut self.space.flash, block, scanned, |ppn, oob| match oob
                .tag
                .role
            {
                Role::Data if !is_checkpoint => window.evidence.add(Version { oob, ppn }),
                // The checkpoint names those that count.
                Role::Trim if !is_checkpoint && !is_base => trim_pages.push(Version { oob, ppn }),
                _ => {}
            })?;
            if !is_base {
                let suspects = &mut window.evidence.suspects;
                suspects.note(&self.space.flash, block, ends);
            }
        }
        if loaded.clean && !window.touched {
            window.evidence.suspects.assume_stable();
        }
        window.evidence.sort();
        let older = loaded.trims.iter().map(|(ppn, _)| *ppn);
        for ppn in older {
            let geometry = self.space.geometry();
            if !geometry.contains(ppn) || !unseen.contains(&geometry.block_of(ppn)) {
                continue;
            }
            // If a record was relocated or erased since, this page has another record, and the scan
            // above found its copy.
            if let Some(oob) = self
                .space
                .flash
                .read_oob(ppn, Cause::Recovery)?
                .filter(|o| o.tag.role == Role::Trim)
            {
                trim_pages.push(Version { oob, ppn });
            }
        }
        let suspects = &window.evidence.suspects;
        let discarded = &mut self.stats.mount.pages_discarded;
        let decode = |_: &Version, data: &[u8]| trim::decode(data);
        window.trims = read_trims(&mut self.space, trim_pages, suspects, discarded, decode)?;
        for trim in &window.trims {
            self.next_ver = self.next_ver.max(trim.at.oob.tag.ver + 1);
        }
        Ok(window)
    }

    /// Adopts the newest readable version of each logical page. Returns the pages to rewrite.
    fn resolve(
        &mut self,
        loaded: &LoadedCheckpoint,
        window: &Window,
    ) -> Result<Rewrites, FtlError> {
        let mut rewrites = Rewrites::default();
        for trim in &window.trims {
            self.map
                .pin_trimmed(&self.space, trim, window, &mut rewrites);
        }
        self.map.apply_trims_to_loaded_map(loaded, window);
        let groups = window.evidence.all();
        for group in groups.chunk_by(|a, b| a.oob.tag.lpn == b.oob.tag.lpn) {
            let lpn = group[0].oob.tag.lpn;
            if lpn >= self.logical_pages {
                break;
            }
            self.next_ver = self.next_ver.max(group[group.len() - 1].oob.tag.ver + 1);
            let is_unknown = loaded.unknown.has(lpn);
            let candidate = MapCandidate {
                upto: match is_unknown {
                    true => 0, // The newest of all.
                    false => loaded.coverage(lpn as usize).upto,
                },
                named: self.map.pages.get(Lpn::new(lpn)),
                record: None,
                trimmed_at: window.trimmed_at(lpn).unwrap_or(0),
            };
            let (space, discarded) = (&mut self.space, &mut self.stats.mount.pages_discarded);
            let evidence = &window.evidence;
            if let Some(ppn) =
                resolve(space, evidence, &candidate, group, &mut rewrites, discarded)?
            {
                self.map.pages.set(Lpn::new(lpn), Some(ppn));
            }
        }
        self.adopt_mapped(loaded, window)?;
        self.adopt_trims(loaded, window, &mut rewrites)?;
        Ok(rewrites)
    }

    /// Marks the pages of the map valid. Drops entries of the checkpoint that point into blocks
    /// reused since: their page was rewritten, and that version is torn or was never acknowledged
    /// as safe. No such entry should exist; with one, a read would return another page's data.
    fn adopt_mapped(&mut self, loaded: &LoadedCheckpoint, window: &Window) -> Result<(), FtlError> {
        assert_eq!(
            (self.map.mapped, self.space.table.valid_pages()),
            (0, 0),
            "pages were counted before the map is complete"
        );
        // In ascending order of logical pages, like the loop.
        let mut versions = window.evidence.all();
        for lpn in (0..self.logical_pages).map(Lpn::new) {
            let Some(ppn) = self.map.pages.get(lpn) else {
                continue;
            };
            let older = versions.iter().take_while(|v| v.oob.tag.lpn < lpn.raw());
            versions = &versions[older.count()..];
            if self
                .map
                .is_dangling(&self.space, lpn, ppn, loaded, versions)
            {
                self.map.pages.set(lpn, None);
                self.stats.mount.pages_discarded += 1;
                self.space.flash.findings.dropped(ppn);
            } else {
                self.map.mapped += 1;
                self.map.adopt_valid(&mut self.space, ppn)?;
            }
        }
        Ok(())
    }

    fn adopt_trims(
        &mut self,
        loaded: &LoadedCheckpoint,
        window: &Window,
        rewrites: &mut Rewrites,
    ) -> Result<(), FtlError> {
        let known: HashMap<u64, InCheckpoint> = loaded
            .trims
            .iter()
            .map(|(_, record)| (record.ver, *record))
            .collect();
        for FoundTrim { at, unstable, .. } in &window.trims {
            let unknown = InCheckpoint {
                ver: at.oob.tag.ver,
                contained_in: self.checkpoints.next_id(),
            };
            let record = known.get(&at.oob.tag.ver).copied().unwrap_or(unknown);
            if self.checkpoints.both_since(record.contained_in) {
                continue;
            }
            self.map.trims.add(at.ppn, record);
            self.map.adopt_valid(&mut self.space, at.ppn)?;
            if let Some(data) = unstable {
                rewrites.add(at, data.clone());
            }
        }
        Ok(())
    }

    fn classify_blocks(&mut self, rewrites: &Rewrites, pinned_wait: bool) {
        let empty =
            rewrites.classify_blocks(&mut self.space, &self.checkpoints, pinned_wait, |_| false);
        empty
            .into_iter()
            .for_each(|block| self.space.release(block));
    }

    /// Rewrites the pages that the cut may have left unstable, so that they keep the content that
    /// this mount has read. Then releases the blocks that had to wait for the rewrite.
    fn rewrite_suspects(&mut self, rewrites: &mut Rewrites) -> Result<(), FtlError> {
        self.stats.mount.pages_discarded += rewrites.program(self)?;
        self.classify_blocks(rewrites, false);
        Ok(())
    }
}

impl<M: PageMap> Rewriter for PageMapFtl<M> {
    fn space(&mut self) -> &mut Space {
        &mut self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        // A mount opens no block in SLC mode.
        let is_slc = self.space.is_slc_stream(HOST);
        (if is_slc { GC } else { HOST }, role)
    }

    fn copied(&mut self, rewrite: &Rewrite, to: Ppn, _: u64) {
        if rewrite.tag.role == Role::Trim {
            self.map.trims.on_relocate(rewrite.from, to);
            self.space.table.set_invalid(rewrite.from);
        } else {
            let lpn = Lpn::new(rewrite.tag.lpn);
            let old = self.map.pages.get(lpn);
            self.map.set_map(&mut self.space, lpn, old, Some(to));
        }
    }
}

/// Content of the blocks that are newer than the checkpoint.
#[derive(Default)]
struct Window {
    evidence: Evidence,
    trims: Vec<FoundTrim<Vec<TrimRange>>>,
    /// Whether any block except checkpoints was used after the checkpoint began.
    touched: bool,
}

impl Window {
    fn trim_ranges(&self) -> impl Iterator<Item = TrimRange> {
        self.trims
            .iter()
            .flat_map(|trim| trim.content.iter().copied())
    }

    /// Returns the newest version from which on the page is trimmed.
    fn trimmed_at(&self, lpn: u32) -> Option<u64> {
        let covers = |range: &TrimRange| range.lpn <= lpn && lpn - range.lpn < range.count;
        self.trim_ranges()
            .filter(covers)
            .map(|range| range.ver)
            .max()
    }
}
