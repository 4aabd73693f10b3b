//! COMMAND: its output, its marks, and the processes that it leaves. The same on the host and in a
//! machine.
//!
//! A line `ACK text` on its standard output asks for a mark. Once the recording has it, COMMAND
//! reads the line `OK`, or `ERROR` and a reason. Standard input has nothing else.

use super::device;
use ftld_device::instance::Dirs;
use ftld_kit::failure::Failure;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Time between two looks whether COMMAND has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time after which COMMAND hears that it has set no mark.
const HINT_AFTER: Duration = Duration::from_secs(5);
/// A program that waits for an answer while its own line is in a buffer waits for ever.
const NO_MARK_YET: &[u8] =
    b"ftld: COMMAND runs, and has set no mark yet: does it flush its output after `ACK`?\n";
/// Longest line that may ask for a mark.
const ACK_MAX: usize = 64 << 10;

/// What is run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Job {
    /// COMMAND and its arguments, with [`PLACE`] for where it works.
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// Its working folder.
    folder: OsString,
}

/// Stands for the mounted folder, or the device; with several, for the first one.
const PLACE: &[u8] = b"{}";

/// Returns the first place in the bytes that names one of so many devices: its position and length,
/// and the device, from 0. With several devices `{2}` is the second one.
fn place_in(bytes: &[u8], devices: usize) -> Option<(usize, usize, usize)> {
    (0..bytes.len()).find_map(|at| match bytes[at..] {
        [b'{', b'}', ..] => Some((at, PLACE.len(), 0)),
        [b'{', digit @ b'1'..=b'9', b'}', ..] if devices > 1 => {
            let device = usize::from(digit - b'1');
            (device < devices).then_some((at, PLACE.len() + 1, device))
        }
        _ => None,
    })
}

/// Returns whether a word has the place of a device, from 0, among so many.
pub(super) fn has_place(word: &OsStr, device: usize, devices: usize) -> bool {
    let mut rest = word.as_bytes();
    while let Some((at, length, found)) = place_in(rest, devices) {
        if found == device {
            return true;
        }
        rest = &rest[at + length..];
    }
    false
}

impl Job {
    /// Returns what is run here, by a user of the device in `dirs`.
    ///
    /// # Errors
    /// There is no working folder.
    pub(super) fn of(words: &[OsString], dirs: &Dirs) -> Result<Job, Failure> {
        Job::with(words, |environment| {
            device::environment(dirs, &mut |name, value| match value {
                None => drop(environment.remove(OsStr::new(name))),
                Some(value) => drop(environment.insert(name.into(), value.into())),
            });
        })
    }

    /// Returns what is run here with this environment changed.
    ///
    /// # Errors
    /// There is no working folder.
    pub(super) fn with(
        words: &[OsString],
        change: impl FnOnce(&mut BTreeMap<OsString, OsString>),
    ) -> Result<Job, Failure> {
        let failed = |error| Failure::io("the working folder", &error);
        let mut environment: BTreeMap<_, _> = std::env::vars_os().collect();
        change(&mut environment);
        Ok(Job {
            words: words.to_vec(),
            environment: environment.into_iter().collect(),
            folder: std::env::current_dir().map_err(failed)?.into(),
        })
    }

    /// Returns the command, with the places of the devices in it if there are any.
    pub(super) fn command(&self, places: &[PathBuf]) -> Command {
        let mut words = self.words.iter().map(|word| match places {
            [] => word.clone(),
            places => put(word, places),
        });
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder);
        command
    }
}

/// Returns a word with the places in it.
fn put(word: &OsStr, places: &[PathBuf]) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some((at, length, device)) = place_in(rest, places.len()) {
        bytes.extend([&rest[..at], places[device].as_os_str().as_bytes()].concat());
        rest = &rest[at + length..];
    }
    bytes.extend(rest);
    OsString::from_vec(bytes)
}

