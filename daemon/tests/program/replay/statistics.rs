//! `--seeds`: rows of the runs, their estimates, and ratios that are called differences or not.

use super::{number, replay};
use crate::host::Host;
use serde_json::Value;

const LOAD: [&str; 4] = ["zipf:requests=2K", "--size", "8MiB", "--op"];

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
}

/// Mean and half the interval of three or four values, by the quantiles in the tables.
fn by_hand(values: &[f64]) -> (f64, f64) {
    let (n, quantile) = match values.len() {
        3 => (3.0, 4.302_653),
        4 => (4.0, 3.182_446),
        n => panic!("no quantile for {n} values"),
    };
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, quantile * (variance / n).sqrt())
}

#[test]
fn seeds_are_that_many_runs_and_their_mean() {
    let host = Host::new();
    let args = [&LOAD[..], &["7", "--seed", "7"]].concat();
    let (code, out, error) = host.run(&[&["replay", "--json", "--seeds", "3"], &args[..]].concat());
    assert_eq!(code, 0, "{error}");
    assert!(!error.contains("EQUAL RUNS"), "{error}");
    let found = lines(&out);
    assert_eq!(found.len(), 4);
    let mut waf = Vec::new();
    for (row, seed) in found.iter().zip(["7", "8", "9"]) {
        let mut one = replay(&host, &[&LOAD[..], &["7", "--seed", seed]].concat());
        let mut row = row.clone();
        waf.push(number(&row, "/write_amplification/total"));
        for row in [&mut one, &mut row] {
            row.as_object_mut().unwrap().remove("run");
        }
        assert_eq!(row, one);
    }
    let summary = &found[3];
    assert_eq!(summary["schema"], "ftld.summary/1");
    assert_eq!(summary["seeds"], serde_json::json!([7, 8, 9]));
    let (mean, half) = by_hand(&waf);
    assert!(half > 0.0, "seeds that change nothing: {waf:?}");
    near(number(summary, "/measures/write_amplification/mean"), mean);
    near(
        number(summary, "/measures/write_amplification/low"),
        mean - half,
    );
    near(
        number(summary, "/measures/write_amplification/high"),
        mean + half,
    );
    let (code, out, _) = host.run(&[&["replay", "--seeds", "3"], &args[..]].concat());
    assert!(
        code == 0
            && out.contains("3 runs with seeds 7 to 9")
            && out.contains(&format!("{:.4} to {:.4}", mean - half, mean + half)),
        "{out}"
    );
}

#[test]
fn a_ratio_is_paired_by_seed_and_a_difference_inside_its_interval_is_none() {
    let host = Host::new();
    // A limit of wear that is never reached changes nothing; another policy does.
    let args = [
        &["compare", "--scheme", "pagemap", "--seeds", "4"][..],
        &LOAD,
        &["7,40", "--raw", "own", "--set", "wear.gap=5000,6000"],
        &["--set", "gc.policy=greedy,fifo"],
    ]
    .concat();
    let (code, out, error) = host.run(&[&args[..], &["--ndjson"]].concat());
    assert_eq!(code, 0, "{error}");
    let found = lines(&out);
    let (rows, summaries) = found.split_at(2 * 4 * 4);
    assert_eq!(summaries.len(), 2 * 4);
    let runs = |job: &Value| -> Vec<f64> {
        let same = |row: &&Value| row["job"]["set"] == job["set"] && row["job"]["op"] == job["op"];
        rows.iter()
            .filter(same)
            .map(|row| number(row, "/write_amplification/total"))
            .collect()
    };
    let (mut equal, mut more) = (0, 0);
    for summary in summaries {
        if summary["ratio_to"].is_null() {
            assert_eq!(
                summary["job"]["set"],
                serde_json::json!(["wear.gap=5000", "gc.policy=greedy"])
            );
            continue;
        }
        assert_eq!(summary["ratio_to"]["op"], summary["job"]["op"]);
        let logs: Vec<f64> = runs(&summary["job"])
            .iter()
            .zip(runs(&summary["ratio_to"]))
            .map(|(a, b)| (a / b).ln())
            .collect();
        let (mean, half) = by_hand(&logs);
        let ratio = "/ratios/write_amplification";
        near(number(summary, &format!("{ratio}/ratio")), mean.exp());
        near(
            number(summary, &format!("{ratio}/low")),
            (mean - half).exp(),
        );
        near(
            number(summary, &format!("{ratio}/high")),
            (mean + half).exp(),
        );
        let mark = match summary["job"]["set"][1].as_str() {
            Some("gc.policy=greedy") => "=",
            _ if mean - half > 0.0 => ">",
            _ => "=",
        };
        let found = summary.pointer(&format!("{ratio}/difference")).unwrap();
        assert_eq!(found, mark, "{summary}");
        (equal, more) = (
            equal + u32::from(mark == "="),
            more + u32::from(mark == ">"),
        );
    }
    assert!(equal >= 2 && more >= 1, "{equal} equal, {more} more");

    // Table, page and comma-separated values of the same rows have the same figures.
    let file = super::file(&host, "rows", &out);
    let page = host.folder.path().join("page.html");
    let rows = ["compare", "--rows", file.to_str().unwrap()];
    let (code, table, error) = host.run(&[&rows[..], &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{error}");
    assert_eq!(table, host.run(&args).1);
    let title = "ratio to pagemap op 7 % wear.gap=5000 gc.policy=greedy, 4 paired seeds";
    let page = std::fs::read_to_string(page).unwrap();
    assert!(table.contains(title) && page.contains(title), "{table}");
    assert!(table.contains("= (1.000 to 1.000)") && page.contains("<td>= (1.000 to 1.000)</td>"));
    let (_, csv, _) = host.run(&[&rows[..], &["--csv"]].concat());
    let heads: Vec<_> = csv.lines().next().unwrap().split(',').collect();
    let column = heads
        .iter()
        .position(|name| *name == "write_amplification_difference")
        .unwrap();
    let marks = |mark: &str| {
        csv.lines()
            .skip(1)
            .filter(|line| super::compare::cells(line)[column] == mark)
            .count()
    };
    // A line per run; the first cell of each of the two groups has no ratio.
    assert_eq!(
        (csv.lines().count(), marks("")),
        (1 + 2 * 4 * 4, 2 * 4),
        "{csv}"
    );
    assert_eq!(marks("=") + marks(">"), 6 * 4);
}

#[test]
fn seeds_that_do_not_exist_are_refused() {
    let host = Host::new();
    for command in ["replay", "compare"] {
        host.fails(
            &[
                command,
                "uniform",
                "--seeds",
                "2",
                "--seed",
                "18446744073709551615",
            ],
            2,
            &["--seeds 2: seeds from 18446744073709551615 on exceed 64 bits"],
        );
        let (code, _, error) = host.run(&[command, "uniform", "--seeds", "0"]);
        assert!(
            code == 2 && error.contains("0 is not in 1..=10000"),
            "{error}"
        );
    }
    host.fails(
        &["compare", "uniform", "--seeds", "2", "--seed", "1,2"],
        2,
        &["--seeds counts from one --seed"],
    );
    host.fails(
        &["replay", "nosuch", "--seeds", "2"],
        2,
        &["nosuch: no such file"],
    );
}
