//! The transmission phase as a state machine: request bytes in, reply bytes out, no socket.
//!
//! *Piece*: the part of a large read or write that is in memory at once. *Sync*: the second half of
//! a FLUSH or FUA request, which the caller waits for elsewhere and brings back with
//! [`Engine::finish`]. *Held*: a reply that waits until the emulated flash would have been done,
//! and leaves by [`Engine::release`]; meanwhile other requests are taken and answered.
//!
//! What always holds: every request is answered exactly once unless the session ends; nothing
//! reaches the device before its flags, length and range were checked; a reply that has begun is
//! never interrupted by another, nor begun before its first piece is due; memory is bounded by
//! [`Limits::piece`] and [`Limits::backlog`] whatever the peer claims. If the peer breaks the
//! framing or vanishes, writes that it sent in full may have been applied, unacknowledged. A large
//! write may be applied in part when its payload breaks off.

use super::buffer::Buffer;
use super::copies::Copies;
use super::export::Export;
use super::handshake::Session;
use super::limits::Limits;
use super::stats::Tally;
use super::wire::{
    BASE_ALLOCATION_ID, Chunk, Errno, Mode, Request, SIMPLE_REPLY_LEN, chunk, chunk_len, command,
    command_flag as cf, decode_request, encode_chunk, request_len, simple_reply, state, u32_at,
    u64_at,
};
use crate::device::{BlockDevice, Completion, Extent, Flush, Hold};
use crate::transport::latency::Holds;
use std::io;
use std::time::Instant;

/// Reads from this size on are looked through for holes; below, the question costs more than the
/// zeros.
const HOLE_SCAN: usize = 64 << 10;
/// Extents per BLOCK_STATUS reply and per piece of a read.
const EXTENTS: usize = 1024;
/// Payload bytes of a BLOCK_STATUS request that are looked at.
const STATUS_PAYLOAD: usize = 8 + 4 * 32;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Close {
    /// The client said good-bye.
    #[error("the client disconnected")]
    Disconnect,
    /// A request did not start as it must.
    #[error("bad request magic")]
    BadMagic,
    /// A payload beyond what we read.
    #[error("oversized payload")]
    TooBig,
    /// The device failed after a reply had begun that cannot carry an error any more.
    #[error("the device failed in the middle of a reply")]
    Broken,
}

/// What the engine needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More input: the queue must come to hold at least this many bytes.
    Input(usize),
    /// Replies must leave, a sync must finish, or a held reply must become due.
    Room,
    /// Nothing: no further request is taken. Syncs may still be under way, and replies waiting.
    Close(Close),
}

/// Names the request that a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    cookie: u64,
    offset: u64,
    command: u16,
}

/// A sync to wait for.
pub struct Sync {
    /// Whom to answer.
    pub to: ReplyTo,
    flush: Box<dyn Flush>,
    /// Of the write that has to be durable.
    hold: Completion,
}

impl Sync {
    /// Blocks until it is done; the result is for [`Engine::finish`].
    pub fn wait(self) -> io::Result<Completion> {
        Ok(Hold::later(self.hold, self.flush.wait()?))
    }
}

/// A reply that waits.
enum Held {
    /// To a request that moved no data to the client.
    Done(ReplyTo),
    /// All of it, as it goes out.
    Bytes(Vec<u8>),
}

/// The piece of a large read that waits; nothing else is answered before it.
struct Parked {
    hold: Hold,
    bytes: Vec<u8>,
    last: bool,
}

/// An error for one request.
struct Failure {
    errno: Errno,
    text: String,
    /// Where in the device, when it is not where the request began.
    at: Option<u64>,
}

impl Failure {
    fn new(errno: Errno, text: &str) -> Self {
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

type Outcome = Result<(), Failure>;
/// What the device made of a request.
type Answer = Result<Completion, Failure>;

/// The request that spans more than one turn.
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
    held: Holds<Held>,
    parked: Option<Parked>,
    /// Of what is in `held` and `parked`.
    copies: Copies,
    tally: Tally,
}

impl Engine {
    /// A session on this export.
    pub fn new(session: Session, export: &Export, limits: &Limits) -> Self {
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
            held: Holds::default(),
            parked: None,
            copies: Copies::new(limits.piece),
            tally: Tally::default(),
        }
    }

    /// From now on new requests are answered `ESHUTDOWN`, and nothing is held any longer.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether the engine is between two messages of the peer, given that it left this input.
    pub fn at_boundary(&self, input: &Buffer) -> bool {
        input.is_empty() && matches!(self.job, Job::None | Job::Read { .. })
    }

