//! Replay of an ext4 journal as the kernel's jbd2 does it at a mount (Linux 6.12,
//! fs/jbd2/recovery.c and Documentation/filesystems/ext4/journal.rst): transactions with a valid
//! commit block, in the order of their numbers, also where the ring wraps; blocks that a later
//! transaction revoked stay as they are.
//!
//! Invariant: no number of the image is used unchecked; memory is bounded by the journal's size.

use super::SUPERBLOCK_BYTES;
use ftld_kit::convert::{index, to_usize};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Result of a replay.
pub(super) struct Replay {
    pub(super) block_bytes: u64,
    /// Newest version of each block that the journal has.
    pub(super) newer: HashMap<u64, Vec<u8>>,
}

const EXT4_MAGIC: u16 = 0xEF53;
const JBD2_MAGIC: u32 = 0xC03B_3998;
/// `s_feature_compat`: there is a journal.
const HAS_JOURNAL: u32 = 0x4;
/// `s_feature_incompat`: the journal is to be replayed; it is on a device of its own.
const RECOVER: u32 = 0x4;
const JOURNAL_DEV: u32 = 0x8;
/// `s_feature_ro_compat`: the superblock has a checksum.
const METADATA_CSUM: u32 = 0x400;
/// Incompatible features of a journal that are understood here.
const REVOKE: u32 = 0x1;
const BITS_64: u32 = 0x2;
/// A commit block may be durable before the other blocks of its transaction. Their tags tell, and a
/// mount fails.
const ASYNC_COMMIT: u32 = 0x4;
const CSUM_V2: u32 = 0x8;
const CSUM_V3: u32 = 0x10;
const KNOWN: u32 = REVOKE | BITS_64 | ASYNC_COMMIT | CSUM_V2 | CSUM_V3;
/// Flags of a tag.
const ESCAPED: u32 = 0x1;
const SAME_UUID: u32 = 0x2;
const LAST_TAG: u32 = 0x8;
/// Types of journal blocks.
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const REVOCATIONS: u32 = 5;
/// Place of the journal's mapping in the superblock: `s_jnl_blocks`, a copy of the inode's.
const JOURNAL_BLOCKS: usize = 0x10C;
const EXTENT_MAGIC: u16 = 0xF30A;

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The kernel's CRC-32C from a seed, which is one of a range before.
fn checksum(seed: u32, parts: &[&[u8]]) -> u32 {
    !parts
        .iter()
        .fold(!seed, |sum, part| crc32c::crc32c_append(sum, part))
}

/// Replays the journal of an image, and clears the superblock's flag that asks for it.
///
/// # Errors
/// The image has no ext4, its journal is of a kind that is not understood, or it is damaged so that
/// a mount would fail.
pub(super) fn replay(
    image: &File,
    superblock: &mut [u8; SUPERBLOCK_BYTES],
) -> Result<Replay, String> {
    if le16(superblock, 0x38) != EXT4_MAGIC {
        return Err("there is no ext4 in the image".into());
    }
    let log_bytes = le32(superblock, 0x18);
    if log_bytes > 6 {
        return Err(format!(
            "the superblock is damaged: blocks of 2^{log_bytes} KiB"
        ));
    }
    let block_bytes = 1024u64 << log_bytes;
    let mut replayed = Replay {
        block_bytes,
        newer: HashMap::new(),
    };
    let (compat, incompat) = (le32(superblock, 0x5C), le32(superblock, 0x60));
    if compat & HAS_JOURNAL == 0 || incompat & RECOVER == 0 {
        return Ok(replayed);
    }
    if incompat & JOURNAL_DEV != 0 {
        return Err("the journal is on a device of its own".into());
    }
    let mut journal = Journal::open(image, superblock, to_usize(block_bytes))?;
    replayed.newer = journal.replay()?;
    superblock[0x60..0x64].copy_from_slice(&(incompat & !RECOVER).to_le_bytes());
    if le32(superblock, 0x64) & METADATA_CSUM != 0 {
        let sum = checksum(u32::MAX, &[&superblock[..0x3FC]]);
        superblock[0x3FC..].copy_from_slice(&sum.to_le_bytes());
    }
    Ok(replayed)
}

/// An open journal.
struct Journal<'a> {
    image: &'a File,
    block_bytes: usize,
    /// First logical block, blocks, first physical block.
    extents: Vec<(u32, u32, u64)>,
    /// The ring: its first block, and the first one behind it.
    first: u32,
    end: u32,
    /// Where the oldest transaction begins, and its number; start 0: nothing to replay.
    start: u32,
    sequence: u32,
    features: u32,
    seed: u32,
}

