//! Parameters of page maps in RAM.

use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::gc::placement::{PLACEMENT_PARAM, more_streams};
use crate::gc::{SCRUB_PARAM, Scrub, policy};
use crate::recovery::rewrite_reserve;
use crate::wear::{ColdToWorn, GAP_PARAM, POLICY_PARAM};
use nand_model::Profile;

/// Parameters of the schemes of this family.
pub(crate) const PARAMS: &[ParamDoc] = &[
    ParamDoc {
        key: "gc.free_threshold",
        help: "free blocks that GC keeps (default max(4, 0.5 % of blocks), and what a mount rewrites)",
    },
    policy::POLICY_PARAM,
    policy::CHOICES_PARAM,
    PLACEMENT_PARAM,
    ParamDoc {
        key: "ckpt.interval",
        help: "programs between checkpoints, 0 = only when trims need one (default max(65536, 100 x pages))",
    },
    POLICY_PARAM,
    GAP_PARAM,
    SCRUB_PARAM,
    ParamDoc {
        key: "nand.pair_policy",
        help: "defer_erase (default), or none: unsafe, for demonstrations",
    },
];

/// Validated parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) free_threshold: u32,
    /// Data streams besides one for the host and one for copies.
    pub(super) more_streams: u32,
    pub(super) checkpoint_interval: u64,
    pub(super) wear: Option<ColdToWorn>,
    pub(super) scrub: Scrub,
    pub(super) pair_protection: bool,
}

impl Settings {
    pub(super) fn new(
        params: &Params,
        profile: &Profile,
        blocks: u32,
        checkpoint_pages: u32,
        streams: (u32, u32),
    ) -> Result<Settings, FtlError> {
        let pair_protection = params.choice("nand.pair_policy", "defer_erase", "none")?;
        let more_streams = more_streams(streams);
        let rewritten = rewrite_reserve(profile, 1 + more_streams);
        let least = 2 + if pair_protection { rewritten } else { 0 };
        let free_threshold = params.get("gc.free_threshold", 4.max(blocks / 200).max(least))?;
        if free_threshold < least {
            return Err(FtlError::Config(format!(
                "parameter gc.free_threshold: {free_threshold} blocks; GC and a mount need {least} on this device"
            )));
        }
        Ok(Settings {
            free_threshold,
            more_streams,
            checkpoint_interval: params.get(
                "ckpt.interval",
                u64::max(65_536, 100 * checkpoint_pages as u64),
            )?,
            wear: ColdToWorn::from_params(params)?,
            scrub: Scrub::new(params)?,
            pair_protection,
        })
    }
}
