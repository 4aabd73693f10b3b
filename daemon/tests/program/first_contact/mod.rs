//! First use of the program: errors and their remedies, settings and where each is from, a start in
//! the background.

mod completions;
mod errors;
mod home;
mod outputs;
mod start;
mod terminal;
mod wrong_use;

use crate::host::Host;
use ftld_nbd_client::EIO;
use serde_json::Value;

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let host = Host::new();
    std::fs::create_dir_all(host.folder.path().join("etc")).unwrap();
    // Found by the instance's name.
    std::fs::write(
        host.folder.path().join("etc/default.toml"),
        "size = \"8MiB\"\nop = 20\nprofile = \"torture\"\n",
    )
    .unwrap();
    let config = |env: &[(&str, &str)], args: &[&str]| {
        let mut command = host.command(args);
        let output = command
            .args(["--print-config"])
            .envs(env.iter().copied())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let line = |text: &str, key: &str| {
        let found = text.lines().find(|line| {
            line.trim_start_matches('#')
                .starts_with(&format!("{key} = "))
        });
        let (value, origin) = found
            .unwrap_or_else(|| panic!("no {key} in {text}"))
            .split_once(" # ")
            .unwrap();
        (value.trim_end().to_owned(), origin.trim().to_owned())
    };
    let (text, file) = (
        config(&[], &[]),
        host.folder
            .path()
            .join("etc/default.toml")
            .display()
            .to_string(),
    );
    assert_eq!(
        line(&text, "size"),
        ("size = \"8MiB\"".into(), file.clone())
    );
    assert_eq!(
        line(&text, "scheme"),
        ("#scheme = \"lazyftl\"".into(), "default".into())
    );
    let text = config(&[("FTLD_SIZE", "6MiB"), ("FTLD_READ_ONLY", "true")], &[]);
    assert_eq!(
        line(&text, "size"),
        ("size = \"6MiB\"".into(), "FTLD_SIZE".into())
    );
    assert_eq!(
        line(&text, "read-only"),
        ("read-only = true".into(), "FTLD_READ_ONLY".into())
    );
    assert_eq!(line(&text, "op"), ("op = 20.0".into(), file));
    let text = config(&[("FTLD_SIZE", "6MiB")], &["--size", "4MiB"]);
    assert_eq!(
        line(&text, "size"),
        ("size = \"4MiB\"".into(), "command line".into())
    );
    // The printed settings can be read again, and an image contains its own.
    std::fs::write(host.folder.path().join("again.toml"), &text).unwrap();
    let again = host.folder.path().join("again.toml");
    host.json(&[
        "create",
        "--config",
        again.to_str().unwrap(),
        "--scheme",
        "pagemap",
        "--json",
    ]);
    assert_eq!(
        line(&config(&[], &["--size", "4MiB"]), "scheme"),
        ("#scheme = \"pagemap\"".into(), "the image".into())
    );
    let found: Value = serde_json::from_str(&config(&[], &["--size", "4MiB", "--json"])).unwrap();
    assert_eq!(found["schema"], "ftld.config/1");
    assert!(
        found["options"]
            .as_array()
            .unwrap()
            .iter()
            .any(|option| option["key"] == "size" && option["value"] == "4MiB")
    );
    // The environment does not get in the way of commands that have no such option.
    let listed = host
        .command(&["list"])
        .env("FTLD_SIZE", "6MiB")
        .output()
        .unwrap();
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
}

#[test]
fn in_the_background_an_error_still_reaches_the_caller() {
    let host = Host::new();
    let socket = host.folder.path().join("a.sock");
    let target = format!("nbd+unix:///a?socket={}", socket.display());
    let start = [
        "--detach",
        "--metrics",
        "off",
        "--profile",
        "torture",
        "--size",
        "2MiB",
        "--json",
        &target,
    ];
    let (code, out, error) = host.run(&start);
    assert_eq!(code, 0, "{error}");
    let ready: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&ready["schema"], &ready["name"]),
        (&"ftld.ready/1".into(), &"a".into())
    );
    assert!(socket.exists());
    let (code, out, error) = host.run(&start);
    assert_eq!((code, out.as_str()), (7, ""));
    let failure: Value = serde_json::from_str(error.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&failure["schema"], &failure["exit"]),
        (&"ftld.error/1".into(), &7.into())
    );
    assert!(
        failure["error"]
            .as_str()
            .unwrap()
            .contains("already running"),
        "{failure}"
    );
    assert_eq!(host.run(&["stop", "a"]).0, 0);
    assert!(
        std::fs::exists(host.folder.path().join("state/a.log")).unwrap(),
        "what it says later is kept"
    );
}

