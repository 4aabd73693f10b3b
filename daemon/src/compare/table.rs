//! Rows side by side: human-readable, and as comma-separated values.

use crate::convert::to_f64;
use crate::replay::{Job, Response, Row};
use crate::size::show_size;
use std::collections::BTreeSet;

/// Returns the label of a run: its scheme, and the settings that differ between the runs.
pub(super) fn label(row: &Row, all: &[&Row]) -> String {
    let settings = settings(&row.job, all);
    if settings.is_empty() {
        row.scheme.clone()
    } else {
        format!("{} {}", row.scheme, settings.join(" "))
    }
}

fn settings(job: &Job, all: &[&Row]) -> Vec<String> {
    type Of = fn(&Job) -> Option<String>;
    let scalar: [(&str, Of); 7] = [
        ("", |job| job.preset.clone()),
        ("", |job| job.profile.clone()),
        ("", |job| job.size.clone()),
        ("op ", |job| job.op.map(|op| format!("{op} %"))),
        ("raw ", |job| job.raw.as_deref().map(size)),
        ("ram ", |job| job.ram.as_deref().map(size)),
        ("seed ", |job| Some(job.seed.to_string())),
    ];
    let mut found = Vec::new();
    for (name, of) in scalar {
        let values: BTreeSet<_> = all.iter().map(|row| of(&row.job)).collect();
        found.extend(
            of(job)
                .filter(|_| values.len() > 1)
                .map(|value| format!("{name}{value}")),
        );
    }
    let changes = |pair: &&String| {
        all.iter().any(|row| {
            row.scheme == job.scheme.as_deref().unwrap_or("") && !row.job.set.contains(pair)
        })
    };
    found.extend(job.set.iter().filter(changes).cloned());
    found
}

fn size(text: &str) -> String {
    crate::size::parse_size(text).map_or(text.into(), show_size)
}

/// Returns the workloads in order of appearance.
pub(super) fn workloads<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for row in rows {
        if !names.contains(&row.job.workload.as_str()) {
            names.push(row.job.workload.as_str());
        }
    }
    names
}

/// Columns of the table.
pub(super) const CELLS: usize = 15;

/// Headings of the table's columns; the first is the label.
pub(super) const HEADS: [&str; CELLS] = [
    "",
    "raw",
    "OP %",
    "WAF",
    "taxes",
    "write mean us",
    "p99",
    "read mean us",
    "p99",
    "flash time s",
    "erases/block",
    "stddev",
    "map hits",
    "RAM paper",
    "RAM real",
];

pub(super) fn cells(row: &Row, all: &[&Row]) -> [String; CELLS] {
    let us = |response: &Option<Response>, of: fn(&Response) -> f64| {
        response
            .as_ref()
            .map_or("-".into(), |response| format!("{:.1}", of(response) / 1e3))
    };
    let ratio = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let (read, write, busy) = (
        &row.response_ns.read,
        &row.response_ns.write,
        row.flash_busy_ns,
    );
    [
        label(row, all),
        show_size(row.device.raw_bytes),
        format!("{:.1}", row.device.effective_op_percent),
        ratio(row.write_amplification.total),
        ratio(row.write_amplification.taxes),
        us(write, |response| response.mean),
        us(write, |response| to_f64(response.p99)),
        us(read, |response| response.mean),
        us(read, |response| to_f64(response.p99)),
        format!("{:.2}", to_f64(busy.read + busy.program + busy.erase) / 1e9),
        format!("{:.2}", row.erases.mean),
        format!("{:.2}", row.erases.stddev),
        ratio(row.map_cache.hit_ratio),
        show_size(row.ram.paper_bytes),
        show_size(row.ram.allocated_bytes),
    ]
}

/// Returns the bound of a workload. Its pages are the same under every scheme.
pub(super) fn optimum(row: &Row) -> [String; CELLS] {
    let bound = row.optimum;
    let mean = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{:.1}", ns / 1e3));
    let none = || "-".to_owned();
    [
        "optimum (bound)".into(),
        none(),
        none(),
        row.write_amplification
            .total
            .map_or(none(), |_| "1.000".into()),
        none(),
        mean(bound.mean_write_ns),
        none(),
        mean(bound.mean_read_ns),
        none(),
        format!("{:.2}", bound.work_ns / 1e9),
        format!("{:.2}", bound.erases / f64::from(row.device.blocks)),
        none(),
        none(),
        none(),
        none(),
    ]
}

/// Returns a table per workload.
pub(super) fn text(rows: &[&Row]) -> String {
    let mut text = String::new();
    for workload in workloads(rows) {
        let of: Vec<_> = rows
            .iter()
            .filter(|row| row.job.workload == workload)
            .copied()
            .collect();
        let mut lines = vec![HEADS.map(str::to_owned)];
        lines.extend(of.iter().map(|row| cells(row, rows)));
        lines.extend(of.first().map(|row| optimum(row)));
        text += &format!("{workload}\n{}\n", columns(&lines));
    }
    text
}

fn columns(lines: &[[String; CELLS]]) -> String {
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..HEADS.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        text += &format!("  {:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            text += &format!("  {cell:>width$}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

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
    ("op_percent", |row| option(row.device.op_percent)),
    ("raw_bytes", |row| row.device.raw_bytes.to_string()),
    ("effective_op_percent", |row| {
        row.device.effective_op_percent.to_string()
    }),
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
    ("taxes", |row| option(row.write_amplification.taxes)),
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
    ("erases_min", |row| row.erases.min.to_string()),
    ("erases_mean", |row| row.erases.mean.to_string()),
    ("erases_max", |row| row.erases.max.to_string()),
    ("erases_stddev", |row| row.erases.stddev.to_string()),
    ("map_hit_ratio", |row| option(row.map_cache.hit_ratio)),
    ("ram_paper_bytes", |row| row.ram.paper_bytes.to_string()),
    ("ram_real_bytes", |row| row.ram.allocated_bytes.to_string()),
    ("cpu_seconds", |row| row.run.cpu_seconds.to_string()),
];

/// Returns the names of the columns.
pub(super) fn csv_head() -> String {
    COLUMNS
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(",")
        + "\n"
}

/// Returns one row.
pub(super) fn csv_line(row: &Row) -> String {
    COLUMNS
        .iter()
        .map(|(_, value)| quoted(value(row)))
        .collect::<Vec<_>>()
        .join(",")
        + "\n"
}

fn quoted(text: String) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut line = HEADS.map(str::to_owned);
        line[0] = "lazyftl".into();
        line[3] = "12.345".into();
        let text = columns(&[HEADS.map(str::to_owned), line]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("           raw  OP %     WAF  taxes  write mean us  p99  "),
            "{text}"
        );
        assert!(
            lines[1].starts_with("  lazyftl  raw  OP %  12.345  taxes  write mean us  p99  "),
            "{text}"
        );
        assert!(
            lines
                .iter()
                .all(|line| line.ends_with("  RAM paper  RAM real")),
            "{text}"
        );
    }
}