/// End of COMMAND.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// Its exit code; 128 and the signal that ended it.
    pub(super) code: i32,
    /// Processes that it left, which were killed.
    pub(super) left: usize,
}

/// Runs COMMAND to its end. `show` gets its output, `mark` the texts of marks. `is_over` ends it
/// early. `end_left` ends the processes that it left outside its group, and returns their number.
///
/// # Errors
/// COMMAND cannot be started, or a mark cannot be set.
pub(super) fn run(
    mut command: Command,
    show: &(dyn Fn(&[u8]) + Sync),
    mark: &mut (dyn FnMut(&str) -> Result<(), Failure> + Send),
    is_over: &dyn Fn() -> bool,
    end_left: &dyn Fn() -> usize,
) -> Result<Outcome, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| Failure::io(format!("COMMAND {name}"), &error))?;
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    let (answers, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(answers), Some(output), Some(errors)) = (answers, output, errors) else {
        unreachable!("three pipes");
    };
    let (asked, mut hint) = (AtomicBool::new(false), Some(Instant::now() + HINT_AFTER));
    let mut first_noted = |text: &str| {
        asked.store(true, Relaxed);
        mark(text)
    };
    std::thread::scope(|scope| {
        scope.spawn(move || copy(errors, show));
        let (answer, answered) = channel();
        let mark = &mut first_noted;
        let marks = scope.spawn(move || listen(output, &answer, show, mark));
        scope.spawn(move || give(answered, answers));
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if is_over() => break child.kill().and_then(|()| child.wait()),
                Ok(None) => std::thread::sleep(LOOK_EVERY),
                Err(error) => break Err(error),
            }
            if hint.take_if(|at| Instant::now() >= *at).is_some() && !asked.load(Relaxed) {
                show(NO_MARK_YET);
            }
        };
        let _ = killpg(group, Signal::SIGKILL);
        let left = end_left();
        marks.join().expect("the thread does not panic")?;
        let status = status.map_err(|error| Failure::io(format!("COMMAND {name}"), &error))?;
        let code = code_of(status);
        Ok(Outcome { code, left })
    })
}

/// Runs a check to its end, and returns its exit code; 128 and the signal that ended it. `show` and
/// `end_left` are as in [`run`].
///
/// # Errors
/// The check cannot be started.
pub(super) fn run_check(
    mut command: Command,
    show: &(dyn Fn(&[u8]) + Sync),
    end_left: &dyn Fn() -> usize,
) -> Result<i32, Failure> {
    let failed = |error| Failure::io("the check", &error);
    let (output, its) = io::pipe().map_err(failed)?;
    command
        .stdin(Stdio::null())
        .stdout(its.try_clone().map_err(failed)?)
        .stderr(its)
        .process_group(0);
    let child = command.spawn().map_err(failed);
    // The last one that has the pipe is the check.
    drop(command);
    let mut child = child?;
    std::thread::scope(|scope| {
        scope.spawn(move || copy(output, show));
        let status = child.wait().map_err(failed);
        let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        let _ = killpg(group, Signal::SIGKILL);
        end_left();
        status.map(code_of)
    })
}

/// Returns the exit code as a shell says it: 128 and the signal that ended the process.
fn code_of(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

/// Passes all that COMMAND writes on.
fn copy(mut from: impl Read, show: &(dyn Fn(&[u8]) + Sync)) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        show(&bytes[..length]);
    }
}

