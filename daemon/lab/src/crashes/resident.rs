//! A check that stays up, as a process: it reads a line per state, and answers with a line.
//!
//! Invariant: an answer belongs to the state that was asked last. One that ends, is late or answers
//! unasked is to be ended with all that it started.

use super::supervisor::{self, End, Tail};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
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

/// A running check that stays up.
pub struct Resident {
    shell: Pid,
    pidfd: OwnedFd,
    questions: PipeWriter,
    answers: PipeReader,
    /// Its standard error.
    output: PipeReader,
    /// What came behind its last answer.
    early: Vec<u8>,
}

/// The answer, or what came instead of it.
#[derive(Debug)]
pub enum Heard {
    /// A line, without its end.
    Line(String),
    /// It has ended.
    Ended,
    /// It has closed its standard output, and runs on.
    Closed,
    /// No answer within the time.
    TooLate,
    /// A line without an end.
    TooLong,
    /// It had answered before it was asked.
    Unasked,
    /// Who asks has written to its socket, or has died.
    Unwanted,
}

impl Resident {
    /// Starts the check. It is a child of this process, in a process group of its own.
    ///
    /// # Errors
    /// The host refuses pipes or a process.
    pub fn start(
        mut shell: Command,
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> io::Result<Resident> {
        let (its_questions, questions) = io::pipe()?;
        let (answers, its_answers) = io::pipe()?;
        let (output, its_output) = io::pipe()?;
        for pipe in [&answers, &output] {
            rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK)?;
        }
        rustix::fs::fcntl_setfl(&questions, rustix::fs::OFlags::NONBLOCK)?;
        shell
            .stdin(its_questions)
            .stdout(its_answers)
            .stderr(its_output);
        let shell = spawn(shell)?.id();
        let shell = i32::try_from(shell).expect("a process id");
        let pid = rustix::process::Pid::from_raw(shell).expect("a process id");
        Ok(Resident {
            shell: Pid::from_raw(shell),
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            questions,
            answers,
            output,
            early: Vec::new(),
        })
    }

    /// Ends the check and all other children of this process. Returns how it ended, and the
    /// processes that do not end.
    pub fn stop(self) -> (End, Vec<String>) {
        let (status, left) = supervisor::end_all(self.shell);
        (supervisor::end_of(status), left)
    }

    /// Asks about a state with a line, and waits for the answer. `tail` gets what the check writes
    /// to its standard error. What comes from `socket` ends the wait.
    ///
    /// # Errors
    /// The host refuses to wait or to read.
    pub fn hear(
        &mut self,
        question: &str,
        timeout: Duration,
        socket: Option<&UnixStream>,
        tail: &mut Tail,
    ) -> io::Result<Heard> {
        let mut early = std::mem::take(&mut self.early);
        let unasked = self.read(&mut early).is_ok() && !early.is_empty();
        let heard = match unasked {
            true => Heard::Unasked,
            false => self.wait(question.as_bytes(), timeout, socket, tail)?,
        };
        tail.take(&mut self.output);
        // A process closes its pipes before it ends.
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match heard {
            Heard::Ended if poll(&mut fds, Some(&END_MAX)) == Ok(0) => Ok(Heard::Closed),
            heard => Ok(heard),
        }
    }

    fn wait(
        &mut self,
        mut question: &[u8],
        timeout: Duration,
        socket: Option<&UnixStream>,
        tail: &mut Tail,
    ) -> io::Result<Heard> {
        let end = Instant::now() + timeout;
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
            let [answered, ended, written, asked] = {
                let mut fds = vec![
                    PollFd::new(&self.answers, PollFlags::IN),
                    PollFd::new(&self.pidfd, PollFlags::IN),
                ];
                if has_output {
                    fds.push(PollFd::new(&self.output, PollFlags::IN));
                }
                fds.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
                match poll(&mut fds, Some(&left)) {
                    Ok(0) if Instant::now() >= end => return Ok(Heard::TooLate),
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
                let of_socket = if has_output { 3 } else { 2 };
                [
                    is_ready(0),
                    is_ready(1),
                    has_output && is_ready(2),
                    is_ready(of_socket),
                ]
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

    /// Returns whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
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

impl Heard {
    /// Returns why a check that was not answering is none that stays up; `end` is how it ended.
    pub fn fault(&self, end: &End) -> Option<String> {
        match (self, end) {
            (Heard::Unasked, _) => Some("it answered before it was asked".into()),
            (Heard::TooLong, _) => Some(format!("its answer has no end after {ANSWER_MAX} bytes")),
            (Heard::Closed, _) => Some("it closed its standard output".into()),
            (Heard::Ended, End::Exit(0)) => Some(
                "it ended without an answer; with --server it reads a line per state from \
                 standard input and answers each with a line on standard output"
                    .into(),
            ),
            _ => None,
        }
    }
}
