//! The plots' history outlives its daemon, in a file beside the image.

use crate::host::{Daemon, Host, page};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn history(daemon: &Daemon) -> Value {
    serde_json::from_str(&daemon.get("/api/history").1).unwrap()
}

/// Ends the daemon in order, and starts it again; returns what the new one has said, too.
fn again(host: &Host, daemon: Daemon) -> (Daemon, String) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let before = host.log().len();
    let daemon = host.serve(&[]);
    (daemon, host.log()[before..].to_owned())
}

#[test]
fn the_history_survives_a_kill_and_a_stop_and_a_broken_one_is_replaced() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let file = PathBuf::from(format!("{}.history", host.image("default").display()));
    assert_eq!(history(&daemon)["restarts"], json!([]));
    assert_eq!(daemon.client().write(0, 0, &page(1)).error, 0);
    let end = Instant::now() + Duration::from_secs(30);
    while !file.exists() {
        assert!(Instant::now() < end, "no {}", file.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.signal(Signal::SIGKILL);
    daemon.exit_code();
    let modes = [&host.image("default"), &file].map(|path| path.metadata().unwrap().mode());
    assert_eq!(modes[0], modes[1]);

    let daemon = host.serve(&[]);
    let found = history(&daemon);
    let at = found["restarts"][0][0].as_u64().unwrap();
    assert_eq!(found["restarts"], json!([[at, "unclean"]]));
    assert!(found["next"].as_u64() > Some(0), "{found}");
    let first = found["at_ms"][0].as_u64().unwrap();
    assert!((1..=at).contains(&first), "{found}");
    let written: u64 = serde_json::from_value::<Vec<u64>>(found["written_bytes"].clone())
        .unwrap()
        .iter()
        .sum();
    assert_eq!(written, page(1).len() as u64);

    let (daemon, said) = again(&host, daemon);
    assert!(!said.contains("history"), "{said}");
    let found = history(&daemon)["restarts"].clone();
    assert_eq!(
        (&found[0][1], &found[1][1]),
        (&json!("unclean"), &json!("clean"))
    );

    // What cannot be used is named once, and replaced.
    let whole = std::fs::read(&file).unwrap();
    let mut newer = whole.clone();
    newer[8] += 1;
    let broken = [
        (
            whole[..whole.len() - 1].to_vec(),
            "cut off or damaged history",
        ),
        (newer, "history of another version of ftld"),
        (Vec::new(), "cut off or damaged history"),
    ];
    let mut daemon = daemon;
    for (bytes, why) in broken {
        daemon.signal(Signal::SIGTERM);
        daemon.exit_code();
        std::fs::write(&file, bytes).unwrap();
        let before = host.log().len();
        let next = host.serve(&[]);
        let said = host.log()[before..].to_owned();
        assert_eq!(
            said.matches("history").count(),
            1 + said.matches(".history").count()
        );
        assert_eq!(said.matches(why).count(), 1, "{said}");
        assert_eq!(history(&next)["restarts"], json!([]), "{why}");
        let (next, said) = again(&host, next);
        assert!(!said.contains("history"), "{why}: {said}");
        daemon = next;
    }

    // A file of somebody else stays.
    daemon.signal(Signal::SIGTERM);
    daemon.exit_code();
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "somebody else's").unwrap();
    let before = host.log().len();
    let next = host.serve(&[]);
    next.signal(Signal::SIGTERM);
    next.exit_code();
    assert!(host.log()[before..].contains("no history of ftld"));
    assert_eq!(std::fs::read(&file).unwrap(), b"somebody else's");
    std::fs::write(&file, whole).unwrap();

    // An instance that must not write leaves it as it is; another image has another history.
    let whole = std::fs::read(&file).unwrap();
    let reader = host.serve(&["--read-only"]);
    reader.signal(Signal::SIGTERM);
    assert_eq!(reader.exit_code(), Some(0));
    assert!(std::fs::read(&file).unwrap() == whole);
    let all = host.json(&["list", "--all", "--json"]);
    assert_eq!(all["instances"].as_array().map(Vec::len), Some(1), "{all}");
    std::fs::remove_file(host.image("default")).unwrap();
    let before = host.log().len();
    let daemon = host.serve(&[]);
    let said = host.log()[before..].to_owned();
    assert!(said.contains("history of another image"), "{said}");
    daemon.signal(Signal::SIGTERM);
    daemon.exit_code();
    assert_eq!(host.run(&["rm", "default"]).0, 0);
    let state = std::fs::read_dir(file.parent().unwrap()).unwrap();
    assert_eq!(state.count(), 0, "files are left");
}
