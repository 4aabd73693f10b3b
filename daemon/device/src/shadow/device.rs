//! A device whose requests are passed on.

use super::{Begun, Tap};
use crate::device::{BlockDevice, Completion, Flush, FlushOf, Layer};
use ftld_kit::convert::{to_u32, to_u64};
use ftld_traces::Op;
use std::io;
use std::sync::Arc;

/// A device whose requests are passed on. Requests for block status are not.
pub struct Shadowed {
    device: Arc<dyn BlockDevice>,
    tap: Arc<Tap>,
}

impl Shadowed {
    /// Wraps a device.
    pub fn new(device: Arc<dyn BlockDevice>, tap: Arc<Tap>) -> Shadowed {
        Shadowed { device, tap }
    }

    #[inline]
    fn request<R>(
        &self,
        what: (Op, u64, u64),
        run: impl FnOnce(&dyn BlockDevice) -> io::Result<R>,
    ) -> io::Result<R> {
        let Some(begun) = self.tap.begin(1) else {
            return run(&*self.device);
        };
        let result = run(&*self.device);
        self.tap.end(begun, result.is_ok().then_some(what));
        result
    }
}

impl Layer for Shadowed {
    fn below(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        let what = (Op::Read, offset, to_u64(buf.len()));
        self.request(what, |device| device.read(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let what = (Op::Write, offset, to_u64(data.len()));
        self.request(what, |device| device.write(offset, data))
    }

    fn write_many(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        let Some(first) = self.tap.begin(to_u32(writes.len())) else {
            return self.device.write_many(writes, results);
        };
        let before = results.len();
        self.device.write_many(writes, results);
        for (number, (offset, data)) in writes.iter().enumerate() {
            let is_done = results.get(before + number).is_some_and(Result::is_ok);
            let begun = Begun {
                seq: first.seq + to_u64(number),
                ..first
            };
            let what = (Op::Write, *offset, to_u64(data.len()));
            self.tap.end(begun, is_done.then_some(what));
        }
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.request((Op::Trim, offset, len), |device| device.trim(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        let what = (Op::Trim, offset, len);
        self.request(what, |device| device.write_zeroes(offset, len))
    }

    /// The flash has done its part when the first half returns.
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        self.request((Op::Flush, 0, 0), |device| device.flush(of))
    }
}
