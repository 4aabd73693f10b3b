//! Raw flash: exactly what was asked, equal in a comparison, and shown by one rule.

use super::{MIB, number, replay, schemes};
use crate::host::Host;
use serde_json::Value;

const LOAD: [&str; 5] = [
    "zipf:requests=2K",
    "--size",
    "16MiB",
    "--precondition",
    "fill",
];

fn rows(host: &Host, args: &[&str]) -> Vec<Value> {
    let (code, out, error) = host.run(&[&["compare", "--ndjson"][..], args].concat());
    assert_eq!(code, 0, "{error}");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The effective over-provisioning, from the numbers of a row.
fn effective(row: &Value) -> f64 {
    let blocks = number(row, "/device/blocks") - number(row, "/device/bad_blocks");
    let pages = blocks * number(row, "/device/pages_per_block");
    (pages / number(row, "/device/logical_pages") - 1.0) * 100.0
}

#[test]
fn a_comparison_has_equal_raw_flash_unless_told_otherwise() {
    let host = Host::new();
    let own = rows(&host, &[&LOAD[..], &["--raw", "own"]].concat());
    let most = own
        .iter()
        .map(|row| number(row, "/device/raw_bytes"))
        .fold(0.0, f64::max);
    assert!(
        own.iter()
            .any(|row| number(row, "/device/raw_bytes") < most),
        "all layouts are equal, so the comparison tests nothing"
    );
    let equal = rows(&host, &LOAD);
    assert_eq!(equal.len(), schemes(&host).len());
    for row in &equal {
        assert_eq!(number(row, "/device/raw_bytes"), most, "{row}");
        assert_eq!(number(row, "/device/size_bytes"), (16 * MIB) as f64);
        assert!((number(row, "/device/effective_op_percent") - effective(row)).abs() < 1e-9);
        assert_eq!(row["device"]["op_percent"], Value::Null);
    }
    // The job of a row is a replay.
    let raw = equal[0]["job"]["raw"].as_str().unwrap();
    let scheme = equal[0]["scheme"].as_str().unwrap();
    let again = replay(
        &host,
        &[&LOAD[..], &["--scheme", scheme, "--raw", raw]].concat(),
    );
    assert_eq!(again["device"], equal[0]["device"]);
    assert_eq!(again["flash"], equal[0]["flash"]);
}

#[test]
fn raw_flash_is_the_asked_one_for_every_scheme() {
    let host = Host::new();
    let block = 128 * 4096;
    let asked = 96 * MIB + 12_345;
    for row in rows(&host, &[&LOAD[..], &["--raw", &asked.to_string()]].concat()) {
        let raw = number(&row, "/device/raw_bytes") as u64;
        assert!(raw <= asked && asked - raw < block, "{row}");
    }
}

#[test]
fn too_little_raw_flash_names_the_least_and_a_second_rule_is_refused() {
    let host = Host::new();
    let run = |args: &[&str]| {
        let (code, out, error) = host.run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        error
    };
    let base = [&["replay"][..], &LOAD, &["--scheme", "lazyftl", "--raw"]].concat();
    let error = run(&[&base[..], &["16MiB"]].concat());
    let least = error.split("at least ").nth(1).unwrap();
    let (least, _) = least.split_once(' ').unwrap();
    let (code, _, error) = host.run(&[&base[..], &[least]].concat());
    assert_eq!(code, 0, "{error}");
    for command in ["replay", "compare"] {
        let args = [&[command][..], &LOAD, &["--raw", "96MiB", "--op", "7"]].concat();
        assert!(run(&args).contains("leave --op out"), "{command}");
    }
    let args = [&["compare"][..], &LOAD, &["--raw", "much"]].concat();
    assert!(run(&args).contains("--raw \"much\" is not a size"));
    let paper = ["replay", "zipf", "--profile", "lazyftl", "--raw", "1GiB"];
    assert!(run(&paper).contains("add --size"));
}

/// One message has every scheme that does not fit, and there is no row.
#[test]
fn a_comparison_refuses_too_little_ram_or_raw_flash_before_any_run() {
    let host = Host::new();
    let two = ["--scheme", "lazyftl,pagemap", "--ndjson"];
    let run = |args: &[&str]| {
        let (code, out, error) = host.run(&[&["compare"][..], &LOAD, &two, args].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        error
    };
    let error = run(&["--ram", "2MiB,1KiB"]);
    for scheme in ["lazyftl", "pagemap"] {
        let part = format!("RAM of 1024 bytes: scheme {scheme} needs at least");
        assert!(error.contains(&part), "{error}");
    }
    assert!(!error.contains("RAM of 2097152"), "{error}");
    let error = run(&["--raw", "8MiB,96MiB"]);
    let part = "raw flash of 8388608 bytes is less than the size of 16777216 bytes";
    assert_eq!(error.matches(part).count(), 1, "{error}");
    let error = run(&["--raw", "16MiB"]);
    for scheme in ["lazyftl", "pagemap"] {
        assert!(error.contains(&format!("scheme {scheme} needs at least")));
    }
}

/// Rows, tables, the page and `create` show the same figures.
#[test]
fn every_output_shows_raw_flash_over_provisioning_and_both_kinds_of_ram() {
    let host = Host::new();
    let row = &rows(&host, &[&LOAD[..], &["--scheme", "dftl"]].concat())[0];
    let page = host.folder.path().join("page.html");
    let (_, table, _) = host.run(
        &[
            &["compare"][..],
            &LOAD,
            &["--scheme", "dftl", "--html", page.to_str().unwrap()],
        ]
        .concat(),
    );
    let page = std::fs::read_to_string(page).unwrap();
    let effective = format!("{:.1}", number(row, "/device/effective_op_percent"));
    for text in [&table, &page] {
        for part in ["raw", "OP %", "RAM paper", "RAM real", &effective] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
    let seeds = ["replay", "--scheme", "dftl", "--raw"];
    let raw = row["job"]["raw"].as_str().unwrap();
    let seeds = [&seeds[..], &[raw, "--seeds", "2"], &LOAD].concat();
    let (_, text, error) = host.run(&seeds);
    let part = format!("of raw flash, effective over-provisioning {effective} %, RAM");
    assert!(text.contains(&part), "{text}{error}");
    let image = host.folder.path().join("made.ftld");
    let image = image.to_str().unwrap();
    let create = ["create", "--image", image, "--size", "16MiB", "--json"];
    let made = host.json(&[&create[..], &["--scheme", "dftl"]].concat());
    for key in [
        "raw_bytes",
        "effective_op_percent",
        "ram_paper_bytes",
        "ram_allocated_bytes",
    ] {
        assert!(made[key].as_f64() > Some(0.0), "{key} in {made}");
    }
}

#[test]
fn every_scheme_stays_within_the_ram_it_is_given_and_shows_its_taxes() {
    let host = Host::new();
    let given = 2 * MIB;
    for row in rows(&host, &[&LOAD[..], &["--ram", &given.to_string()]].concat()) {
        assert!(
            number(&row, "/ram/allocated_bytes") <= given as f64,
            "{row}"
        );
        let cause = |name: &str| {
            let waf = &row["write_amplification"]["by_cause"][name];
            waf.as_f64().unwrap_or(0.0)
        };
        let taxes: f64 = ["checkpoint", "pad", "journal"].map(cause).iter().sum();
        assert!((number(&row, "/write_amplification/taxes") - taxes).abs() < 1e-9);
    }
    let few = ["replay", "zipf", "--size", "16MiB", "--ram", "1KiB"];
    let (code, out, error) = host.run(&few);
    assert_eq!((code, out.as_str()), (2, ""), "{error}");
    assert!(error.contains("RAM of 1024 bytes: scheme lazyftl needs at least"));
}
