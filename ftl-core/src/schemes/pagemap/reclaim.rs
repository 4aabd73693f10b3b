//! Garbage collection, wear levelling and the writing of trim records: everything that makes or takes space.

use super::{HOST, PageMap, UNMAPPED};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{Flags, PageTag, Role};
use crate::space::StreamId;
use nand_model::{Cause, Pbn, Ppn, Store};

/// Blocks below which collection waits for nothing: a copy target and one more.
const CRITICAL: u32 = 2;
/// Released blocks that may wait for their turn before pads hurry them.
const MAX_WAITING: u32 = 2;

impl<S: Store> PageMap<S> {
    /// Makes sure that the stream can take a page without touching the reserve.
    #[inline]
    pub(super) fn make_room(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        self.collect_until(self.settings.free_threshold + 1)?;
        self.level_wear()
    }

    fn collect_until(&mut self, wanted: u32) -> Result<(), FtlError> {
        self.space.reclaim(Cause::Gc)?;
        while self.space.free_blocks() < wanted || self.space.failing_block().is_some() {
            let waiting = self.space.released_blocks();
            if waiting > MAX_WAITING || (waiting > 0 && self.space.free_blocks() <= CRITICAL) {
                self.space.make_safe()?;
                self.space.reclaim(Cause::Gc)?;
                continue;
            }
            if !self.collect_one()? {
                return self.no_victim(wanted);
            }
            self.space.reclaim(Cause::Gc)?;
        }
        Ok(())
    }

    /// Nothing can be collected with profit: released blocks may still help, else the device is at its end.
    fn no_victim(&mut self, wanted: u32) -> Result<(), FtlError> {
        self.space.make_safe()?;
        self.space.reclaim(Cause::Gc)?;
        if self.space.free_blocks() >= wanted.min(CRITICAL + 1) {
            return Ok(());
        }
        self.read_only = Some("too few good blocks are left");
        self.refuse_if_read_only()
    }

    /// Moves the live pages of the best victim and releases it. False if no block is worth it.
    fn collect_one(&mut self) -> Result<bool, FtlError> {
        let pages = self.space.geometry().pages_per_block;
        let failing = self.space.failing_block();
        let victim = match failing.or_else(|| self.space.table.greedy_victim()) {
            Some(block) if failing.is_some() || self.space.table.valid(block) < pages => block,
            _ => return Ok(false),
        };
        let moved = self.evacuate(victim, Cause::Gc)?;
        self.stats.gc_runs += 1;
        self.stats.gc_pages_moved += moved as u64;
        Ok(true)
    }

    /// Moves every live page out of a block and releases it.
    fn evacuate(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        let live = self.space.table.valid(victim);
        if live > 0 {
            self.load_live_pages(victim, cause)?;
            self.store_copies(cause)?;
        }
        self.space.release(victim);
        Ok(live)
    }

    fn load_live_pages(&mut self, victim: Pbn, cause: Cause) -> Result<(), FtlError> {
        self.pages.load(&mut self.space, victim, cause)?;
        for (tag, ppn) in self.pages.unknown() {
            // A new version, so that no older one comes back in its place.
            *tag = lost_owner(&self.map, ppn, self.next_ver);
            self.next_ver += 1;
        }
        Ok(())
    }

    fn store_copies(&mut self, cause: Cause) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let mut done = 0;
        while done < self.pages.tags.len() {
            let tags = &self.pages.tags[done..];
            let data = &self.pages.data[done * page..][..tags.len() * page];
            let (first, taken) = self.space.append(self.settings.gc_stream, tags, data, cause)?;
            for i in 0..taken {
                let (tag, from) = (self.pages.tags[done + i as usize], self.pages.from[done + i as usize]);
                self.note_moved(tag, from, Ppn::new(first.raw() + i));
            }
            done += taken as usize;
        }
        Ok(())
    }

    #[inline]
    fn note_moved(&mut self, tag: PageTag, from: Ppn, to: Ppn) {
        if tag.role == Role::Trim {
            self.trims.moved(from, to);
            self.space.table.clear_live(from);
            return;
        }
        assert_eq!(self.map[tag.lpn as usize], from.raw(), "the live page {from} belongs to another logical page");
        self.set_map(Lpn::new(tag.lpn), Some(to));
    }

    /// Collects while nobody waits, until twice the threshold is free.
    pub(super) fn collect_ahead(&mut self, budget: u32) -> Result<bool, FtlError> {
        if self.read_only.is_some() {
            return Ok(false);
        }
        self.space.reclaim(Cause::Gc)?;
        let pages = self.space.geometry().pages_per_block;
        let mut left = budget as i64;
        while left > 0 && self.space.free_blocks() < 2 * self.settings.free_threshold {
            // Ahead of need, only what costs little: a later overwrite may empty the block for nothing.
            let Some(victim) = self.space.table.greedy_victim() else { return Ok(false) };
            let cheap = self.space.table.valid(victim) <= pages / 4;
            if !cheap {
                return Ok(false);
            }
            if self.space.room(self.settings.gc_stream) == 0 && self.space.free_blocks() <= CRITICAL {
                return Ok(false);
            }
            let moved = self.evacuate(victim, Cause::Gc)?;
            self.stats.gc_runs += 1;
            self.stats.gc_pages_moved += moved as u64;
            self.space.reclaim(Cause::Gc)?;
            left -= 2 * moved as i64 + 1;
        }
        Ok(left <= 0)
    }

    /// Looks at wear once per so many erases that the search costs nothing, and moves one cold block if the gap is too wide.
    fn level_wear(&mut self) -> Result<(), FtlError> {
        let Some(policy) = self.settings.wear else { return Ok(()) };
        let erases = self.space.flash.chip().counters().total().erases;
        if erases - self.erases_seen < (self.space.geometry().blocks as u64 / 8).max(8) {
            return Ok(());
        }
        self.erases_seen = erases;
        if self.space.free_blocks() <= CRITICAL {
            return Ok(());
        }
        if let Some(block) = policy.candidate(&self.space) {
            // Cold data goes to a worn block of its own, not into the open one.
            self.space.seal(self.settings.gc_stream);
            self.evacuate(block, Cause::Wear)?;
            self.stats.wear_moves += 1;
        }
        Ok(())
    }

    /// Programs a trim record; it counts from the moment it is on flash.
    pub(super) fn write_trim_record(&mut self, first: Lpn, count: u32, ver: u64) -> Result<(), FtlError> {
        let mut page = vec![0; self.space.geometry().page_bytes as usize];
        trim::encode(&[TrimRange { lpn: first.raw(), count, ver }], &mut page);
        let tag = PageTag { role: Role::Trim, flags: Flags::NONE, lpn: first.raw(), ver };
        let (ppn, _) = self.space.append(HOST, &[tag], &page, Cause::Trim)?;
        self.trims.add(ppn, self.checkpoints.next_id());
        Ok(())
    }
}

/// Who owns a live page whose record is lost: a search, because it happens next to never.
fn lost_owner(map: &[u32], ppn: Ppn, ver: u64) -> PageTag {
    let lpn = map.iter().position(|entry| *entry == ppn.raw()).map_or(UNMAPPED, |lpn| lpn as u32);
    let role = if lpn == UNMAPPED { Role::Trim } else { Role::Data };
    PageTag { role, flags: Flags::COPY.with(Flags::LOST), lpn, ver }
}
