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
use crate::convert::{narrow, to_u64};
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

impl Batch {
    fn fill(&mut self, writes: &[(u64, &[u8])], page: usize) {
        self.lpns.clear();
        self.data.clear();
        for (offset, data) in writes {
            let first: u32 = narrow(offset / to_u64(page));
            let pages: u32 = narrow(to_u64(data.len() / page));
            self.lpns.extend((first..first + pages).map(Lpn::new));
            self.data.extend_from_slice(data);
        }
    }
}

impl<S: Store> Core<S> {
    fn write_batch(&mut self, at: Nanos, writes: &[(u64, &[u8])]) -> Result<Nanos, FtlError> {
        self.batch.fill(writes, self.scratch.len());
        let at = self.paged().handled(at);
        let Batch { lpns, data } = &self.batch;
        let done = self.ftl.write_scattered(at, lpns, data)?;
        if let Some((offset, data)) = writes.last() {
            self.note_write(*offset, data);
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
    /// on a device that nothing delays, at most what the scheme appends in a run.
    fn batch_length(&self, writes: &[(u64, &[u8])]) -> usize {
        let shape = &self.shape;
        if shape.has_cache || shape.emulate || shape.read_only || self.is_paused() {
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
            whole && inside && bytes <= shape.batch_bytes
        };
        writes.iter().take_while(fits).count()
    }

    fn write_together(&self, writes: &[(u64, &[u8])], results: &mut Vec<io::Result<Completion>>) {
        let begin = |(_, data): &(u64, &[u8])| {
            Request::begin(&self.unlocked, Op::Write, to_u64(data.len()))
        };
        let mut requests: Vec<Request<'_>> = writes.iter().map(begin).collect();
        let is_done = self.run_together(writes, &mut requests);
        for (mut request, (offset, data)) in requests.into_iter().zip(writes) {
            let result = match is_done {
                true => Ok(()),
                // Executed one by one, each request gets its own error, and its own time.
                false => self
                    .writable()
                    .and_then(|()| self.write_extents(&mut request, *offset, data)),
            };
            results.push(request.end(result));
        }
    }

    /// Executes the writes as one. Returns whether all of them may be acknowledged; otherwise they
    /// are to be executed one by one.
    fn run_together(&self, writes: &[(u64, &[u8])], requests: &mut [Request<'_>]) -> bool {
        // No request of the batch begins here: a step of a paused device counts them one by one.
        let Ok(mut guard) = self.lock_to_change(false) else {
            return false;
        };
        if self.is_paused() {
            return false;
        }
        let outcome = self.run(&mut guard, true, |core| {
            let start = core.clock.start(self.unlocked.counters.depth());
            let done = core
                .write_batch(start, writes)
                .inspect_err(|error| self.unlocked.note_failed(error))?;
            self.unlocked.note_accepted();
            for request in requests.iter_mut() {
                request.executed(start, done);
                core.clock.done(done);
            }
            Ok(())
        });
        outcome.is_ok()
    }
}
