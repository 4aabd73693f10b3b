//! Garbage collection, wear levelling and the writing of trim records: everything that makes or takes space.

use super::trims::Record;
use super::{HOST, PageMap, UNMAPPED};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{Flags, OOB_SLOT, Oob, PageTag, Role};
use crate::space::StreamId;
use nand_model::{Cause, Geometry, Pbn, Ppn, Store};

/// Room for the live pages of one block on their way.
pub(super) struct CopyBuffer {
    data: Vec<u8>,
    records: Vec<[u8; OOB_SLOT]>,
    from: Vec<Ppn>,
    pub(super) heads: Vec<(Option<Oob>, bool)>,
}

impl CopyBuffer {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let data = vec![0; (geometry.pages_per_block * geometry.page_bytes) as usize];
        CopyBuffer { data, records: Vec::new(), from: Vec::new(), heads: Vec::new() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.data.len() as u64
    }
}

/// Blocks below which collection waits for nothing: a copy target and two more.
const RESERVE: u32 = 3;

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

    pub(super) fn collect_until(&mut self, wanted: u32) -> Result<(), FtlError> {
        self.space.reclaim(Cause::Gc)?;
        let (mut most, mut futile) = (0, 0);
        while self.space.free_blocks() < wanted || self.space.failing_block().is_some() {
            let (free, waiting) = (self.space.free_blocks(), self.space.released_blocks());
            let best = self.space.table.greedy_victim();
            let needs = best.map_or(0, |b| self.space.blocks_for(self.settings.gc_stream, self.space.table.valid(b)));
            if self.space.should_hurry(wanted, RESERVE, needs) {
                self.space.make_safe()?;
                self.space.reclaim(Cause::Gc)?;
                continue;
            }
            futile = if free + waiting > most { 0 } else { futile + 1 };
            most = most.max(free + waiting);
            // Space that so many collections could not free is not there.
            let endless = futile > 2 * self.space.geometry().pages_per_block;
            if endless || !self.collect_one()? {
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
        if self.space.free_blocks() >= wanted.min(RESERVE) {
            return Ok(());
        }
        self.read_only = Some("too few good blocks are left");
        self.refuse_if_read_only()
    }

    /// Moves the live pages of the best victim and releases it. False if no block is worth it.
    fn collect_one(&mut self) -> Result<bool, FtlError> {
        let pages = self.space.pages_per_block();
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
            let collectable = self.space.table.withdraw(victim);
            let moved = self.move_live_pages(victim, cause);
            if moved.is_err() && collectable {
                self.space.table.set_collectable(victim);
            }
            moved?;
        }
        self.space.release(victim);
        Ok(live)
    }

    fn move_live_pages(&mut self, victim: Pbn, cause: Cause) -> Result<(), FtlError> {
        self.load_live_pages(victim, cause)?;
        self.store_copies(cause)
    }

    fn load_live_pages(&mut self, victim: Pbn, cause: Cause) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let CopyBuffer { data, records, from, .. } = &mut self.pages;
        from.clear();
        self.space.table.live_pages(victim, from);
        records.resize(from.len(), [0; OOB_SLOT]);
        let data = &mut data[..from.len() * page];
        if !self.space.flash.read_pages(from, data, records, cause)? {
            self.mend_records();
        }
        Ok(())
    }

    /// Gives every loaded page a record that says what can be said: a page whose data is lost stays an error, and one whose
    /// record is lost gets its owner's name and a new version, so that no older one comes back in its place.
    #[cold]
    fn mend_records(&mut self) {
        let CopyBuffer { records, from, .. } = &mut self.pages;
        for ((record, from), health) in records.iter_mut().zip(from).zip(self.space.flash.health()) {
            let found = Oob::decode(record).filter(|_| health.oob_ok());
            let mut tag = found.map_or_else(
                || {
                    self.next_ver += 1;
                    lost_owner(&self.map, *from, self.next_ver - 1)
                },
                |oob| oob.tag,
            );
            if !health.data_ok() {
                tag.flags = tag.flags.with(Flags::LOST);
            }
            *record = Oob { tag, pseq: 0, epoch: 0 }.encode();
        }
    }

    fn store_copies(&mut self, cause: Cause) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let CopyBuffer { data, records, from, .. } = &mut self.pages;
        let (mut data, mut records, mut from) = (&data[..records.len() * page], &mut records[..], &from[..]);
        while !records.is_empty() {
            let (first, taken) = self.space.append_copies(self.settings.gc_stream, records, data, cause)?;
            let (moved, rest) = records.split_at_mut(taken as usize);
            for (to, (record, from)) in (first.raw()..).map(Ppn::new).zip(moved.iter().zip(from)) {
                let (role, lpn) = Oob::owner(record);
                if role == Role::Trim {
                    self.trims.moved(*from, to);
                    continue;
                }
                let Some(entry) = self.map.get_mut(lpn as usize).filter(|entry| **entry == from.raw()) else {
                    return Err(misplaced(*from, lpn));
                };
                *entry = to.raw();
            }
            self.space.table.clear_live_pages(&from[..taken as usize]);
            (data, records, from) = (&data[taken as usize * page..], rest, &from[taken as usize..]);
        }
        Ok(())
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
            if self.space.room(self.settings.gc_stream) == 0 && self.space.free_blocks() < RESERVE {
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
    pub(super) fn level_wear(&mut self) -> Result<(), FtlError> {
        let Some(policy) = self.settings.wear else { return Ok(()) };
        let erases = self.space.flash.chip().counters().total().erases;
        if erases - self.erases_seen < (self.space.geometry().blocks as u64 / 8).max(8) {
            return Ok(());
        }
        self.erases_seen = erases;
        if self.space.free_blocks() < RESERVE {
            return Ok(());
        }
        if let Some(block) = policy.candidate(&self.space) {
            // Cold data goes to a worn block of its own, not into the open one.
            self.space.seal(self.settings.gc_stream)?;
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
        self.trims.add(ppn, Record { ver, contained_in: self.checkpoints.next_id() });
        Ok(())
    }
}

#[cold]
fn misplaced(ppn: Ppn, lpn: u32) -> FtlError {
    FtlError::Corrupt(format!("the live page {ppn} says that it is logical page {lpn}, which is elsewhere"))
}

/// Who owns a live page whose record is lost: a search, because it happens next to never.
fn lost_owner(map: &[u32], ppn: Ppn, ver: u64) -> PageTag {
    let lpn = map.iter().position(|entry| *entry == ppn.raw()).map_or(UNMAPPED, |lpn| lpn as u32);
    PageTag { role: if lpn == UNMAPPED { Role::Trim } else { Role::Data }, flags: Flags::LOST, lpn, ver }
}
