//! The state of the family, and its streams.

use super::groups::Groups;
use super::pending::Pending;
use super::settings::Settings;
use crate::checkpoint::CheckpointWriter;
use crate::controller::Controller;
use crate::flash::OwnPage;
use crate::format::PageTag;
use crate::gc::placement::DataStreams;
use crate::space::StreamId;
use crate::trims::{Mapped, UntilWritten};
use std::collections::VecDeque;

pub(crate) const HOST: StreamId = 0;
pub(crate) const COLD: StreamId = 1;
pub(crate) const MAP: StreamId = 2;
pub(super) const CHECKPOINT: StreamId = 3;
/// Streams with pages of the host or the map. A placement adds streams after the last one.
pub(super) const STREAMS: std::ops::Range<StreamId> = HOST..CHECKPOINT;

/// The map, its pending changes, and its checkpoints.
pub(crate) struct PagedMap<P> {
    pub(super) scheme: &'static str,
    pub(super) logical_pages: u32,
    /// Entries of a mapping page.
    pub(super) per_page: u32,
    pub(crate) settings: Settings,
    pub(crate) policy: P,
    pub(crate) streams: DataStreams,
    pub(crate) pending: Pending,
    /// Location by mapping page; [`UNMAPPED`] if all its entries are unmapped.
    pub(crate) directory: Vec<u32>,
    /// By mapping page, the `upto` of its newest version on flash, also if that version was trimmed
    /// as a whole.
    pub(super) upto: Vec<u64>,
    pub(super) mapped: Mapped,
    /// The mapping page being read or composed.
    pub(crate) map_page: OwnPage,
    /// Converted blocks: the epoch, and the last program of the conversion. Programs up to that one
    /// must be safe before the block leaves the recovery window.
    pub(super) converted: VecDeque<(u64, u64)>,
    /// Set while mapping pages are written during other work: their blocks come from the reserve.
    pub(super) converting: bool,
    pub(crate) trims: UntilWritten,
    pub(super) writer: CheckpointWriter,
    pub(super) tags: Vec<PageTag>,
    /// Mapping pages that a conversion writes.
    pub(super) to_write: Vec<u32>,
    /// Entries that a write-back leaves out, by index in their mapping page, in the order of its
    /// changes.
    pub(super) left: Vec<u16>,
    /// Pages that a write-back supersedes, or [`UNMAPPED`], in the order of the changes.
    pub(super) superseded: Vec<u32>,
    /// Buffers of a GC run: uncached mapping pages of the relocated pages; and, by page of the
    /// victim, whether it is superseded and therefore not relocated.
    pub(super) relocated: (Vec<u32>, Vec<bool>),
    pub(super) groups: Groups,
    /// Buffer of a GC run that sorts its copies.
    pub(super) order: Vec<usize>,
}

/// A scheme over a chip.
pub(crate) type PagedFtl<P> = Controller<PagedMap<P>>;
