//! `--agitate=A..B`: COMMAND once for each seed, on a new device; one report after the other, and a
//! sum. States of two runs are never equal: each run makes its own file system.
//!
//! Invariant: one recording and its states are in memory at a time.

use super::Plan;
use ftld_kit::convert::to_usize;
use ftld_kit::failure::Failure;
use ftld_kit::output::{self, counted};
use ftld_lab::crashes::{self, CrashesArgs, Visited, nth_file};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Most seeds of one call.
const MOST: u64 = 1000;

/// First and last seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(super) first: u64,
    last: u64,
}

/// Parses `7`, or `1..5` for the seeds 1 to 5.
pub(super) fn parse(text: &str) -> Result<Seeds, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let seeds = first.parse().ok().zip(last.parse().ok());
    let seeds = seeds.map(|(first, last)| Seeds { first, last });
    let is_some = |of: &Seeds| of.first <= of.last && of.last - of.first < MOST;
    seeds.filter(is_some).ok_or_else(|| {
        format!("need a seed, such as 7, or at most {MOST} in order, such as 1..5 for 1 to 5")
    })
}

impl Seeds {
    /// Returns how many they are.
    pub(super) fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Returns the file of the n-th seed: FILE, FILE.2, FILE.3.
pub(super) fn numbered(file: &Path, number: u64) -> PathBuf {
    nth_file(file, to_usize(number - 1))
}

/// Returns the exploration of the n-th seed.
fn of_seed(all: &CrashesArgs, number: u64) -> CrashesArgs {
    let numbered = |path: &Option<PathBuf>| path.as_ref().map(|path| self::numbered(path, number));
    CrashesArgs {
        recording: self::numbered(&all.recording, number),
        junit: numbered(&all.junit),
        html: numbered(&all.html),
        ..all.clone()
    }
}

/// Sums of all seeds so far.
#[derive(Default)]
struct Sums {
    seeds: u64,
    states: u64,
    checked: u64,
    failed: u64,
    /// Seeds with failed states, and their recordings.
    failing: Vec<(u64, PathBuf)>,
}

impl Sums {
    fn add(&mut self, seed: u64, recording: &Path, visited: &Visited) {
        self.seeds += 1;
        self.states += visited.states;
        self.checked += visited.checked;
        self.failed += visited.failed;
        if visited.failed > 0 {
            self.failing.push((seed, recording.to_owned()));
        }
    }

    /// Returns the last line of the reports.
    fn text(&self, seeds: Seeds) -> String {
        let failing = self.failing.iter();
        let failing: Vec<_> = failing
            .map(|(seed, recording)| format!("{seed} ({})", recording.display()))
            .collect();
        let with = match failing.is_empty() {
            true => String::new(),
            false => format!(" with seed {}", failing.join(", ")),
        };
        format!(
            "{} of {}: {}, {} different ones checked, {} failed{with}\n",
            self.seeds,
            counted(seeds.count(), "seed"),
            counted(self.states, "state"),
            self.checked,
            self.failed
        )
    }
}

/// Runs COMMAND with each seed, explores what was recorded, and prints a report for each seed and
/// the sums. `--for` and `--failures` are for all seeds together.
///
/// # Errors
/// COMMAND fails with a seed, a state failed, or the exploration cannot be made.
pub(super) fn explore(
    mut plan: Plan,
    seeds: Seeds,
    is_over: &Arc<AtomicBool>,
    json: bool,
) -> Result<(), Failure> {
    let all = plan.crashes.clone();
    let (mut left, mut sums) = (all.time, Sums::default());
    let (mut reports, mut judged): (Vec<Value>, _) = (Vec::new(), Ok(()));
    let mut broken = None;
    for (number, seed) in (1..).zip(seeds.first..=seeds.last) {
        plan.agitate = Some(seed);
        plan.crashes = of_seed(&all, number);
        let of_this = |failure: Failure| Failure {
            message: format!("seed {seed}: {}", failure.message),
            ..failure
        };
        // What the seeds before have found is told in any case.
        if let Err(failure) = plan.record(is_over).map_err(of_this) {
            broken = Some(failure);
            break;
        }
        let runs_left = u32::try_from(seeds.count() - number + 1).expect("a bounded count");
        plan.crashes.time = left.map(|left| left / runs_left);
        plan.crashes.failures = all.failures.saturating_sub(sums.failed);
        let began = Instant::now();
        let visited = match crashes::explored(&plan.crashes).map_err(of_this) {
            Ok(visited) => visited,
            Err(failure) => {
                broken = Some(failure);
                break;
            }
        };
        left = left.map(|left| left.saturating_sub(began.elapsed()));
        sums.add(seed, &plan.crashes.recording, &visited);
        broken = broken.or_else(|| visited.unwritten().map(of_this));
        judged = judged.and(visited.judged().map_err(of_this));
        match json {
            true => {
                let mut report = visited.json;
                report["agitate"] = json!(seed);
                reports.push(report);
            }
            false => output::print(&format!("seed {seed}\n{}\n", visited.text))?,
        }
        let has_enough = all.failures > 0 && sums.failed >= all.failures;
        if visited.interrupted || has_enough {
            break;
        }
    }
    match json {
        true => output::print_json(
            "crashes-of-seeds",
            json!({
                "seeds": reports,
                "seeds_all": seeds.count(),
                "states": sums.states,
                "states_checked": sums.checked,
                "states_failed": sums.failed,
            }),
        )?,
        false => output::print(&sums.text(seeds))?,
    }
    if let Some(failure) = broken {
        return Err(failure);
    }
    match sums.failed {
        0 => judged,
        failed => Err(Failure::failed(format!(
            "{failed} of {} failed",
            counted(sums.checked, "state")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_a_bounded_range() {
        for (text, first, count) in [("7", 7, 1), ("1..5", 1, 5), ("3..3", 3, 1)] {
            let seeds = parse(text).unwrap();
            assert_eq!((seeds.first, seeds.count()), (first, count), "{text}");
        }
        for wrong in ["", "x", "5..1", "1..", "0..1000", "-1"] {
            assert!(
                parse(wrong).unwrap_err().contains("such as 1..5"),
                "{wrong}"
            );
        }
        let most = format!("0..{}", u64::MAX);
        parse(&most).unwrap_err();
    }

    #[test]
    fn files_are_numbered_and_the_sum_names_the_seeds_that_failed() {
        let name = |number| numbered(Path::new("a/run.rec"), number);
        assert_eq!(name(1), Path::new("a/run.rec"));
        assert_eq!(name(3), Path::new("a/run.rec.3"));
        let mut sums = Sums {
            seeds: 3,
            states: 30,
            checked: 20,
            ..Sums::default()
        };
        let seeds = parse("4..8").unwrap();
        let none = "3 of 5 seeds: 30 states, 20 different ones checked, 0 failed\n";
        assert_eq!(sums.text(seeds), none);
        sums.failed = 2;
        sums.failing = vec![(4, name(1)), (6, name(3))];
        let some = " 2 failed with seed 4 (a/run.rec), 6 (a/run.rec.3)\n";
        assert!(sums.text(seeds).ends_with(some), "{}", sums.text(seeds));
    }
}
