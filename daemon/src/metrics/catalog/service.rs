//! Service: requests to the daemon itself.

use super::{Family, Kind, label};
use crate::convert::to_f64;
use crate::service_counters::{CONTROL_COMMANDS, HTTP_CODES};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_http_requests_total",
        kind: Kind::Counter,
        labels: &[label("code", &HTTP_CODES)],
        help: "HTTP requests by status code of the answer, scrapes included.",
        fill: |view, to| {
            HTTP_CODES
                .iter()
                .zip(view.service.http)
                .for_each(|(code, count)| to.value(&[code], to_f64(count)))
        },
    },
    Family {
        name: "ftld_control_requests_total",
        kind: Kind::Counter,
        labels: &[label("command", &CONTROL_COMMANDS)],
        help: "Requests over the control socket by command; `pause` includes step and resume.",
        fill: |view, to| {
            CONTROL_COMMANDS
                .iter()
                .zip(view.service.control)
                .for_each(|(command, count)| to.value(&[command], to_f64(count)))
        },
    },
    Family {
        name: "ftld_watchdog_pings_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Keep-alives sent to the service manager; 0 without one.",
        fill: |view, to| to.value(&[], to_f64(view.service.watchdog)),
    },
];
