//! Files that a run writes besides its row, compared with the row.

use super::{file, number, sum};
use crate::host::Host;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads, writes and trims, with garbage collection.
fn load(host: &Host) -> Vec<String> {
    let lines: String = (0..6000u64)
        .map(|i| {
            let page = i * 7919 % 4000;
            let op = match (i % 97, i % 5) {
                (0, _) => "T",
                (_, 3) => "R",
                _ => "W",
            };
            format!("{},{op},{},{}\n", i * 150, page * 4096, 4096 * (1 + i % 3))
        })
        .collect();
    let trace = file(host, "load.csv", &lines);
    let args = "--scheme pagemap --profile mlc-4k --size 32MiB --op 10 --age 1 --loops 4";
    std::iter::once(trace.display().to_string())
        .chain(args.split(' ').map(str::to_owned))
        .collect()
}

fn run(host: &Host, load: &[String], more: &[&str]) -> Vec<Value> {
    let load: Vec<&str> = load.iter().map(String::as_str).collect();
    let (code, out, error) = host.run(&[&["replay", "--json"][..], &load, more].concat());
    assert_eq!(code, 0, "{error}");
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    out.lines().map(parse).collect()
}

#[test]
fn the_windows_of_a_series_add_up_to_the_row() {
    let host = Host::new();
    let load = load(&host);
    for more in [
        &["--depth", "4"][..],
        &["--arrival", "trace", "--idle"],
        &["--response-unit", "per_page"],
    ] {
        let found = run(&host, &load, &[&["--interval", "200ms"], more].concat());
        let (row, windows) = found.split_last().unwrap();
        assert!(windows.len() >= 5, "{} windows", windows.len());
        assert_eq!(row["schema"], "ftld.replay/2");
        let mut row_alone = run(&host, &load, more).remove(0);
        row_alone["run"] = row["run"].clone();
        assert_eq!(*row, row_alone, "a series changes the run");
        let total = |path: &str| -> f64 {
            let value = |window: &Value| window.pointer(path).and_then(Value::as_f64);
            windows.iter().filter_map(value).sum()
        };
        for (path, of) in [
            ("/requests", "/requests/completed"),
            ("/pages_read", "/requests/pages_read"),
            ("/pages_written", "/requests/pages_written"),
            ("/pages_trimmed", "/requests/pages_trimmed"),
            ("/response_ns/all/count", "/response_ns/all/count"),
            ("/response_ns/write/count", "/response_ns/write/count"),
            ("/response_ns/trim/count", "/response_ns/trim/count"),
        ] {
            assert_eq!(total(path), number(row, of), "{path} {more:?}");
        }
        for (cause, operations) in row["flash"].as_object().unwrap() {
            for (operation, count) in operations.as_object().unwrap() {
                let path = format!("/flash/{cause}/{operation}");
                assert_eq!(total(&path), count.as_f64().unwrap(), "{path} {more:?}");
            }
        }
        assert!(total("/flash/gc/programs") > 0.0, "nothing was collected");
        let max = |path: &str| {
            let values = windows.iter().map(|window| number(window, path));
            values.fold(0.0, f64::max)
        };
        assert_eq!(
            max("/response_ns/all/max"),
            number(row, "/response_ns/all/max")
        );
        let mut end = 0.0;
        for window in windows {
            assert_eq!(window["schema"], "ftld.interval/1");
            let (from, to) = (number(window, "/from_ns"), number(window, "/to_ns"));
            assert!(from >= end && from % 200e6 == 0.0 && from < to && to <= from + 200e6);
            let waf = window["write_amplification"].as_f64();
            let written = number(window, "/pages_written");
            let programs = sum(window, "programs");
            assert_eq!(waf.is_some(), written > 0.0);
            // JSON is read with an error in the last digit.
            assert!(waf.is_none_or(|waf| (waf * written / programs - 1.0).abs() < 1e-12));
            end = to;
        }
        assert!(end <= number(row, "/emulated_ns"));
    }
}

