//! Rows as comma-separated values: a line per run, and the statistics of its cell if that has
//! several seeds.

use super::cells::Cell;
use crate::convert::to_f64;
use crate::replay::{MEASURES, Response, Row, Summary};

type Value = fn(&Row) -> String;

fn response(of: &Option<Response>, value: fn(&Response) -> f64) -> String {
    of.as_ref()
        .map_or(String::new(), |response| value(response).to_string())
}

fn option(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Columns of the comma-separated values; times in emulated ns, sizes in bytes. An empty cell is a
/// value that does not exist.
const COLUMNS: &[(&str, Value)] = &[
    ("workload", |row| row.job.workload.clone()),
    ("scheme", |row| row.scheme.clone()),
    ("profile", |row| row.device.profile.clone()),
    ("size_bytes", |row| row.device.size_bytes.to_string()),
    ("op_percent", |row| row.device.op_percent.to_string()),
    ("set", |row| row.job.set.join(" ")),
    ("seed", |row| row.job.seed.to_string()),
    ("requests", |row| row.requests.completed.to_string()),
    ("pages_read", |row| row.requests.pages_read.to_string()),
    ("pages_written", |row| {
        row.requests.pages_written.to_string()
    }),
    ("write_amplification", |row| {
        option(row.write_amplification.total)
    }),
    ("flash_reads", |row| row.flash_total.reads.to_string()),
    ("flash_partial_reads", |row| {
        row.flash_total.partial_reads.to_string()
    }),
    ("flash_programs", |row| row.flash_total.programs.to_string()),
    ("flash_erases", |row| row.flash_total.erases.to_string()),
    ("read_mean_ns", |row| {
        response(&row.response_ns.read, |r| r.mean)
    }),
    ("read_p50_ns", |row| {
        response(&row.response_ns.read, |r| to_f64(r.p50))
    }),
    ("read_p99_ns", |row| {
        response(&row.response_ns.read, |r| to_f64(r.p99))
    }),
    ("read_p999_ns", |row| {
        response(&row.response_ns.read, |r| to_f64(r.p999))
    }),
    ("read_max_ns", |row| {
        response(&row.response_ns.read, |r| to_f64(r.max))
    }),
    ("write_mean_ns", |row| {
        response(&row.response_ns.write, |r| r.mean)
    }),
    ("write_p50_ns", |row| {
        response(&row.response_ns.write, |r| to_f64(r.p50))
    }),
    ("write_p99_ns", |row| {
        response(&row.response_ns.write, |r| to_f64(r.p99))
    }),
    ("write_p999_ns", |row| {
        response(&row.response_ns.write, |r| to_f64(r.p999))
    }),
    ("write_max_ns", |row| {
        response(&row.response_ns.write, |r| to_f64(r.max))
    }),
    ("emulated_ns", |row| row.emulated_ns.to_string()),
    ("optimum_work_ns", |row| row.optimum.work_ns.to_string()),
    ("utilisation", |row| row.collected.utilisation.to_string()),
    ("copies", |row| row.collected.copies.to_string()),
    ("erases_min", |row| row.erases.min.to_string()),
    ("erases_mean", |row| row.erases.mean.to_string()),
    ("erases_max", |row| row.erases.max.to_string()),
    ("erases_stddev", |row| row.erases.stddev.to_string()),
    ("map_hit_ratio", |row| option(row.map_cache.hit_ratio)),
    ("ram_paper_bytes", |row| row.ram.paper_bytes.to_string()),
    ("ram_real_bytes", |row| row.ram.allocated_bytes.to_string()),
    ("cpu_seconds", |row| row.run.cpu_seconds.to_string()),
];

/// Columns of the statistics of each measure of a cell, after the measure's name.
const STATISTICS: [&str; 7] = [
    "mean",
    "low",
    "high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "difference",
];

/// Returns the names of the columns.
pub(super) fn head() -> String {
    let mut names: Vec<String> = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.push("seeds".into());
    for (measure, _) in MEASURES {
        names.extend(STATISTICS.map(|name| format!("{measure}_{name}")));
    }
    names.join(",") + "\n"
}

/// Returns a row, with the statistics of its cell.
pub(super) fn line(row: &Row, cell: Option<&Summary>) -> String {
    let mut values: Vec<String> = COLUMNS
        .iter()
        .map(|(_, value)| quoted(value(row)))
        .collect();
    values.push(cell.map_or(1, |cell| cell.seeds.len()).to_string());
    for (measure, _) in MEASURES {
        values.extend(statistics(measure, cell));
    }
    values.join(",") + "\n"
}

/// Returns the names of the columns and a line per run, cell by cell.
pub(super) fn text(cells: &[Cell<'_>], summaries: &[Summary]) -> String {
    let mut text = head();
    for (cell, summary) in cells.iter().zip(summaries) {
        for row in &cell.runs {
            text += &line(row, Some(summary));
        }
    }
    text
}

fn statistics(measure: &str, cell: Option<&Summary>) -> [String; STATISTICS.len()] {
    let estimate = cell.and_then(|cell| cell.measures.get(measure));
    let ratio = cell.and_then(|cell| cell.ratios.get(measure));
    [
        option(estimate.map(|estimate| estimate.mean)),
        option(estimate.and_then(|estimate| estimate.low)),
        option(estimate.and_then(|estimate| estimate.high)),
        option(ratio.map(|ratio| ratio.ratio)),
        option(ratio.map(|ratio| ratio.low)),
        option(ratio.map(|ratio| ratio.high)),
        ratio.map_or(String::new(), |ratio| ratio.difference.mark().into()),
    ]
}

fn quoted(text: String) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}
