//! Failure of a command: an exit code for programs, one message for humans.

use std::any::Any;
use std::fmt;
use strum::VariantArray;

/// Exit codes other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
#[repr(u8)]
pub enum Exit {
    /// The command failed for a reason without a code of its own.
    Failed = 1,
    /// The command line, the environment or the configuration file is wrong.
    Usage = 2,
    /// The instance is not running.
    NotRunning = 3,
    /// The device is quiesced: it needs a daemon.
    Quiesced = 4,
    /// The kernel lacks the driver.
    DriverMissing = 5,
    /// Permission denied.
    Permission = 6,
    /// The image, device, port or name is in use.
    InUse = 7,
    /// The image is damaged.
    Damaged = 8,
    /// The flash lost power by fault injection.
    PowerCut = 9,
}

impl Exit {
    /// Returns the exit code as a number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns a short description, as in the help and the manual.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::NotRunning => "not running",
            Exit::Quiesced => "device quiesced",
            Exit::DriverMissing => "driver missing",
            Exit::Permission => "permission",
            Exit::InUse => "in use",
            Exit::Damaged => "image damaged",
            Exit::PowerCut => "power cut injected",
        }
    }

    /// Returns the exit code with this number, [`Exit::Failed`] for unknown numbers.
    pub fn from_code(code: i32) -> Exit {
        Exit::VARIANTS
            .iter()
            .copied()
            .find(|exit| i32::from(exit.code()) == code)
            .unwrap_or(Exit::Failed)
    }
}

/// Failure with an exit code and a message: what failed, why, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code for the shell.
    pub exit: Exit,
    /// Human-readable message.
    pub message: String,
}

impl Failure {
    /// Creates a failure with this exit code.
    pub fn new(exit: Exit, message: impl ToString) -> Self {
        Failure {
            exit,
            message: message.to_string(),
        }
    }

    /// Creates a failure for wrong use of the command line or the configuration file.
    pub fn usage(message: impl ToString) -> Self {
        Failure::new(Exit::Usage, message)
    }

    /// Creates a failure without an exit code of its own.
    pub fn failed(message: impl ToString) -> Self {
        Failure::new(Exit::Failed, message)
    }

    /// Creates a failure for a host error on `what`; the error kind selects the exit code.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            std::io::ErrorKind::AddrInUse => Exit::InUse,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{what}: {error}"))
    }

    /// Creates a failure for a folder that cannot be created; `remedy` names another place.
    pub fn folder(folder: &std::path::Path, error: &std::io::Error, remedy: &str) -> Self {
        let is_file = |part: &std::path::Path| part.exists() && !part.is_dir();
        let is_file = folder.ancestors().any(is_file);
        let folder = folder.display();
        match is_file {
            true => Failure::failed(format!("{folder}: a file is in its place; {remedy}")),
            false => {
                let failure = Failure::io(format!("{folder}: cannot create this folder"), error);
                Failure::new(failure.exit, format!("{failure}; {remedy}"))
            }
        }
    }
}

impl Failure {
    /// Returns the JSON that `--json` prints on standard error.
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

/// Returns a panic's message.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
