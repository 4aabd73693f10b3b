//! Garbage collection.

use super::{Family, Kind, Source, gauge};
use ftl_core::{EventKind, GC_PAGE_BOUNDS};
use ftld_kit::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "ftld_gc_free_threshold_blocks",
        "Free blocks that GC keeps.",
        |view| f64::from(view.flash.scheme.free_threshold_blocks),
    ),
    Family {
        name: "ftld_gc_victim_valid_pages",
        kind: Kind::Histogram,
        labels: &[],
        help: "Valid pages that GC relocated from a victim, without the copies of log-block merges.",
        source: Source::Labelled(|view, to| {
            let moved = view.flash.events[EventKind::Gc as usize].pages;
            let bounds = GC_PAGE_BOUNDS.map(f64::from);
            to.classes(&[], &bounds, &view.flash.gc_pages, to_f64(moved));
        }),
    },
];
