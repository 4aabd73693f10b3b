//! Garbage collection.

use super::{Family, Kind};
use crate::convert::to_f64;

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
];
