//! Gives each state that was not checked yet to a judge.

use super::args::CrashesArgs;
use super::case::Case;
use super::check::{Checked, Verdict};
use super::flash::Dead;
use super::judge::Judge;
use super::ledger::{Kept, Known};
use super::models::State;
use super::timeline::Timeline;
use ftld_kit::failure::Failure;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// One case to check.
pub(super) struct Work {
    pub(super) case: Case,
    pub(super) mark: Option<u32>,
    pub(super) state: Source,
}

/// Where a state comes from.
pub(super) enum Source {
    State(State),
    /// Still to be mounted.
    Flash(Box<Dead>),
}

/// Result of one case.
pub(super) struct Done {
    pub(super) case: Case,
    pub(super) mark: Option<u32>,
    /// Key of content and mark: cases with equal keys are equal; `None` if there is no content.
    pub(super) key: Option<u128>,
    pub(super) verdict: Found,
    pub(super) took: Duration,
}

/// Result of a worker for a case.
pub(super) enum Found {
    /// An equal case was checked before, or is being checked.
    Equal,
    /// An earlier run checked an equal case.
    Known(Kept),
    Checked(Checked),
    /// The exploration had ended.
    Skipped,
}

/// State that all workers share.
pub(super) struct Shared {
    pub(super) timeline: Arc<Timeline>,
    /// Keys of the cases that were checked, or are being checked.
    pub(super) seen: Mutex<HashSet<u128>>,
    /// Verdicts of earlier runs.
    pub(super) known: Mutex<Known>,
    /// Whether the user has interrupted.
    interrupted: Arc<AtomicBool>,
    /// Whether a check could not be run.
    broken: AtomicBool,
    /// Failed states so far, and how many end the exploration; 0 for never.
    failures: AtomicU64,
    failures_max: u64,
    /// Failures whose output contains one of these texts do not count.
    ignored: Vec<String>,
    /// When the time of the exploration is up.
    end: Option<Instant>,
}

impl Shared {
    /// Nothing is checked yet.
    pub(super) fn new(
        timeline: impl Into<Arc<Timeline>>,
        args: &CrashesArgs,
        interrupted: Arc<AtomicBool>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            timeline: timeline.into(),
            seen: Mutex::default(),
            known: Mutex::default(),
            interrupted,
            broken: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            failures_max: args.failures,
            ignored: args.ignore.clone(),
            end: args.time.map(|time| Instant::now() + time),
        })
    }

    /// Returns whether nothing more is to be checked: what waits is skipped, and running checks
    /// end.
    pub(super) fn is_over(&self) -> bool {
        self.is_interrupted() || self.has_enough() || self.time_is_up() || self.broken.load(Relaxed)
    }

    /// Returns whether the exploration has had its time.
    pub(super) fn time_is_up(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns whether a state failed as the user knows that it does.
    pub(super) fn ignores(&self, checked: &Checked) -> bool {
        !checked.verdict.passed() && self.ignores_said(&checked.verdict.text(), &checked.output)
    }

    pub(super) fn ignores_said(&self, said: &str, output: &str) -> bool {
        self.ignores_text(said) || self.ignores_text(output)
    }

    fn ignores_text(&self, output: &str) -> bool {
        self.ignored.iter().any(|text| output.contains(text))
    }

    /// Returns whether a state failed in a way that counts.
    pub(super) fn fails(&self, checked: &Checked) -> bool {
        !checked.verdict.passed() && !self.ignores(checked)
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Returns whether enough states have failed.
    pub(super) fn has_enough(&self) -> bool {
        self.failures_max > 0 && self.failures.load(Relaxed) >= self.failures_max
    }

    /// Counts a failed state; returns false if enough had failed before.
    pub(super) fn count_failure(&self) -> bool {
        let before = self.failures.fetch_add(1, Relaxed);
        self.failures_max == 0 || before < self.failures_max
    }

    /// Ends the exploration, because a check could not be run.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Relaxed);
    }

    /// Returns what identifies a state with its obligation.
    pub(super) fn key(&self, state: &State, mark: Option<u32>) -> u128 {
        let text = mark.map_or("", |mark| self.mark(mark));
        let mark = u128::from(XxHash3_64::oneshot(text.as_bytes()));
        state.sum ^ (mark | mark << 64)
    }

    /// Returns the verdict of an earlier run.
    pub(super) fn known(&self, key: u128) -> Option<Kept> {
        self.known.lock().get(&key).cloned()
    }

    /// Returns the text of a mark.
    pub(super) fn mark(&self, mark: u32) -> &str {
        &self.timeline.marks[ftld_kit::convert::index(mark)]
    }
}

