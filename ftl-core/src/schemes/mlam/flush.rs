//! Writing superblocks: rows of pages over all chips, new ones from the buffer, unchanged ones
//! copied along; what follows for the tables; reorganisation (section 4.4); and the journal.
//!
//! What always holds: a page counts from its program on. Where a program fails, or the host has no
//! room, the superblock is left as it is: its pages are buffered pages that are on flash, its
//! blocks are emptied later. If power fails, a mount finds the same.

use super::mapping::Place;
use super::policy::{self, Policy, Virtual};
use super::shape::{QUARTERS, Spot};
use super::{COMMON, FIRST_CHIP, MAX_CANDIDATES, MlamFtl, SPARE_BYTES};
use crate::block_table::State;
use crate::error::FtlError;
use crate::events::EventKind;
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::gc::Collect;
use nand_model::{Cause, Geometry, Nanos, Pbn, Ppn, Store};

/// Superblocks flushed between two looks at `k_empty`.
const WINDOW: u64 = 64;
/// Where `k_empty` begins if it adapts.
const FIRST_K_EMPTY: u32 = 3;
/// Superblocks that are put together after one was flushed, at most.
const MAX_REORGANISED: u32 = 4;

/// What flushing costs, and what follows from it.
pub(super) struct Cost {
    /// Superblocks flushed.
    flushed: u64,
    /// Pages copied along with flushed ones, and to put superblocks together: in this window, and
    /// since the beginning.
    merged: [u64; 2],
    reorganised: [u64; 2],
    /// Windows in a row without reorganisation.
    quiet: u32,
    fixed: Option<u32>,
    k_empty: u32,
    /// By logical superblock: when it was written last, in superblocks flushed.
    written: Vec<u64>,
}

impl Cost {
    pub(super) fn new(logical: u32, k_empty: Option<u32>) -> Self {
        Cost {
            flushed: 0,
            merged: [0; 2],
            reorganised: [0; 2],
            quiet: 0,
            fixed: k_empty,
            k_empty: k_empty.unwrap_or(FIRST_K_EMPTY),
            written: vec![0; logical as usize],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        8 * self.written.len() as u64
    }

    /// A superblock was flushed. Where reorganisation costs more than merges, coarser mapping is
    /// worth it; where it costs nothing, finer mapping is.
    pub(super) fn note_flush(&mut self, copied: u64) {
        self.flushed += 1;
        self.merged = self.merged.map(|pages| pages + copied);
        if self.fixed.is_some() || !self.flushed.is_multiple_of(WINDOW) {
            return;
        }
        let (merged, reorganised) = (
            std::mem::take(&mut self.merged[0]),
            std::mem::take(&mut self.reorganised[0]),
        );
        self.quiet = if reorganised == 0 { self.quiet + 1 } else { 0 };
        if reorganised > merged {
            self.k_empty = (self.k_empty + 1).min(7);
        } else if merged > 2 * reorganised && self.quiet >= 2 {
            self.k_empty = self.k_empty.saturating_sub(1);
        }
    }

    pub(super) fn note_reorganisation(&mut self, copied: u64) {
        self.reorganised = self.reorganised.map(|pages| pages + copied);
    }

    #[cfg(test)]
    pub(super) fn k_empty(&self) -> u32 {
        self.k_empty
    }

    /// Pages copied along with flushed ones, and by reorganisation.
    #[cfg(test)]
    pub(super) fn copies(&self) -> (u64, u64) {
        (self.merged[1], self.reorganised[1])
    }
}

/// Where the content of a page comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The buffer; with its version, where it has been on flash.
    Ram {
        slot: u32,
        known: Option<u64>,
    },
    Flash(Ppn),
}

/// A page of the row at hand.
#[derive(Clone, Copy, Debug)]
struct Column {
    chip: u32,
    lpn: u32,
    source: Source,
    /// Of what was read: what its copy says.
    tag: Option<PageTag>,
}

/// Room for a row.
pub(super) struct Rows {
    columns: Vec<Column>,
    data: Vec<u8>,
    blank: Vec<u8>,
}

impl Rows {
    pub(super) fn new(geometry: &Geometry, chips: u32) -> Self {
        let page = geometry.page_bytes as usize;
        Rows {
            columns: Vec::new(),
            data: vec![0; chips as usize * page],
            blank: vec![0; page],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.data.len() + self.blank.len()) as u64
    }
}

/// A superblock on its way.
struct Writing {
    psb: u32,
    serial: u64,
    placed: Vec<Placed>,
    copied: u64,
}

