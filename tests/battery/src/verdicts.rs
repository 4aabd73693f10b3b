//! The cases of a battery that run, their failures, and the commands that repeat them.
//!
//! A case has a path, `scheme/cells/workload/...`. A failure names the path of its case and a
//! command that runs this case alone. A battery with the same [`Budget`] runs the same cases.

use crate::place;
use ftl_core::Params;
use ftl_core::author::contract;
use nand_model::SplitMix;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Length of each sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Length {
    /// Seconds per battery and scheme: the default of [`judge`](crate::judge).
    #[default]
    Brief,
    /// As in continuous integration.
    Short,
    /// Acceptance: every operation, every outcome.
    Long,
}

/// The visited share of a sweep's places: `taken` of `of`, chosen by the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Out of every `of` places, how many are visited on average.
    pub taken: u64,
    /// Places among which `taken` are drawn; at least 1.
    pub of: u64,
}

impl Share {
    /// Every place.
    pub const WHOLE: Share = Share { taken: 1, of: 1 };

    /// Whether a sample with this seed contains a place.
    fn contains(self, seed: u64, place: &str) -> bool {
        self.taken >= self.of || {
            let name = crc32c::crc32c(place.as_bytes());
            SplitMix::new(seed << 32 ^ u64::from(name)).below(self.of) < self.taken
        }
    }
}

/// Selection of a battery's cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Seed of payloads, workloads, faults and samples.
    pub seed: u64,
    /// Length of each sweep.
    pub length: Length,
    /// The sample of each sweep's places; a budget with a `case` visits all.
    pub share: Share,
    /// Selects another sample of the same places; 0 by default.
    pub sample: u64,
    /// The only case that runs, or the path prefix of the cases that run; all cases if `None`.
    pub case: Option<String>,
    /// Parameters of the scheme, with priority over those of the battery.
    pub params: Params,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            seed: 1,
            length: Length::Brief,
            share: Share { taken: 1, of: 5 },
            sample: 0,
            case: None,
            params: Params::default(),
        }
    }
}

impl Budget {
    /// A battery's parameters, overridden by those of this budget.
    pub fn params(&self, battery: &[(&str, &str)]) -> Params {
        let mut params = Params::default();
        for (key, value) in battery.iter().copied().chain(self.params.iter()) {
            params.set(key, value);
        }
        params
    }

    /// Whether the case of this path runs, or one with this prefix.
    pub fn wants(&self, path: &str) -> bool {
        let Some(case) = self.case.as_deref() else {
            return true;
        };
        let below = |path: &str, case: &str| path == case || path.starts_with(&format!("{case}/"));
        below(path, case) || below(case, path)
    }

    /// Whether the sample contains this place of a sweep.
    fn draws(&self, place: &str) -> bool {
        self.case.is_some() || self.share.contains(self.seed ^ self.sample, place)
    }

    /// The value for this budget's length.
    pub fn pick<T>(&self, brief: T, short: T, long: T) -> T {
        match self.length {
            Length::Brief => brief,
            Length::Short => short,
            Length::Long => long,
        }
    }

    /// Whether sweeps have acceptance length.
    pub fn is_long(&self) -> bool {
        self.length == Length::Long
    }
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Path of the case.
    pub case: String,
    /// Cause of the failure.
    pub reason: String,
    /// The command or call that runs the case alone.
    pub repeat: String,
}

impl Failure {
    /// The contract of an author's function that was broken, if one was.
    pub fn contract(&self) -> Option<&'static str> {
        let mut all = contract::ALL.into_iter();
        all.find(|contract| self.reason.contains(contract))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    {}", self.case, self.reason, self.repeat)
    }
}

/// Failures that are kept, besides the first of each contract; later ones are only counted.
const KEPT: usize = 8;

/// Failures and counts of a battery's cases.
#[derive(Clone, Debug)]
pub struct Verdicts {
    budget: Budget,
    repeat: String,
    /// Places that the sweeps reached.
    pub places: u64,
    /// Places in the sample.
    pub drawn: u64,
    /// Cases that ran.
    pub cases: u64,
    /// Cases that failed.
    pub failures: u64,
    first: Vec<Failure>,
    notes: Vec<String>,
    enough: u64,
}

impl Verdicts {
    /// Creates empty verdicts. `repeat` is the command that repeats one case, with `{case}` in
    /// place of the case's path.
    pub fn new(budget: Budget, repeat: impl Into<String>) -> Self {
        Verdicts {
            budget,
            repeat: repeat.into(),
            places: 0,
            drawn: 0,
            cases: 0,
            failures: 0,
            first: Vec::new(),
            notes: Vec::new(),
            enough: u64::MAX,
        }
    }

    /// Returns these verdicts without sampling.
    pub fn of_everything(mut self) -> Self {
        self.budget.share = Share::WHOLE;
        self
    }

