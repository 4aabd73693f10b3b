//! Device: identity and state.

use super::{Family, Kind, Source, gauge, gauges, label, list, page_bytes};
use ftld_device::volume::WritesFailing;
use ftld_kit::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_build_info",
        kind: Kind::Gauge,
        labels: &[label("version", &[]), label("arch", &[])],
        help: "The program that serves the device; always 1.",
        source: Source::Labelled(|_, to| {
            to.value(&[env!("CARGO_PKG_VERSION"), std::env::consts::ARCH], 1.0)
        }),
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
        source: Source::Labelled(|view, to| {
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
        }),
    },
    gauge(
        "ftld_device_capacity_bytes",
        "Capacity of the block device.",
        |view| to_f64(view.facts.size),
    ),
    gauge(
        "ftld_overprovisioning_ratio",
        "Raw flash minus capacity, divided by capacity; mapping, reserve and bad blocks included.",
        |view| to_f64(view.facts.raw_bytes()) / to_f64(view.facts.size.max(1)) - 1.0,
    ),
    gauge(
        "ftld_nand_capacity_bytes",
        "Data bytes of the raw flash, bad blocks included.",
        |view| to_f64(view.facts.raw_bytes()),
    ),
    gauge(
        "ftld_nand_page_bytes",
        "Data bytes of a flash page.",
        page_bytes,
    ),
    gauge("ftld_nand_block_pages", "Pages of a flash block.", |view| {
        f64::from(view.facts.geometry().pages_per_block)
    }),
    gauge(
        "ftld_nand_dies",
        "Dies of the flash; each executes one operation at a time.",
        |view| f64::from(view.facts.dies()),
    ),
    gauge(
        "ftld_device_start_time_seconds",
        "When the instance started, in Unix time.",
        |view| {
            let since = view.facts.started.duration_since(std::time::UNIX_EPOCH);
            since.unwrap_or_default().as_secs_f64()
        },
    ),
    gauges(
        "ftld_device_read_only",
        &[label("reason", &["requested", "worn_out", "failed"])],
        "Whether writes are refused, 0 or 1 per reason.",
        |view| {
            list(
                [
                    view.facts.read_only,
                    view.flash.scheme.read_only.is_some(),
                    view.failure.is_some(),
                ]
                .map(u64::from),
            )
        },
    ),
    gauges(
        "ftld_device_writes_failing",
        &[label("reason", &["disk_full", "host_error"])],
        "Whether the host's storage refuses writes of the image, 0 or 1 per reason.",
        |view| {
            let is_full = view.writes_failing.map(WritesFailing::is_disk_full);
            list([is_full == Some(true), is_full == Some(false)].map(u64::from))
        },
    ),
    gauge(
        "ftld_device_paused",
        "Whether the device is paused, 0 or 1.",
        |view| f64::from(u8::from(view.paused.is_some())),
    ),
    gauge(
        "ftld_snapshot_age_seconds",
        "Age of the flash snapshot, which is published ten times a second.",
        |view| view.flash.taken.elapsed().as_secs_f64(),
    ),
];