/// A page that was programmed; its version where RAM has its content.
struct Placed {
    lpn: u32,
    ppn: Ppn,
    ver: u64,
}

/// Writes the scheme part: the superblock's serial number.
fn serial_part(serial: u64) -> impl Fn(Ppn, &mut [u8]) {
    move |_, spare| spare[..SPARE_BYTES].copy_from_slice(&serial.to_le_bytes()[..SPARE_BYTES])
}

impl<S: Store> MlamFtl<S> {
    /// Flushes until enough of the buffer is free.
    pub(super) fn drain(&mut self) -> Result<(), FtlError> {
        if self.map.settings.policy == Policy::FlushAll {
            return self.drain_all();
        }
        while self.map.buffer.free_share() <= self.map.settings.high && self.evict()? {}
        Ok(())
    }

    pub(super) fn drain_all(&mut self) -> Result<(), FtlError> {
        while self.evict()? {}
        Ok(())
    }

    /// Flushes one superblock. False if nothing is buffered.
    fn evict(&mut self) -> Result<bool, FtlError> {
        self.collect_until(self.gc.threshold + 1)?;
        self.upkeep()?;
        let Some(chosen) = self.choose() else {
            return Ok(false);
        };
        let copied = self.write_superblock(&chosen, Cause::Merge)?;
        self.map.cost.note_flush(copied);
        self.reorganise()?;
        Ok(true)
    }

    /// The superblock to flush next, virtual or not.
    pub(super) fn choose(&self) -> Option<Virtual> {
        let settings = &self.map.settings;
        let candidates = |count| {
            policy::candidates(
                &self.map.buffer,
                &self.map.shape,
                settings.policy,
                settings.alpha,
                count,
            )
        };
        if settings.policy != Policy::Mlam {
            return candidates(1)
                .first()
                .map(|victim| self.whole(victim.logical));
        }
        let superchip = |quarter| self.superchip_of(quarter);
        let compose = |count| {
            let cut = |candidate| {
                policy::pieces(candidate, &self.map.shape, self.map.cost.k_empty, superchip)
            };
            policy::compose(&candidates(count).iter().flat_map(cut).collect::<Vec<_>>())
        };
        let usual = compose(settings.candidates)?;
        if usual.is_full() {
            Some(usual)
        } else {
            compose(MAX_CANDIDATES)
        }
    }

    /// A logical superblock as a whole.
    fn whole(&self, logical: u32) -> Virtual {
        let quarters = logical * QUARTERS..(logical + 1) * QUARTERS;
        let superchip = quarters
            .clone()
            .find_map(|quarter| self.superchip_of(quarter));
        Virtual::new(quarters.collect(), superchip)
    }

    fn superchip_of(&self, quarter: u32) -> Option<u32> {
        self.quarter_at(quarter)
            .map(|place| self.map.superblocks.get(place.psb).superchip)
    }

    /// The wanted superchip if it has blocks for a superblock, else that with blocks for the most.
    fn superchip_with_room(&self, wanted: Option<u32>) -> u32 {
        let room = |superchip: u32| {
            let dies = (0..self.map.shape.chips).map(|chip| self.map.shape.die(superchip, chip));
            dies.map(|die| self.space.free_blocks_on(die))
                .min()
                .unwrap_or(0)
        };
        let roomiest = || {
            (0..self.map.shape.superchips())
                .rev()
                .max_by_key(|superchip| room(*superchip))
                .unwrap_or(0)
        };
        wanted
            .filter(|superchip| room(*superchip) > 0)
            .unwrap_or_else(roomiest)
    }

    /// Writes these quarters into a superblock, with all that is buffered of them. `cause` is that
    /// of unchanged pages. Returns how many of those there were.
    pub(super) fn write_superblock(
        &mut self,
        plan: &Virtual,
        cause: Cause,
    ) -> Result<u64, FtlError> {
        let began = self.space.flash.now();
        let superchip = self.superchip_with_room(plan.superchip);
        let serial = self.space.next_epoch();
        for chip in 0..self.map.shape.chips {
            self.space.prefer_die(
                FIRST_CHIP + chip as usize,
                self.map.shape.die(superchip, chip),
            );
        }
        let psb = self
            .map
            .superblocks
            .open(self.map.shape.chips, superchip, serial);
        let mut writing = Writing {
            psb,
            serial,
            placed: Vec::new(),
            copied: 0,
        };
        let outcome = self.write_rows(&mut writing, &plan.slots, cause);
        let unfinished = self.close_blocks()?;
        if matches!(outcome, Ok(true)) {
            self.settle(&writing, &plan.slots);
            let kind = match cause {
                Cause::Gc => EventKind::Collect,
                Cause::Convert => EventKind::Convert,
                _ => EventKind::BufferFlush,
            };
            self.space
                .note_event(kind, None, writing.copied as u32, began);
        } else {
            writing
                .placed
                .iter()
                .for_each(|page| self.now_on_flash(page.lpn, page.ppn, page.ver));
            self.dissolve(psb);
            unfinished.into_iter().for_each(|block| self.loosen(block));
        }
        outcome.map(|_| writing.copied)
    }

