//! Recordings: every request that a device served, with times, flags and data.
//!
//! `ftld --record FILE` writes one, `ftld replay` takes it as a trace, `ftld crashes` visits the
//! states that a power cut can leave. docs/RECORDING.md has every byte.
//!
//! A file is a head and chunks of entries, each chunk compressed with a check of its own. The last
//! chunk is an end mark. A file without it was cut off; [`Reader`] says so by an error, and reads
//! the whole chunks on request.
//!
//! If the process dies, the file contains whole chunks, and perhaps one that its check refuses.

mod entry;
mod head;
mod read;
mod requests;
#[cfg(test)]
mod tests;
mod write;

pub use entry::{Entry, Kind, Moment};
pub use head::{Clock, Flash, Head, WriteCache};
pub use read::Reader;
pub(crate) use requests::Requests;
pub use write::Writer;

/// First bytes of a recording.
pub const MAGIC: [u8; 8] = *b"FTLDREC\0";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Longest data or text of an entry.
pub const DATA_MAX: usize = 64 << 20;
/// Longest text of a mark in bytes, as JSON: it fits a line of the control socket.
pub const MARK_MAX: usize = 3 << 10;
/// Bytes of entries from which on a chunk is written.
const CHUNK_BYTES: usize = 1 << 20;
/// Longest head.
const HEAD_MAX: u32 = 1 << 20;
/// Bytes of a chunk's header: kind, stored bytes, plain bytes, check.
const CHUNK_HEADER: usize = 16;

/// Content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Chunk {
    Entries = 1,
    /// The number of entries (u64); nothing follows.
    End = 2,
    /// Entries that are not compressed, because that would save little.
    PlainEntries = 3,
}

impl Chunk {
    fn of(number: u32) -> Option<Chunk> {
        [Chunk::Entries, Chunk::End, Chunk::PlainEntries]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}
