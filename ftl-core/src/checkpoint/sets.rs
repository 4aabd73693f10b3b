//! The sets of checkpoints on flash.
//!
//! A set is a sequence of pages (role CHECKPOINT, `lpn` = chunk number, `ver` = set number). Every
//! chunk contains the last program that its content covers (`upto`). So a set can be written a few
//! pages at a time between host writes. The last chunk carries COMMIT and is programmed after
//! everything that the set references is safe. The two newest complete sets are kept.
//!
//! If power fails while a set is written, it is incomplete and mount uses the previous set; mount
//! releases incomplete sets. A checkpoint bounds the scan and contains trims whose records left the
//! flash. Both newest sets have the same content for trims older than either.

use crate::error::FtlError;
use crate::events::EventKind;
use crate::format::checkpoint::{CHUNK_HEAD, ChunkHead};
use crate::format::{Flags, OOB_SLOT, Oob, PageTag, Role};
use crate::int::{index, to_u32, to_u64};
use crate::ram::{vec_bytes, vec_most};
use crate::scan::{Head, scan_block};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Geometry, Pbn, Ppn};
use std::collections::BTreeMap;

/// A complete set, as read from flash.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Set number.
    pub(crate) id: u64,
    /// The payloads of all chunks, one after the other.
    pub(crate) bytes: Vec<u8>,
    /// By chunk: end of its payload, and its `upto`.
    ends: Vec<(usize, u64)>,
}

impl Found {
    /// Iterates over payload and `upto` of the chunks.
    pub(crate) fn chunks(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        let mut begin = 0;
        self.ends.iter().map(move |&(end, upto)| {
            let payload = &self.bytes[std::mem::replace(&mut begin, end)..end];
            (payload, upto)
        })
    }
}

/// Owner of the checkpoint sets, and of the one in progress.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    stream: StreamId,
    /// Complete sets, oldest first: number and blocks.
    complete: Vec<(u64, Vec<Pbn>)>,
    next_id: u64,
    writing: Option<Writing>,
    page: Vec<u8>,
}

#[derive(Debug)]
struct Writing {
    id: u64,
    total: u32,
    next: u32,
    blocks: Vec<Pbn>,
}

/// Number of complete sets kept.
pub(crate) const KEPT: usize = 2;

impl Checkpoints {
    pub(crate) fn new(stream: StreamId) -> Self {
        Checkpoints {
            stream,
            complete: Vec::new(),
            next_id: 1,
            writing: None,
            page: Vec::new(),
        }
    }

    /// Returns the payload bytes per chunk.
    pub(crate) fn chunk_bytes(geometry: &Geometry) -> usize {
        geometry.page_len() - CHUNK_HEAD
    }

    /// Returns the maximum number of blocks of all sets: the complete ones and one in progress.
    pub(crate) fn blocks_needed(geometry: &Geometry, chunks: u32) -> u32 {
        (to_u32(KEPT) + 1) * (chunks + 4).div_ceil(geometry.pages_per_block)
    }

    /// Returns the bytes of the page and of the lists of blocks: now, and at most.
    pub(crate) fn ram(&self, geometry: &Geometry) -> (u64, u64) {
        let sets = self.complete.iter().map(|(_, blocks)| blocks);
        let sets = sets.chain(self.writing.iter().map(|writing| &writing.blocks));
        let lists = sets.map(|blocks| vec_bytes::<Pbn>(blocks.capacity()));
        let now = vec_bytes::<u8>(self.page.capacity())
            + vec_bytes::<(u64, Vec<Pbn>)>(self.complete.capacity())
            + lists.sum::<u64>();
        let sets = to_u64(KEPT) + 1;
        let most = u64::from(geometry.page_bytes)
            + vec_most::<(u64, Vec<Pbn>)>(sets)
            + sets * vec_most::<Pbn>(u64::from(geometry.blocks / 64).max(4));
        (now, most)
    }

    /// Returns the number of the next set.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Returns whether both complete sets have at least this number.
    pub(crate) fn both_since(&self, id: u64) -> bool {
        self.complete.len() == KEPT && self.complete.first().is_some_and(|(first, _)| *first >= id)
    }

