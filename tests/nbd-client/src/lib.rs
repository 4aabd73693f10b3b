//! A blocking NBD client for tests, which sends whatever it is told.
//!
//! It repeats the numbers of the protocol on purpose: a mistake in the server's table must not be
//! repeated by its test.

#![allow(missing_docs, reason = "the names are those of the NBD protocol")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const ESHUTDOWN: u32 = 108;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;
pub const PAYLOAD_LEN: u16 = 32;

pub const ACK: u32 = 1;
pub const ERR: u32 = 0x8000_0000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Simple,
    Structured,
    Extended,
}

pub const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];

/// A whole reply to a request, put together from its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub error: u32,
    pub text: String,
    /// Offset of the error, if the server sent one.
    pub error_at: Option<u64>,
    pub data: Vec<u8>,
    /// (offset, length, whether it came as data) of each part of a read.
    pub parts: Vec<(u64, u64, bool)>,
    /// (length, flags) of block status.
    pub extents: Vec<(u64, u64)>,
}

pub struct Client {
    pub stream: UnixStream,
    pub style: Style,
    pub next: u64,
}

impl Client {
    /// Connects and reads the greeting.
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut client = Client {
            stream,
            style: Style::Simple,
            next: 1,
        };
        let greeting = client.take(18);
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3], "fixed newstyle, no zeroes");
        client
    }

    /// Connects and sends flags.
    pub fn hello(path: &Path) -> Self {
        let mut client = Client::connect(path);
        client.send(&3u32.to_be_bytes());
        client
    }

    /// In transmission, with block status where that is possible.
    pub fn ready(path: &Path, style: Style) -> Self {
        let mut client = Client::hello(path);
        client.style = style;
        match style {
            Style::Simple => {}
            Style::Structured => assert_eq!(client.option(8, &[]), [(ACK, vec![])]),
            Style::Extended => assert_eq!(client.option(11, &[]), [(ACK, vec![])]),
        }
        if style != Style::Simple {
            let replies = client.option(10, &meta_query("disk", &["base:allocation"]));
            assert_eq!(replies.len(), 2, "{replies:?}");
        }
        assert_eq!(
            client.option(7, &go_data("disk", &[])).last().unwrap().0,
            ACK
        );
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn take(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Whether the server closes without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes);
    }

    pub fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        let head = self.take(20);
        assert_eq!(u64_at(&head, 0), 0x3e889045565a9);
        assert_eq!(u32_at(&head, 8), option);
        let data = self.take(u32_at(&head, 16) as usize);
        (u32_at(&head, 12), data)
    }

    /// Sends an option and takes replies up to the last one.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data);
        let mut replies = Vec::new();
        loop {
            let (kind, data) = self.option_reply(option);
            replies.push((kind, data));
            if kind == ACK || kind & ERR != 0 {
                return replies;
            }
        }
    }

    /// Sends a request header and payload; returns its cookie.
    pub fn request(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> u64 {
        let cookie = self.next;
        self.next += 1;
        let extended = self.style == Style::Extended;
        let mut bytes = (if extended {
            0x21e4_1c71u32
        } else {
            0x2560_9513
        })
        .to_be_bytes()
        .to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        if extended {
            bytes.extend(length.to_be_bytes());
        } else {
            bytes.extend((length as u32).to_be_bytes());
        }
        bytes.extend(payload);
        self.send(&bytes);
        cookie
    }

    /// Sends a request and returns its answer; no other request is in flight.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u64) -> Answer {
        let cookie = self.request(command, flags, offset, length, &[]);
        let expected = if command == READ { length } else { 0 };
        self.answer(cookie, expected)
    }

    /// Sends a request to a server that may die. Returns the error, or none if the connection is
    /// gone.
    pub fn attempt(
        &mut self,
        command: u16,
        flags: u16,
        at: u64,
        length: u32,
        data: &[u8],
    ) -> Option<u32> {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(7u64.to_be_bytes());
        bytes.extend(at.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).ok()?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).ok()?;
        assert_eq!(
            (&reply[..4], &reply[8..]),
            (&0x6744_6698u32.to_be_bytes()[..], &7u64.to_be_bytes()[..])
        );
        Some(u32::from_be_bytes(reply[4..8].try_into().unwrap()))
    }

    pub fn read(&mut self, offset: u64, length: u64) -> Answer {
        self.ask(READ, 0, offset, length)
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Answer {
        let extra = if self.style == Style::Extended {
            PAYLOAD_LEN
        } else {
            0
        };
        let cookie = self.request(WRITE, flags | extra, offset, data.len() as u64, data);
        self.answer(cookie, 0)
    }

    /// The answer to this request, which must be the next to come. `length` is that of a read.
    pub fn answer(&mut self, cookie: u64, length: u64) -> Answer {
        let (found, answer) = self.any_answer(length);
        assert_eq!(found, cookie, "another request was answered");
        answer
    }

    /// The next answer, whatever it is for.
    pub fn any_answer(&mut self, length: u64) -> (u64, Answer) {
        let mut answer = Answer::default();
        let magic = u32_at(&self.take(4), 0);
        if magic == 0x6744_6698 {
            assert_ne!(
                self.style,
                Style::Extended,
                "a simple reply in extended mode"
            );
            let rest = self.take(12);
            answer.error = u32_at(&rest, 0);
            if answer.error == 0 && self.style == Style::Simple {
                answer.data = self.take(length as usize);
                answer.parts = vec![(0, length, true)];
            }
            return (u64_at(&rest, 4), answer);
        }
        let cookie = self.chunks(magic, &mut answer);
        let total: u64 = answer.parts.iter().map(|p| p.1).sum();
        if answer.error == 0 {
            assert_eq!(total, length, "a read must be covered exactly");
        }
        (cookie, answer)
    }

    /// Takes chunks until the last; the first magic number has been read.
    fn chunks(&mut self, mut magic: u32, answer: &mut Answer) -> u64 {
        let extended = self.style == Style::Extended;
        loop {
            assert_eq!(magic, if extended { 0x6e8a_278c } else { 0x668e_33ef });
            let head = self.take(if extended { 28 } else { 16 });
            let (flags, kind, cookie) = (u16_at(&head, 0), u16_at(&head, 2), u64_at(&head, 4));
            let length = if extended {
                u64_at(&head, 20)
            } else {
                u32_at(&head, 12).into()
            };
            let payload = self.take(length as usize);
            chunk(kind, &payload, answer);
            if flags & 1 != 0 {
                return cookie;
            }
            magic = u32_at(&self.take(4), 0);
        }
    }
}

