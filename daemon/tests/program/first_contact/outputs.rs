//! Outputs agree with each other, and have what a reader looks for.

use crate::host::Host;

/// Whether the last shutdown was clean, by every output that says so.
fn clean(host: &Host, metrics: &str) -> [bool; 3] {
    let text = http(metrics);
    let gauge = text
        .lines()
        .find(|line| line.starts_with("ftld_recovery_clean{"));
    let gauge = gauge.unwrap_or_else(|| panic!("no gauge in {text}"));
    let status = host.json(&["status", "--json"]);
    let said = host.run(&["status"]).1;
    [
        gauge.ends_with(" 1"),
        status["scheme_stats"]["mount"]["clean"] == true,
        said.contains("after a clean shutdown"),
    ]
}

fn http(url: &str) -> String {
    use std::io::{Read, Write};
    let address = url
        .strip_prefix("http://")
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_output_agrees_whether_the_shutdown_was_clean() {
    let host = Host::new();
    let shutdown = || host.json(&["inspect", "default", "--json"])["clean"] == true;
    let check = || host.run(&["check", "default"]).1;
    let cut = host.serve(&[]);
    host.json(&["inject", "power-cut", "--json"]);
    assert!(cut.exit_code().is_some());
    assert!(!shutdown());
    assert!(check().contains("(unclean shutdown"), "{}", check());
    let after_cut = host.serve(&[]);
    assert_eq!(clean(&host, &after_cut.metrics), [false; 3]);
    assert_eq!(host.run(&["stop"]).0, 0);
    assert_eq!(after_cut.exit_code(), Some(0));
    assert!(shutdown());
    assert!(check().contains("(clean shutdown"), "{}", check());
    let after_stop = host.serve(&[]);
    assert_eq!(clean(&host, &after_stop.metrics), [true; 3]);
}

#[test]
fn an_image_that_was_cut_off_is_not_shown_as_whole() {
    let host = Host::new();
    host.json(&["create", "--size", "4MiB", "--json"]);
    let image = host.image("default");
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.set_len(6000).unwrap();
    host.fails(
        &["inspect", "default"],
        8,
        &["6000 bytes long", "it was cut off"],
    );
    let (_, list, _) = host.run(&["list", "--all"]);
    assert!(list.contains("unreadable"), "{list}");
}

#[test]
fn sizes_and_shares_are_understood_as_they_are_written() {
    for args in [["--size", "4MB"], ["--op", "12.5%"], ["--size", "4M"]] {
        let host = Host::new();
        let made = host.json(&[&["create", "--json"][..], &args].concat());
        assert!(
            made["size_bytes"].as_u64().unwrap().is_multiple_of(4096),
            "{made}"
        );
    }
}

#[test]
fn the_version_has_what_a_report_of_an_error_needs() {
    let (code, text, _) = Host::new().run(&["--version"]);
    assert_eq!(code, 0);
    let revision = option_env!("FTLD_BUILT_REVISION").unwrap_or("revision");
    for part in ["ftld ", revision, "features", "nbd", "image format  "] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let run = ["replay", "uniform:requests=10,span=1MiB", "--json"];
    let row = Host::new().json(&run);
    assert_eq!(
        row["run"]["revision"].as_str(),
        option_env!("FTLD_BUILT_REVISION")
    );
}

#[test]
fn p99_9_and_the_effective_over_provisioning_are_in_every_summary() {
    let host = Host::new();
    let page = host.folder.path().join("page.html");
    let compare = [
        "compare",
        "uniform:requests=2K",
        "--size",
        "8MiB",
        "--scheme",
        "pagemap",
    ];
    let (_, table, _) = host.run(&[&compare[..], &["--html", page.to_str().unwrap()]].concat());
    let page = std::fs::read_to_string(page).unwrap();
    for text in [&table, &page] {
        for head in ["p99", "p99.9", "max", "OP %"] {
            assert!(text.contains(head), "no {head} in {text}");
        }
    }
    // The command that repeats the runs, and the dark colours.
    for part in [
        "ftld compare uniform:requests=2K",
        "prefers-color-scheme",
        "seed",
    ] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
    let (_, csv, _) = host.run(&[&compare[..], &["--csv"]].concat());
    let heads: Vec<_> = csv.lines().next().unwrap().split(',').collect();
    for head in [
        "write_amplification.by_cause.gc",
        "device.raw_bytes",
        "device.effective_op_percent",
        "job.precondition",
        "response_ns.write.p999",
    ] {
        assert!(heads.contains(&head), "no {head} in {heads:?}");
    }
    let _daemon = host.serve(&["--verify", "once", "--shards", "2"]);
    let list = host.json(&["list", "--json"]);
    assert_eq!(list["instances"][0]["shards"], 2, "{list}");
    let status = host.json(&["status", "--json"]);
    assert_eq!(status["verify"], "once", "{status}");
    let (_, text, _) = host.run(&["status"]);
    assert!(text.contains("  verify     once\n"), "{text}");
    let brief = host.json(&["status", "--brief", "--json"]);
    assert!(brief["write_amplification_by_cause"].is_object(), "{brief}");
    assert_eq!(
        (&brief["shards"], &brief["verify"]),
        (&2.into(), &"once".into())
    );
    let lines = serde_json::to_string_pretty(&brief)
        .unwrap()
        .lines()
        .count();
    assert!(lines < 100, "{lines} lines of the brief JSON");
}
