//! The state of a store in an image file.

use super::batch::Batch;
use super::cache_area::CacheArea;
use super::counts::Counts;
use super::disk::Disk;
use super::reader::Verified;
use super::scan::Scan;
use super::slots::Slots;
use super::sync::{SyncError, SyncHandle};
use crate::addr::Ppn;
use crate::image::{ImageError, ImageInfo, Layout, Mark};
use crate::store::contents::BlockFacts;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A store in an image file.
pub struct FileStore {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) sync: SyncHandle,
    pub(super) path: PathBuf,
    pub(super) info: ImageInfo,
    pub(super) layout: Layout,
    pub(super) read_only: bool,
    pub(super) blocks: Vec<Block>,
    pub(super) counts: Counts,
    /// Pages that are not [`Health::Good`].
    pub(super) unhealthy: HashMap<u32, Mark>,
    pub(super) slots: Slots,
    /// Pages whose data readers outside the lock need not check again.
    pub(super) verified: Option<Arc<Verified>>,
    /// Blocks erased before this operation and unused since have released their slot's space.
    pub(super) trimmed_seq: u64,
    pub(super) batch: Batch,
    pub(super) scratch: Vec<u8>,
    pub(super) scan: Scan,
    /// Checks of the data of the pages that are read.
    pub(super) checks: Vec<u32>,
    /// Discards the bytes between the pages that are read.
    pub(super) unwanted: Vec<u8>,
}

/// Location and facts of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// `None`: never used; all facts except a bad mark have their initial values.
    pub(super) slot: Option<u32>,
    pub(super) facts: BlockFacts,
    /// The operation that began the slot's life.
    pub(super) erase_seq: u64,
}

impl FileStore {
    /// The image's description; `clean` and `sync_failed` as found when it was opened.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Returns a handle that waits for operations to become durable; take it before the store moves
    /// into a chip.
    pub fn sync_handle(&self) -> SyncHandle {
        self.sync.clone()
    }

    /// Returns the area of a write cache behind the slots, attached or not. Only the first store of
    /// a file attaches one.
    pub fn cache_area(&self) -> CacheArea {
        CacheArea {
            sync: self.sync.clone(),
            begin: 0,
        }
    }

    /// Maps the file for reads, unless it is mapped. To read a place once, a page fault costs more
    /// than a call.
    pub(super) fn map_file(&self) {
        if !self.read_only {
            let (file, bytes) = self.sync.file();
            file.map(bytes);
        }
    }

    /// Whether changes stay in memory.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Marks the image as closed cleanly, so that the next open needs no scan. A store dropped
    /// without this is unclean, which loses nothing.
    ///
    /// # Errors
    ///
    /// [`ImageError::Io`] if the host cannot write the block table or the header, or a sync failed,
    /// now or earlier. The image stays unclean: the next open recovers it.
    pub fn close(mut self) -> Result<(), ImageError> {
        if self.read_only {
            return Ok(());
        }
        self.write_batch()
            .map_err(|error| self.io_failure("write its newest pages", error))?;
        self.write_table()
            .map_err(|error| self.io_failure("write its block table", error))?;
        self.sync
            .write_clean(true)
            .map_err(|error| self.io_failure("sync it", error.into()))?;
        Ok(())
    }

    /// Syncs everything, and marks the header as one whose emulated power was cut.
    ///
    /// # Errors
    ///
    /// The host cannot write or sync the image.
    pub fn close_powerless(mut self) -> Result<(), ImageError> {
        if self.read_only {
            return Ok(());
        }
        self.write_batch()
            .map_err(|error| self.io_failure("write its newest pages", error))?;
        self.sync
            .write_power_cut()
            .map_err(|error| self.io_failure("sync it", error.into()))
    }

    pub(super) fn io_failure(&self, action: &'static str, source: io::Error) -> ImageError {
        ImageError::Io {
            path: self.path.clone(),
            action,
            source,
        }
    }

    /// Refuses changes after a failed sync.
    #[inline]
    pub(super) fn usable(&self) -> io::Result<()> {
        match self.sync.failure() {
            None => Ok(()),
            Some(_) => Err(SyncError::Closed.into()),
        }
    }

    /// Refuses changes like [`FileStore::usable`], and writes the programs before this one.
    #[inline]
    pub(super) fn begin_change(&mut self) -> io::Result<()> {
        self.usable()?;
        self.write_batch()
    }

    /// Restores the bytes before a write that failed half way, and syncs them. The next operation
    /// gets the number of the refused one, and a host crash must not keep both. The caller's lock
    /// is held across this sync, which happens only after an error of the host.
    pub(super) fn restore_bytes(&self, at: u64, before: &[u8]) {
        let done = self
            .disk
            .write_at(at, before)
            .map_err(io::Error::from)
            .and_then(|()| Ok(self.sync.force()?));
        if let Err(error) = done {
            self.sync.fail(&error);
        }
    }

    /// Whether a block's records can change no more before its next erase.
    pub(super) fn is_complete(&self, block: usize) -> bool {
        let is_marked = |&ppn: &u32| self.layout.geometry.block_of(Ppn::new(ppn)).index() == block;
        self.counts.is_full(block) && !self.unhealthy.keys().any(is_marked)
    }

    /// Location of a page: block, slot and offset; `None` if its block was never used.
    #[inline]
    pub(super) fn locate(&self, ppn: Ppn) -> Option<(usize, u32, u32)> {
        let block = self.layout.geometry.block_of(ppn).index();
        let page = self.layout.geometry.offset_of(ppn);
        self.blocks[block].slot.map(|slot| (block, slot, page))
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // Handles may outlive the store; their syncs must not write the header of an image that
        // another process has opened.
        self.sync.stop();
        self.disk.unlock();
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore")
            .field("path", &self.path)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
