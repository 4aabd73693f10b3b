//! NBD: connections and requests.

use super::{Family, Kind, label};
use crate::transport::nbd::COMMANDS;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_nbd_connections",
        kind: Kind::Gauge,
        labels: &[label("state", &["negotiating", "connected"])],
        help: "NBD connections now; 0 where NBD is not served.",
        fill: |view, to| {
            to.value(&["negotiating"], view.nbd.negotiating as f64);
            to.value(&["connected"], view.nbd.connected as f64);
        },
    },
    Family {
        name: "ftld_nbd_connections_total",
        kind: Kind::Counter,
        labels: &[label(
            "result",
            &["accepted", "evicted", "refused", "dropped"],
        )],
        help: "NBD connections accepted, and of those: pushed out for a newer one, turned away, cut off for misbehaviour.",
        fill: |view, to| {
            to.value(&["accepted"], view.nbd.accepted as f64);
            to.value(&["evicted"], view.nbd.evicted as f64);
            to.value(&["refused"], view.nbd.refused as f64);
            to.value(&["dropped"], view.nbd.dropped as f64);
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
                .for_each(|(name, n)| to.value(&[name], n as f64))
        },
    },
    Family {
        name: "ftld_nbd_request_errors_total",
        kind: Kind::Counter,
        labels: &[],
        help: "NBD requests answered with an error.",
        fill: |view, to| to.value(&[], view.nbd.errors as f64),
    },
    Family {
        name: "ftld_nbd_requests_in_flight",
        kind: Kind::Gauge,
        labels: &[],
        help: "NBD requests whose reply is not on its way yet.",
        fill: |view, to| to.value(&[], view.nbd.in_flight as f64),
    },
];
