//! Garbage collection (the paper's future work). GC gathers the quarters of the emptiest
//! superblocks into one. If there are too few free blocks for that, it takes the emptiest
//! superblock apart. It empties blocks of the journal, and the remains of unfinished superblocks,
//! one by one into the common blocks. A single block of a superblock (failing, worn or fading) is
//! copied row by row to another block of its chip, so that no table changes.

use super::mapping::Location;
use super::policy::{self, Virtual};
use super::shape::{QUARTERS, Spot};
use super::state::{COMMON, Mlam, MlamFtl, SPARE_BYTES, chip_stream};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::copy::misplaced;
use crate::error::FtlError;
use crate::families::one_by_one::OneByOne;
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::gc::{GarbageCollect, GcState};
use crate::int::{index, to_u32};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn};

impl GarbageCollect for MlamFtl {
    #[inline]
    fn parts(&mut self) -> (&mut Space, &mut GcState) {
        (&mut self.space, &mut self.gc)
    }

    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        match self.map.superblocks.owner(victim) {
            Some(_) if !self.space.is_mounting() => 1,
            _ => self
                .space
                .blocks_for(COMMON, self.space.table.valid_count(victim)),
        }
    }

    fn select_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        Ok(self.space.table.greedy_victim())
    }

    fn prepare_victim(&mut self, block: Pbn) -> Result<bool, FtlError> {
        // The state of a clean shutdown is obsolete once the device is in use again.
        Ok(self.space.table.role(block) != Role::Checkpoint)
    }

    fn gc_group(&mut self) -> Result<bool, FtlError> {
        if self.space.is_mounting() || self.space.failing_block().is_some() {
            return Ok(false);
        }
        if self.space.free_blocks() <= self.map.shape.chips {
            return Ok(self.map.take_emptiest_apart(&mut self.space));
        }
        let loose = self
            .space
            .table
            .greedy_victim()
            .map(|block| self.space.table.valid_count(block));
        let pages = self.space.geometry().pages_per_block;
        let plan = match self.map.quarters_to_gather() {
            // The valid share of the greedy victim is at least that of the emptiest superblock.
            Some((held, plan)) if loose.is_none_or(|valid| held * pages <= valid * QUARTERS) => {
                plan
            }
            Some(_) => return Ok(false),
            // Superblocks and journal are full: flushing makes holes in both.
            None if loose.is_none_or(|valid| 4 * valid > 3 * pages) => match self.map.choose() {
                Some(plan) => plan,
                None => return Ok(false),
            },
            None => return Ok(false),
        };
        let copied = self.write_superblock(&plan, Cause::Gc)?;
        self.gc.note_run(copied);
        Ok(true)
    }

    fn relocate_valid(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        if let Some((psb, chip)) = self
            .map
            .superblocks
            .owner(victim)
            .filter(|_| !self.space.is_mounting())
        {
            return self.copy_block(victim, psb, chip, cause);
        }
        self.withdrawn(victim, |ftl| ftl.copy_pages(victim, u32::MAX, cause))
    }

    fn use_worn_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        let stream = self
            .map
            .superblocks
            .owner(block)
            .map_or(COMMON, |(_, chip)| chip_stream(chip));
        self.space.use_worn_block(stream)
    }

    fn release_block(&mut self, block: Pbn) {
        self.map.superblocks.remove_block(block);
        // The last page may have dissolved its superblock.
        if self.space.table.state(block) == State::Full {
            self.space.release(block);
        }
    }
}

impl Mlam {
    /// Takes the emptiest superblock apart. Failed programs left too few free blocks for another
    /// superblock; GC empties these blocks one by one, each into at most one common block. Returns
    /// false if that frees no space, or if another block frees more.
    fn take_emptiest_apart(&mut self, space: &mut Space) -> bool {
        let Some((psb, valid)) = self.superblocks.fewest_valid() else {
            return false;
        };
        let loose = space
            .table
            .greedy_victim()
            .map(|block| space.table.valid_count(block));
        let blocks = to_u32(self.superblocks.get(psb).blocks().count());
        let pays = valid < blocks * loose.unwrap_or(space.pages_per_block());
        if pays {
            self.take_apart(space, psb);
        }
        pays
    }

