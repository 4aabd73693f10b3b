//! Executes a generated run. A panic is a failure of the run. A run that does not end is a failure,
//! too; it ends the process, because a thread cannot be stopped.

use crate::verdicts::text_of;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A run takes milliseconds, or seconds on a busy machine.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// Executes a run. If it takes too long, prints `describe` and ends the process.
///
/// # Errors
/// The error of the run, or the text of its panic.
pub fn watched<R>(
    describe: impl FnOnce() -> String + Send + 'static,
    run: impl FnOnce() -> Result<R, String>,
) -> Result<R, String> {
    let (running, ended) = channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(LONGEST_RUN) == Err(RecvTimeoutError::Timeout) {
            _ = writeln!(
                std::io::stderr(),
                "a run has not ended after {LONGEST_RUN:?}:\n{}",
                describe()
            );
            std::process::exit(1);
        }
    });
    let outcome = catch_unwind(AssertUnwindSafe(run));
    drop(running);
    outcome.unwrap_or_else(|panic| Err(text_of(&*panic)))
}
