//! How a command ends when it does not end well: an exit code for programs, one message for people.

use std::any::Any;
use std::fmt;
use strum::VariantArray;

/// Exit codes other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
#[repr(u8)]
pub enum Exit {
    /// Did not work, for a reason of its own.
    Failed = 1,
    /// The command line, the environment or the configuration file is wrong.
    Usage = 2,
    /// No such instance is running.
    NotRunning = 3,
    /// The device was left quiesced: it waits for a daemon.
    Quiesced = 4,
    /// The kernel lacks the driver.
    DriverMissing = 5,
    /// Not permitted.
    Permission = 6,
    /// Somebody else has the image, device, port or name.
    InUse = 7,
    /// The image is damaged.
    Damaged = 8,
    /// The flash lost power, because somebody injected that.
    PowerCut = 9,
}

impl Exit {
    /// The exit code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// In a few words, as in the help and the manual.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::NotRunning => "not running",
            Exit::Quiesced => "a device waits for its daemon",
            Exit::DriverMissing => "driver missing",
            Exit::Permission => "permission",
            Exit::InUse => "in use",
            Exit::Damaged => "image damaged",
            Exit::PowerCut => "power cut injected",
        }
    }

    /// The exit code with this number; those without a name are [`Exit::Failed`].
    pub fn from_code(code: i32) -> Exit {
        Exit::VARIANTS
            .iter()
            .copied()
            .find(|exit| i32::from(exit.code()) == code)
            .unwrap_or(Exit::Failed)
    }
}

/// A message that names the thing, the reason and the way out, with its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For the shell.
    pub exit: Exit,
    /// For people.
    pub message: String,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            exit,
            message: message.into(),
        }
    }

    /// Wrong use of the command line or the configuration file.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, message)
    }

    /// Anything without a code of its own.
    pub fn failed(message: impl Into<String>) -> Self {
        Failure::new(Exit::Failed, message)
    }

    /// A host error on the thing named by `what`, with the exit code that belongs to its kind.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            std::io::ErrorKind::AddrInUse => Exit::InUse,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{what}: {error}"))
    }
}

impl Failure {
    /// For programs: what `--json` prints on standard error.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({"schema": "ftld.error/1", "exit": self.exit.code(), "error": self.message})
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
