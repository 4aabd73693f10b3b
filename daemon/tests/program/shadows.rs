//! `ftld --shadow` and `ftld shadow`, as their users meet them.

use crate::host::{Daemon, Host, page};
use ftld_nbd_client::{FLUSH, FUA, TRIM, WRITE_ZEROES};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Shadows of a device with lazyftl on the profile `torture`: the scheme itself, others, and
/// another over-provisioning.
const SHADOWS: [&str; 4] = [
    "lazyftl",
    "pagemap:op=60",
    "dftl:dftl.cache=256",
    "superblock",
];

/// Random writes, trims, reads and FLUSHes of parts of pages and of several. Returns their number;
/// a write with FUA is a write and a FLUSH.
fn load(daemon: &Daemon, requests: u64, seed: u64) -> u64 {
    let mut with_fua = 0;
    let mut client = daemon.client();
    let mut state = seed;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let data = page(7).repeat(4);
    for _ in 0..requests {
        let offset = next(2000) * 1024 + next(2) * 512;
        let length = (next(4) + 1) * 512;
        let answer = match next(16) {
            0 => client.ask(TRIM, 0, offset, 8192),
            1 => client.ask(WRITE_ZEROES, 0, offset, 4096),
            2 => client.ask(FLUSH, 0, 0, 0),
            3 | 4 => client.read(offset, 4096),
            5 => {
                with_fua += 1;
                client.write(FUA, offset, &data[..512])
            }
            _ => client.write(0, offset, &data[..usize::try_from(length).unwrap()]),
        };
        assert_eq!(answer.error, 0);
    }
    requests + with_fua
}