fn chunk(kind: u16, payload: &[u8], answer: &mut Answer) {
    match kind {
        0 => assert!(payload.is_empty()),
        1 => {
            answer
                .parts
                .push((u64_at(payload, 0), payload.len() as u64 - 8, true));
            answer.data.extend(&payload[8..]);
        }
        2 => {
            let length = u32_at(payload, 8);
            answer
                .parts
                .push((u64_at(payload, 0), length.into(), false));
            answer.data.resize(answer.data.len() + length as usize, 0);
        }
        5 => {
            assert_eq!(u32_at(payload, 0), 1);
            answer.extents = payload[4..]
                .chunks(8)
                .map(|e| (u32_at(e, 0).into(), u32_at(e, 4).into()))
                .collect();
        }
        6 => {
            assert_eq!(u32_at(payload, 0), 1);
            answer.extents = payload[8..]
                .chunks(16)
                .map(|e| (u64_at(e, 0), u64_at(e, 8)))
                .collect();
            assert_eq!(u32_at(payload, 4) as usize, answer.extents.len());
        }
        0x8001 | 0x8002 => {
            answer.error = u32_at(payload, 0);
            let end = 6 + u16_at(payload, 4) as usize;
            answer.text = String::from_utf8(payload[6..end].to_vec()).unwrap();
            answer.error_at = (kind == 0x8002).then(|| u64_at(payload, end));
        }
        _ => panic!("chunk type {kind}"),
    }
}

/// Data of INFO and GO.
pub fn go_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|i| data.extend(i.to_be_bytes()));
    data
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn meta_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}
