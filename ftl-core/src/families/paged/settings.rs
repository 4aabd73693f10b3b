//! Common parameters of all schemes with their map on flash.

use super::STREAMS;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::format::Role;
use crate::gc::Scrub;
use crate::gc::placement::{self, more_streams};
use crate::wear::ColdToWorn;

/// Documentation of the common parameters, for the tables of schemes.
pub(crate) mod docs {
    use super::ParamDoc;
    use crate::gc::placement::PLACEMENT_PARAM;
    use crate::gc::policy;

    pub(crate) const TOMBSTONES: ParamDoc = ParamDoc {
        key: "map.max_tombstones",
        help: "trimmed pages that the map may lag behind (default 1024)",
    };
    pub(crate) const AGE_WINDOW: ParamDoc = ParamDoc {
        key: "map.age_window",
        help: "block allocations after which the map on flash has to know a block's pages (default 512)",
    };
    pub(crate) const FREE_THRESHOLD: ParamDoc = ParamDoc {
        key: "gc.free_threshold",
        help: "free blocks that GC keeps, at least the reserve and 3 (default: those, and max(1, 0.5 % of blocks))",
    };
    pub(crate) const CHECKPOINT_INTERVAL: ParamDoc = ParamDoc {
        key: "ckpt.interval",
        help: "programs between checkpoints, 0 = none (default max(65536, 100 x pages))",
    };
    pub(crate) use crate::wear::{GAP_PARAM as WEAR_GAP, POLICY_PARAM as WEAR_POLICY};
    pub(crate) const PAIR_POLICY: ParamDoc = ParamDoc {
        key: "nand.pair_policy",
        help: "defer_erase (default), or none: unsafe, for demonstrations",
    };

    /// All of them except the age window, which has another name in LazyFTL.
    pub(crate) const SHARED: &[ParamDoc] = &[
        TOMBSTONES,
        policy::POLICY_PARAM,
        policy::CHOICES_PARAM,
        PLACEMENT_PARAM,
        FREE_THRESHOLD,
        CHECKPOINT_INTERVAL,
        WEAR_POLICY,
        WEAR_GAP,
        crate::gc::SCRUB_PARAM,
        PAIR_POLICY,
    ];
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
    /// Data streams besides one for the host and one for copies.
    pub(crate) more_streams: u32,
    /// Roles of blocks with host data, and of blocks with relocated pages.
    pub(crate) host_role: Role,
    pub(crate) copy_role: Role,
    /// Free blocks that one GC run may need.
    pub(crate) reserve: u32,
    pub(crate) free_threshold: u32,
    pub(crate) checkpoint_interval: u64,
    pub(crate) wear: Option<ColdToWorn>,
    pub(crate) scrub: Scrub,
    pub(crate) pair_protection: bool,
}

impl Settings {
    /// Reads the common parameters of a scheme in which GC may take every full block. `reserve`:
    /// free blocks that one GC run may need.
    ///
    /// # Errors
    /// [`FtlError::Config`] if a value is malformed or cannot work.
    pub(crate) fn new(
        params: &Params,
        blocks: u32,
        checkpoint_pages: u32,
        reserve: u32,
    ) -> Result<Settings, FtlError> {
        let pair_protection = params.choice(docs::PAIR_POLICY.key, "defer_erase", "none")?;
        // With fewer blocks, the rewrites of a mount after a cut would use up the blocks that GC
        // needs.
        let more_streams = more_streams(placement::from_params(params, &[])?.streams());
        let of_mount = STREAMS.len() as u32 + more_streams;
        let least = reserve + if pair_protection { of_mount } else { 0 };
        let free_threshold = params.get(
            docs::FREE_THRESHOLD.key,
            reserve + of_mount + 1.max(blocks / 200),
        )?;
        if free_threshold < least {
            return Err(FtlError::Config(format!(
                "parameter {}: {free_threshold} blocks; GC and a mount need {least} on this device",
                docs::FREE_THRESHOLD.key
            )));
        }
        let settings = Settings {
            buffer_blocks: None,
            age_window: params.get(docs::AGE_WINDOW.key, 512)?,
            max_tombstones: params.get(docs::TOMBSTONES.key, 1024)?,
            max_pending: None,
            oob_mark: false,
            more_streams,
            host_role: Role::Data,
            copy_role: Role::Data,
            reserve,
            free_threshold,
            checkpoint_interval: params.get(
                docs::CHECKPOINT_INTERVAL.key,
                u64::max(65_536, 100 * checkpoint_pages as u64),
            )?,
            wear: ColdToWorn::from_params(params)?,
            scrub: Scrub::new(params)?,
            pair_protection,
        };
        // GC opens blocks too: a window that ends before GC has gained a block cannot be kept.
        if settings.age_window < 32 {
            return Err(FtlError::Config(format!(
                "parameter {}: need at least 32",
                docs::AGE_WINDOW.key
            )));
        }
        Ok(settings)
    }
}
