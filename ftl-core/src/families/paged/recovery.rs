//! Mount.
//!
//! Steps: read the head of every block; load the newest checkpoint; read every record of the blocks
//! that may hold what the map on flash does not know; read the newest version of every mapping
//! page, and give each of its logical pages the newest readable version; rebuild counts; make safe
//! again what the cut may have left unstable. Which blocks are read is in `window.rs`, which
//! version rules in `versions.rs`.
//!
//! A version is never larger than the number of the program that wrote it, so new versions continue
//! above the last program.
//!
//! If power fails during a mount, the next one does the same: a mount only adds copies of pages it
//! keeps, and erases only blocks without live pages.

use super::checkpoint::Content;
use super::window::Window;
use super::{MAP, Paged, Policy};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::Role;
use crate::gc::Collect;
use crate::recovery::{Head, Rescue, Rescuer, Rescues, scan_heads};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn, Store};
use std::collections::HashSet;

impl<S: Store, P: Policy> Paged<S, P> {
    /// Finds what an earlier run left.
    pub(crate) fn mount(&mut self) -> Result<(), FtlError> {
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let sets = self
            .checkpoints
            .load(&mut self.space, &heads, &mut scanned)?;
        let mut base = self.newest_checkpoint(&sets);
        self.end_step("load checkpoint");
        let mut window = self.scan_window(&heads, base.as_ref(), &mut scanned)?;
        let missing = base
            .as_ref()
            .map_or(HashSet::new(), |base| self.missing(base, &window));
        if !missing.is_empty() {
            base = None;
            window = self.scan_window(&heads, None, &mut scanned)?;
        }
        self.end_step("scan window");
        self.stats.mount.clean = base.as_ref().is_some_and(|base| base.clean) && !window.touched;
        self.adopt_blocks(&heads, base.as_ref(), &window);
        let mut rescues = Rescues::default();
        let mut trims = self.read_trims(window.trims.clone(), &mut window, &mut rescues)?;
        let mut outdated = Vec::new();
        for vtpn in 0..self.map.directory.len() as u32 {
            let (found, is_outdated) = self.find_map(vtpn, &window, &trims)?;
            if is_outdated || missing.contains(&vtpn) {
                outdated.push(found);
            } else {
                self.resolve(found, &window, &trims, &mut rescues)?;
            }
        }
        if !outdated.is_empty() {
            self.stats.mount.clean = false;
            self.scan_rest(&heads, &mut window, &mut trims, &mut rescues, &mut scanned)?;
        }
        let rebuilt: Vec<u32> = outdated.iter().map(|found| found.vtpn).collect();
        let first_page = |block: &Pbn| self.space.geometry().page(*block, 0);
        let with_lost_records = window.with_lost_records.iter().map(first_page);
        rescues.pin(&self.space.geometry(), with_lost_records);
        for found in outdated {
            rescues.pin(&self.space.geometry(), found.lost.iter().copied());
            self.resolve(found, &window, &trims, &mut rescues)?;
        }
        self.adopt_trims(trims)?;
        self.next_ver = self.space.flash.pseq() + 1;
        self.space.check_counters(self.next_ver)?;
        self.end_step("resolve versions");
        self.space.begin_mount();
        self.settle_blocks(&rescues, true);
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        self.rewrite(&mut rescues)?;
        self.write_rebuilt(&rebuilt)?;
        self.end_step("rewrite suspects");
        let unwritten = !rebuilt.is_empty() && self.gc.is_read_only();
        self.settle_blocks(&rescues, unwritten);
        self.refill_pool()?;
        self.empty_blocks_with_lost_records(&window.with_lost_records)?;
        self.space.end_mount()?;
        self.end_step("refill pool");
        self.stats.mount.pages_scanned = scanned;
        self.map.last_checkpoint = self.space.flash.pseq();
        Ok(())
    }

