//! Output on standard output, human-readable or JSON.

use crate::failure::Failure;
use serde_json::Value;
use std::io::Write;

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
