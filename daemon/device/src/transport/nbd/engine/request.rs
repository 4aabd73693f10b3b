//! The start of a request: it is decoded, counted and checked, then executed or made the [`Job`] of
//! the next turns.
//!
//! Invariants: a request begins only after [`check`](Engine::check), and only while there is no
//! job. The payload of a refused request is read and dropped before its reply.

use super::batch::LARGE;
use super::replies::Failure;
use super::write::durable;
use super::{Close, Engine, Job, PendingSync, ReplyTo, Turn};
use crate::device::{BlockDevice, FlushOf};
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::wire::{
    Mode, Request, command, command_flag as cf, decode_request, request_len,
};
use ftld_kit::convert::{to_u64, to_usize};

impl Engine {
    pub(super) fn next_request(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) -> Option<Turn> {
        assert!(
            self.replies_due() <= self.limits.in_flight,
            "{} unsent replies, {} syncs and {} delayed replies exceed the limit of {} requests",
            self.unsent,
            self.syncs,
            self.held.len(),
            self.limits.in_flight
        );
        if self.replies_due() >= self.limits.in_flight {
            return Some(Turn::Room);
        }
        let header = request_len(self.session.mode);
        let request = match decode_request(input.filled(), self.session.mode) {
            Ok(Some(request)) => request,
            Ok(None) => return Some(Turn::Input(header)),
            Err(_) => return self.close(Close::BadMagic),
        };
        input.consume(header);
        self.tally.count(request.command);
        let to = ReplyTo {
            cookie: request.cookie,
            offset: request.offset,
            command: request.command,
        };
        let payload = self.payload_of(&request);
        if payload > u64::from(self.limits.payload) {
            return self.close(Close::TooBig);
        }
        match self.check(&request) {
            Err(failure) if payload > 0 => {
                self.job = Job::Skip {
                    to,
                    left: payload,
                    failure,
                }
            }
            Err(failure) => self.reply(to, Err(failure), out),
            Ok(()) => return self.begin(device, to, request, out, syncs),
        }
        None
    }

    fn begin(
        &mut self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        request: Request,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) -> Option<Turn> {
        let Request {
            offset,
            length,
            flags,
            command,
            ..
        } = request;
        assert!(
            matches!(self.job, Job::None),
            "command {command} begins inside another request"
        );
        assert!(
            !matches!(command, command::READ | command::WRITE)
                || length <= u64::from(self.limits.payload),
            "a payload of {length} bytes, limited to {}",
            self.limits.payload
        );
        assert!(
            !(self.read_only
                && matches!(
                    command,
                    command::WRITE | command::TRIM | command::WRITE_ZEROES
                )),
            "command {command} changes a read-only export"
        );
        assert!(
            !matches!(command, command::READ | command::WRITE) || length > 0,
            "command {command} moves no bytes"
        );
        assert!(
            command != command::FLUSH || (offset == 0 && length == 0),
            "FLUSH of {length} bytes at {offset}"
        );
        let fua = flags & cf::FUA != 0;
        match command {
            command::DISC => return self.close(Close::Disconnect),
            command::READ => {
                let whole = self.session.mode == Mode::Simple || flags & cf::DF != 0;
                self.job = Job::Read {
                    to,
                    at: offset,
                    left: length,
                    begun: false,
                    whole,
                };
            }
            command::WRITE => {
                self.large = Some(to_usize(length)).filter(|bytes| *bytes >= LARGE);
                self.job = Job::Write {
                    to,
                    at: offset,
                    left: length,
                    fua,
                    answer: Ok(None),
                }
            }
            command::FLUSH => {
                let everything = Some(FlushOf::Everything);
                self.complete(device, to, everything, Ok(None), out, syncs);
            }
            command::TRIM => {
                let answer = device.trim(offset, length).map_err(Failure::from);
                let durable = durable(device, fua, offset, length);
                self.complete(device, to, durable, answer, out, syncs);
            }
            // NO_HOLE guarantees space for a later write, which an FTL has for every logical page.
            // FAST_ZERO guarantees that zeroing is not slower than writing, which dropping a
            // mapping never is.
            command::WRITE_ZEROES => {
                let answer = device.write_zeroes(offset, length).map_err(Failure::from);
                let durable = durable(device, fua, offset, length);
                self.complete(device, to, durable, answer, out, syncs);
            }
            // There is no faster cache to fill.
            command::CACHE => self.reply(to, Ok(()), out),
            command::BLOCK_STATUS if flags & cf::PAYLOAD_LEN != 0 => {
                self.job = Job::Status { to, request }
            }
            command::BLOCK_STATUS => self.block_status(device, to, request, out),
            other => unreachable!("command {other} was not refused by checks.rs"),
        }
        None
    }

    pub(super) fn skip(&mut self, input: &mut Buffer, out: &mut Buffer) -> Option<Turn> {
        let Job::Skip { left, .. } = &mut self.job else {
            unreachable!("the caller matched")
        };
        let n = to_u64(input.len()).min(*left);
        assert!(*left > 0, "a payload is skipped that was read to its end");
        input.consume(to_usize(n));
        *left -= n;
        if *left > 0 {
            return Some(Turn::Input(1));
        }
        if let Job::Skip { to, failure, .. } = std::mem::replace(&mut self.job, Job::None) {
            self.reply(to, Err(failure), out);
        }
        None
    }
}
