//! Reads a recording, chunk by chunk.

use super::{
    CHUNK_BYTES, CHUNK_HEADER, Chunk, DATA_MAX, Entry, HEAD_MAX, Head, Kind, MAGIC, MARK_MAX,
    VERSION,
};
use crate::convert::{index, to_f64, to_u64, to_usize};
use crate::error::{TraceError, ValueError};
use crc32c::crc32c;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Maximum plain bytes of a chunk: it is written once it has [`CHUNK_BYTES`].
const PLAIN_MAX: usize = CHUNK_BYTES + Entry::BYTES + DATA_MAX;

/// An open recording: an iterator over its entries, which ends after the first error.
pub struct Reader {
    file: PathBuf,
    source: BufReader<File>,
    head: Head,
    /// Entries of the current chunk, and the position behind the last that was taken.
    plain: Vec<u8>,
    at: usize,
    entries: u64,
    /// Moment at which the last entry ended, and whether all so far are initial content.
    last_end: Option<u64>,
    only_content: bool,
    /// Bytes of the file, and of its chunks read so far.
    bytes: u64,
    bytes_read: u64,
    cut_off_is_end: bool,
    was_cut_off: bool,
    ended: bool,
}

impl Reader {
    /// Returns whether the file begins as a recording does.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn detects(path: &Path) -> Result<bool, TraceError> {
        let mut magic = [0; MAGIC.len()];
        let mut file = File::open(path).map_err(|source| io(path, source))?;
        match file.read_exact(&mut magic) {
            Ok(()) => Ok(magic == MAGIC),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(source) => Err(io(path, source)),
        }
    }

    /// Opens a recording. `cut_off_is_end` takes a file without its end mark up to its last whole
    /// chunk.
    ///
    /// # Errors
    /// The file cannot be read, is no recording, or one of another version.
    pub fn open(path: &Path, cut_off_is_end: bool) -> Result<Reader, TraceError> {
        let file = File::open(path).map_err(|source| io(path, source))?;
        let bytes = file.metadata().map_err(|source| io(path, source))?.len();
        let mut source = BufReader::with_capacity(256 << 10, file);
        let head = read_head(path, &mut source)?;
        Ok(Reader {
            file: path.into(),
            source,
            head,
            plain: Vec::new(),
            at: 0,
            entries: 0,
            last_end: None,
            only_content: true,
            bytes,
            bytes_read: 0,
            cut_off_is_end,
            was_cut_off: false,
            ended: false,
        })
    }

    /// Returns the head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the number of entries read so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the share of the file read so far, 0 to 1.
    pub fn progress(&self) -> f64 {
        to_f64(self.bytes_read) / to_f64(self.bytes.max(1))
    }

    /// Returns whether the entries ended without the end mark.
    pub fn was_cut_off(&self) -> bool {
        self.was_cut_off
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, TraceError> {
        if self.at == self.plain.len() && !self.next_chunk()? {
            return Ok(None);
        }
        let mut rest = &self.plain[self.at..];
        let entry = Entry::decode(&mut rest).map_err(|what| self.damaged(what))?;
        self.check(&entry).map_err(|what| self.damaged(what))?;
        self.at = self.plain.len() - rest.len();
        self.entries += 1;
        self.last_end = Some(entry.end.seq);
        self.only_content &= entry.kind == Kind::Base;
        Ok(Some(entry))
    }

    /// Checks the numbers of an entry against the head and the entry before it. A failed request
    /// may reach beyond the end of the device, but the offset of its end fits 64 bits.
    fn check(&self, entry: &Entry) -> Result<(), ValueError> {
        let end = entry.offset.checked_add(entry.length);
        let is_inside = end.is_some_and(|end| entry.errno != 0 || end <= self.head.size);
        let (begin, end) = (entry.begin.seq, entry.end.seq);
        let follows = self.last_end.is_none_or(|last| last < end);
        let (length, wanted) = (to_u64(entry.data.len()), entry.length);
        let fits = match entry.kind {
            Kind::Write => !self.head.has_data || length == wanted,
            // A piece that could not be read has none.
            Kind::Base => length == if entry.errno == 0 { wanted } else { 0 },
            Kind::Mark => entry.data.len() <= MARK_MAX,
            _ => length == 0,
        };
        let fault = if !is_inside {
            "an entry is beyond the end of the device".into()
        } else if begin >= end || end == u64::MAX || !follows {
            format!("an entry has the moments {begin} and {end}")
        } else if entry.kind == Kind::Base && !self.only_content {
            "initial content is behind a request".into()
        } else if !fits {
            format!("an entry has {length} bytes of data for a length of {wanted}")
        } else {
            return Ok(());
        };
        Err(ValueError::Misfit(fault))
    }

    /// Reads the next chunk; returns false at the end.
    fn next_chunk(&mut self) -> Result<bool, TraceError> {
        let mut header = [0; CHUNK_HEADER];
        let mut stored = Vec::new();
        let read = self.source.read_exact(&mut header).and_then(|()| {
            let length = number(&header, 4);
            if index(length) > PLAIN_MAX {
                return Ok(());
            }
            stored.resize(index(length), 0);
            self.source.read_exact(&mut stored)
        });
        match read {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return self.cut_off(),
            read => read.map_err(|source| io(&self.file, source))?,
        }
        self.bytes_read += to_u64(CHUNK_HEADER + stored.len());
        let kind = Chunk::of(number(&header, 0));
        let plain = index(number(&header, 8));
        if kind.is_none() || plain > PLAIN_MAX || crc32c(&stored) != number(&header, 12) {
            return Err(self.damaged("a chunk fails its check"));
        }
        if kind == Some(Chunk::End) {
            let entries = stored.try_into().map(u64::from_le_bytes);
            if entries != Ok(self.entries) {
                return Err(self.damaged("the end mark has another number of requests"));
            }
            return Ok(false);
        }
        self.plain = match kind {
            Some(Chunk::PlainEntries) => stored,
            _ => zstd::bulk::decompress(&stored, plain).map_err(|error| self.damaged(error))?,
        };
        self.at = 0;
        if self.plain.len() != plain || plain == 0 {
            return Err(self.damaged("a chunk has another length than it says"));
        }
        Ok(true)
    }

    fn cut_off(&mut self) -> Result<bool, TraceError> {
        self.was_cut_off = true;
        if self.cut_off_is_end {
            return Ok(false);
        }
        Err(TraceError::content(
            &self.file,
            format!(
                "ends without its end mark after {} requests: the daemon was killed, still records, or the file was cut off; --cut-off uses these requests",
                self.entries
            ),
        ))
    }

    fn damaged(&self, what: impl Display) -> TraceError {
        TraceError::content(
            &self.file,
            format!(
                "{what}, after {} requests; the recording is damaged: copy it again",
                self.entries
            ),
        )
    }
}

