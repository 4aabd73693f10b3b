//! The recording of requests; all zero without one.

use super::{Family, counter, gauge};
use ftld_device::record::RecordingView;
use ftld_device::status::StatusSnapshot;
use ftld_kit::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    counter(
        "ftld_recording_entries_total",
        "Requests, marks and pieces of initial content in the recording (`--record`).",
        |view| count(view, |recording| recording.entries),
    ),
    counter(
        "ftld_recording_bytes_total",
        "Bytes written into the recording.",
        |view| count(view, |recording| recording.bytes),
    ),
    counter(
        "ftld_recording_waits_total",
        "Requests that waited until fewer than 32 MiB of entries were unwritten.",
        |view| count(view, |recording| recording.waits),
    ),
    gauge(
        "ftld_recording_failed",
        "1 if the recording has failed and ended before the device; `ftld status` has the reason.",
        |view| {
            let failed = |recording: &RecordingView| u64::from(recording.failure.is_some());
            count(view, failed)
        },
    ),
];

fn count(view: &StatusSnapshot, of: impl Fn(&RecordingView) -> u64) -> f64 {
    to_f64(view.recording.as_ref().map_or(0, of))
}
