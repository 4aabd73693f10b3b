//! Requests: splits them into extents and runs each extent under the lock.
//!
//! Invariants: a request that changes the flash waits for erased space outside the lock; a request
//! is acknowledged after its last extent. If power fails between two extents, the first ones may
//! survive, unacknowledged.

use super::host::Op;
use super::locked::Core;
use super::request::{FlushWait, Mark, Request};
use super::shard::{Locked, Shard};
use super::unlocked::{NO_POWER, WELL};
use super::{EINVAL, EIO, ENOSPC, EPERM, EXTENT_PAGES, Volume};
use crate::device::{BlockDevice, Completion, Extent, Flush, FlushOf};
use crate::pages::extent_end;
use ftl_core::{DeferredRead, FtlError};
use ftld_kit::convert::{to_u64, to_usize};
use nand_model::{Nanos, PageReader, aligned_bytes};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// The second half of this thread's read.
    static DEFERRED: RefCell<DeferredRead> = RefCell::default();
}

impl Volume {
    /// Returns the lock of a shard once the pause gate admits an extent; `first` marks the first
    /// extent of a request.
    fn lock_to_begin<'a>(&self, shard: &'a Shard, first: bool) -> Locked<'a> {
        loop {
            let guard = shard.lock();
            match self
                .unlocked
                .pause_gate
                .admits(first, || self.noted(&guard))
            {
                Ok(()) => return guard,
                Err(wait) => {
                    drop(guard);
                    self.unlocked.pause_gate.wait(wait);
                }
            }
        }
    }

    /// Runs one bounded extent of a request that changes the flash.
    pub(super) fn change(
        &self,
        shard: &Shard,
        request: &mut Request<'_>,
        last: bool,
        verb: impl FnOnce(&mut Core, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_change(shard, request.begins())?;
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

    /// Returns the lock of a shard once a change may begin: its store accepts the erases of one
    /// extent.
    pub(super) fn lock_to_change<'a>(
        &self,
        shard: &'a Shard,
        first: bool,
    ) -> io::Result<Locked<'a>> {
        let mut guard = self.lock_to_begin(shard, first);
        self.writable()?;
        let left = guard.as_ref().map_or(u32::MAX, Core::erases_left);
        if left < self.shape.erases_eager {
            self.tell_short(shard);
        }
        if left < self.shape.erases_low {
            let mark = guard.mark();
            drop(guard);
            self.wait_for_erased_space(shard, mark)?;
            guard = self.lock_to_begin(shard, false);
        }
        Ok(guard)
    }

    /// Runs one bounded extent of a request that changes nothing visible to the host.
    pub(super) fn look(
        &self,
        shard: &Shard,
        request: &mut Request<'_>,
        last: bool,
        verb: impl FnOnce(&mut Core, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_begin(shard, request.begins());
        self.run(&mut guard, false, |core| request.step(core, last, verb))
    }

    /// Makes a shard safe on its flash; returns what has to be durable then.
    fn flush_shard(&self, shard: &Shard, request: &mut Request<'_>) -> io::Result<Option<Mark>> {
        if shard.has_cache {
            self.drain_for_flush(shard, request)?;
        }
        let mut guard = self.lock_to_begin(shard, request.begins());
        if self.unlocked.health.load(Relaxed) != WELL {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.run(&mut guard, true, |core| {
            request.step(core, true, |core, at| {
                core.flush(at)
                    .inspect_err(|error| self.unlocked.note_failed(error))
            })
        })?;
        Ok(Self::mark_of(&mut guard))
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
                    .own(op)
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
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let end = offset + to_u64(buf.len());
        assert!(
            end <= self.shape.size,
            "a read up to byte {end} of a device of {} bytes",
            self.shape.size
        );
        let mut left = buf.len();
        self.each_extent(
            request,
            offset..end,
            self.shape.extent_bytes,
            |extent, request| {
                let part = &mut buf[extent.place_after(offset)];
                left -= part.len();
                match &extent.shard.reader {
                    Some(reader) if !extent.shard.has_cache => {
                        self.read_outside(&extent, request, part, reader)
                    }
                    _ => self.look(extent.shard, request, extent.is_last, |core, at| {
                        core.read(at, extent.at, part)
                    }),
                }
            },
        )?;
        assert_eq!(left, 0, "bytes of a read that no extent had");
        Ok(())
    }

    /// Reads an extent: the scheme finds the pages under the lock, and they are copied and checked
    /// outside it. If one is not good, the scheme reads the extent, and decides what that means.
    fn read_outside(
        &self,
        extent: &ShardExtent<'_>,
        request: &mut Request<'_>,
        buf: &mut [u8],
        reader: &PageReader,
    ) -> io::Result<()> {
        DEFERRED.with_borrow_mut(|deferred| {
            self.look(extent.shard, request, extent.is_last, |core, at| {
                core.read_deferred(at, extent.at, buf, deferred)
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
            self.look(extent.shard, request, extent.is_last, |core, at| {
                core.read(at, extent.at, buf)
            })
        })
    }

    pub(super) fn write_extents(
        &self,
        request: &mut Request<'_>,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let end = offset + to_u64(data.len());
        assert!(
            end <= self.shape.size,
            "a write up to byte {end} of a device of {} bytes",
            self.shape.size
        );
        let mut left = data.len();
        self.each_extent(
            request,
            offset..end,
            self.shape.write_bytes,
            |extent, request| {
                let part = &data[extent.place_after(offset)];
                left -= part.len();
                if extent.shard.has_cache {
                    return self.write_cached(&extent, request, part);
                }
                self.change(extent.shard, request, extent.is_last, |core, at| {
                    let done = core.paged().write(at, extent.at, part)?;
                    core.note_write(at, extent.offset, part);
                    Ok(done)
                })
            },
        )?;
        assert_eq!(left, 0, "bytes of a write that no extent had");
        Ok(())
    }

    /// Runs each extent of a range of the device, shard by shard.
    fn each_extent<'a>(
        &'a self,
        request: &mut Request<'_>,
        range: Range<u64>,
        extent_bytes: u64,
        mut run: impl FnMut(ShardExtent<'a>, &mut Request<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let stripes = self.shape.stripes;
        for (place, (number, range)) in stripes.ranges(range).enumerate() {
            if place > 0 {
                request.next_shard();
            }
            let mut at = range.start;
            while at < range.end {
                let next = stripes.extent_end(at, range.end, extent_bytes);
                assert!(next > at, "an extent of a request is empty");
                let extent = ShardExtent {
                    shard: &self.shards[number],
                    at,
                    offset: stripes.offset_of(number, at),
                    len: next - at,
                    is_last: next == range.end,
                };
                run(extent, request)?;
                at = next;
            }
        }
        Ok(())
    }

    fn zero(&self, op: Op, offset: u64, len: u64) -> io::Result<Completion> {
        let mut request = self.begin(op, offset, len)?;
        let result = self.zero_extents(&mut request, offset, offset + len);
        request.end(self.with_power(result))
    }

    fn zero_extents(&self, request: &mut Request<'_>, offset: u64, end: u64) -> io::Result<()> {
        let length = u64::from(EXTENT_PAGES) * u64::from(self.shape.page_bytes);
        assert!(
            offset <= end && end <= self.shape.size,
            "zeros in bytes {offset} to {end} of a device of {} bytes",
            self.shape.size
        );
        self.writable()?;
        // Zeros have no data: an extent is as long as in a device of one chip, over many stripes.
        for (place, (number, range)) in self.shape.stripes.ranges(offset..end).enumerate() {
            if place > 0 {
                request.next_shard();
            }
            let (shard, mut at) = (&self.shards[number], range.start);
            while at < range.end {
                let next = extent_end(at, range.end, length);
                let (len, is_last) = (next - at, next == range.end);
                assert!(len > 0, "an extent of zeros is empty");
                if shard.has_cache {
                    self.zero_cached(shard, request, is_last, at, len)?;
                } else {
                    self.change(shard, request, is_last, |core, now| {
                        core.paged().zero(now, at, len)
                    })?;
                }
                at = next;
            }
        }
        Ok(())
    }
}

/// One extent of a request, in one shard.
pub(super) struct ShardExtent<'a> {
    pub(super) shard: &'a Shard,
    /// First byte in the shard.
    pub(super) at: u64,
    /// First byte in the device.
    pub(super) offset: u64,
    /// Number of bytes.
    pub(super) len: u64,
    /// Whether it is the last one of the request in this shard.
    pub(super) is_last: bool,
}

impl ShardExtent<'_> {
    /// Returns its place in the data of a request that begins at byte `begin`.
    fn place_after(&self, begin: u64) -> Range<usize> {
        let from = to_usize(self.offset - begin);
        from..from + to_usize(self.len)
    }
}

impl BlockDevice for Volume {
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
        aligned_bytes(self.shape.page_bytes)
    }

    fn read_only(&self) -> bool {
        self.shape.read_only
    }

    fn is_paused(&self) -> bool {
        self.unlocked.pause_gate.is_paused()
    }

    fn has_volatile_cache(&self) -> bool {
        !self.unlocked.write_through.load(Relaxed)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        let mut request = self.begin(Op::Read, offset, to_u64(buf.len()))?;
        let result = self.with_power(self.read_extents(&mut request, offset, buf));
        request.end(result)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let mut request = self.begin(Op::Write, offset, to_u64(data.len()))?;
        let result = self
            .writable()
            .and_then(|()| self.write_extents(&mut request, offset, data));
        request.end(self.with_power(result))
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
            return Ok(Box::new(FlushWait::new(request, Vec::new())));
        }
        let mut marks = Vec::with_capacity(self.shards.len());
        for (place, shard) in self.shards.iter().enumerate() {
            if place > 0 {
                request.next_shard();
            }
            match self.with_power(self.flush_shard(shard, &mut request)) {
                Ok(mark) => marks.extend(mark),
                Err(error) => return Err(request.fail(error)),
            }
        }
        Ok(Box::new(FlushWait::new(request, marks)))
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>> {
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= self.shape.size && max > 0);
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
        let mut extents: Vec<Extent> = Vec::new();
        let mut seen = 0;
        let most = u64::from(EXTENT_PAGES) * u64::from(self.shape.page_bytes);
        for (place, piece) in self.shape.stripes.pieces(offset..end).enumerate() {
            let shard = &self.shards[piece.shard];
            let found = self.run(&mut self.lock_to_begin(shard, place == 0), false, |core| {
                core.extents(piece.at, piece.at + piece.len, max)
            })?;
            let covered: u64 = found.iter().map(|extent| extent.len).sum();
            seen += covered;
            for extent in found {
                match extents.last_mut() {
                    Some(last) if last.mapped == extent.mapped => last.len += extent.len,
                    _ => extents.push(extent),
                }
            }
            if extents.len() > max || covered < piece.len || seen >= most {
                break;
            }
        }
        extents.truncate(max);
        assert!(
            extents.iter().all(|extent| extent.len > 0),
            "an empty extent among {}",
            extents.len()
        );
        Ok(extents)
    }
}
