//! Logs go to stderr; standard output is for answers.

use anstream::StripStream;
use ftld_kit::failure::Failure;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use tracing::level_filters::LevelFilter;

/// A file that gets every message besides standard error.
static COPY: Mutex<Option<File>> = Mutex::new(None);

/// Sets a file that gets every message besides standard error.
pub(crate) fn copy_to(file: File) {
    *COPY.lock() = Some(file);
}

/// Ends the copy when `redirect` has made standard error that file. No message is written in
/// between, so the file has each once.
///
/// # Errors
/// That of `redirect`; the file stays.
pub(crate) fn end_copy<E>(redirect: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let mut copy = COPY.lock();
    redirect()?;
    *copy = None;
    Ok(())
}

/// Where messages go. One that cannot be written, as on a full disk, is lost, and nothing else.
struct Messages;

impl Write for Messages {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut copy = COPY.lock();
        if let Some(file) = &mut *copy {
            let _ = StripStream::new(file).write_all(text);
        }
        // Asks each time whether it is a terminal: `redirect` may make it a file.
        let _ = anstream::stderr().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// Starts logging at the level of `FTLD_LOG` (error, warn, info, debug, trace); `info` if unset.
///
/// # Errors
/// `FTLD_LOG` is no level; logging starts at `info`.
pub(crate) fn start() -> Result<(), Failure> {
    let wanted = std::env::var("FTLD_LOG").unwrap_or_default();
    let level = match wanted.as_str() {
        "" => Ok(LevelFilter::INFO),
        text => text.parse().map_err(|_| {
            Failure::usage(format!(
                "FTLD_LOG {text:?} is no level; write error, warn, info, debug or trace"
            ))
        }),
    };
    let journald = std::env::var_os("JOURNAL_STREAM").is_some();
    let builder = tracing_subscriber::fmt()
        .with_writer(|| Messages)
        .with_ansi(true)
        .with_target(false)
        .with_max_level(*level.as_ref().unwrap_or(&LevelFilter::INFO));
    // The journal adds its own timestamps. A second start, as in tests, keeps the first.
    let _ = if journald {
        builder.without_time().try_init()
    } else {
        builder.try_init()
    };
    level.map(drop)
}
