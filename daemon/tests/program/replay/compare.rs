//! `ftld compare`: its rows are those of `ftld replay`, and its sweep runs job by job.

use super::{file, number, replay, schemes};
use crate::host::Host;
use serde_json::Value;
use std::path::PathBuf;

/// Rows of a comparison without what differs from run to run.
fn rows(text: &str) -> Vec<Value> {
    let row = |line: &str| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        row.as_object_mut().unwrap().remove("run");
        row
    };
    text.lines().map(row).collect()
}

#[test]
fn a_comparison_is_its_replays_whatever_the_number_of_threads() {
    let host = Host::new();
    let loads = ["uniform:requests=3K", "sequential:requests=3K,read=50%"];
    let settings = [
        "--size", "8MiB", "--op", "20,40", "--raw", "own", "--age", "1",
    ];
    let with = |threads: &str| {
        let (code, out, error) = host.run(
            &[
                &["compare", "--ndjson", "--threads", threads][..],
                &loads,
                &settings,
            ]
            .concat(),
        );
        assert_eq!(code, 0, "{error}");
        rows(&out)
    };
    let (one, four) = (with("1"), with("4"));
    assert_eq!(one, four);
    let schemes = schemes(&host);
    assert_eq!(one.len(), 2 * 2 * schemes.len());
    let mut expected = Vec::new();
    for load in loads {
        for op in ["20", "40"] {
            for scheme in &schemes {
                let args = [
                    load, "--scheme", scheme, "--size", "8MiB", "--op", op, "--age", "1",
                ];
                let mut row = replay(&host, &args);
                row.as_object_mut().unwrap().remove("run");
                expected.push(row);
            }
        }
    }
    assert_eq!(one, expected);
}

/// A sweep has the same rows from a plan, from jobs of one row each by the script for Slurm, and
/// from the stored rows.
#[test]
fn a_sweep_can_be_run_job_by_job() {
    let host = Host::new();
    let sweep = [
        "uniform:requests=2K",
        "zipf:requests=2K",
        "--scheme",
        "pagemap,lazyftl",
        "--size",
        "8MiB",
        "--precondition",
        "fill",
    ];
    let (_, direct, _) = host.run(&[&["compare", "--ndjson"][..], &sweep].concat());
    let (code, plan, error) = host.run(&[&["compare", "--plan"][..], &sweep].concat());
    assert_eq!((code, plan.lines().count()), (0, 4), "{error}");
    let (jobs, folder) = (
        file(&host, "jobs.ndjson", &plan),
        host.folder.path().join("rows"),
    );
    std::fs::create_dir(&folder).unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm-array.sh");
    for task in 1..=4 {
        let mut command = std::process::Command::new("bash");
        command.arg(&script).arg(&jobs).arg(&folder);
        command
            .env("SLURM_ARRAY_TASK_ID", task.to_string())
            .env("FTLD", env!("CARGO_BIN_EXE_ftld"));
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let page = host.folder.path().join("page.html");
    let (code, again, error) = host.run(
        &[
            &[
                "compare",
                "--ndjson",
                "--html",
                page.to_str().unwrap(),
                "--rows",
            ][..],
            &files,
        ]
        .concat(),
    );
    assert_eq!(code, 0, "{error}");
    assert_eq!(rows(&again), rows(&direct));

    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("optimum (bound)"));
    // Two workloads: by cause, writes twice, erases twice, RAM; the mapping cache where there is
    // one.
    assert!(
        page.matches("<svg").count() >= 10,
        "{}",
        page.matches("<svg").count()
    );
    assert_eq!(
        page.matches("href=").count(),
        page.matches("href=\"#").count()
    );
    for forbidden in ["<script", "src=", "@import", "url("] {
        assert!(
            !page.contains(forbidden),
            "{forbidden} is not self-contained"
        );
    }
    let (_, csv, _) = host.run(&[&["compare", "--csv", "--rows"][..], &files].concat());
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    let column = lines[0]
        .split(',')
        .position(|name| name == "write_amplification.total")
        .unwrap();
    for (line, row) in lines[1..].iter().zip(rows(&direct)) {
        let value: f64 = cells(line)[column].parse().unwrap();
        assert_eq!(value, number(&row, "/write_amplification/total"));
    }
}

/// Splits a line of comma-separated values.
pub(super) fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    let mut text = line.chars().peekable();
    while let Some(c) = text.next() {
        let cell = cells.last_mut().unwrap();
        match c {
            '"' if quoted && text.peek() == Some(&'"') => cell.push(text.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cell.push(c),
        }
    }
    cells
}

/// Every value of the JSON, by its path.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => object
            .iter()
            .for_each(|(key, value)| leaves(value, &format!("{path}.{key}"), found)),
        Value::Null => found.push((path[1..].into(), String::new())),
        Value::String(text) => found.push((path[1..].into(), text.clone())),
        other => found.push((path[1..].into(), other.to_string())),
    }
}

