//! Runs the user's check on a state: a shell command that finds the image in its environment and
//! answers with its exit code.

use crate::convert::{to_u64, to_usize};
use crate::failure::Failure;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a check's output that are kept: its end.
const OUTPUT_MAX: u64 = 16 << 10;

/// What a check finds in its environment, besides that of this process.
pub(super) struct Environment<'a> {
    pub(super) image: &'a Path,
    pub(super) uri: &'a str,
    pub(super) mark: &'a str,
    pub(super) case: &'a str,
}

/// The command and its limits.
#[derive(Clone)]
pub(super) struct Check {
    pub(super) command: String,
    pub(super) timeout: Duration,
}

/// End of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// It exited with this code.
    Failed(i32),
    /// A signal ended it.
    Signal(i32),
    /// It did not end in time.
    TimedOut(Duration),
    /// It changed the length of its image, or removed it.
    Resized,
    /// The scheme did not mount the flash: a bug of ours.
    NotMounted(String),
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        *self == Verdict::Passed
    }

    /// Returns the verdict in words.
    pub(super) fn text(&self) -> String {
        match self {
            Verdict::Passed => "passed".into(),
            Verdict::Failed(code) => format!("exit code {code}"),
            Verdict::Signal(signal) => format!("ended by signal {signal}"),
            Verdict::TimedOut(after) => format!("no answer within {} s", after.as_secs_f64()),
            Verdict::Resized => "the check changed the length of its image".into(),
            Verdict::NotMounted(why) => format!("the flash does not mount: {why}"),
        }
    }
}

/// Verdict and the end of the check's output.
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    pub(super) output: String,
}

impl Check {
    /// Runs the check in a process group of its own, with an empty folder for its files below this
    /// one.
    ///
    /// # Errors
    /// The shell cannot be started, or does not find the command.
    pub(super) fn run(&self, folder: &Path, on: &Environment<'_>) -> Result<Checked, Failure> {
        let failed = |error: io::Error| Failure::io("the check", &error);
        let mut output = tempfile::tempfile_in(folder).map_err(failed)?;
        let stdout = output.try_clone().map_err(failed)?;
        let stderr = output.try_clone().map_err(failed)?;
        let work = WorkFolder::create(folder.join("work")).map_err(failed)?;
        let mut child = Command::new("/bin/sh")
            .arg("-c")
            .arg(&self.command)
            .env("FTLD_IMAGE", on.image)
            .env("FTLD_URI", on.uri)
            .env("FTLD_MARK", on.mark)
            .env("FTLD_CASE", on.case)
            .env("FTLD_WORK", &work.0)
            .env("TMPDIR", &work.0)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let status = self.wait(&mut child).map_err(failed)?;
        let output = tail(&mut output).map_err(failed)?;
        let verdict = match status {
            None => Verdict::TimedOut(self.timeout),
            Some(status) => match (status.code(), status.signal()) {
                (Some(0), _) => Verdict::Passed,
                (Some(code @ (126 | 127)), _) => {
                    return Err(Failure::failed(format!(
                        "the check cannot be run (exit code {code}): {}",
                        output.trim()
                    )));
                }
                (Some(code), _) => Verdict::Failed(code),
                (None, signal) => Verdict::Signal(signal.unwrap_or(0)),
            },
        };
        Ok(Checked { verdict, output })
    }

    /// Waits for the end; kills what is left of the group, whether it ended or not.
    fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let end = Instant::now() + self.timeout;
        let in_time = loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = rustix::event::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut poll = [rustix::event::PollFd::new(
                &pidfd,
                rustix::event::PollFlags::IN,
            )];
            match rustix::event::poll(&mut poll, Some(&timeout)) {
                Ok(0) => break false,
                Ok(_) => break true,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        // The group may be gone already.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait()?;
        Ok(in_time.then_some(status))
    }
}

/// Folder for a check's own files; removed with them.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn create(path: PathBuf) -> io::Result<WorkFolder> {
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_dir_all(&path)?;
                std::fs::create_dir(&path)?;
            }
            made => made?,
        }
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tail(output: &mut File) -> io::Result<String> {
    let length = output.seek(SeekFrom::End(0))?;
    output.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_MAX)))?;
    let mut bytes = Vec::with_capacity(to_usize(length.min(OUTPUT_MAX)));
    output.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    assert!(to_u64(bytes.len()) <= OUTPUT_MAX, "the end of an output");
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
