//! `ftld demo`: one command, a page that moves, and nothing that stays.

use crate::host::{Daemon, Host};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Code and body of an answer; `method` may be followed by headers.
fn http(address: &str, method: &str, path: &str, header: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{header}\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (code, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Waits for a state of the instance.
fn until(host: &Host, wanted: impl Fn(&Value) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let status = host.json(&["status", "demo", "--json"]);
        if wanted(&status) {
            return;
        }
        assert!(Instant::now() < end, "{status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_demo_has_a_load_that_its_page_changes_and_leaves_nothing() {
    let host = Host::new();
    let args = [
        "demo",
        "--no-open",
        "--metrics",
        "127.0.0.1:0",
        "--size",
        "16MiB",
        "--rate",
        "5000",
    ];
    let mut child = host
        .command(&args)
        .env("TMPDIR", host.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Killed when it is dropped.
    let mut demo = Daemon {
        child,
        socket: PathBuf::new(),
        metrics: String::new(),
    };
    let ready = lines.next().unwrap().unwrap();
    let address = ready.split_once("metrics=http://").unwrap().1;
    let address = address.split_once('/').unwrap().0;
    let socket = ready
        .split_once("socket=")
        .unwrap()
        .1
        .split(' ')
        .next()
        .unwrap();
    let folder = Path::new(socket).parent().unwrap();
    // Random writes after a full device: garbage collection copies pages.
    until(&host, |status| {
        status["nand"]["gc"]["programs"].as_u64() > Some(0)
    });

    let of = |answer: (u16, String)| {
        assert_eq!(answer.0, 200, "{}", answer.1);
        let value: Value = serde_json::from_str(&answer.1).unwrap();
        (
            value["pattern"].as_str().unwrap().to_owned(),
            value["rate"].as_u64().unwrap(),
        )
    };
    let load = "/api/load";
    assert_eq!(of(http(address, "GET", load, "")), ("uniform".into(), 5000));
    let change = "/api/load?pattern=files&rate=20000";
    assert_eq!(
        http(address, "POST", change, "").0,
        405,
        "a page of another site"
    );
    assert_eq!(of(http(address, "GET", load, "")), ("uniform".into(), 5000));
    for wrong in ["pattern=none-such", "rate=0", "rate=1000000", "other=1", ""] {
        let path = format!("{load}?{wrong}");
        assert_eq!(
            http(address, "POST", &path, "X-Ftld: 1\r\n").0,
            400,
            "{wrong}"
        );
    }
    assert_eq!(
        of(http(address, "POST", change, "X-Ftld: 1\r\n")),
        ("files".into(), 20_000)
    );
    until(&host, |status| {
        status["host"]["discard"]["completed"].as_u64() > Some(10)
    });
    until(&host, |status| {
        status["host"]["read"]["completed"].as_u64() > Some(10)
    });
    assert_eq!(
        http(address, "POST", "/api/load?pattern=none", "X-Ftld: 1\r\n").0,
        200
    );

    // After a power cut it starts again, with the load of its start.
    host.run(&["inject", "power-cut", "demo"]);
    let again = lines.next().unwrap().unwrap();
    assert!(again.starts_with("ready "), "{again}");
    until(&host, |status| {
        status["host"]["write"]["completed"].as_u64() > Some(500)
    });

    let address = again.split_once("metrics=http://").unwrap().1;
    let address = address.split_once('/').unwrap().0;
    assert_eq!(of(http(address, "GET", load, "")), ("uniform".into(), 5000));
    assert!(folder.exists());
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.child.wait().unwrap().code(), Some(0));
    assert!(!folder.exists(), "{}", folder.display());
    assert!(!host.folder.path().join("run/demo").exists());
    assert!(!host.folder.path().join("state").exists());
    host.fails(&["demo", "--scheme", "none-such"], 2, &["none-such"]);
}
