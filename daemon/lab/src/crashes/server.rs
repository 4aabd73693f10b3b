//! A check that stays up: it reads a line per state, and answers with a line.
//!
//! Invariants: an answer belongs to the state that was asked last. A server that ends, is late or
//! answers unasked is ended with all that it started; the next state has a new one.

use super::group::nth_variable;
use super::supervisor::{self, End, Ending, Tail, Task};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest answer in bytes.
const ANSWER_MAX: usize = 16 << 10;

/// Time between two attempts to send a question.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for the end of a check that has closed its standard output.
const END_MAX: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A running check.
pub(super) struct Server {
    shell: Pid,
    pidfd: OwnedFd,
    work: PathBuf,
    questions: PipeWriter,
    answers: PipeReader,
    /// Its standard error.
    output: PipeReader,
    /// What came behind its last answer.
    early: Vec<u8>,
}

/// What came instead of an answer, or the answer.
enum Heard {
    Line(String),
    Ended,
    TooLate,
    TooLong,
    /// The explorer has written, or has died.
    Unwanted,
}

impl Server {
    /// Starts the check with an empty folder for its files.
    fn start(task: &Task, folder: &Path) -> io::Result<Server> {
        let work = supervisor::work_folder(folder)?;
        let (its_questions, questions) = io::pipe()?;
        let (answers, its_answers) = io::pipe()?;
        let (output, its_output) = io::pipe()?;
        for pipe in [&answers, &output] {
            rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK)?;
        }
        rustix::fs::fcntl_setfl(&questions, rustix::fs::OFlags::NONBLOCK)?;
        let mut shell = supervisor::shell(&task.command, &work);
        shell
            .stdin(its_questions)
            .stdout(its_answers)
            .stderr(its_output);
        let shell = supervisor::spawn(shell)?.id();
        let shell = i32::try_from(shell).expect("a process id");
        let pid = rustix::process::Pid::from_raw(shell).expect("a process id");
        Ok(Server {
            shell: Pid::from_raw(shell),
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            work,
            questions,
            answers,
            output,
            early: Vec::new(),
        })
    }

    /// Ends the check with all that it started. Returns its end, and what remains of it.
    pub(super) fn stop(self, folder: &Path) -> (End, Option<String>) {
        let (status, left) = supervisor::end_all(self.shell);
        let left = supervisor::remains(left, folder, &self.work);
        (supervisor::end_of(status), left)
    }

    /// Asks about a state, and waits for the answer.
    fn hear(
        &mut self,
        task: &Task,
        mut question: &[u8],
        socket: &UnixStream,
        tail: &mut Tail,
    ) -> io::Result<Heard> {
        let end = Instant::now() + task.timeout;
        let (mut line, mut has_output) = (Vec::new(), true);
        loop {
            question = self.send(question);
            // A check that does not read is asked again and again.
            let wait = if question.is_empty() {
                Duration::MAX
            } else {
                ASK_EVERY
            };
            let left = end.saturating_duration_since(Instant::now()).min(wait);
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let [answered, ended, asked, written] = {
                let mut fds = [
                    PollFd::new(&self.answers, PollFlags::IN),
                    PollFd::new(&self.pidfd, PollFlags::IN),
                    PollFd::new(socket, PollFlags::IN),
                    PollFd::new(&self.output, PollFlags::IN),
                ];
                let some = if has_output { 4 } else { 3 };
                match poll(&mut fds[..some], Some(&left)) {
                    Ok(0) if Instant::now() >= end => return Ok(Heard::TooLate),
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                fds.each_ref().map(|fd| !fd.revents().is_empty())
            };
            if asked {
                return Ok(Heard::Unwanted);
            }
            if written {
                has_output = tail.take_once(&mut self.output);
            }
            if answered {
                match self.read(&mut line)? {
                    Taken::Line => {
                        let end = line.iter().position(|byte| *byte == b'\n');
                        self.early = line.split_off(end.map_or(line.len(), |end| end + 1));
                        let text = String::from_utf8_lossy(&line);
                        return Ok(Heard::Line(text.trim_end().to_owned()));
                    }
                    Taken::End => return Ok(Heard::Ended),
                    Taken::Part if line.len() > ANSWER_MAX => return Ok(Heard::TooLong),
                    Taken::Part => {}
                }
            } else if ended {
                return Ok(Heard::Ended);
            }
            if Instant::now() >= end {
                return Ok(Heard::TooLate);
            }
        }
    }

    /// Sends as much as the check takes now; returns the rest. If the check has ended, so has its
    /// pipe, and there is no answer.
    fn send<'a>(&mut self, question: &'a [u8]) -> &'a [u8] {
        match self.questions.write(question) {
            Ok(taken) => &question[taken..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => question,
            Err(_) => &[],
        }
    }

    fn has_ended(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&now)) == Ok(1)
    }

    /// Takes a part of an answer.
    fn read(&mut self, line: &mut Vec<u8>) -> io::Result<Taken> {
        let mut bytes = [0; 4096];
        match self.answers.read(&mut bytes) {
            Ok(0) => Ok(Taken::End),
            Ok(length) => {
                line.extend(&bytes[..length]);
                Ok(match line.contains(&b'\n') {
                    true => Taken::Line,
                    false => Taken::Part,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Taken::Part),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Taken::Part),
            Err(error) => Err(error),
        }
    }
}

