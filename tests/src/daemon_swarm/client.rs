//! NBD client over an in-memory stream: bytes move only when the runner allows it.

use super::plan::{Ask, Verb, Wire};
use ftld_device::transport::nbd::wire::{
    self, BASE_ALLOCATION, Mode, chunk, chunk_len, command, command_flag as cf, option,
    request_len, state, u16_at, u32_at, u64_at,
};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of a connection; clones share the connection.
#[derive(Clone, Default)]
pub(super) struct Pipe(Arc<Mutex<Bytes>>);

#[derive(Default)]
struct Bytes {
    /// Bytes to the server, and the number that it may receive now.
    inward: Vec<u8>,
    in_room: usize,
    /// Bytes received by the server so far.
    delivered: u64,
    /// Whether the client hung up: the stream ends after `inward`.
    hung_up: bool,
    /// Bytes from the server, and the number that it may still send.
    outward: Vec<u8>,
    out_room: usize,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows `inward` and `outward` more bytes to pass.
    pub(super) fn allow(&self, inward: usize, outward: usize) {
        let mut bytes = self.lock();
        (bytes.in_room, bytes.out_room) = (inward, outward);
    }

    /// Makes the client hang up after `after` more bytes.
    fn hang_up(&self, after: usize) {
        let mut bytes = self.lock();
        bytes.inward.truncate(after);
        bytes.hung_up = true;
    }

    fn delivered(&self) -> u64 {
        self.lock().delivered
    }
}

// The runner polls the server after each move of bytes, so no waker is needed.
impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = self.lock();
        if bytes.hung_up && bytes.inward.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let count = buf.remaining().min(bytes.inward.len()).min(bytes.in_room);
        if count == 0 {
            return Poll::Pending;
        }
        bytes.in_room -= count;
        bytes.delivered += count as u64;
        buf.put_slice(&bytes.inward[..count]);
        bytes.inward.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = self.lock();
        let count = buf.len().min(bytes.out_room);
        if count == 0 {
            return Poll::Pending;
        }
        bytes.out_room -= count;
        bytes.outward.extend_from_slice(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Part of a read's result.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Data(Vec<u8>),
    Hole(usize),
}

/// Complete reply.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    pub(super) errno: u32,
    /// Offset and content.
    pub(super) parts: Vec<(u64, Part)>,
    /// Length, and whether the extent is a hole that reads as zeros.
    pub(super) extents: Vec<(u64, bool)>,
}

impl Reply {
    /// Returns whether the read parts match a device with these bytes.
    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        self.parts.iter().all(|(at, part)| {
            let from = &bytes[*at as usize..];
            match part {
                Part::Data(data) => from[..data.len()] == **data,
                Part::Hole(length) => from[..*length].iter().all(|byte| *byte == 0),
            }
        })
    }
}

/// NBD client.
pub(super) struct Client {
    pub(super) pipe: Pipe,
    pub(super) mode: Mode,
    /// Requests without a complete reply, by cookie.
    pub(super) open: BTreeMap<u64, Ask>,
    /// Start and end, in the sent bytes, of each request without a complete reply.
    places: BTreeMap<u64, (u64, u64)>,
    sent: u64,
    taken: Vec<u8>,
    partial: BTreeMap<u64, Reply>,
    negotiated: bool,
}

