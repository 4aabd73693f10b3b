//! Text lines of a file: decompressed while reading, in bounded memory.

use crate::convert::{to_f64, to_u64};
use crate::error::TraceError;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longest line. No format has lines nearly as long; a longer one is not text.
const LINE_MAX: usize = 16 << 10;
const BUFFER: usize = 256 << 10;

/// Lines of a possibly compressed file, and the read position.
pub(crate) struct Lines {
    file: PathBuf,
    source: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
    /// Line that was peeked but not yet taken.
    held: bool,
    /// The last line has no line end.
    open: bool,
    taken: Arc<AtomicU64>,
    size: u64,
}

/// Counts the bytes read from the file.
struct Counted {
    file: File,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buf)?;
        self.taken.fetch_add(to_u64(count), Relaxed);
        Ok(count)
    }
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Lines, TraceError> {
        let failed = |source| TraceError::Io {
            file: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let taken = Arc::new(AtomicU64::new(0));
        let mut raw = BufReader::with_capacity(
            BUFFER,
            Counted {
                file,
                taken: taken.clone(),
            },
        );
        let head = raw.fill_buf().map_err(failed)?;
        let source: Box<dyn BufRead + Send> = match head {
            [0x1F, 0x8B, ..] => Box::new(BufReader::with_capacity(
                BUFFER,
                flate2::bufread::MultiGzDecoder::new(raw),
            )),
            [0x28, 0xB5, 0x2F, 0xFD, ..] => {
                let plain = zstd::stream::read::Decoder::with_buffer(raw).map_err(failed)?;
                Box::new(BufReader::with_capacity(BUFFER, plain))
            }
            _ => Box::new(raw),
        };
        Ok(Lines {
            file: path.into(),
            source,
            line: Vec::new(),
            number: 0,
            held: false,
            open: false,
            taken,
            size,
        })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the number of the last line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the last line had no line end: it is the last of the file, which may have been
    /// cut off there.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the share of the file read so far, 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        (to_f64(self.taken.load(Relaxed)) / to_f64(self.size.max(1))).min(1.0)
    }

    /// Returns the next line with content, trimmed: neither empty nor a comment.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, TraceError> {
        assert!(
            !self.held || self.number > 0,
            "a line is held before the first was read"
        );
        if !std::mem::take(&mut self.held) {
            loop {
                if !self.fill()? {
                    return Ok(None);
                }
                if self
                    .line
                    .trim_ascii()
                    .first()
                    .is_some_and(|first| *first != b'#')
                {
                    break;
                }
            }
        }
        let line = self.line.trim_ascii();
        let text = std::str::from_utf8(line).ok();
        let is_plain = |line: &[u8]| line.iter().all(|b| matches!(b, b' '..=b'~' | b'\t'));
        let is_text = |text: &str| !text.contains(|c: char| c.is_control() && c != '\t');
        // Most lines are ASCII, which is soon seen.
        let printable = |text: &&str| is_plain(line) || is_text(text);
        let binary =
            || TraceError::content(&self.file, format!("line {}: {NOT_TEXT}", self.number));
        text.filter(printable).map(Some).ok_or_else(binary)
    }

    /// Returns the next line without taking it: [`Lines::next`] returns it again.
    pub(crate) fn peek(&mut self) -> Result<Option<&str>, TraceError> {
        let found = self.next()?.is_some();
        self.held = found;
        Ok(found.then(|| {
            std::str::from_utf8(self.line.trim_ascii()).expect("it was text a moment ago")
        }))
    }

    fn fill(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let read = self
            .source
            .by_ref()
            .take(to_u64(LINE_MAX))
            .read_until(b'\n', &mut self.line);
        let count = read.map_err(|source| TraceError::Broken {
            file: self.file.clone(),
            line: self.number,
            source,
        })?;
        self.number += u64::from(count > 0);
        if count > 0 {
            self.open = self.line.last() != Some(&b'\n');
        }
        assert!(
            self.line.len() <= LINE_MAX,
            "a line longer than the longest"
        );
        assert_eq!(count, self.line.len(), "the bytes of line {}", self.number);
        if count == LINE_MAX {
            return Err(TraceError::content(
                &self.file,
                format!("line {}: longer than 16 KiB: {NOT_TEXT}", self.number),
            ));
        }
        Ok(count > 0)
    }
}

const NOT_TEXT: &str = "not text; traces are text, plain or compressed by gzip or zstd";
