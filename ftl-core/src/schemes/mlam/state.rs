//! The state of the scheme, and its streams.

use super::buffer::Buffer;
use super::cost::Cost;
use super::mapping::LevelMap;
use super::rows::Rows;
use super::settings::Settings;
use super::shape::Shape;
use super::superblocks::Superblocks;
use crate::controller::Controller;
use crate::int::index;
use crate::space::StreamId;
use crate::trims::Trims;

/// Stream of the journal, trim records, and pages relocated one by one.
pub(super) const COMMON: StreamId = 0;
pub(super) const CHECKPOINT: StreamId = 1;
/// Stream of the first chip of the superblock being written.
pub(super) const FIRST_CHIP: StreamId = 2;

/// Returns the stream of a chip's open block.
#[inline]
pub(super) const fn chip_stream(chip: u32) -> StreamId {
    FIRST_CHIP + index(chip)
}

/// Bytes of the scheme part: the serial number of the page's superblock.
pub(super) const SPARE_BYTES: usize = 6;

/// Tables, superblocks and the write buffer.
pub(super) struct Mlam {
    pub(super) logical_pages: u32,
    pub(super) settings: Settings,
    pub(super) shape: Shape,
    pub(super) mapping: LevelMap,
    pub(super) superblocks: Superblocks,
    pub(super) buffer: Buffer,
    /// Logical pages on flash, and trim records.
    pub(super) trims: Trims,
    /// Number of buffered pages without content on flash.
    pub(super) unflushed_pages: u64,
    pub(super) cost: Cost,
    pub(super) rows: Rows,
}

/// The scheme over a chip.
pub(super) type MlamFtl = Controller<Mlam>;
