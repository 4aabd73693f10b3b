//! Output on standard output, human-readable or JSON.

use crate::failure::Failure;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Writes to standard output; a closed pipe is not an error.
///
/// # Errors
/// Standard output is not writable.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Checks that a file can be written, and creates it if it is missing: a result that nobody can
/// keep need not be computed. A pipe is not opened: its reader would see an end of file.
///
/// # Errors
/// It cannot be written.
pub fn writable(path: &Path) -> Result<(), Failure> {
    if std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return Ok(());
    }
    let file = File::options().append(true).create(true).open(path);
    file.map(drop)
        .map_err(|error| Failure::io(path.display(), &error))
}

/// Prints a JSON object and a newline. Its `"schema": "ftld.WHAT/1"` names the format; the number
/// grows with each incompatible change.
///
/// # Errors
/// Standard output is not writable.
pub fn print_json(what: &str, value: Value) -> Result<(), Failure> {
    print(&format!("{:#}\n", with_schema(what, value)))
}

pub(crate) fn with_schema(what: &str, mut value: Value) -> Value {
    value["schema"] = format!("ftld.{what}/1").into();
    value
}
