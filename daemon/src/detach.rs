//! `ftld --detach`: the caller waits until the device is ready or hears why not; then the daemon
//! goes on without it.
//!
//! The daemon is a child in a session of its own. Until it is ready it speaks to the caller's
//! terminal, so an error reaches the caller as it is, exit code included; with the ready line it
//! lets go of the terminal.

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
    // It has said why.
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(code) => exit(code),
        None => Err(Failure::new(
            Exit::Failed,
            format!("the daemon ended before it was ready: {status}"),
        )),
    }
}

/// Leaves the caller's session, so that its end does not end the daemon.
pub(crate) fn leave_session() {
    if let Err(error) = nix::unistd::setsid() {
        tracing::warn!("stays in the caller's session: {error}");
    }
}

/// Lets go of the caller's terminal: from now on messages go to `log`.
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
        // An older version left it open to all.
        file.set_permissions(Permissions::from_mode(0o600))?;
        nix::unistd::dup2_stdout(&file)?;
        nix::unistd::dup2_stderr(&file)?;
        Ok(())
    });
    if let Err(error) = left {
        tracing::warn!("{}: {error}; messages go where they went", log.display());
    }
}
