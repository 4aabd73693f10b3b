//! The transmission phase as a state machine: request bytes in, reply bytes out, no socket.
//!
//! *Piece*: the part of a large read or write that is in memory at once. *Pending sync*: the second
//! half of a FLUSH or FUA request; the caller waits for it elsewhere and returns it with
//! [`Engine::finish`]. *Held*: a reply that is delayed until the emulated flash would have finished
//! and sent by [`Engine::release`]; meanwhile other requests are served.
//!
//! Invariants: every request is answered exactly once unless the session ends. Nothing reaches the
//! device before its flags, length and range are checked. A reply that has begun is never
//! interrupted by another, nor begun before its first piece is due. [`Limits::piece`] and
//! [`Limits::backlog`] bound memory, whatever the peer claims. If the peer breaks the framing or
//! disconnects, writes that it sent in full may have been applied, unacknowledged. A large write
//! may be applied in part when its payload breaks off.

mod batch;
mod checks;
mod read;
mod replies;
mod request;
mod status;
mod write;

use super::buffer::Buffer;
use super::copies::Copies;
use super::export::Export;
use super::handshake::Session;
use super::limits::Limits;
use super::stats::Tally;
use super::wire::{Mode, Request, request_len};
use crate::device::{BlockDevice, Completion, DelayedCompletion, Flush};
use crate::transport::latency::DelayQueue;
use ftld_kit::convert::{to_u64, to_usize};
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
    /// Replies must leave, a sync must finish, or a delayed reply must become due: the engine is
    /// full, or the device is paused.
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
    /// Payload bytes of the last WRITE, if it was a large one.
    large: Option<usize>,
    /// Buffer for the WRITEs of a batch.
    arrived: Vec<batch::Arrived>,
}

impl Engine {
    /// Creates a session on this export.
    pub fn new(session: Session, export: &Export, limits: &Limits) -> Self {
        assert!(limits.piece > 0, "reads and writes in pieces of no bytes");
        assert!(limits.in_flight > 0, "a session of no requests");
        assert!(limits.backlog > 0, "replies wait in no bytes");
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
            large: None,
            arrived: Vec::new(),
        }
    }

    /// Returns the length of a request's head, and that of the next message if it is like the last
    /// WRITE and that was a large one.
    pub(crate) fn next_message(&self) -> (usize, Option<usize>) {
        let head = request_len(self.session.mode);
        (head, self.large.map(|payload| head + payload))
    }

    /// Answers new requests with `ESHUTDOWN` from now on, and no longer delays replies.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns whether the engine is between two messages of the peer, given the remaining input.
    pub(crate) fn at_boundary(&self, input: &Buffer) -> bool {
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
    pub(crate) fn syncs(&self) -> usize {
        self.syncs
    }

    /// Returns the number of requests whose reply has not been sent.
    pub fn in_flight(&self) -> usize {
        let under_way = !matches!(self.job, Job::None) || self.parked.is_some();
        self.replies_due() + usize::from(under_way)
    }

    /// Returns the number of these requests without the unfinished one, if there is one.
    fn replies_due(&self) -> usize {
        self.unsent + self.syncs + self.held.len()
    }

    /// Returns whether every complete request has been answered.
    pub(crate) fn answered_whole_requests(&self) -> bool {
        self.replies_due() == 0 && self.parked.is_none()
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
    pub(crate) fn take_tally(&mut self) -> Tally {
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
            // The device would block this thread, and with it the earlier replies and syncs.
            if self.replies_due() > 0 && self.between_replies() && device.is_paused() {
                return Turn::Room;
            }
            if matches!(self.job, Job::None) && self.write_batch(device, input, out) {
                continue;
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

    /// Returns the length of the next piece: small transfers are whole, large ones are cut at
    /// multiples of the piece.
    fn piece_at(&self, at: u64, left: u64) -> usize {
        let piece = to_u64(self.limits.piece);
        assert!(left > 0, "no bytes are left at offset {at}");
        let length = if left <= piece {
            left
        } else {
            piece - at % piece
        };
        debug_assert!(
            length <= piece,
            "a piece of {length} bytes, limited to {piece}"
        );
        to_usize(length)
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
