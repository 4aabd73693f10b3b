//! Host: requests and latencies.

use super::{ADDRESSED, BY_ADDRESSED, BY_OP, ERRNOS, Family, Kind, OPS, label};
use crate::convert::to_f64;
use crate::volume::{ErrorClass, Op, SIZE_BOUNDS};
use strum::VariantArray;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_host_ios_total",
        kind: Kind::Counter,
        labels: BY_OP,
        help: "Host requests that succeeded.",
        fill: |view, to| {
            Op::VARIANTS
                .iter()
                .for_each(|&op| to.value(&[op.name()], to_f64(view.host.of(op).completed)))
        },
    },
    Family {
        name: "ftld_host_delayed_ios_total",
        kind: Kind::Counter,
        labels: BY_OP,
        help: "Host requests that succeeded and were delayed until their emulated completion.",
        fill: |view, to| {
            Op::VARIANTS
                .iter()
                .for_each(|&op| to.value(&[op.name()], to_f64(view.host.of(op).delayed)))
        },
    },
    Family {
        name: "ftld_host_read_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host read.",
        fill: |view, to| to.value(&[], to_f64(view.host.of(Op::Read).bytes)),
    },
    Family {
        name: "ftld_host_written_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host wrote.",
        fill: |view, to| to.value(&[], to_f64(view.host.of(Op::Write).bytes)),
    },
    Family {
        name: "ftld_host_discarded_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host trimmed.",
        fill: |view, to| to.value(&[], to_f64(view.host.of(Op::Trim).bytes)),
    },
    Family {
        name: "ftld_host_zeroed_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host set to zero by WRITE ZEROES.",
        fill: |view, to| to.value(&[], to_f64(view.host.of(Op::WriteZeroes).bytes)),
    },
    Family {
        name: "ftld_host_io_size_bytes",
        kind: Kind::Histogram,
        labels: BY_ADDRESSED,
        help: "Size of the host requests that succeeded.",
        fill: |view, to| {
            for op in ADDRESSED {
                let of = view.host.of(op);
                to.classes(
                    &[op.name()],
                    &SIZE_BOUNDS.map(to_f64),
                    &of.sizes,
                    to_f64(of.bytes),
                );
            }
        },
    },
    Family {
        name: "ftld_host_fua_ios_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Host requests executed with FUA; each also counts as a FLUSH.",
        fill: |view, to| to.value(&[], to_f64(view.host.fua)),
    },
    Family {
        name: "ftld_host_unaligned_ios_total",
        kind: Kind::Counter,
        labels: BY_ADDRESSED,
        help: "Host requests that cover a flash page only partly.",
        fill: |view, to| {
            ADDRESSED
                .iter()
                .for_each(|&op| to.value(&[op.name()], to_f64(view.host.of(op).unaligned)))
        },
    },
    Family {
        name: "ftld_host_io_errors_total",
        kind: Kind::Counter,
        labels: &[label("op", OPS), label("errno", ERRNOS)],
        help: "Host requests that failed.",
        fill: |view, to| {
            for (op, class) in Op::VARIANTS
                .iter()
                .flat_map(|op| ErrorClass::VARIANTS.iter().map(move |class| (op, class)))
            {
                to.value(
                    &[op.name(), class.name()],
                    to_f64(view.host.of(*op).errors[class.index()]),
                );
            }
        },
    },
    Family {
        name: "ftld_host_ios_in_flight",
        kind: Kind::Gauge,
        labels: BY_OP,
        help: "Host requests in flight; their sum is the queue depth.",
        fill: |view, to| {
            Op::VARIANTS
                .iter()
                .for_each(|&op| to.value(&[op.name()], to_f64(view.host.of(op).in_flight)))
        },
    },
    Family {
        name: "ftld_host_io_duration_seconds",
        kind: Kind::Histogram,
        labels: BY_OP,
        help: "Wall-clock time of a host request, all waits included.",
        fill: |view, to| {
            Op::VARIANTS
                .iter()
                .for_each(|&op| to.histogram(&[op.name()], &view.host.of(op).wall))
        },
    },
    Family {
        name: "ftld_device_io_duration_seconds",
        kind: Kind::Histogram,
        labels: BY_OP,
        help: "Time a host request took on the emulated flash.",
        fill: |view, to| {
            Op::VARIANTS
                .iter()
                .for_each(|&op| to.histogram(&[op.name()], &view.host.of(op).emulated))
        },
    },
    Family {
        name: "ftld_image_sync_duration_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Time that a FLUSH or FUA write waited for the sync of the image.",
        fill: |view, to| to.histogram(&[], &view.host.sync),
    },
];