    /// The chips' blocks take no more pages. Returns those that were open.
    fn close_blocks(&mut self) -> Result<Vec<Pbn>, FtlError> {
        let streams = FIRST_CHIP..FIRST_CHIP + self.map.shape.chips as usize;
        let open = streams
            .clone()
            .filter_map(|stream| self.space.open_block(stream))
            .map(|(block, _)| block)
            .collect();
        for stream in streams {
            self.space.seal(stream)?;
        }
        Ok(open)
    }

    /// A full block that is no part of a superblock: emptied page by page when its turn comes, or
    /// given up.
    pub(super) fn loosen(&mut self, block: Pbn) {
        if self.space.table.state(block) != State::Full {
            return;
        }
        if self.space.table.valid(block) > 0 {
            self.space.table.set_collectable(block);
        } else {
            self.space.release(block);
        }
    }

    /// All pages are where the tables will say.
    fn settle(&mut self, writing: &Writing, slots: &[u32]) {
        let mut live = vec![0; slots.len()];
        for Placed { lpn, ppn, .. } in &writing.placed {
            let old = self.place_of(*lpn);
            self.map.buffer.remove(*lpn);
            self.map.unborn -= self.map.trims.map(*lpn) as u64;
            if let Some(old) = old {
                self.give_up_place(*lpn, old);
            }
            let (loc, _) = self
                .map
                .shape
                .loc_and_row(*ppn)
                .expect("it is in one of the slots");
            live[loc as usize] += 1;
        }
        let mut moved = Vec::new();
        for ((loc, quarter), live) in (0..).zip(slots).zip(live) {
            let place = Place {
                psb: writing.psb,
                loc,
            };
            if live > 0 {
                self.map.superblocks.hold(place, *quarter, live);
                moved.push((*quarter, place));
            }
        }
        let mut logical: Vec<u32> = slots.iter().map(|quarter| quarter / QUARTERS).collect();
        logical.dedup();
        for logical in logical {
            self.remap(logical, &moved);
            self.map.cost.written[logical as usize] = self.map.cost.flushed;
        }
        if moved.is_empty() {
            self.dissolve(writing.psb);
        }
    }

    /// The newest content of a page is on flash now, where no table says.
    fn now_on_flash(&mut self, lpn: u32, ppn: Ppn, ver: u64) {
        let old = self.place_of(lpn);
        self.map.buffer.programmed(lpn, ppn.raw(), ver);
        self.map.unborn -= self.map.trims.map(lpn) as u64;
        if let Some(old) = old {
            self.give_up_place(lpn, old);
        }
    }

