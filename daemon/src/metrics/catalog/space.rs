//! Space: blocks, pages, garbage collection.

use super::{BY_STATE, Family, Kind, label, page_bytes};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_blocks",
        kind: Kind::Gauge,
        labels: BY_STATE,
        help: "Flash blocks by state; the states add up to all blocks.",
        fill: |view, to| {
            view.blocks()
                .iter()
                .for_each(|(state, count)| to.value(&[state], f64::from(*count)))
        },
    },
    Family {
        name: "ftld_pages",
        kind: Kind::Gauge,
        labels: &[label("state", &["valid", "free", "other"])],
        help: "Flash pages: with live content, in free blocks, and all others; the states add up to all pages.",
        fill: |view, to| {
            let (geometry, scheme) = (view.facts.geometry(), &view.flash.scheme);
            let free = scheme.blocks.free as u64 * geometry.pages_per_block as u64;
            to.value(&["valid"], scheme.valid_pages as f64);
            to.value(&["free"], free as f64);
            to.value(
                &["other"],
                geometry.pages().saturating_sub(free + scheme.valid_pages) as f64,
            );
        },
    },
    Family {
        name: "ftld_logical_mapped_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of logical pages that hold data.",
        fill: |view, to| {
            to.value(
                &[],
                view.flash.scheme.mapped_pages as f64 * page_bytes(view),
            )
        },
    },
    Family {
        name: "ftld_gc_reserve_blocks",
        kind: Kind::Gauge,
        labels: &[],
        help: "Erased blocks that collection never goes below.",
        fill: |view, to| to.value(&[], f64::from(view.flash.scheme.reserve_blocks)),
    },
    Family {
        name: "ftld_gc_runs_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Blocks collected.",
        fill: |view, to| to.value(&[], view.flash.scheme.gc_runs as f64),
    },
    Family {
        name: "ftld_gc_pages_moved_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Live pages that collection moved.",
        fill: |view, to| to.value(&[], view.flash.scheme.gc_pages_moved as f64),
    },
];
