//! Log blocks: their pages, and the logical blocks of those.
//!
//! Invariants: a page on the map is valid, and its block is on the list. A block's associations are
//! the logical blocks of its pages on the map, with their page counts.

use crate::addr::{Lbn, Lpn};
use crate::ram::{hash_bytes, hash_most, tree_bytes, tree_most, vec_bytes, vec_most};
use nand_model::{Pbn, Ppn};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Number of a log stream: the shared ones first, then those of the groups of logical blocks.
pub(crate) type LogStream = u32;

/// A block with pages that are not in their data block.
#[derive(Clone, Debug)]
pub(crate) struct LogBlock {
    pub(crate) block: Pbn,
    /// Its number in the order of creation.
    created: u64,
    /// The stream that filled it; `None` if a mount found it.
    pub(crate) stream: Option<LogStream>,
    /// Pages programmed into it.
    pub(crate) written: u32,
    /// Valid pages in it.
    pub(crate) valid: u32,
    /// Whether another group's stream of log blocks has a new version of a page in it.
    pub(crate) replaced_elsewhere: bool,
    /// Whether it was a data block before, and has old pages from that time.
    pub(crate) swapped: bool,
    /// Log blocks reclaimed before it became one.
    pub(crate) reclaimed_before: u64,
    /// Logical blocks with valid pages in it, and how many.
    pub(crate) associated: Vec<(Lbn, u32)>,
}

impl LogBlock {
    /// Returns the only logical block with pages in it, if there is exactly one.
    pub(crate) fn only_owner(&self) -> Option<Lbn> {
        match *self.associated {
            [(lbn, _)] => Some(lbn),
            _ => None,
        }
    }
}

/// All log blocks and the map of their pages.
pub(crate) struct LogBlocks {
    pages_per_block: u32,
    /// Physical page by logical page.
    map: FxHashMap<Lpn, Ppn>,
    blocks: FxHashMap<Pbn, LogBlock>,
    /// The oldest first.
    by_creation: BTreeMap<u64, Pbn>,
    /// Blocks by stream, the oldest first.
    streams: FxHashMap<LogStream, Vec<Pbn>>,
    last_created: u64,
    reclaimed: u64,
    /// Pages in log blocks by logical block.
    by_owner: FxHashMap<Lbn, u32>,
}

impl LogBlocks {
    pub(crate) fn new(pages_per_block: u32) -> Self {
        LogBlocks {
            pages_per_block,
            map: FxHashMap::default(),
            blocks: FxHashMap::default(),
            by_creation: BTreeMap::new(),
            streams: FxHashMap::default(),
            last_created: 0,
            reclaimed: 0,
            by_owner: FxHashMap::default(),
        }
    }

    /// Returns the physical page of the logical page, if it is in a log block.
    #[inline]
    pub(crate) fn ppn_of(&self, lpn: Lpn) -> Option<Ppn> {
        self.map.get(&lpn).copied()
    }

    /// Returns the logical page of this physical page, by a search.
    pub(crate) fn page_at(&self, ppn: Ppn) -> Option<Lpn> {
        self.map
            .iter()
            .find(|(_, at)| **at == ppn)
            .map(|(lpn, _)| *lpn)
    }

