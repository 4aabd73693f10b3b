//! Runs every battery on one scheme, within a budget, and returns a score.

use crate::classes::Classes;
use crate::parallel::in_parallel;
use crate::rig::Cells;
use crate::verdicts::{Budget, Failure, Length, Verdicts};
use crate::{conformance, host_crashes, power_cuts, swarm, wear};
use ftl_core::schemes::Scheme;
use std::fmt::{self, Display};
use std::panic::{set_hook, take_hook};
use std::time::{Duration, Instant};

/// A set of cases for one kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Battery {
    /// Reads return the written data, on parts that fail as their data sheet allows.
    Conformance,
    /// Flushed data survives power cuts of the flash, also inside mounts.
    PowerCuts,
    /// Flushed data survives crashes of the host with the image.
    HostCrashes,
    /// Wear is spread, data is rewritten before it decays, and a device at its end stays readable.
    Wear,
    /// Generated runs combine faults of all kinds.
    Swarm,
}

/// Cases of one question on one device, run on their own thread.
struct Part {
    /// Path prefix of all its cases.
    path: String,
    run: Box<dyn Fn(&mut Verdicts) + Send + Sync>,
}

impl Battery {
    /// All batteries, in the order in which [`judge`] runs them.
    pub const ALL: [Battery; 5] = [
        Battery::Conformance,
        Battery::PowerCuts,
        Battery::HostCrashes,
        Battery::Wear,
        Battery::Swarm,
    ];

    /// Name in a score.
    pub const fn name(self) -> &'static str {
        match self {
            Battery::Conformance => "conformance",
            Battery::PowerCuts => "power cuts",
            Battery::HostCrashes => "host crashes",
            Battery::Wear => "wear",
            Battery::Swarm => "swarm",
        }
    }

    /// Runs the battery on a scheme, on all processors.
    ///
    /// A failing or panicking case does not stop the others. A run of the swarm that does not end
    /// ends the process, because a thread cannot be stopped.
    ///
    /// # Panics
    /// The budget has a parameter that the scheme does not understand.
    pub fn run(self, scheme: &'static Scheme, budget: &Budget) -> Verdicts {
        for (key, _) in budget.params.iter() {
            assert!(scheme.knows(key), "{} has no parameter {key}", scheme.name);
        }
        let repeat = self.repeat(budget);
        let judged = in_parallel(&self.parts(scheme, budget), |part| {
            let mut verdicts = Verdicts::new(budget.clone(), repeat.as_str());
            verdicts.sweep(&part.path, |verdicts| (part.run)(verdicts));
            verdicts
        });
        let mut all = Verdicts::new(budget.clone(), repeat.as_str());
        judged.into_iter().for_each(|verdicts| all.merge(verdicts));
        all
    }

    /// The call that runs one case again.
    fn repeat(self, budget: &Budget) -> String {
        let Budget { seed, length, .. } = budget;
        let length = if *length == Length::default() {
            String::new()
        } else {
            format!("length: Length::{length:?}, ")
        };
        let params = match budget.params.iter().count() {
            0 => "",
            _ => "params, ",
        };
        format!(
            "Battery::{self:?}.run(scheme, &Budget {{ seed: {seed}, {length}{params}case: \
             Some(\"{{case}}\".into()), ..Budget::default() }})"
        )
    }

    fn parts(self, scheme: &'static Scheme, budget: &Budget) -> Vec<Part> {
        let on = |cells: Cells| format!("{}/{}", scheme.name, cells.name());
        let on_both = |run: fn(&'static Scheme, Cells, &mut Verdicts)| {
            Cells::ALL.map(|cells| Part {
                path: on(cells),
                run: Box::new(move |verdicts| run(scheme, cells, verdicts)),
            })
        };
        match self {
            Battery::Conformance => conformance::PARTS
                .iter()
                .flat_map(|(_, part)| {
                    Cells::ALL.map(|cells| Part {
                        path: on(cells),
                        run: Box::new(move |verdicts| {
                            let rig = conformance::rig_of(scheme, cells, verdicts.budget());
                            part(&rig, verdicts);
                        }),
                    })
                })
                .collect(),
            Battery::PowerCuts => {
                let parts = power_cuts::PARTS.iter();
                let random = (0..power_cuts::RANDOM_ROWS).map(|row| Part {
                    path: on(Cells::Mlc),
                    run: Box::new(move |verdicts| {
                        let rig = power_cuts::random_rig(scheme, row, verdicts.budget());
                        let cuts = verdicts.budget().pick(30, 100, 10_000);
                        power_cuts::at_random(&rig, cuts, verdicts);
                    }),
                });
                let long_word_lines = Cells::LONG_WORD_LINES.map(|cells| Part {
                    path: on(cells),
                    run: Box::new(move |verdicts| {
                        power_cuts::every_operation(scheme, cells, verdicts);
                    }),
                });
                parts
                    .flat_map(|(_, part)| on_both(*part))
                    .chain(long_word_lines)
                    .chain(random)
                    .collect()
            }
            Battery::HostCrashes => host_crashes::PARTS
                .iter()
                .flat_map(|(_, part)| on_both(*part))
                .collect(),
            Battery::Wear => {
                let retention_refresh = Part {
                    path: on(Cells::Mlc),
                    run: Box::new(move |verdicts| wear::retention_refresh(scheme, verdicts)),
                };
                on_both(wear::worn_out)
                    .into_iter()
                    .chain([retention_refresh])
                    .collect()
            }
            Battery::Swarm => (0..budget.pick(200, 400, 10_000))
                .map(|number| Part {
                    path: format!("{}/swarm", scheme.name),
                    run: Box::new(move |verdicts| {
                        swarm::judge(scheme, number, verdicts, &mut Classes::default());
                    }),
                })
                .collect(),
        }
    }
}

