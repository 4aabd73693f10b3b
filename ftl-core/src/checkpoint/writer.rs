//! The writer of checkpoints of the map: a few chunks at a time during host writes, all at once at
//! shutdown.
//!
//! A family composes its content when a checkpoint begins. Other chunks may follow; each has the
//! state of the time when it is written.

use super::sets::Checkpoints;
use crate::error::FtlError;
use crate::gc::GarbageCollect;
use crate::int::{index, to_u32};
use crate::ram::vec_bytes;
use crate::space::Space;
use nand_model::Geometry;

/// Chunks written per host program while a checkpoint is in progress.
const CHUNKS_PER_PROGRAM: u32 = 1;

/// Content of a checkpoint at its start.
pub(crate) struct Composed {
    pub(crate) bytes: Vec<u8>,
    /// Chunks that follow these bytes.
    pub(crate) later_chunks: u32,
    /// Written at shutdown: nothing is programmed after it.
    pub(crate) is_clean: bool,
}

impl Composed {
    /// Returns the chunks of the bytes.
    fn chunks(&self, geometry: &Geometry) -> u32 {
        to_u32(
            self.bytes
                .len()
                .div_ceil(Checkpoints::chunk_bytes(geometry)),
        )
    }
}

/// The checkpoint in progress, and the time of the next one.
pub(crate) struct CheckpointWriter {
    /// Programs between checkpoints; 0 for none.
    interval: u64,
    /// `pseq` at the start of the last checkpoint, or at the end of the mount.
    last: u64,
    composed: Option<Composed>,
}

impl CheckpointWriter {
    /// Creates a writer that writes a checkpoint every `interval` programs; 0 for none.
    pub(crate) fn new(interval: u64) -> Self {
        CheckpointWriter {
            interval,
            last: 0,
            composed: None,
        }
    }

    /// Returns whether checkpoints are written at an interval.
    #[inline]
    pub(crate) fn has_interval(&self) -> bool {
        self.interval > 0
    }

    #[inline]
    pub(crate) fn is_in_progress(&self) -> bool {
        self.composed.is_some()
    }

    /// Returns whether the interval has passed.
    #[inline]
    pub(crate) fn is_due(&self, pseq: u64) -> bool {
        self.has_interval() && pseq - self.last >= self.interval
    }

    /// Restarts the interval.
    pub(crate) fn begin_interval(&mut self, pseq: u64) {
        self.last = pseq;
    }

    /// Returns the bytes of the content in progress.
    pub(crate) fn bytes(&self) -> u64 {
        let composed = self.composed.as_ref();
        composed.map_or(0, |composed| vec_bytes::<u8>(composed.bytes.capacity()))
    }
}

/// A family that writes checkpoints of its map.
pub(crate) trait WriteCheckpoints: GarbageCollect {
    /// Returns the space, the sets and the writer.
    fn checkpoint_parts(&mut self) -> (&mut Space, &mut Checkpoints, &mut CheckpointWriter);

    /// Returns whether a checkpoint is in progress or due.
    fn wants_chunk(&self) -> bool;

    /// Ensures that the stream of checkpoints can take a page.
    fn make_room_for_chunk(&mut self) -> Result<(), FtlError>;

    /// Composes the content. A clean checkpoint first seals the open blocks: mount never continues
    /// a block, so it need not scan these again.
    fn compose(&mut self, is_clean: bool) -> Result<Composed, FtlError>;

    /// Returns a chunk that follows the composed ones; `number` counts from the first of these
    /// later ones.
    fn later_chunk(&self, number: u32) -> Vec<u8>;

    /// Records that a checkpoint is complete.
    fn note_complete(&mut self);

    /// Advances the checkpoint after `programs` host programs: begins one when it is due, and
    /// writes a few chunks.
    #[inline]
    fn advance_checkpoint(&mut self, programs: u32) -> Result<(), FtlError> {
        if self.wants_chunk() {
            self.write_chunks(programs)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn write_chunks(&mut self, programs: u32) -> Result<(), FtlError> {
        if !self.checkpoint_parts().2.is_in_progress() {
            self.parts().1.wants_checkpoint = false;
            self.begin_checkpoint(false)?;
        }
        for _ in 0..programs * CHUNKS_PER_PROGRAM {
            if self.checkpoint_parts().2.is_in_progress() {
                self.write_chunk()?;
            }
        }
        Ok(())
    }

    /// Writes the rest of the checkpoint in progress, if there is one.
    fn finish_checkpoint(&mut self) -> Result<(), FtlError> {
        while self.checkpoint_parts().2.is_in_progress() {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Begins a checkpoint. Room for a clean one was made before: pages relocated now would be
    /// newer than it.
    fn begin_checkpoint(&mut self, is_clean: bool) -> Result<(), FtlError> {
        if !is_clean {
            self.make_room_for_chunk()?;
        }
        let composed = self.compose(is_clean)?;
        let (space, checkpoints, writer) = self.checkpoint_parts();
        let total = composed.chunks(&space.geometry()) + composed.later_chunks;
        checkpoints.begin(space, total)?;
        writer.begin_interval(space.flash.pseq());
        writer.composed = Some(composed);
        Ok(())
    }

    /// Writes the next chunk.
    fn write_chunk(&mut self) -> Result<(), FtlError> {
        const IN_PROGRESS: &str = "a checkpoint is in progress";
        let writer = self.checkpoint_parts().2;
        if !writer.composed.as_ref().expect(IN_PROGRESS).is_clean {
            self.make_room_for_chunk()?;
        }
        let (space, checkpoints, writer) = self.checkpoint_parts();
        let size = Checkpoints::chunk_bytes(&space.geometry());
        let composed = writer.composed.as_ref().expect(IN_PROGRESS);
        let number = checkpoints.next_chunk().expect(IN_PROGRESS);
        let upto = space.flash.pseq();
        let completed = match composed.bytes.chunks(size).nth(index(number)) {
            Some(payload) => checkpoints.write(space, payload, upto)?,
            None => {
                let later = number - composed.chunks(&space.geometry());
                let payload = self.later_chunk(later);
                let (space, checkpoints, _) = self.checkpoint_parts();
                checkpoints.write(space, &payload, upto)?
            }
        };
        if completed.is_some() {
            self.checkpoint_parts().2.composed = None;
            self.note_complete();
        }
        Ok(())
    }
}
