//! Mount: read the head of every block; load the newest complete checkpoint; read every record of
//! the blocks opened since (all blocks if there is none); give each logical page its newest
//! readable version; make safe again what the cut may have left unstable; rebuild counts. If power
//! fails during a mount, the next one does the same: a mount only adds copies of pages it keeps,
//! and erases only blocks without live pages.

use super::checkpoint::Base;
use super::trims::Record;
use super::{HOST, PageMap, PageMapFtl};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::Role;
use crate::format::trim::{self, TrimRange};
use crate::gc::Collect;
use crate::recovery::{
    Claim, Evidence, FoundTrim, Head, Rescue, Rescuer, Rescues, Version, read_trims, resolve,
    scan_block, scan_heads,
};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn, Store};
use std::collections::{HashMap, HashSet};

impl<S: Store, M: PageMap> PageMapFtl<S, M> {
    /// Finds what an earlier run left.
    pub(super) fn mount(&mut self) -> Result<(), FtlError> {
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let base = self.load_checkpoint(&heads, &mut scanned)?;
        self.end_step("load checkpoint");
        let window = self.scan_window(&heads, &base, &mut scanned)?;
        self.end_step("scan window");
        self.adopt_blocks(&heads, &base, &window);
        let mut rescues = self.resolve(&base, &window)?;
        self.end_step("resolve versions");
        self.stats.mount.pages_scanned = scanned;
        self.stats.mount.clean = base.clean && !window.touched;
        self.space.check_counters(self.next_ver)?;
        self.space.begin_mount();
        self.settle_blocks(&rescues, true);
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        let rewritten = self.rewrite_suspects(&mut rescues);
        self.end_step("rewrite suspects");
        match rewritten.and_then(|()| self.refill_pool()) {
            // Reading goes on.
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            other => other?,
        }
        self.space.end_mount()?;
        self.end_step("refill pool");
        self.map.last_checkpoint = self.space.flash.pseq();
        Ok(())
    }

