//! Files of an ext4 image as a mount would show them: the journal is replayed in memory, the image
//! stays as it is.
//!
//! [`journal`] replays what jbd2 would; the crate `ext4-view` reads the result. Its own replay
//! stops where the journal's ring wraps, so the flag that asks for it is hidden.

mod extract;
mod journal;

pub(super) use extract::{Stop, extract};

use ext4_view::Ext4Read;
use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Place of the superblock in the image, and its bytes.
const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;

/// An image with the blocks that the journal has in newer versions.
struct Replayed {
    image: File,
    block_bytes: u64,
    newer: HashMap<u64, Vec<u8>>,
    /// Without the flag that asks for a replay.
    superblock: [u8; SUPERBLOCK_BYTES],
}

impl Replayed {
    /// Opens an image and replays its journal.
    ///
    /// # Errors
    /// There is no ext4 in it, or a mount would fail.
    fn open(path: &Path) -> Result<Replayed, String> {
        let image = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut superblock = [0; SUPERBLOCK_BYTES];
        let read = image.read_exact_at(&mut superblock, SUPERBLOCK);
        read.map_err(|error| format!("no superblock: {error}"))?;
        let journal::Replay { block_bytes, newer } = journal::replay(&image, &mut superblock)?;
        Ok(Replayed {
            image,
            block_bytes,
            newer,
            superblock,
        })
    }
}

impl Ext4Read for Replayed {
    fn read(&mut self, start: u64, dst: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.image.read_exact_at(dst, start)?;
        let end = start + ftld_kit::convert::to_u64(dst.len());
        let mut lay = |at: u64, bytes: &[u8]| {
            let until = at + ftld_kit::convert::to_u64(bytes.len());
            let (from, to) = (start.max(at), end.min(until));
            if from < to {
                let place = |of: u64, base: u64| ftld_kit::convert::to_usize(of - base);
                dst[place(from, start)..place(to, start)]
                    .copy_from_slice(&bytes[place(from, at)..place(to, at)]);
            }
        };
        if !self.newer.is_empty() {
            for block in start / self.block_bytes..end.div_ceil(self.block_bytes) {
                if let Some(bytes) = self.newer.get(&block) {
                    lay(block * self.block_bytes, bytes);
                }
            }
        }
        lay(SUPERBLOCK, &self.superblock);
        Ok(())
    }
}
