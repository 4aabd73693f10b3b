//! Parameters of page maps in RAM.

use super::map::PageMapScheme;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::gc::placement::{PLACEMENT_PARAM, STRIPE_PARAM, more_streams};
use crate::gc::{self, FreeBlocks, SCRUB_PARAM, docs, fold, pace, policy};
use crate::recovery::rewrite_reserve;
use crate::wear::{WEAR_GAP_PARAM, WEAR_POLICY_PARAM};
use nand_model::Profile;

/// Parameters of the schemes of this family.
pub(crate) const PARAMS: &[ParamDoc] = &params(policy::POLICY_PARAM, PLACEMENT_PARAM);

/// Returns the parameters of a scheme: its own policies, if it has some, are the defaults.
pub(crate) const fn params_of<S: PageMapScheme>() -> [ParamDoc; 14] {
    let policy = match S::POLICIES {
        [] => policy::POLICY_PARAM,
        _ => ParamDoc {
            help: "victim selection: one of the scheme's own (its first is the default), greedy, \
                   cost_benefit, fifo, d_choices or cat",
            ..policy::POLICY_PARAM
        },
    };
    let placement = match S::POLICIES {
        [] => PLACEMENT_PARAM,
        _ => ParamDoc {
            help: "assignment of pages to streams: one of the scheme's own (its first is the default), \
                   copies_apart, single, age, sepbit or mida; or midas or mdc, which choose the \
                   victims too",
            ..PLACEMENT_PARAM
        },
    };
    params(policy, placement)
}

const fn params(policy: ParamDoc, placement: ParamDoc) -> [ParamDoc; 14] {
    [
        docs::FREE_THRESHOLD,
        policy,
        policy::CHOICES_PARAM,
        pace::PARAM,
        placement,
        STRIPE_PARAM,
        fold::VICTIM_PARAM,
        fold::FULL_PARAM,
        ParamDoc {
            key: "ckpt.interval",
            help: "programs between checkpoints, 0 = only if trims need one (default max(65536, 100 x pages))",
        },
        WEAR_POLICY_PARAM,
        WEAR_GAP_PARAM,
        SCRUB_PARAM,
        docs::PAIR_POLICY,
        docs::RAM_TIME,
    ]
}

/// Validated parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Free blocks for what a write buffer has acknowledged.
    pub(super) buffered: u32,
    pub(super) gc: gc::Settings,
    /// Open blocks of data besides one for the host and one for copies.
    pub(super) more_streams: u32,
    pub(super) checkpoint_interval: u64,
}

impl Settings {
    /// Reads the parameters. `buffered`: free blocks that take the acknowledged writes in RAM.
    pub(super) fn new(
        params: &Params,
        profile: &Profile,
        blocks: u32,
        checkpoint_pages: u32,
        streams: (u32, u32),
        buffered: u32,
    ) -> Result<Settings, FtlError> {
        let more_streams = more_streams(streams);
        let rewritten = rewrite_reserve(profile, 1 + more_streams);
        // A read-only device programs its buffer, too, without the blocks kept for a mount.
        let buffered = match buffered {
            0 => 0,
            blocks => blocks + rewritten,
        };
        let free_blocks = FreeBlocks {
            default: buffered + 4.max(blocks / 200).max(2 + rewritten),
            for_gc: buffered + 2,
            for_failures: 2,
            for_mount: rewritten,
        };
        Ok(Settings {
            buffered,
            gc: gc::Settings::new(params, free_blocks)?,
            more_streams,
            checkpoint_interval: params.get(
                "ckpt.interval",
                u64::max(65_536, 100 * checkpoint_pages as u64),
            )?,
        })
    }
}