    /// Every mount after a cut gives up the rest of the blocks that were open. Were they collected
    /// only when the host writes, cuts in a row would use the free blocks up.
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean {
            return Ok(());
        }
        self.collect_until(self.gc.threshold + 1)
    }

    /// Reads every record of the blocks that may hold pages newer than the checkpoint.
    fn scan_window(
        &mut self,
        heads: &[Head],
        base: &Base,
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
            self.space.saw_epoch(epoch);
            self.space.flash.saw_pseq(pseq);
            let newer = epoch >= base.begin_epoch || base.open.contains(&block.raw());
            let is_checkpoint = role == Role::Checkpoint;
            // A page 0 that an earlier cut took stays lost: such a block is looked into, and may be
            // old all the same.
            window.touched |= newer && !is_checkpoint;
            if !newer && intact {
                unseen.insert(block);
                continue;
            }
            let ends = scan_block(&mut self.space.flash, block, scanned, |ppn, oob| match oob
                .tag
                .role
            {
                Role::Data if !is_checkpoint => window.evidence.add(Version { oob, ppn }),
                Role::Trim if !is_checkpoint => trim_pages.push(Version { oob, ppn }),
                _ => {}
            })?;
            let suspects = &mut window.evidence.suspects;
            suspects.note(&self.space.flash, block, ends);
        }
        if base.clean && !window.touched {
            window.evidence.suspects.assume_stable();
        }
        window.evidence.sort();
        let older = base.trims.iter().map(|(ppn, _)| *ppn);
        for ppn in older {
            let geometry = self.space.geometry();
            if !geometry.contains(ppn) || !unseen.contains(&geometry.block_of(ppn)) {
                continue;
            }
            // A record that was moved or erased since shows as something else, and its copy was
            // found above.
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

    /// Gives every block its state and role; live pages come later.
    fn adopt_blocks(&mut self, heads: &[Head], base: &Base, window: &Window) {
        let clean = base.clean && !window.touched;
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            match *head {
                Head::Factory => {}
                Head::Nothing => self
                    .space
                    .add_free(block, clean && base.free.contains(&block.raw())),
                Head::Found { role, epoch, .. } => self.space.adopt_full(block, role, epoch),
            }
        }
    }

    /// Gives each logical page its newest readable version. Returns the pages to be written again.
    fn resolve(&mut self, base: &Base, window: &Window) -> Result<Rescues, FtlError> {
        let mut rescues = Rescues::default();
        for trim in &window.trims {
            self.pin_trimmed(trim, window, &mut rescues);
        }
        self.apply_trims_to_base(base, window);
        let groups = window.evidence.all();
        for group in groups.chunk_by(|a, b| a.oob.tag.lpn == b.oob.tag.lpn) {
            let lpn = group[0].oob.tag.lpn;
            if lpn >= self.logical_pages {
                break;
            }
            self.next_ver = self.next_ver.max(group[group.len() - 1].oob.tag.ver + 1);
            let claim = Claim {
                reach: base.reach(lpn as usize).upto,
                named: self.map.pages.get(Lpn::new(lpn)),
                record: None,
                trimmed_at: window.trimmed_at(lpn).unwrap_or(0),
            };
            let (space, discarded) = (&mut self.space, &mut self.stats.mount.pages_discarded);
            let evidence = &window.evidence;
            if let Some(ppn) = resolve(space, evidence, &claim, group, &mut rescues, discarded)? {
                self.map.pages.set(Lpn::new(lpn), Some(ppn));
            }
        }
        self.drop_dangling(base, window);
        for lpn in (0..self.logical_pages).map(Lpn::new) {
            if let Some(ppn) = self.map.pages.get(lpn) {
                self.map.mapped += 1;
                self.adopt_live(ppn)?;
            }
        }
        self.adopt_trims(base, window, &mut rescues)?;
        Ok(rescues)
    }

    /// A trim may yet be lost: keeps everything that it gave up, and its other copies.
    fn pin_trimmed(
        &self,
        trim: &FoundTrim<Vec<TrimRange>>,
        window: &Window,
        rescues: &mut Rescues,
    ) {
        if trim.shaky.is_none() {
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
        let older = older.filter_map(|lpn| self.map.pages.get(Lpn::new(lpn)));
        let geometry = self.space.geometry();
        let copies = trim.copies.iter().copied();
        rescues.pin(&geometry, newer.chain(older).chain(copies));
    }

    /// A page has one owner, in a block that holds something.
    fn adopt_live(&mut self, ppn: Ppn) -> Result<(), FtlError> {
        let block = self.space.geometry().block_of(ppn);
        let table = &self.space.table;
        if table.is_live(ppn)
            || table.state(block) != State::Full
            || table.role(block) == Role::Checkpoint
        {
            return Err(FtlError::Corrupt(format!(
                "page {ppn} has two owners, or its block holds no data"
            )));
        }
        self.space.table.set_live(ppn);
        Ok(())
    }

    fn apply_trims_to_base(&mut self, base: &Base, window: &Window) {
        for range in window.trim_ranges() {
            for lpn in range.lpn
                ..range
                    .lpn
                    .saturating_add(range.count)
                    .min(self.logical_pages)
            {
                if range.ver >= base.reach(lpn as usize).ver {
                    self.map.pages.set(Lpn::new(lpn), None);
                }
            }
        }
    }

    /// The checkpoint's entries that point into blocks used again since: their page was rewritten,
    /// and that version is torn or was never acknowledged as safe. Such entries cannot be; if one
    /// is, reading it must fail rather than tell another's data.
    fn drop_dangling(&mut self, base: &Base, window: &Window) {
        if base.reach.is_empty() {
            return;
        }
        let seen: HashMap<Ppn, Lpn> = window
            .evidence
            .all()
            .iter()
            .map(|v| (v.ppn, Lpn::new(v.oob.tag.lpn)))
            .collect();
        for lpn in (0..self.logical_pages).map(Lpn::new) {
            let Some(ppn) = self.map.pages.get(lpn) else {
                continue;
            };
            let block = self.space.geometry().block_of(ppn);
            let in_window = self.space.table.epoch(block) >= base.begin_epoch;
            let blank = self.space.table.state(block) != State::Full;
            if blank || (in_window && seen.get(&ppn) != Some(&lpn)) {
                self.map.pages.set(lpn, None);
                self.stats.mount.pages_discarded += 1;
            }
        }
    }

    fn adopt_trims(
        &mut self,
        base: &Base,
        window: &Window,
        rescues: &mut Rescues,
    ) -> Result<(), FtlError> {
        let known: HashMap<u64, Record> = base
            .trims
            .iter()
            .map(|(_, record)| (record.ver, *record))
            .collect();
        for FoundTrim { at, shaky, .. } in &window.trims {
            let unknown = Record {
                ver: at.oob.tag.ver,
                contained_in: self.checkpoints.next_id(),
            };
            let record = known.get(&at.oob.tag.ver).copied().unwrap_or(unknown);
            if self.checkpoints.both_since(record.contained_in) {
                continue;
            }
            self.map.trims.add(at.ppn, record);
            self.adopt_live(at.ppn)?;
            if let Some(data) = shaky {
                rescues.add(at, data.clone());
            }
        }
        Ok(())
    }

    fn settle_blocks(&mut self, rescues: &Rescues, pinned_wait: bool) {
        let dead =
            rescues.settle_blocks(&mut self.space, &self.checkpoints, pinned_wait, |_| false);
        dead.into_iter().for_each(|block| self.space.release(block));
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen; then gives up what had to wait for that.
    fn rewrite_suspects(&mut self, rescues: &mut Rescues) -> Result<(), FtlError> {
        self.stats.mount.pages_discarded += rescues.program(self)?;
        self.settle_blocks(rescues, false);
        Ok(())
    }
}

impl<S: Store, M: PageMap> Rescuer<S> for PageMapFtl<S, M> {
    fn space(&mut self) -> &mut Space<S> {
        &mut self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        (HOST, role)
    }

    fn copied(&mut self, rescue: &Rescue, to: Ppn, _: u64) {
        if rescue.tag.role == Role::Trim {
            self.map.trims.moved(rescue.from, to);
            self.space.table.clear_live(rescue.from);
        } else {
            self.set_map(Lpn::new(rescue.tag.lpn), Some(to));
        }
    }
}

/// What the blocks hold that are newer than the checkpoint.
#[derive(Default)]
struct Window {
    evidence: Evidence,
    trims: Vec<FoundTrim<Vec<TrimRange>>>,
    /// Whether any block but checkpoints was used after the checkpoint began.
    touched: bool,
}

impl Window {
    fn trim_ranges(&self) -> impl Iterator<Item = TrimRange> {
        self.trims
            .iter()
            .flat_map(|trim| trim.content.iter().copied())
    }

    /// The newest version from which on the page is trimmed.
    fn trimmed_at(&self, lpn: u32) -> Option<u64> {
        let covers = |range: &TrimRange| range.lpn <= lpn && lpn - range.lpn < range.count;
        self.trim_ranges()
            .filter(covers)
            .map(|range| range.ver)
            .max()
    }
}
