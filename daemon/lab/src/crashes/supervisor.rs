//! The process that runs checks: this program again, one for each job.
//!
//! Invariants: it is the reaper of every descendant, whatever session or parent a process chose,
//! and kills all of them at the end of a check. As root a check has a mount namespace of its own,
//! which ends with it. If the explorer dies, the supervisor kills the check and removes the job's
//! folder.

use super::ext4::{Stop, extract};
use super::group::{nth_file, nth_variable};
use super::scratch;
use super::server::{self, Server};
use ftld_device::sys;
use ftld_kit::convert::{to_u64, to_usize};
use ftld_kit::descendants;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a check's output that are kept: its end.
const OUTPUT_MAX: usize = 16 << 10;
/// Line that ends a supervisor.
pub(super) const END: &str = "end\n";
/// Program name (`argv[0]`) that makes this program a supervisor.
const NAME: &str = "ftld-check";

/// One run of the check.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) command: String,
    pub(super) timeout: Duration,
    /// The check stays up.
    pub(super) server: bool,
    /// It runs the user's check on the mounted state, and is asked for the case, too.
    pub(super) mounts: bool,
    /// Folder of the ext4 in the image whose files it gets.
    pub(super) files: Option<String>,
    /// Number of images.
    pub(super) devices: usize,
    pub(super) mark: String,
    pub(super) case: String,
}

/// How a run of the check ended.
#[derive(Serialize, Deserialize)]
pub(super) struct Ending {
    pub(super) end: End,
    /// End of its output.
    pub(super) output: String,
    /// Remains of the check that cannot be removed.
    pub(super) left: Option<String>,
}

/// End of a check.
#[derive(Debug, Serialize, Deserialize)]
pub enum End {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It answered something else than `ok`.
    Refused,
    /// The files of the image cannot be read.
    Unreadable(String),
    /// It did not end in time.
    TimedOut,
    /// It cannot be run.
    NotStarted(String),
}

/// Returns the command that starts a supervisor.
pub(super) fn program() -> io::Result<Command> {
    #[cfg(not(test))]
    return Ok({
        // Names this program even after an upgrade has replaced its file.
        let mut program = Command::new("/proc/self/exe");
        program.arg0(NAME);
        program
    });
    // The main function of a test program is not ours: one of its tests becomes the supervisor.
    #[cfg(test)]
    return std::env::current_exe().map(|path| {
        let mut program = Command::new(path);
        program.args([
            "--ignored",
            "--exact",
            "crashes::tests::supervisor_of_checks",
        ]);
        program
    });
}

/// Runs checks if this process was started to do so, and returns its exit code.
pub fn supervise() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    (name == NAME).then(|| match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ftld: the supervisor of a check: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Runs the checks that the explorer asks for at standard input, which is a socket.
pub(super) fn serve() -> io::Result<()> {
    let folder = std::env::var_os("FTLD_WORK").map(PathBuf::from);
    let folder = folder.ok_or(io::ErrorKind::NotFound)?;
    descendants::adopt()?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut tasks = BufReader::new(socket.try_clone()?);
    let mut server: Option<Server> = None;
    loop {
        let mut line = String::new();
        let read = tasks.read_line(&mut line).unwrap_or(0);
        let is_over = read == 0 || line == END;
        if let Some(server) = server.take_if(|_| is_over) {
            server.stop(&folder);
        }
        if read == 0 {
            // The explorer has died. The last supervisor finds its folder empty.
            scratch::unmount(&folder)
                .and_then(|()| scratch::remove(&folder))
                .ok();
            folder.parent().map(std::fs::remove_dir);
            return Ok(());
        }
        if line == END {
            return Ok(());
        }
        let task: Task = serde_json::from_str(&line)?;
        let ending = match task.server {
            true => server::ask(&mut server, &task, &folder, &socket)?,
            false => run(&task, &folder, &socket)?,
        };
        if let Some(ending) = ending {
            let answer = serde_json::to_string(&ending)? + "\n";
            // If the explorer has died, the next read returns 0.
            let _ = socket.write_all(answer.as_bytes());
        }
    }
}

/// Runs a check, with an empty folder for its files. Returns `None` if the explorer does not want
/// it any more.
fn run(task: &Task, folder: &Path, socket: &UnixStream) -> io::Result<Option<Ending>> {
    let work = work_folder(folder)?;
    let files = match files(task, &work, socket) {
        Ok(files) => files,
        Err(stop) => {
            let left = remains(Vec::new(), folder, &work);
            return Ok(stop.end(socket).map(|end| Ending {
                end,
                output: String::new(),
                left,
            }));
        }
    };
    let (mut output, writer) = io::pipe()?;
    rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)?;
    let mut shell = shell(&task.command, &work);
    shell
        .env("FTLD_MARK", &task.mark)
        .env("FTLD_CASE", &task.case)
        .envs(
            files
                .iter()
                .enumerate()
                .map(|(device, files)| (nth_variable("FTLD_FILES", device), files)),
        )
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut tail = Tail::default();
    let (end, left) = match spawn(shell) {
        Err(error) => (Some(End::NotStarted(error.to_string())), Vec::new()),
        Ok(shell) => {
            let pid = Pid::from_raw(i32::try_from(shell.id()).expect("a process id"));
            let waited = wait(pid, task.timeout, socket, &mut output, &mut tail);
            let (status, left) = end_all(pid);
            let end = match waited? {
                Waited::Unwanted => None,
                Waited::Ended => Some(end_of(status)),
                Waited::TooLong => Some(End::TimedOut),
            };
            (end, left)
        }
    };
    tail.take(&mut output);
    let left = remains(left, folder, &work);
    Ok(end.map(|end| Ending {
        end,
        output: tail.text(),
        left,
    }))
}

