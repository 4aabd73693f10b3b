//! Parameters that the families `hybrid` and `units` share; `page_ram`, `paged` and `mlam` have
//! settings of their own.

use super::Scrub;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::recovery::rewrite_reserve;
use crate::wear::ColdToWorn;
use nand_model::Profile;

/// Documentation of the parameters, for the tables of schemes.
pub(crate) mod docs {
    use super::ParamDoc;

    pub(crate) const FREE_THRESHOLD: ParamDoc = ParamDoc {
        key: "gc.free_threshold",
        help: "free blocks that GC keeps, at least 2 and what a mount may need (default max(4, 0.5 % of blocks), and that)",
    };
    pub(crate) const PAIR_POLICY: ParamDoc = ParamDoc {
        key: "nand.pair_policy",
        help: "defer_erase (default), or none: unsafe, for demonstrations",
    };
    pub(crate) use crate::gc::SCRUB_PARAM as SCRUB;
    pub(crate) use crate::wear::{GAP_PARAM as WEAR_GAP, POLICY_PARAM as WEAR_POLICY};

    /// All shared parameters.
    pub(crate) const SHARED: &[ParamDoc] =
        &[FREE_THRESHOLD, WEAR_POLICY, WEAR_GAP, SCRUB, PAIR_POLICY];
}

/// The parameters, validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Free blocks that GC maintains.
    pub(crate) free_threshold: u32,
    pub(crate) wear: Option<ColdToWorn>,
    pub(crate) scrub: Scrub,
    pub(crate) pair_protection: bool,
}

impl Settings {
    /// Reads the settings of a device on which `units` units may have an open block each.
    pub(crate) fn new(
        params: &Params,
        profile: &Profile,
        blocks: u32,
        units: u32,
    ) -> Result<Settings, FtlError> {
        let rewritten = rewrite_reserve(profile, units);
        let free_threshold = params.get("gc.free_threshold", 4.max(blocks / 200) + rewritten)?;
        let pair_protection = params.choice("nand.pair_policy", "defer_erase", "none")?;
        // With fewer, repeated power cuts would leave a mount without room for the pages that it
        // rewrites.
        let least = 2 + if pair_protection { rewritten } else { 0 };
        if free_threshold < least {
            return Err(FtlError::Config(format!(
                "parameter gc.free_threshold: {free_threshold} blocks; GC and a mount need {least} on this device"
            )));
        }
        Ok(Settings {
            free_threshold,
            wear: ColdToWorn::from_params(params)?,
            scrub: Scrub::new(params)?,
            pair_protection,
        })
    }
}
