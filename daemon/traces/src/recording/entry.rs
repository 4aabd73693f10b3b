//! One entry of a recording and its bytes.

use crate::convert::{to_u32, to_usize};
use crate::error::ValueError;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A read.
    Read = 0,
    /// A write.
    Write = 1,
    /// A trim: the range reads as zeros, its space is released.
    Trim = 2,
    /// A write of zeros.
    WriteZeroes = 3,
    /// A FLUSH, or the durable half of a request with FUA: then `offset` and `length` are those of
    /// the request that it covers.
    Flush = 4,
    /// A mark: the text of `ftld mark`.
    Mark = 5,
    /// Content of the device before the recording; such entries come first.
    Base = 6,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Read,
        Kind::Write,
        Kind::Trim,
        Kind::WriteZeroes,
        Kind::Flush,
        Kind::Mark,
        Kind::Base,
    ];

    fn of(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// Returns whether the request changes what the device contains.
    pub fn is_change(self) -> bool {
        matches!(self, Kind::Write | Kind::Trim | Kind::WriteZeroes)
    }
}

/// A moment of a recording: its place in the order of all moments, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moment {
    /// Number; every request has two moments, and no two moments of a recording are equal.
    pub seq: u64,
    /// Nanoseconds since the recording began.
    pub ns: u64,
}

/// A request, a mark or a part of the initial content. Entries are in the order in which they
/// ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind.
    pub kind: Kind,
    /// Whether a FLUSH is the durable half of a request with FUA.
    pub fua: bool,
    /// Errno of a failed request, 0 for success. A failed change may have happened in part.
    pub errno: u16,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// When the device received it.
    pub begin: Moment,
    /// When the device acknowledged it.
    pub end: Moment,
    /// Data of a write or of initial content, text of a mark; empty without data.
    pub data: Vec<u8>,
}

const FUA: u8 = 1;

impl Entry {
    /// Bytes of an entry before its data.
    pub(super) const BYTES: usize = 56;

    /// Appends the entry; `data` takes the place of its own.
    pub(super) fn encode(&self, data: &[u8], out: &mut Vec<u8>) {
        let begin = out.len();
        out.push(self.kind as u8);
        out.push(if self.fua { FUA } else { 0 });
        out.extend(self.errno.to_le_bytes());
        out.extend(to_u32(data.len()).to_le_bytes());
        for number in [
            self.offset,
            self.length,
            self.begin.seq,
            self.begin.ns,
            self.end.seq,
            self.end.ns,
        ] {
            out.extend(number.to_le_bytes());
        }
        assert_eq!(out.len() - begin, Entry::BYTES, "bytes of an entry");
        out.extend(data);
    }

    /// Takes the first entry from `bytes`.
    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Entry, ValueError> {
        let damaged = |text: String| ValueError::Misfit(format!("an entry {text}"));
        let (head, rest) = bytes
            .split_first_chunk::<{ Entry::BYTES }>()
            .ok_or_else(|| damaged("is incomplete".into()))?;
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let kind =
            Kind::of(head[0]).ok_or_else(|| damaged(format!("of unknown kind {}", head[0])))?;
        if head[1] & !FUA != 0 {
            return Err(damaged(format!("with unknown flags {:#x}", head[1])));
        }
        let length = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes"));
        let data = rest
            .get(..to_usize(length.into()))
            .ok_or_else(|| damaged("has less data than it says".into()))?;
        let entry = Entry {
            kind,
            fua: head[1] & FUA != 0,
            errno: u16::from_le_bytes([head[2], head[3]]),
            offset: long(8),
            length: long(16),
            begin: Moment {
                seq: long(24),
                ns: long(32),
            },
            end: Moment {
                seq: long(40),
                ns: long(48),
            },
            data: data.to_vec(),
        };
        *bytes = &rest[data.len()..];
        Ok(entry)
    }
}
