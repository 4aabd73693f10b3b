//! A device whose requests meet the injected faults.

use super::{Effect, Faults, RequestKind};
use crate::device::{BlockDevice, Completion, DelayedCompletion, Flush, FlushOf, Layer};
use ftld_kit::convert::to_u64;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const EIO: i32 = 5;

/// A device whose requests meet the injected faults.
pub struct Faulty {
    device: Arc<dyn BlockDevice>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// Wraps a device.
    pub fn new(device: Arc<dyn BlockDevice>, faults: Arc<Faults>) -> Faulty {
        Faulty { device, faults }
    }

    /// Returns the effect on a request, or its error.
    fn meet(&self, fails_by: RequestKind, offset: u64, len: u64) -> io::Result<Effect> {
        let range = offset..offset.saturating_add(len);
        let effect = self.faults.meet(fails_by, &range);
        match effect.fails {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => Ok(effect),
        }
    }

    /// Runs a request that changes the range.
    fn change(
        &self,
        offset: u64,
        len: u64,
        run: impl FnOnce(&dyn BlockDevice) -> io::Result<Completion>,
    ) -> io::Result<Completion> {
        if !self.faults.is_armed() {
            return run(&*self.device);
        }
        let effect = self.meet(RequestKind::WriteErrors, offset, len)?;
        let range: Range<u64> = offset..offset.saturating_add(len);
        let completion = match self.faults.keeps_old.load(Relaxed) {
            true => self.faults.change(&*self.device, &range, run)?,
            false => run(&*self.device)?,
        };
        Ok(later(completion, effect.extra))
    }
}

/// Delays a completion.
fn later(completion: Completion, extra: Duration) -> Completion {
    if extra.is_zero() {
        return completion;
    }
    let due = completion
        .as_ref()
        .map_or_else(Instant::now, DelayedCompletion::due)
        + extra;
    Some(match completion {
        Some(completion) => DelayedCompletion::counted(due, completion),
        None => DelayedCompletion::until(due),
    })
}

impl Layer for Faulty {
    fn below(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn is_paused(&self) -> bool {
        self.device.is_paused() || self.faults.may_hang()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        if !self.faults.is_armed() {
            return self.device.read(offset, buf);
        }
        let effect = self.meet(RequestKind::ReadErrors, offset, to_u64(buf.len()))?;
        Ok(later(self.device.read(offset, buf)?, effect.extra))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.change(offset, to_u64(data.len()), |device| {
            device.write(offset, data)
        })
    }

    fn write_many(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        if !self.faults.is_armed() {
            return self.device.write_many(writes, results);
        }
        self.write_each(writes, results);
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.change(offset, len, |device| device.trim(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.change(offset, len, |device| device.write_zeroes(offset, len))
    }

    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        if !self.faults.is_armed() {
            return self.device.flush(of);
        }
        let (offset, len) = match of {
            FlushOf::Everything => (0, self.size()),
            FlushOf::Request { offset, len } => (offset, len),
        };
        let range = offset..offset.saturating_add(len);
        let effect = self.faults.meet(RequestKind::FlushFails, &range);
        if effect.fails {
            if effect.loses {
                self.faults.revert(&*self.device)?;
            }
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let flush = self.device.flush(of)?;
        Ok(Box::new(SlowFlush {
            flush,
            extra: effect.extra,
        }))
    }
}

/// A FLUSH that is acknowledged later.
struct SlowFlush {
    flush: Box<dyn Flush>,
    extra: Duration,
}

impl Flush for SlowFlush {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        Ok(later(self.flush.wait()?, self.extra))
    }
}
