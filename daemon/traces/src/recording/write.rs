//! Writes a recording.

use super::{CHUNK_BYTES, CHUNK_HEADER, Chunk, DATA_MAX, Entry, Head, MAGIC, VERSION};
use crate::convert::{to_u32, to_u64};
use crc32c::crc32c;
use std::io::{self, Write};
use zstd::bulk::Compressor;

/// Level of compression: fast enough to follow a device at full speed. `deploy/build.sh` leaves out
/// what other levels need.
const LEVEL: i32 = -3;
/// First bytes of a chunk that decide whether it is worth compressing.
const SAMPLE_BYTES: usize = 64 << 10;

/// A recording in progress. Without [`Writer::finish`] it lacks its end mark.
pub struct Writer<W: Write> {
    out: W,
    /// Entries of the next chunk.
    plain: Vec<u8>,
    packed: Vec<u8>,
    compressor: Compressor<'static>,
    entries: u64,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(mut out: W, head: &Head) -> io::Result<Writer<W>> {
        let head = serde_json::to_vec(head).map_err(io::Error::other)?;
        let mut bytes = MAGIC.to_vec();
        for number in [VERSION, to_u32(head.len()), crc32c(&head)] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&head);
        out.write_all(&bytes)?;
        Ok(Writer {
            out,
            plain: Vec::with_capacity(CHUNK_BYTES * 2),
            packed: Vec::new(),
            compressor: Compressor::new(LEVEL)?,
            entries: 0,
            written: to_u64(bytes.len()),
        })
    }

    /// Appends an entry with this data, which takes the place of the entry's own.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, entry: &Entry, data: &[u8]) -> io::Result<()> {
        assert!(data.len() <= DATA_MAX, "an entry of {} bytes", data.len());
        entry.encode(data, &mut self.plain);
        self.entries += 1;
        if self.plain.len() >= CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Writes the entries so far as a chunk, so that a reader finds them if this process dies.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_chunk(&mut self) -> io::Result<()> {
        if self.plain.is_empty() {
            return Ok(());
        }
        let sample = &self.plain[..self.plain.len().min(SAMPLE_BYTES)];
        compress(&mut self.compressor, sample, &mut self.packed)?;
        // Less than a sixteenth saved: random or encrypted data.
        let (kind, stored) = if self.packed.len() > sample.len() / 16 * 15 {
            (Chunk::PlainEntries, &self.plain)
        } else {
            if sample.len() < self.plain.len() {
                compress(&mut self.compressor, &self.plain, &mut self.packed)?;
            }
            (Chunk::Entries, &self.packed)
        };
        self.written += write_chunk(&mut self.out, kind, stored, self.plain.len())?;
        self.plain.clear();
        Ok(())
    }

    /// Returns the entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Writes the rest and the end mark. Returns also the bytes of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.write_chunk()?;
        let entries = self.entries.to_le_bytes();
        self.written += write_chunk(&mut self.out, Chunk::End, &entries, entries.len())?;
        Ok((self.out, self.written))
    }
}

fn compress(with: &mut Compressor<'_>, plain: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
    packed.clear();
    packed.reserve(zstd::zstd_safe::compress_bound(plain.len()));
    with.compress_to_buffer(plain, packed)?;
    Ok(())
}

/// Writes a chunk of `plain` bytes before compression. Returns its length in the file.
fn write_chunk(out: &mut impl Write, kind: Chunk, stored: &[u8], plain: usize) -> io::Result<u64> {
    let mut header = Vec::with_capacity(CHUNK_HEADER);
    for number in [
        kind as u32,
        to_u32(stored.len()),
        to_u32(plain),
        crc32c(stored),
    ] {
        header.extend(number.to_le_bytes());
    }
    assert_eq!(header.len(), CHUNK_HEADER, "bytes of a chunk's header");
    out.write_all(&header)?;
    out.write_all(stored)?;
    out.flush()?;
    Ok(to_u64(header.len() + stored.len()))
}
