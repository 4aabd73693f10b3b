//! `ftld --detach`: the caller waits until the device is ready or starting failed; then the daemon
//! continues in the background.
//!
//! The daemon is a child in its own session. Until it is ready it writes to the caller's terminal,
//! so the caller gets errors unchanged, exit code included. After the ready line it detaches from
//! the terminal.

use crate::failure::{Exit, Failure};
use crate::output::print;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio, exit};

/// Starts the same command line as a daemon and waits for its ready line.
pub(crate) fn start() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io("start in the background", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let args = std::env::args_os().skip(1).map(|arg| {
        if arg == "--detach" {
            "--detached".into()
        } else {
            arg
        }
    });
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
        return print(&ready);
    }
    // The child has printed the reason.
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(code) => exit(code),
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

/// Detaches from the caller's terminal: from now on messages go to `log`.
pub(crate) fn leave_terminal(log: &Path) {
    let folder = log.parent().map_or(Ok(()), std::fs::create_dir_all);
    let open = || {
        File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(log)
    };
    let left = folder.and_then(|()| open()).and_then(|file| {
        // Older versions created the log readable by all users.
        file.set_permissions(Permissions::from_mode(0o600))?;
        nix::unistd::dup2_stdout(&file)?;
        nix::unistd::dup2_stderr(&file)?;
        Ok(())
    });
    if let Err(error) = left {
        tracing::warn!("{}: {error}; messages go where they went", log.display());
    }
}
