//! One page with tables and plots in one file: no script, no external resources.

use super::cells::{self, Cell};
use super::plot::{self, Bars, Curve};
use super::table::Labels;
use super::{Failed, table};
use crate::convert::{to_f64, to_u64};
use crate::failure::Failure;
use crate::replay::{Response, Row};
use crate::size::show_size;
use nand_model::Cause;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1160px;padding:0 1em;color:#1b1f24;background:#fff}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2.5em;border-top:1px solid #d0d7de;padding-top:1em;overflow-wrap:anywhere}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1em 0;display:block;overflow-x:auto}\
th,td{padding:.25em .55em;text-align:right;border-bottom:1px solid #eaeef2;white-space:nowrap}th:first-child,td:first-child{text-align:left}\
tr.bound td{color:#57606a;font-style:italic}svg{max-width:100%;height:auto;display:block;margin:.6em 0}p.note{color:#57606a}.error{color:#b42318}";

/// Returns the page.
pub(super) fn page(rows: &[&Row], failed: &[&Failed]) -> Result<String, Failure> {
    let (mut body, labels) = (String::new(), Labels::new(rows));
    for workload in table::workloads(rows) {
        let of: Vec<_> = rows
            .iter()
            .filter(|row| row.job.workload == workload)
            .copied()
            .collect();
        body += &section(workload, &of, &labels)?;
    }
    for Failed { job, error, .. } in failed {
        let scheme = job.scheme.as_deref().unwrap_or("default");
        body += &format!(
            "<p class=\"error\">{} on {}: {}</p>\n",
            escaped(scheme),
            escaped(&job.workload),
            escaped(error)
        );
    }
    let warning = table::nothing_collected(rows).map_or(String::new(), |warning| {
        format!("<p class=\"error\">{}</p>\n", escaped(&warning))
    });
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>ftld compare</title><style>{STYLE}</style></head><body>\n<h1>ftld compare</h1>\n\
         <p class=\"note\">{} runs, ftld {version}. Times are emulated.</p>\n{warning}{body}</body></html>\n",
        rows.len()
    ))
}

fn section(workload: &str, rows: &[&Row], all: &Labels) -> Result<String, Failure> {
    assert!(!rows.is_empty(), "a section for {workload} without a run");
    let of = &cells::cells(rows)[..];
    let labels: Vec<_> = of.iter().map(|cell| all.of(cell.first())).collect();
    let mut text = format!(
        "<h2>{}</h2>\n<p class=\"note\">{}</p>\n{}",
        escaped(workload),
        escaped(&about(rows)),
        figures(of, all)
    );
    text += &plot::bars(&Bars {
        title: "Write amplification by cause: flash programs per page the host wrote",
        labels: &labels,
        parts: &Cause::ALL.map(Cause::name),
        value: &|bar, part| {
            mean(&of[bar], |row| {
                let causes = &row.write_amplification.by_cause;
                causes.get(Cause::ALL[part].name()).copied().unwrap_or(0.0)
            })
        },
    })?;
    type Side = fn(&Row) -> &Option<Response>;
    let sides: [(&str, Side); 2] = [
        (
            "Write response time: share of the responses above x",
            |row| &row.response_ns.write,
        ),
        (
            "Read response time: share of the responses above x",
            |row| &row.response_ns.read,
        ),
    ];
    for (title, side) in sides {
        let curves: Vec<_> = of
            .iter()
            .zip(&labels)
            .filter_map(|(cell, label)| {
                let points = side(cell.first())
                    .as_ref()?
                    .quantiles
                    .iter()
                    .map(|&(share, ns)| (to_f64(ns) / 1e3, 1.0 - share))
                    .collect();
                Some(Curve { label, points })
            })
            .collect();
        text += &plot::tails(title, "emulated us", &curves)?;
    }
    let curves: Vec<_> = of
        .iter()
        .zip(&labels)
        .map(|(cell, label)| Curve {
            label,
            points: spread(cell.first()),
        })
        .collect();
    text += &plot::curves(
        "Erases: share of the blocks with at most x erases",
        "erases per block",
        &curves,
    )?;
    text += &plot::bars(&Bars {
        title: "Map cache hit ratio: share of the lookups",
        labels: &labels,
        parts: &["hits"],
        value: &|bar, _| mean(&of[bar], |row| row.map_cache.hit_ratio.unwrap_or(0.0)),
    })?;
    text += &plot::bars(&Bars {
        title: "RAM of the scheme's tables (paper), KiB",
        labels: &labels,
        parts: &["paper"],
        value: &|bar, _| mean(&of[bar], |row| to_f64(row.ram.paper_bytes) / 1024.0),
    })?;
    text += &plot::bars(&Bars {
        title: "RAM of the scheme's tables (allocated), KiB",
        labels: &labels,
        parts: &["real"],
        value: &|bar, _| mean(&of[bar], |row| to_f64(row.ram.allocated_bytes) / 1024.0),
    })?;
    Ok(text)
}