/// Lines of a log as JSON objects, from either format.
fn log(path: &Path) -> Vec<BTreeMap<String, Value>> {
    let bytes = std::fs::read(path).unwrap();
    let bytes = match path.extension() {
        Some(end) if end == "zst" => zstd::decode_all(&bytes[..]).unwrap(),
        _ => bytes,
    };
    let text = String::from_utf8(bytes).unwrap();
    if path.display().to_string().contains(".ndjson") {
        let parse = |line: &str| serde_json::from_str(line).unwrap();
        return text.lines().map(parse).collect();
    }
    let mut lines = text.lines().map(|line| line.split(','));
    let heads: Vec<&str> = lines.next().unwrap().collect();
    let entry = |line: std::str::Split<'_, char>| {
        let value = |text: &str| text.parse::<u64>().map_or(text.into(), Value::from);
        let pairs = heads.iter().zip(line.map(value));
        pairs.map(|(key, value)| ((*key).into(), value)).collect()
    };
    lines.map(entry).collect()
}

#[test]
fn a_log_has_every_request_and_all_flash_operations() {
    let host = Host::new();
    let load = load(&host);
    let mut requests = Vec::new();
    for name in ["a.csv", "a.ndjson", "a.csv.zst", "a.ndjson.zst"] {
        let path = host.folder.path().join(name);
        let found = run(&host, &load, &["--log", path.to_str().unwrap()]);
        let row = &found[0];
        let log = log(&path);
        let count = number(row, "/requests/completed");
        assert_eq!(log.len() as f64, count, "{name}");
        let total = |key: &str| -> f64 {
            let value = |line: &BTreeMap<String, Value>| line[key].as_f64().unwrap();
            log.iter().map(value).sum()
        };
        assert_eq!(total("response_ns"), number(row, "/response_ns/all/sum"));
        let bytes = |op: &str| -> f64 {
            let own = log.iter().filter(|line| line["op"] == op);
            own.map(|line| line["length_bytes"].as_f64().unwrap()).sum()
        };
        for (op, of) in [("R", "read"), ("W", "written"), ("T", "trimmed")] {
            let expected = number(row, &format!("/requests/{of}_bytes"));
            assert_eq!(bytes(op), expected, "{name} {op}");
        }
        let all = |cause: &str| -> f64 {
            let value = |line: &BTreeMap<String, Value>| match line.get("flash") {
                Some(flash) => flash[cause]["programs"].as_f64().unwrap_or(0.0),
                None => line[&format!("programs_{cause}")].as_f64().unwrap(),
            };
            log.iter().map(value).sum()
        };
        for (cause, of) in row["flash"].as_object().unwrap() {
            assert_eq!(all(cause), of["programs"].as_f64().unwrap(), "{cause}");
        }
        assert!(all("gc") > 0.0, "nothing was collected");
        if name.starts_with("a.csv") {
            assert_eq!(total("erases"), number(row, "/flash_total/erases"));
            assert_eq!(total("reads"), number(row, "/flash_total/reads"));
        }
        let own = |line: &BTreeMap<String, Value>| {
            let keys = [
                "start_ns",
                "op",
                "offset_bytes",
                "length_bytes",
                "response_ns",
            ];
            keys.map(|key| line[key].clone())
        };
        let lines: Vec<_> = log.iter().map(own).collect();
        // At queue depth 1 each request starts when the one before has ended.
        let mut now = 0;
        for line in &lines {
            assert_eq!(line[0], now);
            now += line[4].as_u64().unwrap();
        }
        assert_eq!(now as f64, number(row, "/emulated_ns"));
        requests.push(lines);
    }
    assert!(requests.windows(2).all(|pair| pair[0] == pair[1]));
}

