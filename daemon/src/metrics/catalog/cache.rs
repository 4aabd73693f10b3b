//! The write cache. All families are 0 without one.

use super::{Family, Kind, label};
use crate::convert::to_f64;
use crate::volume::write_cache::{CutCounts, Reason};
use strum::VariantNames;

const REASONS: &[&str] = <Reason as VariantNames>::VARIANTS;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_write_cache_capacity_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Size of the volatile write cache.",
        fill: |view, to| to.value(&[], to_f64(view.flash.cache.capacity_bytes)),
    },
    Family {
        name: "ftld_write_cache_dirty_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Dirty bytes of the write cache.",
        fill: |view, to| to.value(&[], to_f64(view.flash.cache.dirty_bytes)),
    },
    Family {
        name: "ftld_write_cache_read_hit_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes that host reads took from the write cache.",
        fill: |view, to| to.value(&[], to_f64(view.flash.cache.read_hit_bytes)),
    },
    Family {
        name: "ftld_write_cache_written_back_bytes_total",
        kind: Kind::Counter,
        labels: &[label("reason", REASONS)],
        help: "Bytes written back from the write cache to the flash.",
        fill: |view, to| {
            let bytes = view.flash.cache.written_back_bytes;
            for (reason, bytes) in REASONS.iter().zip(bytes) {
                to.value(&[reason], to_f64(bytes));
            }
        },
    },
    Family {
        name: "ftld_write_cache_failed_write_backs_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Write-backs that failed; their data stays in the write cache.",
        fill: |view, to| to.value(&[], to_f64(view.flash.cache.failed_write_backs)),
    },
    Family {
        name: "ftld_write_cache_write_through",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while no volatile cache is announced, and every write waits until it is durable.",
        fill: |view, to| to.value(&[], f64::from(u8::from(view.flash.cache.write_through))),
    },
    Family {
        name: "ftld_write_cache_cut_units",
        kind: Kind::Gauge,
        labels: &[label("outcome", &CutCounts::NAMES)],
        help: "Dirty units of the write cache by outcome of the power cut or host crash before this start.",
        fill: |view, to| {
            let counts = view.flash.cache.last_cut.by_name();
            for (outcome, count) in CutCounts::NAMES.iter().zip(counts) {
                to.value(&[outcome], to_f64(count));
            }
        },
    },
];