/// A judge, and what was judged before.
pub(super) struct Worker<J> {
    shared: Arc<Shared>,
    pub(super) judge: J,
}

impl<J: Judge> Worker<J> {
    /// Nothing is judged yet.
    pub(super) fn new(shared: &Arc<Shared>, judge: J) -> Worker<J> {
        Worker {
            shared: shared.clone(),
            judge,
        }
    }

    /// Ends the exploration, because a check could not be run.
    pub(super) fn give_up(&self) {
        self.shared.give_up();
    }

    /// Checks one case, unless an equal one was checked.
    ///
    /// # Errors
    /// The judge cannot judge.
    pub(super) fn run(&mut self, work: Work) -> Result<Done, Failure> {
        let began = Instant::now();
        let shared = self.shared.clone();
        let done = |key, verdict| Done {
            case: work.case.clone(),
            mark: work.mark,
            key,
            verdict,
            took: began.elapsed(),
        };
        if shared.is_over() {
            return Ok(done(None, Found::Skipped));
        }
        let (key, checked) = match work.state {
            Source::State(state) => self.check_new(&state, work.mark, &work.case)?,
            Source::Flash(dead) => match mounted(*dead, &shared.timeline) {
                Ok(state) => self.check_new(&state, work.mark, &work.case)?,
                Err(why) => {
                    let checked = Checked {
                        verdict: Verdict::NotMounted(why.message),
                        output: String::new(),
                    };
                    (None, Found::Checked(checked))
                }
            },
        };
        let is_failure = matches!(&checked, Found::Checked(of) if shared.fails(of));
        if is_failure && !shared.count_failure() {
            return Ok(done(key, Found::Skipped));
        }
        Ok(done(key, checked))
    }

    /// Checks a state, unless an equal one was checked. Returns also its key.
    fn check_new(
        &mut self,
        state: &State,
        mark: Option<u32>,
        case: &Case,
    ) -> Result<(Option<u128>, Found), Failure> {
        let shared = self.shared.clone();
        let key = shared.key(state, mark);
        if !shared.seen.lock().insert(key) {
            return Ok((Some(key), Found::Equal));
        }
        if let Some(kept) = shared.known(key) {
            return Ok((Some(key), Found::Known(kept)));
        }
        let checked = self.check(state, mark, case, || shared.is_over())?;
        Ok((Some(key), checked.map_or(Found::Skipped, Found::Checked)))
    }

    /// Judges a state; returns `None` once `unwanted` is true.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub(super) fn check(
        &mut self,
        state: &State,
        mark: Option<u32>,
        case: &Case,
        unwanted: impl Fn() -> bool,
    ) -> Result<Option<Checked>, Failure> {
        let mark = mark.map(|mark| self.shared.mark(mark));
        self.judge.judge(state, mark, case, &unwanted)
    }
}

/// Mounts a flash. A scheme that panics does not mount it.
fn mounted(dead: Dead, timeline: &Timeline) -> Result<State, Failure> {
    let mount = AssertUnwindSafe(|| dead.mount(timeline));
    std::panic::catch_unwind(mount).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::failed(format!(
            "panic: {}",
            text.unwrap_or("without a text")
        )))
    })
}
