//! Checkpoint of a clean shutdown: the programmed pages and the epoch of every block, and the open
//! blocks. If a mount finds every block in this state, no program or erase was begun since. Then no
//! page is unstable, open blocks continue to be filled, and erases are complete. The checkpoint
//! does not describe the map; records do.
//!
//! Invariants: after one more program or erase, some block differs from its description. If power
//! fails while the checkpoint is written, the set is incomplete and ignored.

use crate::block_table::State;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::format::{COUNTER_FOUND_MAX, Role};
use crate::int::{low_u16, to_u32, to_u64};
use crate::scan::Head;
use crate::space::{Space, StreamId};
use nand_model::{Geometry, Pbn};
use std::collections::HashSet;

/// Lowest bits of a block's state: the number of programmed pages.
const PAGES_BITS: u32 = u16::BITS;

/// State of all blocks, and further values that a mount cannot derive from records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShutdownState {
    pub(crate) next_ver: u64,
    logical_pages: u64,
    pseq: u64,
    next_epoch: u64,
    /// Epoch and number of programmed pages, by block.
    blocks: Vec<u64>,
    /// Streams and their open blocks.
    open: Vec<(u64, u64)>,
    free: Vec<u64>,
}

fn state(epoch: u64, programmed: u32) -> u64 {
    epoch << PAGES_BITS | u64::from(programmed)
}

impl ShutdownState {
    /// Returns the number of chunks of the set; each chunk takes a page.
    pub(crate) fn chunks(geometry: &Geometry) -> u32 {
        // Besides its state, a block may be listed as open (two words) or free (one).
        let bytes = 8 * (8 + 3 * geometry.block_slots());
        to_u32(bytes.div_ceil(Checkpoints::chunk_bytes(geometry)))
    }