/// What a read of an answer gave.
enum Taken {
    Line,
    Part,
    End,
}

/// Asks the check about a state; starts it if it does not run. Returns `None` if the explorer does
/// not want the answer any more.
///
/// # Errors
/// The host refuses pipes or processes.
pub(super) fn ask(
    server: &mut Option<Server>,
    task: &Task,
    folder: &Path,
    socket: &UnixStream,
) -> io::Result<Option<Ending>> {
    // One that ended after its answer is no verdict on the next state.
    if let Some(ended) = server.take_if(|server| server.has_ended()) {
        ended.stop(folder);
    }
    let mut running = match server.take() {
        Some(running) => running,
        None => match Server::start(task, folder) {
            Ok(started) => started,
            Err(error) => return Ok(Some(broken(error.to_string(), String::new()))),
        },
    };
    let mut tail = Tail::default();
    let mut early = std::mem::take(&mut running.early);
    let unasked = running.read(&mut early).is_ok() && !early.is_empty();
    let paths = match supervisor::files(task, &running.work, socket) {
        Ok(files) if task.files.is_some() => files,
        Ok(_) => {
            let images = (0..task.devices).map(|device| nth_variable("FTLD_IMAGE", device));
            images
                .filter_map(std::env::var_os)
                .map(PathBuf::from)
                .collect()
        }
        Err(stop) => {
            *server = Some(running);
            return Ok(stop.end(socket).map(|end| Ending {
                end,
                output: String::new(),
                left: None,
            }));
        }
    };
    let mark = task.mark.replace(['\n', '\r'], " ");
    let mut question: String = paths
        .iter()
        .map(|path| format!("{}\t", path.display()))
        .collect();
    question += &format!("{mark}\n");
    let heard = match unasked {
        true => Ok(Heard::Unwanted),
        false => running.hear(task, question.as_bytes(), socket, &mut tail),
    };
    let heard = match heard {
        Ok(heard) => heard,
        Err(error) => {
            running.stop(folder);
            return Err(error);
        }
    };
    tail.take(&mut running.output);
    if let Heard::Line(answer) = heard {
        *server = Some(running);
        let (end, said) = match end_in(&answer) {
            Some(end) => (end, String::new()),
            None => (End::Refused, answer),
        };
        return Ok(Some(Ending {
            end,
            output: tail.text() + &said,
            left: None,
        }));
    }
    // A process closes its pipes before it ends.
    let mut fds = [PollFd::new(&running.pidfd, PollFlags::IN)];
    let runs = matches!(heard, Heard::Ended) && poll(&mut fds, Some(&END_MAX)) == Ok(0);
    let (end, left) = running.stop(folder);
    let output = tail.text();
    let ending = |end| {
        Some(Ending {
            end,
            output: output.clone(),
            left: left.clone(),
        })
    };
    Ok(match heard {
        _ if unasked => Some(broken("it answered before it was asked".into(), output)),
        Heard::Unwanted | Heard::Line(_) => None,
        Heard::TooLate => ending(End::TimedOut),
        Heard::TooLong => Some(broken(
            format!("its answer has no end after {ANSWER_MAX} bytes"),
            output,
        )),
        Heard::Ended if runs => Some(broken("it closed its standard output".into(), output)),
        Heard::Ended => match end {
            End::Exit(0) => Some(broken(
                "it ended without an answer; with --server it reads a line per state from \
                 standard input and answers each with a line on standard output"
                    .into(),
                output,
            )),
            end => ending(end),
        },
    })
}

/// Returns the end of a check that an answer names in the words of a verdict: the check ran
/// elsewhere, and its output came before.
fn end_in(answer: &str) -> Option<End> {
    let number = |words: &str| answer.strip_prefix(words)?.parse().ok();
    match answer {
        "ok" => Some(End::Exit(0)),
        _ => number("exit code ")
            .map(End::Exit)
            .or_else(|| number("ended by signal ").map(End::Signal)),
    }
}

/// The end of a check that cannot be asked.
fn broken(why: String, output: String) -> Ending {
    Ending {
        end: End::NotStarted(match output.trim() {
            "" => why,
            said => format!("{why}: {said}"),
        }),
        output,
        left: None,
    }
}
