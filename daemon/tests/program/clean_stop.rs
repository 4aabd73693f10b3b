//! A clean shutdown is one thing: `inspect`, `check`, `doctor`, the log and the metrics of the next
//! start agree on it.

use crate::host::{Daemon, Host, page};
use ftld_nbd_client::{FLUSH, TRIM, WRITE};
use nand_model::SplitMix;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::Duration;

/// Whether each command and metric calls the shutdown clean; last a new daemon, which it returns.
fn verdicts(host: &Host) -> (Vec<(&'static str, bool)>, Daemon) {
    let mut said = vec![
        (
            "inspect",
            host.json(&["inspect", "default", "--json"])["clean"]
                .as_bool()
                .unwrap(),
        ),
        (
            "check",
            host.json(&["check", "default", "--json"])["clean"]
                .as_bool()
                .unwrap(),
        ),
    ];
    let words = host.run(&["inspect", "default"]).1;
    said.push(("inspect's words", words.contains("shutdown  clean")));
    let words = host.run(&["check", "default"]).1;
    said.push(("check's words", words.contains("(clean shutdown")));
    let before = host.log().len();
    let daemon = host.serve(&[]);
    said.push(("log", !host.log()[before..].contains("unclean shutdown")));
    said.push((
        "metric",
        daemon.metric("ftld_recovery_clean{device=\"default\"}") == 1.0,
    ));
    let status = host.json(&["status", "--json"]);
    said.push((
        "status",
        status["scheme_stats"]["mount"]["clean"].as_bool().unwrap(),
    ));
    said.push(("recovery", status["recovery"].is_null()));
    (said, daemon)
}

/// Returns what the daemon says that it recovered from, whose figures agree with the marked blocks.
fn cause(host: &Host, daemon: &Daemon) -> String {
    let found = host.json(&["status", "--json"])["recovery"].clone();
    let map: Value = serde_json::from_str(&daemon.get("/api/blocks").1).unwrap();
    let marks = map["marks"].as_array().unwrap();
    let of = |kinds: &[&str]| {
        let is_of = |mark: &&Value| kinds.iter().any(|kind| mark[1] == **kind);
        marks.iter().filter(is_of).count() as u64
    };
    let rewritten = found["blocks_rewritten"].as_u64().unwrap();
    assert_eq!(of(&["rewritten"]), rewritten, "{found:#} {marks:?}");
    let dropped = found["pages_dropped"].as_u64().unwrap();
    assert_eq!(
        of(&["torn", "dropped"]) > 0,
        dropped > 0,
        "{found:#} {marks:?}"
    );
    let steps = found["steps"].as_array().unwrap().iter();
    let mut steps = steps.map(|step| step["text"].as_str().unwrap());
    assert!(steps.all(|text| text.ends_with('.')), "{found:#}");
    assert!(found["pages_scanned"].as_u64() > Some(0), "{found:#}");
    found["cause"].as_str().unwrap().to_owned()
}

fn agree(host: &Host, clean: bool, story: &str) -> Daemon {
    let (said, daemon) = verdicts(host);
    assert!(
        said.iter().all(|(_, verdict)| *verdict == clean),
        "{story}: {said:?}"
    );
    daemon
}

#[test]
fn everybody_agrees_whether_a_shutdown_was_clean() {
    let host = Host::new();
    host.json(&["create", "--profile", "torture", "--size", "2MiB", "--json"]);
    let daemon = agree(&host, true, "made and never served");
    assert_eq!(daemon.client().write(0, 0, &page(1)).error, 0);
    assert_eq!(host.run(&["inject", "power-cut"]).0, 0);
    assert_eq!(daemon.exit_code(), Some(9));
    let daemon = agree(&host, false, "after a power cut");
    assert_eq!(cause(&host, &daemon), "power cut");
    let kept = &host.json(&["status", "--json"])["recovery"]["pages_kept"];
    assert_eq!(kept, page(1).len() / 1024, "what was written, in pages");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let daemon = agree(&host, true, "after an orderly stop");
    daemon.signal(Signal::SIGKILL);
    daemon.exit_code();
    let daemon = agree(&host, false, "killed before the first request");
    assert_eq!(cause(&host, &daemon), "unclean");
    assert_eq!(daemon.client().write(0, 0, &page(2)).error, 0);
    daemon.signal(Signal::SIGKILL);
    daemon.exit_code();
    agree(&host, false, "killed after a write");
}

/// An orderly stop in the midst of writes, trims, flushes and background work; again and again.
#[test]
fn every_orderly_stop_under_load_is_a_clean_one() {
    let rounds = std::env::var("FTLD_LONG").map_or(40, |_| 400);
    let host = Host::new();
    let mut rng = SplitMix::new(11);
    for round in 0..rounds {
        let daemon = host.serve(&[]);
        let clean = daemon.metric("ftld_recovery_clean{device=\"default\"}");
        assert_eq!(clean, 1.0, "round {round}: {}", host.log());
        let quiet = Duration::from_millis(rng.below(60) * rng.below(10));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (mut client, mut rng) = (daemon.client(), SplitMix::new(round * 2 + writer));
                std::thread::spawn(move || {
                    loop {
                        let (at, data) = (rng.below(512) * 4096, page(writer as u8));
                        let error = match rng.below(12) {
                            0 => client.attempt(FLUSH, 0, 0, 0, &[]),
                            1 => client.attempt(TRIM, 0, at, 4096, &[]),
                            _ => client.attempt(WRITE, 0, at, 4096, &data),
                        };
                        if error != Some(0) {
                            return;
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(5 + rng.below(60)) + quiet);
        daemon.signal(if round % 2 == 0 {
            Signal::SIGTERM
        } else {
            Signal::SIGINT
        });
        assert_eq!(daemon.exit_code(), Some(0), "round {round}: {}", host.log());
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
    }
}