    /// Returns these verdicts; no case runs after the first failure.
    pub fn until_first_failure(mut self) -> Self {
        self.enough = 1;
        self
    }

    /// The selection of cases.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether no more cases run.
    pub fn are_enough(&self) -> bool {
        self.failures >= self.enough
    }

    /// Whether the case of this path, or one with this prefix, may still run.
    pub fn want(&self, path: &str) -> bool {
        !self.are_enough() && self.budget.wants(path)
    }

    /// Counts a place of a sweep that has cases or takes time. Returns whether the sweep visits it.
    pub fn draws(&mut self, place: &str) -> bool {
        if !self.want(place) {
            return false;
        }
        let drawn = self.budget.draws(place);
        self.places += 1;
        self.drawn += u64::from(drawn);
        drawn
    }

    /// The sampled share of the sweep, for a suite's report: "all 200 places", "a sample of 41 of
    /// 200 places".
    pub fn sample(&self) -> String {
        match self.drawn {
            all if all == self.places => format!("all {all} places"),
            some => format!("a sample of {some} of {} places", self.places),
        }
    }

    /// Runs one case, unless the budget selects others. A panic is a failure of this case alone.
    pub fn case(&mut self, path: &str, run: impl FnOnce() -> Result<(), String>) {
        if !self.want(path) {
            return;
        }
        self.cases += 1;
        let outcome = catch_unwind(AssertUnwindSafe(run));
        if let Err(reason) = outcome.unwrap_or_else(|panic| Err(text_of(&*panic))) {
            self.fail(path, reason);
        }
    }

    /// Runs a sweep of cases below `path`. A panic between its cases counts as one failed case, and
    /// ends the sweep.
    pub fn sweep(&mut self, path: &str, run: impl FnOnce(&mut Verdicts)) {
        if !self.want(path) {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(self))) {
            self.cases += 1;
            self.fail(path, text_of(&*panic));
        }
    }

    fn fail(&mut self, path: &str, reason: String) {
        self.failures += 1;
        self.keep(Failure {
            case: path.to_owned(),
            reason,
            repeat: self.repeat.replace("{case}", path),
        });
    }

    fn keep(&mut self, failure: Failure) {
        let contract = failure.contract();
        let is_new = self.first.iter().all(|kept| kept.contract() != contract);
        if is_new || self.first.len() < KEPT {
            self.first.push(failure);
        }
    }

    /// The first failure: its case, the error, and the command that repeats it.
    pub fn first(&self) -> Option<&Failure> {
        self.first.first()
    }

    /// The failures that were kept: the first ones, and the first of each contract.
    pub fn kept(&self) -> &[Failure] {
        &self.first
    }

    /// Measurements of the cases, one line each, for a suite's report.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn note(&mut self, lines: Vec<String>) {
        self.notes.extend(lines);
    }

    /// Adds the results of another part of the same battery.
    pub fn merge(&mut self, other: Verdicts) {
        self.places += other.places;
        self.drawn += other.drawn;
        self.cases += other.cases;
        self.failures += other.failures;
        self.notes.extend(other.notes);
        let failures = other.first.into_iter();
        failures.for_each(|failure| self.keep(failure));
    }

    /// Panics if any case failed, with the commands that repeat the first ones.
    ///
    /// # Panics
    /// A case failed.
    pub fn assert_none_failed(&self) {
        let list: Vec<String> = self.first.iter().map(Failure::to_string).collect();
        assert!(
            self.failures == 0,
            "{} of {} cases failed:\n{}",
            self.failures,
            self.cases,
            list.join("\n")
        );
    }
}

/// The message of a panic.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let place = place::take().map(|place| format!(" ({place})"));
    let (text, place) = (text.unwrap_or_default(), place.unwrap_or_default());
    format!("panic: {text}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selected_case_runs_with_its_parents_and_children() {
        let budget = Budget {
            case: Some("a/b".into()),
            ..Budget::default()
        };
        assert!(budget.wants("a") && budget.wants("a/b") && budget.wants("a/b/c"));
        assert!(!budget.wants("a/bc") && !budget.wants("b"));
    }

    #[test]
    fn a_panic_fails_its_case_and_the_next_case_runs() {
        let mut verdicts = Verdicts::new(Budget::default(), "again {case}");
        verdicts.case("a/1", || panic!("one"));
        verdicts.case("a/2", || Ok(()));
        verdicts.sweep("a/3", |_| panic!("{}", "three"));
        assert_eq!((verdicts.cases, verdicts.failures), (3, 2));
        let first = verdicts.first().expect("one failed").to_string();
        assert_eq!(first, "a/1: panic: one\n    again a/1");
    }

    #[test]
    fn a_sample_has_about_the_size_of_its_share() {
        let share = Share { taken: 3, of: 15 };
        let taken = (0..1_000).filter(|place| share.contains(1, &format!("place/{place}")));
        assert!((150..250).contains(&taken.count()));
    }
}
