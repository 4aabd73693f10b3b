//! Names of cases. A name says all that is needed to make the state again from the recording:
//!
//! - `prefix/412`: every request up to entry 412 of the recording, no later one.
//! - `cache/412/256-263=0,300=2`: the same, but units 256 to 263 keep their durable content and
//!   unit 300 has the second newer one.
//! - `flash/412/7/3`: power fails in flash operation 7 of entry 412, with outcome 3 of the chip's
//!   menu.
//! - `cache/2/1=0+cache/5/3=1`: the check ran on `cache/2/1=0`, and power failed again after entry
//!   5 of what it did.

use super::cursor::OpenUnit;
use ftld_kit::convert::index;
use ftld_kit::failure::Failure;
use std::fmt;

/// Units that have another content than the newest acknowledged one: first and last unit of a run,
/// index of the candidate.
pub(super) type Deviations = Vec<(u32, u32, u32)>;

/// Name of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Prefix {
        entry: u64,
    },
    Cache {
        entry: u64,
        units: Deviations,
    },
    Flash {
        entry: u64,
        op: u32,
        outcome: u32,
    },
    /// A case of the recovery from another one.
    Nested {
        outer: Box<Case>,
        inner: Box<Case>,
    },
}

impl Case {
    /// Returns the case of a choice of candidates, one index per open unit.
    pub(super) fn cache(entry: u64, open: &[OpenUnit], choice: &[u32]) -> Case {
        let mut units: Deviations = Vec::new();
        for (unit, candidate) in open.iter().zip(choice) {
            if *candidate == unit.newest {
                continue;
            }
            match units.last_mut() {
                Some((_, last, same)) if *last + 1 == unit.unit && same == candidate => {
                    *last = unit.unit;
                }
                _ => units.push((unit.unit, unit.unit, *candidate)),
            }
        }
        Case::Cache { entry, units }
    }

    /// Returns the number of the last acknowledged entry.
    pub(super) fn entry(&self) -> u64 {
        match self {
            Case::Prefix { entry } | Case::Cache { entry, .. } | Case::Flash { entry, .. } => {
                *entry
            }
            Case::Nested { outer, .. } => outer.entry(),
        }
    }

    /// Returns the number of units that do not have their newest acknowledged content.
    pub(super) fn deviating(&self) -> u64 {
        match self {
            Case::Cache { units, .. } => units
                .iter()
                .map(|(first, last, _)| u64::from(last - first) + 1)
                .sum(),
            Case::Nested { outer, inner } => outer.deviating() + inner.deviating(),
            _ => 0,
        }
    }

    /// Returns the units that a case of the model `cache` names.
    pub(super) fn units(&self) -> Option<&Deviations> {
        match self {
            Case::Cache { units, .. } => Some(units),
            _ => None,
        }
    }

    /// Returns the case of the first cut.
    pub(super) fn outer(&self) -> &Case {
        match self {
            Case::Nested { outer, .. } => outer,
            case => case,
        }
    }

    pub(super) fn is_nested(&self) -> bool {
        matches!(self, Case::Nested { .. })
    }

    /// Returns a case of the recovery from a case.
    pub(super) fn of_recovery(outer: &Case, inner: Case) -> Case {
        Case::Nested {
            outer: Box::new(outer.clone()),
            inner: Box::new(inner),
        }
    }

    /// Returns the candidates of a case, one index per open unit.
    ///
    /// # Errors
    /// The case names a unit that is not open there, or a content that it does not have.
    pub(super) fn choice(units: &Deviations, open: &[OpenUnit]) -> Result<Vec<u32>, Failure> {
        let mut choice: Vec<u32> = open.iter().map(|unit| unit.newest).collect();
        for &(first, last, candidate) in units {
            for number in first..=last {
                let at = open
                    .binary_search_by_key(&number, |unit| unit.unit)
                    .map_err(|_| {
                        Failure::usage(format!("unit {number} is certain there, no cut changes it"))
                    })?;
                if index(candidate) >= open[at].candidates.len() {
                    return Err(Failure::usage(format!(
                        "unit {number} has contents 0 to {} there, not {candidate}",
                        open[at].candidates.len() - 1
                    )));
                }
                choice[at] = candidate;
            }
        }
        Ok(choice)
    }

