//! Parameters of garbage collection and of the other relocations, for all schemes; the duration of
//! a lookup step in RAM, for schemes that count these steps. Each family computes the free blocks
//! that it needs ([`FreeBlocks`]).

use super::scrub::Scrub;
use crate::config::Params;
use crate::error::FtlError;
use crate::wear::ColdToWorn;
use nand_model::Nanos;

/// Documentation of the parameters, for the tables of schemes.
pub(crate) mod docs {
    use crate::config::ParamDoc;

    pub(crate) const FREE_THRESHOLD: ParamDoc = ParamDoc {
        key: "gc.free_threshold",
        help: "free blocks that GC keeps, at least as many as GC and a mount need (default: these and spare ones, together at least 0.5 % of all blocks)",
    };
    pub(crate) const PAIR_POLICY: ParamDoc = ParamDoc {
        key: "nand.pair_policy",
        help: "protection of paired pages: defer_erase (default), or none, which is unsafe, for demonstrations",
    };
    pub(crate) const RAM_TIME: ParamDoc = ParamDoc {
        key: "timing.ram",
        help: "us that a step of a mapping lookup in RAM takes, 0 to 1000, fractions allowed (default 0)",
    };
    pub(crate) use crate::gc::scrub::PARAM as SCRUB;
    pub(crate) use crate::wear::{WEAR_GAP_PARAM as WEAR_GAP, WEAR_POLICY_PARAM as WEAR_POLICY};

    /// All of them.
    pub(crate) const SHARED: &[ParamDoc] = &[
        FREE_THRESHOLD,
        WEAR_POLICY,
        WEAR_GAP,
        SCRUB,
        PAIR_POLICY,
        RAM_TIME,
    ];
}

/// Free blocks that a device needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeBlocks {
    /// Default of `gc.free_threshold` besides `for_mount`. It includes as many blocks again, since
    /// GC must gain those that a mount took.
    pub(crate) default: u32,
    /// Least value of `gc.free_threshold` for GC.
    pub(crate) for_gc: u32,
    /// Further ones for programs and erases that fail while GC runs, so that it can end. Not needed
    /// without pair protection, where a device may end.
    pub(crate) for_failures: u32,
    /// Further blocks for the pages that a mount rewrites, and for nothing else. With fewer, a cut
    /// after many failing programs would leave a mount without room. Not needed without pair
    /// protection.
    pub(crate) for_mount: u32,
}

/// The parameters, validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Free blocks that GC maintains, with those kept for a mount.
    pub(crate) free_threshold: u32,
    pub(crate) kept_for_mount: u32,
    pub(crate) wear: Option<ColdToWorn>,
    pub(crate) scrub: Scrub,
    pub(crate) pair_protection: bool,
    /// Time of a step of a mapping lookup in RAM.
    pub(crate) ram_step_ns: Nanos,
}

impl Settings {
    /// # Errors
    /// [`FtlError::Config`] if a value is malformed, or the threshold is lower than the device
    /// needs.
    pub(crate) fn new(params: &Params, free_blocks: FreeBlocks) -> Result<Settings, FtlError> {
        let FreeBlocks {
            default,
            for_gc,
            for_failures,
            for_mount,
        } = free_blocks;
        let pair_protection = params.choice(docs::PAIR_POLICY.key, "defer_erase", "none")?;
        let (kept_for_mount, for_failures) = match pair_protection {
            true => (for_mount, for_failures),
            false => (0, 0),
        };
        let free_threshold = params.get(docs::FREE_THRESHOLD.key, default + kept_for_mount)?;
        let least = for_gc + for_failures + kept_for_mount;
        if free_threshold < least {
            return Err(FtlError::Config(format!(
                "parameter {}: {free_threshold} blocks; GC and a mount need {least} on this device",
                docs::FREE_THRESHOLD.key
            )));
        }
        Ok(Settings {
            free_threshold,
            kept_for_mount,
            wear: ColdToWorn::from_params(params)?,
            scrub: Scrub::new(params)?,
            pair_protection,
            ram_step_ns: ram_step_ns(params)?,
        })
    }
}

/// Returns the time of a step of a mapping lookup in RAM.
fn ram_step_ns(params: &Params) -> Result<Nanos, FtlError> {
    let us: f64 = params.get(docs::RAM_TIME.key, 0.0)?;
    if !(0.0..=1000.0).contains(&us) {
        return Err(FtlError::Config(format!(
            "parameter {}: {us} is not a time in us from 0 to 1000",
            docs::RAM_TIME.key
        )));
    }
    Ok((us * 1000.0).round() as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_ram_is_in_us_and_within_bounds() {
        let of = |text: &str| {
            let mut params = Params::default();
            params.set("timing.ram", text);
            ram_step_ns(&params).map_err(|error| error.to_string())
        };
        assert_eq!(ram_step_ns(&Params::default()).unwrap(), 0);
        assert_eq!((of("5"), of("0.0125")), (Ok(5_000), Ok(13)));
        for wrong in ["-1", "1001", "NaN", "inf", "five"] {
            let why = of(wrong).unwrap_err();
            assert!(why.contains("timing.ram"), "{why}");
        }
    }
}
