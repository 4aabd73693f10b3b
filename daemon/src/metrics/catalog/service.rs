//! Service: requests to the daemon itself.

use super::{Family, counter, counters, label, list};
use ftld_device::service_counters::{CONTROL_COMMANDS, HTTP_CODES};
use ftld_kit::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    counters(
        "ftld_http_requests_total",
        &[label("code", &HTTP_CODES)],
        "HTTP requests by status code of the answer, scrapes included.",
        |view| list(view.service.http),
    ),
    counters(
        "ftld_control_requests_total",
        &[label("command", &CONTROL_COMMANDS)],
        "Requests over the control socket by command; `pause` includes step and resume.",
        |view| list(view.service.control),
    ),
    counter(
        "ftld_watchdog_pings_total",
        "Keep-alives sent to the service manager; 0 without one.",
        |view| to_f64(view.service.watchdog),
    ),
];
