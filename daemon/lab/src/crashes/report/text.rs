//! The report on the terminal.

use super::{About, FailedCase, Report, name};
use ftld_kit::convert::to_u64;
use ftld_kit::output::counted;
use std::fmt::Write;

/// Lines of a check's output that the text shows.
const OUTPUT_LINES: usize = 12;

/// Returns the report as text.
pub(in crate::crashes) fn text(report: &Report, about: &About<'_>) -> String {
    let mut out = String::new();
    let [changes, flushes, marks] = report.counts;
    let cut = if report.was_cut_off { ", cut off" } else { "" };
    let flushes = match flushes {
        1 => "1 FLUSH".to_owned(),
        several => format!("{several} FLUSHes"),
    };
    let _ = writeln!(
        out,
        "{}: {}, {flushes}, {}{cut}",
        report.recording,
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
        "{}, {} different ones checked{kept}, {} failed",
        counted(report.states, "state"),
        report.checked,
        report.failed
    );
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
        out += "interrupted; with --ledger FILE the same command continues\n";
    } else if report.stopped {
        let _ = writeln!(
            out,
            "stopped after {}; --failures 0 visits all",
            counted(report.failed, "failed state")
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
