//! Checkpoints of the map: a few chunks at a time during host writes, all at once at shutdown.
//!
//! A map chunk contains the programs up to `upto` and the versions below `ver`. Data with a larger
//! `pseq` is newer than the chunk, or a copy of a page that it names. A trim with at least that
//! version is newer. (A trim's `pseq` is not compared: its record may be a copy.)
//!
//! If power fails, the newest complete checkpoint is used; mount finds newer pages by their
//! records.

use super::map::PageMap;
use super::state::{CHECKPOINT, PageMapFtl};
use crate::addr::Lpn;
use crate::checkpoint::{CheckpointWriter, Checkpoints, Composed, Found, WriteCheckpoints};
use crate::error::FtlError;
use crate::format::COUNTER_FOUND_MAX;
use crate::format::{LOST, UNMAPPED};
use crate::gc::GarbageCollect;
use crate::ram::vec_most;
use crate::scan::Head;
use crate::space::Space;
use crate::trims::{InCheckpoint, Mapped};
use nand_model::{Geometry, Ppn};
use std::collections::HashSet;

/// Content of a checkpoint's head.
pub(super) struct CheckpointHead {
    /// Written at shutdown; that run programmed nothing after it.
    clean: bool,
    /// The checkpoint contains the programs before this number.
    begin_pseq: u64,
    /// Blocks opened from this number on may contain newer pages.
    begin_epoch: u64,
    next_ver: u64,
    logical_pages: u32,
    /// Blocks that were open.
    open: Vec<u32>,
    /// Valid trim records.
    trims: Vec<(Ppn, InCheckpoint)>,
    /// Blocks known to be erased.
    free: Vec<u32>,
}

impl CheckpointHead {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |n: u64| out.extend(n.to_le_bytes());
        [
            self.clean as u64,
            self.begin_pseq,
            self.begin_epoch,
            self.next_ver,
            self.logical_pages as u64,
        ]
        .into_iter()
        .for_each(&mut put);
        for list in [&self.open, &self.free] {
            put(list.len() as u64);
            list.iter().for_each(|block| put(*block as u64));
        }
        put(self.trims.len() as u64);
        self.trims.iter().for_each(|(ppn, record)| {
            [ppn.raw() as u64, record.ver, record.contained_in]
                .into_iter()
                .for_each(&mut put);
        });
        out
    }

    fn decode(bytes: &[u8]) -> Option<CheckpointHead> {
        let mut words = bytes
            .chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        let available = bytes.len() / 8;
        let mut next = || words.next();
        let (clean, begin_pseq, begin_epoch, next_ver) = (next()? == 1, next()?, next()?, next()?);
        let logical_pages = u32::try_from(next()?).ok()?;
        let mut blocks = || -> Option<Vec<u32>> {
            let len = usize::try_from(next()?).ok().filter(|n| *n <= available)?;
            (0..len).map(|_| u32::try_from(next()?).ok()).collect()
        };
        let (open, free) = (blocks()?, blocks()?);
        let len = usize::try_from(next()?).ok().filter(|n| *n <= available)?;
        let mut trim = || -> Option<(Ppn, InCheckpoint)> {
            Some((
                Ppn::new(u32::try_from(next()?).ok()?),
                InCheckpoint {
                    ver: next()?,
                    contained_in: next()?,
                },
            ))
        };
        let trims = (0..len).map(|_| trim()).collect::<Option<_>>()?;
        Some(CheckpointHead {
            clean,
            begin_pseq,
            begin_epoch,
            next_ver,
            logical_pages,
            open,
            trims,
            free,
        })
    }
}

fn map_chunks(geometry: &Geometry, logical_pages: u32) -> u32 {
    logical_pages.div_ceil(entries_per_chunk(geometry))
}

/// Returns the number of map entries per chunk.
fn entries_per_chunk(geometry: &Geometry) -> u32 {
    (Checkpoints::chunk_bytes(geometry) - CHUNK_VER) as u32 / 4
}

/// Returns the pages of a checkpoint, with room for a typical head.
pub(super) fn chunks(geometry: &Geometry, logical_pages: u32) -> u32 {
    map_chunks(geometry, logical_pages) + 1
}

/// Returns the upper bound of the bytes of a head with this many trim records and blocks.
pub(super) fn head_bytes_most(records: u64, blocks: u64) -> u64 {
    vec_most::<u8>(64 + 12 * records + 4 * blocks)
}

/// Entry of a mapped page whose location the map has only predicted.
const PREDICTED: u32 = LOST;