/// Returns the shadows once they have executed `requests`, and the device's figures are of then:
/// the same pages were written.
fn settled(host: &Host, requests: u64) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let status = host.json(&["status", "--json"]);
        let shadows = status["shadows"].as_array().unwrap().clone();
        let is_done = |one: &Value| {
            let live = &one["live"]["host_pages_written"];
            one["requests"] == requests && one["behind"] == 0 && one["host_pages_written"] == *live
        };
        if shadows.iter().all(is_done) {
            return shadows;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{shadows:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_shadow_has_the_counters_of_a_replay_of_the_recording() {
    let host = Host::new();
    let first = host.serve(&["--name", "a"]);
    load(&first, 500, 5);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.exit_code(), Some(0));
    // The second start has content, and its recording, too.
    let file = host.folder.path().join("a.rec");
    let path = file.to_str().unwrap();
    let mut options = vec!["--name", "a", "--record", path];
    SHADOWS
        .iter()
        .for_each(|shadow| options.extend(["--shadow", shadow]));
    let daemon = host.serve(&options);
    let requests = load(&daemon, 3000, 7);
    let (code, out, error) = host.run(&["shadow", "add", "lazyftl:gc.policy=fifo"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        out.starts_with("a: shadows lazyftl, pagemap:op=60"),
        "{out}"
    );
    let (code, _, error) = host.run(&["shadow", "rm", "a", "lazyftl:gc.policy=fifo"]);
    assert_eq!(code, 0, "{error}");
    let shadows = settled(&host, requests);
    let raw = host.json(&["status", "--json"])["raw_bytes"].to_string();
    assert_eq!(
        daemon.metric("ftld_shadow_exact{device=\"a\",shadow=\"superblock\"}"),
        1.0
    );
    let (_, text, _) = host.run(&["status"]);
    assert!(
        text.contains("shadow     dftl:dftl.cache=256: write amplification"),
        "{text}"
    );
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    for (shadow, text) in shadows.iter().zip(SHADOWS) {
        assert_eq!(
            (&shadow["name"], &shadow["exact"]),
            (&text.into(), &true.into())
        );
        assert_eq!(
            (&shadow["dropped"], &shadow["failure"]),
            (&0.into(), &Value::Null)
        );
        let (scheme, pair) = text.split_once(':').unwrap_or((text, ""));
        let mut words = vec!["replay", path, "--scheme", scheme, "--json"];
        match pair.split_once('=') {
            Some(("op", percent)) => words.extend(["--op", percent]),
            Some(_) => words.extend(["--set", pair, "--raw", &raw]),
            None if scheme == "lazyftl" => {}
            None => words.extend(["--raw", &raw]),
        }
        let row = host.json(&words);
        let flash = row["flash"].as_object().unwrap();
        let sum = |of: &str| {
            flash
                .values()
                .map(|cause| cause[of].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(shadow["programs"], sum("programs"), "{text}");
        assert_eq!(shadow["erases"], sum("erases"), "{text}");
        assert!(shadow["write_p99_ns"].as_f64().unwrap() > 0.0, "{text}");
    }
    // Equal times of an equal scheme, but for idle GC before some of the requests.
    let reads = |of: &Value| of["read_p99_ns"].as_f64().unwrap();
    assert!(
        reads(&shadows[0]) < 2.0 * reads(&shadows[0]["live"]),
        "{}",
        shadows[0]
    );
}

#[test]
fn a_wrong_shadow_is_one_message_and_leaves_nothing() {
    let host = Host::new();
    for (shadow, part) in [
        ("dftk", "did you mean"),
        ("dftl:color=red", "color"),
        (
            "pagemap:op=0",
            "--op 0 is not a percentage from 0.1 to 1000",
        ),
        ("pagemap:profile=nowhere", "nowhere"),
    ] {
        host.fails(&["--shadow", shadow], 2, &[shadow, part]);
        assert!(!host.image("default").exists(), "{shadow}");
    }
    host.fails(
        &["--shadow", "dftl", "--shadow", "dftl"],
        2,
        &["stands twice"],
    );
    let daemon = host.serve(&["--name", "a", "--shadow", "dftl"]);
    host.fails(
        &["shadow", "add", "dftl"],
        2,
        &["is there already", "ftld shadow rm"],
    );
    host.fails(
        &["shadow", "rm", "pagemap"],
        2,
        &["no shadow \"pagemap\"; there are dftl"],
    );
    let (code, out, error) = host.run(&["shadow", "rm", "a", "dftl"]);
    assert_eq!((code, out.as_str()), (0, "a: no shadows\n"), "{error}");
    load(&daemon, 50, 3);
    assert_eq!(
        host.json(&["status", "--json"])["shadows"],
        Value::Array(Vec::new())
    );
}

#[test]
fn a_shadow_of_several_shards_has_one_chip_and_every_request() {
    let host = Host::new();
    let daemon = host.serve(&["--name", "a", "--shards", "2", "--shadow", "pagemap:op=60"]);
    let requests = load(&daemon, 500, 9);
    let shadow = settled(&host, requests).remove(0);
    assert_eq!(shadow["exact"], true);
}

/// Adds shadows while requests come: each has at least every page of the device.
#[test]
fn a_shadow_added_under_load_lacks_no_page() {
    let host = Host::new();
    let daemon = host.serve(&["--name", "a", "--shadow", "pagemap:op=60"]);
    let loaded = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&daemon, 4000, 11));
        for text in ["superblock:op=60", "dftl:op=60"] {
            let (code, _, error) = host.run(&["shadow", "add", text]);
            assert_eq!(code, 0, "{error}");
        }
        loaded.join().unwrap()
    });
    let began = Instant::now();
    loop {
        let status = host.json(&["status", "--json"]);
        let shadows = status["shadows"].as_array().unwrap();
        let [first, rest @ ..] = &shadows[..] else {
            panic!("no shadow in {status}")
        };
        let of = |one: &Value, key: &str| one[key].as_u64().unwrap();
        let is_done = of(first, "requests") == loaded
            && shadows
                .iter()
                .all(|one| one["behind"] == 0 && one["exact"] == true);
        // Requests of the moment may be in the content, too, but none is missing.
        if is_done {
            for shadow in rest {
                let of_device = of(&shadow["live"], "host_pages_written");
                assert!(of(shadow, "host_pages_written") >= of_device, "{shadow}");
            }
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{shadows:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// After a power cut, a demo starts again in the same process.
#[test]
fn a_demo_with_a_shadow_keeps_no_thread_of_the_device_before_a_cut() {
    let host = Host::new();
    let args = [
        "demo",
        "--no-open",
        "--size",
        "8MiB",
        "--shadow",
        "pagemap",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut demo = host.command(&args);
    let mut demo = demo.stdout(std::process::Stdio::null()).spawn().unwrap();
    let threads = || {
        let folder = format!("/proc/{}/task", demo.id());
        let all = std::fs::read_dir(folder).unwrap().flatten();
        let names = all.filter_map(|one| std::fs::read_to_string(one.path().join("comm")).ok());
        names.filter(|name| name.starts_with("ftld-shadow")).count()
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("the first device", &|| threads() == 2);
    let cut = || host.run(&["inject", "power-cut", "demo"]).0 == 0;
    until("a cut", &cut);
    let starts = || host.run(&["status", "demo"]).0 == 0;
    until("the second device", &starts);
    until("two threads", &|| threads() == 2);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(demo.id() as i32),
        Signal::SIGTERM,
    )
    .unwrap();
    assert!(demo.wait().unwrap().success());
}
