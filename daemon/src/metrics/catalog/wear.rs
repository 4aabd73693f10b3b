//! Wear: block erases.

use super::{Family, Kind, label, page_bytes};
use crate::convert::to_f64;
use crate::status::StatusSnapshot;
use crate::volume::WEAR_BOUNDS;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_wear_level_moves_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Blocks relocated to even out wear.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.wear_moves)),
    },
    Family {
        name: "ftld_refresh_moves_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Blocks whose data was rewritten because they were near their ECC limit.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.refreshes)),
    },
    Family {
        name: "ftld_block_erases_min",
        kind: Kind::Gauge,
        labels: &[],
        help: "Fewest erases of a good block.",
        fill: |view, to| to.value(&[], f64::from(view.flash.wear.min)),
    },
    Family {
        name: "ftld_block_erases_avg",
        kind: Kind::Gauge,
        labels: &[],
        help: "Mean erases of the good blocks.",
        fill: |view, to| to.value(&[], view.flash.wear.mean),
    },
    Family {
        name: "ftld_block_erases_max",
        kind: Kind::Gauge,
        labels: &[],
        help: "Most erases of a good block.",
        fill: |view, to| to.value(&[], f64::from(view.flash.wear.max)),
    },
    Family {
        name: "ftld_block_erases_stddev",
        kind: Kind::Gauge,
        labels: &[],
        help: "Standard deviation of the erases of good blocks.",
        fill: |view, to| to.value(&[], view.flash.wear.stddev),
    },
    Family {
        name: "ftld_block_erase_limit",
        kind: Kind::Gauge,
        labels: &[],
        help: "Rated erases of a block.",
        fill: |view, to| to.value(&[], f64::from(view.facts.profile.endurance)),
    },
    Family {
        name: "ftld_endurance_used_ratio",
        kind: Kind::Gauge,
        labels: &[],
        help: "Mean erases of the good blocks divided by the rated erases; can exceed 1.",
        fill: |view, to| {
            to.value(
                &[],
                view.flash.wear.mean / f64::from(view.facts.profile.endurance.max(1)),
            )
        },
    },
    Family {
        name: "ftld_remaining_writes_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Estimated host bytes until the mean good block reaches its rated erases.",
        fill: |view, to| to.value(&[], remaining_writes(view)),
    },
    Family {
        name: "ftld_block_erase_distribution_blocks",
        kind: Kind::Gauge,
        labels: &[label("at_most", &BOUND_NAMES)],
        help: "Good blocks with at most this many erases; a value can fall.",
        fill: |view, to| {
            let mut below = 0;
            for (bound, count) in BOUND_NAMES.iter().zip(view.flash.wear.distribution) {
                below += count;
                to.value(&[bound], to_f64(below));
            }
        },
    },
    Family {
        name: "ftld_bad_blocks",
        kind: Kind::Gauge,
        labels: &[label("origin", &["factory", "grown"])],
        help: "Blocks that must not be used.",
        fill: |view, to| {
            to.value(&["factory"], f64::from(view.flash.wear.bad_factory));
            to.value(&["grown"], f64::from(view.flash.wear.bad_grown));
        },
    },
];

/// Remaining erases of the good blocks, times the bytes of a block, by the write amplification since
/// the start; before the first write, by 1.
fn remaining_writes(view: &StatusSnapshot) -> f64 {
    let (geometry, wear) = (view.facts.geometry(), &view.flash.wear);
    let bad = wear.bad_factory + wear.bad_grown;
    let good = f64::from(view.facts.blocks().saturating_sub(bad));
    let erases = (f64::from(view.facts.profile.endurance) - wear.mean).max(0.0);
    let block_bytes = f64::from(geometry.pages_per_block) * page_bytes(view);
    let amplification = view.write_amplification().filter(|ratio| *ratio > 0.0);
    erases * good * block_bytes / amplification.unwrap_or(1.0)
}

/// Names of [`WEAR_BOUNDS`], and of the class above them.
const BOUND_NAMES: [&str; WEAR_BOUNDS.len() + 1] = [
    "0", "1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "3000", "10000", "100000",
    "+Inf",
];
