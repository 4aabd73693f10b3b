//! Answers on standard output, for people or for programs.

use crate::failure::Failure;
use serde_json::Value;
use std::io::Write;

/// Writes to standard output; a reader that went away is no error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Prints a JSON object with a newline at the end. `"schema": "ftld.WHAT/1"` in it names its
/// meaning; the number grows when a reader of the old one would go wrong.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(what: &str, value: Value) -> Result<(), Failure> {
    print(&format!("{:#}\n", with_schema(what, value)))
}

pub(crate) fn with_schema(what: &str, mut value: Value) -> Value {
    value["schema"] = format!("ftld.{what}/1").into();
    value
}
