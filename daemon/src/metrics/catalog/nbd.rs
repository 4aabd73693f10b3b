//! NBD: connections and requests.

use super::{Family, counter, counters, gauge, gauges, label, list};
use ftld_device::transport::nbd::COMMANDS;
use ftld_kit::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    gauges(
        "ftld_nbd_connections",
        &[label("state", &["negotiating", "connected"])],
        "NBD connections now; 0 where NBD is not served.",
        |view| list([view.nbd.negotiating, view.nbd.connected]),
    ),
    counters(
        "ftld_nbd_connections_total",
        &[label(
            "result",
            &["accepted", "evicted", "refused", "dropped"],
        )],
        "NBD connections accepted; some of them evicted for a newer one, refused, or dropped for a violation.",
        |view| {
            let of = &view.nbd;
            list([of.accepted, of.evicted, of.refused, of.dropped])
        },
    ),
    counters(
        "ftld_nbd_requests_total",
        &[label("command", &COMMANDS)],
        "NBD requests by command.",
        |view| list(view.nbd.requests),
    ),
    counter(
        "ftld_nbd_request_errors_total",
        "NBD requests answered with an error.",
        |view| to_f64(view.nbd.errors),
    ),
    gauge(
        "ftld_nbd_requests_in_flight",
        "NBD requests in flight.",
        |view| to_f64(view.nbd.in_flight),
    ),
];
