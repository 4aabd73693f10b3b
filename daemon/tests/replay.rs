//! `ftld replay` and `ftld compare` through the program, against figures that follow from something
//! else.

mod nbd_support;
mod program;

use program::Host;
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

/// On a device of one die without pairing every nanosecond is some operation's charge, whoever the
/// scheme.
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

/// Presets whose device is too large to be made in a test that others run beside: 655,360 blocks
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
                "none",
            ],
        );
        assert_eq!(
            (&row["scheme"], &row["device"]["profile"]),
            (&preset["scheme"], &preset["profile"]),
            "{name}"
        );
        assert_eq!(row["job"]["average"], preset["average"], "{name}");
        assert_eq!(row["device"]["op_percent"], preset["op_percent"], "{name}");
    }
    // Of 16 pages that a part of the map tells of, the first costs a program alone, the others also
    // 20 us for the spare bytes.
    let row = replay(
        &host,
        &[
            "sequential:requests=3200,size=2KiB",
            "--preset",
            "mnftl-paper",
        ],
    );
    assert_eq!(number(&row, "/response_ns/write/mean"), 818_750.0);
    // What gives up flushed data is in a simulation's parameters, never in an image's.
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
fn partial_pages_are_read_first() {
    let host = Host::new();
    let trace = file(
        &host,
        "t.csv",
        "0,W,512,512\n1,W,4000,200\n2,R,100,8192\n3,T,8192,4096\n4,T,4096,100\n",
    );
    let row = replay(
        &host,
        &[
            trace.to_str().unwrap(),
            "--size",
            "1MiB",
            "--precondition",
            "fill",
        ],
    );
    // One page; two pages in part; three pages read; one trimmed; the last one is cleared in part,
    // so read and written.
    assert_eq!(row["requests"]["pages_written"], 3);
    assert_eq!(row["requests"]["pages_read"], 3 + 3);
    assert_eq!(row["requests"]["pages_trimmed"], 1);
    assert_eq!(row["requests"]["format"], "plain");
    assert_eq!(row.pointer("/flash/host/programs").unwrap(), 4);
}

#[test]
fn what_one_response_time_is_can_be_chosen() {
    let host = Host::new();
    let trace = file(&host, "t.csv", "0,W,0,40960\n1,R,0,40960\n2,R,4096,4096\n");
    let with = |average: &str| {
        let path = trace.to_str().unwrap();
        replay(
            &host,
            &[
                path,
                "--size",
                "1MiB",
                "--scheme",
                "pagemap",
                "--precondition",
                "fill",
                "--average",
                average,
            ],
        )
    };
    let (request, page, record) = (with("per_request"), with("per_page"), with("per_record"));
    // The profile reads a page in 50 us.
    assert_eq!(
        number(&request, "/response_ns/read/mean"),
        11.0 * 50_000.0 / 2.0
    );
    assert_eq!(
        (
            number(&page, "/response_ns/read/count"),
            number(&page, "/response_ns/read/mean")
        ),
        (11.0, 50_000.0)
    );
    assert_eq!(
        (
            number(&record, "/response_ns/read/count"),
            number(&record, "/response_ns/read/mean")
        ),
        (2.0, 50_000.0)
    );
    assert_eq!(
        (
            request["requests"]["pages_written"].clone(),
            record["requests"]["pages_written"].clone()
        ),
        (10.into(), 1.into())
    );
    assert_eq!(
        number(&request, "/emulated_ns"),
        number(&page, "/emulated_ns")
    );
}

#[test]
fn addresses_fit_are_folded_or_compacted() {
    let host = Host::new();
    let lines: String = (0..64u64)
        .map(|i| format!("{i},W,{},4096\n", (i % 8) * 1000 * MIB + i * 4096))
        .collect();
    let trace = file(&host, "wide.csv", &lines);
    let path = trace.to_str().unwrap();
    host.fails(
        &["replay", path, "--size", "16MiB", "--precondition", "none"],
        1,
        &[
            path,
            "line 2: 4096 bytes at 1048580096 reach beyond the device of 16777216 bytes",
            "--address compact or fold",
        ],
    );
    let fold = replay(
        &host,
        &[
            path,
            "--size",
            "16MiB",
            "--precondition",
            "none",
            "--address",
            "fold",
        ],
    );
    assert_eq!(
        (
            fold["requests"]["completed"].clone(),
            fold["device"]["size_bytes"].clone()
        ),
        (64.into(), (16 * MIB).into())
    );
    let compact = replay(
        &host,
        &[
            path,
            "--precondition",
            "none",
            "--address",
            "compact",
            "--loops",
            "3",
        ],
    );
    assert_eq!(
        (
            compact["requests"]["touched_extents"].clone(),
            compact["device"]["size_bytes"].clone()
        ),
        (8.into(), (8 * MIB).into())
    );
    assert_eq!(
        (
            compact["requests"]["issued"].clone(),
            compact["requests"]["completed"].clone()
        ),
        (192.into(), 192.into())
    );
    host.fails(
        &["replay", path, "--size", "4MiB", "--address", "compact"],
        2,
        &["touches 8388608 bytes", "add --size 8388608"],
    );
    let disks = file(&host, "disks.trace", "5 0 0 8 0\n6 1 0 8 0\n");
    let disks = disks.to_str().unwrap();
    host.fails(
        &["replay", disks, "--size", "1MiB"],
        1,
        &["line 2: disk 1, after requests to disk 0", "--disk N"],
    );
    assert_eq!(
        replay(&host, &[disks, "--size", "1MiB", "--disk", "1"])["requests"]["completed"],
        1
    );
    assert_eq!(
        replay(&host, &[disks, "--address", "compact"])["requests"]["touched_extents"],
        2
    );
    host.fails(
        &["replay", disks, "--size", "1MiB", "--disk", "7"],
        1,
        &["no request to disk 7"],
    );
}