/// Writes answers. COMMAND may read them late or never, and its output goes on meanwhile.
fn give(answers: impl IntoIterator<Item = String>, mut to: impl Write) {
    for answer in answers {
        if to.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Passes output on, and answers the lines in it that ask for a mark.
///
/// # Errors
/// The first mark that cannot be set.
fn listen(
    mut output: impl Read,
    answers: &Sender<String>,
    show: &(dyn Fn(&[u8]) + Sync),
    mark: &mut (dyn FnMut(&str) -> Result<(), Failure> + Send),
) -> Result<(), Failure> {
    let (mut lines, mut first) = (Lines::default(), Ok(()));
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = output.read(&mut bytes) {
        lines.take(&bytes[..length], &mut |part| match part {
            Part::Text(text) => show(text),
            Part::Ack(text) => {
                let done = mark(&text);
                let answer = match &done {
                    Ok(()) => "OK\n".to_owned(),
                    Err(failure) => format!("ERROR {failure}\n"),
                };
                // If COMMAND cannot read it any more, it does not wait either.
                let _ = answers.send(answer);
                if first.is_ok() {
                    first = done;
                }
            }
        });
    }
    show(&lines.held);
    first
}

/// A part of COMMAND's standard output.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text(&'a [u8]),
    /// The text of a mark.
    Ack(String),
}

/// Finds lines that ask for a mark. Nothing else waits for the end of its line.
struct Lines {
    /// Begin of a line that may ask for one.
    held: Vec<u8>,
    is_at_start: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Lines {
            held: Vec::new(),
            is_at_start: true,
        }
    }
}

