//! Old contents of ranges that were changed since the last FLUSH, for a FLUSH that loses them.

use super::Faults;
use crate::device::{BlockDevice, Completion, FlushOf};
use ftld_kit::convert::{to_u64, to_usize};
use ftld_kit::failure::Failure;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum bytes of old contents.
const BYTES_MAX: u64 = 64 << 20;

/// Old contents, oldest first.
#[derive(Default)]
pub(super) struct Undo {
    old: Vec<(u64, Vec<u8>)>,
    bytes: u64,
}

impl Faults {
    /// Makes everything durable, and keeps old contents from now on.
    ///
    /// # Errors
    /// The device is paused, where a flush would wait and no command would be taken meanwhile, or
    /// it cannot flush.
    pub(super) fn keep_old(&self, device: &dyn BlockDevice) -> Result<(), Failure> {
        if device.is_paused() {
            return Err(Failure::failed(
                "the device is paused, and this fault begins with a flush; `ftld resume` ends the pause",
            ));
        }
        let failed =
            |error: io::Error| Failure::failed(format!("the device cannot flush: {error}"));
        let mut undo = self.undo.lock();
        self.keeps_old.store(true, Relaxed);
        let flush = device.flush(FlushOf::Everything).map_err(failed)?;
        flush.wait().map_err(failed)?;
        *undo = Undo::default();
        Ok(())
    }

    /// Runs a change and keeps the old content of its range. Changes run one after another.
    pub(super) fn change(
        &self,
        device: &dyn BlockDevice,
        range: &Range<u64>,
        run: impl FnOnce(&dyn BlockDevice) -> io::Result<Completion>,
    ) -> io::Result<Completion> {
        let mut undo = self.undo.lock();
        let length = range.end.min(device.size()).saturating_sub(range.start);
        if undo.bytes + length > BYTES_MAX {
            tracing::error!(
                "more than {BYTES_MAX} bytes were written without a FLUSH: a FLUSH that loses them is refused"
            );
            return Err(io::Error::from_raw_os_error(28));
        }
        let mut old = vec![0; to_usize(length)];
        if length > 0 {
            drop(device.read(range.start, &mut old)?);
        }
        let result = run(device);
        undo.bytes += length;
        undo.old.push((range.start, old));
        result
    }

    /// Forgets all old contents.
    pub(super) fn forget_all(&self) {
        *self.undo.lock() = Undo::default();
    }

    /// Puts the old contents back, newest first.
    pub(super) fn revert(&self, device: &dyn BlockDevice) -> io::Result<()> {
        let mut undo = self.undo.lock();
        while let Some((offset, data)) = undo.old.pop() {
            undo.bytes -= to_u64(data.len());
            drop(device.write(offset, &data)?);
        }
        Ok(())
    }
}
