//! Schemes that follow the requests without data; no values without one.

use super::{Family, Kind, Label, Source, family, label};
use ftld_device::status::{Shadow, StatusSnapshot};
use ftld_kit::convert::to_f64;

const BY_SHADOW: &[Label] = &[label("shadow", &[])];

/// Gives a value of each shadow to `to`.
macro_rules! each {
    ($of:expr) => {
        Source::Labelled(|view: &StatusSnapshot, to| {
            let of: fn(&Shadow) -> Option<f64> = $of;
            for shadow in &view.shadows {
                if let Some(value) = of(shadow) {
                    to.value(&[&shadow.name], value);
                }
            }
        })
    };
}

const fn counter(name: &'static str, help: &'static str, source: Source) -> Family {
    family(name, Kind::Counter, BY_SHADOW, help, source)
}

const fn gauge(name: &'static str, help: &'static str, source: Source) -> Family {
    family(name, Kind::Gauge, BY_SHADOW, help, source)
}

pub(super) const FAMILIES: &[Family] = &[
    counter(
        "ftld_shadow_requests_total",
        "Requests executed by a shadow (`--shadow`).",
        each!(|shadow| Some(to_f64(shadow.requests))),
    ),
    counter(
        "ftld_shadow_dropped_requests_total",
        "Requests that a shadow lacks.",
        each!(|shadow| Some(to_f64(shadow.dropped))),
    ),
    gauge(
        "ftld_shadow_exact",
        "1 if a shadow lacks no request.",
        each!(|shadow| Some(f64::from(u8::from(shadow.exact)))),
    ),
    counter(
        "ftld_shadow_host_pages_written_total",
        "Pages written by the host.",
        each!(|shadow| Some(to_f64(shadow.figures.host_pages_written))),
    ),
    counter(
        "ftld_shadow_programs_total",
        "Flash programs.",
        each!(|shadow| Some(to_f64(shadow.figures.programs))),
    ),
    counter(
        "ftld_shadow_erases_total",
        "Block erases.",
        each!(|shadow| Some(to_f64(shadow.figures.erases))),
    ),
    gauge(
        "ftld_shadow_ram_bytes",
        "RAM of the tables by the paper's count.",
        each!(|shadow| Some(to_f64(shadow.figures.ram_bytes))),
    ),
    gauge(
        "ftld_shadow_read_p99_seconds",
        "99 % of the reads took no longer, emulated.",
        each!(|shadow| shadow.figures.read_p99_ns.map(|ns| ns / 1e9)),
    ),
    gauge(
        "ftld_shadow_write_p99_seconds",
        "99 % of the writes took no longer, emulated.",
        each!(|shadow| shadow.figures.write_p99_ns.map(|ns| ns / 1e9)),
    ),
];