    /// Returns the next chunk to write, if a set is in progress.
    pub(crate) fn next_chunk(&self) -> Option<u32> {
        self.writing.as_ref().map(|w| w.next)
    }

    /// Begins a set of `total` chunks.
    pub(crate) fn begin(&mut self, space: &mut Space, total: u32) -> Result<(), FtlError> {
        assert!(
            self.writing.is_none() && total > 0,
            "a checkpoint of {total} chunks begins; another one is in progress: {}",
            self.writing.is_some()
        );
        assert!(
            self.complete
                .last()
                .is_none_or(|(newest, _)| *newest < self.next_id),
            "checkpoint {} follows {:?}",
            self.next_id,
            self.complete.last()
        );
        space.seal(self.stream)?;
        self.writing = Some(Writing {
            id: self.next_id,
            total,
            next: 0,
            blocks: Vec::new(),
        });
        self.next_id += 1;
        Ok(())
    }

    /// Writes the next chunk, whose content covers programs up to `upto`. If that completes the
    /// set, releases the oldest set and returns the new set's number.
    pub(crate) fn write(
        &mut self,
        space: &mut Space,
        payload: &[u8],
        upto: u64,
    ) -> Result<Option<u64>, FtlError> {
        let began = space.flash.now();
        let writing = self.writing.as_mut().expect("a checkpoint is in progress");
        assert!(
            writing.next < writing.total,
            "checkpoint {}: all chunks are already written",
            writing.id
        );
        assert!(
            upto <= space.flash.pseq(),
            "chunk {} covers programs up to {upto}, the last one is {}",
            writing.next,
            space.flash.pseq()
        );
        let last = writing.next + 1 == writing.total;
        if last {
            // The set references pages: none of them may be lost once the set is committed.
            space.make_safe()?;
        }
        let head = ChunkHead {
            total: writing.total,
            upto,
        };
        head.encode(payload, space.geometry().page_len(), &mut self.page);
        let flags = if last { Flags::COMMIT } else { Flags::NONE };
        let tag = PageTag {
            role: Role::Checkpoint,
            flags,
            lpn: writing.next,
            ver: writing.id,
        };
        let (ppn, _) = space.stalled_by(Cause::Checkpoint, |space| {
            space.append(self.stream, &[tag], &self.page, Cause::Checkpoint)
        })?;
        // Checkpoint pages are released with their set; they are not part of valid counts.
        space.table.set_invalid(ppn);
        let block = space.geometry().block_of(ppn);
        if writing.blocks.last() != Some(&block) {
            writing.blocks.push(block);
        }
        if !last {
            writing.next += 1;
            return Ok(None);
        }
        // If this fails, the last chunk is written again. Two chunks of equal number are
        // equivalent.
        space.make_stream_safe(self.stream)?;
        space.seal(self.stream)?;
        let done = self.writing.take().expect("a checkpoint is in progress");
        space.note_event(
            EventKind::Checkpoint,
            done.blocks.first().copied(),
            done.total,
            began,
        );
        self.complete.push((done.id, done.blocks));
        while self.complete.len() > KEPT {
            let (_, blocks) = self.complete.remove(0);
            blocks.into_iter().for_each(|block| space.release(block));
        }
        Ok(Some(done.id))
    }

