//! Mount.
//!
//! 1. Read the head of every block.
//! 2. Load the newest checkpoint.
//! 3. Read every record of the blocks that may contain pages missing from the map on flash
//!    (`window.rs`).
//! 4. Read the newest version of every mapping page, and adopt the newest readable version of each
//!    of its logical pages (`versions.rs`).
//! 5. Rebuild the counts.
//! 6. Rewrite the pages that the cut may have left unstable.
//!
//! A version is never larger than the number of the program that wrote it, so new versions continue
//! above the last program.
//!
//! If power fails during a mount, the next mount repeats these steps. A mount only adds copies of
//! pages it keeps, and erases only blocks without valid pages.

use super::checkpoint::Content;
use super::policy::Policy;
use super::state::{MAP, PagedFtl};
use super::window::Window;
use crate::block_table::State;
use crate::checkpoint::KEPT;
use crate::error::FtlError;
use crate::format::Role;
use crate::gc::GarbageCollect;
use crate::recovery::{Rewrite, Rewriter, Rewrites};
use crate::scan::{Head, scan_heads};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn};
use std::collections::HashSet;

impl<P: Policy> PagedFtl<P> {
    /// Mounts the scheme from the flash content.
    pub(crate) fn mount_from_map(&mut self) -> Result<(), FtlError> {
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let sets = self
            .checkpoints
            .load(&mut self.space, &heads, KEPT, &mut scanned)?;
        let mut base = self.newest_checkpoint(&sets);
        self.end_step("load checkpoint");
        let mut window =
            self.map
                .scan_window(&mut self.space, &heads, base.as_ref(), &mut scanned)?;
        let missing = base
            .as_ref()
            .map_or(HashSet::new(), |base| self.map.missing(base, &window));
        if !missing.is_empty() {
            base = None;
            window = self
                .map
                .scan_window(&mut self.space, &heads, None, &mut scanned)?;
        }
        self.end_step("scan window");
        self.stats.mount.clean = base.as_ref().is_some_and(|base| base.clean) && !window.touched;
        self.adopt_blocks(&heads, base.as_ref(), &window);
        let mut rewrites = Rewrites::default();
        let mut trims = self.read_trims(window.trims.clone(), &mut window, &mut rewrites)?;
        let mut outdated = Vec::new();
        for vtpn in 0..self.map.directory.len() as u32 {
            let (found, is_outdated) = self.find_map(vtpn, &window, &trims)?;
            if is_outdated || missing.contains(&vtpn) {
                outdated.push(found);
            } else {
                self.resolve(found, &window, &trims, &mut rewrites)?;
            }
        }
        if !outdated.is_empty() {
            self.stats.mount.clean = false;
            self.scan_rest(&heads, &mut window, &mut trims, &mut rewrites, &mut scanned)?;
        }
        let rebuilt: Vec<u32> = outdated.iter().map(|found| found.vtpn).collect();
        let first_page = |block: &Pbn| self.space.geometry().page(*block, 0);
        let with_lost_records = window.with_lost_records.iter().map(first_page);
        rewrites.pin(&self.space.geometry(), with_lost_records);
        for found in outdated {
            rewrites.pin(&self.space.geometry(), found.lost.iter().copied());
            self.resolve(found, &window, &trims, &mut rewrites)?;
        }
        self.map.adopt_trims(&mut self.space, trims)?;
        self.next_ver = self.space.flash.pseq() + 1;
        self.space.check_counters(self.next_ver)?;
        self.end_step("resolve versions");
        self.space.begin_mount();
        self.classify_blocks(&rewrites, true);
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        self.rewrite(&mut rewrites)?;
        self.write_rebuilt(&rebuilt)?;
        self.end_step("rewrite suspects");
        let unwritten = !rebuilt.is_empty() && self.gc.is_read_only();
        self.classify_blocks(&rewrites, unwritten);
        self.refill_pool()?;
        self.empty_blocks_with_lost_records(&window.with_lost_records)?;
        self.space.end_mount()?;
        self.end_step("refill pool");
        self.stats.mount.pages_scanned = scanned;
        self.map.writer.begin_interval(self.space.flash.pseq());
        Ok(())
    }

