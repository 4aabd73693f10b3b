//! Open loops: arrivals, response times against queueing theory, overload, causes, the knee.

use super::{file, number, replay};
use crate::host::Host;
use serde_json::Value;

/// A page map on one die, which reads a page in 50 us: a server of constant service time.
const READS: [&str; 7] = [
    "uniform:requests=200K,read=100%",
    "--scheme",
    "pagemap",
    "--size",
    "16MiB",
    "--precondition",
    "fill",
];
const SERVICE_NS: f64 = 50_000.0;

fn reads_at(host: &Host, more: &[&str]) -> Value {
    replay(host, &[&READS[..], more].concat())
}

/// The mean wait of an M/D/1 queue at a load of `rho`: Pollaczek and Khinchine.
fn mean_wait(rho: f64) -> f64 {
    rho * SERVICE_NS / (2.0 * (1.0 - rho))
}

#[test]
fn random_arrivals_wait_as_long_as_queueing_theory_says() {
    let host = Host::new();
    for (rate, rho, tolerance) in [("2K", 0.1, 0.05), ("10K", 0.5, 0.03), ("16K", 0.8, 0.08)] {
        for arrival in ["trace", "poisson"] {
            let row = reads_at(&host, &["--rate", rate, "--arrival", arrival]);
            let wait = number(&row, "/response_ns/all/mean") - SERVICE_NS;
            let ratio = wait / mean_wait(rho);
            assert!((ratio - 1.0).abs() < tolerance, "{rate} {arrival}: {ratio}");
            assert_eq!(row["load"]["is_sustained"], true);
            let offered = number(&row, "/load/offered_per_second");
            assert!(
                (offered / (rho * 1e9 / SERVICE_NS) - 1.0).abs() < 0.01,
                "{offered}"
            );
            // The wait is one for reads of the host.
            let waited = number(&row, "/load/all/waited_ns");
            assert!((waited - wait).abs() < 1.0, "{waited} of {wait}");
            let host_ns = number(&row, "/load/all/by_cause_ns/host");
            assert!((host_ns - wait - SERVICE_NS).abs() < 1.0, "{host_ns}");
        }
    }
    // Requests in equal intervals do not meet, up to the rate of the device.
    let row = reads_at(&host, &["--rate", "20K", "--arrival", "constant"]);
    assert_eq!(number(&row, "/response_ns/all/max"), SERVICE_NS);
    assert_eq!(row["load"]["is_sustained"], true);
    assert_eq!(number(&row, "/load/maximum/waited_ns"), 0.0);
}

#[test]
fn a_load_that_the_device_does_not_sustain_is_reported_with_the_rate_that_it_completed() {
    let host = Host::new();
    let over = ["--rate", "25K", "--arrival", "constant"];
    let args = [&["replay"][..], &READS, &over].concat();
    let (code, text, error) = host.run(&args);
    assert_eq!(code, 0, "{error}");
    let told = error.matches("more than the device sustains").count();
    assert_eq!(told, 1, "{error}");
    assert!(error.contains("completed 20000.0 per second"), "{error}");
    assert!(error.contains("choose a --rate below 20000.0"), "{error}");
    let line = "completed per second                 20000.0\n";
    assert!(text.contains(line), "{text}");
    let row = reads_at(&host, &["--rate", "25K"]);
    assert_eq!(row["load"]["is_sustained"], false);
    let completed = number(&row, "/load/completed_per_second");
    assert!((completed / 20e3 - 1.0).abs() < 0.001, "{completed}");
    // 200,000 requests arrive in 8 s and take 10 s.
    let backlog = number(&row, "/load/backlog_ns");
    assert!((backlog / 2e9 - 1.0).abs() < 0.05, "{backlog}");
}

#[test]
fn times_of_a_trace_are_kept_or_stretched_to_a_rate() {
    let host = Host::new();
    let text = "0,R,0,4096\n20,R,4096,4096\n1000,R,8192,4096\n";
    let trace = file(&host, "reads.csv", text);
    let with = |more: &[&str]| {
        let common = [
            "--size",
            "1MiB",
            "--scheme",
            "pagemap",
            "--precondition",
            "fill",
        ];
        let args = [&[trace.to_str().unwrap()], &common[..], more].concat();
        let row = replay(&host, &args);
        let of = |name: &str| number(&row, &format!("/response_ns/all/{name}"));
        (of("sum"), of("max"), number(&row, "/emulated_ns"))
    };
    // The second one comes 20 us after the first, and waits for 30 us.
    assert_eq!(with(&["--arrival", "trace"]), (180e3, 80e3, 1_050e3));
    // 3 requests in 1 ms are 2000 a second.
    assert_eq!(with(&["--rate", "2K"]), (180e3, 80e3, 1_050e3));
    assert_eq!(with(&["--rate", "1K"]), (160e3, 60e3, 2_050e3));
    assert_eq!(
        with(&["--rate", "10K", "--arrival", "constant"]),
        (150e3, 50e3, 250e3)
    );
}