    /// Returns the current state. All pages must be safe, and no block may wait for its erase.
    pub(crate) fn of(space: &Space, next_ver: u64, logical_pages: u32) -> ShutdownState {
        assert_eq!(
            space.released_blocks(),
            0,
            "released blocks are not erased at a clean shutdown"
        );
        assert!(!space.is_mounting(), "a clean stop during a mount");
        let chip = space.flash.chip();
        let is_known = |block: &Pbn| space.table.is_in_use(*block);
        let epoch = |block: Pbn| {
            if is_known(&block) {
                space.table.epoch(block)
            } else {
                0
            }
        };
        let open = |stream: StreamId| {
            space
                .open_block(stream)
                .map(|(block, _)| (to_u64(stream), u64::from(block.raw())))
        };
        ShutdownState {
            next_ver,
            logical_pages: u64::from(logical_pages),
            pseq: space.flash.pseq(),
            next_epoch: space.next_epoch(),
            blocks: space
                .geometry()
                .all_blocks()
                .map(|b| state(epoch(b), chip.programmed(b)))
                .collect(),
            open: (0..space.streams()).filter_map(open).collect(),
            free: space.confirmed_free().into_iter().map(u64::from).collect(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let head = [
            self.next_ver,
            self.logical_pages,
            self.pseq,
            self.next_epoch,
        ];
        let lengths = [self.blocks.len(), self.open.len(), self.free.len()].map(to_u64);
        let open = self
            .open
            .iter()
            .flat_map(|(stream, block)| [*stream, *block]);
        let words = head
            .into_iter()
            .chain(lengths)
            .chain(self.blocks.iter().copied())
            .chain(open);
        words
            .chain(self.free.iter().copied())
            .flat_map(u64::to_le_bytes)
            .collect()
    }

    fn decode(bytes: &[u8]) -> Option<ShutdownState> {
        let words: Vec<u64> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let (
            &[
                next_ver,
                logical_pages,
                pseq,
                next_epoch,
                blocks,
                open,
                free,
            ],
            mut rest,
        ) = words.split_first_chunk()?;
        let mut take = |length: u64| {
            let (part, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = behind;
            Some(part)
        };
        let blocks = take(blocks)?.to_vec();
        let open = take(open.checked_mul(2)?)?
            .as_chunks()
            .0
            .iter()
            .map(|[stream, block]| (*stream, *block))
            .collect();
        let free = take(free)?.to_vec();
        let sane = [next_ver, pseq, next_epoch]
            .iter()
            .all(|counter| *counter <= COUNTER_FOUND_MAX)
            && next_epoch > 0;
        sane.then_some(ShutdownState {
            next_ver,
            logical_pages,
            pseq,
            next_epoch,
            blocks,
            open,
            free,
        })
    }

    /// Writes the set.
    pub(crate) fn write(
        &self,
        space: &mut Space,
        checkpoints: &mut Checkpoints,
    ) -> Result<(), FtlError> {
        let bytes = self.encode();
        let chunks = bytes.chunks(Checkpoints::chunk_bytes(&space.geometry()));
        let count = to_u32(chunks.len());
        assert!(
            count <= ShutdownState::chunks(&space.geometry()),
            "shutdown state has {count} chunks, more than are reserved"
        );
        checkpoints.begin(space, count)?;
        for chunk in chunks {
            checkpoints.write(space, chunk, self.pseq)?;
        }
        assert!(
            checkpoints.next_chunk().is_none(),
            "the shutdown state is written, and its set is not complete"
        );
        Ok(())
    }

    /// Loads the state if the last shutdown was clean and no program or erase followed.
    pub(crate) fn load(
        space: &mut Space,
        checkpoints: &mut Checkpoints,
        heads: &[Head],
        logical_pages: u32,
        scanned: &mut u64,
    ) -> Result<Option<ShutdownState>, FtlError> {
        let found = checkpoints.load(space, heads, 1, scanned)?;
        let Some(newest) = found
            .last()
            .filter(|set| set.id + 1 == checkpoints.next_id())
        else {
            return Ok(None);
        };
        let damaged = |what: &str| FtlError::Corrupt(format!("checkpoint {}: {what}", newest.id));
        let stop = ShutdownState::decode(&newest.bytes)
            .ok_or_else(|| damaged("the shutdown state cannot be decoded"))?;
        if stop.logical_pages != u64::from(logical_pages) || stop.blocks.len() != heads.len() {
            return Err(damaged(
                "the number of logical pages or of blocks is another",
            ));
        }
        if !stop.still_holds(space, heads) {
            return Ok(None);
        }
        space.flash.observe_pseq(stop.pseq);
        space.observe_epoch(stop.next_epoch - 1);
        Ok(Some(stop))
    }

    fn still_holds(&self, space: &Space, heads: &[Head]) -> bool {
        let chip = space.flash.chip();
        let is_as_left = |(block, (head, was)): (Pbn, (&Head, &u64))| match *head {
            // Bad blocks are not in use and may have any content.
            _ if chip.bad(block).is_some() => true,
            Head::Factory
            | Head::Found {
                role: Role::Checkpoint,
                ..
            } => true,
            // A block whose erase was pending still has its old content.
            Head::Found { epoch, .. } if *was == state(0, chip.programmed(block)) => {
                epoch < self.next_epoch
            }
            Head::Found { epoch, .. } => state(epoch, chip.programmed(block)) == *was,
            // Its only page may have been lost before the shutdown, or no page was programmed yet.
            Head::Nothing => chip.programmed(block) == u32::from(low_u16(*was)),
        };
        (0..)
            .map(Pbn::new)
            .zip(heads.iter().zip(&self.blocks))
            .all(is_as_left)
    }

    /// Returns the blocks whose erase is known to have ended.
    pub(crate) fn free(&self) -> HashSet<u32> {
        let numbers = self.free.iter().map(|block| u32::try_from(*block));
        numbers.filter_map(Result::ok).collect()
    }

    /// Reopens the blocks that were open, except where [`Space::can_resume`] finds a gap in a block
    /// of an append-only stream.
    pub(crate) fn resume(&self, space: &mut Space) {
        for (stream, block) in &self.open {
            let (Ok(stream), Ok(block)) = (StreamId::try_from(*stream), u32::try_from(*block))
            else {
                continue;
            };
            let block = Pbn::new(block);
            let fits = stream < space.streams() && block.raw() < space.geometry().blocks;
            let there = fits
                && space.table.state(block) == State::Full
                && space.flash.chip().bad(block).is_none()
                && space.can_resume(stream, block);
            if there && space.open_block(stream).is_none() {
                space.resume(stream, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_round_trip_and_what_is_cut_off_is_refused() {
        let stop = ShutdownState {
            next_ver: 9,
            logical_pages: 100,
            pseq: 77,
            next_epoch: 12,
            blocks: vec![state(3, 16), 0, state(11, 5)],
            open: vec![(4, 2)],
            free: vec![1],
        };
        let bytes = stop.encode();
        assert_eq!(ShutdownState::decode(&bytes), Some(stop));
        for length in 0..bytes.len() {
            assert_eq!(
                ShutdownState::decode(&bytes[..length]),
                None,
                "{length} bytes"
            );
        }
        let mut lie = bytes.clone();
        lie[5 * 8..6 * 8].fill(0xFF);
        assert_eq!(ShutdownState::decode(&lie), None);
    }
}