/// The messages of recovery reach the caller and the log: the log alone would hide them, and the
/// caller's terminal alone would lose them.
#[test]
fn what_a_mount_in_the_background_says_is_in_its_log_too() {
    let host = Host::new();
    let target = format!(
        "nbd+unix:///a?socket={}",
        host.folder.path().join("a.sock").display()
    );
    let mut device = host.serve(&[&target]);
    device.child.kill().unwrap();
    device.child.wait().unwrap();
    let start = ["--detach", "--metrics", "off", &target];
    let output = host
        .command(&start)
        .env("FTLD_LOG", "info")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    let log = std::fs::read_to_string(host.folder.path().join("state/a.log")).unwrap();
    let recovery = error
        .lines()
        .find(|line| line.contains("unclean"))
        .unwrap_or_else(|| panic!("no line of the recovery in {error}"));
    assert_eq!(log.matches(recovery).count(), 1, "{log}");
    assert_eq!(host.run(&["stop", "a"]).0, 0);
    // Behind the ready line, messages go to the log alone, once.
    let log = std::fs::read_to_string(host.folder.path().join("state/a.log")).unwrap();
    let lines: std::collections::BTreeSet<_> = log.lines().collect();
    assert!(
        lines.len() == log.lines().count() && log.len() > error.len(),
        "{log}"
    );
}

#[test]
fn the_doctor_finds_what_serving_would() {
    let host = Host::new();
    let verdict = |args: &[&str], what: &str| {
        let (code, out, error) = host.run(&[&["doctor", "--json"], args].concat());
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["schema"], "ftld.doctor/1");
        let finding = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["what"] == what)
            .cloned();
        let finding = finding.unwrap_or_else(|| panic!("nothing on {what}: {report}"));
        (
            code,
            finding["verdict"].as_str().unwrap().to_owned(),
            finding["text"].to_string() + &error,
        )
    };
    let nbd = format!(
        "nbd+unix:///?socket={}",
        host.folder.path().join("x.sock").display()
    );
    let (code, good, text) = verdict(&["--metrics", "off", &nbd], "image");
    assert_eq!((code, good.as_str()), (0, "ok"), "{text}");
    assert!(
        !host.folder.path().join("state").exists(),
        "nothing was made"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, bad, text) = verdict(
        &["--metrics", &taken.local_addr().unwrap().to_string(), &nbd],
        "metrics",
    );
    assert_eq!((code, bad.as_str()), (7, "bad"), "{text}");
    assert!(text.contains("choose another with --metrics"), "{text}");
    let (_, note, text) = verdict(&["--metrics", "off", "--size", "900TiB", &nbd], "room");
    assert_eq!(note, "note", "{text}");
    let daemon = host.serve(&[]);
    let (code, bad, text) = verdict(&["--metrics", "off"], "instance");
    assert_eq!((code, bad.as_str()), (7, "bad"), "{text}");
    drop(daemon);
    host.json(&["create", "--name", "broken", "--size", "4MiB", "--json"]);
    std::fs::File::options()
        .write(true)
        .open(host.image("broken"))
        .unwrap()
        .set_len(100)
        .unwrap();
    let (code, bad, text) = verdict(&["--metrics", "off", "--name", "broken", &nbd], "image");
    assert_eq!((code, bad.as_str()), (8, "bad"), "{text}");
    assert_eq!(verdict(&["--metrics", "off", &nbd], "NBD").1, "ok");
}

