//! Initial content of a device: its mapped extents, read through the device.

use super::{Recorder, errno};
use crate::device::BlockDevice;
use ftld_kit::convert::{to_f64, to_u64, to_usize};
use ftld_kit::size::show_size;
use ftld_traces::recording::Kind;
use std::io;
use std::time::{Duration, Instant};

/// Bytes per entry.
const PIECE: u64 = 256 << 10;
/// Extents per query.
const EXTENTS: usize = 1024;
/// Time between two messages on the progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Records all mapped extents. A piece that cannot be read is an entry with its errno and no data.
pub(super) fn record(recorder: &Recorder, device: &dyn BlockDevice) -> io::Result<()> {
    let (size, mut at) = (device.size(), 0);
    let mut buffer = vec![0; to_usize(PIECE)];
    let mut progress = Progress {
        told: Instant::now(),
        bytes: 0,
        unreadable: 0,
    };
    while at < size {
        for extent in device.extents(at, size - at, EXTENTS)? {
            assert!(extent.len > 0, "an empty extent at {at}");
            let end = at + extent.len;
            while extent.mapped && at < end {
                let next = end.min((at / PIECE + 1) * PIECE);
                let piece = &mut buffer[..to_usize(next - at)];
                progress.unreadable += u64::from(!record_piece(recorder, device, at, piece));
                progress.bytes += next - at;
                progress.tell(next, size);
                at = next;
            }
            at = end;
        }
    }
    if progress.unreadable > 0 {
        tracing::warn!(
            "the recording lacks {} pieces of the device's content, which cannot be read",
            progress.unreadable
        );
    }
    Ok(())
}

/// Records one piece; returns whether it could be read.
fn record_piece(recorder: &Recorder, device: &dyn BlockDevice, at: u64, piece: &mut [u8]) -> bool {
    let Some(begun) = recorder.begin(piece.len()) else {
        return true;
    };
    let what = (Kind::Base, at, to_u64(piece.len()));
    match device.read(at, piece) {
        Ok(_) => {
            recorder.end(begun, what, 0, piece);
            true
        }
        Err(error) => {
            recorder.end(begun, what, errno(&error), &[]);
            false
        }
    }
}

struct Progress {
    told: Instant,
    bytes: u64,
    unreadable: u64,
}

impl Progress {
    fn tell(&mut self, at: u64, size: u64) {
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            tracing::info!(
                "recording what the device contains: {} so far, {:.0} % of the device",
                show_size(self.bytes),
                to_f64(at) / to_f64(size) * 100.0
            );
        }
    }
}
