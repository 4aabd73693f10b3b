//! The report on the terminal.

use super::{About, FailedCase, Report, name};
use std::fmt::Write;

/// Lines of a check's output that the text shows.
const OUTPUT_LINES: usize = 12;

/// Returns the report as text.
pub(in crate::crashes) fn text(report: &Report, about: &About<'_>) -> String {
    let mut out = String::new();
    let [changes, flushes, marks] = report.counts;
    let cut = if report.was_cut_off { ", cut off" } else { "" };
    let _ = writeln!(
        out,
        "{}: {changes} changes, {flushes} FLUSHes, {marks} marks{cut}",
        report.recording
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
        "{} states, {} different ones checked{kept}, {} failed",
        report.states, report.checked, report.failed
    );
    let _ = writeln!(
        out,
        "{:.1} s, {:.0} states per minute and core, {} jobs",
        report.seconds,
        report.rate(),
        report.jobs
    );
    if report.interrupted {
        out += "interrupted; with --ledger FILE the same command continues\n";
    } else if report.stopped {
        let _ = writeln!(
            out,
            "stopped after {} failed states; --failures 0 visits all",
            report.failed
        );
    }
    if let Some(failed) = report.shortest() {
        out += &case(report, about, failed);
    }
    out
}

fn case(report: &Report, about: &About<'_>, failed: &FailedCase) -> String {
    let mut out = String::from("\nshortest failing case:\n");
    for line in about.explain(&failed.case) {
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
