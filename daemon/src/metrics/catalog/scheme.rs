//! Scheme: events, cached mapping, RAM.

use super::{
    BY_CAUSE, BY_EVENT, Family, Kind, Source, counters, gauge, label, list, page_bytes, seconds,
};
use ftl_core::RamPart;
use ftld_device::status::StatusSnapshot;
use ftld_kit::convert::to_f64;

/// Returns the entries of a structure in RAM; 0 if the scheme has none.
fn ram_entries(view: &StatusSnapshot, part: RamPart) -> f64 {
    let parts = view.flash.ram.iter().filter(|entry| entry.part == part);
    to_f64(parts.map(|entry| entry.entries).sum())
}

pub(super) const FAMILIES: &[Family] = &[
    counters(
        "ftld_scheme_events_total",
        BY_EVENT,
        "Background operations of the scheme.",
        |view| list(view.flash.events.map(|totals| totals.count)),
    ),
    counters(
        "ftld_scheme_event_pages_total",
        BY_EVENT,
        "Pages copied by these operations; for conversions and checkpoints, pages written.",
        |view| list(view.flash.events.map(|totals| totals.pages)),
    ),
    counters(
        "ftld_scheme_event_device_seconds_total",
        BY_EVENT,
        "Emulated time of these operations.",
        |view| {
            view.flash
                .events
                .map(|totals| seconds(totals.took))
                .to_vec()
        },
    ),
    counters(
        "ftld_write_stalls_total",
        BY_CAUSE,
        "Host writes that waited for work of this cause on the emulated flash.",
        |view| list(view.flash.scheme.write_stalls.map(|of| of.writes)),
    ),
    counters(
        "ftld_write_stall_device_seconds_total",
        BY_CAUSE,
        "Emulated time that host writes waited for work of this cause.",
        |view| {
            view.flash
                .scheme
                .write_stalls
                .map(|of| seconds(of.total_ns))
                .to_vec()
        },
    ),
    Family {
        name: "ftld_map_cache_lookups_total",
        kind: Kind::Counter,
        labels: &[
            label("op", &["read", "write"]),
            label("result", &["hit", "miss"]),
        ],
        help: "Mapping lookups for host pages, where a hit reads no flash; 0 if the whole map is in RAM.",
        source: Source::Labelled(|view, to| {
            let stats = &view.flash.scheme;
            for (op, of) in [("read", stats.lookups_read), ("write", stats.lookups_write)] {
                to.value(&[op, "hit"], to_f64(of.hits));
                to.value(&[op, "miss"], to_f64(of.total - of.hits));
            }
        }),
    },
    gauge(
        "ftld_map_cache_entries",
        "Entries or mapping pages in the map cache; 0 without a cache.",
        |view| ram_entries(view, RamPart::MapCache),
    ),
    counters(
        "ftld_map_cache_evictions_total",
        &[label("state", &["clean", "dirty"])],
        "Entries that left the map cache to make room; a dirty one writes its mapping page.",
        |view| {
            let of = view.flash.scheme.map_cache_evictions;
            list([of.clean, of.dirty])
        },
    ),
    gauge(
        "ftld_map_pending_entries",
        "Mapping entries that are newer than the map on flash; 0 if the whole map is in RAM.",
        |view| ram_entries(view, RamPart::Pending),
    ),
    gauge(
        "ftld_write_buffer_bytes",
        "Bytes of the pages in the scheme's write buffer; 0 without a buffer.",
        |view| {
            let pages = view.flash.scheme.buffered_pages;
            to_f64(pages) * page_bytes(view)
        },
    ),
    gauge(
        "ftld_write_buffer_capacity_bytes",
        "Capacity of the scheme's write buffer; 0 without a buffer.",
        |view| {
            let pages = view.flash.scheme.buffer_capacity_pages;
            to_f64(pages) * page_bytes(view)
        },
    ),
    Family {
        name: "ftld_ram_bytes",
        kind: Kind::Gauge,
        labels: &[label("part", &[])],
        help: "Allocated RAM of the scheme's tables, by the scheme's own parts.",
        source: Source::Labelled(|view, to| {
            view.flash
                .ram
                .iter()
                .for_each(|entry| to.value(&[entry.part.name()], to_f64(entry.allocated_bytes)))
        }),
    },
    Family {
        name: "ftld_ram_paper_bytes",
        kind: Kind::Gauge,
        labels: &[label("part", &[])],
        help: "RAM of the scheme's tables by the formula of its paper.",
        source: Source::Labelled(|view, to| {
            view.flash
                .ram
                .iter()
                .for_each(|entry| to.value(&[entry.part.name()], to_f64(entry.paper_bytes)))
        }),
    },
];
