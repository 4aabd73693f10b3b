//! Durability: checkpoints and the last mount.

use super::{Family, gauge, seconds};
use ftld_kit::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "ftld_checkpoint_age_pages",
        "Flash pages programmed since the last checkpoint, or since the mount.",
        |view| to_f64(view.flash.scheme.pages_since_checkpoint),
    ),
    gauge(
        "ftld_recovery_clean",
        "1 if the last shutdown of the image was clean; 0 after a crash or a power cut.",
        |view| f64::from(u8::from(view.facts.was_clean)),
    ),
    gauge(
        "ftld_recovery_duration_seconds",
        "Wall-clock time from opening the image to serving.",
        |view| view.facts.opened_in.as_secs_f64(),
    ),
    gauge(
        "ftld_recovery_device_seconds",
        "Emulated time of the last mount.",
        |view| seconds(view.flash.scheme.mount.total_ns()),
    ),
    gauge(
        "ftld_recovery_pages_scanned",
        "Pages scanned by the last mount.",
        |view| to_f64(view.flash.scheme.mount.pages_scanned),
    ),
    gauge(
        "ftld_recovery_discarded_pages",
        "Pages the last mount rewrote as unstable, or could not read.",
        |view| to_f64(view.flash.scheme.mount.pages_discarded),
    ),
];
