//! Stopped instances: how each ended, what goes on with it, and what `ftld start` remembers.

use crate::host::{Host, page};
use ftld_nbd_client::{Client, go_data};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Returns name, state and the command that goes on, of every instance.
fn states(host: &Host) -> Vec<String> {
    let list = host.json(&["list", "--all", "--json"]);
    let all = list["instances"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    all.map(|one| {
        ["name", "state", "next"]
            .map(|key| text(&one[key]))
            .join(" ")
    })
    .collect()
}

#[test]
fn stopped_instances_say_how_they_ended_and_what_goes_on() {
    let host = Host::new();
    let cut = host.serve(&["--name", "cut"]);
    assert_eq!(states(&host), ["cut serving -"]);
    let (_, text, _) = host.run(&["list"]);
    let page = cut.metrics.strip_suffix("metrics").unwrap();
    assert!(text.contains("PAGE") && text.contains(page), "{text}");
    let (_, text, _) = host.run(&["status"]);
    assert!(text.contains(&format!("  page       {page}\n")), "{text}");
    host.json(&["inject", "power-cut", "--json"]);
    assert_eq!(cut.exit_code(), Some(9));
    host.fails(&["status"], 3, &["a power cut ended it; `ftld start cut`"]);
    let killed = host.serve(&["--name", "killed"]);
    killed.signal(Signal::SIGKILL);
    assert_eq!(killed.exit_code(), None);
    host.json(&["create", "--name", "new", "--size", "4MiB", "--json"]);
    let all = [
        "killed unclean ftld start killed",
        "cut power cut ftld start cut",
        "new clean ftld start new",
    ];
    assert_eq!(states(&host), all);
    let (_, text, _) = host.run(&["list", "--all"]);
    assert!(
        text.contains("`ftld start killed cut new` serves again"),
        "{text}"
    );
    for (name, state, ended) in [
        (
            "cut",
            "power cut",
            "a power cut ended it; `ftld start cut` recovers",
        ),
        (
            "killed",
            "unclean",
            "a kill or a crash; `ftld start killed` recovers",
        ),
        (
            "new",
            "clean",
            "it ended cleanly; `ftld start new` serves it",
        ),
    ] {
        host.fails(&["status", name], 3, &["is not running: ", ended]);
        host.fails(&["pause", name], 3, &[ended]);
        let (code, out, error) = host.run(&["status", name, "--json"]);
        let found: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &found["state"]), (3, &state.into()), "{error}");
        assert_eq!(found["schema"], "ftld.stopped/1");
    }
    host.fails(&["stop"], 3, &["`ftld list --all`", "`ftld start NAME`"]);
    let again = host.serve(&["--name", "cut"]);
    let log = host.log();
    assert!(log.contains("recovered after a power cut"), "{log}");
    // The error names the instance that uses the image; one command stops, or removes, all
    // instances. What fails does not keep the others.
    host.fails(
        &["check", "cut"],
        7,
        &["in use by instance \"cut\"; `ftld stop cut`"],
    );
    let other = host.serve(&["--name", "other"]);
    let parts = ["instance \"none\" is not running"];
    host.fails(&["stop", "none", "cut"], 3, &parts);
    assert_eq!(again.exit_code(), Some(0));
    assert_eq!(host.run(&["stop", "--all"]).0, 0);
    assert_eq!(other.exit_code(), Some(0));
    let (code, text, error) = host.run(&["rm", "cut", "none", "new", "other", "nichts"]);
    assert_eq!((code, text.lines().count()), (3, 3), "{error}");
    assert!(error.contains("none.ftld: no such image"), "{error}");
    assert!(error.contains("; not removed either: nichts"), "{error}");
    // A dead one whose image is gone, too.
    std::fs::remove_file(host.image("killed")).unwrap();
    assert_eq!(states(&host), ["killed dead ftld rm killed"]);
    assert_eq!(host.run(&["rm", "killed"]).0, 0);
    assert_eq!(states(&host), [""; 0]);
    for left in ["state", "run"] {
        let folder = std::fs::read_dir(host.folder.path().join(left)).unwrap();
        let left: Vec<_> = folder.flatten().map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// It starts from another folder, with the target, the page and the options that it had.
#[test]
fn a_stopped_instance_starts_as_it_was() {
    let host = Host::new();
    let image = host.folder.path().join("elsewhere.img");
    let ready = |args: &[&str], folder: &str| {
        let mut command = host.command(&[args, &["--json"]].concat());
        let output = command
            .current_dir(host.folder.path().join(folder))
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .collect::<Vec<_>>()
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().to_string();
    drop(free);
    let target = "nbd+unix:///disk?socket=disk.sock";
    let first = [
        "--detach",
        "--name",
        "a",
        "--metrics",
        &port,
        "--latency",
        "emulate",
        "--scheme",
        "dftl",
        "--profile",
        "torture",
        "--size",
        "2MiB",
        "--image",
        "elsewhere.img",
        target,
    ];
    ready(&first, ".");
    let asked = |name: &str| host.json(&["status", name, "--json"]);
    let before = asked("a");
    // Without a name of a target, from a configuration file.
    std::fs::create_dir(host.folder.path().join("etc")).unwrap();
    let file = format!(
        "target = \"nbd+unix:///b?socket={}/b.sock\"\nmetrics = \"off\"\nprofile = \"torture\"\nsize = \"2MiB\"\nscheme = \"dftl\"\n",
        host.folder.path().display()
    );
    std::fs::write(host.folder.path().join("etc/b.toml"), file).unwrap();
    // The image has another scheme than the file.
    ready(&["--detach", "--name", "b", "--scheme", "pagemap"], ".");
    host.fails(&["start", "a"], 7, &["\"a\" is already running (pid "]);
    assert_eq!(host.run(&["stop", "a", "b"]).0, 0);
    assert_eq!(
        states(&host),
        ["a clean ftld start a", "b clean ftld start b"],
        "also one whose image is elsewhere"
    );
    let again = ready(&["start", "a", "b"], "state");
    assert_eq!(again.len(), 2, "a ready line each");
    assert_eq!(again[0]["metrics"], before["metrics"]);
    let after = asked("a");
    for key in ["image", "scheme", "profile", "latency", "metrics"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    assert_eq!(after["image"], image.to_str().unwrap());
    assert!(host.folder.path().join("disk.sock").exists());
    assert!(host.folder.path().join("b.sock").exists(), "from its file");
    let mut client = Client::hello(&host.folder.path().join("disk.sock"));
    client.option(7, &go_data("disk", &[]));
    assert_eq!(client.write(0, 0, &page(1)).error, 0);
    drop(client);
    assert_eq!(host.run(&["stop", "--all"]).0, 0);
    // An option of the image, named at the first start, does not keep a later image from starting.
    std::fs::remove_file(&image).unwrap();
    let parts = [
        "elsewhere.img: no such image of an instance \"a\"",
        "`ftld --name a TARGET`",
    ];
    host.fails(&["start", "a"], 3, &parts);
    host.fails(&["start", "bb"], 3, &["did you mean \"b\"?"]);
    host.fails(
        &["start", "a/b"],
        2,
        &["\"a/b\" is not the name of an instance"],
    );
    host.fails(&["b"], 2, &["but an instance: `ftld start b`"]);
    let kept = host.folder.path().join("state/b.start");
    let first_line = std::fs::read_to_string(&kept).unwrap();
    let first_line = first_line.lines().next().unwrap();
    // After a crash of the host it may be empty; options of a later version are unknown.
    for (text, part) in [
        (String::new(), "no options of a start"),
        (format!("{first_line}\nsise = 3\n"), "`sise`"),
    ] {
        std::fs::write(&kept, text).unwrap();
        let parts = ["b.start: ", part, "`ftld --name b TARGET`"];
        host.fails(&["start", "b"], 1, &parts);
    }
    let (code, _, error) = host.run(&["rm", "a", "b"]);
    assert_eq!(code, 0, "{error}");
}
