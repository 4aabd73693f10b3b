//! `ftld --detach`: the caller waits until the device is ready or starting failed; then the daemon
//! continues in the background.
//!
//! The daemon is a child in its own session. Until it is ready it writes to the caller's terminal,
//! so the caller gets errors unchanged, exit code included, and to its log as well. After the ready
//! line it detaches from the terminal.

use crate::logging;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::print;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio, exit};

/// Starts the same command line as a daemon and waits for its ready line; if it fails, this process
/// ends with its exit code.
///
/// # Errors
/// It cannot be started, or is killed.
pub(crate) fn start() -> Result<(), Failure> {
    let args = std::env::args_os().skip(1);
    let words = args.map(|arg| match arg == "--detach" {
        true => "--detached".into(),
        false => arg,
    });
    match launch(words)? {
        Some(code) => exit(code),
        None => Ok(()),
    }
}

/// Starts this program as a daemon with these arguments and prints its ready line; returns the exit
/// code of one that failed, which has printed the reason.
///
/// # Errors
/// It cannot be started, or is killed.
pub(crate) fn launch(args: impl Iterator<Item = OsString>) -> Result<Option<i32>, Failure> {
    let failed = |error: std::io::Error| Failure::io("start in the background", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut ready = String::new();
    let answers = child.stdout.take().expect("piped");
    BufReader::new(answers)
        .read_line(&mut ready)
        .map_err(failed)?;
    if !ready.is_empty() {
        return print(&ready).map(|()| None);
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(code) => Ok(Some(code)),
        None => Err(Failure::new(
            Exit::Failed,
            format!("the daemon ended before it was ready: {status}"),
        )),
    }
}

/// Starts a new session, so that the end of the caller's session does not end the daemon.
pub(crate) fn leave_session() {
    if let Err(error) = nix::unistd::setsid() {
        tracing::warn!("stays in the caller's session: {error}");
    }
}

/// Opens the log of a daemon in the background. From now on it gets every message, and so does the
/// caller's terminal until the daemon leaves it. `None` if it cannot be written.
pub(crate) fn open_log(log: &Path) -> Option<File> {
    let folder = log.parent().map_or(Ok(()), std::fs::create_dir_all);
    let open = || {
        File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(log)
    };
    let opened = folder.and_then(|()| open()).and_then(|file| {
        // Older versions created the log readable by all users.
        file.set_permissions(Permissions::from_mode(0o600))?;
        logging::copy_to(file.try_clone()?);
        Ok(file)
    });
    opened
        .inspect_err(|error| {
            tracing::warn!("{}: {error}; messages go where they went", log.display());
        })
        .ok()
}

/// Detaches from the caller's terminal: from now on messages go to the log alone.
pub(crate) fn leave_terminal(log: &File) {
    let left = logging::end_copy(|| {
        nix::unistd::dup2_stdout(log).and_then(|()| nix::unistd::dup2_stderr(log))
    });
    if let Err(error) = left {
        tracing::warn!("stays at the caller's terminal: {error}");
    }
}
