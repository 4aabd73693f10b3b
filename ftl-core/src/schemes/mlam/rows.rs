//! Writing a superblock row by row: the pages of a row are programmed on all chips in parallel.
//! Each comes from the buffer or from another block of the same chip, or is a hole.

use super::shape::Spot;
use super::state::{Mlam, MlamFtl, SPARE_BYTES, chip_stream};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::int::index;
use crate::ram::{vec_bytes, vec_most};
use crate::space::Space;
use nand_model::{Cause, Geometry, Nanos, Ppn};

/// Buffers for a row.
pub(super) struct Rows {
    pub(super) columns: Vec<Column>,
    pub(super) data: Vec<u8>,
    pub(super) blank: Vec<u8>,
}

impl Rows {
    pub(super) fn new(geometry: &Geometry, chips: u32) -> Self {
        let page = geometry.page_len();
        Rows {
            columns: Vec::new(),
            data: vec![0; index(chips) * page],
            blank: vec![0; page],
        }
    }

    /// Returns the bytes of the buffers: now, and at most.
    pub(super) fn ram(&self, chips: u32) -> (u64, u64) {
        let fixed = vec_bytes::<u8>(self.data.capacity() + self.blank.capacity());
        let columns = vec_bytes::<Column>(self.columns.capacity());
        (
            fixed + columns,
            fixed + vec_most::<Column>(u64::from(chips)),
        )
    }
}

/// A page of the current row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) chip: u32,
    pub(super) lpn: Lpn,
    pub(super) source: Source,
    /// Tag of its copy, if the page was read.
    pub(super) tag: Option<PageTag>,
}

/// Source of a page's content.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The buffer; `known` is the page's version if the page has been on flash.
    Ram {
        slot: u32,
        known: Option<u64>,
    },
    Flash(Ppn),
}

/// A programmed page; `ver` is its version if its content is in RAM.
pub(super) struct Placed {
    pub(super) lpn: Lpn,
    pub(super) ppn: Ppn,
    pub(super) ver: u64,
}

/// A superblock in progress.
pub(super) struct Writing {
    pub(super) psb: u32,
    pub(super) serial: u64,
    pub(super) placed: Vec<Placed>,
    pub(super) copied: u64,
}

/// Returns a writer of the OOB area's scheme part: the superblock's serial number.
pub(super) fn serial_part(serial: u64) -> impl Fn(Ppn, &mut [u8]) {
    move |_, spare| spare[..SPARE_BYTES].copy_from_slice(&serial.to_le_bytes()[..SPARE_BYTES])
}

impl Mlam {
    pub(super) fn look_up_row(
        &self,
        space: &Space,
        quarter: u32,
        row: u32,
        columns: &mut Vec<Column>,
    ) {
        columns.clear();
        for chip in 0..self.shape.chips {
            let lpn = self.shape.lpn(Spot { quarter, row, chip });
            if lpn.raw() >= self.logical_pages {
                break;
            }
            let in_ram = self.buffer.get(lpn).and_then(|entry| {
                let known = (!entry.fresh).then_some(entry.ver);
                Some(Source::Ram {
                    slot: entry.slot()?,
                    known,
                })
            });
            let source = in_ram.or_else(|| self.ppn_of(space, lpn).map(Source::Flash));
            columns.extend(source.map(|source| Column {
                chip,
                lpn,
                source,
                tag: None,
            }));
        }
    }

    /// Advances a chip to this row, by padding. Returns false if a program failed.
    pub(super) fn advance(
        &mut self,
        space: &mut Space,
        writing: &Writing,
        chip: u32,
        block_row: u32,
        blank: &[u8],
    ) -> Result<bool, FtlError> {
        const PADDING: PageTag = PageTag {
            role: Role::Pad,
            flags: Flags::NONE,
            lpn: UNMAPPED,
            ver: 0,
        };
        let (stream, geometry) = (chip_stream(chip), space.geometry());
        loop {
            let next = space.next_page(stream)?;
            match self.superblocks.block(writing.psb, chip) {
                None => self
                    .superblocks
                    .set_block(writing.psb, chip, geometry.block_of(next)),
                Some(block) if block != geometry.block_of(next) => return Ok(false),
                Some(_) => {}
            }
            if geometry.offset_of(next) == block_row {
                return Ok(true);
            }
            let padding = space.append_page(stream, PADDING, blank, Cause::Pad)?;
            space.table.set_invalid(padding);
            if padding != next {
                return Ok(false);
            }
        }
    }