    /// Reads every set on flash. Keeps the newest complete sets, releases the others, and returns
    /// the newest `wanted` of those kept, oldest first. The others are read only for their
    /// integrity: a set can be as large as the map.
    pub(crate) fn load(
        &mut self,
        space: &mut Space,
        heads: &[Head],
        wanted: usize,
        scanned: &mut u64,
    ) -> Result<Vec<Found>, FtlError> {
        assert!(
            self.writing.is_none() && self.complete.is_empty(),
            "checkpoints are loaded over {} others",
            self.complete.len()
        );
        assert_eq!(
            heads.len(),
            space.geometry().block_slots(),
            "number of block heads is not the number of blocks"
        );
        let mut sets: BTreeMap<u64, BTreeMap<u32, (Ppn, bool)>> = BTreeMap::new();
        let mut blocks: BTreeMap<Pbn, u64> = BTreeMap::new();
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            if !matches!(
                head,
                Head::Found {
                    role: Role::Checkpoint,
                    ..
                }
            ) {
                continue;
            }
            scan_block(&mut space.flash, block, scanned, |ppn, oob| {
                if oob.tag.role == Role::Checkpoint {
                    let commit = oob.tag.flags.has(Flags::COMMIT);
                    sets.entry(oob.tag.ver)
                        .or_default()
                        .insert(oob.tag.lpn, (ppn, commit));
                    blocks.insert(block, oob.tag.ver);
                }
            })?;
        }
        self.next_id = sets.keys().next_back().map_or(1, |newest| newest + 1);
        let mut found = Vec::new();
        for (&id, pages) in sets.iter().rev() {
            if self.complete.len() == KEPT {
                break;
            }
            let is_wanted = found.len() < wanted;
            if let Some(set) = Self::read_set(space, id, pages, is_wanted)? {
                found.extend(is_wanted.then_some(set));
                let own = blocks.iter().filter(|(_, of)| **of == id);
                self.complete
                    .push((id, own.map(|(block, _)| *block).collect()));
            }
        }
        found.reverse();
        self.complete.reverse();
        assert!(
            self.complete.len() <= KEPT,
            "{} checkpoints are kept, at most {KEPT} can be",
            self.complete.len()
        );
        Ok(found)
    }

    /// Reads a set, several pages of a block at once; `None` if it is not complete. Keeps its
    /// content if `is_wanted`.
    fn read_set(
        space: &mut Space,
        id: u64,
        pages: &BTreeMap<u32, (Ppn, bool)>,
        is_wanted: bool,
    ) -> Result<Option<Found>, FtlError> {
        let commits = pages.values().position(|(_, commit)| *commit);
        let Some(total) = commits.map(|last| to_u32(last + 1)) else {
            return Ok(None);
        };
        if !pages.keys().copied().take(index(total)).eq(0..total) {
            return Ok(None);
        }
        let pages: Vec<Ppn> = pages
            .values()
            .take(index(total))
            .map(|(ppn, _)| *ppn)
            .collect();
        let geometry = space.geometry();
        let mut found = Found {
            id,
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        if is_wanted {
            found
                .bytes
                .reserve_exact(pages.len() * Self::chunk_bytes(&geometry));
        }
        let (mut data, mut records) = (Vec::new(), Vec::new());
        for run in pages.chunk_by(|a, b| a < b && geometry.block_of(*a) == geometry.block_of(*b)) {
            data.resize(run.len() * geometry.page_len(), 0);
            records.resize(run.len(), [0; OOB_SLOT]);
            let flash = &mut space.flash;
            let all_good = flash.read_pages(run, &mut data, &mut records, Cause::Recovery)?;
            for (i, page) in data.chunks_exact(geometry.page_len()).enumerate() {
                let is_good = all_good
                    || flash.health()[i].data_ok()
                        && flash.health()[i].oob_ok()
                        && Oob::is_record(&records[i]);
                let chunk = ChunkHead::decode(page).filter(|(head, _)| head.total == total);
                let Some((head, payload)) = chunk.filter(|_| is_good) else {
                    return Ok(None);
                };
                if is_wanted {
                    found.bytes.extend_from_slice(payload);
                    found.ends.push((found.bytes.len(), head.upto));
                }
            }
        }
        debug_assert!(
            !is_wanted || found.ends.len() == pages.len(),
            "chunks of set {id}"
        );
        Ok(Some(found))
    }

    /// Returns whether a kept set is stored in this block.
    pub(crate) fn owns(&self, block: Pbn) -> bool {
        self.complete
            .iter()
            .any(|(_, blocks)| blocks.contains(&block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the newest set cannot be read, a mount uses the older one: what that lacks must still be
    /// on flash.
    #[test]
    fn what_only_the_newest_set_contains_is_not_contained_in_both() {
        let mut checkpoints = Checkpoints::new(0);
        checkpoints.complete.push((4, Vec::new()));
        assert!(!checkpoints.both_since(4), "there is one set");
        checkpoints.complete.push((5, Vec::new()));
        assert!(checkpoints.both_since(4));
        assert!(!checkpoints.both_since(5));
    }
}
