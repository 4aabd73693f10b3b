//! A WRITE in pieces, and the end of every request that changes data.
//!
//! Invariants: each byte of the payload is written once, in order, and none after an error. A reply
//! that must be durable waits for a sync that began after the last piece.

use super::replies::Answer;
use super::{Engine, Job, PendingSync, ReplyTo, Turn};
use crate::device::{BlockDevice, DelayedCompletion, FlushOf};
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::wire::command;
use ftld_kit::convert::to_u64;

impl Engine {
    pub(super) fn write_piece(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) -> Option<Turn> {
        let Job::Write {
            to, at, left, fua, ..
        } = self.job
        else {
            unreachable!("the caller matched")
        };
        let length = self.piece_at(at, left);
        assert!(
            length > 0 && to_u64(length) <= left,
            "a piece of a write is empty or exceeds what is left of the request"
        );
        assert!(
            at + left <= self.size,
            "a write of {left} bytes at {at} on a device of {} bytes",
            self.size
        );
        if input.len() < length {
            return Some(Turn::Input(length));
        }
        let Job::Write { answer, .. } = std::mem::replace(&mut self.job, Job::None) else {
            unreachable!("as above")
        };
        // After an error, the rest is only read and dropped: the client has sent it already.
        let answer = answer.and_then(|hold| {
            Ok(DelayedCompletion::later(
                hold,
                device.write(at, &input.filled()[..length])?,
            ))
        });
        input.consume(length);
        self.tally.written += to_u64(length);
        let left = left - to_u64(length);
        if left > 0 {
            self.job = Job::Write {
                to,
                at: at + to_u64(length),
                left,
                fua,
                answer,
            };
        } else {
            let len = at + to_u64(length) - to.offset;
            let durable = durable(device, fua, to.offset, len);
            self.complete(device, to, durable, answer, out, syncs);
        }
        None
    }

    /// Answers a request, after a sync if it must be durable.
    pub(super) fn complete(
        &mut self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        durable: Option<FlushOf>,
        answer: Answer,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) {
        let (hold, of) = match (answer, durable) {
            (Ok(hold), Some(of)) => (hold, of),
            (answer, _) => return self.answer(to, answer, out),
        };
        assert!(
            matches!(self.job, Job::None),
            "command {} ends inside another request",
            to.command
        );
        assert_eq!(
            of == FlushOf::Everything,
            to.command == command::FLUSH,
            "command {} makes {of:?} durable",
            to.command
        );
        match device.flush(of) {
            Ok(flush) => {
                assert!(
                    self.syncs < self.limits.in_flight,
                    "{} syncs and a new one, limited to {} requests",
                    self.syncs,
                    self.limits.in_flight
                );
                self.syncs += 1;
                syncs.push(PendingSync { to, flush, hold });
            }
            Err(error) => self.reply(to, Err(error.into()), out),
        }
    }
}

/// Returns what a finished request has to make durable: its range with FUA, or without a volatile
/// cache, since clients then send no FLUSH. Called after the request: switching the cache off
/// flushes what was acknowledged before.
pub(super) fn durable(
    device: &dyn BlockDevice,
    fua: bool,
    offset: u64,
    len: u64,
) -> Option<FlushOf> {
    (fua || !device.has_volatile_cache()).then_some(FlushOf::Request { offset, len })
}
