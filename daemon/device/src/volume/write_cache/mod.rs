//! Volatile write cache of a device: acknowledged writes wait in it until they are written back to
//! the flash.
//!
//! Terms: the cache is a *ring* of *entries*, one per extent of a host request. An entry has whole
//! *units*; a unit is the device's unit of atomicity. The newest *version* of a unit is in the
//! *index* until it is written back: such a unit is *dirty*.
//!
//! Invariants: an entry is in the cache area of the image file before its write is acknowledged, so
//! the daemon's death loses nothing. The newest content of a unit is that of the index, else that
//! of the flash. An entry leaves the ring when its units are on the flash or superseded; with
//! [`CacheOptions::keeps_order`] or power-loss protection only when the flash has been flushed
//! since.
//!
//! If the flash loses power, [`outcome`] decides per unit what survives. If the host crashes, the
//! whole cache is lost. docs/FORMAT.md has the bytes of the area and the proof.

mod area;
mod format;
mod index;
mod load;
mod outcome;
mod requests;
mod ring;
mod trims;
mod view;
mod write_back;

#[cfg(test)]
mod tests;

pub(crate) use area::Area;
pub use load::{Loaded, Lost, Opening, Pending, apply, peek};
pub use view::{CacheView, CutCounts, Model, Outcome, Reason};

use area::area_of;
use format::{HEAD_BYTES, Head, RING_BLOCK, State, bitmap_bytes};
use ftl_core::FtlError;
use ftld_kit::convert::to_usize;
use index::Index;
use nand_model::{SHARDS_MAX, atomic_bytes};
use requests::host_error;
use ring::Ring;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use trims::Trims;

/// Smallest cache of the command line, in bytes.
pub(crate) const CACHE_BYTES_MIN: u64 = 1 << 20;
/// Largest cache, in bytes; an image with more is a forgery.
pub(crate) const CACHE_BYTES_MAX: u64 = 1 << 36;
// The smallest cache with the maximum of shards: half of each ring holds what a trim needs, with
// units of 4 KiB.
const _: () = assert!(CACHE_BYTES_MIN / SHARDS_MAX as u64 >= 2 * (4 * RING_BLOCK + 2 * 4096));
/// Sizes of a cache are multiples of this many bytes.
pub(crate) const CACHE_BYTES_STEP: u64 = 4096;
/// Time after which a dirty unit is written back in the background.
pub(crate) const AGE: Duration = Duration::from_secs(5);
/// Minimum number of entries that fill the ring: bounds the size of one.
const ENTRIES_MIN: u64 = 8;

/// Options of a write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheOptions {
    /// Bytes of the ring.
    pub bytes: u64,
    /// What a power cut leaves.
    pub model: Model,
    /// Unit of atomicity in bytes, if it is smaller than that of the device.
    pub tear: Option<u32>,
    /// Whether a power cut loses nothing of the cache.
    pub protected: bool,
}

impl CacheOptions {
    /// Returns whether a power cut leaves a prefix of the acknowledged writes.
    pub(crate) fn keeps_order(&self) -> bool {
        self.model == Model::Ordered && !self.protected
    }

    /// Returns the options of the cache of one of this many shards.
    pub(crate) fn share(self, shards: u64) -> CacheOptions {
        let bytes = self.bytes.div_ceil(shards);
        CacheOptions {
            bytes: bytes.next_multiple_of(CACHE_BYTES_STEP),
            ..self
        }
    }

    /// Returns whether entries stay in the ring until the flash has been flushed: a power cut then
    /// finds them although the flash may have lost them.
    fn keeps_unflushed(&self) -> bool {
        self.model == Model::Ordered || self.protected
    }

    /// Returns the unit of a cache over pages of this size: a power of two that divides the page.
    pub(crate) fn unit(&self, page_bytes: u32) -> u32 {
        let atomic = atomic_bytes(page_bytes);
        self.tear.map_or(atomic, |tear| tear.min(atomic))
    }
}

/// Shape of a cache: its options, the unit and the device under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The options.
    pub(crate) options: CacheOptions,
    /// Bytes of a unit.
    pub(crate) unit: u32,
    /// Bytes of a flash page, a multiple of the unit.
    pub(crate) page_bytes: u32,
    /// Bytes that the scheme maps.
    pub(crate) logical_bytes: u64,
}

/// A write cache.
pub struct WriteCache {
    area: Box<dyn Area>,
    shape: Shape,
    head: Head,
    ring: Ring,
    index: Index,
    /// The last entry that some FLUSH, ended or not, has to cover.
    flush_to: u64,
    /// Error of the last write-back, if the flash takes no more writes.
    refused: Option<FtlError>,
    /// Whether the entries are those of an earlier daemon: there are no new ones.
    is_frozen: bool,
    /// Trims of such entries, to be repeated before any write-back; until then they read as zeros.
    trims: Trims,
    cut_seed: Option<u64>,
    is_cut: bool,
    view: CacheView,
    /// Contents of one write-back.
    scratch: Vec<u8>,
}

/// Room that a change needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) bytes: u64,
    /// Units that must not be dirty: the first, and the one behind the last.
    pub(super) clean: Option<(u64, u64)>,
    pub(super) reason: Reason,
}

impl WriteCache {
    /// Returns the bytes of the area of a cache.
    pub(crate) fn area_bytes(ring_bytes: u64) -> u64 {
        area_of(ring_bytes)
    }

