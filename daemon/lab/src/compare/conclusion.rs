//! What a comparison says: a sentence per workload and group of cells.
//!
//! Invariants: with several seeds, a difference is one whose 95 % interval of the ratios, paired by
//! seed, does not contain 1. With one seed there is no interval, and the page says so.

use super::axis::digits;
use super::cells::Cell;
use super::labels::Labels;
use super::notes::OP_APART;
use super::units::Unit;
use crate::replay::{Quantity, estimate, ratio};
use crate::statistics::{Difference, Estimate};
use ftld_kit::convert::to_f64;
use ftld_kit::quote::escaped;

/// A quantity of which less is better.
struct Measure {
    name: &'static str,
    least: &'static str,
    unit: Unit,
    of: Quantity,
}

const MEASURES: [Measure; 4] = [
    Measure {
        name: "write amplification",
        least: "the least write amplification",
        unit: Unit::Number(3),
        of: |row| row.write_amplification.total,
    },
    Measure {
        name: "p99 of writes",
        least: "the shortest p99 of writes",
        unit: Unit::Time,
        of: |row| Some(to_f64(row.response_ns.write.as_ref()?.p99)),
    },
    Measure {
        name: "p99 of reads",
        least: "the shortest p99 of reads",
        unit: Unit::Time,
        of: |row| Some(to_f64(row.response_ns.read.as_ref()?.p99)),
    },
    Measure {
        name: "erases",
        least: "the fewest erases",
        unit: Unit::Number(0),
        of: |row| Some(to_f64(row.erases.total)),
    },
];

/// Names in a sentence; of more, their number.
const NAMES: usize = 3;

/// Another cell beside the best one.
enum Beside {
    Same,
    /// More, with the ratio and the ends of its interval if there are some.
    More(Option<(f64, Option<(f64, f64)>)>),
}

/// Returns the sentences of a workload as HTML, each after the settings of its group.
pub(super) fn sentences(cells: &[Cell<'_>], labels: &Labels) -> Vec<(String, String)> {
    let is_base = |(number, cell): &(usize, &Cell<'_>)| cell.base == *number;
    let bases = cells.iter().enumerate().filter(is_base);
    let of = |(base, first): (usize, &Cell<'_>)| {
        let group: Vec<&Cell<'_>> = cells.iter().filter(|cell| cell.base == base).collect();
        let settings = labels.of_settings(first.first());
        (settings, sentence(&group, labels) + &unequal(&group) + ".")
    };
    bases.map(of).collect()
}

/// Returns what the intervals are, or that there are none.
pub(super) fn basis(cells: &[Cell<'_>]) -> String {
    let seeds = || cells.iter().map(|cell| cell.runs.len());
    let (least, most) = (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0));
    let differ = |cell: &Cell<'_>| {
        MEASURES.iter().any(|measure| {
            let found = estimate(&cell.runs, measure.of);
            found.is_some_and(|found| found.half_width().is_some_and(|half| half > 0.0))
        })
    };
    match (least, most) {
        (_, 0 | 1) => "One seed: there is no interval, so a small difference may be chance; \
                       --seeds 5 gives intervals."
            .into(),
        _ if !cells.iter().any(differ) => {
            format!("The runs of all {most} seeds are equal: their intervals say nothing.")
        }
        (least, most) if least < most => format!(
            "± and brackets are 95 % intervals over up to {most} seeds; runs of one seed have none."
        ),
        (_, most) => format!("± and brackets are 95 % intervals over {most} seeds."),
    }
}

/// Returns a remark on a group whose cells differ in their effective over-provisioning.
fn unequal(group: &[&Cell<'_>]) -> String {
    let of = group
        .iter()
        .map(|cell| cell.first().device.effective_op_percent);
    let (low, high) = of.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), op| {
        (low.min(op), high.max(op))
    });
    match high - low < OP_APART {
        true => String::new(),
        false => format!("; over-provisioning is unequal, {low:.1} to {high:.1} %"),
    }
}

