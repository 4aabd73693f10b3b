//! Gives each state that was not checked yet to a judge.

use super::args::CrashesArgs;
use super::case::Case;
use super::check::{Checked, Verdict};
use super::flash::Dead;
use super::judge::Judge;
use super::ledger::{Kept, Known};
use super::models::State;
use super::recovery::{self, Nested};
use super::timeline::Timeline;
use ftld_kit::failure::{Failure, panic_text};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// False if an equal state of a recovery was counted before.
    pub(super) counts: bool,
    /// Of a failed state of a recovery: what its second cut means, one sentence a line.
    pub(super) explained: Vec<String>,
    /// What was found in the recovery from the state, if recoveries are cut and it was good.
    pub(super) recovered: Option<Recovered>,
}

/// The states of a recovery.
#[derive(Default)]
pub(super) struct Recovered {
    /// Keys of its states; none if the check changed nothing.
    pub(super) keys: Vec<u128>,
    /// Its states that were checked.
    pub(super) done: Vec<Done>,
    /// False if the exploration ended meanwhile.
    pub(super) is_whole: bool,
    /// The rest of it was not kept.
    pub(super) was_cut_off: bool,
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
    /// The cases that were checked, or are being checked.
    pub(super) seen: Mutex<Seen>,
    /// Which states of recoveries are checked, if any.
    pub(super) nested: Option<recovery::Plan>,
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
            nested: recovery::Plan::of(args),
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

    /// Returns the verdict of an earlier run. A good state whose recovery is to be cut has one if
    /// all states of that do.
    pub(super) fn known(&self, key: u128, is_nested: bool) -> Option<Kept> {
        let known = self.known.lock();
        let kept = known.get(&key)?;
        let plan = self.nested.as_ref().filter(|_| !is_nested && kept.passed);
        let is_whole = plan.is_none_or(|plan| {
            kept.recovery.as_ref().is_some_and(|recovery| {
                recovery.plan == plan.text
                    && recovery.keys.iter().all(|key| known.contains_key(key))
            })
        });
        is_whole.then(|| kept.clone())
    }

    /// Returns the text of a mark.
    pub(super) fn mark(&self, mark: u32) -> &str {
        &self.timeline.marks[ftld_kit::convert::index(mark)]
    }
}

/// Keys of cases. One that is the state of a recovery may be met later as that of a first cut: then
/// it is checked again for its own recovery, and not counted again.
#[derive(Default)]
pub(super) struct Seen {
    outer: HashSet<u128>,
    nested: HashSet<u128>,
}

/// How a case was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    New,
    /// As a state of a recovery.
    Nested,
    Again,
}

impl Seen {
    /// Returns whether a first cut has left this.
    pub(super) fn contains(&self, key: u128) -> bool {
        self.outer.contains(&key)
    }

    /// Notes that a case is being checked.
    pub(super) fn meet(&mut self, key: u128, is_nested: bool) -> Met {
        if is_nested {
            return match !self.outer.contains(&key) && self.nested.insert(key) {
                true => Met::New,
                false => Met::Again,
            };
        }
        match (self.outer.insert(key), self.nested.contains(&key)) {
            (false, _) => Met::Again,
            (true, true) => Met::Nested,
            (true, false) => Met::New,
        }
    }
}

/// What [`Worker::check_new`] found.
struct New {
    key: u128,
    found: Found,
    counts: bool,
    recovered: Option<Recovered>,
}

/// A judge, and what was judged before.
pub(super) struct Worker<J> {
    shared: Arc<Shared>,
    pub(super) judge: J,
    /// The last state that was mounted.
    near: Option<State>,
}