/// Copies the files that the check gets to a new folder for each device below its own, within its
/// time.
pub(super) fn files(task: &Task, work: &Path, socket: &UnixStream) -> Result<Vec<PathBuf>, Stop> {
    let Some(from) = &task.files else {
        return Ok(Vec::new());
    };
    let end = Instant::now() + task.timeout;
    let copied = (0..task.devices).map(|device| files_of(device, from, work, socket, end));
    copied.collect()
}

fn files_of(
    device: usize,
    from: &str,
    work: &Path,
    socket: &UnixStream,
    end: Instant,
) -> Result<PathBuf, Stop> {
    let to = nth_file(&work.join("files"), device);
    let image = std::env::var_os(nth_variable("FTLD_IMAGE", device)).unwrap_or_default();
    scratch::remove(&to).map_err(|failure| Stop::Host(failure.message))?;
    let made = std::fs::create_dir(&to);
    made.map_err(|error| Stop::Host(format!("{}: {error}", to.display())))?;
    let is_over = || Instant::now() >= end || is_asked(socket);
    let copy = AssertUnwindSafe(|| extract(Path::new(&image), from, &to, &is_over));
    // A tree that nobody expected is no reason to end.
    let copied = std::panic::catch_unwind(copy);
    let copied = copied.unwrap_or_else(|_| Err(Stop::Image("the tree is damaged".into())));
    match copied {
        Err(Stop::Image(why)) if device > 0 => {
            Err(Stop::Image(format!("{why}, on device {}", device + 1)))
        }
        copied => copied.map(|()| to),
    }
}

/// Returns whether the explorer has written, or has died.
fn is_asked(socket: &UnixStream) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

impl Stop {
    /// Returns how the check ended that did not get its files; `None` if nobody waits for it.
    pub(super) fn end(self, socket: &UnixStream) -> Option<End> {
        match self {
            Stop::Image(why) => Some(End::Unreadable(why)),
            Stop::Host(why) => Some(End::NotStarted(why)),
            Stop::Over if is_asked(socket) => None,
            Stop::Over => Some(End::TimedOut),
        }
    }
}

/// Returns the shell of a check, in a process group of its own.
pub(super) fn shell(command: &str, work: &Path) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell
        .arg("-c")
        .arg(command)
        .env("FTLD_WORK", work)
        .env("TMPDIR", work)
        .process_group(0);
    shell
}

/// Returns how a shell ended that was reaped.
pub(super) fn end_of(status: Option<WaitStatus>) -> End {
    match status {
        Some(WaitStatus::Exited(_, code)) => End::Exit(code),
        Some(WaitStatus::Signaled(_, signal, _)) => End::Signal(signal as i32),
        _ => End::TimedOut,
    }
}