#[test]
fn watching_prints_a_line_a_time_and_ends_with_the_instance() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let mut watch = host.command(&["status", "--watch", "0.1", "--json"]);
    let mut watch = watch
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(daemon.client().write(0, 0, &crate::host::page(1)).error, 0);
    std::thread::sleep(std::time::Duration::from_millis(500));
    drop(daemon);
    let mut lines = String::new();
    std::io::Read::read_to_string(&mut watch.stdout.take().unwrap(), &mut lines).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(3));
    let looks: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!looks.is_empty() && looks.iter().all(|look| look["schema"] == "ftld.status/1"));
    assert_eq!(looks.last().unwrap()["host"]["write"]["bytes"], 4096);
    host.fails(&["status", "--watch", "0"], 2, &["--watch 0"]);
}

#[test]
fn manual_pages_and_completions_come_from_the_program() {
    let host = Host::new();
    let folder = host.folder.path().join("man");
    assert_eq!(host.run(&["man", folder.to_str().unwrap()]).0, 0);
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    for option in [
        "\\-\\-scheme",
        "FTLD_SCHEME",
        "EXIT STATUS",
        "power cut injected",
    ] {
        assert!(page("ftld.8").contains(option), "{option}");
    }
    assert!(page("ftld.toml.5").contains("tls\\-client\\-ca"));
    let schemes = host.json(&["schemes", "--json"]);
    let text = page("ftld-schemes.7");
    assert!(
        schemes["schemes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|s| text.contains(s["name"].as_str().unwrap()))
    );
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = host.run(&["completions", shell]);
        assert_eq!(
            (code, script.contains("print-config")),
            (0, true),
            "{shell}"
        );
    }
}

#[test]
fn an_image_of_another_size_names_the_way_to_a_new_one() {
    let host = Host::new();
    host.json(&["create", "--name", "demo", "--size", "4MiB", "--json"]);
    let other = ["--metrics", "off", "--name", "demo", "--size", "8MiB"];
    let parts = ["has size 4 MiB, not 8 MiB", "`ftld rm demo` removes it"];
    host.fails(&other, 2, &parts);
    // A file that is none of ours is never to be removed.
    for args in [
        &["check", "/etc/passwd"][..],
        &["create", "--image", "/etc/passwd"],
    ] {
        let (code, _, error) = host.run(args);
        assert!(code != 0 && !error.contains("remove"), "{args:?}: {error}");
    }
}

#[test]
fn a_lost_page_is_named_and_the_rest_can_be_saved() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let mut client = daemon.client();
    (0..64).for_each(|at| {
        assert_eq!(
            client
                .write(0, at * 4096, &crate::host::page(at as u8))
                .error,
            0
        )
    });
    assert_eq!(host.run(&["stop"]).0, 0);
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(host.run(&["check", "default"]).0, 0);
    // Of page 9 one kilobyte: a page of the flash.
    let (page, image) = (crate::host::page(9), host.image("default"));
    let mut bytes = std::fs::read(&image).unwrap();
    let at = bytes
        .windows(1024)
        .rposition(|window| window == &page[..1024])
        .expect("the page is in the image");
    bytes[at + 100..at + 120].fill(0x5a);
    std::fs::write(&image, &bytes).unwrap();
    let (code, out, error) = host.run(&["check", "default", "--json"]);
    assert_eq!(code, 8, "{error}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let lost = report["unreadable"][0][0].as_u64().unwrap();
    assert_eq!(
        (&report["unreadable"], lost / 4),
        (&serde_json::json!([[lost, 1]]), 9),
        "{report}"
    );
    let (_, text, _) = host.run(&["check", "default"]);
    assert!(
        text.contains(&format!(
            "1 page cannot be read: 1 KiB at offset {}",
            lost * 1024
        )),
        "{text}"
    );
    let daemon = host.serve(&["--read-only"]);
    let mut client = daemon.client();
    for at in 0..64u64 {
        let answer = client.read(at * 4096, 4096);
        assert!(
            if at == 9 {
                answer.error == EIO
            } else {
                answer.data == crate::host::page(at as u8)
            },
            "page {at}"
        );
    }
    assert!(
        std::fs::read(&image).unwrap() == bytes,
        "nothing was changed"
    );
}