    /// Every mount after a cut gives up the rest of the blocks that were open. Were they collected
    /// only when the host writes, cuts in a row would use the free blocks up.
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean || self.gc.is_read_only() {
            return Ok(());
        }
        match self.make_blocks(0).and_then(|()| self.limit_pending()) {
            // Reading goes on.
            Err(FtlError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    /// Relocates what these blocks still hold. The mount has written what their lost records may
    /// have contained; while they stay, every mount has to read all blocks again.
    fn empty_blocks_with_lost_records(&mut self, blocks: &[Pbn]) -> Result<(), FtlError> {
        for block in blocks {
            // The mount may have collected it already, and opened it again.
            let holds_map = self.space.table.state(*block) == State::Full
                && self.space.table.role(*block) == Role::Map;
            if !holds_map || self.gc.is_read_only() {
                continue;
            }
            match self.renew(*block, Cause::Recovery) {
                Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Gives every block its state and role; live pages come later.
    fn adopt_blocks(&mut self, heads: &[Head], base: Option<&Content>, window: &Window) {
        let free: HashSet<u32> = match base {
            Some(base) if self.stats.mount.clean => base.free.iter().copied().collect(),
            _ => HashSet::new(),
        };
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            match *head {
                Head::Factory => {}
                Head::Nothing => self.space.add_free(block, free.contains(&block.raw())),
                Head::Found { first, epoch, .. } => {
                    let role = match (window.roles.get(&block.raw()), first) {
                        // Even if the scan cannot read the checkpoint any more, which its loading
                        // could.
                        (_, Role::Checkpoint) => Role::Checkpoint,
                        (Some(role), _) => *role,
                        (None, Role::Map | Role::Trim) => Role::Map,
                        (None, _) => Role::Data,
                    };
                    self.space.adopt_full(block, role, epoch);
                }
            }
        }
    }

    /// Blocks that have to be converted first stay as they are.
    fn settle_blocks(&mut self, rescues: &Rescues, pinned_wait: bool) {
        let of_scheme =
            |block| self.map.pending.holds(block) && self.map.settings.buffer_blocks.is_some();
        let (space, checkpoints) = (&mut self.space, &self.checkpoints);
        let dead = rescues.settle_blocks(space, checkpoints, pinned_wait, of_scheme);
        dead.into_iter().for_each(|block| self.give_up(block));
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen.
    fn rewrite(&mut self, rescues: &mut Rescues) -> Result<(), FtlError> {
        match rescues.program(self) {
            Ok(programmed) => self.stats.mount.pages_discarded += programmed,
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Writes the mapping pages that were rebuilt.
    fn write_rebuilt(&mut self, rebuilt: &[u32]) -> Result<(), FtlError> {
        for vtpn in rebuilt {
            if self.gc.is_read_only() {
                return Ok(());
            }
            if self.space.room(MAP) == 0 {
                self.space.reclaim(Cause::Recovery)?;
            }
            match self.write_back(*vtpn, Cause::Recovery) {
                Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
                other => other?,
            }
        }
        if rebuilt.is_empty() {
            Ok(())
        } else {
            self.space.make_safe()
        }
    }
}

impl<S: Store, P: Policy> Rescuer<S> for Paged<S, P> {
    fn space(&mut self) -> &mut Space<S> {
        &mut self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        match role {
            Role::Map | Role::Trim => (MAP, role),
            _ => (self.map.streams.copies()[0], self.map.settings.copy_role),
        }
    }

    fn copied(&mut self, rescue: &Rescue, to: Ppn, seq: u64) {
        let tag = rescue.tag;
        if tag.role == Role::Map {
            self.set_directory(tag.lpn, Some(to));
            return;
        }
        if tag.role == Role::Trim {
            self.map.trims.moved(tag.ver, to);
        } else {
            self.enlist_block_of(to, self.map.streams.copies()[0]);
            self.map.pending.point(tag.lpn, Some(to), false, seq);
        }
        self.space.table.clear_live(rescue.from);
    }
}