/// A wrong path is reported before the trace is read, which has an error too.
#[test]
fn a_path_that_cannot_be_written_is_found_before_the_run() {
    let host = Host::new();
    let trace = file(&host, "t.csv", "0,W,0,4096\n1,W,9,\n");
    let run = ["replay", trace.to_str().unwrap(), "--size", "1MiB"];
    let folder = host.folder.path().join("folder.csv");
    std::fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let none = "/nonexistent/x.csv";
    for (option, path, part) in [
        (
            "--log",
            none,
            "/nonexistent/x.csv: there is no folder /nonexistent; create it",
        ),
        (
            "--log",
            folder,
            "folder.csv: this is a folder; name a file in it",
        ),
        (
            "--trace-events",
            none,
            "/nonexistent/x.csv: there is no folder /nonexistent; create it",
        ),
        (
            "--trace-events",
            folder,
            "folder.csv: this is a folder; name a file in it",
        ),
    ] {
        host.fails(&[&run[..], &[option, path]].concat(), 1, &[part]);
    }
    host.fails(
        &[&run[..], &["--log", "x.gz"]].concat(),
        2,
        &["--log x.gz: the name selects the format; end it in .ndjson or .csv"],
    );
    host.fails(&run, 1, &["line 2"]);
    let text = std::fs::read_to_string(&trace).unwrap();
    host.fails(
        &[&run[..], &["--log", trace.to_str().unwrap()]].concat(),
        2,
        &["t.csv: would overwrite the trace; name another file"],
    );
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), text);
    for option in [
        ["--log", "x.csv"],
        ["--trace-events", "x.json"],
        ["--interval", "1s"],
    ] {
        host.fails(
            &[&run[..], &option, &["--seeds", "2"]].concat(),
            2,
            &[option[0], "describes one run; leave out --seeds"],
        );
    }
}

#[test]
fn trace_events_nest_on_a_track_per_die_and_kind() {
    let host = Host::new();
    let load = load(&host);
    let path = host.folder.path().join("events.json");
    let found = run(&host, &load, &["--trace-events", path.to_str().unwrap()]);
    let row = &found[0];
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(trace["otherData"]["events_dropped"], 0);
    let mut names: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut spans: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let track = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        match (
            event["ph"].as_str().unwrap(),
            event["name"].as_str().unwrap(),
        ) {
            ("M", "thread_name") => {
                let name = event["args"]["name"].as_str().unwrap().to_owned();
                assert_eq!(names.insert(track, name), None);
            }
            ("M", _) => {}
            ("X", _) => spans.entry(track).or_default().push(event),
            other => panic!("{other:?}"),
        }
    }
    let dies = number(row, "/device/dies");
    let plain = |name: &&String| !name.ends_with(')');
    assert_eq!(
        names.values().filter(plain).count() as f64,
        dies + 11.0,
        "a track per die and per kind: {names:?}"
    );
    let (mut gc, mut of_dies) = (0, 0);
    let end_of_run = number(row, "/emulated_ns");
    for (track, events) in &spans {
        let name = names[track].split(" (").next().unwrap();
        let (mut open, mut before): (Vec<f64>, f64) = (Vec::new(), 0.0);
        for event in events {
            let ns = |key: &str| (event[key].as_f64().unwrap() * 1000.0).round();
            let (at, end) = (ns("ts"), ns("ts") + ns("dur"));
            assert!(at >= before && end <= end_of_run, "{event}");
            before = at;
            while open.last().is_some_and(|last| *last <= at) {
                open.pop();
            }
            assert!(open.last().is_none_or(|last| end <= *last), "{event}");
            open.push(end);
            match track.0 {
                1 => {
                    let die = event["args"]["block"].as_u64().unwrap() as f64 % dies;
                    assert_eq!(name, format!("die {die}"));
                    of_dies += 1;
                }
                _ => {
                    assert_eq!(name, event["name"]);
                    gc += u32::from(name == "gc");
                }
            }
        }
    }
    assert_eq!(f64::from(gc), number(row, "/scheme_stats/gc_runs"));
    assert!(
        gc > 10 && of_dies >= gc,
        "{gc} runs of GC, {of_dies} on dies"
    );
}
