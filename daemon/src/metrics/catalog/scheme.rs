//! Scheme: events, cached mapping, RAM.

use super::{BY_EVENT, Family, Kind, events, label};
use crate::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_scheme_events_total",
        kind: Kind::Counter,
        labels: BY_EVENT,
        help: "Background operations of the scheme.",
        fill: |view, to| events(view, to, |totals| to_f64(totals.count)),
    },
    Family {
        name: "ftld_scheme_event_pages_total",
        kind: Kind::Counter,
        labels: BY_EVENT,
        help: "Pages copied by these operations; for conversions and checkpoints, pages written.",
        fill: |view, to| events(view, to, |totals| to_f64(totals.pages)),
    },
    Family {
        name: "ftld_scheme_event_device_seconds_total",
        kind: Kind::Counter,
        labels: BY_EVENT,
        help: "Emulated time of these operations.",
        fill: |view, to| events(view, to, |totals| to_f64(totals.took) / 1e9),
    },
    Family {
        name: "ftld_map_cache_lookups_total",
        kind: Kind::Counter,
        labels: &[label("result", &["hit", "miss"])],
        help: "Mapping lookups answered from RAM, and those that read flash.",
        fill: |view, to| {
            to.value(&["hit"], to_f64(view.flash.scheme.map_cache_hits));
            to.value(&["miss"], to_f64(view.flash.scheme.map_cache_misses));
        },
    },
    Family {
        name: "ftld_ram_bytes",
        kind: Kind::Gauge,
        labels: &[label("part", &[])],
        help: "Allocated RAM of the scheme's tables, by the scheme's own parts.",
        fill: |view, to| {
            view.flash
                .ram
                .iter()
                .for_each(|entry| to.value(&[entry.part], to_f64(entry.allocated_bytes)))
        },
    },
    Family {
        name: "ftld_ram_paper_bytes",
        kind: Kind::Gauge,
        labels: &[label("part", &[])],
        help: "RAM of the scheme's tables by the formula of its paper.",
        fill: |view, to| {
            view.flash
                .ram
                .iter()
                .for_each(|entry| to.value(&[entry.part], to_f64(entry.paper_bytes)))
        },
    },
];
