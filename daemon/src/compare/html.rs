//! One page with tables and plots in one file: no script, no external resources.

use super::plot::{self, Bars, Curve};
use super::{Failed, table};
use crate::convert::to_f64;
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
    let mut body = String::new();
    for workload in table::workloads(rows) {
        let of: Vec<_> = rows
            .iter()
            .filter(|row| row.job.workload == workload)
            .copied()
            .collect();
        body += &section(workload, &of, rows)?;
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
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>ftld compare</title><style>{STYLE}</style></head><body>\n<h1>ftld compare</h1>\n\
         <p class=\"note\">{} runs, ftld {version}. Times are emulated.</p>\n{body}</body></html>\n",
        rows.len()
    ))
}

fn section(workload: &str, of: &[&Row], all: &[&Row]) -> Result<String, Failure> {
    assert!(!of.is_empty(), "a section for {workload} without a run");
    let labels: Vec<_> = of.iter().map(|row| table::label(row, all)).collect();
    let mut text = format!(
        "<h2>{}</h2>\n<p class=\"note\">{}</p>\n{}",
        escaped(workload),
        escaped(&about(of)),
        figures(of, all)
    );
    text += &plot::bars(&Bars {
        title: "Write amplification by cause: flash programs per page the host wrote",
        labels: &labels,
        parts: &Cause::ALL.map(Cause::name),
        value: &|bar, part| {
            of[bar]
                .write_amplification
                .by_cause
                .get(Cause::ALL[part].name())
                .copied()
                .unwrap_or(0.0)
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
            .filter_map(|(row, label)| {
                let points = side(row)
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
        .map(|(row, label)| Curve {
            label,
            points: spread(row),
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
        value: &|bar, _| of[bar].map_cache.hit_ratio.unwrap_or(0.0),
    })?;
    text += &plot::bars(&Bars {
        title: "RAM of the scheme's tables (paper), KiB",
        labels: &labels,
        parts: &["paper"],
        value: &|bar, _| to_f64(of[bar].ram.paper_bytes) / 1024.0,
    })?;
    text += &plot::bars(&Bars {
        title: "RAM of the scheme's tables (allocated), KiB",
        labels: &labels,
        parts: &["real"],
        value: &|bar, _| to_f64(of[bar].ram.allocated_bytes) / 1024.0,
    })?;
    Ok(text)
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
        "{}. {} requests, {} pages read, {} written. Preconditioning {}, response times per {}.",
        devices.join("; "),
        requests.completed,
        requests.pages_read,
        requests.pages_written,
        job.method.precondition(),
        response_unit.as_str().unwrap_or_default()
    )
}

fn figures(of: &[&Row], all: &[&Row]) -> String {
    let cells = |cells: &[String]| {
        cells
            .iter()
            .map(|cell| format!("<td>{}</td>", escaped(cell)))
            .collect::<String>()
    };
    let head: String = table::HEADS
        .iter()
        .map(|head| format!("<th>{head}</th>"))
        .collect();
    let mut text = format!("<table><tr>{head}</tr>\n");
    of.iter()
        .for_each(|row| text += &format!("<tr>{}</tr>\n", cells(&table::cells(row, all))));
    text + &format!(
        "<tr class=\"bound\">{}</tr></table>\n",
        cells(&table::optimum(of[0]))
    )
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
