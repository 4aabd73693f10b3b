//! Writes that are executed together: one lock, one append to the flash, one write of the image.
//!
//! Invariants: the order of the versions is that of the batch. A request is acknowledged only when
//! all its pages are in the store. If the scheme refuses some, the batch is executed again one by
//! one, so that each request gets a result of its own; after a failure of the device, that is an
//! error. If power fails, each page of the batch is its old or its new content.

use super::Volume;
use super::host::Op;
use super::locked::Core;
use super::request::Request;
use crate::convert::{index, narrow, to_u64};
use crate::device::{BlockDevice, Completion};
use ftl_core::{FtlError, Lpn};
use nand_model::{Nanos, Store};
use std::io;

/// Pages of a batch, and their addresses. The buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Batch {
    lpns: Vec<Lpn>,
    data: Vec<u8>,
}

/// One write of a batch, in one shard.
struct Member<'a> {
    request: Request<'a>,
    shard: usize,
    /// First byte in the shard.
    at: u64,
    /// First byte in the device.
    offset: u64,
    data: &'a [u8],
    is_done: bool,
}

impl Batch {
    fn fill<'a>(&mut self, writes: impl Iterator<Item = &'a Member<'a>>, page: usize) {
        self.lpns.clear();
        self.data.clear();
        for Member { at, data, .. } in writes {
            let first: u32 = narrow(at / to_u64(page));
            let pages: u32 = narrow(to_u64(data.len() / page));
            self.lpns.extend((first..first + pages).map(Lpn::new));
            self.data.extend_from_slice(data);
        }
    }
}

impl<S: Store> Core<S> {
    /// Writes the whole pages of one shard; `written` counts them, also on an error.
    fn write_batch(
        &mut self,
        at: Nanos,
        shard: usize,
        members: &[Member<'_>],
        written: &mut usize,
    ) -> Result<Nanos, FtlError> {
        let own = || members.iter().filter(|member| member.shard == shard);
        self.batch.fill(own(), self.scratch.len());
        let start = self.paged().handled(at);
        let Batch { lpns, data } = &self.batch;
        let done = self.ftl.write_scattered(start, lpns, data, written)?;
        if let Some(last) = own().next_back() {
            self.note_write(at, last.offset, last.data);
        }
        Ok(done)
    }
}

impl<S: Store + 'static> Volume<S> {
    /// Executes writes in this order, as many together as possible: [`BlockDevice::write_many`].
    ///
    /// [`BlockDevice::write_many`]: crate::device::BlockDevice::write_many
    pub(super) fn write_batches(
        &self,
        mut writes: &[(u64, &[u8])],
        results: &mut Vec<io::Result<Completion>>,
    ) {
        while let Some(&(offset, data)) = writes.first() {
            let count = self.batch_length(writes).max(1);
            let (together, rest) = writes.split_at(count);
            if count == 1 {
                results.push(self.write(offset, data));
            } else {
                self.write_together(together, results);
            }
            writes = rest;
        }
    }

    /// Returns how many of these writes, from the first on, can be executed together: whole pages,
    /// each in one stripe, on a device that nothing delays, at most an extent.
    fn batch_length(&self, writes: &[(u64, &[u8])]) -> usize {
        let shape = &self.shape;
        if self.has_cache() || shape.emulate || shape.read_only || self.is_paused() {
            return 0;
        }
        let (page, mut bytes) = (u64::from(shape.page_bytes), 0);
        let fits = |(offset, data): &&(u64, &[u8])| {
            let length = to_u64(data.len());
            bytes += length;
            let whole = offset.is_multiple_of(page) && length.is_multiple_of(page) && length > 0;
            let inside = offset
                .checked_add(length)
                .is_some_and(|end| end <= shape.size);
            whole && inside && bytes <= shape.write_bytes && shape.stripes.has_one(*offset, length)
        };
        writes.iter().take_while(fits).count()
    }

    fn write_together(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        let mut members: Vec<Member<'_>> = Vec::with_capacity(writes.len());
        for &(offset, data) in writes {
            let (shard, at) = self.shape.stripes.place(offset);
            members.push(Member {
                request: Request::begin(&self.unlocked, Op::Write, to_u64(data.len())),
                shard,
                at,
                offset,
                data,
                is_done: false,
            });
        }
        for shard in 0..self.shards.len() {
            if members.iter().any(|member| member.shard == shard) {
                self.run_together(shard, &mut members);
            }
        }
        for member in members {
            let Member {
                mut request,
                offset,
                data,
                is_done,
                ..
            } = member;
            if is_done {
                results.push(request.end(Ok(())));
            } else {
                let result = self
                    .writable()
                    .and_then(|()| self.write_extents(&mut request, offset, data));
                results.push(request.end(self.with_power(result)));
            }
        }
    }

    /// Executes the writes of one shard. Marks those that are done, from the first on, and may be
    /// acknowledged.
    fn run_together(&self, number: usize, members: &mut [Member<'_>]) {
        let Ok(mut guard) = self.lock_to_change(&self.shards[number], true) else {
            return;
        };
        let mut written = 0;
        let times = self.run(&mut guard, true, |core| {
            let start = core.clock.start(self.unlocked.counters.depth());
            let outcome = core.write_batch(start, number, members, &mut written);
            if written > 0 {
                self.unlocked.note_accepted();
            }
            let done = outcome.inspect_err(|error| self.unlocked.note_failed(error))?;
            for _ in members.iter().filter(|member| member.shard == number) {
                core.clock.done(done);
            }
            Ok((start, done))
        });
        drop(guard);
        // Executed one by one, each request gets its own error, and its own time.
        let Ok((start, done)) = self.with_power(times) else {
            return;
        };
        for member in members.iter_mut().filter(|member| member.shard == number) {
            let pages = member.data.len() / index(self.shape.page_bytes);
            if written < pages {
                return;
            }
            written -= pages;
            member.request.executed(start, done);
            member.is_done = true;
        }
    }
}
