//! Generated runs under way. A run that does not end is a finding: its seed is printed and the process ends, since a thread cannot be stopped.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A run takes milliseconds, on a busy machine seconds.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// The runs under way by seed, and when they began.
#[derive(Default)]
pub struct Watch(Mutex<HashMap<u64, Instant>>);

impl Watch {
    /// Keeps an eye on a run.
    pub fn over<R>(&self, seed: u64, run: impl FnOnce() -> R) -> R {
        self.0.lock().expect("nobody panics with it").insert(seed, Instant::now());
        let result = run();
        self.0.lock().expect("nobody panics with it").remove(&seed);
        result
    }

    /// Waits until `done`; ends the process when a run takes too long, after what `describe` says of its seed.
    pub fn until(&self, done: impl Fn() -> bool, describe: impl Fn(u64) -> String) {
        while !done() {
            let runs = self.0.lock().expect("nobody panics with it");
            let late = runs.iter().find(|(_, began)| began.elapsed() > LONGEST_RUN).map(|(seed, _)| *seed);
            drop(runs);
            if let Some(seed) = late {
                let what = describe(seed);
                _ = writeln!(std::io::stderr(), "run {seed} has not ended after {LONGEST_RUN:?}:\n{what}");
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
