//! Durability: checkpoints and the last mount.

use super::{Family, Kind, seconds};
use crate::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_checkpoints_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Completed checkpoints.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.checkpoints)),
    },
    Family {
        name: "ftld_checkpoint_age_pages",
        kind: Kind::Gauge,
        labels: &[],
        help: "Flash pages programmed since the last checkpoint, or since the mount.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.pages_since_checkpoint)),
    },
    Family {
        name: "ftld_recovery_clean",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 if the last shutdown of the image was clean; 0 after a crash or a power cut.",
        fill: |view, to| to.value(&[], f64::from(u8::from(view.facts.was_clean))),
    },
    Family {
        name: "ftld_recovery_duration_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Wall-clock time from opening the image to serving.",
        fill: |view, to| to.value(&[], view.facts.opened_in.as_secs_f64()),
    },
    Family {
        name: "ftld_recovery_device_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Emulated time of the last mount.",
        fill: |view, to| to.value(&[], seconds(view.flash.scheme.mount.total_ns())),
    },
    Family {
        name: "ftld_recovery_pages_scanned",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pages scanned by the last mount.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.mount.pages_scanned)),
    },
    Family {
        name: "ftld_recovery_discarded_pages",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pages the last mount rewrote as unstable, or could not read.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.mount.pages_discarded)),
    },
];
