//! Scheme: events, cached mapping, RAM.

use super::{BY_CAUSE, BY_EVENT, CAUSES, Family, Kind, Sink, events, label, page_bytes, seconds};
use crate::convert::to_f64;
use crate::status::StatusSnapshot;
use ftl_core::{RamPart, StallTotals};

fn stalls(view: &StatusSnapshot, to: &mut dyn Sink, value: impl Fn(&StallTotals) -> f64) {
    CAUSES
        .iter()
        .zip(&view.flash.scheme.write_stalls)
        .for_each(|(cause, totals)| to.value(&[cause], value(totals)));
}

/// Returns the entries of a structure in RAM; 0 if the scheme has none.
fn ram_entries(view: &StatusSnapshot, part: RamPart) -> f64 {
    let parts = view.flash.ram.iter().filter(|entry| entry.part == part);
    to_f64(parts.map(|entry| entry.entries).sum())
}

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
        name: "ftld_write_stalls_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Host writes that waited for work of this cause on the emulated flash.",
        fill: |view, to| stalls(view, to, |totals| to_f64(totals.writes)),
    },
    Family {
        name: "ftld_write_stall_device_seconds_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Emulated time that host writes waited for work of this cause.",
        fill: |view, to| stalls(view, to, |totals| seconds(totals.total_ns)),
    },
    Family {
        name: "ftld_map_cache_lookups_total",
        kind: Kind::Counter,
        labels: &[
            label("op", &["read", "write"]),
            label("result", &["hit", "miss"]),
        ],
        help: "Mapping lookups for host pages, where a hit reads no flash; 0 if the whole map is in RAM.",
        fill: |view, to| {
            let stats = &view.flash.scheme;
            for (op, of) in [("read", stats.lookups_read), ("write", stats.lookups_write)] {
                to.value(&[op, "hit"], to_f64(of.hits));
                to.value(&[op, "miss"], to_f64(of.total - of.hits));
            }
        },
    },
    Family {
        name: "ftld_map_cache_entries",
        kind: Kind::Gauge,
        labels: &[],
        help: "Entries or mapping pages in the map cache; 0 without a cache.",
        fill: |view, to| to.value(&[], ram_entries(view, RamPart::MapCache)),
    },
    Family {
        name: "ftld_map_cache_evictions_total",
        kind: Kind::Counter,
        labels: &[label("state", &["clean", "dirty"])],
        help: "Entries that left the map cache to make room; a dirty one writes its mapping page.",
        fill: |view, to| {
            let evictions = view.flash.scheme.map_cache_evictions;
            to.value(&["clean"], to_f64(evictions.clean));
            to.value(&["dirty"], to_f64(evictions.dirty));
        },
    },
    Family {
        name: "ftld_map_pending_entries",
        kind: Kind::Gauge,
        labels: &[],
        help: "Mapping entries that are newer than the map on flash; 0 if the whole map is in RAM.",
        fill: |view, to| to.value(&[], ram_entries(view, RamPart::Pending)),
    },
    Family {
        name: "ftld_write_buffer_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of the pages in the scheme's write buffer; 0 without a buffer.",
        fill: |view, to| {
            let pages = view.flash.scheme.buffered_pages;
            to.value(&[], to_f64(pages) * page_bytes(view));
        },
    },
    Family {
        name: "ftld_write_buffer_capacity_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Capacity of the scheme's write buffer; 0 without a buffer.",
        fill: |view, to| {
            let pages = view.flash.scheme.buffer_capacity_pages;
            to.value(&[], to_f64(pages) * page_bytes(view));
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
                .for_each(|entry| to.value(&[entry.part.name()], to_f64(entry.allocated_bytes)))
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
                .for_each(|entry| to.value(&[entry.part.name()], to_f64(entry.paper_bytes)))
        },
    },
];