impl Iterator for Reader {
    type Item = Result<Entry, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_entry().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

fn read_head(path: &Path, source: &mut impl Read) -> Result<Head, TraceError> {
    let content = |what: String| TraceError::content(path, what);
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => content("no recording of ftld, or cut off in its head".into()),
        _ => io(path, error),
    };
    let mut fixed = [0; MAGIC.len() + 12];
    source.read_exact(&mut fixed).map_err(failed)?;
    if fixed[..MAGIC.len()] != MAGIC {
        return Err(content(
            "no recording of ftld; `ftld --record FILE` makes one".into(),
        ));
    }
    let version = number(&fixed, 8);
    if version != VERSION {
        return Err(content(format!(
            "a recording of version {version}; this ftld reads version {VERSION}: record again"
        )));
    }
    let length = number(&fixed, 12);
    if length > HEAD_MAX {
        return Err(content(format!(
            "its head has {length} bytes; the recording is damaged"
        )));
    }
    let mut head = vec![0; to_usize(length.into())];
    source.read_exact(&mut head).map_err(failed)?;
    if crc32c(&head) != number(&fixed, 16) {
        return Err(content(
            "its head fails its check; the recording is damaged: copy it again".into(),
        ));
    }
    serde_json::from_slice(&head)
        .map_err(|error| content(format!("its head is not readable: {error}")))
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn io(path: &Path, source: std::io::Error) -> TraceError {
    TraceError::Io {
        file: path.into(),
        source,
    }
}