/// The first row has no reads, no preset, no RAM limit, no trace and few causes; the others have.
/// All of them have the columns of the first.
#[test]
fn every_path_of_a_row_is_a_column() {
    let host = Host::new();
    let trace = file(&host, "t.csv", "0,W,0,4096\n1,R,0,4096\n2,T,0,4096\n");
    let sweeps = [
        "uniform:requests=300,read=0% --scheme pagemap --size 8MiB",
        "mixed:requests=3K,read=50% --scheme pagemap,lazyftl,fast --size 8MiB --threads 1",
        "zipf:requests=3K --scheme dftl,mlam --size 32MiB --ram 4MiB --seeds 2",
        "uniform:requests=300 --preset mnftl-paper --precondition new",
        &format!(
            "{} --scheme rose --size 8MiB --age 1 --format plain --disk 0",
            trace.display()
        ),
    ];
    let mut json = String::new();
    for sweep in sweeps {
        let args: Vec<&str> = sweep.split(' ').collect();
        let (code, rows, error) = host.run(&[&["compare", "--ndjson"][..], &args].concat());
        assert_eq!(code, 0, "{error}");
        json += &rows;
    }
    let json_rows = file(&host, "rows.ndjson", &json);
    let json: Vec<&str> = json
        .lines()
        .filter(|line| line.contains("\"ftld.replay/"))
        .collect();
    let read = ["compare", "--csv", "--rows", json_rows.to_str().unwrap()];
    let (code, csv, error) = host.run(&read);
    assert_eq!(code, 0, "{error}");
    let lines: Vec<Vec<String>> = csv.lines().map(cells).collect();
    assert_eq!((lines.len(), json.len()), (1 + json.len(), 10));
    let heads = &lines[0];
    // With several seeds, runs are in the order of their cells.
    let run = |line: &[String]| {
        let of = |path| line[heads.iter().position(|head| head == path).unwrap()].clone();
        [of("scheme"), of("job.workload"), of("job.seed")]
    };
    for row in json {
        let row: Value = serde_json::from_str(row).unwrap();
        let text = |value: &Value| value.to_string().trim_matches('"').to_owned();
        let own = [&row["scheme"], &row["job"]["workload"], &row["job"]["seed"]].map(text);
        let line = lines.iter().find(|line| run(line) == own).unwrap();
        assert_eq!(line.len(), heads.len());
        let mut found = Vec::new();
        leaves(&row, "", &mut found);
        assert!(found.len() > 100);
        for (path, value) in found {
            // A value that is null in this row may be an object in another: its parts are columns.
            let below = format!("{path}.");
            match heads.iter().position(|head| *head == path) {
                Some(at) => assert_eq!(line[at], value, "{path}"),
                None => assert!(
                    value.is_empty() && heads.iter().any(|head| head.starts_with(&below)),
                    "no column {path}"
                ),
            }
        }
    }
    let unique: std::collections::BTreeSet<_> = heads.iter().collect();
    assert_eq!(unique.len(), heads.len(), "two columns of one name");
    // Streamed, without the statistics of several seeds, the columns are the same.
    let first: Vec<&str> = sweeps[0].split(' ').collect();
    let (_, streamed, _) = host.run(&[&["compare", "--csv"][..], &first].concat());
    assert_eq!(csv.lines().next(), streamed.lines().next());
}

#[test]
fn no_scheme_pays_for_the_death_of_a_daemon() {
    let host = Host::new();
    let load = "uniform:requests=2K";
    let args = ["--size", "16MiB", "--precondition", "new", "--scheme"];
    let with = |more: &[&str]| replay(&host, &[&[load][..], &args, more].concat());
    let journal = |row: &Value| row.pointer("/flash/journal/programs").cloned();
    let row = with(&["mlam"]);
    assert_eq!(journal(&row), None, "{row}");
    assert_eq!(row["job"]["set"], serde_json::json!(["mlam.ack=buffer"]));
    let charged = with(&["mlam", "--set", "mlam.ack=journal"]);
    assert!(journal(&charged).is_some(), "{charged}");
}

#[test]
fn files_of_rows_without_a_row_are_named() {
    let host = Host::new();
    host.fails(
        &["compare", "--rows", "/dev/null"],
        1,
        &["/dev/null: no row"],
    );
}

#[test]
fn a_parameter_of_no_compared_scheme_names_those_that_have_it() {
    let host = Host::new();
    let args = [
        "compare",
        "zipf:requests=10",
        "--size",
        "16MiB",
        "--plan",
        "--set",
        "ckpt.interval=0",
        "--scheme",
    ];
    let parts = [
        "none of bast, fast has this parameter",
        "pagemap",
        "would; leave it out",
    ];
    host.fails(&[&args[..], &["bast,fast"]].concat(), 2, &parts);
    let (code, out, _) = host.run(&[&args[..], &["bast,pagemap"]].concat());
    assert_eq!((code, rows(&out).len()), (0, 2));
}

