//! Forms of a trace, preconditions by name, and effective over-provisioning.

use super::{MIB, file, number, replay, schemes};
use crate::host::Host;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Returns a trace of writes of one page over 3 MiB, most of them to a quarter of it, and the
/// number of pages that it touches.
fn skewed(host: &Host) -> (String, f64) {
    let (mut text, mut state, mut touched) = (String::new(), 7u64, BTreeSet::new());
    for time in 0..6000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let random = state >> 33;
        let page = match random % 4 {
            0 => random / 4 % 768,
            _ => random / 4 % 192,
        };
        touched.insert(page);
        writeln!(text, "{time},W,{},4096", page * 4096).unwrap();
    }
    let path = file(host, "skewed.csv", &text);
    (path.to_str().unwrap().to_owned(), touched.len() as f64)
}

fn small(trace: &str) -> [&str; 5] {
    [trace, "--size", "4MiB", "--scheme", "pagemap"]
}

fn passes(row: &Value) -> usize {
    assert_eq!(row["settling"]["over"], "passes", "{row}");
    row["settling"]["write_amplification"]
        .as_array()
        .unwrap()
        .len()
}

#[test]
fn a_form_compares_schemes_on_equal_raw_flash() {
    let host = Host::new();
    let (trace, _) = skewed(&host);
    let form = ["--form", "single", "--ndjson", "--scheme", "pagemap,dftl"];
    let args = [&["compare", &trace, "--size", "4MiB"][..], &form].concat();
    let (code, out, error) = host.run(&args);
    assert_eq!(code, 0, "{error}");
    let rows = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let raw: BTreeSet<_> = rows
        .map(|row: Value| row["device"]["raw_bytes"].to_string())
        .collect();
    assert_eq!((out.lines().count(), raw.len()), (2, 1), "{out}");
}

#[test]
fn a_looped_trace_is_measured_once_it_has_settled() {
    let host = Host::new();
    let (trace, touched) = skewed(&host);
    let form = |form: &str| replay(&host, &[&small(&trace)[..], &["--form", form]].concat());
    let single = form("single");
    assert_eq!(single["job"]["precondition"], "trace");
    assert_eq!(single["settling"]["over"], "halves");
    let written = number(&single, "/precondition/drive_writes");
    assert_eq!(written, touched / 1024.0);
    let looped = form("looped");
    assert_eq!(looped["settling"]["is_settled"], true, "{looped}");
    // The same run by its single options.
    let count = passes(&looped).to_string();
    let by_hand = ["--precondition", "trace", "--warm-up", &count];
    let by_hand = replay(&host, &[&small(&trace)[..], &by_hand].concat());
    assert_eq!(looped["flash"], by_hand["flash"]);
    assert_eq!(looped["requests"], by_hand["requests"]);
    // Other pages in every pass, the same number of them.
    let rotated = form("rotated");
    assert_ne!(rotated["flash"], looped["flash"]);
    assert_eq!(
        rotated["requests"]["pages_written"],
        looped["requests"]["pages_written"]
    );
    let mapped = |row: &Value| number(row, "/scheme_stats/mapped_pages");
    assert_eq!((mapped(&looped), mapped(&rotated)), (touched, 1024.0));
    let (_, text, _) = host.run(&[&["replay"][..], &small(&trace), &["--form", "looped"]].concat());
    assert!(text.contains("form: looped\n"), "{text}");
    assert!(
        text.contains("write amplification of the passes: "),
        "{text}"
    );
    assert!(text.contains(": settled\n"), "{text}");
    // A trace that writes nothing has nothing to settle.
    let reads = file(&host, "reads.csv", "0,R,0,4096\n");
    let reads = [
        reads.to_str().unwrap(),
        "--size",
        "4MiB",
        "--form",
        "looped",
    ];
    assert_eq!(replay(&host, &reads)["settling"], Value::Null);
}

/// A measurement that ends before the device is full once has not settled, and says so.
#[test]
fn halves_that_differ_are_named() {
    let host = Host::new();
    let load = [
        "uniform:requests=60K,read=0%",
        "--size",
        "64MiB",
        "--op",
        "28",
    ];
    let at = |state: &str| {
        let args = [&load[..], &["--scheme", "pagemap", "--precondition", state]].concat();
        replay(&host, &args)["settling"]["is_settled"].clone()
    };
    assert_eq!(at("new"), false);
    let args = [
        &["compare"][..],
        &load,
        &["--precondition", "new", "--scheme", "pagemap"],
    ];
    let (_, text, _) = host.run(&args.concat());
    let note = "write amplification had not settled in runs of pagemap.";
    assert!(text.contains(note), "{text}");
}

#[test]
fn a_region_is_erased_on_a_full_device() {
    let host = Host::new();
    let (trace, touched) = skewed(&host);
    let row = replay(
        &host,
        &[&small(&trace)[..], &["--precondition", "region"]].concat(),
    );
    // The trace writes the pages that were not written before.
    let written = number(&row, "/precondition/drive_writes");
    assert_eq!(written, 1.0 - touched / 1024.0);
    assert_eq!(number(&row, "/scheme_stats/mapped_pages"), 1024.0);
}

