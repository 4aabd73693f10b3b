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
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut config = Config::new("try", Pairing::Adjacent, 6, 5);
    let mut error = None;
    for arg in &args {
        let (key, value) = arg.split_once('=').unwrap();
        let n = || value.parse::<u8>().unwrap();
        match key {
            "rule" => {
                let rule = [Pairing::None, Pairing::Adjacent, Pairing::Dist3];
                let rule = rule.into_iter().find(|r| r.name() == value).unwrap();
                config = Config { ..Config::new("try", rule, config.pages, config.blocks) };
            }
            "pages" => config = Config::new("try", Pairing::Adjacent, n(), config.blocks),
            "blocks" => config.blocks = n(),
            "threshold" => config.threshold = n(),
            "reserve" => config.reserve = n(),
            "writes" => config.writes = n(),
            "cuts" => config.cuts = n(),
            "sets" => config.sets = n(),
            "seeded" => error = SeededError::ALL.iter().find(|(name, _)| *name == value).map(|(_, e)| *e),
            _ => panic!(),
        }
    }
    config.seeded = error;
    let began = Instant::now();
    eprintln!("kept back {}", config.kept_back);
    let checker =
        Device { config }.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "states {} unique {} depth {} {:.1}s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Sometimes, None) => println!("NEVER {}", property.name),
            (Expectation::Always, Some(path)) => {
                println!("VIOLATED {}", property.name);
                show(path);
            }
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

fn show(path: Path<state::State, device::Action>) {
    for (state, action) in path.into_vec() {
        println!("  {state}");
        if let Some(action) = action {
            println!("    {action:?}");
        }
    }
}