#[test]
fn by_timestamps_requests_wait_for_each_other_and_the_scheme_works_between_them() {
    let host = Host::new();
    let with = |rate: &str, idle: &[&str]| {
        let load = format!("sequential:requests=8K,rate={rate}");
        let args = [
            "--scheme",
            "pagemap",
            "--size",
            "16MiB",
            "--precondition",
            "fill",
            "--arrival",
            "trace",
        ];
        replay(
            &host,
            &[
                &[load.as_str(), "--set", "ckpt.interval=0"][..],
                &args,
                idle,
            ]
            .concat(),
        )
    };
    let mean = |row: &Value| number(row, "/response_ns/write/mean");
    let rare = |row: &Value| number(row, "/response_ns/write/p999");
    let (slow, busy, idle) = (
        with("20", &[]),
        with("100000", &[]),
        with("20", &["--idle"]),
    );
    // 8000 requests in 400 s on average, as against all within 80 ms.
    assert!((number(&slow, "/emulated_ns") / 400e9 - 1.0).abs() < 0.1);
    assert!(
        mean(&busy) > 100.0 * mean(&slow),
        "a queue as long as the whole trace: {} {}",
        mean(&busy),
        mean(&slow)
    );
    // One write in 128 needs an erase of 3.5 ms. The slowest program takes 1.3 ms.
    assert!(
        rare(&slow) >= 3.5e6 && rare(&idle) < 3.0e6,
        "erased while nobody asked: {} {}",
        rare(&slow),
        rare(&idle)
    );
    let out_of_order = file(
        &host,
        "back.csv",
        "5000,W,0,4096\n9000,W,4096,4096\n7000,W,0,4096\n",
    );
    let row = replay(
        &host,
        &[
            out_of_order.to_str().unwrap(),
            "--size",
            "1MiB",
            "--precondition",
            "none",
            "--arrival",
            "trace",
        ],
    );
    assert_eq!(
        (
            row["requests"]["out_of_order"].clone(),
            row["requests"]["completed"].clone()
        ),
        (1.into(), 3.into())
    );
}

/// Thirty-two dies on four channels: reads of different pages overlap, as far as they lie on
/// different dies.
#[test]
fn requests_under_way_together_keep_more_dies_busy() {
    let host = Host::new();
    let with = |depth: &str| {
        let load = "uniform:requests=4K,read=100%,span=64MiB";
        let args = [
            "--scheme",
            "pagemap",
            "--profile",
            "mlam",
            "--size",
            "64MiB",
            "--precondition",
            "fill",
            "--depth",
            depth,
        ];
        replay(&host, &[&[load], &args[..]].concat())
    };
    let (one, many) = (with("1"), with("32"));
    // A read takes 60 us and 100 us of transfer, whoever asks.
    assert_eq!(number(&one, "/emulated_ns"), 4_000.0 * 160_000.0);
    assert_eq!(number(&one, "/response_ns/read/max"), 160_000.0);
    assert_eq!(
        (number(&one, "/flash_busy_ns/read"), one["flash"].clone()),
        (number(&many, "/flash_busy_ns/read"), many["flash"].clone())
    );
    assert!(
        number(&many, "/emulated_ns") < number(&one, "/emulated_ns") / 2.0,
        "{}",
        number(&many, "/emulated_ns")
    );
    assert!(number(&many, "/response_ns/read/mean") > 160_000.0);
}

#[test]
fn what_warms_up_is_not_measured() {
    let host = Host::new();
    let with = |args: &[&str]| {
        replay(
            &host,
            &[
                &[
                    "sequential:requests=4096",
                    "--scheme",
                    "pagemap",
                    "--size",
                    "16MiB",
                    "--precondition",
                    "none",
                ],
                args,
            ]
            .concat(),
        )
    };
    let (cold, warm) = (with(&[]), with(&["--warm-up", "3"]));
    // The fourth pass over the device needs as many erases as blocks, but for some that were free;
    // the first none.
    assert_eq!(
        (
            number(&cold, "/flash_total/erases"),
            number(&cold, "/requests/pages_written")
        ),
        (0.0, 4096.0)
    );
    assert_eq!(
        (
            number(&warm, "/requests/pages_written"),
            number(&warm, "/response_ns/write/count")
        ),
        (4096.0, 4096.0)
    );
    assert!(
        (30.0..=34.0).contains(&number(&warm, "/flash_total/erases")),
        "{warm}"
    );
}