impl Lines {
    fn take(&mut self, bytes: &[u8], give: &mut dyn FnMut(Part<'_>)) {
        let mut all = std::mem::take(&mut self.held);
        all.extend(bytes);
        let mut rest = &all[..];
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let line = &rest[..end.unwrap_or(rest.len())];
            let may_ask = b"ACK ".starts_with(line) || line.starts_with(b"ACK ");
            if self.is_at_start && may_ask {
                match (end, line) {
                    (None, _) if line.len() <= ACK_MAX => {
                        self.held = line.to_vec();
                        return;
                    }
                    (Some(_), b"ACK" | [b'A', b'C', b'K', b' ', ..]) => {
                        let text = String::from_utf8_lossy(line.get(4..).unwrap_or_default());
                        give(Part::Ack(text.trim_end().to_owned()));
                        rest = &rest[line.len() + 1..];
                        continue;
                    }
                    _ => {}
                }
            }
            let length = end.map_or(rest.len(), |end| end + 1);
            give(Part::Text(&rest[..length]));
            self.is_at_start = end.is_some();
            rest = &rest[length..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text and the marks of an output that arrives in pieces.
    fn parts(pieces: &[&str]) -> (String, Vec<String>) {
        let (mut lines, mut text, mut marks) = (Lines::default(), String::new(), Vec::new());
        for piece in pieces {
            lines.take(piece.as_bytes(), &mut |part| match part {
                Part::Text(part) => text += std::str::from_utf8(part).unwrap(),
                Part::Ack(mark) => marks.push(mark),
            });
        }
        text += std::str::from_utf8(&lines.held).unwrap();
        (text, marks)
    }

    #[test]
    fn only_whole_lines_that_begin_with_ack_ask_for_a_mark() {
        let whole = "one\nACK 1\nACK row 2 \r\n ACK 3\nACKS 4\nACK\nno ACK 5\nACK 6";
        let wanted = ["1", "row 2", ""].map(str::to_owned).to_vec();
        let rest = "one\n ACK 3\nACKS 4\nno ACK 5\nACK 6";
        assert_eq!(parts(&[whole]), (rest.into(), wanted.clone()));
        for at in 1..whole.len() {
            let (one, other) = whole.split_at(at);
            assert_eq!(parts(&[one, other]), (rest.into(), wanted.clone()), "{at}");
        }
    }

    #[test]
    fn a_prompt_without_an_end_of_line_is_shown_at_once() {
        let mut lines = Lines::default();
        let mut shown = Vec::new();
        lines.take(b"ready> ", &mut |part| shown.push(format!("{part:?}")));
        assert_eq!(shown.len(), 1);
        lines.take(b"ACK ", &mut |part| shown.push(format!("{part:?}")));
        assert_eq!(shown.len(), 2, "it is not at the start of a line");
        let long = "ACK ".to_owned() + &"x".repeat(ACK_MAX + 1);
        assert_eq!(parts(&[&long]), (long, Vec::new()));
    }

    /// Runs a shell command that gets no mark with "wrong" in it.
    fn run_shell(text: &str) -> (Result<Outcome, Failure>, String, Vec<String>) {
        let (shown, mut marks) = (std::sync::Mutex::new(Vec::new()), Vec::new());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", text]);
        let show = |bytes: &[u8]| shown.lock().unwrap().extend(bytes);
        let mut mark = |text: &str| {
            marks.push(text.to_owned());
            match text.contains("wrong") {
                true => Err(Failure::failed("not this one")),
                false => Ok(()),
            }
        };
        let end = Instant::now() + Duration::from_secs(30);
        let done = run(shell, &show, &mut mark, &|| Instant::now() > end, &|| 1);
        let shown = String::from_utf8(shown.into_inner().unwrap()).unwrap();
        (done, shown, marks)
    }

    #[test]
    fn marks_are_answered_and_what_command_leaves_is_ended() {
        let ask = "echo ACK 1; read a; echo $a; sleep 100 & echo more >&2; exit 3";
        let (done, shown, marks) = run_shell(ask);
        assert_eq!(done.unwrap(), Outcome { code: 3, left: 1 });
        assert_eq!(marks, ["1"]);
        assert!(
            shown.contains("OK\n") && shown.contains("more\n"),
            "{shown}"
        );
        let (done, shown, _) = run_shell("echo ACK wrong; read a; echo $a; kill -9 $$");
        assert_eq!(done.unwrap_err().message, "not this one");
        assert!(shown.contains("ERROR not this one"), "{shown}");
        assert_eq!(run_shell("kill -9 $$").0.unwrap().code, 137);
    }

    #[test]
    fn a_command_that_never_reads_its_answers_is_not_held_up() {
        // More answers than a pipe has room for.
        let (done, _, marks) = run_shell("seq -f 'ACK %.0f' 30000");
        assert_eq!(done.unwrap().code, 0);
        assert_eq!(marks.len(), 30_000);
    }

    #[test]
    fn the_place_is_put_wherever_a_word_names_it() {
        let places = ["/mnt", "/two"].map(PathBuf::from);
        for (word, wanted, of_two) in [
            ("{}", "/mnt", "/mnt"),
            ("a{}b{}", "a/mntb/mnt", "a/mntb/mnt"),
            ("{{}}", "{/mnt}", "{/mnt}"),
            ("{", "{", "{"),
            ("{2}:{1}", "{2}:{1}", "/two:/mnt"),
            ("{3}{0}", "{3}{0}", "{3}{0}"),
            ("{{2}", "{{2}", "{/two"),
        ] {
            assert_eq!(put(word.as_ref(), &places[..1]), wanted);
            assert_eq!(put(word.as_ref(), &places), of_two);
            assert_eq!(has_place(word.as_ref(), 0, 1), word != wanted, "{word}");
            for (device, place) in ["/mnt", "/two"].into_iter().enumerate() {
                let has = has_place(word.as_ref(), device, 2);
                assert_eq!(has, of_two.contains(place), "{word}, {device}");
            }
        }
    }

    #[test]
    fn names_that_are_no_utf8_reach_the_machine() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\n']);
        let job = Job {
            words: vec![odd.clone()],
            environment: vec![("A".into(), odd.clone())],
            folder: odd,
        };
        let text = serde_json::to_vec(&job).unwrap();
        let read: Job = serde_json::from_slice(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{job:?}"));
    }

    #[test]
    fn a_missing_command_is_named() {
        let none = Command::new("/nowhere/at-all");
        let failed = run(none, &|_| {}, &mut |_| Ok(()), &|| false, &|| 0);
        assert!(
            failed
                .unwrap_err()
                .message
                .contains("/nowhere/at-all: No such")
        );
    }
}
