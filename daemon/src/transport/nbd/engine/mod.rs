//! The transmission phase as a state machine: request bytes in, reply bytes out, no socket.
//!
//! *Piece*: the part of a large read or write that is in memory at once. *Pending sync*: the second half of
//! a FLUSH or FUA request; the caller waits for it elsewhere and returns it with
//! [`Engine::finish`]. *Held*: a reply that is delayed until the emulated flash would have finished
//! and sent by [`Engine::release`]; meanwhile other requests are served.
//!
//! Invariants: every request is answered exactly once unless the session ends. Nothing reaches the
//! device before its flags, length and range are checked. A reply that has begun is never
//! interrupted by another, nor begun before its first piece is due. [`Limits::piece`] and
//! [`Limits::backlog`] bound memory, whatever the peer claims. If the peer breaks the framing or
//! disconnects, writes that it sent in full may have been applied, unacknowledged. A large write
//! may be applied in part when its payload breaks off.

mod checks;
mod read;
mod replies;
mod status;

use super::buffer::Buffer;
use super::copies::Copies;
use super::export::Export;
use super::handshake::Session;
use super::limits::Limits;
use super::stats::Tally;
use super::wire::{Mode, Request, command, command_flag as cf, decode_request, request_len};
use crate::convert::{to_u64, to_usize};
use crate::device::{BlockDevice, Completion, DelayedCompletion, Flush};
use crate::transport::latency::DelayQueue;
use replies::{Answer, Failure};
use std::io;
use std::time::Instant;

/// Extents per BLOCK_STATUS reply and per piece of a read.
const EXTENTS: usize = 1024;
/// Maximum payload bytes of a BLOCK_STATUS request.
const STATUS_PAYLOAD: usize = 8 + 4 * 32;

/// Reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Close {
    /// The client sent DISC.
    #[error("the client disconnected")]
    Disconnect,
    /// A request does not start with its magic number.
    #[error("bad request magic")]
    BadMagic,
    /// A payload exceeds [`Limits::payload`].
    #[error("oversized payload")]
    TooBig,
    /// The device failed after the start of a reply that can no longer carry an error.
    #[error("the device failed in the middle of a reply")]
    Broken,
}

/// Condition for the next step of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More input: the queue must contain at least this many bytes.
    Input(usize),
    /// Replies must leave, a sync must finish, or a delayed reply must become due.
    Room,
    /// None: no further request is accepted. Syncs may still be in progress, and replies delayed.
    Close(Close),
}

/// Identifies the request of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    cookie: u64,
    offset: u64,
    command: u16,
}

/// A sync for the caller to wait for.
pub struct PendingSync {
    /// Request to answer.
    pub to: ReplyTo,
    flush: Box<dyn Flush>,
    /// Delay of the write that must be durable.
    hold: Completion,
}

impl PendingSync {
    /// Blocks until the sync is done; the result is for [`Engine::finish`].
    ///
    /// # Errors
    /// As [`Flush::wait`].
    pub fn wait(self) -> io::Result<Completion> {
        Ok(DelayedCompletion::later(self.hold, self.flush.wait()?))
    }
}

/// A delayed reply.
enum Held {
    /// Reply to a request that moved no data to the client.
    Done(ReplyTo),
    /// Complete reply, encoded.
    Bytes(Vec<u8>),
}

/// The delayed piece of a large read; no other reply is sent before it.
struct Parked {
    hold: DelayedCompletion,
    bytes: Vec<u8>,
    last: bool,
}

/// The request that spans several turns.
enum Job {
    None,
    Read {
        to: ReplyTo,
        at: u64,
        left: u64,
        begun: bool,
        whole: bool,
    },
    Write {
        to: ReplyTo,
        at: u64,
        left: u64,
        fua: bool,
        answer: Answer,
    },
    Skip {
        to: ReplyTo,
        left: u64,
        failure: Failure,
    },
    Status {
        to: ReplyTo,
        request: Request,
    },
}

/// One session.
pub struct Engine {
    session: Session,
    size: u64,
    read_only: bool,
    limits: Limits,
    job: Job,
    closed: Option<Close>,
    draining: bool,
    unsent: usize,
    syncs: usize,
    held: DelayQueue<Held>,
    parked: Option<Parked>,
    /// Copies in `held` and `parked`.
    copies: Copies,
    tally: Tally,
}

impl Engine {
    /// Creates a session on this export.
    pub fn new(session: Session, export: &Export, limits: &Limits) -> Self {
        assert!(limits.piece > 0, "reads and writes in pieces of no bytes");
        assert!(
            !(session.base_allocation && session.mode == Mode::Simple),
            "a metadata context was agreed on with simple replies"
        );
        Engine {
            session,
            size: export.size,
            read_only: export.read_only,
            limits: *limits,
            job: Job::None,
            closed: None,
            draining: false,
            unsent: 0,
            syncs: 0,
            held: DelayQueue::default(),
            parked: None,
            copies: Copies::new(limits.piece),
            tally: Tally::default(),
        }
    }

    /// Answers new requests with `ESHUTDOWN` from now on, and no longer delays replies.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns whether the engine is between two messages of the peer, given the remaining input.
    pub fn at_boundary(&self, input: &Buffer) -> bool {
        input.is_empty() && matches!(self.job, Job::None | Job::Read { .. })
    }

    /// Returns whether every accepted request has been answered.
    pub fn is_idle(&self) -> bool {
        self.syncs == 0
            && self.held.is_empty()
            && self.parked.is_none()
            && matches!(self.job, Job::None)
    }

