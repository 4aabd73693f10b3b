//! Writes a recording.

use super::{CHUNK_BYTES, CHUNK_HEADER, Chunk, DATA_MAX, Entry, Head, MAGIC, VERSION};
use crate::convert::{to_u32, to_u64};
use crc32c::crc32c;
use std::io::{self, Write};
use zstd::bulk::Compressor;

/// Level of compression: fast enough to follow a device at full speed.
const LEVEL: i32 = -3;

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
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(self.plain.len()));
        self.compressor
            .compress_to_buffer(&self.plain, &mut self.packed)?;
        let plain = self.plain.len();
        self.plain.clear();
        self.chunk(Chunk::Entries, plain)
    }

    fn chunk(&mut self, kind: Chunk, plain: usize) -> io::Result<()> {
        let mut header = Vec::with_capacity(CHUNK_HEADER);
        for number in [
            kind as u32,
            to_u32(self.packed.len()),
            to_u32(plain),
            crc32c(&self.packed),
        ] {
            header.extend(number.to_le_bytes());
        }
        assert_eq!(header.len(), CHUNK_HEADER, "bytes of a chunk's header");
        self.out.write_all(&header)?;
        self.out.write_all(&self.packed)?;
        self.out.flush()?;
        self.written += to_u64(header.len() + self.packed.len());
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
        self.packed = self.entries.to_le_bytes().to_vec();
        self.chunk(Chunk::End, 8)?;
        Ok((self.out, self.written))
    }
}