    /// Returns quarters of the emptiest superblocks, as many as one takes, and how many the
    /// emptiest has. Returns `None` if no number of such steps would free a superblock.
    fn quarters_to_gather(&self) -> Option<(u32, Virtual)> {
        let emptiest = self.superblocks.emptiest_first();
        let held = |psb: &u32| to_u32(self.superblocks.get(*psb).held().count());
        let holes: u32 = emptiest.iter().map(|psb| QUARTERS - held(psb)).sum();
        let first = *emptiest.first()?;
        if holes < QUARTERS {
            return None;
        }
        let quarters = emptiest.iter().flat_map(|psb| {
            self.superblocks
                .get(*psb)
                .held()
                .map(|(_, quarter)| quarter)
        });
        let mut quarters: Vec<u32> = quarters.take(index(QUARTERS)).collect();
        let slots = policy::arrange(policy::joined(&mut quarters).into_iter());
        Some((
            held(&first),
            Virtual::new(slots, Some(self.superblocks.get(first).superchip)),
        ))
    }

    /// Returns the logical page of a valid page in a superblock's block, by tables or buffer.
    fn owner_in_superblock(
        &mut self,
        space: &mut Space,
        ppn: Ppn,
        cause: Cause,
    ) -> Result<Lpn, FtlError> {
        let (psb, chip) = self
            .superblocks
            .owner(space.geometry().block_of(ppn))
            .expect("the block belongs to a superblock");
        if let Some((loc, row)) = self.shape.loc_and_row(ppn) {
            let held = self.superblocks.get(psb).held().find(|(at, _)| *at == loc);
            let lpn = held.map(|(_, quarter)| self.shape.lpn(Spot { quarter, row, chip }));
            if let Some(lpn) = lpn.filter(|lpn| {
                lpn.raw() < self.logical_pages && self.ppn_of(space, *lpn) == Some(ppn)
            }) {
                return Ok(lpn);
            }
        }
        let said = space
            .flash
            .read_oob(ppn, cause)?
            .map(|oob| Lpn::new(oob.tag.lpn));
        let is_it =
            |lpn: &Lpn| lpn.raw() < self.logical_pages && self.ppn_of(space, *lpn) == Some(ppn);
        match said.filter(is_it) {
            Some(lpn) => Ok(lpn),
            None => self
                .buffered_at(ppn)
                .ok_or_else(|| misplaced(ppn, said.map_or(UNMAPPED, Lpn::raw))),
        }
    }

    fn buffered_at(&self, ppn: Ppn) -> Option<Lpn> {
        self.buffer
            .iter()
            .find(|(_, entry)| entry.ppn() == Some(ppn))
            .map(|(lpn, _)| lpn)
    }

    /// Returns superblock and location of a page by its position, without the tables.
    pub(super) fn location_by_position(
        &self,
        space: &Space,
        lpn: Lpn,
        ppn: Ppn,
    ) -> Option<Location> {
        let (psb, chip) = self.superblocks.owner(space.geometry().block_of(ppn))?;
        let (loc, row) = self.shape.loc_and_row(ppn)?;
        let spot = self.shape.spot(lpn);
        (spot.row == row && spot.chip == chip).then_some(Location { psb, loc })
    }
}

impl MlamFtl {
    /// Ensures that the stream can take a page without using the reserve.
    #[inline]
    pub(super) fn ensure_space(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        self.gc.refuse_if_read_only()?;
        self.gc_until(self.gc.threshold + 1)?;
        self.maintain()
    }

