//! What a transport sees of a volume: bytes, and nothing of pages or flash.

use std::io;
use std::time::Instant;

/// When a client may hear that its request is done: at once if `None`.
pub type Completion = Option<Hold>;

/// A request that is done, whose completion is due later (`--latency emulate`). Dropped when its
/// client hears of it, or is gone.
pub struct Hold {
    due: Instant,
    /// Counts the end of the request when it is dropped.
    _request: Option<Box<dyn Send + Sync>>,
}

impl Hold {
    /// A hold for a device that counts nothing.
    pub fn until(due: Instant) -> Self {
        Hold {
            due,
            _request: None,
        }
    }

    /// A hold that drops `request` when its client hears of the completion.
    pub fn counted(due: Instant, request: impl Send + Sync + 'static) -> Self {
        Hold {
            due,
            _request: Some(Box::new(request)),
        }
    }

    /// When the completion is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// For a request made of two parts: it is done when both are.
    pub fn later(one: Completion, other: Completion) -> Completion {
        one.into_iter().chain(other).max_by_key(Hold::due)
    }
}

/// One stretch of a device in one state, for NBD block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// False where nothing was written or the range was trimmed: it reads as zeros.
    pub mapped: bool,
}

/// A byte-granular block device. Methods are called from many threads; offsets and lengths are
/// checked by the callee, which answers `EINVAL` (reads, trims) or `ENOSPC` (writes) for what lies
/// beyond the end. A request runs inline, short, on the caller's thread; only [`Flush::wait`]
/// blocks for long. What a verb did is done when it returns; its [`Completion`] says when the
/// client may hear of it.
pub trait BlockDevice: Send + Sync {
    /// Bytes the host sees.
    fn size(&self) -> u64;
    /// Logical block size in bytes: 512 unless told otherwise. Transports may still be
    /// byte-granular.
    fn logical_block(&self) -> u32;
    /// Unit of atomicity in bytes.
    fn physical_block(&self) -> u32;
    /// Preferred request size in bytes: a flash page.
    fn preferred_block(&self) -> u32;
    /// Whether writes are refused with `EPERM` from the start (`--read-only`).
    fn read_only(&self) -> bool;
    /// Reads `buf.len()` bytes.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, `EIO` where data is lost or the device failed.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion>;
    /// Writes; acknowledged means it survives the death of the daemon, not a power cut.
    ///
    /// # Errors
    /// `ENOSPC` beyond the end or without room on the host, `EPERM` on a read-only device,
    /// otherwise `EIO`. A part may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion>;
    /// Makes the range read as zeros, giving up its space.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, `EPERM` on a read-only device, otherwise `EIO`. A part may have
    /// been trimmed.
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion>;
    /// Makes the range read as zeros.
    ///
    /// # Errors
    /// As [`BlockDevice::write`].
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion>;
    /// First half of FLUSH, short, inline: everything acknowledged before is made safe on the
    /// flash. The data is durable once [`Flush::wait`] on the result returned; FUA is a write
    /// followed by both halves.
    ///
    /// # Errors
    /// `EIO` if the device failed: what was not durable before may be lost.
    fn flush(&self) -> io::Result<Box<dyn Flush>>;
    /// States of the range, at most `max` stretches, from `offset` on; they may end early but cover
    /// at least one byte.
    ///
    /// # Errors
    /// `EINVAL` beyond the end or for no stretches, `EIO` where the map cannot be read.
    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>>;
}

/// A FLUSH under way.
pub trait Flush: Send {
    /// Blocks until the host's own storage has it. Never called under a lock; NBD calls it off its
    /// event loop.
    ///
    /// # Errors
    /// `EIO` if the sync failed: nothing since the last one that succeeded is durable.
    fn wait(self: Box<Self>) -> io::Result<Completion>;
}