impl<J: Judge> Worker<J> {
    /// Nothing is judged yet.
    pub(super) fn new(shared: &Arc<Shared>, judge: J) -> Worker<J> {
        Worker {
            shared: shared.clone(),
            judge,
            near: None,
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
            counts: true,
            explained: Vec::new(),
            recovered: None,
        };
        if shared.is_over() {
            return Ok(done(None, Found::Skipped));
        }
        let state = match work.state {
            Source::State(state) => state,
            Source::Flash(dead) => match mounted(*dead, &shared.timeline, self.near.as_ref()) {
                Ok(state) => self.near.insert(state).clone(),
                Err(why) => {
                    let checked = Checked {
                        verdict: Verdict::NotMounted(why.message),
                        output: String::new(),
                    };
                    return Ok(done(None, self.counted(Found::Checked(checked))));
                }
            },
        };
        let new = self.check_new(&state, work.mark, &work.case)?;
        let spent = new.recovered.iter().flat_map(|of| &of.done);
        let spent: Duration = spent.map(|done| done.took).sum();
        let done = done(Some(new.key), new.found);
        Ok(Done {
            took: done.took.saturating_sub(spent),
            counts: new.counts,
            recovered: new.recovered,
            ..done
        })
    }

    /// Counts a failed state, unless enough had failed before.
    fn counted(&self, found: Found) -> Found {
        let is_failure = matches!(&found, Found::Checked(of) if self.shared.fails(of));
        match is_failure && !self.shared.count_failure() {
            true => Found::Skipped,
            false => found,
        }
    }

    /// Checks a state, unless an equal one was checked, and the states of its recovery.
    fn check_new(&mut self, state: &State, mark: Option<u32>, case: &Case) -> Result<New, Failure> {
        let shared = self.shared.clone();
        let key = shared.key(state, mark);
        let met = shared.seen.lock().meet(key, case.is_nested());
        let mut new = New {
            key,
            found: Found::Equal,
            counts: met == Met::New,
            recovered: None,
        };
        if met == Met::Again {
            return Ok(new);
        }
        if let Some(kept) = shared.known(key, case.is_nested()) {
            new.found = Found::Known(kept);
            return Ok(new);
        }
        let checked = self.check(state, mark, case, || shared.is_over())?;
        let is_good = checked.as_ref().is_some_and(|of| of.verdict.passed());
        if is_good && !case.is_nested() {
            new.recovered = self.recover(state, mark, case)?;
        }
        let found = checked.map_or(Found::Skipped, Found::Checked);
        new.found = match new.counts {
            true => self.counted(found),
            false => found,
        };
        Ok(new)
    }

    /// Checks the states of the recovery from a state that was just found good.
    fn recover(
        &mut self,
        state: &State,
        mark: Option<u32>,
        outer: &Case,
    ) -> Result<Option<Recovered>, Failure> {
        let shared = self.shared.clone();
        let Some(plan) = &shared.nested else {
            return Ok(None);
        };
        let recovery = self.judge.recovery()?;
        let mut recovered = Recovered {
            is_whole: true,
            was_cut_off: recovery.was_cut_off,
            ..Recovered::default()
        };
        let Some(nested) = Nested::of(&shared.timeline, state, recovery)? else {
            return Ok(Some(recovered));
        };
        for (inner, state) in nested.states(plan)? {
            let began = Instant::now();
            recovered.keys.push(shared.key(&state, mark));
            let case = Case::of_recovery(outer, inner.clone());
            let new = match shared.is_over() {
                true => None,
                false => Some(self.check_new(&state, mark, &case)?),
            };
            let Some(new) = new.filter(|new| !matches!(new.found, Found::Skipped)) else {
                recovered.is_whole = false;
                break;
            };
            let has_failed = matches!(&new.found, Found::Checked(of) if !of.verdict.passed());
            recovered.done.push(Done {
                case,
                mark,
                key: Some(new.key),
                verdict: new.found,
                took: began.elapsed(),
                counts: new.counts,
                explained: match has_failed {
                    true => nested.explain(&inner),
                    false => Vec::new(),
                },
                recovered: None,
            });
        }
        Ok(Some(recovered))
    }

    /// Returns the recovery from a state that was just found good; `None` if it changed nothing.
    ///
    /// # Errors
    /// It cannot be read, or the scratch folder is full.
    pub(super) fn nested<'a>(
        &mut self,
        of: &'a Timeline,
        state: &'a State,
    ) -> Result<Option<Nested<'a>>, Failure> {
        Nested::of(of, state, self.judge.recovery()?)
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
fn mounted(dead: Dead, timeline: &Timeline, near: Option<&State>) -> Result<State, Failure> {
    let mount = AssertUnwindSafe(|| dead.mount(timeline, near));
    catch_unwind(mount).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(Failure::failed(format!("panic: {text}")))
    })
}