/// Bytes before a map chunk's entries: the first version that the chunk does not contain.
pub(super) const CHUNK_VER: usize = 8;

/// The newest complete checkpoint without its map, which the mount has loaded. Without a
/// checkpoint, every record is newer.
#[derive(Default)]
pub(super) struct LoadedCheckpoint {
    pub(super) clean: bool,
    pub(super) begin_epoch: u64,
    pub(super) open: HashSet<u32>,
    pub(super) free: HashSet<u32>,
    pub(super) trims: Vec<(Ppn, InCheckpoint)>,
    /// Coverage by map chunk.
    pub(super) coverage: Vec<ChunkCoverage>,
    pub(super) entries: usize,
    /// Mapped pages without a location.
    pub(super) unknown: Unknown,
}

/// A set of logical pages; without any of them it takes no room.
#[derive(Default)]
pub(super) struct Unknown(Option<Mapped>);

impl Unknown {
    pub(super) fn has(&self, lpn: u32) -> bool {
        self.0.as_ref().is_some_and(|pages| pages.has(lpn))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Mapped::count)
    }

    fn add(&mut self, lpn: u32, logical_pages: u32) {
        let pages = self.0.get_or_insert_with(|| Mapped::new(logical_pages));
        pages.set(lpn, true);
    }
}

impl LoadedCheckpoint {
    pub(super) fn coverage(&self, lpn: usize) -> ChunkCoverage {
        if self.coverage.is_empty() {
            ChunkCoverage::default()
        } else {
            self.coverage[lpn / self.entries]
        }
    }
}

/// Content of a map chunk: programs up to `upto`, versions below `ver`.
#[derive(Clone, Copy, Default)]
pub(super) struct ChunkCoverage {
    pub(super) upto: u64,
    pub(super) ver: u64,
}

impl<M: PageMap> WriteCheckpoints for PageMapFtl<M> {
    #[inline]
    fn checkpoint_parts(&mut self) -> (&mut Space, &mut Checkpoints, &mut CheckpointWriter) {
        (&mut self.space, &mut self.checkpoints, &mut self.map.writer)
    }

    /// Trim records are valid until checkpoints contain them: without checkpoints they would fill
    /// the flash.
    #[inline]
    fn wants_chunk(&self) -> bool {
        let (map, next) = (&self.map, self.checkpoints.next_id());
        if M::SORTED && self.gc.is_read_only() {
            return false; // Only a FLUSH of the buffer programs pages now.
        }
        map.writer.is_in_progress()
            || map.writer.is_due(self.space.flash.pseq())
            || self.gc.wants_checkpoint
            || map.trims.checkpoint_due(next)
    }

    fn make_room_for_chunk(&mut self) -> Result<(), FtlError> {
        self.ensure_space(CHECKPOINT)
    }

    fn compose(&mut self, is_clean: bool) -> Result<Composed, FtlError> {
        if is_clean {
            (0..self.space.streams()).try_for_each(|stream| self.space.seal(stream))?;
        }
        let open = (0..self.space.streams())
            .filter_map(|stream| self.space.open_block(stream))
            .map(|(block, _)| block.raw());
        let head = CheckpointHead {
            clean: is_clean,
            begin_pseq: self.space.flash.pseq(),
            begin_epoch: self.space.next_epoch(),
            next_ver: self.next_ver,
            logical_pages: self.logical_pages,
            open: open.collect(),
            trims: self.map.trims.iter().collect(),
            free: if is_clean {
                self.space.confirmed_free()
            } else {
                Vec::new()
            },
        };
        Ok(Composed {
            bytes: head.encode(),
            later_chunks: map_chunks(&self.space.geometry(), self.logical_pages),
            is_clean,
        })
    }

    /// A part of the map.
    fn later_chunk(&self, number: u32) -> Vec<u8> {
        let entries = entries_per_chunk(&self.space.geometry());
        let first = number * entries;
        assert!(
            first < self.logical_pages,
            "map chunk {number} begins at page {first} of {}",
            self.logical_pages
        );
        let part = first..(first + entries).min(self.logical_pages);
        let entries = part.flat_map(|lpn| {
            let entry = match self.map.pages.predict(Lpn::new(lpn)) {
                None => UNMAPPED,
                Some((ppn, 0)) => ppn.raw(),
                Some(_) => PREDICTED,
            };
            entry.to_le_bytes()
        });
        let ver = self.next_ver.to_le_bytes();
        ver.into_iter().chain(entries).collect()
    }