    /// False if a program failed.
    fn write_rows(
        &mut self,
        writing: &mut Writing,
        slots: &[u32],
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let mut rows = std::mem::replace(
            &mut self.map.rows,
            Rows {
                columns: vec![],
                data: vec![],
                blank: vec![],
            },
        );
        let mut outcome = Ok(true);
        'slots: for (loc, quarter) in (0..).zip(slots) {
            for row in 0..self.map.shape.rows {
                self.look_up_row(*quarter, row, &mut rows.columns);
                outcome = self.write_row(
                    writing,
                    &mut rows,
                    self.map.shape.block_row(loc, row),
                    cause,
                );
                if !matches!(outcome, Ok(true)) {
                    break 'slots;
                }
            }
        }
        self.map.rows = rows;
        outcome
    }

    fn look_up_row(&self, quarter: u32, row: u32, columns: &mut Vec<Column>) {
        columns.clear();
        for chip in 0..self.map.shape.chips {
            let lpn = self.map.shape.lpn(Spot { quarter, row, chip });
            if lpn >= self.logical_pages {
                break;
            }
            let in_ram = self.map.buffer.get(lpn).and_then(|entry| {
                let known = (!entry.fresh).then_some(entry.ver);
                Some(Source::Ram {
                    slot: entry.slot()?,
                    known,
                })
            });
            let source = in_ram.or_else(|| self.place_of(lpn).map(Source::Flash));
            columns.extend(source.map(|source| Column {
                chip,
                lpn,
                source,
                tag: None,
            }));
        }
    }

    /// Programs a row: chips work side by side, and the next row begins when all are done. What
    /// cannot stay on its chip is read before any of it is programmed.
    fn write_row(
        &mut self,
        writing: &mut Writing,
        rows: &mut Rows,
        block_row: u32,
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let begin = self.space.flash.now();
        let (mut read, mut end) = (begin, begin);
        for column in &mut rows.columns {
            self.space.flash.begin(begin);
            if !self.advance(writing, column.chip, block_row, &rows.blank)? {
                return Ok(false);
            }
            if let Source::Flash(from) = column.source {
                self.space.flash.begin(begin);
                let page = self.space.geometry().page_bytes as usize;
                let data = &mut rows.data[column.chip as usize * page..][..page];
                match self.copy_inside(writing, column, from, cause)? {
                    Some(true) => {}
                    Some(false) => return Ok(false),
                    None => {
                        column.tag = Some(self.read_for_copy(column.lpn, from, data, cause)?);
                        read = read.max(self.space.flash.now());
                    }
                }
            }
            end = end.max(self.space.flash.now());
        }
        for column in &rows.columns {
            let went_well = match column.source {
                Source::Ram { slot, known } => {
                    self.program_buffered(writing, column, slot, known, begin)?
                }
                Source::Flash(_) => match column.tag {
                    Some(tag) => {
                        self.space.flash.begin(read);
                        let page = rows.blank.len();
                        let data = &rows.data[column.chip as usize * page..][..page];
                        self.program_column(writing, column, tag, data, cause)?
                    }
                    None => true,
                },
            };
            if !went_well {
                return Ok(false);
            }
            end = end.max(self.space.flash.now());
        }
        self.space.flash.begin(end);
        Ok(true)
    }

    /// Makes a chip's next page that of this row, by filler. False if a program failed.
    fn advance(
        &mut self,
        writing: &Writing,
        chip: u32,
        block_row: u32,
        blank: &[u8],
    ) -> Result<bool, FtlError> {
        const FILLER: PageTag = PageTag {
            role: Role::Pad,
            flags: Flags::NONE,
            lpn: UNMAPPED,
            ver: 0,
        };
        let (stream, geometry) = (FIRST_CHIP + chip as usize, self.space.geometry());
        loop {
            let next = self.space.next_page(stream)?;
            match self.map.superblocks.block(writing.psb, chip) {
                None => self
                    .map
                    .superblocks
                    .set_block(writing.psb, chip, geometry.block_of(next)),
                Some(block) if block != geometry.block_of(next) => return Ok(false),
                Some(_) => {}
            }
            if geometry.offset_of(next) == block_row {
                return Ok(true);
            }
            let filler = self.space.append_page(stream, FILLER, blank, Cause::Pad)?;
            self.space.table.clear_live(filler);
            if filler != next {
                return Ok(false);
            }
        }
    }

    /// Copies a page that stays on its chip. `None` if it does not, or cannot be read; false if a
    /// program failed.
    fn copy_inside(
        &mut self,
        writing: &mut Writing,
        column: &Column,
        from: Ppn,
        cause: Cause,
    ) -> Result<Option<bool>, FtlError> {
        let stream = FIRST_CHIP + column.chip as usize;
        let to = self.space.next_page(stream)?;
        if !self.space.flash.can_copy_back(from, to) {
            return Ok(None);
        }
        let part = serial_part(writing.serial);
        let Some(ppn) = self
            .space
            .append_copyback(stream, column.lpn, from, cause, part)?
        else {
            // A program failed if the stream goes on elsewhere; otherwise the page is unreadable.
            return Ok((self.space.next_page(stream)? != to).then_some(false));
        };
        writing.placed.push(Placed {
            lpn: column.lpn,
            ppn,
            ver: 0,
        });
        writing.copied += 1;
        Ok(Some(ppn == to))
    }

    /// Reads a page to be copied, and says what its copy is: one that cannot be read stays an error
    /// to read, and is as new as it was, or newer.
    pub(super) fn read_for_copy(
        &mut self,
        lpn: u32,
        from: Ppn,
        data: &mut [u8],
        cause: Cause,
    ) -> Result<PageTag, FtlError> {
        let is_it = |tag: &PageTag| tag.lpn == lpn && tag.role.is_host_data();
        let copy = |tag: PageTag| PageTag {
            role: Role::Data,
            flags: tag.flags.with(Flags::COPY),
            ..tag
        };
        if let Some(oob) = self
            .space
            .flash
            .read(from, data, cause)?
            .filter(|oob| is_it(&oob.tag))
        {
            return Ok(copy(oob.tag));
        }
        let known = self
            .space
            .flash
            .read_oob(from, cause)?
            .map(|oob| oob.tag)
            .filter(is_it);
        let unknown = PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn,
            ver: self.next_ver,
        };
        if known.is_none() {
            self.next_ver += 1;
        }
        let tag = known.unwrap_or(unknown);
        data.fill(0);
        Ok(PageTag {
            flags: tag.flags.with(Flags::COPY).with(Flags::LOST),
            role: Role::Data,
            ..tag
        })
    }

    fn program_buffered(
        &mut self,
        writing: &mut Writing,
        column: &Column,
        slot: u32,
        known: Option<u64>,
        begin: Nanos,
    ) -> Result<bool, FtlError> {
        let (flags, ver) = match known {
            Some(ver) => (Flags::COPY, ver),
            None => (Flags::NONE, self.new_version()),
        };
        self.space.flash.begin(begin);
        let tag = PageTag {
            role: Role::Data,
            flags,
            lpn: column.lpn,
            ver,
        };
        let stream = FIRST_CHIP + column.chip as usize;
        let to = self.space.next_page(stream)?;
        let part = serial_part(writing.serial);
        let ppn = self.space.append_with_spare(
            stream,
            tag,
            self.map.buffer.data(slot),
            Cause::Host,
            part,
        )?;
        writing.placed.push(Placed {
            lpn: column.lpn,
            ppn,
            ver,
        });
        Ok(ppn == to)
    }

    fn program_column(
        &mut self,
        writing: &mut Writing,
        column: &Column,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let stream = FIRST_CHIP + column.chip as usize;
        let to = self.space.next_page(stream)?;
        let ppn =
            self.space
                .append_with_spare(stream, tag, data, cause, serial_part(writing.serial))?;
        writing.placed.push(Placed {
            lpn: column.lpn,
            ppn,
            ver: tag.ver,
        });
        writing.copied += 1;
        Ok(ppn == to)
    }

    /// Puts superblocks together while the tables are too large, and there is room: those that were
    /// not written for long and save much.
    fn reorganise(&mut self) -> Result<(), FtlError> {
        for _ in 0..MAX_REORGANISED {
            if self.map.mapping.bits() as f64
                <= self.map.settings.smax * self.map.mapping.base_bits() as f64
            {
                return Ok(());
            }
            let value = |logical: u32| {
                let age = self.map.cost.flushed + 1 - self.map.cost.written[logical as usize];
                self.map.mapping.gain(logical) * age
            };
            let unbuffered = |logical: &u32| self.map.buffer.unit(*logical).is_none();
            let all = 0..self.map.shape.superblocks(self.logical_pages);
            let best = all
                .filter(unbuffered)
                .map(|logical| (value(logical), logical))
                .max();
            let Some((1.., logical)) = best else {
                return Ok(());
            };
            self.collect_until(self.gc.threshold + 1)?;
            // Collecting may have done it.
            if self.map.mapping.gain(logical) > 0 {
                let copied = self.write_superblock(&self.whole(logical), Cause::Convert)?;
                self.map.cost.note_reorganisation(copied);
            }
        }
        Ok(())
    }

    /// Appends everything to the journal that is in RAM alone. A device that takes no more writes
    /// has room for that.
    pub(super) fn write_journal(&mut self) -> Result<(), FtlError> {
        while self.map.buffer.first_fresh().is_some() {
            match self.make_room(COMMON) {
                Err(FtlError::ReadOnly(_)) => {}
                other => other?,
            }
            // Making room may have flushed it.
            let Some(lpn) = self.map.buffer.first_fresh() else {
                break;
            };
            let slot = self
                .map
                .buffer
                .get(lpn)
                .and_then(|entry| entry.slot())
                .expect("what is fresh is in RAM");
            let ver = self.new_version();
            let tag = PageTag {
                role: Role::Journal,
                flags: Flags::NONE,
                lpn,
                ver,
            };
            let ppn =
                self.space
                    .append_page(COMMON, tag, self.map.buffer.data(slot), Cause::Journal)?;
            self.now_on_flash(lpn, ppn, ver);
        }
        Ok(())
    }
}
