//! Wear: block erases.

use super::{Family, gauge, gauges, label, list, page_bytes};
use ftld_device::status::StatusSnapshot;
use ftld_device::volume::WEAR_BOUNDS;

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "ftld_block_erases_min",
        "Fewest erases of a good block.",
        |view| f64::from(view.flash.wear.min),
    ),
    gauge(
        "ftld_block_erases_avg",
        "Mean erases of the good blocks.",
        |view| view.flash.wear.mean,
    ),
    gauge(
        "ftld_block_erases_max",
        "Most erases of a good block.",
        |view| f64::from(view.flash.wear.max),
    ),
    gauge(
        "ftld_block_erases_stddev",
        "Standard deviation of the erases of good blocks.",
        |view| view.flash.wear.stddev,
    ),
    gauge(
        "ftld_block_erase_limit",
        "Rated erases of a block.",
        |view| f64::from(view.facts.profile.endurance),
    ),
    gauge(
        "ftld_endurance_used_ratio",
        "Mean erases of the good blocks divided by the rated erases; can exceed 1.",
        |view| view.flash.wear.mean / f64::from(view.facts.profile.endurance.max(1)),
    ),
    gauge(
        "ftld_remaining_writes_bytes",
        "Estimated host bytes until the mean good block reaches its rated erases.",
        remaining_writes,
    ),
    gauges(
        "ftld_block_erase_distribution_blocks",
        &[label("at_most", &BOUND_NAMES)],
        "Good blocks with at most this many erases; a value can fall.",
        |view| {
            let mut below = 0;
            list(view.flash.wear.distribution.map(|count| {
                below += count;
                below
            }))
        },
    ),
    gauges(
        "ftld_bad_blocks",
        &[label("origin", &["factory", "grown"])],
        "Blocks that must not be used.",
        |view| list([view.flash.wear.bad_factory, view.flash.wear.bad_grown].map(u64::from)),
    ),
];

/// Remaining erases of the good blocks, times the bytes of a block, divided by the write
/// amplification since the start; before the first write, by 1.
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