    fn note_complete(&mut self) {
        self.stats.checkpoints += 1;
        let (kept, trims) = (&self.checkpoints, &mut self.map.trims);
        trims.expire(&mut self.space, |set| kept.both_since(set));
    }
}

impl<M: PageMap> PageMapFtl<M> {
    /// Writes a checkpoint at once; the device is idle and stays idle.
    pub(super) fn write_whole_checkpoint(&mut self) -> Result<(), FtlError> {
        if !self.map.writer.has_interval() {
            return Ok(());
        }
        self.finish_checkpoint()?;
        // Make room for all of it first: the next mount would scan the pages that GC programs after
        // the start.
        let geometry = self.space.geometry();
        let pages = chunks(&geometry, self.logical_pages);
        self.gc_until(self.gc.threshold + 2 + pages.div_ceil(geometry.pages_per_block))?;
        self.level_wear()?;
        self.make_room_for_chunk()?;
        self.begin_checkpoint(true)?;
        self.finish_checkpoint()
    }

    pub(super) fn load_checkpoint(
        &mut self,
        heads: &[Head],
        scanned: &mut u64,
    ) -> Result<LoadedCheckpoint, FtlError> {
        let found = self.checkpoints.load(&mut self.space, heads, 1, scanned)?;
        let mut loaded = LoadedCheckpoint::default();
        if let Some(newest) = found.last() {
            loaded = self.read_checkpoint(newest)?;
            loaded.clean &= self.checkpoints.next_id() == newest.id + 1;
        }
        Ok(loaded)
    }

    pub(super) fn read_checkpoint(&mut self, set: &Found) -> Result<LoadedCheckpoint, FtlError> {
        let geometry = self.space.geometry();
        let entries = entries_per_chunk(&geometry) as usize;
        let map_chunks = map_chunks(&geometry, self.logical_pages) as usize;
        let damaged = |what: &str| FtlError::Corrupt(format!("checkpoint {}: {what}", set.id));
        let mut chunks = set.chunks();
        let head_chunks = (chunks.len())
            .checked_sub(map_chunks)
            .ok_or_else(|| damaged("fewer chunks than the map needs"))?;
        let head = chunks.by_ref().take(head_chunks);
        let head: Vec<u8> = head.flat_map(|(payload, _)| payload).copied().collect();
        let head =
            CheckpointHead::decode(&head).ok_or_else(|| damaged("the head cannot be decoded"))?;
        if head.logical_pages != self.logical_pages {
            return Err(damaged("the number of logical pages is another"));
        }
        let counters = [head.begin_pseq, head.begin_epoch, head.next_ver];
        if head.begin_epoch == 0
            || counters
                .into_iter()
                .any(|counter| counter > COUNTER_FOUND_MAX)
        {
            return Err(damaged("a sequence number exceeds the maximum"));
        }
        let mut coverage = Vec::with_capacity(map_chunks);
        let mut unknown = Unknown::default();
        let firsts = (0..self.logical_pages).step_by(entries);
        for (first, (payload, upto)) in firsts.zip(chunks) {
            let part = first..(first + entries as u32).min(self.logical_pages);
            let Some((ver, payload)) = payload
                .split_first_chunk()
                .filter(|(_, rest)| rest.len() == part.len() * 4)
            else {
                return Err(damaged("the length of a chunk is wrong"));
            };
            for (lpn, bytes) in part.map(Lpn::new).zip(payload.chunks_exact(4)) {
                let entry = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
                if M::PREDICTS && entry == PREDICTED {
                    unknown.add(lpn.raw(), self.logical_pages);
                    continue;
                }
                let ppn = (entry != UNMAPPED).then(|| Ppn::new(entry));
                if ppn.is_some_and(|ppn| !geometry.contains(ppn)) {
                    return Err(damaged("an entry names a page that does not exist"));
                }
                self.map.pages.set(lpn, ppn);
            }
            coverage.push(ChunkCoverage {
                upto,
                ver: u64::from_le_bytes(*ver),
            });
        }
        self.next_ver = head.next_ver;
        self.space.flash.observe_pseq(head.begin_pseq);
        self.space.observe_epoch(head.begin_epoch - 1);
        Ok(LoadedCheckpoint {
            clean: head.clean,
            begin_epoch: head.begin_epoch,
            open: head.open.into_iter().collect(),
            free: head.free.into_iter().collect(),
            trims: head.trims,
            coverage,
            entries,
            unknown,
        })
    }
}
