//! Runs every battery on one scheme, within a budget, and returns a score.

use crate::classes::Classes;
use crate::parallel::in_parallel;
use crate::rig::Cells;
use crate::verdicts::{Budget, Failure, Length, Verdicts};
use crate::{conformance, host_crashes, place, power_cuts, swarm, wear};
use ftl_core::author::contract;
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

    /// What a scheme that passes does.
    pub const fn guarantee(self) -> &'static str {
        match self {
            Battery::Conformance => "A read must return what was written last",
            Battery::PowerCuts => "Flushed data must survive power cuts of the flash",
            Battery::HostCrashes => "Flushed data must survive crashes of the host",
            Battery::Wear => "Wear must be spread, and a worn-out device must stay readable",
            Battery::Swarm => "All of it must hold when faults come together",
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

    /// The command that runs one case again in a test that calls [`judge`]; for another budget, the
    /// call.
    fn repeat(self, budget: &Budget) -> String {
        let plain = Budget {
            case: budget.case.clone(),
            ..Budget::default()
        };
        if *budget == plain {
            let name = self.name();
            return format!("{CASE}='{name}:{{case}}' cargo test -- --nocapture");
        }
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
    /// The first cases that failed, and the first of each contract.
    pub failures: Vec<Failure>,
}

impl Line {
    /// Whether cases broke a contract of the author's functions. Such cases, and those that lack
    /// their work, judge no guarantee.
    fn is_cut_short(&self) -> bool {
        let mut failures = self.failures.iter();
        failures.any(|failure| failure.contract().is_some())
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, took) = (self.battery.name(), self.took);
        let (passed, cases, seconds) = (self.passed, self.cases, took.as_secs_f64());
        write!(
            f,
            "  {name:<14}{passed:>7} of {cases:>7} cases passed {seconds:>7.1} s"
        )
    }
}

/// A contract that a scheme broke: of a function of its author, or the guarantee of a battery.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What must hold.
    pub contract: &'static str,
    /// The first case that broke it.
    pub failure: Failure,
}

impl Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            case,
            reason,
            repeat,
        } = &self.failure;
        // The message of a panic has the words of the contract before the values.
        let values = match reason.split_once(self.contract) {
            Some((_, values)) => values.trim_start_matches(": ").to_owned(),
            None => format!("{case}: {reason}"),
        };
        write!(f, "  {}: {values}\n    {repeat}", self.contract)
    }
}

/// Results of all batteries on one scheme.
#[derive(Clone, Debug)]
pub struct Score {
    /// Name of the scheme.
    pub scheme: &'static str,
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

    /// The contracts that were broken, those of the author's functions first. The guarantee of a
    /// battery is one of them only if no case of it broke such a contract.
    pub fn broken(&self) -> Vec<Broken> {
        let failures = || self.lines.iter().flat_map(|line| &line.failures);
        let gets = |failure: &Failure| failure.contract() == Some(contract::GET);
        let is_get_broken = failures().any(gets);
        // By default `replace` calls `get` and `set`.
        let of_itself = |contract: &&str| *contract != contract::REPLACE || !is_get_broken;
        let all = contract::ALL.into_iter().filter(of_itself);
        let of_author = all.filter_map(|contract| {
            let failure = failures().find(|failure| failure.contract() == Some(contract));
            failure.cloned().map(|failure| Broken { contract, failure })
        });
        let judged = self.lines.iter().filter(|line| !line.is_cut_short());
        let of_device = judged.filter_map(|line| {
            Some(Broken {
                contract: line.battery.guarantee(),
                failure: line.failures.first()?.clone(),
            })
        });
        of_author.chain(of_device).collect()
    }

    /// The batteries whose guarantee is not judged.
    fn not_judged(&self) -> Vec<&'static str> {
        let cut_short = self.lines.iter().filter(|line| line.is_cut_short());
        cut_short.map(|line| line.battery.name()).collect()
    }

    /// Whether every case passed, and there was one.
    pub fn is_perfect(&self) -> bool {
        self.cases() > 0 && self.passed() == self.cases()
    }
}

impl Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broken, not_judged) = (self.broken(), self.not_judged());
        let contracts = contract::ALL.len() + self.lines.len();
        let kept = contracts - broken.len() - not_judged.len();
        let took: Duration = self.lines.iter().map(|line| line.took).sum();
        writeln!(
            f,
            "{} passed {kept} of {contracts} contracts, {} of {} cases, in {:.1} s",
            self.scheme,
            self.passed(),
            self.cases(),
            took.as_secs_f64()
        )?;
        broken
            .iter()
            .try_for_each(|broken| writeln!(f, "{broken}"))?;
        if !not_judged.is_empty() {
            writeln!(f, "  not judged because of that: {}", not_judged.join(", "))?;
        }
        let lines: Vec<String> = self.lines.iter().map(Line::to_string).collect();
        writeln!(f, "{}", lines.join("\n"))?;
        f.write_str("  (whether data is safe, not how much is written: `compare` shows that)")
    }
}

/// Environment variable that selects one case for [`judge`]: `BATTERY:CASE`.
const CASE: &str = "FTLD_CASE";

/// Runs every battery on a scheme with the default budget, and prints the score. See
/// [`judge_within`]. With `FTLD_CASE=BATTERY:CASE` in the environment, as a failure prints it, only
/// this case runs.
///
/// Times apply to optimised code (`opt-level = 2`). The functions of an author are checked only in
/// debug builds, such as tests (`debug-assertions`).
pub fn judge(scheme: &'static Scheme) -> Score {
    let selected = std::env::var(CASE).unwrap_or_default();
    let selected = selected.split_once(':').and_then(|(name, case)| {
        let mut all = Battery::ALL.into_iter();
        let battery = all.find(|battery| battery.name() == name)?;
        Some((battery, case.to_owned()))
    });
    match selected {
        None => judge_within(scheme, &Budget::default()),
        Some((battery, case)) => {
            let budget = Budget {
                case: Some(case),
                ..Budget::default()
            };
            run_all(scheme, &[battery], &budget)
        }
    }
}

/// Runs every battery on a scheme, and prints the score: how many contracts and cases passed, a
/// line for each contract that was broken and one that repeats its first case, and a line for each
/// battery.
///
/// # Panics
/// The budget has a parameter that the scheme does not understand.
pub fn judge_within(scheme: &'static Scheme, budget: &Budget) -> Score {
    run_all(scheme, &Battery::ALL, budget)
}

fn run_all(scheme: &'static Scheme, batteries: &[Battery], budget: &Budget) -> Score {
    let mut score = Score {
        scheme: scheme.name,
        lines: Vec::new(),
    };
    // Each failure is a line of the score, which has the place of a panic.
    let hook = take_hook();
    set_hook(Box::new(place::note));
    for battery in batteries.iter().copied() {
        let began = Instant::now();
        let verdicts = battery.run(scheme, budget);
        let line = Line {
            battery,
            cases: verdicts.cases,
            passed: verdicts.cases - verdicts.failures,
            took: began.elapsed(),
            failures: verdicts.kept().to_vec(),
        };
        score.lines.push(line);
    }
    set_hook(hook);
    println!("{score}");
    if score.cases() == 0 {
        println!("  there is no such case: {CASE}=BATTERY:CASE, as a failure prints it");
    }
    score
}
