//! While the host has no room for the image, or its disk fails, every output about health reports
//! this and the reason.

use crate::host::{Daemon, Host, page};
use ftld_nbd_client::{Client, EIO, TRIM, WRITE};
use serde_json::Value;

const ENOSPC: u32 = 28;
const REASONS: [&str; 2] = ["disk_full", "host_error"];

fn failing(daemon: &Daemon) -> [f64; 2] {
    REASONS.map(|reason| {
        daemon.metric(&format!(
            "ftld_device_writes_failing{{device=\"default\",reason=\"{reason}\"}}"
        ))
    })
}

fn assert_serving(host: &Host, daemon: &Daemon) {
    let (line, text) = daemon.get("/healthz");
    assert_eq!(
        (line.as_str(), text.as_str()),
        ("HTTP/1.1 200 OK", "serving\n")
    );
    let status = host.json(&["status", "--json"]);
    assert_eq!(
        (&status["state"], &status["writes_failing"]),
        (&Value::from("serving"), &Value::Null)
    );
    assert_eq!(failing(daemon), [0.0, 0.0]);
}

fn refused(client: &mut Client, errno: u32) {
    assert_eq!(client.write(0, 0, &page(2)).error, errno);
    assert_eq!(client.ask(TRIM, 0, 0, 4096).error, errno);
}

#[test]
fn health_names_the_cause_while_every_write_fails_and_serves_again_when_one_succeeds() {
    let host = Host::new();
    let meddler = host.meddler();
    let daemon = host.serve_with(
        &[],
        &meddler
            .each_ref()
            .map(|(name, value)| (*name, value.as_str())),
    );
    let mut client = daemon.client();
    assert_eq!(client.write(0, 0, &page(1)).error, 0);
    // A write beyond the end is the client's mistake, not a failure of the device.
    assert_eq!(client.ask(WRITE, 0, 2 << 20, 0).error, 22);
    assert_eq!(client.write(0, 2 << 20, &page(1)).error, ENOSPC);
    assert_serving(&host, &daemon);
    for (errno, state, words, gauges) in [
        (ENOSPC, "disk-full", "no room", [1.0, 0.0]),
        (EIO, "host-error", "Input/output error", [0.0, 1.0]),
    ] {
        std::fs::write(host.folder.path().join("fail"), errno.to_string()).unwrap();
        refused(&mut client, errno);
        let (line, text) = daemon.get("/healthz");
        assert_eq!(line, "HTTP/1.1 503 Service Unavailable", "{text}");
        assert!(
            text.starts_with(&format!("{state}: ")) && text.contains(words),
            "{text}"
        );
        let status = host.json(&["status", "--json"]);
        assert_eq!(status["state"], state);
        assert!(
            status["writes_failing"].as_str().unwrap().contains(words),
            "{status}"
        );
        assert_eq!(
            host.json(&["list", "--json"])["instances"][0]["state"],
            state
        );
        assert_eq!(failing(&daemon), gauges);
        // Reads succeed, and do not clear the failure of writes.
        assert!(client.read(0, 4096).data == page(1));
        // A trim with nothing to trim does not clear it, either.
        assert_eq!(client.ask(TRIM, 0, 64 << 10, 4096).error, 0);
        assert_eq!(daemon.get("/healthz").0, "HTTP/1.1 503 Service Unavailable");
        std::fs::remove_file(host.folder.path().join("fail")).unwrap();
        assert_eq!(client.write(0, 4096, &page(1)).error, 0);
        assert_serving(&host, &daemon);
    }
}

/// A limit of a file's size is a disk without room: by default the kernel ends the process.
#[test]
fn a_limit_of_file_sizes_refuses_writes_and_ends_nobody() {
    let host = Host::new();
    let program = env!("CARGO_BIN_EXE_ftld");
    // In 512-byte blocks, as the shell counts.
    let mut limited = std::process::Command::new("sh");
    let image = host.folder.path().join("new.ftld");
    limited.args(["-c", "ulimit -f 16; exec \"$0\" \"$@\"", program]);
    limited.args([
        "create",
        "--profile",
        "torture",
        "--size",
        "1MiB",
        "--image",
    ]);
    let output = limited.arg(&image).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("File too large"), "{error}");
    assert!(!image.exists(), "no part of it is left");
}

#[test]
fn a_log_on_a_full_disk_loses_messages_and_nothing_else() {
    let host = Host::new();
    let meddler = host.meddler();
    let log = std::fs::File::options().write(true).open("/dev/full");
    let [preload, fail] = meddler
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let environment = [preload, fail, ("FTLD_LOG", "info")];
    let daemon = host.serve_with_log(&[], &environment, log.unwrap());
    let mut client = daemon.client();
    assert_eq!(client.write(0, 0, &page(1)).error, 0);
    let errno = host.folder.path().join("fail");
    std::fs::write(&errno, ENOSPC.to_string()).unwrap();
    refused(&mut client, ENOSPC);
    std::fs::remove_file(&errno).unwrap();
    assert_eq!(client.write(0, 0, &page(3)).error, 0);
    assert_serving(&host, &daemon);
}
