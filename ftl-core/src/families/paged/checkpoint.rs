//! Checkpoints: the directory, the blocks with pages that the map may not contain, and the
//! locations of the trim records (LazyFTL's second recovery method). A checkpoint bounds the scan
//! of a mount; without one, the age window does.
//!
//! The content is the state at the start of the checkpoint. Pages programmed later are in the named
//! blocks or in blocks opened later, and a mount scans those.

use super::map::map_pages;
use super::policy::Policy;
use super::state::{CHECKPOINT, PagedFtl};
use crate::checkpoint::{Checkpoints, Found};
use crate::error::FtlError;
use crate::format::COUNTER_FOUND_MAX;
use crate::format::UNMAPPED;
use crate::ram::{vec_bytes, vec_most};
use nand_model::Geometry;

/// Content of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Written at shutdown: the update and cold area is empty, and that run programmed nothing
    /// after it.
    pub(crate) clean: bool,
    pub(crate) begin_pseq: u64,
    /// Blocks opened from this number on may contain newer pages.
    pub(crate) begin_epoch: u64,
    pub(crate) logical_pages: u64,
    /// Unconverted and open blocks.
    pub(crate) scan: Vec<u32>,
    /// Blocks known to be erased.
    pub(crate) free: Vec<u32>,
    /// Pages of valid trim records.
    pub(crate) trims: Vec<u32>,
    pub(crate) directory: Vec<u32>,
}

impl Content {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let head = [
            self.clean as u64,
            self.begin_pseq,
            self.begin_epoch,
            self.logical_pages,
        ];
        head.into_iter().for_each(|n| out.extend(n.to_le_bytes()));
        for list in [&self.scan, &self.free, &self.trims, &self.directory] {
            out.extend((list.len() as u32).to_le_bytes());
            list.iter().for_each(|n| out.extend(n.to_le_bytes()));
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Content> {
        let mut rest = bytes;
        let mut take = |n: usize| -> Option<&[u8]> {
            let (taken, left) = rest.split_at_checked(n)?;
            rest = left;
            Some(taken)
        };
        let mut word = || {
            Some(u64::from_le_bytes(
                take(8)?.try_into().expect("eight bytes"),
            ))
        };
        let (clean, begin_pseq, begin_epoch, logical_pages) =
            (word()? == 1, word()?, word()?, word()?);
        let mut list = || -> Option<Vec<u32>> {
            let len = u32::from_le_bytes(take(4)?.try_into().expect("four bytes")) as usize;
            let bytes = take(len.checked_mul(4)?)?;
            Some(
                bytes
                    .chunks_exact(4)
                    .map(|n| u32::from_le_bytes(n.try_into().expect("four bytes")))
                    .collect(),
            )
        };
        let (scan, free, trims, directory) = (list()?, list()?, list()?, list()?);
        Some(Content {
            clean,
            begin_pseq,
            begin_epoch,
            logical_pages,
            scan,
            free,
            trims,
            directory,
        })
    }

    /// Returns the content of a complete set, if it was made for a device of this size.
    pub(crate) fn of(set: &Found, logical_pages: u32, mapping_pages: usize) -> Option<Content> {
        let content = Content::decode(&set.bytes)?;
        let fits = content.logical_pages == logical_pages as u64
            && content.directory.len() == mapping_pages;
        let counts = content.begin_pseq.max(content.begin_epoch) <= COUNTER_FOUND_MAX;
        (fits && counts && content.begin_epoch > 0).then_some(content)
    }
}

/// A checkpoint in progress.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    clean: bool,
}

impl Writer {
    pub(crate) fn bytes(&self) -> u64 {
        vec_bytes::<u8>(self.bytes.capacity())
    }

    /// Returns the bytes at most of a checkpoint of this many pages.
    pub(crate) fn bytes_most(geometry: &Geometry, logical_pages: u32) -> u64 {
        let pages = Writer::pages(geometry, logical_pages, geometry.blocks);
        vec_most::<u8>(pages as u64 * geometry.page_bytes as u64)
    }

    /// Returns the maximum number of pages of a checkpoint.
    pub(crate) fn pages(geometry: &Geometry, logical_pages: u32, blocks: u32) -> u32 {
        // Free, named and open blocks are disjoint; there are never more records than pages in a
        // block.
        let numbers = map_pages(geometry, logical_pages) + blocks + geometry.pages_per_block;
        (48 + 4 * numbers as u64).div_ceil(Checkpoints::chunk_bytes(geometry) as u64) as u32
    }
}

/// Chunks written per host program while a checkpoint is in progress.
const CHUNKS_PER_PROGRAM: u32 = 1;

