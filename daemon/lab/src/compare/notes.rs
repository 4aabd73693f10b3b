//! Sentences beside the tables: what limits or explains their figures.

use super::cells::Cell;
use super::figures::{Side, reads, writes};
use super::labels::Labels;
use super::units::Unit;
use crate::replay::{Row, overload};
use ftld_kit::convert::to_f64;
use std::collections::BTreeSet;

/// Difference of a requested and an effective over-provisioning that is explained, in percent of
/// the size.
pub(super) const OP_APART: f64 = 1.0;

/// Returns a sentence with the runs whose write amplification had not settled.
pub(super) fn unsettled(rows: &[&Row], labels: &Labels) -> String {
    let is_open = |row: &&&Row| row.settling.as_ref().is_some_and(|of| !of.is_settled);
    let open: BTreeSet<_> = rows
        .iter()
        .filter(is_open)
        .map(|row| labels.of(row))
        .collect();
    match open.is_empty() {
        true => String::new(),
        false => format!(
            " The write amplification had not settled in runs of {}.",
            open.into_iter().collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Returns a sentence with the runs whose device did not sustain the load.
pub(super) fn overloaded(rows: &[&Row], labels: &Labels) -> String {
    let over = rows.iter().filter(|row| overload(row).is_some());
    let over: BTreeSet<_> = over.map(|row| labels.of(row)).collect();
    match over.is_empty() {
        true => String::new(),
        false => format!(
            " The device did not sustain the load in runs of {}: response times grow with their length.",
            over.into_iter().collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Returns the warnings about all runs.
pub(super) fn warnings(rows: &[&Row]) -> Option<String> {
    nothing_collected(rows).or_else(|| short(rows))
}

/// Returns a warning if no run copied a page to reclaim space; `None` without runs.
fn nothing_collected(rows: &[&Row]) -> Option<String> {
    let nothing = !rows.is_empty() && rows.iter().all(|row| row.collected.copies == 0);
    let erases: u128 = rows
        .iter()
        .map(|row| u128::from(row.collected.erases))
        .sum();
    nothing.then(|| {
        format!(
            "NOTHING WAS COLLECTED: no run copied a page to reclaim space ({erases} erases in {} runs), so these figures do not \
             compare garbage collection; use --precondition steady or --age, or more requests or --loops",
            rows.len()
        )
    })
}

/// Returns a warning if runs wrote less than the device once; `None` without such runs.
fn short(rows: &[&Row]) -> Option<String> {
    let written = |row: &&&Row| {
        let share = to_f64(row.requests.pages_written) / f64::from(row.device.logical_pages.max(1));
        (share > 0.0 && share < 1.0).then_some(share)
    };
    let shares: Vec<f64> = rows.iter().filter_map(|row| written(&row)).collect();
    let least = shares.iter().copied().reduce(f64::min)?;
    Some(format!(
        "SHORT RUNS: {} of {} runs wrote less than one drive write, the shortest {}: their write amplification, \
         percentiles and erases depend on the state that the run began with; use more requests or --loops",
        shares.len(),
        rows.len(),
        super::axis::digits(least)
    ))
}

/// Returns a sentence that explains means beyond their p99.
pub(super) fn mean_beyond_p99(cells: &[Cell<'_>], labels: &Labels) -> String {
    let sides = [("writes", writes as Side), ("reads", reads as Side)];
    let mut text = String::new();
    for (name, side) in sides {
        let is_beyond = |cell: &&Cell<'_>| {
            side(cell.first()).is_some_and(|response| response.mean > to_f64(response.p99))
        };
        let beyond: Vec<&Cell<'_>> = cells.iter().filter(is_beyond).collect();
        let Some(response) = beyond.first().and_then(|cell| side(cell.first())) else {
            continue;
        };
        let names: Vec<String> = beyond.iter().map(|cell| labels.of(cell.first())).collect();
        let time = |ns: f64| Unit::Time.of(ns);
        text += &format!(
            " The mean of {name} is beyond their p99 under {}: less than 1 % of them wait so long, such as for GC or a \
             merge, that the mean is above what 99 % take; under {} half take {} or less, and the slowest took {}.",
            names.join(", "),
            names[0],
            time(to_f64(response.p50)),
            time(to_f64(response.max))
        );
    }
    text
}

/// Returns sentences that explain an over-provisioning that is not the requested one.
pub(super) fn over_provisioning(rows: &[&Row]) -> String {
    let effective = rows.iter().map(|row| row.device.effective_op_percent);
    let (low, high) = effective.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), op| {
        (low.min(op), high.max(op))
    });
    let range = match high - low < OP_APART {
        true => format!("{high:.1}"),
        false => format!("{low:.1} to {high:.1}"),
    };
    let is_apart = |row: &&Row| {
        let device = &row.device;
        let asked = device.op_percent.or(row.job.op_effective);
        asked.is_some_and(|asked| (device.effective_op_percent - asked).abs() >= OP_APART)
    };
    let asked = rows.iter().copied().find(is_apart);
    if let Some(asked) = asked.and_then(|row| row.device.op_percent) {
        return format!(
            " OP % is all good flash beyond the size, {range} for --op {asked}: the reserves, mapping pages and log blocks of \
             a scheme come on top of --op, in whole blocks, and weigh most on a small device."
        );
    }
    match rows.iter().all(|row| row.job.raw.is_some()) {
        true => format!(
            " OP % is all good flash beyond the size, {range}: the runs of a size have equal raw flash, as much as the scheme \
             that needs most for its reserves, mapping pages and log blocks on top of --op; --raw own gives each its own."
        ),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::cells;
    use super::*;
    use crate::replay::{self, Job};

    fn row(requests: u32) -> Row {
        let job = Job {
            workload: format!("uniform:requests={requests}"),
            scheme: Some("fast".into()),
            size: Some("4MiB".into()),
            op: Some(7.0),
            ..Job::default()
        };
        replay::run(&job, &mut |_, _| ()).unwrap()
    }

    #[test]
    fn runs_below_one_drive_write_are_named() {
        let (below, above) = (row(500), row(1500));
        let text = short(&[&below, &above]).unwrap();
        assert!(
            text.contains("1 of 2 runs") && text.contains("the shortest 0.488"),
            "{text}"
        );
        assert_eq!(short(&[&above]), None);
        assert!(over_provisioning(&[&above]).contains("for --op 7: the reserves"));
        let mut shared = above.clone();
        (shared.job.raw, shared.device.op_percent) = (Some("9".into()), None);
        assert!(over_provisioning(&[&shared]).contains("equal raw flash"));
        shared.device.op_percent = Some(shared.device.effective_op_percent + 0.5);
        shared.job.raw = None;
        assert_eq!(over_provisioning(&[&shared]), "");
    }

    #[test]
    fn a_mean_beyond_p99_is_explained_with_median_and_maximum() {
        let mut row = row(500);
        let text = |row: &Row| mean_beyond_p99(&cells(&[row]), &Labels::new(&[row]));
        let write = row.response_ns.write.as_mut().unwrap();
        (write.p50, write.p99, write.max, write.mean) = (1_300_000, 1_300_000, 250_000_000, 1e6);
        assert_eq!(text(&row), "");
        row.response_ns.write.as_mut().unwrap().mean = 2e6;
        let text = text(&row);
        for part in [
            "writes is beyond their p99 under fast",
            "take 1.3 ms",
            "took 250 ms",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
