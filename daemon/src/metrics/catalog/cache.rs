//! The write cache. All families are 0 without one.

use super::{Family, counter, counters, gauge, gauges, label, list};
use ftld_device::volume::write_cache::{CutCounts, Reason};
use ftld_kit::convert::to_f64;
use strum::VariantNames;

const REASONS: &[&str] = <Reason as VariantNames>::VARIANTS;

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "ftld_write_cache_capacity_bytes",
        "Size of the volatile write cache.",
        |view| to_f64(view.flash.cache.capacity_bytes),
    ),
    gauge(
        "ftld_write_cache_dirty_bytes",
        "Dirty bytes of the write cache.",
        |view| to_f64(view.flash.cache.dirty_bytes),
    ),
    counter(
        "ftld_write_cache_read_hit_bytes_total",
        "Bytes that host reads took from the write cache.",
        |view| to_f64(view.flash.cache.read_hit_bytes),
    ),
    counters(
        "ftld_write_cache_written_back_bytes_total",
        &[label("reason", REASONS)],
        "Bytes written back from the write cache to the flash.",
        |view| list(view.flash.cache.written_back_bytes),
    ),
    counter(
        "ftld_write_cache_failed_write_backs_total",
        "Write-backs that failed; their data stays in the write cache.",
        |view| to_f64(view.flash.cache.failed_write_backs),
    ),
    gauge(
        "ftld_write_cache_write_through",
        "1 while no volatile cache is announced, and every write waits until it is durable.",
        |view| f64::from(u8::from(view.flash.cache.write_through)),
    ),
    gauges(
        "ftld_write_cache_cut_units",
        &[label("outcome", &CutCounts::NAMES)],
        "Dirty units of the write cache by outcome of the power cut or host crash before this start.",
        |view| list(view.flash.cache.last_cut.by_name()),
    ),
];
