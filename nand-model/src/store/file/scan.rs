//! Reads of the records of block after block. If the host's disk is slow, it gets those of several
//! blocks to read at once.
//!
//! This module only reads; what is announced and not read later costs time and nothing else.

use super::disk::SLOW;
use super::file_store::FileStore;
use crate::convert::to_u64;
use std::io;
use std::time::Instant;

/// A scan continues if it leaves out no more blocks than this.
const GAP_BLOCKS: usize = 3;
const AHEAD_BLOCKS: usize = 64;

/// The scan in progress.
#[derive(Debug, Default)]
pub(super) struct Scan {
    last: usize,
    /// Blocks below are announced.
    announced: usize,
}

impl FileStore {
    /// Fills `records` from byte `at` on: records of the block.
    pub(super) fn read_scanned(
        &mut self,
        block: usize,
        at: u64,
        records: &mut [u8],
    ) -> io::Result<()> {
        let continues = (1..=GAP_BLOCKS + 1).contains(&block.wrapping_sub(self.scan.last));
        self.scan.last = block;
        if !continues {
            self.scan.announced = 0;
        }
        let begun = Instant::now();
        self.disk.read_at(at, records)?;
        if continues && begun.elapsed() >= SLOW {
            let end = self.blocks.len().min(block + 1 + AHEAD_BLOCKS);
            for next in self.scan.announced.max(block + 1)..end {
                let slot = self.blocks[next].slot;
                if let Some(slot) = slot.filter(|_| !self.counts.is_blank(next)) {
                    let bytes = to_u64(self.layout.records_bytes());
                    self.disk.will_read(self.layout.records_at(slot), bytes);
                }
            }
            self.scan.announced = end.max(self.scan.announced);
        }
        Ok(())
    }
}
