//! NBD: connections and requests.

use super::{Family, Kind, label};
use crate::convert::to_f64;
use crate::transport::nbd::COMMANDS;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_nbd_connections",
        kind: Kind::Gauge,
        labels: &[label("state", &["negotiating", "connected"])],
        help: "NBD connections now; 0 where NBD is not served.",
        fill: |view, to| {
            to.value(&["negotiating"], to_f64(view.nbd.negotiating));
            to.value(&["connected"], to_f64(view.nbd.connected));
        },
    },
    Family {
        name: "ftld_nbd_connections_total",
        kind: Kind::Counter,
        labels: &[label(
            "result",
            &["accepted", "evicted", "refused", "dropped"],
        )],
        help: "NBD connections accepted; some of them evicted for a newer one, refused, or dropped for a violation.",
        fill: |view, to| {
            to.value(&["accepted"], to_f64(view.nbd.accepted));
            to.value(&["evicted"], to_f64(view.nbd.evicted));
            to.value(&["refused"], to_f64(view.nbd.refused));
            to.value(&["dropped"], to_f64(view.nbd.dropped));
        },
    },
    Family {
        name: "ftld_nbd_requests_total",
        kind: Kind::Counter,
        labels: &[label("command", &COMMANDS)],
        help: "NBD requests by command.",
        fill: |view, to| {
            COMMANDS
                .iter()
                .zip(view.nbd.requests)
                .for_each(|(name, n)| to.value(&[name], to_f64(n)))
        },
    },
    Family {
        name: "ftld_nbd_request_errors_total",
        kind: Kind::Counter,
        labels: &[],
        help: "NBD requests answered with an error.",
        fill: |view, to| to.value(&[], to_f64(view.nbd.errors)),
    },
    Family {
        name: "ftld_nbd_requests_in_flight",
        kind: Kind::Gauge,
        labels: &[],
        help: "NBD requests in flight.",
        fill: |view, to| to.value(&[], to_f64(view.nbd.in_flight)),
    },
];
