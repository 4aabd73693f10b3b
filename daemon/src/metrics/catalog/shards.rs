//! Figures per chip of a device with several shards; the other families have the sums. A device of
//! one chip has shard 0.

use super::{Family, counters, gauge, gauges, label};
use ftld_device::status::StatusSnapshot;
use ftld_device::volume::FlashSnapshot;
use ftld_kit::convert::to_f64;

/// Numbers of the shards that a device may have.
const NUMBERS: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
];

fn each(view: &StatusSnapshot, value: fn(&FlashSnapshot) -> f64) -> Vec<f64> {
    view.flash_by_shard
        .iter()
        .map(|flash| value(flash))
        .collect()
}

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "ftld_shards",
        "Chips of the device, between which its bytes are striped.",
        |view| f64::from(view.facts.shards),
    ),
    counters(
        "ftld_shard_pages_programmed_total",
        &[label("shard", &NUMBERS)],
        "Flash page programs of a shard.",
        |view| each(view, |flash| to_f64(flash.counters.total().programs)),
    ),
    counters(
        "ftld_shard_pages_read_total",
        &[label("shard", &NUMBERS)],
        "Flash page reads of a shard.",
        |view| each(view, |flash| to_f64(flash.counters.total().reads)),
    ),
    counters(
        "ftld_shard_blocks_erased_total",
        &[label("shard", &NUMBERS)],
        "Block erases of a shard.",
        |view| each(view, |flash| to_f64(flash.counters.total().erases)),
    ),
    gauges(
        "ftld_shard_free_blocks",
        &[label("shard", &NUMBERS)],
        "Free blocks of a shard.",
        |view| each(view, |flash| f64::from(flash.scheme.blocks.free)),
    ),
    gauges(
        "ftld_shard_block_erases_avg",
        &[label("shard", &NUMBERS)],
        "Mean erases of the good blocks of a shard.",
        |view| each(view, |flash| flash.wear.mean),
    ),
];