/// A transaction with a valid commit block.
struct Transaction {
    sequence: u32,
    /// Filesystem block, journal block, whether its first word was escaped, checksum of the tag.
    blocks: Vec<(u64, u32, bool, u32)>,
    revoked: Vec<u64>,
}

impl<'a> Journal<'a> {
    fn open(
        image: &'a File,
        superblock: &[u8; SUPERBLOCK_BYTES],
        block_bytes: usize,
    ) -> Result<Journal<'a>, String> {
        let journal = Journal {
            image,
            block_bytes,
            extents: extents(&superblock[JOURNAL_BLOCKS..JOURNAL_BLOCKS + 60])?,
            first: 0,
            end: 0,
            start: 0,
            sequence: 0,
            features: 0,
            seed: 0,
        };
        let head = journal.block(0)?;
        if be32(&head, 0) != JBD2_MAGIC || be32(&head, 4) != 4 {
            return Err("the journal has no superblock of version 2".into());
        }
        let (bytes, blocks) = (be32(&head, 12), be32(&head, 16));
        let (first, start) = (be32(&head, 20), be32(&head, 28));
        let mapped: u64 = journal.extents.iter().map(|of| u64::from(of.1)).sum();
        let fits = index(bytes) == block_bytes
            && u64::from(blocks) <= mapped
            && 0 < first
            && first < blocks
            && start < blocks
            && (start == 0 || start >= first);
        if !fits {
            return Err(format!(
                "the journal's superblock is damaged: {blocks} blocks of {bytes} bytes, the ring from {first}, the log from {start}"
            ));
        }
        let features = be32(&head, 40);
        let of_checksums = match features & (CSUM_V2 | CSUM_V3) {
            0 => ASYNC_COMMIT,
            _ => 0,
        };
        let unknown = features & (!KNOWN | of_checksums);
        if unknown != 0 {
            return Err(format!(
                "the journal has features {unknown:#x}, which are not read here; check with e2fsck"
            ));
        }
        if features & (CSUM_V2 | CSUM_V3) != 0 {
            let sum = checksum(u32::MAX, &[&head[..0xFC], &[0; 4], &head[0x100..0x400]]);
            if sum != be32(&head, 0xFC) {
                return Err("the journal's superblock has a wrong checksum".into());
            }
        }
        Ok(Journal {
            first,
            end: blocks,
            start,
            sequence: be32(&head, 24),
            features,
            seed: checksum(u32::MAX, &[&head[0x30..0x40]]),
            ..journal
        })
    }

    /// Reads a block of the journal.
    fn block(&self, number: u32) -> Result<Vec<u8>, String> {
        let holds = |of: &&(u32, u32, u64)| (of.0..of.0.saturating_add(of.1)).contains(&number);
        let (from, _, at) = self
            .extents
            .iter()
            .find(holds)
            .ok_or_else(|| format!("block {number} of the journal is nowhere"))?;
        let mut bytes = vec![0; self.block_bytes];
        let place = (at + u64::from(number - from))
            .checked_mul(ftld_kit::convert::to_u64(self.block_bytes));
        let read = place.map(|place| self.image.read_exact_at(&mut bytes, place));
        match read {
            Some(Ok(())) => Ok(bytes),
            _ => Err(format!("block {number} of the journal cannot be read")),
        }
    }

    /// Returns the block after another one in the ring.
    fn after(&self, number: u32) -> u32 {
        match number + 1 < self.end {
            true => number + 1,
            false => self.first,
        }
    }

    fn has_checksums(&self) -> bool {
        self.features & (CSUM_V2 | CSUM_V3) != 0
    }

    /// Returns whether a block with its checksum at the end is whole.
    fn is_whole(&self, block: &[u8]) -> bool {
        let body = block.len() - 4;
        !self.has_checksums()
            || checksum(self.seed, &[&block[..body], &[0; 4]]) == be32(block, body)
    }

    fn replay(&mut self) -> Result<HashMap<u64, Vec<u8>>, String> {
        let transactions = self.scan()?;
        let mut revoked: HashMap<u64, u32> = HashMap::new();
        for transaction in &transactions {
            for block in &transaction.revoked {
                revoked.insert(*block, transaction.sequence);
            }
        }
        let mut newer = HashMap::new();
        for transaction in &transactions {
            for &(block, at, is_escaped, sum) in &transaction.blocks {
                let later = |of: &u32| of.wrapping_sub(transaction.sequence) < 1 << 31;
                if revoked.get(&block).is_some_and(later) {
                    continue;
                }
                let mut bytes = self.block(at)?;
                if !self.is_data(&bytes, transaction.sequence, sum) {
                    return Err(format!(
                        "block {block} has a wrong checksum in transaction {} of the journal",
                        transaction.sequence
                    ));
                }
                if is_escaped {
                    bytes[..4].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
                }
                newer.insert(block, bytes);
            }
        }
        Ok(newer)
    }

    /// Returns whether a data block has the checksum of its tag.
    fn is_data(&self, bytes: &[u8], sequence: u32, sum: u32) -> bool {
        let found = checksum(self.seed, &[&sequence.to_be_bytes(), bytes]);
        match self.features & (CSUM_V2 | CSUM_V3) {
            0 => true,
            CSUM_V3 => found == sum,
            _ => found & 0xFFFF == sum,
        }
    }

    /// Returns the transactions up to the first without a valid commit block.
    fn scan(&self) -> Result<Vec<Transaction>, String> {
        let mut found = Vec::new();
        if self.start == 0 {
            return Ok(found);
        }
        let new = |sequence| Transaction {
            sequence,
            blocks: Vec::new(),
            revoked: Vec::new(),
        };
        let mut current = new(self.sequence);
        let (mut at, mut left) = (self.start, self.end - self.first);
        while left > 0 {
            let block = self.block(at)?;
            let is_next = be32(&block, 0) == JBD2_MAGIC && be32(&block, 8) == current.sequence;
            if !is_next {
                break;
            }
            at = self.after(at);
            left -= 1;
            match be32(&block, 4) {
                DESCRIPTOR if self.is_whole(&block) => {
                    for (number, is_escaped, sum) in self.tags(&block) {
                        if left == 0 {
                            return Ok(found);
                        }
                        current.blocks.push((number, at, is_escaped, sum));
                        at = self.after(at);
                        left -= 1;
                    }
                }
                REVOCATIONS if self.is_whole(&block) => {
                    current.revoked.extend(self.revocations(&block));
                }
                COMMIT if self.is_commit(&block) => {
                    let next = new(current.sequence.wrapping_add(1));
                    found.push(std::mem::replace(&mut current, next));
                }
                _ => break,
            }
        }
        Ok(found)
    }

    fn is_commit(&self, block: &[u8]) -> bool {
        !self.has_checksums()
            || checksum(self.seed, &[&block[..16], &[0; 4], &block[20..]]) == be32(block, 16)
    }

    /// Returns the tags of a descriptor block: filesystem block, escaped, checksum.
    fn tags(&self, block: &[u8]) -> Vec<(u64, bool, u32)> {
        let is_v3 = self.features & CSUM_V3 != 0;
        let bytes = match (is_v3, self.features & BITS_64 != 0) {
            (true, _) => 16,
            (_, true) => 12,
            _ => 8,
        } + if self.features & CSUM_V2 != 0 { 2 } else { 0 };
        let end = block.len() - if self.has_checksums() { 4 } else { 0 };
        let (mut at, mut found) = (12, Vec::new());
        while at + bytes <= end {
            let low = u64::from(be32(block, at));
            let (flags, sum) = match is_v3 {
                true => (be32(block, at + 4), be32(block, at + 12)),
                false => {
                    let both = be32(block, at + 4);
                    (both & 0xFFFF, both >> 16)
                }
            };
            let high = match self.features & BITS_64 != 0 {
                true => u64::from(be32(block, at + 8)) << 32,
                false => 0,
            };
            found.push((high | low, flags & ESCAPED != 0, sum));
            if flags & LAST_TAG != 0 {
                break;
            }
            at += bytes + if flags & SAME_UUID == 0 { 16 } else { 0 };
        }
        found
    }

    /// Returns the blocks that a revocation block names.
    fn revocations(&self, block: &[u8]) -> Vec<u64> {
        let width = if self.features & BITS_64 != 0 { 8 } else { 4 };
        let end = index(be32(block, 12)).min(block.len());
        let entries = block.get(16..end).unwrap_or_default().chunks_exact(width);
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        entries.map(number).collect()
    }
}

/// Returns the extents of the journal from a copy of its inode's map.
fn extents(map: &[u8]) -> Result<Vec<(u32, u32, u64)>, String> {
    let (magic, entries, depth) = (le16(map, 0), le16(map, 2), le16(map, 6));
    if magic != EXTENT_MAGIC || depth != 0 || entries > 4 {
        return Err(
            "--files cannot read this journal (a block map, or more than 4 extents); let the check \
             mount the image"
                .into(),
        );
    }
    let extent = |number: usize| -> (u32, u32, u64) {
        let at = 12 + 12 * number;
        let high = u64::from(le16(map, at + 6)) << 32;
        let (first, blocks) = (le32(map, at), le16(map, at + 4));
        (
            first,
            u32::from(blocks),
            high | u64::from(le32(map, at + 8)),
        )
    };
    Ok((0..usize::from(entries)).map(extent).collect())
}
