//! The report on the terminal.

use super::super::case::Case;
use super::{About, FailedCase, Report, name};
use ftld_kit::convert::to_u64;
use ftld_kit::output::counted;
use std::fmt::Write;

/// Lines of a check's output that the text shows.
const OUTPUT_LINES: usize = 12;
/// Longest name of a case in a list.
pub(super) const NAME_MAX: usize = 80;

/// Returns the report as text.
pub(in crate::crashes) fn text(report: &Report, about: &About<'_>) -> String {
    let mut out = String::new();
    // With a slow check that is what matters most.
    if report.time_is_up {
        let _ = writeln!(
            out,
            "the time of --for is up: {} of {} points visited",
            report.points, report.points_all
        );
    }
    let [changes, flushes, marks] = report.counts;
    let cut = if report.was_cut_off { ", cut off" } else { "" };
    let flushes = match flushes {
        1 => "1 FLUSH".to_owned(),
        several => format!("{several} FLUSHes"),
    };
    let _ = writeln!(
        out,
        "{}: {}, {flushes}, {}{cut}",
        report.recording(),
        counted(to_u64(changes), "change"),
        counted(to_u64(marks), "mark")
    );
    let _ = writeln!(
        out,
        "model {}, cut at every {}: {} of {} points",
        name(&report.model),
        name(&report.at),
        report.points,
        report.points_all
    );
    let kept = match report.from_ledger {
        0 => String::new(),
        kept => format!(" ({kept} of them before)"),
    };
    let _ = writeln!(
        out,
        "{}, {} different ones checked{kept}, {} failed{}",
        counted(report.states, "state"),
        report.checked,
        report.failed,
        match report.ignored {
            0 => String::new(),
            ignored => format!(", {ignored} ignored"),
        }
    );
    if report.fails_uncut {
        let _ = writeln!(
            out,
            "the check fails without a cut, too, after the last entry: look at the check first"
        );
    }
    if let Some(nested) = report.in_recoveries() {
        let _ = writeln!(out, "{nested}");
    }
    if let Some(coverage) = report.coverage.text(report.states_per_point) {
        let _ = writeln!(out, "{coverage}");
    }
    let _ = writeln!(
        out,
        "{:.1} s, {:.0} states per minute and core, {}",
        report.seconds,
        report.rate(),
        counted(report.jobs.into(), "job")
    );
    if let Some(missing) = about.missing() {
        let _ = writeln!(out, "{missing}");
    }
    if report.interrupted {
        let _ = match report.has_ledger {
            true => writeln!(out, "interrupted; the same command continues"),
            false => writeln!(
                out,
                "interrupted; `ftld crashes {}` with --ledger FILE keeps verdicts",
                report.recordings.join(" ")
            ),
        };
    } else if report.stopped {
        let _ = writeln!(
            out,
            "stopped after {}; {} visits all",
            counted(report.failed, "failed state"),
            match report.in_process {
                true => "failures(0)",
                false => "--failures 0",
            }
        );
    }
    let groups = report.groups.by_states();
    if groups.len() > 1 {
        out += "\nfailed states by message:\n";
        for group in groups {
            let _ = writeln!(
                out,
                "  {:>8}  {}\n            earliest {}, smallest {}",
                group.states,
                group.message,
                short(&group.earliest.case),
                short(&group.smallest.case)
            );
        }
    }
    if let Some(failed) = report.shortest() {
        out += &case(report, about, failed);
        let earliest = report.groups.earliest();
        if let Some(earliest) = earliest.filter(|of| of.case.entry() < failed.case.entry()) {
            let _ = writeln!(
                out,
                "earliest failing case, after entry {}:\n  {}",
                earliest.case.entry(),
                report.command(&earliest.case)
            );
        }
    }
    out
}

/// Returns what one case is, and what the check said of it.
pub(in crate::crashes) fn one(case: &FailedCase, about: &About<'_>) -> String {
    let mut text: String = about
        .lines(case)
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    match case.mark.as_str() {
        "" => text += "no mark before the cut\n",
        mark => text += &format!("last mark before the cut: {mark}\n"),
    }
    text += &case.output;
    if !case.output.is_empty() && !case.output.ends_with('\n') {
        text.push('\n');
    }
    text + &format!("the check: {}\n", case.said)
}

/// Returns the name of a case, shortened.
pub(super) fn short(case: &Case) -> String {
    let name = case.to_string();
    match name.char_indices().nth(NAME_MAX) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name,
    }
}

fn case(report: &Report, about: &About<'_>, failed: &FailedCase) -> String {
    let mut out = String::from("\nshortest failing case:\n");
    for line in about.lines(failed) {
        let _ = writeln!(out, "  {line}");
    }
    match failed.mark.is_empty() {
        true => out += "  no mark before the cut\n",
        false => drop(writeln!(out, "  last mark before the cut: {}", failed.mark)),
    }
    let _ = writeln!(out, "  the check: {}", failed.said);
    let lines: Vec<_> = failed.output.lines().collect();
    for line in &lines[lines.len().saturating_sub(OUTPUT_LINES)..] {
        let _ = writeln!(out, "    {line}");
    }
    let _ = writeln!(out, "show it again:\n  {}", report.command(&failed.case));
    out
}