/// The paper's setting: only what the trace touches holds data, the rest of the device is room.
#[test]
fn a_device_can_be_filled_with_what_the_trace_touches() {
    let host = Host::new();
    let trace = file(
        &host,
        "t.csv",
        "0,W,1000000,100000\n1,R,5000,100\n2,W,1000000,5000\n3,R,1040000,4096\n",
    );
    let row = replay(
        &host,
        &[
            trace.to_str().unwrap(),
            "--size",
            "4MiB",
            "--scheme",
            "pagemap",
            "--precondition",
            "touched",
            "--loops",
            "2",
        ],
    );
    // Pages 1 and 244 to 268.
    assert_eq!(number(&row, "/precondition/device_writes"), 26.0 / 1024.0);
    assert_eq!(number(&row, "/scheme_stats/mapped_pages"), 26.0);
    // Everything that is read holds data: 1 and 2 pages, and what the ends of the two writes need.
    let reads = 2.0 * (1.0 + 2.0 + 2.0 + 2.0);
    assert_eq!(
        (
            number(&row, "/flash/host/reads"),
            number(&row, "/requests/pages_read")
        ),
        (reads, reads)
    );
    let load = [
        "stand-in-usr_2:order=runs",
        "--profile",
        "lazyftl",
        "--average",
        "per_page",
        "--precondition",
        "touched",
        "--warm-up",
        "1",
    ];
    let paper = [
        "--scheme",
        "lazyftl",
        "--set",
        "lazy.cache_pages=1",
        "--set",
        "lazy.buffer_blocks=4",
    ];
    let bare = ["--set", "ckpt.interval=0", "--set", "wear.policy=none"];
    let row = replay(&host, &[&load[..], &paper, &bare].concat());
    // What the bench of the paper finds in the same setting, with other random numbers
    // (docs/SCHEMES.md): 224.62 us.
    assert!(
        (number(&row, "/response_ns/write/mean") / 224_620.0 - 1.0).abs() < 0.005,
        "{row}"
    );
    assert!((number(&row, "/precondition/device_writes") / 0.759 - 1.0).abs() < 0.01);
}

#[test]
fn bad_traces_are_one_error_that_names_file_and_line() {
    let host = Host::new();
    let good = "128166372003061629,web,1,Write,4096,4096,413\n";
    for (name, text, part) in [
        (
            "truncated",
            format!("{good}128166372003061630,web,1,Wri"),
            "line 2: 4 columns, not 7; expected msr: Timestamp,",
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
            &["replay", path, "--size", "1MiB", "--precondition", "none"],
            1,
            &[path, part],
        );
    }
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
        1,
        &["uniforn: no such file, and no workload of that name; there are uniform"],
    );
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
            "is none of none, touched, fill, steady",
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
    let settings = ["--size", "8MiB", "--op", "20,40", "--precondition", "1"];
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
                    load,
                    "--scheme",
                    scheme,
                    "--size",
                    "8MiB",
                    "--op",
                    op,
                    "--precondition",
                    "1",
                ];
                let mut row = replay(&host, &args);
                row.as_object_mut().unwrap().remove("run");
                expected.push(row);
            }
        }
    }
    assert_eq!(one, expected);
}

/// The same by plan, by jobs of one row each through the script for Slurm, and by reading those
/// rows.
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
    // Two workloads: by cause, writes, erases, RAM twice; the mapping cache where there is one.
    assert!(
        page.matches("<svg").count() >= 10,
        "{}",
        page.matches("<svg").count()
    );
    for forbidden in ["<script", "src=", "href=", "@import", "url("] {
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
        .position(|name| name == "write_amplification")
        .unwrap();
    for (line, row) in lines[1..].iter().zip(rows(&direct)) {
        // The workload's own comma makes no column here: none of these has one.
        let value: f64 = line.split(',').nth(column).unwrap().parse().unwrap();
        assert_eq!(value, number(&row, "/write_amplification/total"));
    }
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
        "none",
    ];
    let (code, out, error) = host.run(&args);
    assert_eq!((code, out.lines().count()), (1, 2));
    assert!(
        error.contains("1 of 2 runs failed, first pagemap on")
            && error.contains("line 2: 4096 bytes at 99999999"),
        "{error}"
    );
    let found = rows(&out);
    assert_eq!(
        (found[0]["schema"].as_str(), found[1]["schema"].as_str()),
        (Some("ftld.failure/1"), Some("ftld.replay/1"))
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
        &[
            "compare",
            "uniform",
            "--scheme",
            "pagemap",
            "--set",
            "lazy.cache_pages=1,2",
        ],
        2,
        &["none of pagemap has this"],
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
        &["not a job: unknown field `workloda`"],
    );
    host.fails(
        &["compare", "--rows", wrong.to_str().unwrap()],
        1,
        &["line 1: not a row: schema"],
    );
    // A parameter that one scheme does not know leaves it one run.
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
