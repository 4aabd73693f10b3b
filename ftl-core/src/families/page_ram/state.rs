//! The state of the family, its streams, and changes of the map.

use super::buffer::WriteBuffer;
use super::map::PageMap;
use crate::addr::Lpn;
use crate::checkpoint::CheckpointWriter;
use crate::controller::Controller;
use crate::format::PageTag;
use crate::gc::placement::DataStreams;
use crate::space::{Space, StreamId};
use crate::trims::UntilCheckpoint;
use nand_model::Ppn;

pub(super) const HOST: StreamId = 0;
pub(super) const CHECKPOINT: StreamId = 1;
pub(super) const GC: StreamId = 2;

/// The map and its checkpoints.
pub(crate) struct PageRam<M> {
    /// Name of the scheme.
    pub(super) scheme: &'static str,
    pub(super) logical_pages: u32,
    pub(super) pages: M,
    pub(super) mapped: u64,
    /// Look-ups near a prediction that no record decided, and pages whose owner none named.
    pub(super) lost: u64,
    pub(super) trims: UntilCheckpoint,
    pub(super) streams: DataStreams,
    pub(super) writer: CheckpointWriter,
    pub(super) tags: Vec<PageTag>,
    /// Write buffer of a scheme that acknowledges writes in RAM, whose map is
    /// [sorted](PageMap::SORTED).
    pub(super) buffer: Option<WriteBuffer>,
    /// Locations of the pages that a run replaces, and whether each lookup was a hit, of a map that
    /// [predicts](PageMap::PREDICTS).
    pub(super) replaced: Vec<(Option<Ppn>, bool)>,
    /// Order of the pages that GC copies.
    pub(super) order: Vec<usize>,
}

/// The scheme over a chip.
pub(crate) type PageMapFtl<M> = Controller<PageRam<M>>;

impl<M: PageMap> PageRam<M> {
    /// Points the page at its new location and invalidates the old page, `old`.
    #[inline]
    pub(super) fn set_map(
        &mut self,
        space: &mut Space,
        lpn: Lpn,
        old: Option<Ppn>,
        ppn: Option<Ppn>,
    ) {
        debug_assert!(
            ppn.is_none_or(|ppn| space.table.is_valid(ppn)),
            "logical page {lpn} is mapped to an invalid page: {ppn:?}"
        );
        debug_assert!(
            old.is_none_or(|old| space.table.is_valid(old)),
            "the map has logical page {lpn} at {old:?}, which no `set` of this page gave last: `get` \
             returns what the last `set` gave"
        );
        let was_mapped = self.was_mapped(lpn, old);
        self.pages.set(lpn, ppn);
        self.invalidate_old(space, old, (was_mapped, ppn.is_some()));
    }

    /// Returns whether the page is mapped; `old`: its location, if that is known.
    #[inline(always)]
    pub(super) fn was_mapped(&self, lpn: Lpn, old: Option<Ppn>) -> bool {
        old.is_some() || M::PREDICTS && self.pages.predict(lpn).is_some()
    }

    /// Invalidates the old page of a map entry, and counts the mapped pages by whether it was
    /// mapped, and is.
    #[inline(always)]
    pub(super) fn invalidate_old(
        &mut self,
        space: &mut Space,
        old: Option<Ppn>,
        (was_mapped, is_mapped): (bool, bool),
    ) {
        match was_mapped {
            false => self.mapped += is_mapped as u64,
            true => self.mapped -= !is_mapped as u64,
        }
        if let Some(old) = old {
            space.table.set_invalid(old);
        }
    }
}