    /// Parses a name.
    ///
    /// # Errors
    /// It is none; the message has the form.
    pub(super) fn parse(text: &str) -> Result<Case, Failure> {
        Case::parts(text).ok_or_else(|| {
            Failure::usage(format!(
                "--case {text:?} is no case; a report names them, such as cache/412/256-263=0"
            ))
        })
    }

    fn parts(text: &str) -> Option<Case> {
        if let Some((outer, inner)) = text.split_once('+') {
            let [outer, inner] = [outer, inner].map(Case::plain);
            return Some(Case::of_recovery(&outer?, inner?));
        }
        Case::plain(text)
    }

    fn plain(text: &str) -> Option<Case> {
        let (model, rest) = text.split_once('/')?;
        let (entry, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let entry = entry.parse().ok()?;
        match model {
            "prefix" if rest.is_empty() => Some(Case::Prefix { entry }),
            "cache" => {
                let runs = rest.split(',').filter(|run| !run.is_empty());
                let units = runs.map(run).collect::<Option<_>>()?;
                Some(Case::Cache { entry, units })
            }
            "flash" => {
                let (op, outcome) = rest.split_once('/')?;
                Some(Case::Flash {
                    entry,
                    op: op.parse().ok()?,
                    outcome: outcome.parse().ok()?,
                })
            }
            _ => None,
        }
    }
}

/// Parses `256-263=0` or `256=0`.
fn run(text: &str) -> Option<(u32, u32, u32)> {
    let (units, candidate) = text.split_once('=')?;
    let (first, last) = units.split_once('-').unwrap_or((units, units));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last, candidate.parse().ok()?))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Nested { outer, inner } => write!(f, "{outer}+{inner}"),
            Case::Prefix { entry } => write!(f, "prefix/{entry}"),
            Case::Flash { entry, op, outcome } => write!(f, "flash/{entry}/{op}/{outcome}"),
            Case::Cache { entry, units } => {
                write!(f, "cache/{entry}")?;
                for (i, (first, last, candidate)) in units.iter().enumerate() {
                    let before = if i == 0 { '/' } else { ',' };
                    match first == last {
                        true => write!(f, "{before}{first}={candidate}")?,
                        false => write!(f, "{before}{first}-{last}={candidate}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "prefix/7",
            "cache/412",
            "cache/412/256=0",
            "cache/412/256-263=0,300=2",
            "flash/9/3/17",
            "cache/2/1=0+cache/5/3=1",
            "prefix/2+prefix/5",
        ] {
            assert_eq!(Case::parse(text).unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "cache",
            "cache/x",
            "cache/1/5",
            "cache/1/9-5=0",
            "prefix/1/2=0",
            "flash/1/2",
            "disk/1",
            "cache/2+",
            "+cache/2",
            "cache/2+cache/3+cache/4",
        ] {
            let failure = Case::parse(wrong).unwrap_err();
            assert!(failure.message.contains("is no case"), "{wrong}: {failure}");
        }
    }

    #[test]
    fn neighbours_with_the_same_index_are_one_run() {
        let open = |unit, newest| OpenUnit {
            unit,
            slot: unit,
            candidates: vec![crate::crashes::content::ZEROS; 3],
            requests: vec![0, 1, 2],
            newest,
        };
        let open = [open(4, 2), open(5, 2), open(6, 1), open(9, 1)];
        let case = Case::cache(3, &open, &[0, 0, 0, 1]);
        assert_eq!(case.to_string(), "cache/3/4-6=0");
        assert_eq!(case.deviating(), 3);
        let Case::Cache { units, .. } = case else {
            panic!("another model")
        };
        assert_eq!(Case::choice(&units, &open).unwrap(), [0, 0, 0, 1]);
        let wrong = Case::choice(&vec![(7, 7, 0)], &open).unwrap_err();
        assert!(wrong.message.contains("unit 7 is certain"), "{wrong}");
        let wrong = Case::choice(&vec![(4, 4, 3)], &open).unwrap_err();
        assert!(wrong.message.contains("contents 0 to 2"), "{wrong}");
    }
}
