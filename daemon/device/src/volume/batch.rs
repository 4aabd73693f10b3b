//! Writes that are executed together: one lock, one batch of the scheme, so that consecutive pages
//! are written to the image at once. On a device of several shards that is so for the writes of
//! each shard.
//!
//! Invariants: the writes of a shard are executed in their order; one address is in one shard. A
//! request is acknowledged only when the batch has ended and all its pages are in the store. A
//! write that failed, and those after it in its shard, are executed again alone, so that each
//! request gets a result of its own. If power fails, each page of the batch is its old or its new
//! content.

use super::Volume;
use super::host::Op;
use super::locked::Core;
use super::request::Request;
use crate::device::{BlockDevice, Completion};
use ftl_core::FtlError;
use ftld_kit::convert::{index, to_u64};
use nand_model::SHARDS_MAX;
use std::io;

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

impl Volume {
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
    /// each in one stripe, on a device that nothing delays, in each shard at most an extent.
    fn batch_length(&self, writes: &[(u64, &[u8])]) -> usize {
        let shape = &self.shape;
        if self.has_cache() || shape.emulate || shape.read_only || self.is_paused() {
            return 0;
        }
        let page = u64::from(shape.page_bytes);
        let mut bytes = [0; index(SHARDS_MAX)];
        let fits = |(offset, data): &&(u64, &[u8])| {
            let length = to_u64(data.len());
            let whole = offset.is_multiple_of(page) && length.is_multiple_of(page) && length > 0;
            let inside = offset
                .checked_add(length)
                .is_some_and(|end| end <= shape.size);
            if !(whole && inside && shape.stripes.has_one(*offset, length)) {
                return false;
            }
            let of_shard = &mut bytes[shape.stripes.place(*offset).0];
            *of_shard += length;
            *of_shard <= shape.write_bytes
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
        for mut member in members {
            let result = match member.is_done {
                true => Ok(()),
                // Executed one by one, each request gets its own error.
                false => self.writable().and_then(|()| {
                    self.write_extents(&mut member.request, member.offset, member.data)
                }),
            };
            results.push(member.request.end(self.with_power(result)));
        }
    }

    /// Executes the writes of one shard as one, up to the first that fails. If the batch cannot be
    /// written, none is done. The caller executes the others one by one.
    fn run_together(&self, shard: usize, members: &mut [Member<'_>]) {
        // No request of the batch begins here: a step of a paused device counts them one by one.
        let Ok(mut guard) = self.lock_to_change(&self.shards[shard], false) else {
            return;
        };
        if self.is_paused() {
            return;
        }
        let outcome = self.run(&mut guard, true, |core| {
            core.ftl.begin_batch();
            let executed = self.execute(core, shard, members);
            core.ftl
                .end_batch()
                .inspect_err(|error| self.unlocked.note_failed(error))?;
            if executed > 0 {
                self.unlocked.note_accepted();
            }
            Ok(executed)
        });
        let executed = outcome.unwrap_or(0);
        let own = members.iter_mut().filter(|member| member.shard == shard);
        own.take(executed).for_each(|member| member.is_done = true);
    }

    /// Executes the writes of one shard until one fails, or the store runs short of erased space.
    /// Returns the number of executed ones.
    fn execute(&self, core: &mut Core, shard: usize, members: &mut [Member<'_>]) -> usize {
        let own = members.iter_mut().filter(|member| member.shard == shard);
        let mut executed = 0;
        for Member {
            request,
            at,
            offset,
            data,
            ..
        } in own
        {
            if core.erases_left() < self.shape.erases_low {
                break;
            }
            let written: Result<(), FtlError> = request.step(core, true, |core, start| {
                let done = core.paged().write(start, *at, data)?;
                core.note_write(start, *offset, data);
                Ok(done)
            });
            if written.is_err() {
                break;
            }
            executed += 1;
        }
        executed
    }
}
