//! Common parameters of all schemes with their map on flash.

use super::state::STREAMS;
use crate::config::Params;
use crate::error::FtlError;
use crate::format::Role;
use crate::gc::placement::{self, more_streams};
use crate::gc::{self, FreeBlocks, Own};
use nand_model::Geometry;

/// Documentation of the common parameters, for the tables of schemes.
pub(crate) mod docs {
    use crate::config::ParamDoc;
    use crate::gc::placement::{PLACEMENT_PARAM, STRIPE_PARAM};
    use crate::gc::{fold, policy};

    pub(crate) const TOMBSTONES: ParamDoc = ParamDoc {
        key: "map.max_tombstones",
        help: "maximum number of tombstones not yet written to mapping pages (default 1024)",
    };
    pub(crate) const AGE_WINDOW: ParamDoc = ParamDoc {
        key: "map.age_window",
        help: "block allocations after which a block's entries must be in the mapping pages (default 512, more with many lanes)",
    };
    pub(crate) const LOOKUP: ParamDoc = ParamDoc {
        key: "map.lookup",
        help: "steps that a lookup counts: hash (default): of an index; list: of a search of the LRU lists",
    };
    pub(crate) const CHECKPOINT_INTERVAL: ParamDoc = ParamDoc {
        key: "ckpt.interval",
        help: "programs between checkpoints, 0 = none (default max(65536, 100 x pages))",
    };
    pub(crate) use crate::gc::docs::{
        FREE_THRESHOLD, PAIR_POLICY, RAM_TIME, SCRUB, WEAR_GAP, WEAR_POLICY,
    };

    /// All of them except the age window, which has another name in LazyFTL.
    pub(crate) const SHARED: &[ParamDoc] = &[
        TOMBSTONES,
        policy::POLICY_PARAM,
        policy::CHOICES_PARAM,
        PLACEMENT_PARAM,
        STRIPE_PARAM,
        fold::VICTIM_PARAM,
        fold::FULL_PARAM,
        FREE_THRESHOLD,
        CHECKPOINT_INTERVAL,
        WEAR_POLICY,
        WEAR_GAP,
        SCRUB,
        PAIR_POLICY,
        RAM_TIME,
    ];

    /// Shared parameters of a scheme of another crate.
    pub(crate) const OF_AUTHOR: [ParamDoc; SHARED.len() + 1] = {
        let mut all = [AGE_WINDOW; SHARED.len() + 1];
        let (shared, _) = all.split_at_mut(SHARED.len());
        shared.copy_from_slice(SHARED);
        all
    };
}

/// Returns whether lookup steps are those of a search of the LRU lists.
pub(crate) fn looks_up_by_list(params: &Params) -> Result<bool, FtlError> {
    Ok(!params.choice(docs::LOOKUP.key, "hash", "list")?)
}

/// Validated parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Maximum number of blocks that GC does not take before their conversion. `None`: GC may take
    /// every full block.
    pub(crate) buffer_blocks: Option<u32>,
    /// Block allocations after which the map on flash must contain a block's pages.
    pub(crate) age_window: u64,
    pub(crate) max_tombstones: u32,
    /// Maximum number of pending changes.
    pub(crate) max_pending: Option<u32>,
    /// Superseded pages are marked in their OOB area.
    pub(crate) oob_mark: bool,
    /// Open blocks of data besides one for the host and one for copies.
    pub(crate) more_streams: u32,
    /// Groups of logical pages with blocks of their own; fewer than 2: none.
    pub(crate) groups: u32,
    /// Roles of blocks with host data, and of blocks with relocated pages.
    pub(crate) host_role: Role,
    pub(crate) copy_role: Role,
    /// Free blocks that one GC run may need.
    pub(crate) reserve: u32,
    pub(crate) gc: gc::Settings,
    pub(crate) checkpoint_interval: u64,
}

