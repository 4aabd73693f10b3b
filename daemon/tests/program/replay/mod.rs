//! `ftld replay` and `ftld compare` through the program, against figures that follow from something
//! else.

mod compare;
mod forms;
mod method;
mod open_loop;
mod raw;
mod statistics;
mod sweeps;
mod watch;

use crate::host::Host;
use serde_json::Value;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

fn replay(host: &Host, args: &[&str]) -> Value {
    host.json(&[&["replay", "--json"], args].concat())
}

fn number(row: &Value, path: &str) -> f64 {
    row.pointer(path)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no {path} in {row}"))
}

fn schemes(host: &Host) -> Vec<String> {
    let all = host.json(&["schemes", "--json"]);
    all["schemes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|scheme| scheme["name"].as_str().unwrap().to_owned())
        .collect()
}

fn file(host: &Host, name: &str, text: &str) -> PathBuf {
    let path = host.folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The sum over causes of one kind of operation.
fn sum(row: &Value, of: &str) -> f64 {
    row["flash"]
        .as_object()
        .unwrap()
        .values()
        .map(|cause| cause[of].as_f64().unwrap())
        .sum()
}

#[test]
fn sequential_overwriting_copies_nothing() {
    let host = Host::new();
    let row = replay(
        &host,
        &[
            "sequential:requests=60K",
            "--scheme",
            "pagemap",
            "--size",
            "64MiB",
            "--precondition",
            "fill",
            "--set",
            "ckpt.interval=0",
        ],
    );
    assert_eq!(number(&row, "/write_amplification/by_cause/host"), 1.0);
    assert_eq!(row.pointer("/flash/gc/programs").unwrap(), 0);
    assert!(number(&row, "/write_amplification/total") < 1.001, "{row}");
    let blocks = 60_000.0 / 128.0;
    // As many blocks are erased as are filled, but for those that were free at the beginning.
    assert!(
        (blocks - 64.0..=blocks).contains(&number(&row, "/flash_total/erases")),
        "{row}"
    );
}

/// On a device of one die without pairing every nanosecond is the charge of an operation, with
/// every scheme.
#[test]
fn emulated_time_is_the_counted_operations_and_causes_add_up() {
    let host = Host::new();
    for scheme in schemes(&host) {
        let load = "mixed:requests=30K,read=30%,size=2KiB/60+8KiB/40,span=64MiB";
        let row = replay(
            &host,
            &[
                load,
                "--scheme",
                &scheme,
                "--profile",
                "lazyftl",
                "--size",
                "256MiB",
                "--precondition",
                "fill",
            ],
        );
        let total = |of: &str| number(&row, &format!("/flash_total/{of}"));
        for of in [
            "reads",
            "partial_reads",
            "programs",
            "oob_programs",
            "erases",
        ] {
            assert_eq!(sum(&row, of), total(of), "{scheme}: {of}");
        }
        let charged = 80.0 * total("reads")
            + 20.0 * total("partial_reads")
            + 200.0 * total("programs")
            + 1500.0 * total("erases");
        assert_eq!(number(&row, "/emulated_ns"), charged * 1000.0, "{scheme}");
        assert_eq!(
            number(&row, "/response_ns/all/sum"),
            charged * 1000.0,
            "{scheme}"
        );
        let by_cause: f64 = row["write_amplification"]["by_cause"]
            .as_object()
            .unwrap()
            .values()
            .map(|v| v.as_f64().unwrap())
            .sum();
        let waf = number(&row, "/write_amplification/total");
        assert!((by_cause - waf).abs() < 1e-9, "{scheme}");
        assert!(
            (waf - total("programs") / number(&row, "/requests/pages_written")).abs() < 1e-9,
            "{scheme}"
        );
        // Requests of 2 and 8 KiB on pages of 2 KiB: nothing is read for being written in part.
        let bytes = number(&row, "/requests/written_bytes") + number(&row, "/requests/read_bytes");
        assert_eq!(
            bytes / 2048.0,
            number(&row, "/requests/pages_written") + number(&row, "/requests/pages_read")
        );
        assert_eq!(number(&row, "/erases/total"), total("erases"), "{scheme}");
    }
}

/// Presets whose device is too large for a test that runs in parallel with others: 655,360 blocks
/// take 1.5 GB of RAM. Their layout is checked in `preset.rs`.
const LARGE: [&str; 1] = ["rose-paper"];

#[test]
fn a_preset_is_a_paper_by_one_name() {
    let host = Host::new();
    let presets = &host.json(&["presets", "--json"])["presets"];
    let name = |preset: &Value| preset["name"].as_str().unwrap().to_owned();
    assert!(LARGE.iter().all(|large| {
        presets
            .as_array()
            .unwrap()
            .iter()
            .any(|preset| name(preset) == *large)
    }));
    for preset in presets
        .as_array()
        .unwrap()
        .iter()
        .filter(|preset| !LARGE.contains(&name(preset).as_str()))
    {
        let name = name(preset);
        let name = name.as_str();
        let row = replay(
            &host,
            &[
                "sequential:requests=500",
                "--preset",
                name,
                "--precondition",
                "new",
            ],
        );
        assert_eq!(
            (&row["scheme"], &row["device"]["profile"]),
            (&preset["scheme"], &preset["profile"]),
            "{name}"
        );
        assert_eq!(
            row["job"]["response_unit"], preset["response_unit"],
            "{name}"
        );
        assert_eq!(row["device"]["op_percent"], preset["op_percent"], "{name}");
    }
    // A part of the map has the entries of 16 pages. The first page costs a program alone, the
    // others also 20 us for the spare bytes.
    let row = replay(
        &host,
        &[
            "sequential:requests=3200,size=2KiB",
            "--preset",
            "mnftl-paper",
        ],
    );
    assert_eq!(number(&row, "/response_ns/write/mean"), 818_750.0);
    // Parameters that lose flushed data are for simulations, never for an image.
    assert!(
        row["job"]["set"]
            .as_array()
            .unwrap()
            .contains(&"nand.pair_policy=none".into()),
        "{row}"
    );
    let made = host.json(&["create", "--preset", "mnftl-paper", "--json"]);
    assert_eq!(
        (made["scheme"].as_str(), made["blocks"].as_u64()),
        (Some("mnftl"), Some(4352))
    );
    let image = host.json(&["inspect", "default", "--json"]);
    let params = image["params"].to_string();
    assert!(
        params.contains("wear.policy=none") && !params.contains("pair_policy"),
        "{params}"
    );
    host.fails(
        &["replay", "uniform", "--preset", "nosuch"],
        2,
        &["no preset \"nosuch\"; there are mnftl-paper"],
    );
    let plan = host.run(&[
        "compare",
        "--plan",
        "uniform",
        "--preset",
        "mnftl-paper,lazyftl-paper",
        "--scheme",
        "dftl,pagemap",
    ]);
    assert_eq!(plan.1.lines().count(), 4, "{}", plan.1);
}

#[test]
fn equal_jobs_give_equal_rows_and_other_seeds_others() {
    let host = Host::new();
    let with = |seed: &str| {
        let mut row = replay(
            &host,
            &[
                "zipf:requests=5K,read=20%",
                "--size",
                "16MiB",
                "--seed",
                seed,
            ],
        );
        row.as_object_mut().unwrap().remove("run").unwrap();
        row
    };
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7")["flash"], with("8")["flash"]);
}

#[test]
fn bad_traces_are_one_error_that_names_file_and_line() {
    let host = Host::new();
    let good = "128166372003061629,web,1,Write,4096,4096,413\n";
    for (name, text, part) in [
        (
            "truncated",
            format!("{good}128166372003061630,web,1,Wri"),
            "line 2: 4 columns, not 7; the file ends in the middle of this line: copy it again",
        ),
        (
            "columns",
            format!("{good}{good}1,2,3\n"),
            "line 3: 3 columns, not 7",
        ),
        (
            "negative",
            format!("{good}128166372003061630,web,1,Write,-4096,4096,413\n"),
            "line 2: offset -4096 is negative",
        ),
        (
            "huge",
            format!("{good}128166372003061630,web,1,Write,9223372036854775807,4096,413\n"),
            "line 2: 4096 bytes at 9223372036854775807 reach beyond 1 PiB",
        ),
        (
            "zero",
            format!("{good}128166372003061630,web,1,Write,4096,0,413\n"),
            "line 2: length is 0",
        ),
        ("empty", String::new(), "nothing in it"),
        ("binary", "\u{1}\u{2}\0\0".into(), "line 1: not text"),
        (
            "prose",
            "Dear reader,\n".into(),
            "is of no format known here: plain, msr",
        ),
    ] {
        let path = file(&host, name, &text);
        let path = path.to_str().unwrap();
        host.fails(
            &["replay", path, "--size", "1MiB", "--precondition", "new"],
            1,
            &[path, part],
        );
    }
    // All columns are there: the last number may be whole, or not.
    let path = file(&host, "open", &format!("{good}{}", good.trim_end()));
    let args = ["replay", path.to_str().unwrap(), "--size", "1MiB"];
    let (code, _, error) = host.run(&args);
    let warned = error.matches("open: line 2: the last line has no line end; if the file was cut");
    assert_eq!((code, warned.count()), (0, 1), "{error}");
    let (code, _, error) =
        host.run(&[&["compare", "--scheme", "pagemap,dftl"], &args[1..]].concat());
    assert_eq!(
        (code, error.matches("has no line end").count()),
        (0, 1),
        "{error}"
    );
    let path = file(&host, "other", good);
    host.fails(
        &[
            "replay",
            path.to_str().unwrap(),
            "--size",
            "1MiB",
            "--format",
            "spc",
        ],
        1,
        &["line 1", "expected spc: ASU,LBA"],
    );
}

#[test]
fn what_was_meant_is_said() {
    let host = Host::new();
    host.fails(
        &["replay", "uniform:raed=30%"],
        2,
        &["no key \"raed\", did you mean \"read\"?"],
    );
    host.fails(
        &["replay", "uniforn"],
        2,
        &["uniforn: no such file, and no workload of that name (did you mean \"uniform\"?)"],
    );
    // Before any run, whatever the other workloads are.
    for (workload, part) in [
        (
            "zipff",
            "zipff: no such file, and no workload of that name (did you mean \"zipf\"?)",
        ),
        ("zipf:thete=1", "no key \"thete\", did you mean \"theta\"?"),
        ("trace.csv.gz", "trace.csv.gz: no such file"),
    ] {
        let (code, out, error) = host.run(&["compare", "uniform", workload, "--ndjson"]);
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        assert!(error.contains(part), "{error}");
    }
    host.fails(
        &["replay", "uniform", "--scheme", "lazy"],
        2,
        &["(did you mean \"lazyftl\"?); there are lazyftl"],
    );
    host.fails(
        &["replay", "uniform", "--profile", "mlc"],
        2,
        &["no profile \"mlc\" (did you mean \"mlc-4k\"?); there are mlc-4k"],
    );
    host.fails(
        &["replay", "uniform", "--address", "fold"],
        2,
        &["--address are for trace files"],
    );
    host.fails(
        &["replay", "uniform", "--set", "x=1"],
        2,
        &["no parameter \"x\""],
    );
    host.fails(
        &["replay", "uniform:size=2MiB", "--size", "1MiB"],
        2,
        &["requests of up to 2097152 bytes"],
    );
    host.fails(
        &["replay", "uniform", "--idle"],
        2,
        &["add --arrival trace"],
    );
    for (args, part) in [
        (["--address", "fodl"], "a similar value exists: 'fold'"),
        (
            ["--precondition", "stedy"],
            "[possible values: new, region, trace, fill, steady]",
        ),
        (
            ["--adress", "fold"],
            "a similar argument exists: '--address'",
        ),
    ] {
        let (code, _, error) = host.run(&[&["replay", "x"][..], &args].concat());
        assert!(code == 2 && error.contains(part), "{error}");
    }
    let (code, out, _) = host.run(&["replay", "uniform:requests=1K", "--size", "1MiB"]);
    assert!(
        code == 0 && out.contains("write amplification") && out.contains("optimum"),
        "{out}"
    );
    let (code, out, _) = host.run(&["workloads"]);
    assert!(
        code == 0 && out.contains("stand-in-financial1") && out.contains("blkparse"),
        "{out}"
    );
}
