//! Interface of a volume to transports: bytes, without pages or flash.

use std::io;
use std::time::Instant;

/// Completion of a request; `None` acknowledges it at once.
pub type Completion = Option<DelayedCompletion>;

/// Finished request with a later completion time (`--latency emulate`). Dropped on acknowledgement,
/// or when its client is gone.
pub struct DelayedCompletion {
    due: Instant,
    /// Counts the end of the request when it is dropped.
    _request: Option<Box<dyn Send + Sync>>,
}

impl DelayedCompletion {
    /// Creates a delayed completion for a device without request counters.
    pub fn until(due: Instant) -> Self {
        DelayedCompletion {
            due,
            _request: None,
        }
    }

    /// Creates a delayed completion that drops `request` on acknowledgement.
    pub(crate) fn counted(due: Instant, request: impl Send + Sync + 'static) -> Self {
        DelayedCompletion {
            due,
            _request: Some(Box::new(request)),
        }
    }

    /// Waits until the request completes.
    pub fn wait(self) {
        std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
    }

    /// Returns the completion time.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Returns the later of two completions, for a request made of two parts.
    pub(crate) fn later(one: Completion, other: Completion) -> Completion {
        one.into_iter()
            .chain(other)
            .max_by_key(DelayedCompletion::due)
    }
}

/// Extent of a device in one state, for NBD block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// False if the extent was never written or was trimmed: it reads as zeros.
    pub mapped: bool,
}

/// Requests that a FLUSH has to make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOf {
    /// All acknowledged requests.
    Everything,
    /// This request with FUA, which has finished.
    Request {
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
    },
}

/// A byte-granular block device.
///
/// Methods are called from many threads. The callee checks offsets and lengths: beyond the end it
/// returns `EINVAL` (reads, trims) or `ENOSPC` (writes). A request runs inline on the caller's
/// thread and is short; only [`Flush::wait`] blocks for long. The operation has finished when the
/// method returns; its [`Completion`] contains the acknowledgement time.
pub trait BlockDevice: Send + Sync {
    /// Returns the device size in bytes.
    fn size(&self) -> u64;
    /// Returns the logical block size in bytes, 512 by default. Transports may still be
    /// byte-granular.
    fn logical_block(&self) -> u32;
    /// Returns the unit of atomicity in bytes, a power of two.
    fn physical_block(&self) -> u32;
    /// Returns the preferred request size in bytes, a power of two: a flash page, or its largest
    /// part that is one.
    fn preferred_block(&self) -> u32;
    /// Returns whether the device refuses writes with `EPERM` (`--read-only`).
    fn read_only(&self) -> bool;
    /// Returns whether the next request may wait for the end of a pause. The NBD server then sends
    /// its replies and ends its syncs first.
    fn is_paused(&self) -> bool {
        false
    }
    /// Returns whether the device announces a volatile cache: an acknowledged request may be lost
    /// until a FLUSH. If not, its users send no FLUSH, and a transport executes every request that
    /// changes data as one with FUA. It may change while the device is in use.
    fn has_volatile_cache(&self) -> bool {
        true
    }
    /// Reads `buf.len()` bytes.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, `EIO` where data is lost or the device failed.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion>;
    /// Writes `data`. Acknowledged data survives the death of the daemon, but not a power cut.
    ///
    /// # Errors
    /// `ENOSPC` beyond the end or if the host's storage is full, `EPERM` on a read-only device,
    /// otherwise `EIO`. Part of the data may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion>;
    /// Executes writes in this order, as [`BlockDevice::write`] would one by one; appends a result
    /// for each to `results`. A device may execute them as one.
    fn write_many(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        results.extend(
            writes
                .iter()
                .map(|(offset, data)| self.write(*offset, data)),
        );
    }
    /// Makes the range read as zeros and releases its space.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, `EPERM` on a read-only device, otherwise `EIO`. Part of the range
    /// may have been trimmed.
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion>;
    /// Makes the range read as zeros.
    ///
    /// # Errors
    /// As [`BlockDevice::write`].
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion>;
    /// Runs the first half of FLUSH, inline and short: makes all acknowledged requests safe on the
    /// flash. The data is durable once [`Flush::wait`] on the result has returned. FUA is a write
    /// followed by both halves, with the range of the write; a device may flush more than that.
    ///
    /// # Errors
    /// `EIO` if the device failed: data that was not yet durable may be lost.
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>>;
    /// Returns the states of the range from `offset` on, at most `max` extents. They may end early
    /// but cover at least one byte.
    ///
    /// # Errors
    /// `EINVAL` beyond the end or if `max` is 0, `EIO` if the map cannot be read.
    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>>;
}

/// A device over another one. Methods that a layer does not define are those of the device below.
///
/// Each method is that of [`BlockDevice`], with its errors.
#[allow(clippy::missing_errors_doc, reason = "BlockDevice documents them")]
pub trait Layer: Send + Sync {
    /// Returns the device below.
    fn below(&self) -> &dyn BlockDevice;
    /// Returns whether the next request may wait.
    fn is_paused(&self) -> bool {
        self.below().is_paused()
    }
    /// Reads `buf.len()` bytes.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.below().read(offset, buf)
    }
    /// Writes `data`.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.below().write(offset, data)
    }
    /// Executes writes in this order; by default one by one, each by the layer's own
    /// [`Layer::write`].
    fn write_many(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        self.write_each(writes, results);
    }
    /// Executes writes one by one.
    fn write_each(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        results.extend(
            writes
                .iter()
                .map(|(offset, data)| self.write(*offset, data)),
        );
    }
    /// Makes the range read as zeros and releases its space.
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.below().trim(offset, len)
    }
    /// Makes the range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.below().write_zeroes(offset, len)
    }
    /// Runs the first half of FLUSH.
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        self.below().flush(of)
    }
}

impl<L: Layer> BlockDevice for L {
    fn size(&self) -> u64 {
        self.below().size()
    }

    fn logical_block(&self) -> u32 {
        self.below().logical_block()
    }

    fn physical_block(&self) -> u32 {
        self.below().physical_block()
    }

    fn preferred_block(&self) -> u32 {
        self.below().preferred_block()
    }

    fn read_only(&self) -> bool {
        self.below().read_only()
    }

    fn is_paused(&self) -> bool {
        Layer::is_paused(self)
    }

    fn has_volatile_cache(&self) -> bool {
        self.below().has_volatile_cache()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        Layer::read(self, offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        Layer::write(self, offset, data)
    }

    fn write_many(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        Layer::write_many(self, writes, results);
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        Layer::trim(self, offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        Layer::write_zeroes(self, offset, len)
    }

    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        Layer::flush(self, of)
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>> {
        self.below().extents(offset, len, max)
    }
}

/// A FLUSH in flight.
pub trait Flush: Send {
    /// Blocks until the data is on the host's storage. Never called under a lock; NBD calls it off
    /// its event loop.
    ///
    /// # Errors
    /// `EIO` if the sync failed: data since the last successful sync is not durable.
    fn wait(self: Box<Self>) -> io::Result<Completion>;
}
