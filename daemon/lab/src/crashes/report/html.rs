//! The report as one page without scripts or other files.

use super::text::short;
use super::{About, FailedCase, Report, name};
use ftld_kit::output::counted;
use ftld_kit::quote::escaped;

const STYLE: &str = include_str!("page.css");
/// Largest number of failed cases on the page.
const CASES_MAX: usize = 20;

/// Returns the page.
pub(in crate::crashes) fn html(report: &Report, about: &About<'_>) -> String {
    let verdict = match report.failed {
        0 if report.interrupted => "<p class=\"bad\">No state failed so far.</p>".to_owned(),
        0 => "<p class=\"good\">No state failed.</p>".to_owned(),
        failed => format!("<p class=\"bad\">{} failed.</p>", counted(failed, "state")),
    };
    let [changes, flushes, marks] = report.counts;
    let rows = [
        ("recording", report.recording()),
        ("check", report.check.clone()),
        ("model", name(&report.model)),
        ("cut at every", name(&report.at)),
        (
            "seed, states per point",
            format!("{}, {}", report.seed, report.states_per_point),
        ),
        (
            "changes, FLUSHes, marks",
            format!("{changes}, {flushes}, {marks}"),
        ),
        (
            "points visited",
            format!("{} of {}", report.points, report.points_all),
        ),
        ("states", report.states.to_string()),
        ("different ones checked", report.checked.to_string()),
        ("failed", report.failed.to_string()),
        ("ignored", report.ignored.to_string()),
        (
            "coverage",
            report
                .coverage
                .text(report.states_per_point)
                .unwrap_or_default(),
        ),
        ("no answer in time", report.timed_out.to_string()),
        (
            "time",
            format!("{:.1} s on {} jobs", report.seconds, report.jobs),
        ),
        (
            "per minute and core",
            format!("{:.0} states", report.rate()),
        ),
        ("ftld", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let table: String = rows
        .iter()
        .map(|(what, value)| {
            format!(
                "<tr><th scope=\"row\">{what}</th><td>{}</td></tr>\n",
                escaped(value)
            )
        })
        .collect();
    let mut cases = String::new();
    if let Some(shortest) = report.shortest() {
        cases += "<h2>Shortest failing case</h2>\n";
        cases += &case(report, about, shortest);
    }
    let groups = report.groups.by_states();
    if !groups.is_empty() {
        cases += "<h2>Failed states by message</h2>\n<table>\n";
        for group in groups {
            cases += &format!(
                "<tr><td>{}</td><td>{}</td><td>earliest {}, smallest {}</td></tr>\n",
                group.states,
                escaped(&group.message),
                escaped(&short(&group.earliest.case)),
                escaped(&short(&group.smallest.case))
            );
        }
        cases += "</table>\n";
    }
    if !report.cases.is_empty() {
        cases += "<h2>Failed states, smallest first</h2>\n";
        for failed in report.cases.iter().take(CASES_MAX) {
            cases += &format!(
                "<details><summary>{}</summary>\n{}</details>\n",
                escaped(&short(&failed.case)),
                case(report, about, failed)
            );
        }
    }
    let mut note = String::new();
    if let Some(nested) = report.in_recoveries() {
        note += &format!("<p>Checked: {}; {nested}.</p>\n", report.checked);
    }
    if report.time_is_up {
        note += "<p>The time of --for is up.</p>\n";
    }
    if let Some(why) = report.incomplete() {
        note += &format!("<p>States are missing: {why}.</p>\n");
    }
    if let Some(missing) = about.missing() {
        note += &format!("<p>{}.</p>\n", escaped(&missing));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>ftld crashes: {title}</title>\n<style>\n{STYLE}</style>\n\
         <h1>Crash states of {title}</h1>\n{verdict}\n{strip}{note}<table>\n{table}</table>\n{cases}</html>\n",
        title = escaped(&report.recording()),
        strip = report.strip.svg()
    )
}

fn case(report: &Report, about: &About<'_>, failed: &FailedCase) -> String {
    let lines: String = about
        .lines(failed)
        .iter()
        .map(|line| format!("<li>{}</li>\n", escaped(line)))
        .collect();
    let mark = match failed.mark.is_empty() {
        true => "No mark before the cut.".to_owned(),
        false => format!("Last mark before the cut: {}.", failed.mark),
    };
    format!(
        "<ul>\n{lines}<li>{}</li>\n<li>The check: {}.</li>\n</ul>\n<pre>{}</pre>\n\
         <p>Show it again:</p>\n<pre>{}</pre>\n",
        escaped(&mark),
        escaped(&failed.said),
        escaped(&failed.output),
        escaped(&report.command(&failed.case))
    )
}