    /// Whether every request taken has been answered.
    pub fn is_idle(&self) -> bool {
        self.syncs == 0
            && self.held.is_empty()
            && self.parked.is_none()
            && matches!(self.job, Job::None)
    }

    /// Requests whose reply is not on its way.
    pub fn in_flight(&self) -> usize {
        let under_way = !matches!(self.job, Job::None) || self.parked.is_some();
        self.unsent + self.syncs + self.held.len() + usize::from(under_way)
    }

    /// Whether every request that came whole has been answered.
    pub fn answered_whole_requests(&self) -> bool {
        self.unsent + self.syncs + self.held.len() == 0 && self.parked.is_none()
    }

    /// Whether a reply of another request may be put into the output now.
    pub fn between_replies(&self) -> bool {
        self.parked.is_none() && !matches!(self.job, Job::Read { begun: true, .. })
    }

    /// When [`Engine::release`] has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        match &self.parked {
            Some(parked) => Some(parked.hold.due()),
            None if self.between_replies() => self.held.next_due(),
            None => None,
        }
    }

    /// Answers what was held and is due by now. Nobody waits any more for a peer that left, or when
    /// draining. Returns whether there was any.
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

    /// The output was sent in full.
    pub fn sent(&mut self) {
        self.unsent = 0;
    }

    /// What was counted since the last call.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Answers the request of a sync.
    pub fn finish(&mut self, to: ReplyTo, result: io::Result<Completion>, out: &mut Buffer) {
        assert!(self.between_replies(), "a reply inside another one");
        self.syncs -= 1;
        self.answer(to, result.map_err(Failure::from), out);
    }

    /// Works through the input until it needs something. Syncs that begin are appended to `syncs`.
    pub fn advance(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
        syncs: &mut Vec<Sync>,
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
        syncs: &mut Vec<Sync>,
    ) -> Option<Turn> {
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
        syncs: &mut Vec<Sync>,
    ) -> Option<Turn> {
        let Request {
            offset,
            length,
            flags,
            command,
            ..
        } = request;
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
            // NO_HOLE promises that a later write finds room, which an FTL grants for every logical
            // page; FAST_ZERO promises not to be slower than writing, which dropping a mapping
            // never is.
            command::WRITE_ZEROES => {
                let answer = device.write_zeroes(offset, length).map_err(Failure::from);
                self.complete(device, to, fua, answer, out, syncs);
            }
            // There is nothing faster to bring it to.
            command::CACHE => self.reply(to, Ok(()), out),
            command::BLOCK_STATUS if flags & cf::PAYLOAD_LEN != 0 => {
                self.job = Job::Status { to, request }
            }
            _ => self.block_status(device, to, request, out),
        }
        None
    }

    /// Bytes that follow the header.
    fn payload_of(&self, request: &Request) -> u64 {
        let flagged = self.session.mode == Mode::Extended && request.flags & cf::PAYLOAD_LEN != 0;
        if request.command == command::WRITE || flagged {
            request.length
        } else {
            0
        }
    }

    fn check(&self, request: &Request) -> Outcome {
        let Request {
            command,
            flags,
            offset,
            length,
            ..
        } = *request;
        let Some(allowed) = self.allowed_flags(command) else {
            return Err(Failure::new(Errno::Inval, "unknown command"));
        };
        if command == command::DISC {
            return Ok(());
        }
        if self.draining {
            return Err(Failure::new(Errno::Shutdown, "the server is shutting down"));
        }
        if flags & !allowed != 0 {
            return Err(Failure::new(
                Errno::Inval,
                "a flag that this command does not take",
            ));
        }
        if command == command::FLUSH {
            let plain = offset == 0 && length == 0;
            return if plain {
                Ok(())
            } else {
                Err(Failure::new(Errno::Inval, "FLUSH takes no range"))
            };
        }
        let writes = matches!(
            command,
            command::WRITE | command::TRIM | command::WRITE_ZEROES
        );
        if writes && self.read_only {
            return Err(Failure::new(Errno::Perm, "the export is read-only"));
        }
        if command == command::BLOCK_STATUS {
            if !self.session.base_allocation {
                return Err(Failure::new(
                    Errno::Inval,
                    "no metadata context was negotiated",
                ));
            }
            if flags & cf::PAYLOAD_LEN != 0 {
                let fits = length as usize <= STATUS_PAYLOAD && length >= 8 && length % 4 == 0;
                return if fits {
                    Ok(())
                } else {
                    Err(Failure::new(Errno::Inval, "malformed list of contexts"))
                };
            }
        }
        self.check_range(command, offset, length)
    }

    fn check_range(&self, command: u16, offset: u64, length: u64) -> Outcome {
        if length == 0 {
            return Err(Failure::new(Errno::Inval, "a length of zero"));
        }
        if command == command::READ && length > u64::from(self.limits.payload) {
            return Err(Failure::new(
                Errno::Inval,
                "a read of more than the maximum payload",
            ));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let grows = matches!(command, command::WRITE | command::WRITE_ZEROES);
            let errno = if grows { Errno::NoSpace } else { Errno::Inval };
            return Err(Failure::new(errno, "beyond the end of the device"));
        }
        Ok(())
    }

    /// Flags that a command may carry; `None` for a command that does not exist. FUA is allowed
    /// everywhere by the protocol.
    fn allowed_flags(&self, command: u16) -> Option<u16> {
        let structured = self.session.mode != Mode::Simple;
        let extended = self.session.mode == Mode::Extended;
        let if_flag = |on: bool, flag: u16| if on { flag } else { 0 };
        Some(match command {
            command::READ => cf::FUA | if_flag(structured, cf::DF),
            command::WRITE => cf::FUA | if_flag(extended, cf::PAYLOAD_LEN),
            command::DISC => u16::MAX,
            command::FLUSH | command::TRIM | command::CACHE => cf::FUA,
            command::WRITE_ZEROES => cf::FUA | cf::NO_HOLE | cf::FAST_ZERO,
            command::BLOCK_STATUS => cf::FUA | cf::REQ_ONE | if_flag(extended, cf::PAYLOAD_LEN),
            _ => return None,
        })
    }

    fn read_piece(&mut self, device: &dyn BlockDevice, out: &mut Buffer) -> Option<Turn> {
        let Job::Read {
            to,
            at,
            left,
            begun,
            whole,
        } = self.job
        else {
            unreachable!("the caller matched")
        };
        let (length, before) = (self.piece_at(at, left), out.len());
        let whole_room =
            length as u64 == left && self.copies.has_room(self.data_head_len() + length);
        if !begun && !whole_room && !self.copies.is_empty() {
            // Until what was held has left.
            return Some(Turn::Room);
        }
        let result = if whole {
            self.send_whole(
                device,
                to,
                at,
                length,
                if begun { None } else { Some(left) },
                out,
            )
        } else {
            self.send_chunks(device, to, at, length, length as u64 == left, out)
        };
        match result {
            Ok((sent, hold)) => {
                self.tally.read += sent;
                let last = sent == left;
                self.job = if last {
                    Job::None
                } else {
                    Job::Read {
                        to,
                        at: at + sent,
                        left: left - sent,
                        begun: true,
                        whole,
                    }
                };
                match hold {
                    None => self.unsent += usize::from(last),
                    Some(hold) if last && !begun => {
                        let bytes = self.take_back(before, out);
                        self.held.push(hold, Held::Bytes(bytes));
                    }
                    Some(hold) => {
                        self.parked = Some(Parked {
                            hold,
                            bytes: self.take_back(before, out),
                            last,
                        })
                    }
                }
            }
            Err(_) if whole && begun => return self.close(Close::Broken),
            Err(failure) => {
                self.job = Job::None;
                self.reply(to, Err(failure), out);
            }
        }
        None
    }

    /// Takes back what was put into the output since it held `before` bytes.
    fn take_back(&mut self, before: usize, out: &mut Buffer) -> Vec<u8> {
        let bytes = self.copies.make(&out.filled()[before..]);
        out.retract(bytes.len());
        bytes
    }

    /// One piece of a reply that is a single message; `total` (bytes of the whole reply) is given
    /// with the first piece. That one is read before anything is sent, so that an error in it can
    /// still be told.
    fn send_whole(
        &self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        at: u64,
        length: usize,
        total: Option<u64>,
        out: &mut Buffer,
    ) -> Result<(u64, Completion), Failure> {
        let head = if total.is_some() {
            self.data_head_len()
        } else {
            0
        };
        let space = out.space(head + length);
        let hold = device.read(at, &mut space[head..])?;
        if let Some(total) = total {
            self.encode_data_head(&mut space[..head], to, at, total as u32, true);
        }
        out.commit(head + length);
        Ok((length as u64, hold))
    }

    /// One piece of a structured reply: a data chunk, or several with holes between them.
    fn send_chunks(
        &self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        at: u64,
        length: usize,
        last: bool,
        out: &mut Buffer,
    ) -> Result<(u64, Completion), Failure> {
        if length < HOLE_SCAN {
            return self.send_data(device, to, at, length, last, out);
        }
        let extents = device.extents(at, length as u64, EXTENTS)?;
        let (mut sent, mut hold) = (0, None);
        for extent in merged(&extents) {
            let part = extent.len.min(length as u64 - sent);
            let done = last && sent + part == length as u64;
            if extent.mapped {
                hold = Hold::later(
                    hold,
                    self.send_data(device, to, at + sent, part as usize, done, out)?
                        .1,
                );
            } else {
                self.send_hole(to, at + sent, part as u32, done, out);
            }
            sent += part;
            if sent == length as u64 {
                break;
            }
        }
        if sent == 0 {
            return Err(Failure::new(
                Errno::Io,
                "the device told nothing of its extents",
            ));
        }
        Ok((sent, hold))
    }

    fn send_data(
        &self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        at: u64,
        length: usize,
        done: bool,
        out: &mut Buffer,
    ) -> Result<(u64, Completion), Failure> {
        let head = self.data_head_len();
        let space = out.space(head + length);
        let read = device.read(at, &mut space[head..]);
        let hold = read.map_err(|error| Failure {
            at: Some(at),
            ..Failure::from(error)
        })?;
        self.encode_data_head(&mut space[..head], to, at, length as u32, done);
        out.commit(head + length);
        Ok((length as u64, hold))
    }

    fn send_hole(&self, to: ReplyTo, at: u64, length: u32, done: bool, out: &mut Buffer) {
        self.push_chunk(
            to,
            chunk::OFFSET_HOLE,
            done,
            &[&at.to_be_bytes(), &length.to_be_bytes()],
            out,
        );
    }

    fn data_head_len(&self) -> usize {
        match self.session.mode {
            Mode::Simple => SIMPLE_REPLY_LEN,
            mode => chunk_len(mode) + 8,
        }
    }

    fn encode_data_head(&self, bytes: &mut [u8], to: ReplyTo, at: u64, length: u32, done: bool) {
        let mode = self.session.mode;
        if mode == Mode::Simple {
            bytes.copy_from_slice(&simple_reply(0, to.cookie));
            return;
        }
        let head = Chunk {
            done,
            kind: chunk::OFFSET_DATA,
            cookie: to.cookie,
            offset: to.offset,
            length: length + 8,
        };
        encode_chunk(bytes, mode, head);
        bytes[chunk_len(mode)..].copy_from_slice(&at.to_be_bytes());
    }

    fn write_piece(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
        syncs: &mut Vec<Sync>,
    ) -> Option<Turn> {
        let Job::Write {
            to, at, left, fua, ..
        } = self.job
        else {
            unreachable!("the caller matched")
        };
        let length = self.piece_at(at, left);
        if input.len() < length {
            return Some(Turn::Input(length));
        }
        let Job::Write { answer, .. } = std::mem::replace(&mut self.job, Job::None) else {
            unreachable!("as above")
        };
        // After an error the rest is only read away: the client has sent it already.
        let answer = answer.and_then(|hold| {
            Ok(Hold::later(
                hold,
                device.write(at, &input.filled()[..length])?,
            ))
        });
        input.consume(length);
        self.tally.written += length as u64;
        let left = left - length as u64;
        if left > 0 {
            self.job = Job::Write {
                to,
                at: at + length as u64,
                left,
                fua,
                answer,
            };
        } else {
            self.complete(device, to, fua, answer, out, syncs);
        }
        None
    }

    /// Small transfers go whole, large ones are cut at multiples of the piece.
    fn piece_at(&self, at: u64, left: u64) -> usize {
        let piece = self.limits.piece as u64;
        (if left <= piece {
            left
        } else {
            piece - at % piece
        }) as usize
    }

    fn skip(&mut self, input: &mut Buffer, out: &mut Buffer) -> Option<Turn> {
        let Job::Skip { left, .. } = &mut self.job else {
            unreachable!("the caller matched")
        };
        let n = (input.len() as u64).min(*left);
        input.consume(n as usize);
        *left -= n;
        if *left > 0 {
            return Some(Turn::Input(1));
        }
        if let Job::Skip { to, failure, .. } = std::mem::replace(&mut self.job, Job::None) {
            self.reply(to, Err(failure), out);
        }
        None
    }

    /// BLOCK_STATUS with a payload: the range's length, then the contexts that the client wants of
    /// those negotiated.
    fn status_payload(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
    ) -> Option<Turn> {
        let Job::Status { to, mut request } = self.job else {
            unreachable!("the caller matched")
        };
        let payload = request.length as usize;
        let Some(bytes) = input.filled().get(..payload) else {
            return Some(Turn::Input(payload));
        };
        request.length = u64_at(bytes, 0);
        let known = bytes.len() == 12 && u32_at(bytes, 8) == BASE_ALLOCATION_ID;
        input.consume(payload);
        self.job = Job::None;
        let outcome = if known {
            self.check_range(command::BLOCK_STATUS, request.offset, request.length)
        } else {
            Err(Failure::new(
                Errno::Inval,
                "the list of contexts must name base:allocation, once",
            ))
        };
        match outcome {
            Ok(()) => self.block_status(device, to, request, out),
            Err(failure) => self.reply(to, Err(failure), out),
        }
        None
    }

    fn block_status(
        &mut self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        request: Request,
        out: &mut Buffer,
    ) {
        let max = if request.flags & cf::REQ_ONE != 0 {
            1
        } else {
            EXTENTS
        };
        let extents = match device.extents(request.offset, request.length, max) {
            Ok(extents) if extents.is_empty() => {
                let failure = Failure::new(Errno::Io, "the device told nothing of its extents");
                return self.reply(to, Err(failure), out);
            }
            Ok(extents) => extents,
            Err(error) => return self.reply(to, Err(error.into()), out),
        };
        let extended = self.session.mode == Mode::Extended;
        let mut payload = BASE_ALLOCATION_ID.to_be_bytes().to_vec();
        let mut count = 0u32;
        let mut left = request.length;
        for extent in merged(&extents).take(max) {
            let length = extent.len.min(left);
            let bits = if extent.mapped {
                0
            } else {
                state::HOLE | state::ZERO
            };
            if length == 0 {
                break;
            }
            if extended {
                payload.extend(length.to_be_bytes());
                payload.extend(u64::from(bits).to_be_bytes());
            } else {
                // A compact request is shorter than 4 GiB, and no extent is longer than its
                // request.
                payload.extend((length as u32).to_be_bytes());
                payload.extend(bits.to_be_bytes());
            }
            left -= length;
            count += 1;
        }
        if extended {
            payload.splice(4..4, count.to_be_bytes());
        }
        let kind = if extended {
            chunk::BLOCK_STATUS_EXT
        } else {
            chunk::BLOCK_STATUS
        };
        self.push_chunk(to, kind, true, &[&payload], out);
        self.unsent += 1;
    }

    /// Answers a request that may have to be durable first.
    fn complete(
        &mut self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        durable: bool,
        answer: Answer,
        out: &mut Buffer,
        syncs: &mut Vec<Sync>,
    ) {
        let hold = match answer {
            Ok(hold) if durable => hold,
            answer => return self.answer(to, answer, out),
        };
        match device.flush() {
            Ok(flush) => {
                self.syncs += 1;
                syncs.push(Sync { to, flush, hold });
            }
            Err(error) => self.reply(to, Err(error.into()), out),
        }
    }

    /// Replies when it is time to.
    fn answer(&mut self, to: ReplyTo, answer: Answer, out: &mut Buffer) {
        match answer {
            Ok(Some(hold)) => self.held.push(hold, Held::Done(to)),
            answer => self.reply(to, answer.map(drop), out),
        }
    }

    fn reply(&mut self, to: ReplyTo, outcome: Outcome, out: &mut Buffer) {
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
                    out.push(&simple_reply(failure.errno as u32, to.cookie));
                } else {
                    self.push_error(to, &failure, out);
                }
            }
        }
    }

    fn push_error(&self, to: ReplyTo, failure: &Failure, out: &mut Buffer) {
        let mut end = failure.text.len().min(4000);
        while !failure.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &failure.text.as_bytes()[..end];
        let errno = (failure.errno as u32).to_be_bytes();
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

    fn push_chunk(&self, to: ReplyTo, kind: u16, done: bool, parts: &[&[u8]], out: &mut Buffer) {
        let mode = self.session.mode;
        let length = parts.iter().map(|p| p.len()).sum::<usize>() as u32;
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

    fn close(&mut self, why: Close) -> Option<Turn> {
        self.closed = Some(why);
        None
    }
}

/// Neighbours in the same state as one.
fn merged(extents: &[Extent]) -> impl Iterator<Item = Extent> + '_ {
    let mut rest = extents.iter().copied().peekable();
    std::iter::from_fn(move || {
        let mut extent = rest.next()?;
        while let Some(next) = rest.next_if(|next| next.mapped == extent.mapped) {
            extent.len += next.len;
        }
        Some(extent)
    })
}