    /// Returns the number of log blocks.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns every log block, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &LogBlock> {
        self.by_creation.values().map(|block| &self.blocks[block])
    }

    /// Returns the log block, if the block is one.
    pub(crate) fn get(&self, block: Pbn) -> Option<&LogBlock> {
        self.blocks.get(&block)
    }

    /// Returns the blocks of a stream, the oldest first.
    pub(crate) fn of_stream(&self, stream: LogStream) -> &[Pbn] {
        self.streams.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest block of a stream.
    pub(crate) fn newest(&self, stream: LogStream) -> Option<&LogBlock> {
        self.of_stream(stream)
            .last()
            .and_then(|block| self.get(*block))
    }

    /// Returns the log blocks reclaimed so far: merged, moved or made data blocks.
    pub(crate) fn reclaimed(&self) -> u64 {
        self.reclaimed
    }

    /// Counts one more reclaimed log block.
    pub(crate) fn note_reclaimed(&mut self) {
        self.reclaimed += 1;
    }

    /// Returns the valid pages of a logical block in log blocks.
    pub(crate) fn pages_of(&self, lbn: Lbn) -> u32 {
        self.by_owner.get(&lbn).copied().unwrap_or(0)
    }

    /// Makes a replaced data block a log block of this stream.
    pub(crate) fn add_swapped(&mut self, block: Pbn, stream: LogStream) {
        self.block_for(block, Some(stream)).swapped = true;
    }

    /// Records that another stream has a new version of a page in this block.
    pub(crate) fn mark_replaced_elsewhere(&mut self, block: Pbn) {
        if let Some(log) = self.blocks.get_mut(&block) {
            log.replaced_elsewhere = true;
        }
    }

    /// Records that a page is in this block; it was in no log block before.
    pub(crate) fn insert(&mut self, lpn: Lpn, block: Pbn, ppn: Ppn, stream: Option<LogStream>) {
        let other = self.map.insert(lpn, ppn);
        assert!(
            other.is_none(),
            "logical page {lpn} is already in a log block, at {other:?}"
        );
        let (lbn, _) = lpn.split(self.pages_per_block);
        *self.by_owner.entry(lbn).or_default() += 1;
        let pages_per_block = self.pages_per_block;
        let log = self.block_for(block, stream);
        log.written += 1;
        log.valid += 1;
        debug_assert!(
            log.valid <= log.written && log.written <= pages_per_block,
            "log block {block} has {} valid and {} written pages, of {pages_per_block}",
            log.valid,
            log.written
        );
        match log.associated.iter_mut().find(|(other, _)| *other == lbn) {
            Some((_, pages)) => *pages += 1,
            None => log.associated.push((lbn, 1)),
        }
    }

    fn block_for(&mut self, block: Pbn, stream: Option<LogStream>) -> &mut LogBlock {
        let Self {
            by_creation,
            streams,
            last_created,
            reclaimed,
            ..
        } = self;
        self.blocks.entry(block).or_insert_with(|| {
            *last_created += 1;
            by_creation.insert(*last_created, block);
            if let Some(stream) = stream {
                streams.entry(stream).or_default().push(block);
            }
            LogBlock {
                block,
                created: *last_created,
                stream,
                written: 0,
                valid: 0,
                replaced_elsewhere: false,
                swapped: false,
                reclaimed_before: *reclaimed,
                associated: Vec::new(),
            }
        })
    }

    /// Removes a page that is superseded or trimmed.
    pub(crate) fn remove(&mut self, lpn: Lpn, block: Pbn) {
        assert!(
            self.map.remove(&lpn).is_some(),
            "logical page {lpn} is in no log block"
        );
        let (lbn, _) = lpn.split(self.pages_per_block);
        let log = self
            .blocks
            .get_mut(&block)
            .expect("the page is in a log block");
        let pages = self
            .by_owner
            .get_mut(&lbn)
            .expect("the logical block has pages in log blocks");
        log.valid -= 1;
        *pages -= 1;
        if *pages == 0 {
            self.by_owner.remove(&lbn);
        }
        let at = log
            .associated
            .iter()
            .position(|(other, _)| *other == lbn)
            .expect("the logical block is associated with the log block");
        log.associated[at].1 -= 1;
        if log.associated[at].1 == 0 {
            log.associated.swap_remove(at);
        }
    }

    /// Removes a log block without valid pages.
    pub(crate) fn remove_block(&mut self, block: Pbn) {
        let Some(log) = self.blocks.remove(&block) else {
            return;
        };
        let listed = self.by_creation.remove(&log.created);
        assert_eq!(
            listed,
            Some(block),
            "the age of log block {block} belongs to another log block"
        );
        assert!(
            log.associated.is_empty() && log.valid == 0,
            "log block {block} is removed with {} valid pages",
            log.valid
        );
        if let Some(blocks) = log.stream.and_then(|stream| self.streams.get_mut(&stream)) {
            blocks.retain(|other| *other != block);
        }
    }

    /// Recounts the pages; returns one line per contradiction.
    pub(crate) fn audit(&self, block_of: impl Fn(Ppn) -> Pbn) -> Vec<String> {
        let mut counted: FxHashMap<(Pbn, Lbn), u32> = FxHashMap::default();
        for (lpn, ppn) in &self.map {
            *counted
                .entry((block_of(*ppn), lpn.split(self.pages_per_block).0))
                .or_default() += 1;
        }
        let mut wrong = Vec::new();
        for log in self.iter() {
            for (lbn, pages) in &log.associated {
                let found = counted.remove(&(log.block, *lbn)).unwrap_or(0);
                if found != *pages {
                    wrong.push(format!(
                        "log block {} has {found} pages of logical block {lbn}, {pages} are counted",
                        log.block
                    ));
                }
            }
        }
        wrong.extend(counted.iter().map(|((block, lbn), _)| {
            format!(
                "block {block} has pages of logical block {lbn}, which is not associated with it"
            )
        }));
        wrong
    }

    /// Returns the allocated bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let associated = self.blocks.values().map(|log| log.associated.capacity());
        let listed = self.streams.values().map(Vec::capacity);
        hash_bytes::<Lpn, Ppn>(self.map.capacity())
            + hash_bytes::<Pbn, LogBlock>(self.blocks.capacity())
            + tree_bytes::<u64, Pbn>(self.by_creation.len())
            + associated.map(vec_bytes::<(Lbn, u32)>).sum::<u64>()
            + hash_bytes::<LogStream, Vec<Pbn>>(self.streams.capacity())
            + listed.map(vec_bytes::<Pbn>).sum::<u64>()
            + hash_bytes::<Lbn, u32>(self.by_owner.capacity())
    }

    /// Returns the upper bound of these bytes, for this many log blocks, log streams and logical
    /// blocks.
    pub(crate) fn bytes_most(&self, blocks: u64, streams: u64, logical_blocks: u64) -> u64 {
        let pages = blocks * u64::from(self.pages_per_block);
        // Every stream that had a log block keeps an empty list, of at least 4 blocks.
        hash_most::<Lpn, Ppn>(pages)
            + hash_most::<Pbn, LogBlock>(blocks)
            + tree_most::<u64, Pbn>(blocks)
            + vec_most::<(Lbn, u32)>(pages)
            + hash_most::<LogStream, Vec<Pbn>>(streams)
            + 16 * streams
            + vec_most::<Pbn>(blocks)
            + hash_most::<Lbn, u32>(logical_blocks.min(pages))
    }
}