/// Returns the shortest window of block allocations: every lane opens two blocks, and two more in
/// the GC runs that one conversion needs.
pub(crate) fn age_window_least(more_streams: u32) -> u64 {
    u64::from(4 * (2 + more_streams))
}

/// Bounds of the pending changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Entries that the paper counts: those of its areas, or the limit of the parameter.
    pub(crate) counted: u64,
    /// Upper bound of the entries in RAM.
    pub(crate) entries: u64,
    /// Blocks with pending pages, at most.
    pub(crate) blocks: u64,
}

impl Settings {
    /// Returns the bounds of pending changes. For a while they exceed the limits by tombstones,
    /// with those that one trim adds to the mapping pages at its ends, and by the pages of open
    /// blocks and of one run.
    pub(crate) fn bounds(&self, geometry: &Geometry) -> Bounds {
        let pages = geometry.pages_per_block as u64;
        let open = (STREAMS.len() as u32 + self.more_streams) as u64;
        let blocks = match self.buffer_blocks {
            Some(blocks) => blocks as u64,
            None => self.age_window,
        };
        let counted = match self.max_pending {
            Some(entries) => entries as u64,
            None => blocks * pages,
        };
        let trimmed = self.max_tombstones as u64 + 2 * (geometry.page_bytes / 4) as u64;
        Bounds {
            counted,
            entries: counted + trimmed + (open + 1) * pages,
            blocks: (blocks + open).min(geometry.blocks as u64),
        }
    }

    /// Reads the common parameters of a scheme in which GC may take every full block. `reserve`:
    /// free blocks that one GC run may need; `own`: policies of the scheme.
    ///
    /// # Errors
    /// [`FtlError::Config`] if a value is malformed or cannot work.
    pub(crate) fn new(
        params: &Params,
        own: &Own,
        blocks: u32,
        checkpoint_pages: u32,
        reserve: u32,
    ) -> Result<Settings, FtlError> {
        let more_streams = more_streams(placement::from_params(params, own)?.lanes());
        let rewritten = STREAMS.len() as u32 + more_streams;
        let free_blocks = FreeBlocks {
            default: reserve + rewritten + 1.max(blocks / 200),
            for_gc: reserve,
            for_failures: 1,
            for_mount: rewritten,
        };
        let settings = Settings {
            buffer_blocks: None,
            age_window: params.get(
                docs::AGE_WINDOW.key,
                age_window_least(more_streams).max(512),
            )?,
            max_tombstones: params.get(docs::TOMBSTONES.key, 1024)?,
            max_pending: None,
            oob_mark: false,
            more_streams,
            groups: 0,
            host_role: Role::Data,
            copy_role: Role::Data,
            reserve,
            gc: gc::Settings::new(params, free_blocks)?,
            checkpoint_interval: params.get(
                docs::CHECKPOINT_INTERVAL.key,
                u64::max(65_536, 100 * checkpoint_pages as u64),
            )?,
        };
        // GC opens blocks too: a window that ends before GC has gained a block cannot be kept.
        let least = age_window_least(more_streams).max(32);
        if settings.age_window < least {
            return Err(FtlError::Config(format!(
                "parameter {}: need at least {least} with the lanes of gc.placement and alloc.stripe",
                docs::AGE_WINDOW.key
            )));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::paged::tests::config;

    #[test]
    fn eight_lanes_need_a_longer_age_window() {
        let geometry = Geometry {
            channels: 8,
            ..nand_model::Profile::default_profile().geometry
        };
        let new = |window, stripe| {
            let params = [("map.age_window", window), ("alloc.stripe", stripe)];
            let own = Own::none(&geometry);
            Settings::new(&config(300, &params).params, &own, 1000, 10, 5)
        };
        assert!(new("32", "1").is_ok());
        assert!(new("31", "1").is_err());
        // The host and GC have seven lanes more each.
        assert!(new("64", "8").is_ok());
        let error = new("63", "8").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("map.age_window: need at least 64"),
            "{error}"
        );
        assert_eq!(new("64", "8").unwrap().more_streams, 14);
    }
}