    /// Returns the number of syncs that were begun and not finished.
    pub fn syncs(&self) -> usize {
        self.syncs
    }

    /// Returns the number of requests whose reply has not been sent.
    pub fn in_flight(&self) -> usize {
        let under_way = !matches!(self.job, Job::None) || self.parked.is_some();
        self.unsent + self.syncs + self.held.len() + usize::from(under_way)
    }

    /// Returns whether every complete request has been answered.
    pub fn answered_whole_requests(&self) -> bool {
        self.unsent + self.syncs + self.held.len() == 0 && self.parked.is_none()
    }

    /// Returns whether the reply to another request may be appended to the output now.
    pub fn between_replies(&self) -> bool {
        self.parked.is_none() && !matches!(self.job, Job::Read { begun: true, .. })
    }

    /// Returns the time at which [`Engine::release`] has work.
    pub fn next_due(&self) -> Option<Instant> {
        match &self.parked {
            Some(parked) => Some(parked.hold.due()),
            None if self.between_replies() => self.held.next_due(),
            None => None,
        }
    }

    /// Answers delayed requests that are due at `now`; all of them if the session is closed or
    /// draining. Returns whether there were any.
    pub fn release(&mut self, now: Instant, out: &mut Buffer) -> bool {
        let all = self.draining || self.closed.is_some();
        let mut any = false;
        while self.next_due().is_some_and(|due| all || due <= now) {
            any = true;
            if let Some(Parked { bytes, last, .. }) = self.parked.take() {
                self.unsent += usize::from(last);
                self.push_held(bytes, out);
                continue;
            }
            match self.held.pop() {
                Some(Held::Done(to)) => self.reply(to, Ok(()), out),
                Some(Held::Bytes(bytes)) => {
                    self.unsent += 1;
                    self.push_held(bytes, out);
                }
                None => break,
            }
        }
        any
    }

    fn push_held(&mut self, bytes: Vec<u8>, out: &mut Buffer) {
        out.push(&bytes);
        self.copies.free(bytes);
    }

    /// Records that the output was sent in full.
    pub fn sent(&mut self) {
        self.unsent = 0;
    }

    /// Returns the counts since the last call.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Answers the request of a finished sync.
    pub fn finish(&mut self, to: ReplyTo, result: io::Result<Completion>, out: &mut Buffer) {
        assert!(self.between_replies(), "a reply inside another one");
        assert!(self.syncs > 0, "a sync ended that was not begun");
        self.syncs -= 1;
        self.answer(to, result.map_err(Failure::from), out);
    }

    /// Processes the input until the engine is blocked. Appends the syncs that it starts to
    /// `syncs`.
    pub fn advance(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) -> Turn {
        loop {
            if let Some(why) = self.closed {
                return Turn::Close(why);
            }
            if out.len() >= self.limits.backlog || self.parked.is_some() {
                return Turn::Room;
            }
            let wanted = match &mut self.job {
                Job::None => self.next_request(device, input, out, syncs),
                Job::Read { .. } => self.read_piece(device, out),
                Job::Write { .. } => self.write_piece(device, input, out, syncs),
                Job::Skip { .. } => self.skip(input, out),
                Job::Status { .. } => self.status_payload(device, input, out),
            };
            if let Some(turn) = wanted {
                return turn;
            }
        }
    }

    fn next_request(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) -> Option<Turn> {
        assert!(
            self.unsent + self.syncs + self.held.len() <= self.limits.in_flight,
            "{} unsent replies, {} syncs and {} delayed replies exceed the limit of {} requests",
            self.unsent,
            self.syncs,
            self.held.len(),
            self.limits.in_flight
        );
        if self.unsent + self.syncs + self.held.len() >= self.limits.in_flight {
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
                self.job = Job::Write {
                    to,
                    at: offset,
                    left: length,
                    fua,
                    answer: Ok(None),
                }
            }
            command::FLUSH => self.complete(device, to, true, Ok(None), out, syncs),
            command::TRIM => {
                let answer = device.trim(offset, length).map_err(Failure::from);
                self.complete(device, to, fua, answer, out, syncs);
            }
            // NO_HOLE guarantees space for a later write, which an FTL has for every logical page.
            // FAST_ZERO guarantees that zeroing is not slower than writing, which dropping a
            // mapping never is.
            command::WRITE_ZEROES => {
                let answer = device.write_zeroes(offset, length).map_err(Failure::from);
                self.complete(device, to, fua, answer, out, syncs);
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

    fn write_piece(
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
            self.complete(device, to, fua, answer, out, syncs);
        }
        None
    }

    /// Returns the length of the next piece: small transfers are whole, large ones are cut at
    /// multiples of the piece.
    fn piece_at(&self, at: u64, left: u64) -> usize {
        let piece = to_u64(self.limits.piece);
        assert!(left > 0, "no bytes are left at offset {at}");
        to_usize(if left <= piece {
            left
        } else {
            piece - at % piece
        })
    }

    fn skip(&mut self, input: &mut Buffer, out: &mut Buffer) -> Option<Turn> {
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

    /// Answers a request, after a sync if it must be durable.
    fn complete(
        &mut self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        durable: bool,
        answer: Answer,
        out: &mut Buffer,
        syncs: &mut Vec<PendingSync>,
    ) {
        let hold = match answer {
            Ok(hold) if durable => hold,
            answer => return self.answer(to, answer, out),
        };
        match device.flush() {
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

    fn close(&mut self, why: Close) -> Option<Turn> {
        assert!(
            self.closed.is_none(),
            "the session ended ({why}) after its end"
        );
        self.closed = Some(why);
        None
    }
}
