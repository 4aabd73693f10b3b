//! How to repeat a comparison: its command, program, seeds, devices and traces, and the command of
//! every single run.

use super::cells::Cell;
use crate::replay::{Job, Row, trace_format};
use ftld_kit::quote::{escaped, shell};
use ftld_kit::size::show_size;
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the section of the page.
pub(super) fn section(command: &[String], rows: &[&Row]) -> String {
    let mut items = item("command", &[shell(command)], "pre");
    items += &item("program", &distinct(rows, |row| row.run.program()), "div");
    items += &item("seeds", &[seeds(rows)], "div");
    items += &item("devices", &distinct(rows, device), "div");
    items += &item("method", &distinct(rows, method), "div");
    let traces = rows.iter().filter(|row| row.requests.format.is_some());
    items += &item(
        "traces",
        &distinct(&traces.copied().collect::<Vec<_>>(), trace),
        "div",
    );
    format!("<section id=\"repeat\"><h2>How to repeat it</h2>\n<dl>{items}</dl></section>\n")
}

/// Returns the commands of the first run of each cell.
pub(super) fn commands(cells: &[Cell<'_>]) -> String {
    let lines = cells.iter().map(|cell| {
        let words = command(&cell.first().job);
        format!("<pre>{}</pre>\n", escaped(&shell(&words)))
    });
    let seeds = if cells.iter().any(|cell| cell.runs.len() > 1) {
        " with its first seed"
    } else {
        ""
    };
    let lines: String = lines.collect();
    format!("<details><summary>Command of each run{seeds}</summary>\n{lines}</details>\n")
}

fn item(name: &str, texts: &[String], tag: &str) -> String {
    if texts.is_empty() {
        return String::new();
    }
    let texts = texts
        .iter()
        .map(|text| format!("<{tag}>{}</{tag}>", escaped(text)));
    format!("<dt>{name}</dt><dd>{}</dd>\n", texts.collect::<String>())
}

/// Returns different texts in order of appearance.
fn distinct(rows: &[&Row], text: impl Fn(&Row) -> String) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let texts = rows.iter().map(|row| text(row));
    texts.filter(|text| seen.insert(text.clone())).collect()
}

/// Returns the seeds in ascending order, with ranges.
fn seeds(rows: &[&Row]) -> String {
    let seeds: BTreeSet<u64> = rows.iter().map(|row| row.job.seed).collect();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for seed in seeds {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(seed) => *last = seed,
            _ => ranges.push((seed, seed)),
        }
    }
    let texts = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn device(row: &Row) -> String {
    let device = &row.device;
    let dies = if device.dies == 1 { "die" } else { "dies" };
    format!(
        "{}: {} for the host on {} of raw flash, {} blocks of {} pages of {}, {} {dies}",
        device.profile,
        show_size(device.size_bytes),
        show_size(device.raw_bytes),
        device.blocks,
        device.pages_per_block,
        show_size(u64::from(device.page_bytes)),
        device.dies
    )
}

/// Returns the options of the method that are not at their default.
fn method(row: &Row) -> String {
    let method = Job {
        method: row.job.method.clone(),
        ..Job::default()
    };
    options(&method).join(" ")
}

fn trace(row: &Row) -> String {
    let hash = row.run.trace_sha256.as_deref();
    format!(
        "{}: format {}, {} requests in a run, SHA-256 {}",
        row.job.workload,
        trace_format(&row.requests),
        row.requests.issued,
        hash.unwrap_or("unknown (a pipe)")
    )
}

/// Returns the command line of one run.
fn command(job: &Job) -> Vec<String> {
    let words = ["ftld", "replay", &job.workload].map(str::to_owned);
    let mut words = words.to_vec();
    words.extend(options(job));
    words
}

/// Returns the options of a job that are not at their default: the names in its JSON are those of
/// the command line, with underscores.
fn options(job: &Job) -> Vec<String> {
    let fields = |job: &Job| match serde_json::to_value(job).expect("a job is plain data") {
        Value::Object(fields) => fields,
        other => unreachable!("a job is an object, not {other}"),
    };
    let (default, mut words) = (fields(&Job::default()), Vec::new());
    for (name, value) in fields(job) {
        if name == "workload" || default.get(&name) == Some(&value) {
            continue;
        }
        let option = format!("--{}", name.replace('_', "-"));
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => words.push(option),
            Value::Array(values) => {
                for value in values {
                    words.extend([option.clone(), plain(&value)]);
                }
            }
            value => words.extend([option, plain(&value)]),
        }
    }
    words
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{ReplayArgs, Run};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        replay: ReplayArgs,
    }

    /// Returns the job of `compare --plan` from its JSON.
    fn job(json: &str) -> Job {
        let job = serde_json::from_str(json).unwrap();
        Run::resolve(&job).unwrap().job
    }

    #[test]
    fn the_command_of_a_run_has_its_job() {
        for json in [
            r#"{"workload":"zipf:read=30%","scheme":"dftl","size":"64MiB","op":7.5}"#,
            r#"{"workload":"a b.csv","scheme":"lazyftl","raw":"80MiB","ram":"3MiB","seed":9,
                "set":["lazy.cache_pages=4","gc.policy=greedy"],"age":1.5,"format":"msr","disk":2,
                "address":"compact","loops":3}"#,
            r#"{"workload":"t.csv","preset":"mnftl-paper","arrival":"trace","idle":true,"warm_up":2}"#,
            r#"{"workload":"zipf","rate":2500.5,"arrival":"poisson","idle":true}"#,
            r#"{"workload":"zipf","preset":"dftl-paper","scheme":"pagemap","depth":8,
                "response_unit":"per_page","precondition":"new"}"#,
        ] {
            let job = job(json);
            let words = command(&job);
            assert_eq!(words[1], "replay");
            let parsed = Line::try_parse_from(&words[1..]).unwrap().replay.job;
            assert_eq!(parsed, job, "{words:?}");
            assert_eq!(Run::resolve(&parsed).unwrap().job, job, "{words:?}");
        }
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let words = [
            "a",
            "",
            "it's",
            "a b",
            "$HOME",
            "x\ny",
            "é",
            "~",
            "zipf:read=30%",
            "#",
        ];
        let line = shell(&words.map(str::to_owned));
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\0' {line}")])
            .output()
            .unwrap();
        let read = String::from_utf8(output.stdout).unwrap();
        assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words);
        assert!(line.ends_with("zipf:read=30% '#'"), "{line}");
    }
}
