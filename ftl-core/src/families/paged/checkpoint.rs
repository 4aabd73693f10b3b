//! Checkpoints: the directory, the blocks with pages that the map may not contain, and the
//! locations of the trim records (LazyFTL's second recovery method). A checkpoint bounds the scan
//! of a mount; without one, the age window does.
//!
//! The content is the state at the start of the checkpoint. Pages programmed later are in the named
//! blocks or in blocks opened later, and a mount scans those.

use super::map::map_pages;
use super::policy::Policy;
use super::state::{CHECKPOINT, PagedFtl};
use crate::checkpoint::{CheckpointWriter, Checkpoints, Composed, Found, WriteCheckpoints};
use crate::error::FtlError;
use crate::format::COUNTER_FOUND_MAX;
use crate::format::UNMAPPED;
use crate::ram::vec_most;
use crate::space::Space;
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

/// Returns the upper bound of the bytes of a checkpoint.
pub(super) fn bytes_most(geometry: &Geometry, logical_pages: u32) -> u64 {
    let pages = checkpoint_pages(geometry, logical_pages, geometry.blocks);
    vec_most::<u8>(pages as u64 * geometry.page_bytes as u64)
}

/// Returns the maximum number of pages of a checkpoint.
pub(crate) fn checkpoint_pages(geometry: &Geometry, logical_pages: u32, blocks: u32) -> u32 {
    // Free, named and open blocks are disjoint; there are never more records than pages in a block.
    let numbers = map_pages(geometry, logical_pages) + blocks + geometry.pages_per_block;
    (48 + 4 * numbers as u64).div_ceil(Checkpoints::chunk_bytes(geometry) as u64) as u32
}

impl<P: Policy> WriteCheckpoints for PagedFtl<P> {
    #[inline]
    fn checkpoint_parts(&mut self) -> (&mut Space, &mut Checkpoints, &mut CheckpointWriter) {
        (&mut self.space, &mut self.checkpoints, &mut self.map.writer)
    }

    #[inline]
    fn wants_chunk(&self) -> bool {
        let writer = &self.map.writer;
        writer.has_interval()
            && (writer.is_in_progress()
                || self.gc.wants_checkpoint
                || writer.is_due(self.space.flash.pseq()))
    }

    fn make_room_for_chunk(&mut self) -> Result<(), FtlError> {
        self.ensure_space(CHECKPOINT)
    }

    fn compose(&mut self, is_clean: bool) -> Result<Composed, FtlError> {
        if is_clean {
            for stream in self.streams_of_content() {
                self.space.seal(stream)?;
            }
        }
        let open = self
            .streams_of_content()
            .filter_map(|stream| self.space.open_block(stream))
            .map(|(block, _)| block.raw());
        let pending = self.map.pending.blocks();
        let mut scan: Vec<u32> = pending.map(|(block, _)| block.raw()).chain(open).collect();
        scan.sort_unstable();
        scan.dedup();
        let trims = self.map.trims.iter();
        let content = Content {
            clean: is_clean,
            begin_pseq: self.space.flash.pseq(),
            begin_epoch: self.space.next_epoch(),
            logical_pages: self.logical_pages as u64,
            scan,
            free: if is_clean {
                self.space.confirmed_free()
            } else {
                Vec::new()
            },
            trims: trims.map(|(_, record)| record.ppn.raw()).collect(),
            directory: self.map.directory.clone(),
        };
        Ok(Composed {
            bytes: content.encode(),
            later_chunks: 0,
            is_clean,
        })
    }

    fn later_chunk(&self, number: u32) -> Vec<u8> {
        unreachable!("chunk {number} follows the whole content")
    }

    fn note_complete(&mut self) {
        self.stats.checkpoints += 1;
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Writes a checkpoint at once; the device is idle and stays idle.
    pub(crate) fn write_whole_checkpoint(&mut self) -> Result<(), FtlError> {
        if !self.map.writer.has_interval() {
            return Ok(());
        }
        self.finish_checkpoint()?;
        // A clean checkpoint relocates nothing while it is written: ensure its space first.
        self.make_room_for_chunk()?;
        self.convert_everything()?;
        let geometry = self.space.geometry();
        let pages = checkpoint_pages(&geometry, self.logical_pages, geometry.blocks);
        let has_room = self.space.free_blocks() > pages.div_ceil(geometry.pages_per_block);
        self.begin_checkpoint(has_room)?;
        self.finish_checkpoint()
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
