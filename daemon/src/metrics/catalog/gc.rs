//! Garbage collection.

use super::{Family, Kind};
use crate::convert::to_f64;
use ftl_core::{EventKind, GC_PAGE_BOUNDS};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_gc_free_threshold_blocks",
        kind: Kind::Gauge,
        labels: &[],
        help: "Free blocks that GC keeps.",
        fill: |view, to| to.value(&[], f64::from(view.flash.scheme.free_threshold_blocks)),
    },
    Family {
        name: "ftld_gc_runs_total",
        kind: Kind::Counter,
        labels: &[],
        help: "GC runs, one victim each.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.gc_runs)),
    },
    Family {
        name: "ftld_gc_pages_moved_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Valid pages that GC relocated.",
        fill: |view, to| to.value(&[], to_f64(view.flash.scheme.gc_pages_moved)),
    },
    Family {
        name: "ftld_gc_victim_valid_pages",
        kind: Kind::Histogram,
        labels: &[],
        help: "Valid pages that GC relocated from a victim, without the copies of log-block merges.",
        fill: |view, to| {
            let moved = view.flash.events[EventKind::Gc as usize].pages;
            let bounds = GC_PAGE_BOUNDS.map(f64::from);
            to.classes(&[], &bounds, &view.flash.gc_pages, to_f64(moved));
        },
    },
];
