//! Parameters of schemes that collect without a map on flash.

use super::Scrub;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::recovery::rescue_blocks;
use crate::wear::ColdToWorn;
use nand_model::{PairTable, Profile};

/// Documentation of them, for the tables of schemes.
pub(crate) mod docs {
    use super::ParamDoc;

    pub(crate) const FREE_THRESHOLD: ParamDoc = ParamDoc {
        key: "gc.free_threshold",
        help: "free blocks that collection keeps (default max(4, 0.5 % of blocks), and what a mount may need)",
    };
    pub(crate) const PAIR_POLICY: ParamDoc =
        ParamDoc { key: "nand.pair_policy", help: "defer_erase (default), or none: unsafe, for demonstrations" };
    pub(crate) use crate::gc::SCRUB_PARAM as SCRUB;
    pub(crate) use crate::wear::{GAP_PARAM as WEAR_GAP, POLICY_PARAM as WEAR_POLICY};

    /// All of them.
    pub(crate) const SHARED: &[ParamDoc] = &[FREE_THRESHOLD, WEAR_POLICY, WEAR_GAP, SCRUB, PAIR_POLICY];
}

/// The parameters, validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Free blocks that collection keeps.
    pub(crate) free_threshold: u32,
    pub(crate) wear: Option<ColdToWorn>,
    pub(crate) scrub: Scrub,
    pub(crate) pair_protection: bool,
}

impl Settings {
    /// Of a device where so many units may have an open block each.
    pub(crate) fn new(params: &Params, profile: &Profile, blocks: u32, units: u32) -> Result<Settings, FtlError> {
        let pages = profile.geometry.pages_per_block;
        let rescued = rescue_blocks(&PairTable::new(profile.pairing, pages), pages, units);
        let free_threshold = params.get("gc.free_threshold", 4.max(blocks / 200) + rescued)?;
        if free_threshold < 2 {
            return Err(FtlError::Config("parameter gc.free_threshold: collection needs at least 2 blocks".into()));
        }
        Ok(Settings {
            free_threshold,
            wear: ColdToWorn::from_params(params)?,
            scrub: Scrub::new(params)?,
            pair_protection: params.choice("nand.pair_policy", "defer_erase", "none")?,
        })
    }
}