#[test]
fn a_run_that_fails_is_named_and_the_others_go_on() {
    let host = Host::new();
    let short = file(&host, "short.csv", "0,W,0,4096\n1,W,99999999,4096\n");
    let short = short.to_str().unwrap();
    let args = [
        "compare",
        "--ndjson",
        "--scheme",
        "pagemap",
        short,
        "uniform:requests=100",
        "--size",
        "1MiB",
        "--precondition",
        "new",
    ];
    let (code, out, error) = host.run(&args);
    assert_eq!((code, out.lines().count()), (1, 2));
    assert!(
        error.contains("1 of 2 runs failed, first pagemap on")
            && error.contains("line 2, read as plain")
            && error.contains("4096 bytes at 99999999"),
        "{error}"
    );
    let found = rows(&out);
    assert_eq!(
        (found[0]["schema"].as_str(), found[1]["schema"].as_str()),
        (Some("ftld.failure/1"), Some("ftld.replay/2"))
    );
    let (code, out, error) = host.run(&[
        "compare",
        "--job",
        file(&host, "job", &found[0]["job"].to_string())
            .to_str()
            .unwrap(),
    ]);
    assert_eq!((code, rows(&out).len()), (1, 1), "{error}");
    host.fails(&["compare"], 2, &["no workload"]);
    host.fails(
        &["compare", "uniform", "--set", "lazy.cache_page=1"],
        2,
        &["has this parameter (did you mean \"lazy.cache_pages\"?)"],
    );
    host.fails(
        &[
            "compare",
            "uniform",
            "--scheme",
            "pagemap",
            "--set",
            "lazy.cache_pages=1,2",
        ],
        2,
        &["none of pagemap has this parameter"],
    );
    host.fails(
        &["compare", "--job", "/nonexistent/job"],
        1,
        &["/nonexistent/job: No such file"],
    );
    let wrong = file(&host, "wrong", "{\"workloda\": \"uniform\"}");
    host.fails(
        &["compare", "--job", wrong.to_str().unwrap()],
        2,
        &["job 1: unknown field `workloda`"],
    );
    host.fails(
        &["compare", "--rows", wrong.to_str().unwrap()],
        1,
        &["line 1: not a row: schema"],
    );
    // A scheme without the parameter has one run.
    let (_, plan, _) = host.run(&[
        "compare",
        "--plan",
        "uniform",
        "--scheme",
        "pagemap,lazyftl",
        "--set",
        "lazy.cache_pages=1,2",
    ]);
    let sets: Vec<_> = rows(&plan)
        .iter()
        .map(|job| format!("{} {}", job["scheme"], job["set"]))
        .collect();
    assert_eq!(
        sets,
        [
            "\"pagemap\" []",
            "\"lazyftl\" [\"lazy.cache_pages=1\"]",
            "\"lazyftl\" [\"lazy.cache_pages=2\"]"
        ]
    );
}

#[test]
fn devices_with_and_without_an_slc_region_are_compared() {
    let host = Host::new();
    let device = [
        "--profile",
        "tlc-16k",
        "--slc-region",
        "0%,5%",
        "--scheme",
        "pagemap",
    ];
    let (code, plan, error) =
        host.run(&[&["compare", "uniform:requests=10", "--plan"], &device[..]].concat());
    assert_eq!(code, 0, "{error}");
    let regions: Vec<_> = plan
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["slc_region"].as_f64())
        .collect();
    assert_eq!(regions, [None, Some(5.0)]);
    let few = [
        "compare",
        "uniform:requests=10",
        "--size",
        "1GiB",
        "--precondition",
        "new",
        "--json",
    ];
    let (code, rows, error) = host.run(&[&few[..], &device[..]].concat());
    assert_eq!(code, 0, "{error}");
    let slc = |row: &str| {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        row["device"]["slc_bytes"].as_u64()
    };
    let slc: Vec<_> = rows.lines().map(slc).collect();
    assert!(matches!(slc[..], [None, Some(1..)]), "{slc:?}");
    // Four blocks are too few, with any raw flash.
    let small = ["compare", "uniform:requests=10", "--size", "256MiB"];
    let (code, _, error) = host.run(&[&small[..], &device[..]].concat());
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("an SLC region of 4 of 70 blocks"), "{error}");
    assert!(error.contains("nothing was run"), "{error}");
    let negative = [
        "replay",
        "uniform:requests=10",
        "--profile",
        "tlc-16k",
        "--slc-region",
        "-5%",
    ];
    let (code, _, error) = host.run(&negative);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("--slc-region -5: need 0.01 to 50"),
        "{error}"
    );
}
