//! Counters of requests to the daemon itself: HTTP, the control socket, the watchdog.
//!
//! Invariants: counting takes no lock. Nothing here is stored, so power failure does not matter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Status codes of HTTP answers.
pub const HTTP_CODES: [&str; 6] = ["200", "400", "404", "405", "421", "503"];
/// Commands of the control socket; the last one counts lines that are no request.
pub const CONTROL_COMMANDS: [&str; 8] = [
    "status", "stop", "inject", "pause", "mark", "shadow", "where", "invalid",
];

/// Counters of requests to the daemon itself.
#[derive(Debug, Default)]
pub struct ServiceCounters {
    http: [AtomicU64; HTTP_CODES.len()],
    control: [AtomicU64; CONTROL_COMMANDS.len()],
    watchdog: AtomicU64,
}

/// [`ServiceCounters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// HTTP answers, in the order of [`HTTP_CODES`].
    pub http: [u64; HTTP_CODES.len()],
    /// Lines on the control socket, in the order of [`CONTROL_COMMANDS`].
    pub control: [u64; CONTROL_COMMANDS.len()],
    /// Keep-alives sent to the service manager's watchdog.
    pub watchdog: u64,
}

impl ServiceCounters {
    /// Counts an HTTP answer.
    ///
    /// # Panics
    /// If [`HTTP_CODES`] lacks the code.
    pub fn note_http(&self, code: &str) {
        note(&self.http, &HTTP_CODES, code);
    }

    /// Counts a line on the control socket.
    ///
    /// # Panics
    /// If [`CONTROL_COMMANDS`] lacks the command.
    pub fn note_control(&self, command: &str) {
        note(&self.control, &CONTROL_COMMANDS, command);
    }

    /// Counts a keep-alive.
    pub fn note_watchdog(&self) {
        self.watchdog.fetch_add(1, Relaxed);
    }

    /// Returns the current counts.
    pub fn view(&self) -> ServiceView {
        ServiceView {
            http: self.http.each_ref().map(|count| count.load(Relaxed)),
            control: self.control.each_ref().map(|count| count.load(Relaxed)),
            watchdog: self.watchdog.load(Relaxed),
        }
    }
}

fn note(counters: &[AtomicU64], names: &[&str], name: &str) {
    let index = names.iter().position(|known| *known == name);
    counters[index.unwrap_or_else(|| panic!("{name} has a counter"))].fetch_add(1, Relaxed);
}
