//! Device: identity and state.

use super::{Family, Kind, label, page_bytes};
use crate::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_build_info",
        kind: Kind::Gauge,
        labels: &[label("version", &[]), label("arch", &[])],
        help: "The program that serves the device; always 1.",
        fill: |_, to| to.value(&[env!("CARGO_PKG_VERSION"), std::env::consts::ARCH], 1.0),
    },
    Family {
        name: "ftld_device_info",
        kind: Kind::Gauge,
        labels: &[
            label("scheme", &[]),
            label("transport", &[]),
            label("cell", &[]),
            label("profile", &[]),
        ],
        help: "Properties of the device; always 1.",
        fill: |view, to| {
            let facts = &view.facts;
            to.value(
                &[
                    facts.scheme,
                    facts.transport,
                    facts.cell(),
                    facts.profile.name,
                ],
                1.0,
            );
        },
    },
    Family {
        name: "ftld_device_capacity_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Capacity of the block device.",
        fill: |view, to| to.value(&[], to_f64(view.facts.size)),
    },
    Family {
        name: "ftld_overprovisioning_ratio",
        kind: Kind::Gauge,
        labels: &[],
        help: "Raw flash minus capacity, divided by capacity; mapping, reserve and bad blocks included.",
        fill: |view, to| {
            to.value(
                &[],
                to_f64(view.facts.raw_bytes()) / to_f64(view.facts.size.max(1)) - 1.0,
            );
        },
    },
    Family {
        name: "ftld_nand_capacity_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Data bytes of the raw flash, bad blocks included.",
        fill: |view, to| to.value(&[], to_f64(view.facts.raw_bytes())),
    },
    Family {
        name: "ftld_nand_page_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Data bytes of a flash page.",
        fill: |view, to| to.value(&[], page_bytes(view)),
    },
    Family {
        name: "ftld_nand_block_pages",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pages of a flash block.",
        fill: |view, to| to.value(&[], f64::from(view.facts.geometry().pages_per_block)),
    },
    Family {
        name: "ftld_nand_dies",
        kind: Kind::Gauge,
        labels: &[],
        help: "Dies of the flash; each executes one operation at a time.",
        fill: |view, to| to.value(&[], f64::from(view.facts.dies())),
    },
    Family {
        name: "ftld_device_start_time_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "When the instance started, in Unix time.",
        fill: |view, to| {
            let since = view.facts.started.duration_since(std::time::UNIX_EPOCH);
            to.value(&[], since.unwrap_or_default().as_secs_f64());
        },
    },
    Family {
        name: "ftld_device_read_only",
        kind: Kind::Gauge,
        labels: &[label("reason", &["requested", "worn_out", "failed"])],
        help: "Whether writes are refused, 0 or 1 per reason.",
        fill: |view, to| {
            let one_if = |yes: bool| f64::from(u8::from(yes));
            to.value(&["requested"], one_if(view.facts.read_only));
            to.value(&["worn_out"], one_if(view.flash.scheme.read_only.is_some()));
            to.value(&["failed"], one_if(view.failure.is_some()));
        },
    },
    Family {
        name: "ftld_device_writes_failing",
        kind: Kind::Gauge,
        labels: &[label("reason", &["disk_full", "host_error"])],
        help: "Whether the host's storage refuses writes of the image, 0 or 1 per reason.",
        fill: |view, to| {
            let one_if = |full: bool| {
                view.writes_failing
                    .is_some_and(|failing| failing.is_disk_full() == full)
            };
            to.value(&["disk_full"], f64::from(u8::from(one_if(true))));
            to.value(&["host_error"], f64::from(u8::from(one_if(false))));
        },
    },
    Family {
        name: "ftld_device_paused",
        kind: Kind::Gauge,
        labels: &[],
        help: "Whether the device is paused, 0 or 1.",
        fill: |view, to| to.value(&[], f64::from(u8::from(view.paused.is_some()))),
    },
    Family {
        name: "ftld_snapshot_age_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Age of the flash snapshot, which is published ten times a second.",
        fill: |view, to| to.value(&[], view.flash.taken.elapsed().as_secs_f64()),
    },
];
