//! Requests: splits them into extents and runs each extent under the lock.
//!
//! Invariants: a request that changes the flash waits for erased space outside the lock; a request
//! is acknowledged after its last extent. If power fails between two extents, the first ones may
//! survive, unacknowledged.

use super::host::Op;
use super::locked::Core;
use super::request::{FlushWait, Request};
use super::unlocked::{NO_POWER, WELL};
use super::{EINVAL, EIO, ENOSPC, EPERM, EXTENT_PAGES, Volume};
use crate::convert::{to_u64, to_usize};
use crate::device::{BlockDevice, Completion, Extent, Flush, FlushOf};
use crate::pages::extent_end;
use ftl_core::{DeferredRead, FtlError};
use nand_model::{Nanos, PageReader, Store};
use parking_lot::MutexGuard;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// The second half of this thread's read.
    static DEFERRED: RefCell<DeferredRead> = RefCell::default();
}

impl<S: Store + 'static> Volume<S> {
    /// Returns the lock once the pause gate admits an extent; `first` marks the first extent of a
    /// request.
    fn lock_to_begin(&self, first: bool) -> MutexGuard<'_, Option<Core<S>>> {
        loop {
            let guard = self.lock();
            match self
                .unlocked
                .pause_gate
                .admits(first, || self.noted(&guard))
            {
                Ok(()) => return guard,
                Err(wait) => {
                    self.unlocked.events.store(self.noted(&guard), Relaxed);
                    drop(guard);
                    self.unlocked.pause_gate.wait(wait);
                }
            }
        }
    }

    /// Runs one bounded extent of a request that changes the flash.
    pub(super) fn change(
        &self,
        request: &mut Request<'_>,
        last: bool,
        verb: impl FnOnce(&mut Core<S>, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_change(request.begins())?;
        let is_write = request.is_write();
        self.run(&mut guard, true, |core| {
            let changed = request.step(core, last, verb);
            match &changed {
                // A trim, like a FLUSH, may have programmed nothing.
                Ok(()) if is_write => self.unlocked.note_accepted(),
                Ok(()) => {}
                Err(error) => self.unlocked.note_failed(error),
            }
            changed
        })
    }

    /// Returns the lock once a change may begin: the store accepts the erases of one extent.
    pub(super) fn lock_to_change(
        &self,
        first: bool,
    ) -> io::Result<MutexGuard<'_, Option<Core<S>>>> {
        let mut guard = self.lock_to_begin(first);
        self.writable()?;
        let left = guard.as_ref().map_or(u32::MAX, Core::erases_left);
        if left < self.shape.erases_eager {
            self.tell_short();
        }
        if left < self.shape.erases_low {
            let mark = self.mark(&mut guard);
            drop(guard);
            self.wait_for_erased_space(mark)?;
            guard = self.lock_to_begin(false);
        }
        Ok(guard)
    }

    /// Runs one bounded extent of a request that changes nothing visible to the host.
    pub(super) fn look(
        &self,
        request: &mut Request<'_>,
        last: bool,
        verb: impl FnOnce(&mut Core<S>, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_begin(request.begins());
        self.run(&mut guard, false, |core| request.step(core, last, verb))
    }

    pub(super) fn writable(&self) -> io::Result<()> {
        match self.unlocked.health.load(Relaxed) {
            WELL if !self.shape.read_only => Ok(()),
            NO_POWER => Err(io::Error::from_raw_os_error(EIO)),
            _ => Err(io::Error::from_raw_os_error(EPERM)),
        }
    }

    /// Checks the range and begins to count the request.
    pub(super) fn begin(&self, op: Op, offset: u64, len: u64) -> io::Result<Request<'_>> {
        let request = Request::begin(&self.unlocked, op, len);
        if offset
            .checked_add(len)
            .is_some_and(|end| end <= self.shape.size)
        {
            let page = u64::from(self.shape.page_bytes);
            if !(offset.is_multiple_of(page) && len.is_multiple_of(page)) {
                self.unlocked
                    .counters
                    .of(op)
                    .unaligned
                    .fetch_add(1, Relaxed);
            }
            return Ok(request);
        }
        let errno = if matches!(op, Op::Write | Op::WriteZeroes) {
            ENOSPC
        } else {
            EINVAL
        };
        Err(request.fail(io::Error::from_raw_os_error(errno)))
    }

    fn read_extents(
        &self,
        request: &mut Request<'_>,
        mut offset: u64,
        mut buf: &mut [u8],
    ) -> io::Result<()> {
        let end = offset + to_u64(buf.len());
        assert!(
            end <= self.shape.size,
            "a read up to byte {end} of a device of {} bytes",
            self.shape.size
        );
        while offset < end {
            let next = extent_end(offset, end, self.shape.extent_bytes);
            assert!(next > offset, "an extent of a read is empty");
            let (part, rest) = buf.split_at_mut(to_usize(next - offset));
            match &self.reader {
                Some(reader) if !self.shape.has_cache => {
                    self.read_outside(request, next == end, offset, part, reader)?;
                }
                _ => self.look(request, next == end, |core, at| core.read(at, offset, part))?,
            }
            (buf, offset) = (rest, next);
        }
        assert!(buf.is_empty(), "a read has filled its buffer");
        Ok(())
    }

    /// Reads an extent: the scheme finds the pages under the lock, and they are copied and checked
    /// outside it. If one is not good, the scheme reads the extent, and decides what that means.
    fn read_outside(
        &self,
        request: &mut Request<'_>,
        last: bool,
        offset: u64,
        buf: &mut [u8],
        reader: &PageReader,
    ) -> io::Result<()> {
        DEFERRED.with_borrow_mut(|deferred| {
            self.look(request, last, |core, at| {
                core.read_deferred(at, offset, buf, deferred)
            })?;
            let is_held = deferred.is_held();
            // A panic is no evidence about the page: the scheme reads it again.
            let copied = catch_unwind(AssertUnwindSafe(|| deferred.finish(reader, buf)));
            if copied.unwrap_or(false) {
                return Ok(());
            }
            if is_held {
                self.unlocked.counters.reads_repeated.fetch_add(1, Relaxed);
            }
            self.look(request, last, |core, at| core.read(at, offset, buf))
        })
    }

    pub(super) fn write_extents(
        &self,
        request: &mut Request<'_>,
        mut offset: u64,
        mut data: &[u8],
    ) -> io::Result<()> {
        let end = offset + to_u64(data.len());
        assert!(
            end <= self.shape.size,
            "a write up to byte {end} of a device of {} bytes",
            self.shape.size
        );
        while offset < end {
            let next = extent_end(offset, end, self.shape.write_bytes);
            assert!(next > offset, "an extent of a write is empty");
            let (part, rest) = data.split_at(to_usize(next - offset));
            if self.shape.has_cache {
                self.write_cached(request, next == end, offset, part)?;
            } else {
                self.change(request, next == end, |core, at| {
                    let done = core.paged().write(at, offset, part)?;
                    core.note_write(offset, part);
                    Ok(done)
                })?;
            }
            (data, offset) = (rest, next);
        }
        assert!(data.is_empty(), "a write has taken all its data");
        Ok(())
    }

    fn zero(&self, op: Op, offset: u64, len: u64) -> io::Result<Completion> {
        let mut request = self.begin(op, offset, len)?;
        let result = self.zero_extents(&mut request, offset, offset + len);
        let zeroed = request.end(result)?;
        self.flush_through(zeroed)
    }

    fn zero_extents(&self, request: &mut Request<'_>, mut offset: u64, end: u64) -> io::Result<()> {
        let length = u64::from(EXTENT_PAGES) * u64::from(self.shape.page_bytes);
        assert!(
            offset <= end && end <= self.shape.size,
            "zeros in bytes {offset} to {end} of a device of {} bytes",
            self.shape.size
        );
        self.writable()?;
        while offset < end {
            let next = extent_end(offset, end, length);
            assert!(next > offset, "an extent of zeros is empty");
            if self.shape.has_cache {
                self.zero_cached(request, next == end, offset, next - offset)?;
            } else {
                self.change(request, next == end, |core, at| {
                    core.paged().zero(at, offset, next - offset)
                })?;
            }
            offset = next;
        }
        Ok(())
    }
}

