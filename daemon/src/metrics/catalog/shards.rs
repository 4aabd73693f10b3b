//! Each chip of a device with several shards, beside the sums of the other families. A device of one
//! chip has shard 0.

use super::{Family, Kind, Sink, label};
use crate::convert::to_f64;
use crate::status::StatusSnapshot;
use crate::volume::FlashSnapshot;

/// Numbers of the shards that a device may have.
const NUMBERS: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
];

fn each(view: &StatusSnapshot, to: &mut dyn Sink, value: impl Fn(&FlashSnapshot) -> f64) {
    let shards = NUMBERS.iter().zip(&view.flash_by_shard);
    shards.for_each(|(number, flash)| to.value(&[number], value(flash)));
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_shards",
        kind: Kind::Gauge,
        labels: &[],
        help: "Chips of the device, between which its bytes are striped.",
        fill: |view, to| to.value(&[], f64::from(view.facts.shards)),
    },
    Family {
        name: "ftld_shard_pages_programmed_total",
        kind: Kind::Counter,
        labels: &[label("shard", &NUMBERS)],
        help: "Flash page programs of a shard.",
        fill: |view, to| each(view, to, |flash| to_f64(flash.counters.total().programs)),
    },
    Family {
        name: "ftld_shard_pages_read_total",
        kind: Kind::Counter,
        labels: &[label("shard", &NUMBERS)],
        help: "Flash page reads of a shard.",
        fill: |view, to| each(view, to, |flash| to_f64(flash.counters.total().reads)),
    },
    Family {
        name: "ftld_shard_blocks_erased_total",
        kind: Kind::Counter,
        labels: &[label("shard", &NUMBERS)],
        help: "Block erases of a shard.",
        fill: |view, to| each(view, to, |flash| to_f64(flash.counters.total().erases)),
    },
    Family {
        name: "ftld_shard_free_blocks",
        kind: Kind::Gauge,
        labels: &[label("shard", &NUMBERS)],
        help: "Free blocks of a shard.",
        fill: |view, to| each(view, to, |flash| f64::from(flash.scheme.blocks.free)),
    },
    Family {
        name: "ftld_shard_block_erases_avg",
        kind: Kind::Gauge,
        labels: &[label("shard", &NUMBERS)],
        help: "Mean erases of the good blocks of a shard.",
        fill: |view, to| each(view, to, |flash| flash.wear.mean),
    },
];