    /// Copies a block of a superblock into another one, each page into its row. If a program fails,
    /// the buffer gets the locations of the copies, and both blocks are emptied page by page.
    fn copy_block(
        &mut self,
        victim: Pbn,
        psb: u32,
        chip: u32,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        let superblock = self.map.superblocks.get(psb);
        let (serial, superchip) = (superblock.serial, superblock.superchip);
        let stream = chip_stream(chip);
        self.space
            .prefer_die(stream, self.map.shape.die(superchip, chip));
        let mut copies = Vec::new();
        let outcome = self.copy_rows(victim, chip, serial, cause, &mut copies);
        let target = self.space.open_block(stream).map(|(block, _)| block);
        self.space.seal(stream)?;
        let geometry = self.space.geometry();
        let moved = to_u32(copies.len());
        let new = copies.first().map(|(_, _, to)| geometry.block_of(*to));
        match (&outcome, new) {
            (Ok(true), Some(new)) => {
                self.map.superblocks.set_block(psb, chip, new);
                for (lpn, from, to) in copies {
                    self.space.table.set_invalid(from);
                    // By the tables the page has not moved; a page located by the buffer has.
                    if self.map.regular_location(&self.space, lpn, to).is_none() {
                        self.map.buffer.on_relocate(lpn, to);
                    }
                }
            }
            _ => {
                let blocks: Vec<Pbn> = copies
                    .iter()
                    .map(|(_, _, to)| geometry.block_of(*to))
                    .chain(target)
                    .collect();
                for (lpn, from, to) in copies {
                    self.map.buffer.on_relocate(lpn, to);
                    self.map.invalidate_page(&mut self.space, lpn, from);
                }
                for block in blocks {
                    self.map.detach_block(&mut self.space, block);
                }
                if outcome? {
                    return Ok(moved);
                }
                // The rest is copied page by page.
                return Ok(moved + self.copy_pages(victim, u32::MAX, cause)?);
            }
        }
        outcome.map(|_| moved)
    }

    /// Copies the valid pages of a superblock's block, row by row, and lists logical page, source
    /// and target. Returns false if a program failed.
    fn copy_rows(
        &mut self,
        victim: Pbn,
        chip: u32,
        serial: u64,
        cause: Cause,
        copies: &mut Vec<(Lpn, Ppn, Ppn)>,
    ) -> Result<bool, FtlError> {
        const PADDING: PageTag = PageTag {
            role: Role::Pad,
            flags: Flags::NONE,
            lpn: UNMAPPED,
            ver: 0,
        };
        let (stream, geometry) = (chip_stream(chip), self.space.geometry());
        let mut data = vec![0; geometry.page_len()];
        let mut pages = Vec::new();
        self.space.table.list_valid(victim, &mut pages);
        let part = move |_: Ppn, spare: &mut [u8]| {
            spare[..SPARE_BYTES].copy_from_slice(&serial.to_le_bytes()[..SPARE_BYTES]);
        };
        let mut block = None;
        for from in pages {
            let lpn = self.map.owner_in_superblock(&mut self.space, from, cause)?;
            let mut next = self.space.next_page(stream)?;
            let block = *block.get_or_insert(geometry.block_of(next));
            while geometry.offset_of(next) < geometry.offset_of(from) {
                data.fill(0);
                let padding = self.space.append_page(stream, PADDING, &data, Cause::Pad)?;
                self.space.table.set_invalid(padding);
                next = self.space.next_page(stream)?;
                if geometry.block_of(next) != block {
                    return Ok(false);
                }
            }
            let inside = match self.space.flash.can_copy_back(from, next) {
                true => self
                    .space
                    .append_copyback(stream, lpn.raw(), from, cause, part)?,
                false => None,
            };
            let to = match inside {
                Some(to) => to,
                None => {
                    let tag = self.read_for_copy(lpn, from, &mut data, cause)?;
                    self.space
                        .append_with_spare(stream, tag, &data, cause, part)?
                }
            };
            debug_assert!(
                to != next || geometry.offset_of(to) == geometry.offset_of(from),
                "copy {to} of page {from} is in another row"
            );
            copies.push((lpn, from, to));
            if to != next {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Pages go to the common blocks, and to the buffer's table.
impl OneByOne for MlamFtl {
    fn owner_of_page(&mut self, ppn: Ppn, cause: Cause) -> Result<Option<Lpn>, FtlError> {
        let block = self.space.geometry().block_of(ppn);
        if self.map.superblocks.owner(block).is_none() {
            return Ok(self.map.buffered_at(ppn));
        }
        let lpn = self.map.owner_in_superblock(&mut self.space, ppn, cause)?;
        Ok(Some(lpn))
    }

    fn copy_host_page(
        &mut self,
        from: Ppn,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (map, space) = (&mut self.map, &mut self.space);
        let lpn = Lpn::new(tag.lpn);
        if tag.lpn >= map.logical_pages || map.ppn_of(space, lpn) != Some(from) {
            return Err(misplaced(from, tag.lpn));
        }
        let to = space.append_page(COMMON, tag, data, cause)?;
        map.buffer.on_relocate(lpn, to);
        map.invalidate_page(space, lpn, from);
        Ok(())
    }
}
