//! Replies in the session's mode, and their errors.
//!
//! Invariants: each reply is appended to the output in one call. The reply to a request that
//! changes data is created after the device executed it; power failure before that leaves it
//! unacknowledged.

use super::{Engine, Held, ReplyTo};
use crate::device::Completion;
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::wire::{
    Chunk, Errno, Mode, chunk, chunk_len, command, encode_chunk, simple_reply,
};
use ftld_kit::convert::to_u32;
use std::io;

/// An error for one request.
pub(super) struct Failure {
    pub(super) errno: Errno,
    pub(super) text: String,
    /// Offset of the error in the device, if it is not the start of the request.
    pub(super) at: Option<u64>,
}

impl Failure {
    pub(super) fn new(errno: Errno, text: &str) -> Self {
        Failure {
            errno,
            text: text.to_owned(),
            at: None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure {
            errno: Errno::from_io(&error),
            text: error.to_string(),
            at: None,
        }
    }
}

pub(super) type Outcome = Result<(), Failure>;

/// Result of a request on the device.
pub(super) type Answer = Result<Completion, Failure>;

impl Engine {
    /// Replies when the answer is due.
    pub(super) fn answer(&mut self, to: ReplyTo, answer: Answer, out: &mut Buffer) {
        assert!(
            self.held.len() < self.limits.in_flight,
            "{} delayed replies and a new one, limited to {} requests",
            self.held.len(),
            self.limits.in_flight
        );
        match answer {
            Ok(Some(hold)) => self.held.push(hold, Held::Done(to)),
            answer => self.reply(to, answer.map(drop), out),
        }
    }

    pub(super) fn reply(&mut self, to: ReplyTo, outcome: Outcome, out: &mut Buffer) {
        self.unsent += 1;
        let mode = self.session.mode;
        match outcome {
            Ok(()) if mode == Mode::Extended => self.push_chunk(to, chunk::NONE, true, &[], out),
            Ok(()) => out.push(&simple_reply(0, to.cookie)),
            Err(failure) => {
                self.tally.errors += 1;
                tracing::debug!(
                    command = to.command,
                    offset = to.offset,
                    reason = failure.text,
                    "request failed"
                );
                if mode == Mode::Simple {
                    out.push(&simple_reply(failure.errno.code(), to.cookie));
                } else {
                    self.push_error(to, &failure, out);
                }
            }
        }
    }

    fn push_error(&self, to: ReplyTo, failure: &Failure, out: &mut Buffer) {
        debug_assert!(
            failure.at.is_none_or(|at| at < self.size),
            "an error at byte {:?} of a device of {} bytes",
            failure.at,
            self.size
        );
        let mut end = failure.text.len().min(4000);
        while !failure.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &failure.text.as_bytes()[..end];
        let errno = failure.errno.code().to_be_bytes();
        let length = (text.len() as u16).to_be_bytes();
        match failure.at.filter(|_| to.command == command::READ) {
            Some(at) => {
                self.push_chunk(
                    to,
                    chunk::ERROR_OFFSET,
                    true,
                    &[&errno, &length, text, &at.to_be_bytes()],
                    out,
                );
            }
            None => self.push_chunk(to, chunk::ERROR, true, &[&errno, &length, text], out),
        }
    }

    pub(super) fn push_chunk(
        &self,
        to: ReplyTo,
        kind: u16,
        done: bool,
        parts: &[&[u8]],
        out: &mut Buffer,
    ) {
        let mode = self.session.mode;
        assert_ne!(
            mode,
            Mode::Simple,
            "a chunk of type {kind} in a session of simple replies"
        );
        let length = to_u32(parts.iter().map(|p| p.len()).sum::<usize>());
        let head = chunk_len(mode);
        encode_chunk(
            out.space(head),
            mode,
            Chunk {
                done,
                kind,
                cookie: to.cookie,
                offset: to.offset,
                length,
            },
        );
        out.commit(head);
        for part in parts {
            out.push(part);
        }
    }
}
