//! A device whose requests are recorded.

use super::{Begun, Recorder, errno};
use crate::device::{BlockDevice, Completion, Flush, FlushOf, Layer};
use ftld_kit::convert::to_u64;
use ftld_traces::recording::Kind;
use std::io;
use std::sync::Arc;

/// A device whose requests are recorded. Requests for block status are not.
pub struct Recorded {
    device: Arc<dyn BlockDevice>,
    recorder: Arc<Recorder>,
}

impl Recorded {
    /// Wraps a device.
    pub fn new(device: Arc<dyn BlockDevice>, recorder: Arc<Recorder>) -> Recorded {
        Recorded { device, recorder }
    }

    /// Runs a request between its two moments.
    fn request(
        &self,
        what: (Kind, u64, u64),
        data: &[u8],
        run: impl FnOnce(&dyn BlockDevice) -> io::Result<Completion>,
    ) -> io::Result<Completion> {
        let Some(begun) = self.recorder.begin(data.len()) else {
            return run(&*self.device);
        };
        let result = run(&*self.device);
        self.recorder
            .end(begun, what, result.as_ref().err().map_or(0, errno), data);
        result
    }
}

impl Layer for Recorded {
    fn below(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        let what = (Kind::Read, offset, to_u64(buf.len()));
        self.request(what, &[], |device| device.read(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let what = (Kind::Write, offset, to_u64(data.len()));
        self.request(what, data, |device| device.write(offset, data))
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.request((Kind::Trim, offset, len), &[], |device| {
            device.trim(offset, len)
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.request((Kind::WriteZeroes, offset, len), &[], |device| {
            device.write_zeroes(offset, len)
        })
    }

    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        let Some(begun) = self.recorder.begin(0) else {
            return self.device.flush(of);
        };
        let mut ending = Ending {
            recorder: self.recorder.clone(),
            begun: Some(begun),
            of,
        };
        match self.device.flush(of) {
            Ok(flush) => Ok(Box::new(RecordedFlush { flush, ending })),
            Err(error) => {
                ending.end(errno(&error));
                Err(error)
            }
        }
    }
}

/// A FLUSH in flight. It ends when the wait has returned; without a wait it has failed.
struct RecordedFlush {
    flush: Box<dyn Flush>,
    ending: Ending,
}

impl Flush for RecordedFlush {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        let RecordedFlush { flush, mut ending } = *self;
        let result = flush.wait();
        ending.end(result.as_ref().err().map_or(0, errno));
        result
    }
}

/// The end of a FLUSH, once.
struct Ending {
    recorder: Arc<Recorder>,
    begun: Option<Begun>,
    of: FlushOf,
}

impl Ending {
    fn end(&mut self, errno: u16) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        let (fua, offset, length) = match self.of {
            FlushOf::Everything => (false, 0, 0),
            FlushOf::Request { offset, len } => (true, offset, len),
        };
        let what = (Kind::Flush, offset, length);
        self.recorder.end_as(begun, fua, what, errno, &[]);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end(EIO);
    }
}

const EIO: u16 = 5;