    /// Creates an empty cache and writes the header of its area. `salt` is unknown to the host's
    /// users, so that none of their bytes looks like an entry.
    ///
    /// # Errors
    /// The host cannot write the area.
    pub(crate) fn format(
        area: Box<dyn Area>,
        shape: Shape,
        uuid: [u8; 16],
        boot_id: &str,
        salt: u64,
    ) -> io::Result<WriteCache> {
        let bytes = shape.options.bytes;
        assert!(
            bytes.is_multiple_of(CACHE_BYTES_STEP) && bytes >= 2 * CACHE_BYTES_STEP,
            "a cache of {bytes} bytes"
        );
        // Generations continue: an interrupted start must not find the old header's older copy,
        // which may be from before a power cut.
        let mut copies = vec![0; to_usize(HEAD_BYTES)];
        area.read_at(0, &mut copies)?;
        let generation = Head::newest(&copies).map_or(0, |head| head.generation);
        let head = Head {
            state: State::Live,
            generation,
            uuid,
            ring_bytes: bytes,
            unit: shape.unit,
            salt,
            tail: 0,
            tail_seq: 1,
            boot_id: boot_id.to_owned(),
            cut: CutCounts::default(),
        };
        let ring = Ring::new(bytes, shape.unit, salt, 0, 1);
        let mut cache = WriteCache::of(area, shape, head, ring);
        // Both copies: an earlier cache may have been at this place.
        cache.save(State::Live)?;
        cache.save(State::Live)?;
        Ok(cache)
    }

    fn of(area: Box<dyn Area>, shape: Shape, head: Head, ring: Ring) -> WriteCache {
        assert!(
            shape.page_bytes.is_multiple_of(shape.unit)
                && u64::from(shape.unit).is_multiple_of(RING_BLOCK),
            "units of {} bytes in pages of {} bytes",
            shape.unit,
            shape.page_bytes
        );
        WriteCache {
            area,
            shape,
            head,
            ring,
            index: Index::default(),
            flush_to: 0,
            refused: None,
            is_frozen: false,
            trims: Trims::default(),
            cut_seed: None,
            is_cut: false,
            view: CacheView::of(&shape.options),
            scratch: Vec::new(),
        }
    }

    /// Returns the bytes of its area.
    pub(super) fn area_len(&self) -> u64 {
        area_of(self.head.ring_bytes)
    }

    /// Returns the unit of atomicity in bytes.
    pub fn unit(&self) -> u32 {
        self.shape.unit
    }

    /// Returns the largest extent of a write in bytes.
    pub(super) fn extent_bytes(&self) -> u64 {
        let unit = u64::from(self.shape.unit);
        let most = self.shape.options.bytes / ENTRIES_MIN;
        (most.saturating_sub(RING_BLOCK) / unit).max(1) * unit
    }

    /// Returns the counters.
    pub(crate) fn view(&self) -> CacheView {
        CacheView {
            dirty_bytes: self.index.len() * u64::from(self.shape.unit),
            ..self.view
        }
    }

    /// Sets what earlier daemons lost at the last cut.
    pub(crate) fn set_last_cut(&mut self, counts: CutCounts) {
        self.view.last_cut = counts;
    }

    /// Returns whether nothing waits to be written back.
    pub(crate) fn is_drained(&self) -> bool {
        self.trims.is_empty() && self.ring.is_done()
    }

    /// Returns whether any unit in these bytes is dirty.
    pub(super) fn covers_any(&self, offset: u64, end: u64) -> bool {
        let unit = u64::from(self.shape.unit);
        self.index
            .next(offset / unit)
            .is_some_and(|next| next * unit < end)
    }

    /// Writes the area's header into the copy that is not the newest.
    fn next_head(&self, state: State) -> Head {
        let (tail, tail_seq) = self.ring.tail();
        Head {
            state,
            generation: self.head.generation + 1,
            tail,
            tail_seq,
            ..self.head.clone()
        }
    }

    fn save(&mut self, state: State) -> io::Result<()> {
        let head = self.next_head(state);
        let tail = head.tail;
        self.area.write_at(head.copy_at(), &head.encode())?;
        self.head = head;
        self.ring.freed = tail;
        Ok(())
    }

    /// Keeps the entries for the next daemon, whatever the host's boot id is then. The caller has
    /// synced the image.
    ///
    /// # Errors
    /// The host cannot write or sync the area.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        if self.head.state == State::Live {
            self.save(State::Closed)?;
        }
        self.area.sync()
    }

    /// Drops the entries of an earlier daemon, which are on the flash and synced. The caller syncs
    /// the image before the first request.
    ///
    /// # Errors
    /// The host cannot write the area.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        assert!(self.is_drained(), "dirty units are forgotten");
        self.ring.release();
        self.save(State::Closed)
    }

    /// Ends the use of a drained cache: the image has no area then.
    ///
    /// # Errors
    /// The host cannot write or sync the header of the image.
    pub(super) fn detach(&mut self) -> io::Result<()> {
        assert!(self.is_drained(), "a cache with dirty units is detached");
        self.area.detach()
    }

    fn bitmap_at() -> u64 {
        HEAD_BYTES
    }

    fn ring_at(&self) -> u64 {
        HEAD_BYTES + bitmap_bytes(self.head.ring_bytes)
    }

    fn store_error(error: &io::Error) -> FtlError {
        host_error(error)
    }
}
