//! Garbage collection and trim records: the operations that free or take space.

use super::map::PageMap;
use super::state::{HOST, PageMapFtl};
use crate::addr::Lpn;
use crate::copy::misplaced;
use crate::error::FtlError;
use crate::format::UNMAPPED;
use crate::format::trim::TrimRange;
use crate::format::{OOB_SLOT, Oob, Role};
use crate::gc::{GarbageCollect, GcState, fold};
use crate::int::to_u32;
use crate::space::{Space, StreamId};
use crate::trims::{InCheckpoint, program_record};
use nand_model::{Cause, Pbn, Ppn, Store};

impl<M: PageMap> GarbageCollect for PageMapFtl<M> {
    #[inline]
    fn parts(&mut self) -> (&mut Space, &mut GcState) {
        (&mut self.space, &mut self.gc)
    }

    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        let (valid, streams) = (self.space.table.valid_count(victim), &self.map.streams);
        match streams.blocks_for_copies(&self.space, valid) {
            0 => 0,
            blocks if self.space.free_blocks() > 0 => blocks,
            _ => {
                let rest = valid.saturating_sub(streams.room_of_host(&self.space));
                streams.blocks_for_copies(&self.space, rest)
            }
        }
    }

    fn select_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        let streams = &mut self.map.streams;
        streams.pass_block_events(&mut self.space);
        Ok(self.gc.victim(&mut self.space, streams.policy_of_victims()))
    }

    fn prepare_victim(&mut self, block: Pbn) -> Result<bool, FtlError> {
        let is_checkpoint = self.space.table.role(block) == Role::Checkpoint;
        self.gc.wants_checkpoint |= is_checkpoint;
        Ok(!is_checkpoint)
    }

    fn relocate_valid(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        self.withdrawn(victim, |ftl| ftl.copy_valid(victim, u32::MAX, cause))
    }

    fn relocate_first(&mut self, victim: Pbn, most: u32, cause: Cause) -> Result<u32, FtlError> {
        let needed = self.map.streams.blocks_for_copies(&self.space, most);
        if needed > 0 && self.space.free_blocks() <= self.gc.reserve {
            return Ok(0);
        }
        self.copy_valid(victim, most, cause)
    }

    fn use_worn_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        let streams = &mut self.map.streams;
        let stream = streams.of_cold_block(&self.space, block, self.next_ver);
        self.space.use_worn_block(stream)
    }
}

impl<M: PageMap> PageMapFtl<M> {
    /// Ensures that the stream can take a page without touching the reserve.
    #[inline(always)]
    pub(super) fn ensure_space(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.has_room(stream) {
            return Ok(());
        }
        self.make_free_blocks(stream)
    }

    /// Frees blocks before the stream opens one.
    #[cold]
    pub(super) fn make_free_blocks(&mut self, stream: StreamId) -> Result<(), FtlError> {
        // The reserve of a read-only device has room for what was acknowledged.
        let may_run_short = M::SORTED && self.map.is_emptying();
        if may_run_short && self.gc.is_read_only() {
            return Ok(());
        }
        let outcome = match self.space.is_slc_stream(stream) {
            true => fold::make_room(self),
            false => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.gc_until(self.gc.threshold + 1));
        match outcome.and_then(|()| self.maintain()) {
            Err(FtlError::ReadOnly(_)) if may_run_short => Ok(()),
            other => other,
        }
    }