/// Removes a check's folder; returns what remains of the check, `left` included.
pub(super) fn remains(mut left: Vec<String>, folder: &Path, work: &Path) -> Option<String> {
    let removed = scratch::unmount(folder).and_then(|()| scratch::remove(work));
    left.extend(removed.err().map(|failure| failure.message));
    (!left.is_empty()).then(|| left.join(", "))
}

/// Creates an empty folder; a check before may have left one that cannot be removed.
pub(super) fn work_folder(folder: &Path) -> io::Result<PathBuf> {
    for number in 0u64.. {
        let name = match number {
            0 => "work".into(),
            number => format!("work-{number}"),
        };
        match std::fs::create_dir(folder.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder.join(name)),
        }
    }
    unreachable!("a free name")
}

/// Starts the shell in a mount namespace of its own, if the host permits one. A namespace belongs
/// to a thread, and ends with the last process in it.
pub(super) fn spawn(mut shell: Command) -> io::Result<Child> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let _ = sys::mounts::own_copy();
            shell.spawn()
        });
        thread.join().expect("the thread does not panic")
    })
}

enum Waited {
    Ended,
    TooLong,
    /// The explorer has written, or has died.
    Unwanted,
}

fn wait(
    shell: Pid,
    timeout: Duration,
    socket: &UnixStream,
    output: &mut PipeReader,
    tail: &mut Tail,
) -> io::Result<Waited> {
    let shell = rustix::process::Pid::from_raw(shell.as_raw()).expect("a process id");
    let pidfd = pidfd_open(shell, PidfdFlags::empty())?;
    let end = Instant::now() + timeout;
    let mut has_output = true;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let (ended, asked, written) = {
            let mut fds = [
                PollFd::new(&pidfd, PollFlags::IN),
                PollFd::new(socket, PollFlags::IN),
                PollFd::new(&*output, PollFlags::IN),
            ];
            let some = if has_output { 3 } else { 2 };
            match poll(&mut fds[..some], Some(&left)) {
                Ok(0) => return Ok(Waited::TooLong),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [ended, asked, written] = fds.each_ref().map(|fd| !fd.revents().is_empty());
            (ended, asked, written)
        };
        if asked {
            return Ok(Waited::Unwanted);
        }
        if ended {
            return Ok(Waited::Ended);
        }
        // Endless output does not delay the end.
        if Instant::now() >= end {
            return Ok(Waited::TooLong);
        }
        if written {
            has_output = tail.take_once(output);
        }
    }
}

/// Kills the check and all that it started, and reaps them. Returns how the shell ended, and the
/// processes that do not end.
pub(super) fn end_all(shell: Pid) -> (Option<WaitStatus>, Vec<String>) {
    // The group may be gone already.
    let _ = killpg(shell, Signal::SIGKILL);
    let (ended, left) = descendants::end_all(&[]);
    let status = ended.into_iter().find(|end| end.pid() == Some(shell));
    let name = |pid: &Pid| format!("process {pid}, which does not end");
    (status, left.iter().map(name).collect())
}

/// The last bytes of an output: at most 16 KiB.
#[derive(Default)]
pub struct Tail(VecDeque<u8>);

impl Tail {
    /// Takes a part of what is there; returns false at the end.
    pub(super) fn take_once(&mut self, output: &mut PipeReader) -> bool {
        let mut bytes = [0; OUTPUT_MAX];
        match output.read(&mut bytes) {
            Ok(0) => false,
            Ok(length) => {
                self.0.extend(&bytes[..length]);
                let over = self.0.len().saturating_sub(OUTPUT_MAX);
                self.0.drain(..over);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    /// Takes what is there; a process that could not be killed may write on.
    pub(super) fn take(&mut self, output: &mut PipeReader) {
        let reads = to_u64(OUTPUT_MAX) / 64;
        (0..to_usize(reads)).all(|_| self.take_once(output));
    }

    /// Returns them as text.
    pub fn text(self) -> String {
        let bytes: Vec<u8> = self.0.into();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
