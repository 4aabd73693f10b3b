//! Counts of the situations that a generator produced, one by one and in pairs.
//!
//! A *class* is a situation that a run may contain. A class counts when the situation happened, not when it was drawn. Two
//! classes of one run are a pair.

use std::fmt::{self, Display};

/// The classes of a suite.
pub trait Class: Copy + Eq + 'static {
    /// All of them.
    const ALL: &'static [Self];
    /// What happened, in a few words.
    fn name(self) -> &'static str;
}

/// How often each class and each pair of classes happened.
#[derive(Clone, Debug)]
pub struct Classes<C> {
    counts: Vec<u64>,
    /// Runs with both classes of a pair; the larger class gives the row.
    pairs: Vec<u64>,
    /// Classes of the run in progress.
    now: Vec<u64>,
    runs: u64,
    kind: std::marker::PhantomData<C>,
}

impl<C: Class> Default for Classes<C> {
    fn default() -> Self {
        let count = C::ALL.len();
        let (counts, pairs, now) = (vec![0; count], vec![0; count * count], vec![0; count]);
        Classes { counts, pairs, now, runs: 0, kind: std::marker::PhantomData }
    }
}

fn index<C: Class>(class: C) -> usize {
    C::ALL.iter().position(|each| *each == class).expect("ALL has every class")
}

impl<C: Class> Classes<C> {
    /// It happened in the run in progress.
    pub fn note(&mut self, class: C) {
        self.now[index(class)] += 1;
    }

    /// Whether it happened in the run in progress.
    pub fn in_this_run(&self, class: C) -> bool {
        self.now[index(class)] > 0
    }

    /// The run has ended: its classes are counted, and their pairs.
    pub fn end_run(&mut self) {
        self.runs += 1;
        let happened: Vec<usize> = (0..self.now.len()).filter(|&class| self.now[class] > 0).collect();
        for (place, &one) in happened.iter().enumerate() {
            self.counts[one] += self.now[one];
            happened[..place].iter().for_each(|&other| self.pairs[one * self.now.len() + other] += 1);
        }
        self.now.fill(0);
    }

    /// Adds what another worker counted.
    pub fn merge(&mut self, other: &Self) {
        let add = |to: &mut Vec<u64>, from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut self.counts, &other.counts);
        add(&mut self.pairs, &other.pairs);
        self.runs += other.runs;
    }

    /// Runs that have ended.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// How often it happened.
    pub fn count(&self, class: C) -> u64 {
        self.counts[index(class)]
    }

    /// Runs in which both happened.
    pub fn pair(&self, one: C, other: C) -> u64 {
        let (low, high) = (index(one).min(index(other)), index(one).max(index(other)));
        self.pairs[high * C::ALL.len() + low]
    }

    /// Classes that never happened, and pairs that never did although nothing says that they cannot meet.
    pub fn missing(&self, cannot_meet: &[(C, C)]) -> Vec<String> {
        let mut missing = Vec::new();
        for (place, &one) in C::ALL.iter().enumerate() {
            if self.count(one) == 0 {
                missing.push(one.name().to_owned());
                continue;
            }
            for &other in C::ALL[..place].iter().filter(|other| self.count(**other) > 0) {
                let excused = cannot_meet.iter().any(|&(a, b)| (a, b) == (one, other) || (b, a) == (one, other));
                if !excused && self.pair(one, other) == 0 {
                    missing.push(format!("{} with {}", other.name(), one.name()));
                }
            }
        }
        missing
    }
}

impl<C: Class> Display for Classes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10}  {:>10}  class, in {} runs", "happened", "rarest", self.runs)?;
        for &class in C::ALL {
            let others = C::ALL.iter().filter(|other| **other != class);
            let rarest = others.min_by_key(|other| self.pair(class, **other));
            let (times, with) = rarest.map_or((0, ""), |other| (self.pair(class, *other), other.name()));
            writeln!(f, "{:>10}  {times:>10}  {} (rarest pair: {with})", self.count(class), class.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Weather {
        Rain,
        Sun,
        Snow,
    }

    impl Class for Weather {
        const ALL: &'static [Weather] = &[Weather::Rain, Weather::Sun, Weather::Snow];
        fn name(self) -> &'static str {
            ["rain", "sun", "snow"][index(self)]
        }
    }

    #[test]
    fn classes_and_pairs_that_never_happened_are_missing() {
        let mut one = Classes::default();
        one.note(Weather::Rain);
        one.note(Weather::Rain);
        one.note(Weather::Sun);
        one.end_run();
        let mut other = Classes::default();
        other.note(Weather::Sun);
        other.end_run();
        one.merge(&other);
        assert_eq!((one.count(Weather::Rain), one.count(Weather::Sun), one.runs()), (2, 2, 2));
        assert_eq!((one.pair(Weather::Sun, Weather::Rain), one.pair(Weather::Rain, Weather::Snow)), (1, 0));
        assert_eq!(one.missing(&[]), ["snow"]);
        other.note(Weather::Snow);
        other.end_run();
        one.merge(&other);
        assert_eq!(one.missing(&[(Weather::Rain, Weather::Snow)]), ["sun with snow"]);
    }
}
