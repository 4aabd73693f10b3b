//! The pair rule of ftld, checked by Stateright. README.md says what is modelled and how to run it.

mod device;
mod flash;
mod mount;
mod provisional;
mod space;
mod state;

use device::Device;
use nand_model::Pairing;
use state::{Config, SeededError};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: pair-rule [--list | CONFIGURATION... | --seeded ERROR]
Without an argument, checks every configuration, then that every seeded error is found.";

/// Number of cuts: no limit.
const ANY: u8 = u8::MAX;

/// The configurations of a whole run.
fn configurations() -> Vec<Config> {
    let new = Config::new;
    vec![
        Config {
            threshold: 3,
            writes: 1,
            cuts: ANY,
            ..new("any-cuts-adjacent", Pairing::Adjacent, 10, 5)
        },
        Config {
            threshold: 3,
            writes: 1,
            cuts: ANY,
            ..new("any-cuts-dist3", Pairing::Dist3, 12, 5)
        },
        Config {
            threshold: 3,
            writes: 1,
            cuts: ANY,
            ..new("any-cuts-slc", Pairing::None, 7, 5)
        },
        Config {
            writes: 3,
            cuts: 2,
            ..new("writes-adjacent", Pairing::Adjacent, 10, 5)
        },
        Config {
            writes: 2,
            cuts: 2,
            ..new("writes-dist3", Pairing::Dist3, 12, 5)
        },
        Config {
            writes: 3,
            cuts: 2,
            ..new("small-blocks", Pairing::Dist3, 6, 7)
        },
        Config {
            writes: 2,
            cuts: 2,
            sets: 2,
            ..new("checkpoints", Pairing::Adjacent, 6, 8)
        },
        Config {
            writes: 2,
            cuts: 1,
            sets: 3,
            ..new("checkpoints-long", Pairing::Adjacent, 10, 7)
        },
    ]
}

/// The configuration that finds a seeded error.
fn configuration_of(error: SeededError) -> &'static str {
    match error {
        SeededError::CheckpointNamesUnsafe => "checkpoints",
        _ => "writes-dist3",
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let passed = match args[..] {
        [] => check_all(),
        ["--list"] => {
            configurations()
                .iter()
                .for_each(|config| println!("{}", config.name));
            SeededError::ALL
                .iter()
                .for_each(|(name, _)| println!("--seeded {name}"));
            Ok(())
        }
        ["--seeded", name] => match SeededError::ALL.iter().find(|(known, _)| *known == name) {
            Some((name, error)) => find_seeded(name, *error),
            None => Err(format!(
                "{name} is not a seeded error; see pair-rule --list\n{USAGE}"
            )),
        },
        _ => args.iter().try_for_each(|name| {
            match configurations()
                .into_iter()
                .find(|config| config.name == *name)
            {
                Some(config) => check(config).map(drop),
                None => Err(format!(
                    "{name} is not a configuration; see pair-rule --list\n{USAGE}"
                )),
            }
        }),
    };
    match passed {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Checks everything. What must be possible has to happen in at least one configuration.
fn check_all() -> Result<(), String> {
    let (mut possible, mut happened) = (BTreeSet::new(), BTreeSet::new());
    for config in configurations() {
        let device = Device {
            config: config.clone(),
        };
        let sometimes = device
            .properties()
            .into_iter()
            .filter(|p| p.expectation == Expectation::Sometimes);
        possible.extend(sometimes.map(|property| property.name));
        happened.extend(check(config)?);
    }
    let missing: Vec<_> = possible.difference(&happened).collect();
    if !missing.is_empty() {
        return Err(format!(
            "the model is too small: these situations never happen: {missing:?}"
        ));
    }
    SeededError::ALL
        .iter()
        .try_for_each(|(name, error)| find_seeded(name, *error))
}

/// Checks one configuration. Returns the situations that happened; an error with the trace if a
/// property is violated.
fn check(config: Config) -> Result<BTreeSet<&'static str>, String> {
    let name = config.name;
    let outcome = explore(config);
    println!(
        "{name}: {}; {} situations happened",
        outcome.figures,
        outcome.happened.len()
    );
    match outcome.violation {
        None => Ok(outcome.happened),
        Some(trace) => Err(format!("{name}: violated: {trace}")),
    }
}

/// Shows that the model finds a seeded error.
fn find_seeded(name: &str, error: SeededError) -> Result<(), String> {
    let named = |config: &Config| config.name == configuration_of(error);
    let config = configurations()
        .into_iter()
        .find(named)
        .expect("a configuration by this name");
    let outcome = explore(Config {
        seeded: Some(error),
        ..config
    });
    match outcome.violation {
        Some(trace) => {
            println!(
                "seeded {name}: found, {}: violated: {trace}",
                outcome.figures
            );
            Ok(())
        }
        None => Err(format!("seeded {name}: NOT found, {}", outcome.figures)),
    }
}

struct Outcome {
    figures: String,
    happened: BTreeSet<&'static str>,
    /// The violated property and the shortest way there.
    violation: Option<String>,
}

fn explore(config: Config) -> Outcome {
    let began = Instant::now();
    let device = Device { config };
    let checker = device
        .checker()
        .threads(1)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let figures = format!(
        "{} transitions, {} states, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    let (mut happened, mut violation) = (BTreeSet::new(), None);
    for property in checker.model().properties() {
        match (property.expectation, checker.discovery(property.name)) {
            (Expectation::Sometimes, Some(_)) => {
                happened.insert(property.name);
            }
            (Expectation::Always, Some(path)) if violation.is_none() => {
                let mut trace = property.name.to_string();
                for (state, action) in path.into_vec() {
                    let then = action.map_or(String::new(), |action| {
                        format!("\n    {}", action.describe(&state))
                    });
                    trace += &format!("\n  {state}{then}");
                }
                violation = Some(trace);
            }
            _ => {}
        }
    }
    Outcome {
        figures,
        happened,
        violation,
    }
}
