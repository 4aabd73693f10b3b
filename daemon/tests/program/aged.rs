//! `ftld create --age`: images of devices in use.

use crate::host::Host;
use nix::sys::signal::Signal;

const DEVICE: [&str; 4] = ["--profile", "torture", "--size", "2MiB"];

fn aged(host: &Host, scheme: &str, age: &str) -> serde_json::Value {
    let name = format!("{scheme}-{age}");
    let args = [
        &["create", "--name", &name, "--scheme", scheme, "--json"][..],
        &["--age", age],
        &DEVICE,
    ];
    host.json(&args.concat())
}

/// Every page has its content, every table is right, and nothing that follows is slow to find out:
/// the same after a `kill -9`.
#[test]
fn an_aged_image_is_full_and_sound_under_every_scheme() {
    let host = Host::new();
    for scheme in ftl_core::schemes::SCHEMES {
        let scheme = scheme.name;
        let made = aged(&host, scheme, "1.5");
        assert_eq!(made["age"]["drive_writes"], 2.5, "{scheme}: {made}");
        let amplification = made["age"]["write_amplification"].as_f64().unwrap();
        assert!(amplification > 1.0, "{scheme}: {amplification}");
        let name = format!("{scheme}-1.5");
        let (code, text, error) = host.run(&["check", &name]);
        assert_eq!(code, 0, "{scheme}: {text}{error}");
        let daemon = host.serve(&["--name", &name, "--scheme", scheme]);
        let data = daemon.client().read(100 * 1024, 1024).data;
        let page = data.len().min(1024) as u32;
        assert_eq!(data[..4], (100 * 1024 / page).to_le_bytes(), "{scheme}");
        daemon.signal(Signal::SIGKILL);
        daemon.exit_code();
        assert_eq!(host.run(&["check", &name]).0, 0, "{scheme}: after kill -9");
    }
}

#[test]
fn steady_is_the_simulators_rule_and_eol_wears_blocks_out() {
    let host = Host::new();
    let made = aged(&host, "pagemap", "steady");
    assert!(made["age"]["steady"].is_boolean(), "{made}");
    assert_eq!(made["age"]["rule"]["windows"], 3);
    let made = aged(&host, "pagemap", "eol");
    let name = "pagemap-eol";
    let daemon = host.serve(&["--name", name, "--scheme", "pagemap"]);
    let status = host.json(&["status", name, "--json"]);
    let wear = &status["wear"];
    let rated = wear["rated"].as_f64().unwrap();
    let mean = wear["mean"].as_f64().unwrap();
    assert!(mean >= rated * 0.9, "{wear}, {made}");
    // The wear of blocks with content is in the file, not in the table alone.
    daemon.signal(Signal::SIGKILL);
    daemon.exit_code();
    let _again = host.serve(&["--name", name, "--scheme", "pagemap"]);
    let after = host.json(&["status", name, "--json"]);
    let after = after["wear"]["mean"].as_f64().unwrap();
    assert!(after >= rated * 0.7, "{after} after kill -9, {mean} before");
}

/// Also that of blocks which were never used.
#[test]
fn wear_outlives_a_killed_daemon() {
    let host = Host::new();
    let args = [
        &["create", "--name", "a", "--scheme", "pagemap", "--op", "70"][..],
        &["--age", "eol"],
        &DEVICE,
    ];
    assert_eq!(host.run(&args.concat()).0, 0);
    let mean = || {
        let daemon = host.serve(&["--name", "a", "--scheme", "pagemap", "--op", "70"]);
        let status = host.json(&["status", "a", "--json"]);
        daemon.signal(Signal::SIGKILL);
        daemon.exit_code();
        let wear = &status["wear"];
        wear["mean"].as_f64().unwrap() / wear["rated"].as_f64().unwrap()
    };
    let (before, after) = (mean(), mean());
    assert!(before >= 0.9, "{before}");
    assert!(after >= before, "{after} after kill -9, {before} before");
}

#[test]
fn a_wrong_age_is_named_and_makes_nothing() {
    let host = Host::new();
    for age in ["old", "-1", "1001"] {
        let args = [&["create", "--name", "x", "--age", age][..], &DEVICE].concat();
        host.fails(&args, 2, &["--age", "drive writes"]);
    }
    assert!(!host.image("x").exists());
}