impl<S: Store + 'static> BlockDevice for Volume<S> {
    fn size(&self) -> u64 {
        self.shape.size
    }

    fn logical_block(&self) -> u32 {
        512
    }

    fn physical_block(&self) -> u32 {
        self.shape.unit_bytes
    }

    fn preferred_block(&self) -> u32 {
        self.shape.page_bytes
    }

    fn read_only(&self) -> bool {
        self.shape.read_only
    }

    fn is_paused(&self) -> bool {
        self.unlocked.pause_gate.is_paused()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        let mut request = self.begin(Op::Read, offset, to_u64(buf.len()))?;
        let result = self.read_extents(&mut request, offset, buf);
        request.end(result)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let mut request = self.begin(Op::Write, offset, to_u64(data.len()))?;
        let result = self
            .writable()
            .and_then(|()| self.write_extents(&mut request, offset, data));
        let written = request.end(result)?;
        self.flush_through(written)
    }

    fn write_many(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        self.write_batches(writes, results);
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.zero(Op::Trim, offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.zero(Op::WriteZeroes, offset, len)
    }

    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        if of != FlushOf::Everything {
            self.unlocked.counters.fua.fetch_add(1, Relaxed);
        }
        let mut request = Request::begin(&self.unlocked, Op::Flush, 0);
        if self.shape.read_only {
            return Ok(Box::new(FlushWait::<S>::new(request, None)));
        }
        if self.shape.has_cache
            && let Err(error) = self.drain_for_flush(&mut request)
        {
            return Err(request.fail(error));
        }
        let mut guard = self.lock_to_begin(request.begins());
        let health = self.unlocked.health.load(Relaxed);
        let flushed = if health == WELL {
            let flush = |core: &mut Core<S>, at| {
                core.flush(at)
                    .inspect_err(|error| self.unlocked.note_failed(error))
            };
            self.run(&mut guard, true, |core| request.step(core, true, flush))
        } else {
            Err(io::Error::from_raw_os_error(EIO))
        };
        let mark = self.mark(&mut guard);
        drop(guard);
        if let Err(error) = flushed {
            return Err(request.fail(error));
        }
        Ok(Box::new(FlushWait::new(
            request,
            self.durable.clone().map(|durable| (durable, mark)),
        )))
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>> {
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= self.shape.size && max > 0);
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
        let extents = self.run(&mut self.lock_to_begin(true), false, |core| {
            core.extents(offset, end, max)
        })?;
        assert!(
            extents.len() <= max && extents.iter().all(|extent| extent.len > 0),
            "{} extents, some of them perhaps empty; {max} were requested",
            extents.len()
        );
        Ok(extents)
    }
}