#[test]
fn what_an_open_loop_excludes() {
    let host = Host::new();
    let at_once = file(&host, "once.csv", "7,R,0,4096\n7,R,4096,4096\n");
    let at_once = at_once.to_str().unwrap();
    for (args, part) in [
        (
            &["zipf", "--rate", "0"][..],
            "--rate 0: need requests per second, above 0",
        ),
        (
            &["zipf", "--rate", "fast"],
            "\"fast\" is no number of requests per second",
        ),
        (
            &["zipf", "--rate", "9", "--arrival", "closed"],
            "use --arrival trace, poisson",
        ),
        (
            &["zipf", "--arrival", "poisson"],
            "--arrival poisson: add --rate",
        ),
        (
            &["zipf", "--rate", "9", "--depth", "4"],
            "arrivals determine the queue depth",
        ),
        (
            &[at_once, "--rate", "9"],
            "all its requests have one time, which --rate 9 cannot",
        ),
    ] {
        let (code, out, error) = host.run(&[&["replay", "--size", "4MiB"], args].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {error}");
    }
    let pipe = host.folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let args = ["replay", pipe.to_str().unwrap(), "--rate", "9"];
    host.fails(&args, 2, &["--rate reads the trace more than once"]);
}

const WRITES: [&str; 7] = [
    "uniform:requests=60K",
    "--scheme",
    "pagemap",
    "--size",
    "64MiB",
    "--op",
    "28",
];

/// The slowest writes waited for GC, whose pages are the cause; the parts are the whole.
#[test]
fn the_time_of_the_slowest_requests_has_causes() {
    let host = Host::new();
    let row = replay(&host, &[&WRITES[..], &["--rate", "100"]].concat());
    for spent in ["all", "slowest", "maximum"] {
        let of = |name: &str| number(&row, &format!("/load/{spent}/{name}"));
        let causes = row["load"][spent]["by_cause_ns"].as_object().unwrap();
        let sum: f64 = causes.values().map(|ns| ns.as_f64().unwrap()).sum();
        assert!((sum / of("mean_ns") - 1.0).abs() < 1e-9, "{row}");
        assert!(of("waited_ns") <= of("mean_ns"), "{row}");
    }
    let slowest = number(&row, "/load/slowest/requests");
    assert!((60.0..250.0).contains(&slowest), "{slowest}");
    let gc = number(&row, "/load/slowest/by_cause_ns/gc");
    assert!(gc > 0.8 * number(&row, "/load/slowest/mean_ns"), "{row}");
    assert_eq!(
        number(&row, "/load/maximum/mean_ns"),
        number(&row, "/response_ns/all/max")
    );
    // A closed loop has no load.
    assert_eq!(replay(&host, &WRITES).get("load"), None);
}

#[test]
fn a_comparison_of_rates_names_the_knee() {
    let host = Host::new();
    let rates = ["--rate", "1K,2K,15K,30K"];
    let args = [&["compare"][..], &READS, &rates].concat();
    let (code, text, error) = host.run(&args);
    assert_eq!(code, 0, "{error}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "pagemap rate 30000",
        "offered/s",
        "completed/s",
        "all mean us p99 p99.9 max",
        "Knee of pagemap: 2000 per second",
        "The device did not sustain the load in runs of pagemap rate 30000",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, lines, _) = host.run(&[&args[..], &["--ndjson"]].concat());
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["schema"], &last["factor"]),
        (&"ftld.knee/1".into(), &2.0.into())
    );
    assert_eq!(number(&last, "/knee/rate"), 2_000.0);
    let rows = file(&host, "rows.ndjson", &lines);
    let again = ["compare", "--ndjson", "--rows", rows.to_str().unwrap()];
    assert_eq!(host.run(&again).1, lines);
    let (_, csv, _) = host.run(&[&args[..], &["--csv"]].concat());
    let head = csv.lines().next().unwrap();
    for column in [
        "load.offered_per_second",
        "load.slowest.by_cause_ns.gc",
        "job.rate",
    ] {
        assert!(head.split(',').any(|name| name == column), "{head}");
    }
}

/// No write waits for a whole victim if GC is paced; other schemes have no pace.
#[test]
fn paced_gc_shortens_the_tail_of_an_open_loop() {
    let host = Host::new();
    let with = |more: &[&str]| {
        let row = replay(&host, &[&WRITES[..], &["--rate", "150"], more].concat());
        assert_eq!(row["load"]["is_sustained"], true, "{row}");
        let waf = number(&row, "/write_amplification/total");
        (number(&row, "/response_ns/all/p999"), waf)
    };
    let (at_once, waf) = with(&[]);
    let (even, waf_even) = with(&["--set", "gc.pace=even"]);
    let (idle, _) = with(&["--set", "gc.pace=even", "--idle"]);
    assert!(even < at_once / 2.0, "{even} {at_once}");
    assert!(idle < at_once / 2.0, "{idle} {at_once}");
    assert!(waf_even < 1.1 * waf, "{waf_even} {waf}");
    let other = [
        "zipf",
        "--scheme",
        "lazyftl",
        "--size",
        "4MiB",
        "--set",
        "gc.pace=even",
    ];
    let part = "no parameter \"gc.pace\"";
    host.fails(&[&["replay"][..], &other].concat(), 2, &[part]);
    let part = "none of lazyftl has this parameter";
    let ways = [part, "pagemap, leaftl would"];
    host.fails(&[&["compare"][..], &other].concat(), 2, &ways);
    let wrong = ["zipf", "--scheme", "pagemap", "--set", "gc.pace=slow"];
    let part = "gc.pace: \"slow\" is neither at_once nor even";
    host.fails(&[&["replay"][..], &wrong].concat(), 2, &[part]);
}