    /// Copies at most the first `most` valid pages of a block.
    fn copy_valid(&mut self, victim: Pbn, most: u32, cause: Cause) -> Result<u32, FtlError> {
        let is_last = most >= self.space.table.valid_count(victim);
        self.gc
            .pages
            .load_first(&mut self.space, victim, most, cause)?;
        if self.gc.pages.unknown().next().is_some() {
            self.find_lost_owners()?;
        }
        if M::SORTED {
            let page = self.space.geometry().page_len();
            let has_data = self.space.flash.chip().store().keeps_data();
            let order = &mut self.map.order;
            self.gc.pages.sort_by_owner(page, has_data, order);
        }
        let lifetime = self.space.written_since(self.space.table.epoch(victim));
        self.map.streams.pass_block_events(&mut self.space);
        if is_last {
            self.map.streams.collected(victim, lifetime);
        }
        self.map.streams.keep_lane(cause == Cause::Wear);
        let reserve = self.gc.reserve;
        let page = self.space.geometry().page_bytes as usize;
        let pages = &mut self.gc.pages;
        let total = pages.from.len();
        let (mut data, mut records, mut from) = (
            &pages.data[..total * page],
            &mut pages.records[..],
            &pages.from[..],
        );
        let in_turn = self.map.streams.pages_in_turn();
        let mut parts = self.space.flash.begin_parts();
        while !records.is_empty() {
            self.space.flash.next_part(&mut parts);
            self.map.streams.pass_block_events(&mut self.space);
            let streams = &self.map.streams;
            // After a power cut inside a mount, the last free blocks may be gone.
            let only = streams.host_in_need(&self.space);
            let (stream, run) = match only.or_else(|| streams.one_for_copies()) {
                Some(stream) => (stream, records.len()),
                None => {
                    let (space, now) = (&self.space, self.next_ver);
                    let is_short = space.free_blocks() <= reserve || space.is_mounting();
                    let mut of = |record: &[u8; OOB_SLOT]| {
                        let age = now.saturating_sub(Oob::ver(record));
                        let page = (Oob::data_page(record), victim);
                        self.map.streams.of_copy(space, page, age, now, is_short)
                    };
                    let stream = of(&records[0]);
                    let others = records[1..].iter().take(in_turn - 1);
                    (stream, 1 + others.take_while(|r| of(r) == stream).count())
                }
            };
            let (first, taken) = self.space.append_copies(
                stream,
                &mut records[..run],
                &data[..run * page],
                cause,
            )?;
            assert!(
                taken > 0 && taken as usize <= run,
                "{taken} pages were copied of {run}"
            );
            let block = self.space.flash.geometry().block_of(first);
            self.map.streams.note(&self.space, block, stream);
            let (moved, rest) = records.split_at_mut(taken as usize);
            let logical = self.logical_pages;
            let mut done = remap(&mut self.map.pages, logical, first, moved, from);
            while let Some(record) = moved.get(done) {
                match Oob::owner(record) {
                    (Role::Trim, _) => self
                        .map
                        .trims
                        .on_relocate(from[done], Ppn::new(first.raw() + done as u32)),
                    (_, lpn) => return Err(misplaced(from[done], lpn)),
                }
                done += 1;
                let to = Ppn::new(first.raw() + done as u32);
                let pages = &mut self.map.pages;
                done += remap(pages, logical, to, &moved[done..], &from[done..]);
            }
            let copied = &from[..taken as usize];
            if M::SORTED {
                copied
                    .iter()
                    .for_each(|ppn| self.space.table.set_invalid(*ppn));
            } else {
                self.space.table.set_pages_invalid(copied);
            }
            (data, records, from) = (
                &data[taken as usize * page..],
                rest,
                &from[taken as usize..],
            );
        }
        self.space.flash.end_parts(parts);
        self.map.streams.keep_lane(false);
        Ok(total as u32)
    }

    /// Finds the owners of valid pages with a lost record. It searches the map, because such pages
    /// are very rare.
    #[cold]
    fn find_lost_owners(&mut self) -> Result<(), FtlError> {
        let unknown: Vec<(usize, Ppn)> = self.gc.pages.unknown().collect();
        if M::PREDICTS {
            return self.find_predicted_owners(&unknown);
        }
        for (i, ppn) in unknown {
            let mut pages = (0..self.logical_pages).map(Lpn::new);
            let owner = pages.find(|lpn| self.map.pages.get(*lpn) == Some(ppn));
            let lpn = owner.map_or(UNMAPPED, Lpn::raw);
            let role = if lpn == UNMAPPED {
                Role::Trim
            } else {
                Role::Data
            };
            self.gc.pages.name(i, role, lpn, self.next_ver);
            self.next_ver += 1;
        }
        Ok(())
    }

    /// Programs a trim record, which is valid from then on.
    pub(super) fn write_trim_record(
        &mut self,
        first: Lpn,
        count: u32,
        ver: u64,
    ) -> Result<(), FtlError> {
        let lpn = first.raw();
        let range = TrimRange { lpn, count, ver };
        let ppn = program_record(&mut self.space, HOST, range, ver)?;
        self.map.trims.add(
            ppn,
            InCheckpoint {
                ver,
                contained_in: self.checkpoints.next_id(),
            },
        );
        Ok(())
    }
}

/// Points the map at the copies of these pages, stored from `to` on, up to the first page that the
/// map does not name. Returns their number. (A separate function: the loop needs every register.)
#[inline(never)]
fn remap<M: PageMap>(
    map: &mut M,
    logical_pages: u32,
    to: Ppn,
    records: &[[u8; OOB_SLOT]],
    from: &[Ppn],
) -> usize {
    let pages = to.run(to_u32(records.len())).zip(records.iter().zip(from));
    let is_named = |(to, (record, from)): (Ppn, (&[u8; OOB_SLOT], &Ppn))| {
        let lpn = Lpn::new(Oob::lpn(record));
        // A trim record near a prediction has the number of its first page.
        let is_data = !M::PREDICTS || Oob::owner(record).0 == Role::Data;
        is_data && lpn.raw() < logical_pages && map.replace(lpn, *from, to)
    };
    pages
        .map(is_named)
        .position(|named| !named)
        .unwrap_or(records.len())
}