fn sentence(group: &[&Cell<'_>], labels: &Labels) -> String {
    let parts = MEASURES
        .iter()
        .filter_map(|measure| part(measure, group, labels));
    let mut parts: Vec<String> = parts.collect();
    if let [only] = group {
        let name = escaped(&labels.in_group(only.first()));
        parts.insert(0, format!("<b>{name}</b> has no other scheme beside it"));
    }
    parts.join("; ")
}

/// Returns what a measure says about a group; `None` if no cell has it.
fn part(measure: &Measure, group: &[&Cell<'_>], labels: &Labels) -> Option<String> {
    let found = group.iter().filter_map(|cell| {
        let value = estimate(&cell.runs, measure.of)?;
        Some((*cell, value))
    });
    let mut found: Vec<(&Cell<'_>, Estimate)> = found.collect();
    // The order of the plan stays among equal ones.
    found.sort_by(|one, next| one.1.mean.total_cmp(&next.1.mean));
    let (first, others) = found.split_first()?;
    let (best, value) = *first;
    let shown = measure.unit.human(value);
    let name = |cell: &Cell<'_>| escaped(&labels.in_group(cell.first()));
    let is_repeated = found.iter().any(|(cell, _)| cell.runs.len() > 1);
    let mut same = vec![format!("<b>{}</b>", name(best))];
    let mut next = None;
    for &(cell, other) in others {
        match beside(measure, (best, value), (cell, other)) {
            Beside::Same => same.push(format!("<b>{}</b>", name(cell))),
            Beside::More(more) => {
                next.get_or_insert_with(|| {
                    let more = more.map_or_else(|| measure.unit.human(other), told);
                    format!("{} {more}", name(cell))
                });
            }
        }
    }
    let beyond = if is_repeated {
        " beyond the spread"
    } else {
        ""
    };
    Some(match (next, &same[..]) {
        (_, [_]) if group.len() == 1 => format!("{} {shown}", measure.name),
        (None, [_]) => format!("{} {shown} under {} alone", measure.name, same[0]),
        (None, _) => format!("no difference in {}{beyond}, {shown}", measure.name),
        (Some(next), [only]) => format!("{only} has {}, {shown}, {next}", measure.least),
        (Some(next), _) => format!(
            "{} have {}, {shown}, with no difference{beyond}, {next}",
            listed(&same),
            measure.least
        ),
    })
}

/// Compares a cell with the best one.
fn beside(
    measure: &Measure,
    (best, value): (&Cell<'_>, Estimate),
    (cell, other): (&Cell<'_>, Estimate),
) -> Beside {
    if let Some(ratio) = ratio(&cell.runs, &best.runs, measure.of) {
        return match ratio.difference {
            Difference::None | Difference::Less => Beside::Same,
            Difference::More => Beside::More(Some((ratio.ratio, Some((ratio.low, ratio.high))))),
        };
    }
    // A run of one seed is as wide as its value.
    let has_interval = value.high.is_some() || other.low.is_some();
    let is_same = match has_interval {
        true => other.low.unwrap_or(other.mean) <= value.high.unwrap_or(value.mean),
        false => measure.unit.human(value) == measure.unit.human(other),
    };
    match is_same {
        true => Beside::Same,
        false => {
            let has_ratio = value.mean > 0.0 && !has_interval;
            Beside::More(has_ratio.then(|| (other.mean / value.mean, None)))
        }
    }
}

/// Tells a ratio above 1 in percent, from 2 on in times.
fn told((ratio, interval): (f64, Option<(f64, f64)>)) -> String {
    let is_times = ratio >= 2.0;
    let shown = |ratio: f64| {
        let percent = (ratio - 1.0) * 100.0;
        match (is_times, percent < 10.0) {
            (true, _) => digits(ratio),
            (false, true) => format!("{percent:.1}"),
            (false, false) => format!("{percent:.0}"),
        }
    };
    let unit = if is_times { "" } else { " %" };
    let interval = interval.filter(|(low, high)| shown(*low) != shown(*high));
    let interval =
        interval.map(|(low, high)| format!(" ({} to {}{unit})", shown(low), shown(high)));
    let more = if is_times {
        " times as much"
    } else {
        " % more"
    };
    shown(ratio) + more + &interval.unwrap_or_default()
}

fn listed(names: &[String]) -> String {
    let (shown, others) = names.split_at(names.len().min(NAMES));
    match (shown, others.len()) {
        ([before @ .., last], 0) => format!("{} and {last}", before.join(", ")),
        (shown, 1) => format!("{} and 1 other", shown.join(", ")),
        (shown, more) => format!("{} and {more} others", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::cells;
    use super::*;
    use crate::replay::{self, Job, Row};

    /// Returns runs of schemes with these write amplifications, one per seed.
    fn rows(schemes: &[(&str, &[f64])]) -> Vec<Row> {
        let job = Job {
            workload: "uniform:requests=300".into(),
            scheme: Some("pagemap".into()),
            size: Some("1MiB".into()),
            ..Job::default()
        };
        let made = replay::run(&job, &mut |_, _| ()).unwrap();
        let mut rows = Vec::new();
        for (scheme, values) in schemes {
            for (seed, value) in (1..).zip(values.iter()) {
                let mut row = made.clone();
                (row.job.scheme, row.scheme) = (Some((*scheme).into()), (*scheme).into());
                (row.job.seed, row.write_amplification.total) = (seed, Some(*value));
                row.response_ns.write.as_mut().unwrap().p99 = 1_300_000;
                row.erases.total = if *scheme == "c" { 50 } else { 20 };
                rows.push(row);
            }
        }
        rows
    }

    fn concluded(schemes: &[(&str, &[f64])]) -> (String, String) {
        concluded_of(&rows(schemes))
    }

    fn concluded_of(rows: &[Row]) -> (String, String) {
        let rows: Vec<&Row> = rows.iter().collect();
        let cells = cells(&rows);
        let found = sentences(&cells, &Labels::new(&rows));
        assert_eq!((found.len(), &found[0].0[..]), (1, ""));
        (found[0].1.clone(), basis(&cells))
    }

    #[test]
    fn a_sentence_names_the_best_and_only_differences_beyond_the_spread() {
        let (sentence, basis) = concluded(&[
            ("c", &[3.0, 3.15, 2.85]),
            ("a", &[2.0, 2.1, 1.9]),
            ("b", &[2.1, 2.0, 1.95]),
        ]);
        assert_eq!(
            sentence,
            "<b>a</b> and <b>b</b> have the least write amplification, 2.0 ± 0.2, with no difference beyond the spread, \
             c 50 % more; no difference in p99 of writes beyond the spread, 1.30 ± 0.00 ms; <b>a</b> and <b>b</b> have \
             the fewest erases, 20 ± 0, with no difference beyond the spread, c 2.5 times as much."
        );
        assert_eq!(basis, "± and brackets are 95 % intervals over 3 seeds.");
        // Pairs that differ by a like factor: the means overlap, the interval of the ratio is
        // short.
        let (sentence, _) = concluded(&[("a", &[2.0, 3.0, 2.5]), ("b", &[2.3, 3.3, 2.9])]);
        assert!(
            sentence.starts_with(
                "<b>a</b> has the least write amplification, 2.5 ± 1.2, b 14 % more (5.9 to 22 %); "
            ),
            "{sentence}"
        );
    }

    #[test]
    fn one_seed_and_one_scheme_have_no_interval_and_no_rival() {
        let (sentence, basis) = concluded(&[("a", &[2.0]), ("b", &[2.5])]);
        assert!(sentence.starts_with(
            "<b>a</b> has the least write amplification, 2.000, b 25 % more; no difference in p99"
        ));
        assert!(
            !sentence.contains("spread") && basis.starts_with("One seed: there is no interval")
        );
        let mut unlike = rows(&[("a", &[2.0]), ("b", &[2.5])]);
        (
            unlike[0].device.effective_op_percent,
            unlike[1].device.effective_op_percent,
        ) = (17.0, 98.0);
        let sentence = concluded_of(&unlike).0;
        assert!(
            sentence.ends_with("; over-provisioning is unequal, 17.0 to 98.0 %."),
            "{sentence}"
        );
        let (sentence, _) = concluded(&[("a", &[2.0])]);
        assert!(sentence.starts_with("<b>a</b> has no other scheme beside it; write amplification 2.000; p99 of writes 1.3 ms"), "{sentence}");
        let names: Vec<String> = ["p", "q", "r", "s", "t"].map(str::to_owned).to_vec();
        assert_eq!(
            (listed(&names[..2]), listed(&names[..4]), listed(&names)),
            (
                "p and q".into(),
                "p, q, r and 1 other".into(),
                "p, q, r and 2 others".into()
            )
        );
    }
}