impl Client {
    /// Creates a client that has sent its side of the handshake.
    pub(super) fn new(wire: Wire) -> Client {
        let mode = match wire {
            Wire::Simple | Wire::Attached => Mode::Simple,
            Wire::Structured => Mode::Structured,
            Wire::Extended => Mode::Extended,
        };
        let mut client = Client {
            pipe: Pipe::default(),
            mode,
            open: BTreeMap::new(),
            places: BTreeMap::new(),
            sent: 0,
            taken: Vec::new(),
            partial: BTreeMap::new(),
            negotiated: wire == Wire::Attached,
        };
        if client.negotiated {
            return client;
        }
        let mut bytes = 3u32.to_be_bytes().to_vec();
        let mut ask = |option: u32, data: &[u8]| {
            bytes.extend(b"IHAVEOPT");
            bytes.extend(option.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
        };
        match mode {
            Mode::Simple => {}
            Mode::Structured => ask(option::STRUCTURED_REPLY, &[]),
            Mode::Extended => ask(option::EXTENDED_HEADERS, &[]),
        }
        let name = |name: &str| [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
        if mode != Mode::Simple {
            let query = [
                name("disk"),
                1u32.to_be_bytes().to_vec(),
                name(BASE_ALLOCATION),
            ]
            .concat();
            ask(option::SET_META_CONTEXT, &query);
        }
        ask(option::GO, &[name("disk"), vec![0, 0]].concat());
        client.sent = bytes.len() as u64;
        client.pipe.lock().inward = bytes;
        client
    }

    /// Reads the server's side of the handshake. Returns whether it is complete.
    ///
    /// # Errors
    /// The server rejected an option.
    pub(super) fn negotiated(&mut self) -> Result<bool, String> {
        if self.negotiated {
            return Ok(true);
        }
        self.taken.append(&mut self.pipe.lock().outward);
        let mut at = 18;
        while self.taken.len() >= at + 20 {
            let (asked, kind) = (u32_at(&self.taken, at + 8), u32_at(&self.taken, at + 12));
            at += 20 + u32_at(&self.taken, at + 16) as usize;
            if kind & 0x8000_0000 != 0 {
                return Err(format!("option {asked} was answered with {kind:#x}"));
            }
            if asked == option::GO && kind == wire::reply::ACK && self.taken.len() >= at {
                self.taken.drain(..at);
                self.negotiated = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Queues a request.
    pub(super) fn send(&mut self, cookie: u64, ask: &Ask, payload: &[u8]) {
        let (command, mut flags) = match ask.verb {
            Verb::Read => (
                command::READ,
                if ask.df && self.mode != Mode::Simple {
                    cf::DF
                } else {
                    0
                },
            ),
            Verb::Write => (command::WRITE, 0),
            Verb::Trim => (command::TRIM, 0),
            Verb::Zero => (command::WRITE_ZEROES, 0),
            Verb::Cache => (command::CACHE, 0),
            Verb::Status => (command::BLOCK_STATUS, if ask.df { cf::REQ_ONE } else { 0 }),
            Verb::Flush => (command::FLUSH, 0),
        };
        for (set, flag) in [
            (ask.fua, cf::FUA),
            (ask.no_hole, cf::NO_HOLE),
            (ask.fast, cf::FAST_ZERO),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let extended = self.mode == Mode::Extended;
        if extended && ask.verb == Verb::Write {
            flags |= cf::PAYLOAD_LEN;
        }
        let magic = if extended {
            wire::EXTENDED_REQUEST_MAGIC
        } else {
            wire::REQUEST_MAGIC
        };
        let mut bytes = Vec::with_capacity(request_len(self.mode) + payload.len());
        bytes.extend(magic.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(ask.offset.to_be_bytes());
        match extended {
            true => bytes.extend(ask.length.to_be_bytes()),
            false => bytes.extend((ask.length as u32).to_be_bytes()),
        }
        bytes.extend(payload);
        self.open.insert(cookie, *ask);
        let begins = self.sent;
        self.put(&bytes);
        self.places.insert(cookie, (begins, self.sent));
    }

    fn put(&mut self, bytes: &[u8]) {
        self.sent += bytes.len() as u64;
        self.pipe.lock().inward.extend(bytes);
    }

    /// Sends a disconnect after all requests, or hangs up after this number of bytes.
    pub(super) fn leave(&mut self, hang_up: Option<usize>) {
        if let Some(after) = hang_up {
            return self.pipe.hang_up(after);
        }
        let extended = self.mode == Mode::Extended;
        let magic = if extended {
            wire::EXTENDED_REQUEST_MAGIC
        } else {
            wire::REQUEST_MAGIC
        };
        let mut bytes = [
            &magic.to_be_bytes()[..],
            &[0; 2],
            &command::DISC.to_be_bytes(),
        ]
        .concat();
        bytes.resize(request_len(self.mode), 0);
        self.put(&bytes);
    }

    /// Returns a request that the server received completely and did not answer, and whether it
    /// received part of one.
    pub(super) fn unanswered(&self) -> (Option<Ask>, bool) {
        let taken = self.pipe.delivered();
        let whole = self.places.iter().find(|(_, (_, end))| *end <= taken);
        let inside = self
            .places
            .values()
            .any(|(begin, end)| (begin + 1..*end).contains(&taken));
        (whole.map(|(cookie, _)| self.open[cookie]), inside)
    }

    /// Reads complete replies.
    ///
    /// # Errors
    /// The server broke the protocol.
    pub(super) fn receive(&mut self) -> Result<Vec<Reply>, String> {
        if !self.negotiated()? {
            return Ok(Vec::new());
        }
        self.taken.append(&mut self.pipe.lock().outward);
        let mut replies = Vec::new();
        let mut at = 0;
        while let Some((length, done)) = self.message(at)? {
            at += length;
            replies.extend(done);
        }
        self.taken.drain(..at);
        for reply in &replies {
            let ask = self
                .open
                .remove(&reply.cookie)
                .ok_or_else(|| format!("reply to no request: {reply:?}"))?;
            self.places.remove(&reply.cookie);
            complete(&ask, reply, self.mode)?;
        }
        Ok(replies)
    }

    /// Returns the length of the message at `at`, and the reply that it completes; `None` until the
    /// message is complete.
    fn message(&mut self, at: usize) -> Result<Option<(usize, Option<Reply>)>, String> {
        let bytes = &self.taken[at..];
        if bytes.len() < 4 {
            return Ok(None);
        }
        let magic = u32_at(bytes, 0);
        if magic == wire::SIMPLE_REPLY_MAGIC && self.mode != Mode::Extended {
            if bytes.len() < 16 {
                return Ok(None);
            }
            let (errno, cookie) = (u32_at(bytes, 4), u64_at(bytes, 8));
            let ask = self.open.get(&cookie).ok_or("a reply to no request")?;
            let reads = self.mode == Mode::Simple && ask.verb == Verb::Read && errno == 0;
            let length = 16 + if reads { ask.length as usize } else { 0 };
            if bytes.len() < length {
                return Ok(None);
            }
            let data = Part::Data(bytes[16..length].to_vec());
            let parts = if reads {
                vec![(ask.offset, data)]
            } else {
                Vec::new()
            };
            return Ok(Some((
                length,
                Some(Reply {
                    cookie,
                    errno,
                    parts,
                    extents: Vec::new(),
                }),
            )));
        }
        let extended = self.mode == Mode::Extended;
        let wanted = if extended {
            wire::EXTENDED_REPLY_MAGIC
        } else {
            wire::STRUCTURED_REPLY_MAGIC
        };
        if magic != wanted {
            return Err(format!("a reply begins with {magic:#x}"));
        }
        let head = chunk_len(self.mode);
        if bytes.len() < head {
            return Ok(None);
        }
        let payload = if extended {
            u64_at(bytes, 24) as usize
        } else {
            u32_at(bytes, 16) as usize
        };
        let length = head + payload;
        if bytes.len() < length {
            return Ok(None);
        }
        let (flags, kind, cookie) = (u16_at(bytes, 4), u16_at(bytes, 6), u64_at(bytes, 8));
        let payload = bytes[head..length].to_vec();
        let reply = self.partial.entry(cookie).or_insert_with(|| Reply {
            cookie,
            ..Reply::default()
        });
        let whole = state::HOLE | state::ZERO;
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_DATA => reply
                .parts
                .push((u64_at(&payload, 0), Part::Data(payload[8..].to_vec()))),
            chunk::OFFSET_HOLE => reply.parts.push((
                u64_at(&payload, 0),
                Part::Hole(u32_at(&payload, 8) as usize),
            )),
            chunk::BLOCK_STATUS => {
                let each = payload[4..].chunks(8);
                reply.extents = each
                    .map(|e| (u32_at(e, 0).into(), u32_at(e, 4) == whole))
                    .collect();
            }
            chunk::BLOCK_STATUS_EXT => {
                let each = payload[8..].chunks(16);
                reply.extents = each
                    .map(|e| (u64_at(e, 0), u64_at(e, 8) == u64::from(whole)))
                    .collect();
            }
            chunk::ERROR | chunk::ERROR_OFFSET => reply.errno = u32_at(&payload, 0),
            other => return Err(format!("a chunk of type {other}")),
        }
        let done = flags & chunk::DONE != 0;
        Ok(Some((
            length,
            done.then(|| self.partial.remove(&cookie).expect("begun above")),
        )))
    }
}

/// Checks that a reply contains everything requested.
fn complete(ask: &Ask, reply: &Reply, mode: Mode) -> Result<(), String> {
    if reply.errno != 0 {
        return Ok(());
    }
    let mut at = ask.offset;
    if ask.verb == Verb::Read {
        for (from, part) in &reply.parts {
            let length = match part {
                Part::Data(data) => data.len(),
                Part::Hole(length) => *length,
            };
            if *from != at || length == 0 {
                return Err(format!(
                    "{ask:?}: a part of {length} bytes at {from}, not at {at}"
                ));
            }
            at += length as u64;
        }
        if at != ask.offset + ask.length || ask.df && mode != Mode::Simple && reply.parts.len() != 1
        {
            return Err(format!(
                "{ask:?}: answered up to byte {at} in {} parts",
                reply.parts.len()
            ));
        }
    }
    if ask.verb == Verb::Status {
        let told: u64 = reply.extents.iter().map(|(length, _)| length).sum();
        if told == 0 || told > ask.length || ask.df && reply.extents.len() != 1 {
            return Err(format!(
                "{ask:?}: {told} bytes in {} extents",
                reply.extents.len()
            ));
        }
    }
    Ok(())
}
