//! A check that stays up and finds each state mounted: asked, and the state unmounted after its
//! answer. The same on the host and in a machine.

use super::checks::CANNOT_RUN;
use ftld_kit::failure::Failure;
use ftld_lab::crashes::{End, Heard, Resident, Tail};
use nix::errno::Errno;
use nix::mount::umount;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for an answer: who asks for the verdict ends the check before.
const ANSWER_MAX: Duration = Duration::from_secs(86_400);
/// Longest wait for a state whose files are in use.
const IN_USE_MAX: Duration = Duration::from_secs(10);
/// The same after an answer: a check may close its files a little later.
const CLOSE_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The verdict on a state as a line, or the exit code of a check that cannot be run.
pub(super) type Verdict = Result<String, i32>;

/// A check that stays up.
pub(super) struct StaysUp<'a> {
    start: &'a dyn Fn() -> Result<Resident, Failure>,
    running: Option<Resident>,
}

impl<'a> StaysUp<'a> {
    /// Nothing runs yet. `start` starts the check.
    pub(super) fn new(start: &'a dyn Fn() -> Result<Resident, Failure>) -> StaysUp<'a> {
        StaysUp {
            start,
            running: None,
        }
    }

    /// Asks about the state that is mounted at a folder, and unmounts it. `show` gets what the
    /// check writes to its standard error.
    ///
    /// # Errors
    /// The check cannot be started, or the state cannot be unmounted.
    pub(super) fn judge(
        &mut self,
        folder: &Path,
        mark: &str,
        show: &dyn Fn(&[u8]),
    ) -> Result<Verdict, Failure> {
        let verdict = self.ask(folder, mark, show);
        let patience = match self.running {
            Some(_) => CLOSE_MAX,
            None => IN_USE_MAX,
        };
        let unmounted = unmount(folder, patience);
        match (unmounted, self.running.take()) {
            (Ok(()), running) => {
                self.running = running;
                verdict
            }
            (Err(Errno::EBUSY), Some(running)) => {
                running.stop();
                let unmounted = unmount(folder, IN_USE_MAX);
                unmounted.map_err(|errno| Failure::io("umount", &errno.into()))?;
                let answer = verdict?.unwrap_or_else(|code| format!("exit code {code}"));
                Ok(Ok(format!(
                    "the check answered {answer:?}, and still uses the state: each answer has to \
                     come after its files are closed"
                )))
            }
            (Err(errno), _) => Err(Failure::io("umount", &errno.into())),
        }
    }

    fn ask(&mut self, folder: &Path, mark: &str, show: &dyn Fn(&[u8])) -> Result<Verdict, Failure> {
        let failed = |error: io::Error| Failure::io("the check", &error);
        // One that ended after its answer is no verdict on the next state.
        if let Some(ended) = self.running.take_if(|running| running.has_ended()) {
            ended.stop();
        }
        let mut running = match self.running.take() {
            Some(running) => running,
            None => (self.start)()?,
        };
        let question = format!("{}\t{mark}\n", folder.display());
        let mut tail = Tail::default();
        let heard = running.hear(&question, ANSWER_MAX, None, &mut tail);
        show(tail.text().as_bytes());
        let heard = match heard {
            Ok(Heard::Line(answer)) => {
                self.running = Some(running);
                return Ok(Ok(answer));
            }
            Ok(heard) => heard,
            Err(error) => {
                running.stop();
                return Err(failed(error));
            }
        };
        let (end, _) = running.stop();
        if let Some(why) = heard.fault(&end) {
            show(format!("{why}\n").as_bytes());
            return Ok(Err(CANNOT_RUN));
        }
        Ok(match end {
            End::Exit(code @ (126 | 127)) => Err(code),
            End::Exit(code) => Ok(format!("exit code {code}")),
            End::Signal(signal) => Ok(format!("ended by signal {signal}")),
            _ => Ok("it ended without an answer".into()),
        })
    }
}

impl Drop for StaysUp<'_> {
    fn drop(&mut self) {
        self.running.take().map(Resident::stop);
    }
}

/// Unmounts a folder once nobody uses it any more.
fn unmount(folder: &Path, patience: Duration) -> nix::Result<()> {
    let end = Instant::now() + patience;
    loop {
        match umount(folder) {
            Err(Errno::EBUSY) if Instant::now() < end => std::thread::sleep(LOOK_EVERY),
            done => return done,
        }
    }
}
