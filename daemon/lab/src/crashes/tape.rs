//! What a check changes through a device while it runs: changes and FLUSHes, in order, in memory.

use ftld_device::device::{BlockDevice, Completion, Flush, FlushOf, Layer};
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_traces::recording::{Entry, Head, Kind, Moment, Reader, Writer};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Largest recovery that is kept, in bytes.
pub(super) const RECOVERY_MAX: u64 = 64 << 20;
/// Bytes of a request beside its data.
const REQUEST_BYTES: u64 = 128;
/// A request that failed, and may have happened in part.
const EIO: u16 = 5;

/// What a check did on one state.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    pub(super) entries: Vec<Entry>,
    /// It was longer than [`RECOVERY_MAX`].
    pub(super) was_cut_off: bool,
}

/// Requests since the last start.
#[derive(Default)]
pub struct Tape(Mutex<Taped>);

#[derive(Default)]
struct Taped {
    of: Recovery,
    bytes: u64,
    runs: bool,
}

impl Tape {
    /// Forgets all requests, and keeps those from now on.
    pub fn start(&self) {
        *self.0.lock() = Taped {
            runs: true,
            ..Taped::default()
        };
    }

    /// Ends it; returns the requests.
    pub(super) fn take(&self) -> Recovery {
        std::mem::take(&mut *self.0.lock()).of
    }

    /// Ends it, and writes the requests as a recording of a device of `size` bytes. One that was
    /// too long lacks its end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path, size: u64) -> io::Result<()> {
        let taped = self.take();
        let head = Head {
            program: env!("CARGO_PKG_VERSION").into(),
            size,
            logical_block: 512,
            physical_block: 512,
            has_data: true,
            started_unix_s: 0,
            flash: None,
            write_cache: None,
            clock: None,
        };
        let mut writer = Writer::create(File::create(path)?, &head)?;
        for entry in &taped.entries {
            writer.push(entry, &entry.data)?;
        }
        match taped.was_cut_off {
            true => writer.write_chunk(),
            false => writer.finish().map(drop),
        }
    }

    /// Runs a request, and keeps it.
    fn request<T>(
        &self,
        (kind, fua, offset, length): (Kind, bool, u64, u64),
        data: &[u8],
        run: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        // Under the lock, so that the order is that of the device.
        let mut taped = self.0.lock();
        let result = run();
        let bytes = taped.bytes + REQUEST_BYTES + to_u64(data.len());
        if bytes > RECOVERY_MAX {
            taped.of.was_cut_off |= taped.runs;
            taped.runs = false;
        }
        if !taped.runs {
            return result;
        }
        taped.bytes = bytes;
        let number = to_u64(taped.of.entries.len());
        let moment = |seq| Moment { seq, ns: 0 };
        taped.of.entries.push(Entry {
            kind,
            fua,
            errno: if result.is_ok() { 0 } else { EIO },
            offset,
            length,
            begin: moment(2 * number),
            end: moment(2 * number + 1),
            data: data.to_vec(),
        });
        result
    }
}

impl Recovery {
    /// Reads what [`Tape::save`] wrote; `None` without a file.
    ///
    /// # Errors
    /// It cannot be read, or is that of another device.
    pub(super) fn read(path: &Path, size: u64) -> Result<Option<Recovery>, Failure> {
        if !path.exists() {
            return Ok(None);
        }
        let failed = |error| Failure::failed(format!("the recovery: {error}"));
        let mut reader = Reader::open(path, true).map_err(failed)?;
        if reader.head().size != size {
            return Err(Failure::failed(format!(
                "the recovery: of a device of {} bytes instead of {size}",
                reader.head().size
            )));
        }
        let entries = (&mut reader).collect::<Result<_, _>>().map_err(failed)?;
        Ok(Some(Recovery {
            entries,
            was_cut_off: reader.was_cut_off(),
        }))
    }
}

/// A device whose changes and FLUSHes go onto a tape.
pub struct OnTape {
    device: Arc<dyn BlockDevice>,
    tape: Arc<Tape>,
}

impl OnTape {
    /// Wraps a device.
    pub fn new(device: Arc<dyn BlockDevice>, tape: Arc<Tape>) -> OnTape {
        OnTape { device, tape }
    }
}

impl Layer for OnTape {
    fn below(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let what = (Kind::Write, false, offset, to_u64(data.len()));
        let run = || self.device.write(offset, data);
        self.tape.request(what, data, run)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        let run = || self.device.trim(offset, len);
        self.tape
            .request((Kind::Trim, false, offset, len), &[], run)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        let run = || self.device.write_zeroes(offset, len);
        let what = (Kind::WriteZeroes, false, offset, len);
        self.tape.request(what, &[], run)
    }

    /// The devices below keep nothing in a cache of their own: a FLUSH has ended when it began.
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        let what = match of {
            FlushOf::Everything => (Kind::Flush, false, 0, 0),
            FlushOf::Request { offset, len } => (Kind::Flush, true, offset, len),
        };
        self.tape.request(what, &[], || self.device.flush(of))
    }
}
