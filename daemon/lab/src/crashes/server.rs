//! A check that stays up, asked for a job's states one after the other.
//!
//! Invariant: one that ends, is late or answers unasked is ended with all that it started; the next
//! state has a new one.

use super::group::nth_variable;
use super::resident::{Heard, Resident};
use super::supervisor::{self, End, Ending, Tail, Task};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A running check, and its folder.
pub(super) struct Server {
    check: Resident,
    work: PathBuf,
}

impl Server {
    /// Starts the check with an empty folder for its files.
    fn start(task: &Task, folder: &Path) -> io::Result<Server> {
        let work = supervisor::work_folder(folder)?;
        let shell = supervisor::shell(&task.command, &work);
        let check = Resident::start(shell, supervisor::spawn)?;
        Ok(Server { check, work })
    }

    /// Ends the check with all that it started. Returns its end, and what remains of it.
    pub(super) fn stop(self, folder: &Path) -> (End, Option<String>) {
        let (end, left) = self.check.stop();
        (end, supervisor::remains(left, folder, &self.work))
    }
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
    if let Some(ended) = server.take_if(|server| server.check.has_ended()) {
        ended.stop(folder);
    }
    let mut running = match server.take() {
        Some(running) => running,
        None => match Server::start(task, folder) {
            Ok(started) => started,
            Err(error) => return Ok(Some(broken(error.to_string(), String::new()))),
        },
    };
    let paths = match supervisor::files(task, &running.work, socket) {
        Ok(files) if task.files.is_some() => files,
        Ok(_) => {
            let images = (0..task.devices).map(|device| nth_variable("FTLD_IMAGE", device));
            let images = images.filter_map(std::env::var_os);
            images.map(PathBuf::from).collect()
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
    let question = question(task, &paths);
    let mut tail = Tail::default();
    let heard = running
        .check
        .hear(&question, task.timeout, Some(socket), &mut tail);
    let heard = match heard {
        Ok(heard) => heard,
        Err(error) => {
            running.stop(folder);
            return Err(error);
        }
    };
    if let Heard::Line(answer) = heard {
        *server = Some(running);
        let (end, said) = match end_in(&answer, task.mounts) {
            Some(end) => (end, String::new()),
            None => (End::Refused, answer),
        };
        return Ok(Some(Ending {
            end,
            output: tail.text() + &said,
            left: None,
        }));
    }
    let (end, left) = running.stop(folder);
    let output = tail.text();
    if let Some(why) = heard.fault(&end) {
        return Ok(Some(broken(why, output)));
    }
    let end = match heard {
        Heard::Unwanted => return Ok(None),
        Heard::TooLate => End::TimedOut,
        _ => end,
    };
    Ok(Some(Ending { end, output, left }))
}

/// Returns the line that asks about a state: its paths and the mark, or path, case and mark.
fn question(task: &Task, paths: &[PathBuf]) -> String {
    let mark = task.mark.replace(['\n', '\r'], " ");
    let mut words: Vec<String> = paths.iter().map(|of| of.display().to_string()).collect();
    words.extend(task.mounts.then(|| task.case.clone()));
    words.push(mark);
    words.join("\t") + "\n"
}

/// Returns the end of a check that an answer names: `ok`, or of one that mounts the states the
/// words of a verdict, since the user's check ran elsewhere and its output came before.
fn end_in(answer: &str, mounts: bool) -> Option<End> {
    let number = |words: &str| answer.strip_prefix(words)?.parse().ok();
    match answer {
        "ok" => Some(End::Exit(0)),
        _ if !mounts => None,
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