/// Returns the mean of a quantity over the runs of a cell.
fn mean(cell: &Cell<'_>, of: impl Fn(&Row) -> f64) -> f64 {
    let sum: f64 = cell.runs.iter().map(|row| of(row)).sum();
    sum / to_f64(to_u64(cell.runs.len()))
}

fn about(of: &[&Row]) -> String {
    let device = |row: &&Row| {
        let device = &row.device;
        format!(
            "{} for the host on {} of {}, effective over-provisioning {:.1} %",
            show_size(device.size_bytes),
            show_size(device.raw_bytes),
            device.profile,
            device.effective_op_percent
        )
    };
    let mut devices: Vec<_> = of.iter().map(device).collect();
    devices.dedup();
    let Row { job, requests, .. } = of[0];
    let response_unit = serde_json::to_value(job.method.response_unit()).unwrap_or_default();
    format!(
        "{}. {} requests, {} pages read, {} written. Preconditioning {}{}, response times per {}.",
        devices.join("; "),
        requests.completed,
        requests.pages_read,
        requests.pages_written,
        job.method.precondition().name(),
        job.method.age.map_or(String::new(), |age| format!(
            ", {age} drive writes of random pages"
        )),
        response_unit.as_str().unwrap_or_default()
    )
}

fn figures(of: &[Cell<'_>], labels: &Labels) -> String {
    let mut lines: Vec<_> = of.iter().map(|cell| table::line(cell, labels)).collect();
    lines.insert(0, table::heads());
    let mut text = rows(&lines, &table::optimum(&of[0]));
    if cells::is_repeated(of) {
        text += "<p class=\"note\">Means over the seeds, with the 95 % interval; curves are those of the first seed.</p>\n";
    }
    for table::Ratios { title, lines } in table::ratios(of, labels) {
        text += &format!(
            "<p class=\"note\">{}</p>\n{}",
            escaped(&title),
            rows(&lines, &[])
        );
    }
    text
}

/// Returns a table: headings, lines, and the bound if there is one.
fn rows(lines: &[Vec<String>], bound: &[String]) -> String {
    let cells = |tag: &str, cells: &[String]| {
        cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)))
            .collect::<String>()
    };
    let mut text = format!("<table><tr>{}</tr>\n", cells("th", &lines[0]));
    for line in &lines[1..] {
        text += &format!("<tr>{}</tr>\n", cells("td", line));
    }
    if !bound.is_empty() {
        text += &format!("<tr class=\"bound\">{}</tr>", cells("td", bound));
    }
    text + "</table>\n"
}

/// Returns the distribution of erases as a curve: highest erase count, and the share of the blocks.
fn spread(row: &Row) -> Vec<(f64, f64)> {
    let classes = &row.erases.distribution;
    let blocks: u64 = classes.iter().map(|class| class.1).sum();
    let width = classes.get(1).map_or(1, |second| second.0 - classes[0].0);
    let mut below = 0;
    let mut points: Vec<_> = classes
        .first()
        .map(|class| (f64::from(class.0), 0.0))
        .into_iter()
        .collect();
    for &(from, count) in classes {
        below += count;
        points.push((
            f64::from((from + width - 1).min(row.erases.max)),
            to_f64(below) / to_f64(blocks.max(1)),
        ));
    }
    points
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
