//! Text lines of a file: decompressed while reading, in bounded memory.

use crate::convert::{to_f64, to_u64};
use crate::error::TraceError;
use std::collections::VecDeque;
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
    line: Line,
    /// Lines that were looked at and not yet taken. An error is the last.
    ahead: VecDeque<Result<Line, TraceError>>,
    /// Lines read, with those ahead, and those without content.
    count: u64,
    taken: Arc<AtomicU64>,
    size: u64,
}

/// A line with content.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    /// Number in the file, from 1.
    number: u64,
    /// It has no line end.
    is_open: bool,
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
        if is_blktrace(head) {
            return Err(TraceError::content(path, blkparse_command(path)));
        }
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
            line: Line::default(),
            ahead: VecDeque::new(),
            count: 0,
            taken,
            size,
        })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the number of the last line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.line.number
    }

    /// Returns whether the last line had no line end: it is the last of the file, which may have
    /// been cut off there.
    pub(crate) fn is_open(&self) -> bool {
        self.line.is_open
    }

    /// Returns the share of the file read so far, 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        (to_f64(self.taken.load(Relaxed)) / to_f64(self.size.max(1))).min(1.0)
    }

    /// Returns the next line with content, trimmed: neither empty nor a comment.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, TraceError> {
        if let Some(line) = self.ahead.pop_front() {
            self.line = line?;
        } else {
            let mut line = std::mem::take(&mut self.line);
            let found = self.fill(&mut line);
            self.line = line;
            if !found? {
                return Ok(None);
            }
        }
        self.line.text().map(Some).ok_or_else(|| {
            let what = format!("line {}: {NOT_TEXT}", self.line.number);
            TraceError::content(&self.file, what)
        })
    }

    /// Returns the next lines, at most `count`, without taking them: [`Lines::next`] returns them
    /// again, and then the error that they may end with.
    pub(crate) fn look_ahead(&mut self, count: usize) -> Vec<&str> {
        while self.ahead.len() < count {
            let mut line = Line::default();
            match self.fill(&mut line) {
                Ok(true) => self.ahead.push_back(Ok(line)),
                Ok(false) => break,
                Err(error) => {
                    self.ahead.push_back(Err(error));
                    break;
                }
            }
        }
        let texts = self.ahead.iter().map(|line| line.as_ref().ok()?.text());
        texts.map_while(|text| text).collect()
    }

    /// Reads lines until one has content; returns false at the end of the file.
    fn fill(&mut self, line: &mut Line) -> Result<bool, TraceError> {
        loop {
            line.bytes.clear();
            let read = self
                .source
                .by_ref()
                .take(to_u64(LINE_MAX))
                .read_until(b'\n', &mut line.bytes);
            let count = read.map_err(|source| TraceError::Broken {
                file: self.file.clone(),
                line: self.count,
                source,
            })?;
            if count == 0 {
                return Ok(false);
            }
            assert_eq!(count, line.bytes.len(), "the bytes of a line");
            self.count += 1;
            line.number = self.count;
            line.is_open = line.bytes.last() != Some(&b'\n');
            if count == LINE_MAX {
                let what = format!("line {}: longer than 16 KiB: {NOT_TEXT}", line.number);
                return Err(TraceError::content(&self.file, what));
            }
            if line.number == 1 && line.bytes.starts_with(BYTE_ORDER_MARK) {
                line.bytes.drain(..BYTE_ORDER_MARK.len());
            }
            let first = line.bytes.trim_ascii().first();
            if first.is_some_and(|first| *first != b'#') {
                return Ok(true);
            }
        }
    }
}

impl Line {
    /// Returns the line, trimmed; `None` if it is not text.
    fn text(&self) -> Option<&str> {
        let line = self.bytes.trim_ascii();
        let text = std::str::from_utf8(line).ok()?;
        let is_plain = |line: &[u8]| line.iter().all(|b| matches!(b, b' '..=b'~' | b'\t'));
        let is_text = |text: &str| !text.contains(|c: char| c.is_control() && c != '\t');
        // Most lines are ASCII, which is soon seen.
        (is_plain(line) || is_text(text)).then_some(text)
    }
}

/// UTF-8's mark, which some editors and spreadsheets write before the first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns whether a file begins with the magic number of blktrace, 0x65617400 and its version, in
/// either byte order.
fn is_blktrace(head: &[u8]) -> bool {
    matches!(
        head,
        [0..0x20, b't', b'a', b'e', ..] | [b'e', b'a', b't', 0..0x20, ..]
    )
}

/// Returns the error of a binary file of blktrace, with the command that converts it.
fn blkparse_command(path: &Path) -> String {
    let name = path.to_string_lossy();
    let device = name
        .rsplit_once(".blktrace.")
        .map_or(&*name, |(device, _)| device);
    format!("a binary file of blktrace; run blkparse -i {device} -o FILE.txt, and replay FILE.txt")
}

const NOT_TEXT: &str = "not text; traces are text, plain or compressed by gzip or zstd";