/// Result of one battery.
#[derive(Clone, Debug)]
pub struct Line {
    /// The battery.
    pub battery: Battery,
    /// Cases that ran.
    pub cases: u64,
    /// Cases that passed.
    pub passed: u64,
    /// Wall-clock time.
    pub took: Duration,
    /// The first case that failed.
    pub first: Option<Failure>,
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, took) = (self.battery.name(), self.took);
        write_line(f, name, self.passed, self.cases, took)?;
        self.first
            .as_ref()
            .map_or(Ok(()), |failure| write!(f, "\n  first failure: {failure}"))
    }
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    passed: u64,
    cases: u64,
    took: Duration,
) -> fmt::Result {
    let seconds = took.as_secs_f64();
    write!(
        f,
        "{name:<14}{passed:>7} of {cases:>7} cases passed {seconds:>7.1} s"
    )
}

/// Results of all batteries on one scheme.
#[derive(Clone, Debug)]
pub struct Score {
    /// A line for each battery.
    pub lines: Vec<Line>,
}

impl Score {
    /// Cases that ran.
    pub fn cases(&self) -> u64 {
        self.lines.iter().map(|line| line.cases).sum()
    }

    /// Cases that passed.
    pub fn passed(&self) -> u64 {
        self.lines.iter().map(|line| line.passed).sum()
    }

    /// Whether every case passed, and there was one.
    pub fn is_perfect(&self) -> bool {
        self.cases() > 0 && self.passed() == self.cases()
    }
}

impl Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "{}", Sum(self))
    }
}

/// Runs every battery on a scheme with the default budget, about a minute on two processors, and
/// prints a line for each as it ends and one with the sum. See [`judge_within`].
///
/// Time limits apply to optimised code (`opt-level = 2`).
pub fn judge(scheme: &'static Scheme) -> Score {
    judge_within(scheme, &Budget::default())
}

/// Runs every battery on a scheme, and prints a line for each as it ends and one with the sum. A
/// battery that fails prints its first failure and the call that repeats it, and does not stop the
/// others.
///
/// # Panics
/// The budget has a parameter that the scheme does not understand.
pub fn judge_within(scheme: &'static Scheme, budget: &Budget) -> Score {
    let mut score = Score { lines: Vec::new() };
    // Each failure is a line of the score: a panic with its backtrace says nothing more.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    for battery in Battery::ALL {
        let began = Instant::now();
        let verdicts = battery.run(scheme, budget);
        let line = Line {
            battery,
            cases: verdicts.cases,
            passed: verdicts.cases - verdicts.failures,
            took: began.elapsed(),
            first: verdicts.first().cloned(),
        };
        println!("{line}");
        score.lines.push(line);
    }
    set_hook(hook);
    println!("{}", Sum(&score));
    score
}

/// The last line of a score.
struct Sum<'a>(&'a Score);

impl Display for Sum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum(score) = self;
        let took = score.lines.iter().map(|line| line.took).sum();
        write_line(f, "all", score.passed(), score.cases(), took)
    }
}
