//! Host: requests and latencies.

use super::{
    ADDRESSED, BY_ADDRESSED, BY_OP, ERRNOS, Family, Kind, OPS, Source, counter, counters, gauges,
    label, list,
};
use ftld_device::volume::{ErrorClass, Op, SIZE_BOUNDS};
use ftld_kit::convert::to_f64;
use strum::VariantArray;

pub(super) const FAMILIES: &[Family] = &[
    counters(
        "ftld_host_ios_total",
        BY_OP,
        "Host requests that succeeded.",
        |view| list(view.host.ops.map(|of| of.completed)),
    ),
    counters(
        "ftld_host_delayed_ios_total",
        BY_OP,
        "Host requests that succeeded and were delayed until their emulated completion.",
        |view| list(view.host.ops.map(|of| of.delayed)),
    ),
    counter(
        "ftld_host_read_bytes_total",
        "Bytes the host read.",
        |view| to_f64(view.host.of(Op::Read).bytes),
    ),
    counter(
        "ftld_host_written_bytes_total",
        "Bytes the host wrote.",
        |view| to_f64(view.host.of(Op::Write).bytes),
    ),
    counter(
        "ftld_host_discarded_bytes_total",
        "Bytes the host trimmed.",
        |view| to_f64(view.host.of(Op::Trim).bytes),
    ),
    counter(
        "ftld_host_zeroed_bytes_total",
        "Bytes the host set to zero by WRITE ZEROES.",
        |view| to_f64(view.host.of(Op::WriteZeroes).bytes),
    ),
    Family {
        name: "ftld_host_io_size_bytes",
        kind: Kind::Histogram,
        labels: BY_ADDRESSED,
        help: "Size of the host requests that succeeded.",
        source: Source::Labelled(|view, to| {
            for op in ADDRESSED {
                let of = view.host.of(op);
                to.classes(
                    &[op.name()],
                    &SIZE_BOUNDS.map(to_f64),
                    &of.sizes,
                    to_f64(of.bytes),
                );
            }
        }),
    },
    counter(
        "ftld_host_fua_ios_total",
        "Host requests executed with FUA; each also counts as a FLUSH.",
        |view| to_f64(view.host.fua),
    ),
    counters(
        "ftld_host_unaligned_ios_total",
        BY_ADDRESSED,
        "Host requests that cover a flash page only partly.",
        |view| list(ADDRESSED.map(|op| view.host.of(op).unaligned)),
    ),
    Family {
        name: "ftld_host_io_errors_total",
        kind: Kind::Counter,
        labels: &[label("op", OPS), label("errno", ERRNOS)],
        help: "Host requests that failed.",
        source: Source::Labelled(|view, to| {
            for (op, class) in Op::VARIANTS
                .iter()
                .flat_map(|op| ErrorClass::VARIANTS.iter().map(move |class| (op, class)))
            {
                to.value(
                    &[op.name(), class.name()],
                    to_f64(view.host.of(*op).errors[class.index()]),
                );
            }
        }),
    },
    gauges(
        "ftld_host_ios_in_flight",
        BY_OP,
        "Host requests in flight; their sum is the queue depth.",
        |view| list(view.host.ops.map(|of| of.in_flight)),
    ),
    Family {
        name: "ftld_host_io_duration_seconds",
        kind: Kind::Histogram,
        labels: BY_OP,
        help: "Wall-clock time of a host request, all waits included.",
        source: Source::Times(|of| &of.wall),
    },
    Family {
        name: "ftld_device_io_duration_seconds",
        kind: Kind::Histogram,
        labels: BY_OP,
        help: "Time a host request took on the emulated flash.",
        source: Source::Times(|of| &of.emulated),
    },
    Family {
        name: "ftld_image_sync_duration_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Time that a FLUSH or FUA write waited for the sync of the image.",
        source: Source::Labelled(|view, to| to.histogram(&[], &view.host.sync)),
    },
];