    /// Returns a version for a page that is programmed next, and makes sure that the program's
    /// number is not smaller. If the host refuses that program, versions have advanced without it,
    /// and the next mount would give the version to another write.
    pub(super) fn version_of_next_program(&mut self) -> u64 {
        let ver = self.new_version();
        self.space.flash.observe_pseq(ver - 1);
        ver
    }

    /// Refills the pool of free blocks. Every mount after a cut abandons the rest of the open
    /// blocks. If GC ran only at host writes, repeated cuts would use up the free blocks.
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean || self.gc.is_read_only() {
            return Ok(());
        }
        match self.ensure_blocks(0).and_then(|()| self.limit_pending()) {
            // The device stays readable.
            Err(FtlError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    /// Relocates the valid pages of these blocks. The mount has written the changes that their lost
    /// records may have contained. While the blocks stay, every mount has to read all blocks again.
    fn empty_blocks_with_lost_records(&mut self, blocks: &[Pbn]) -> Result<(), FtlError> {
        for block in blocks {
            // GC may have released it during the mount, and a stream may have opened it again.
            let holds_map = self.space.table.state(*block) == State::Full
                && self.space.table.role(*block) == Role::Map;
            if !holds_map || self.gc.is_read_only() {
                continue;
            }
            let emptied = self.relocate_block(*block, Cause::Recovery).map(drop);
            self.gc.stay_readable(emptied)?;
        }
        Ok(())
    }

    /// Sets the state and role of every block; valid pages come later.
    fn adopt_blocks(&mut self, heads: &[Head], base: Option<&Content>, window: &Window) {
        assert_eq!(
            heads.len(),
            self.space.geometry().block_slots(),
            "heads of all blocks"
        );
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
                        // Even if the scan can no longer read the checkpoint that was loaded.
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

    /// Classifies the blocks, except those that must be converted first.
    fn classify_blocks(&mut self, rewrites: &Rewrites, pinned_wait: bool) {
        let of_scheme =
            |block| self.map.pending.holds(block) && self.map.settings.buffer_blocks.is_some();
        let (space, checkpoints) = (&mut self.space, &self.checkpoints);
        let empty = rewrites.classify_blocks(space, checkpoints, pinned_wait, of_scheme);
        empty
            .into_iter()
            .for_each(|block| self.release_block(block));
    }

    /// Rewrites the pages that the cut may have left unstable, so that they keep the content that
    /// this mount has read.
    fn rewrite(&mut self, rewrites: &mut Rewrites) -> Result<(), FtlError> {
        let programmed = rewrites.program(self);
        let counted = programmed.map(|pages| self.stats.mount.pages_discarded += pages);
        self.gc.stay_readable(counted)
    }

    /// Writes the rebuilt mapping pages.
    fn write_rebuilt(&mut self, rebuilt: &[u32]) -> Result<(), FtlError> {
        for vtpn in rebuilt {
            if self.gc.is_read_only() {
                return Ok(());
            }
            if self.space.room(MAP) == 0 {
                self.space.erase_released(Cause::Recovery)?;
            }
            let written = self.write_back(*vtpn, Cause::Recovery);
            self.gc.stay_readable(written)?;
        }
        if rebuilt.is_empty() {
            Ok(())
        } else {
            self.space.make_safe()
        }
    }
}

impl<P: Policy> Rewriter for PagedFtl<P> {
    fn space(&mut self) -> &mut Space {
        &mut self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        match role {
            Role::Map | Role::Trim => (MAP, role),
            _ => (self.map.streams.copies()[0], self.map.settings.copy_role),
        }
    }

    fn copied(&mut self, rewrite: &Rewrite, to: Ppn, seq: u64) {
        let tag = rewrite.tag;
        if tag.role == Role::Map {
            self.map.set_directory(&mut self.space, tag.lpn, Some(to));
            return;
        }
        if tag.role == Role::Trim {
            self.map.trims.on_relocate(tag.ver, to);
        } else {
            self.map
                .track_buffer_block(&self.space, to, self.map.streams.copies()[0]);
            self.map.pending.update_entry(tag.lpn, Some(to), false, seq);
            self.map.policy.on_relocate(tag.lpn, Some(to));
        }
        self.space.table.set_invalid(rewrite.from);
    }
}