impl<P: Policy> PagedFtl<P> {
    /// Advances the checkpoint after `programs` host programs: begins one when it is due, and
    /// writes a few chunks.
    pub(crate) fn advance_checkpoint(&mut self, programs: u32) -> Result<(), FtlError> {
        if self.map.settings.checkpoint_interval == 0 {
            return Ok(());
        }
        if self.map.writer.is_none() {
            let wanted = std::mem::take(&mut self.gc.wants_checkpoint);
            if !wanted
                && self.space.flash.pseq() - self.map.last_checkpoint
                    < self.map.settings.checkpoint_interval
            {
                return Ok(());
            }
            self.begin_checkpoint(false)?;
        }
        for _ in 0..programs * CHUNKS_PER_PROGRAM {
            if self.map.writer.is_some() {
                self.write_chunk()?;
            }
        }
        Ok(())
    }

    /// Writes the rest of the checkpoint in progress, if there is one.
    fn finish_checkpoint(&mut self) -> Result<(), FtlError> {
        while self.map.writer.is_some() {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Writes a checkpoint at once; the device is idle and stays idle.
    pub(crate) fn write_whole_checkpoint(&mut self) -> Result<(), FtlError> {
        if self.map.settings.checkpoint_interval == 0 {
            return Ok(());
        }
        self.finish_checkpoint()?;
        // A clean checkpoint relocates nothing while it is written: ensure its space first.
        self.ensure_space(CHECKPOINT)?;
        self.convert_everything()?;
        let geometry = self.space.geometry();
        let pages = Writer::pages(&geometry, self.logical_pages, geometry.blocks);
        let room = self.space.free_blocks() > pages.div_ceil(geometry.pages_per_block);
        self.begin_checkpoint(room)?;
        self.finish_checkpoint()
    }

    fn begin_checkpoint(&mut self, clean: bool) -> Result<(), FtlError> {
        if clean {
            // Mount never continues a block, so it need not scan these again.
            for stream in self.streams_of_content() {
                self.space.seal(stream)?;
            }
        } else {
            self.ensure_space(CHECKPOINT)?;
        }
        let open = self
            .streams_of_content()
            .filter_map(|stream| self.space.open_block(stream))
            .map(|(block, _)| block.raw());
        let mut scan: Vec<u32> = self
            .map
            .pending
            .blocks()
            .map(|(block, _)| block.raw())
            .chain(open)
            .collect();
        scan.sort_unstable();
        scan.dedup();
        let content = Content {
            clean,
            begin_pseq: self.space.flash.pseq(),
            begin_epoch: self.space.next_epoch(),
            logical_pages: self.logical_pages as u64,
            scan,
            free: if clean {
                self.space.confirmed_free()
            } else {
                Vec::new()
            },
            trims: self
                .map
                .trims
                .iter()
                .map(|(_, record)| record.ppn.raw())
                .collect(),
            directory: self.map.directory.clone(),
        };
        let bytes = content.encode();
        let total = bytes
            .len()
            .div_ceil(Checkpoints::chunk_bytes(&self.space.geometry())) as u32;
        self.checkpoints.begin(&mut self.space, total)?;
        self.map.last_checkpoint = self.space.flash.pseq();
        self.map.writer = Some(Writer { bytes, clean });
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<(), FtlError> {
        let clean = self.map.writer.as_ref().is_some_and(|writer| writer.clean);
        if !clean {
            self.ensure_space(CHECKPOINT)?;
        }
        let size = Checkpoints::chunk_bytes(&self.space.geometry());
        let writer = self
            .map
            .writer
            .as_ref()
            .expect("a checkpoint is in progress");
        let number = self
            .checkpoints
            .next_chunk()
            .expect("a checkpoint is in progress") as usize;
        let payload = writer
            .bytes
            .chunks(size)
            .nth(number)
            .expect("the number is below that of the chunks");
        let upto = self.space.flash.pseq();
        if self
            .checkpoints
            .write(&mut self.space, payload, upto)?
            .is_some()
        {
            self.map.writer = None;
            self.stats.checkpoints += 1;
        }
        Ok(())
    }

    /// Returns the newest complete checkpoint that is usable.
    pub(crate) fn newest_checkpoint(&self, sets: &[Found]) -> Option<Content> {
        let mut content = sets.iter().rev().find_map(|set| {
            let content = Content::of(set, self.logical_pages, self.map.directory.len())?;
            Some((content, set.id))
        })?;
        content.0.clean &= self.checkpoints.next_id() == content.1 + 1;
        let geometry = self.space.geometry();
        let sound = |ppn: &u32| *ppn == UNMAPPED || geometry.contains(nand_model::Ppn::new(*ppn));
        (content.0.directory.iter().all(sound) && content.0.trims.iter().all(sound))
            .then_some(content.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_survive_the_round_trip_and_short_ones_are_refused() {
        let content = Content {
            clean: true,
            begin_pseq: 7,
            begin_epoch: 9,
            logical_pages: 300,
            scan: vec![1, 2],
            free: vec![],
            trims: vec![77],
            directory: vec![UNMAPPED, 5, 6],
        };
        let bytes = content.encode();
        assert_eq!(Content::decode(&bytes), Some(content));
        for len in 0..bytes.len() {
            assert_eq!(Content::decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
