//! The recording of requests; all zero without one.

use super::{Family, Kind};
use crate::convert::to_f64;
use crate::record::RecordingView;
use crate::status::StatusSnapshot;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_recording_entries_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests, marks and pieces of initial content in the recording (`--record`).",
        fill: |view, to| to.value(&[], count(view, |recording| recording.entries)),
    },
    Family {
        name: "ftld_recording_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes written into the recording.",
        fill: |view, to| to.value(&[], count(view, |recording| recording.bytes)),
    },
    Family {
        name: "ftld_recording_waits_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Requests that waited until fewer than 32 MiB of entries were unwritten.",
        fill: |view, to| to.value(&[], count(view, |recording| recording.waits)),
    },
    Family {
        name: "ftld_recording_failed",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 if the recording has failed and ended before the device; `ftld status` has the reason.",
        fill: |view, to| {
            let failed = |recording: &RecordingView| u64::from(recording.failure.is_some());
            to.value(&[], count(view, failed));
        },
    },
];

fn count(view: &StatusSnapshot, of: impl Fn(&RecordingView) -> u64) -> f64 {
    to_f64(view.recording.as_ref().map_or(0, of))
}
