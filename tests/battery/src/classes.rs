//! Counts of events in generated runs, by class and by pair of classes.
//!
//! A generator that never produces a situation is no evidence about it. So runs count each class of
//! situation when it *happens*, not when it is planned; a class at zero fails a run of full length.
//! Both swarms use this module, and both keep ledgers with [`Classes::add_to_ledger`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Counts of each class, and of each pair of classes in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Counted runs.
    pub runs: u64,
    /// Events of each class.
    events: BTreeMap<&'static str, u64>,
    /// Runs in which both classes happened; a pair of a class with itself counts the runs of that
    /// class.
    pairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Classes of the run in progress.
    now: BTreeSet<&'static str>,
}

impl Classes {
    /// Counts one event of this class.
    pub fn note(&mut self, class: &'static str) {
        self.note_times(class, 1);
    }

    /// Counts this many events.
    pub fn note_times(&mut self, class: &'static str, times: u64) {
        if times > 0 {
            *self.events.entry(class).or_default() += times;
            self.now.insert(class);
        }
    }

    /// Whether one of these classes happened in the run in progress.
    pub fn happened(&self, classes: &[&'static str]) -> bool {
        classes.iter().any(|class| self.now.contains(class))
    }

    /// Ends the run in progress.
    pub fn end_run(&mut self) {
        self.runs += 1;
        let now: Vec<_> = std::mem::take(&mut self.now).into_iter().collect();
        for (i, one) in now.iter().enumerate() {
            for other in &now[i..] {
                *self.pairs.entry((*one, *other)).or_default() += 1;
            }
        }
    }

    /// Adds the counts of other runs.
    pub fn merge(&mut self, other: &Classes) {
        self.runs += other.runs;
        other
            .events
            .iter()
            .for_each(|(class, times)| *self.events.entry(class).or_default() += times);
        other
            .pairs
            .iter()
            .for_each(|(pair, runs)| *self.pairs.entry(*pair).or_default() += runs);
    }

    /// Events of a class.
    pub fn events(&self, class: &str) -> u64 {
        self.events.get(class).copied().unwrap_or(0)
    }

    /// Runs in which both classes happened.
    pub fn runs_with(&self, one: &'static str, other: &'static str) -> u64 {
        self.pairs
            .get(&(one.min(other), one.max(other)))
            .copied()
            .unwrap_or(0)
    }

    /// Classes of `all` that never happened.
    pub fn missing(&self, all: &[&'static str]) -> Vec<&'static str> {
        all.iter()
            .copied()
            .filter(|class| self.events(class) == 0)
            .collect()
    }

    /// Classes that happened and are not in `all`: a ledger could not be read back.
    pub fn unlisted(&self, all: &[&'static str]) -> Vec<&'static str> {
        let classes = self.events.keys().copied();
        classes.filter(|class| !all.contains(class)).collect()
    }

    /// Pairs of `all` that never happened in one run, except those that `cannot_meet` excludes.
    pub fn missing_pairs(
        &self,
        all: &[&'static str],
        cannot_meet: impl Fn(&str, &str) -> bool,
    ) -> Vec<(&'static str, &'static str)> {
        let pairs = all
            .iter()
            .enumerate()
            .flat_map(|(i, one)| all[i + 1..].iter().map(move |other| (*one, *other)));
        pairs
            .filter(|(one, other)| self.runs_with(one, other) == 0)
            .filter(|(one, other)| !cannot_meet(one, other) && !cannot_meet(other, one))
            .collect()
    }

    /// A line per class: events and runs.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for (class, events) in &self.events {
            let runs = self.runs_with(class, class);
            writeln!(text, "{class:<28} {events:>10} times in {runs:>8} runs")
                .expect("a string takes all");
        }
        text
    }

    /// The counts as lines of text for [`Classes::read`].
    pub fn write(&self) -> String {
        let mut text = format!("runs\t{}\n", self.runs);
        for (class, events) in &self.events {
            writeln!(text, "class\t{class}\t{events}").expect("a string takes all");
        }
        for ((one, other), runs) in &self.pairs {
            writeln!(text, "pair\t{one}\t{other}\t{runs}").expect("a string takes all");
        }
        text
    }

    /// Checks that runs from this seed can be added to a ledger, before they start.
    ///
    /// # Panics
    /// The file is not a ledger of these classes, has this seed already, or cannot be written.
    pub fn check_ledger(path: &str, seed: u64, all: &[&'static str]) {
        let (seeds, _) = read_ledger(path, all);
        let counted = format!("seed\t{seed}\t");
        assert!(
            !seeds.iter().any(|line| line.starts_with(&counted)),
            "{path} counts the runs of FTLD_SEED={seed} already; take another seed"
        );
        let aside = format!("{path}.new");
        let written = std::fs::write(&aside, "").and_then(|()| std::fs::remove_file(&aside));
        written.unwrap_or_else(|error| panic!("{aside}: {error}"));
    }

    /// Adds these runs to the counts in a file, with a line for their seed. Returns the sum.
    ///
    /// # Panics
    /// The file or the counts have other classes than `all`, or the file cannot be written.
    pub fn add_to_ledger(
        &self,
        path: &str,
        seed: u64,
        failures: usize,
        all: &[&'static str],
    ) -> Classes {
        let unlisted = self.unlisted(all);
        assert!(unlisted.is_empty(), "no list has the classes {unlisted:?}");
        let (seeds, mut sum) = read_ledger(path, all);
        sum.merge(self);
        let mut text: String = seeds.iter().map(|line| format!("{line}\n")).collect();
        text += &format!(
            "seed\t{seed}\t{} runs\t{failures} failures\n{}",
            self.runs,
            sum.write()
        );
        let aside = format!("{path}.new");
        std::fs::write(&aside, text).unwrap_or_else(|error| panic!("{aside}: {error}"));
        std::fs::rename(&aside, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        sum
    }

    /// Counts of an earlier process, of the classes in `all`.
    ///
    /// # Errors
    /// The first invalid line, or the first with an unknown class.
    pub fn read(text: &str, all: &[&'static str]) -> Result<Classes, String> {
        let mut classes = Classes::default();
        for line in text.lines() {
            let class = |name: &str| {
                all.iter()
                    .copied()
                    .find(|known| *known == name)
                    .ok_or(format!(
                        "{line:?}: there is no class {name:?}; was it renamed?"
                    ))
            };
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|error| format!("{line:?}: {error}"))
            };
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["runs", runs] => classes.runs = number(runs)?,
                ["class", name, events] => {
                    classes.events.insert(class(name)?, number(events)?);
                }
                ["pair", one, other, runs] => {
                    classes
                        .pairs
                        .insert((class(one)?, class(other)?), number(runs)?);
                }
                _ => return Err(format!("{line:?} is no count")),
            }
        }
        Ok(classes)
    }
}

/// The lines of a ledger with seeds, and its counts; both empty if there is no file yet.
fn read_ledger(path: &str, all: &[&'static str]) -> (Vec<String>, Classes) {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.unwrap_or_else(|error| panic!("{path}: {error}")),
    };
    let (seeds, counts): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("seed\t"));
    let counts = Classes::read(&counts.join("\n"), all);
    let counts = counts.unwrap_or_else(|why| panic!("{path} is no ledger of this suite: {why}"));
    (seeds.into_iter().map(str::to_owned).collect(), counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_pairs_are_counted_by_run_and_read_back_from_a_file() {
        let all = ["a", "b", "c"];
        let mut classes = Classes::default();
        classes.note("a");
        classes.note_times("b", 3);
        classes.end_run();
        classes.note("a");
        classes.end_run();
        assert_eq!(
            (classes.runs, classes.events("a"), classes.events("b")),
            (2, 2, 3)
        );
        assert_eq!(
            (classes.runs_with("b", "a"), classes.runs_with("a", "a")),
            (1, 2)
        );
        assert_eq!(classes.missing(&all), ["c"]);
        assert_eq!(
            classes.missing_pairs(&all, |one, _| one == "b"),
            [("a", "c")]
        );
        let mut again = Classes::read(&classes.write(), &all).unwrap();
        assert_eq!(again, classes);
        again.merge(&classes);
        assert_eq!((again.runs, again.runs_with("a", "b")), (4, 2));
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger").display().to_string();
        classes.add_to_ledger(&ledger, 7, 0, &all);
        assert_eq!(classes.add_to_ledger(&ledger, 8, 1, &all), again);
        let text = std::fs::read_to_string(&ledger).unwrap();
        assert!(
            text.starts_with("seed\t7\t2 runs\t0 failures\nseed\t8\t2 runs\t1 failures\nruns\t4\n"),
            "{text}"
        );
        assert!(Classes::read("class\tz\t1", &all).is_err() && Classes::read("x", &all).is_err());
    }
}