#[test]
fn effective_over_provisioning_is_the_asked_one_or_is_refused_with_the_least() {
    let host = Host::new();
    let load = [
        "zipf:requests=1K",
        "--size",
        "64MiB",
        "--precondition",
        "fill",
    ];
    let mut met = 0;
    for scheme in schemes(&host) {
        let run = |percent: &str| {
            let of = ["--scheme", &scheme, "--op-effective", percent];
            host.run(&[&["replay", "--json"][..], &load, &of].concat())
        };
        let (mut code, mut out, error) = run("28");
        let mut asked = 28.0;
        if code != 0 {
            let part = "effective over-provisioning of 28 %: scheme";
            assert!(code == 2 && error.contains(part), "{error}");
            let (_, least) = error.split_once("can have ").unwrap();
            let (least, _) = least.split_once(' ').unwrap();
            (code, out, _) = run(least);
            assert_eq!(code, 0, "{scheme}");
            asked = least.parse().unwrap();
        }
        met += usize::from(asked == 28.0);
        let row: Value = serde_json::from_str(&out).unwrap();
        let found = number(&row, "/device/effective_op_percent");
        let pages = number(&row, "/device/pages_per_block") + 1.0;
        let block = pages / number(&row, "/device/logical_pages") * 100.0;
        assert!(found >= asked && found < asked + block, "{scheme}: {found}");
    }
    assert!(met > 1, "{met} schemes have 28 %");
    let rows = ["compare", "--ndjson", "--scheme", "pagemap,dftl"];
    let (code, out, error) = host.run(&[&rows[..], &load, &["--op-effective", "60,90"]].concat());
    assert_eq!(code, 0, "{error}");
    let raw: Vec<f64> = out
        .lines()
        .map(|line| number(&serde_json::from_str(line).unwrap(), "/device/raw_bytes"))
        .collect();
    assert!(raw.len() == 4 && raw[0] == raw[1] && raw[2] == raw[3] && raw[0] < raw[2]);
    assert!(raw[0] < (110 * MIB) as f64);
}

#[test]
fn what_a_form_or_an_effective_over_provisioning_excludes() {
    let host = Host::new();
    let (trace, _) = skewed(&host);
    let zipf = ["zipf", "--size", "16MiB"];
    for (args, parts) in [
        (&["zipf", "--form", "looped"][..], "zipf is a generator"),
        (
            &[&trace, "--form", "single", "--warm-up", "2"],
            "leave out --warm-up 2",
        ),
        (
            &[&trace, "--form", "single", "--loops", "2"],
            "use --form looped",
        ),
        (
            &[&trace, "--form", "cyclic"],
            "[possible values: single, looped, rotated]",
        ),
        (
            &[&trace, "--form", "rotated", "--size", "1MiB"],
            "reach beyond the device",
        ),
        (
            &[
                &trace,
                "--form",
                "rotated",
                "--profile",
                "qlc-16k",
                "--size",
                "4100KiB",
            ],
            "ends 4096 bytes into a page of 16384; add --size 4194304",
        ),
    ] {
        let (code, out, error) = host.run(&[&["replay"], args].concat());
        assert!(
            code > 0 && out.is_empty() && error.contains(parts),
            "{error}"
        );
    }
    // These options need several passes over the trace; a pipe can be read once.
    let pipe = host.folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for args in [
        ["--form", "looped"],
        ["--precondition", "region"],
        ["--loops", "2"],
        ["--address", "compact"],
    ] {
        let args = [&["replay", pipe.to_str().unwrap()], &args[..]].concat();
        host.fails(
            &args,
            2,
            &["reads the trace more than once", "save it to one"],
        );
    }
    // The size of a preset's device follows.
    let preset = ["replay", "uniform:requests=10", "--preset", "mnftl-paper"];
    let preset = [&preset[..], &["--op-effective", "20", "--json"]].concat();
    let found = number(&host.json(&preset), "/device/effective_op_percent");
    assert!((20.0..20.1).contains(&found), "{found}");
    for (args, part) in [
        (
            ["--op-effective", "7", "--op", "7"],
            "--op 7 both determine",
        ),
        (
            ["--op-effective", "7", "--raw", "64MiB"],
            "--raw 64MiB both determine",
        ),
        (
            ["--op-effective", "1", "--scheme", "dftl"],
            "scheme dftl on a device of 16777216 bytes can have",
        ),
        (["--op-effective", "2000", "--scheme", "dftl"], "to 1000 %"),
        (
            ["--op-effective", "7", "--profile", "lazyftl"],
            "leave --size out",
        ),
    ] {
        for command in ["replay", "compare"] {
            host.fails(&[&[command][..], &zipf, &args].concat(), 2, &[part]);
        }
    }
}
