//! Progress of a comparison on standard error: a bar on a terminal, elsewhere a line at times, so
//! that a long comparison behind a pipe or in a log shows that it runs.

use super::estimate::duration;
use crate::replay::Job;
use ftld_kit::convert::{to_f64, to_u64};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// Runs in a line; of more, their number.
const NAMED: usize = 4;

/// Progress of some runs.
pub(super) struct Progress {
    pub(super) bar: ProgressBar,
    has_lines: bool,
    begun: Instant,
    told: Instant,
    done: usize,
    total: usize,
}

/// The jobs that run now, by their numbers.
#[derive(Default)]
pub(super) struct Running(Mutex<BTreeMap<usize, String>>);

impl Running {
    pub(super) fn begin(&self, number: usize, job: &Job) {
        let mut running = self.0.lock().expect("no thread panics with the lock");
        let scheme = job.scheme.as_deref().unwrap_or("default");
        running.insert(number, format!("{scheme} on {}", job.workload));
    }

    pub(super) fn end(&self, number: usize) {
        let mut running = self.0.lock().expect("no thread panics with the lock");
        running.remove(&number);
    }

    fn names(&self) -> Vec<String> {
        let running = self.0.lock().expect("no thread panics with the lock");
        running.values().cloned().collect()
    }
}

impl Progress {
    pub(super) fn new(total: usize) -> Progress {
        let bar = ProgressBar::new(to_u64(total));
        let style = ProgressStyle::with_template(
            "{pos} of {len} runs {bar:40} {elapsed} (about {eta} left)",
        );
        bar.set_style(style.expect("the template is right"));
        let now = Instant::now();
        Progress {
            bar,
            has_lines: !std::io::stderr().is_terminal(),
            begun: now,
            told: now,
            done: 0,
            total,
        }
    }

    /// Returns the time until the next line.
    pub(super) fn wait(&self) -> Duration {
        EVERY.saturating_sub(self.told.elapsed())
    }

    /// Counts a run that ended.
    pub(super) fn add(&mut self) {
        self.done += 1;
        self.bar.inc(1);
    }

    /// Prints a line if it is time for one.
    pub(super) fn tell(&mut self, running: &Running) {
        if self.told.elapsed() >= EVERY && self.done < self.total {
            self.told = Instant::now();
            if self.has_lines {
                eprintln!("{}", self.line(self.begun.elapsed(), &running.names()));
            }
        }
    }

    fn line(&self, elapsed: Duration, running: &[String]) -> String {
        let (done, total) = (to_f64(to_u64(self.done)), to_f64(to_u64(self.total)));
        let seconds = elapsed.as_secs_f64();
        let left = match self.done {
            0 => String::new(),
            _ => format!(", about {} left", duration(seconds / done * (total - done))),
        };
        let (named, others) = running.split_at(running.len().min(NAMED));
        let others = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "{} of {} runs done in {}{left}; now {}{others}",
            self.done,
            self.total,
            duration(seconds),
            named.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_is_done_what_runs_and_what_is_left() {
        let mut progress = Progress::new(6);
        let names: Vec<String> = (0..5).map(|number| format!("s{number} on zipf")).collect();
        let line = |progress: &Progress, names| progress.line(Duration::from_secs(20), names);
        assert_eq!(
            line(&progress, &names[..1]),
            "0 of 6 runs done in 20.0 s; now s0 on zipf"
        );
        progress.add();
        progress.add();
        assert_eq!(
            line(&progress, &names),
            "2 of 6 runs done in 20.0 s, about 40.0 s left; now s0 on zipf; s1 on zipf; s2 on zipf; s3 on zipf and 1 more"
        );
        // Right after a line, the next one is 10 s away.
        assert!(progress.wait() > Duration::from_secs(9));
        progress.told -= EVERY;
        assert_eq!(progress.wait(), Duration::ZERO);
        progress.tell(&Running::default());
        assert!(progress.wait() > Duration::from_secs(9));
    }
}
