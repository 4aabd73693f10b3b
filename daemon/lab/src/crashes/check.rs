//! The user's check on a state: a shell command that finds the image in its environment and answers
//! with its exit code, or a server that answers with a line. A [`Supervisor`] runs the checks of a
//! job one after the other.

use super::args::CrashesArgs;
use super::group::nth_variable;
use super::supervisor::{End, Ending, Task, program};
use ftld_kit::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Time between two looks whether the check is still wanted.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Variable with the file of [`Tape::save`](super::tape::Tape::save) for a check that serves its
/// state itself.
pub const RECOVERY: &str = "FTLD_RECOVERY";

/// The command and its limits.
#[derive(Clone)]
pub(super) struct Check {
    pub(super) command: String,
    pub(super) timeout: Duration,
    /// It stays up.
    pub(super) server: bool,
    /// It stays up to mount each state, for which it runs the user's check.
    pub(super) mounts: bool,
    /// Folder of the ext4 in the image whose files it gets.
    pub(super) files: Option<String>,
    /// Number of images.
    pub(super) devices: usize,
}

impl Check {
    /// Returns the user's check, or the command that mounts states for it.
    pub(super) fn of(args: &CrashesArgs) -> Check {
        let mounts = args.mounts.as_ref();
        let stays_up = mounts.map(|mounts| mounts.stays_up);
        Check {
            command: mounts.map_or(&args.check, |mounts| &mounts.command).clone(),
            timeout: args.timeout,
            server: stays_up.unwrap_or(args.server),
            mounts: stays_up.unwrap_or(false),
            files: args.files.clone(),
            devices: args.recordings().count(),
        }
    }
}

/// End of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// It exited with this code.
    Failed(i32),
    /// A signal ended it.
    Signal(i32),
    /// It answered something else than `ok`.
    Refused,
    /// The files of the image cannot be read: a mount would fail.
    Unreadable(String),
    /// It did not end in time.
    TimedOut(Duration),
    /// It changed the length of its image, or removed it.
    Resized,
    /// It ended like this, and left something that cannot be removed.
    Left(Box<Verdict>, String),
    /// The scheme did not mount the flash: a bug of ours.
    NotMounted(String),
    /// A function returned an error.
    Returned,
    /// A function panicked at this place.
    Panicked(String),
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        *self == Verdict::Passed
    }

    /// Returns whether another run of the check may end in another way.
    pub(super) fn is_of_this_run(&self) -> bool {
        matches!(self, Verdict::TimedOut(_) | Verdict::Left(..))
    }

    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Verdict::Left(verdict, _) => verdict.is_timeout(),
            verdict => matches!(verdict, Verdict::TimedOut(_)),
        }
    }

    /// Returns the verdict in words.
    pub(super) fn text(&self) -> String {
        match self {
            Verdict::Passed => "passed".into(),
            Verdict::Failed(code) => format!("exit code {code}"),
            Verdict::Signal(signal) => format!("ended by signal {signal}"),
            Verdict::Refused => "not ok".into(),
            Verdict::Unreadable(why) => format!("the files cannot be read: {why}"),
            Verdict::TimedOut(after) => format!("no answer within {} s", after.as_secs_f64()),
            Verdict::Resized => "the check changed the length of its image".into(),
            Verdict::Left(verdict, what) => format!("{}, and it left {what}", verdict.text()),
            Verdict::NotMounted(why) => format!("the flash does not mount: {why}"),
            Verdict::Returned => "returned an error".into(),
            Verdict::Panicked(place) => format!("panicked at {place}"),
        }
    }
}

/// Verdict and the end of the check's output.
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    pub(super) output: String,
}

/// A process that runs checks. Whatever a check starts is a descendant of it.
pub(super) struct Supervisor {
    process: Child,
    socket: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Supervisor {
    /// Starts a supervisor. `folder` is that of its job. `recovery` is where a check that serves
    /// its state itself keeps what was done on it.
    ///
    /// # Errors
    /// The host refuses a process.
    pub(super) fn start<'a>(
        folder: &Path,
        images: impl Iterator<Item = &'a Path>,
        uris: &[String],
        recovery: Option<&Path>,
    ) -> io::Result<Supervisor> {
        let (socket, its) = UnixStream::pair()?;
        let mut program = program()?;
        program.env("FTLD_WORK", folder);
        program.envs(recovery.map(|path| (RECOVERY, path)));
        for (device, (image, uri)) in images.zip(uris).enumerate() {
            program.env(nth_variable("FTLD_IMAGE", device), image);
            program.env(nth_variable("FTLD_URI", device), uri);
        }
        let process = program
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            // Ctrl-C is for the explorer, which ends its supervisors.
            .process_group(0)
            .spawn()?;
        Ok(Supervisor {
            process,
            answers: BufReader::new(socket.try_clone()?),
            socket,
        })
    }

    /// Runs the check; returns `None` once `unwanted` is true.
    ///
    /// # Errors
    /// The shell cannot be started or does not find the command, or the supervisor was killed.
    pub(super) fn run(
        &mut self,
        check: &Check,
        mark: &str,
        case: &str,
        unwanted: impl Fn() -> bool,
    ) -> Result<Option<Checked>, Failure> {
        let task = Task {
            command: check.command.clone(),
            timeout: check.timeout,
            server: check.server,
            mounts: check.mounts,
            files: check.files.clone(),
            devices: check.devices,
            mark: mark.into(),
            case: case.into(),
        };
        let Some(Ending { end, output, left }) = self.ask(&task, unwanted).map_err(|error| {
            Failure::failed(format!("the supervisor of a check was killed: {error}"))
        })?
        else {
            return Ok(None);
        };
        let verdict = match end {
            End::TimedOut => Verdict::TimedOut(check.timeout),
            End::Signal(signal) => Verdict::Signal(signal),
            End::Refused => Verdict::Refused,
            End::Unreadable(why) => Verdict::Unreadable(why),
            End::Exit(0) => Verdict::Passed,
            End::Exit(code @ (126 | 127)) => {
                let said = match output.trim() {
                    "" => ", and it printed nothing".to_owned(),
                    said => format!(": {said}"),
                };
                return Err(Failure::failed(format!(
                    "the check cannot be run (exit code {code}){said}"
                )));
            }
            End::Exit(code) => Verdict::Failed(code),
            End::NotStarted(why) => {
                return Err(Failure::failed(format!("the check cannot be run: {why}")));
            }
        };
        let verdict = match left {
            None => verdict,
            Some(what) => Verdict::Left(Box::new(verdict), what),
        };
        Ok(Some(Checked { verdict, output }))
    }

    fn ask(&mut self, task: &Task, unwanted: impl Fn() -> bool) -> io::Result<Option<Ending>> {
        let line = serde_json::to_string(task)? + "\n";
        self.socket.write_all(line.as_bytes())?;
        loop {
            if unwanted() {
                return Ok(None);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(serde_json::from_str(&answer)?))
    }
}

impl Drop for Supervisor {
    /// Ends the check, if one runs, with all that it started.
    fn drop(&mut self) {
        let _ = self.socket.write_all(super::supervisor::END.as_bytes());
        let _ = self.process.wait();
    }
}