    /// Copies a page that stays on its chip. Returns `None` if it does not stay there or is
    /// unreadable; false if a program failed.
    pub(super) fn copy_inside(
        &mut self,
        space: &mut Space,
        writing: &mut Writing,
        column: &Column,
        from: Ppn,
        cause: Cause,
    ) -> Result<Option<bool>, FtlError> {
        let stream = chip_stream(column.chip);
        let to = space.next_page(stream)?;
        if !space.flash.can_copy_back(from, to) {
            return Ok(None);
        }
        let part = serial_part(writing.serial);
        let Some(ppn) = space.append_copyback(stream, column.lpn.raw(), from, cause, part)? else {
            // If the stream continues elsewhere, a program failed; otherwise the page is
            // unreadable.
            return Ok((space.next_page(stream)? != to).then_some(false));
        };
        writing.placed.push(Placed {
            lpn: column.lpn,
            ppn,
            ver: 0,
        });
        writing.copied += 1;
        Ok(Some(ppn == to))
    }

    pub(super) fn program_column(
        &mut self,
        space: &mut Space,
        writing: &mut Writing,
        column: &Column,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let stream = chip_stream(column.chip);
        let to = space.next_page(stream)?;
        let ppn = space.append_with_spare(stream, tag, data, cause, serial_part(writing.serial))?;
        writing.placed.push(Placed {
            lpn: column.lpn,
            ppn,
            ver: tag.ver,
        });
        writing.copied += 1;
        Ok(ppn == to)
    }
}

impl MlamFtl {
    /// Writes all rows of the superblock. Returns false if a program failed.
    pub(super) fn write_rows(
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
                self.map
                    .look_up_row(&self.space, *quarter, row, &mut rows.columns);
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

    /// Programs a row: chips work in parallel, and the next row begins when all are done. Pages
    /// that cannot stay on their chip are read before any page of the row is programmed.
    pub(super) fn write_row(
        &mut self,
        writing: &mut Writing,
        rows: &mut Rows,
        block_row: u32,
        cause: Cause,
    ) -> Result<bool, FtlError> {
        assert_eq!(
            rows.data.len(),
            index(self.map.shape.chips) * rows.blank.len(),
            "row buffer is not one page per chip long"
        );
        debug_assert!(
            rows.columns.is_sorted_by_key(|column| column.chip),
            "pages of a row are not in ascending order of chips"
        );
        let begin = self.space.flash.now();
        let (mut read, mut end) = (begin, begin);
        for column in &mut rows.columns {
            self.space.flash.begin(begin);
            if !self.map.advance(
                &mut self.space,
                writing,
                column.chip,
                block_row,
                &rows.blank,
            )? {
                return Ok(false);
            }
            if let Source::Flash(from) = column.source {
                self.space.flash.begin(begin);
                let page = self.space.geometry().page_len();
                let data = &mut rows.data[index(column.chip) * page..][..page];
                match self
                    .map
                    .copy_inside(&mut self.space, writing, column, from, cause)?
                {
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
                        let data = &rows.data[index(column.chip) * page..][..page];
                        self.map.program_column(
                            &mut self.space,
                            writing,
                            column,
                            tag,
                            data,
                            cause,
                        )?
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

    /// Reads a page to be copied, and returns the tag of its copy. An unreadable page stays an
    /// error to read; its version stays the same, or becomes newer.
    pub(super) fn read_for_copy(
        &mut self,
        lpn: Lpn,
        from: Ppn,
        data: &mut [u8],
        cause: Cause,
    ) -> Result<PageTag, FtlError> {
        let is_it = |tag: &PageTag| tag.lpn == lpn.raw() && tag.role.is_host_data();
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
            lpn: lpn.raw(),
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

    pub(super) fn program_buffered(
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
            lpn: column.lpn.raw(),
            ver,
        };
        let stream = chip_stream(column.chip);
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
}
