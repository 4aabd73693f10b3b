//! `ftld clone`: copies of stopped and of running instances.

use crate::host::{Host, page};
use ftld_nbd_client::{FLUSH, FUA};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

#[test]
fn a_stopped_instance_is_copied_and_keeps_its_image() {
    let host = Host::new();
    let daemon = host.serve(&["--name", "a"]);
    daemon.client().write(FUA, 8192, &page(7));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let before = std::fs::read(host.image("a")).unwrap();
    let answer = host.json(&["clone", "a", "b", "--json"]);
    assert_eq!(answer["copy"], host.image("b").to_str().unwrap());
    assert!(answer["instance"].is_null(), "{answer}");
    assert!(std::fs::read(host.image("a")).unwrap() == before);
    assert!(std::fs::read(host.image("b")).unwrap() == before);
    // Holes stay holes.
    let path = host.folder.path().join("c");
    let (code, out, error) = host.run(&["clone", "a", path.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("a copy of"), "{out}");
    use std::os::unix::fs::MetadataExt;
    let blocks = |path: &std::path::Path| std::fs::metadata(path).unwrap().blocks();
    assert!(blocks(&path) <= blocks(&host.image("a")) + 64);
    let copy = host.serve(&["--name", "b"]);
    assert_eq!(copy.client().read(8192, 4096).data, page(7));
}

/// Pages that were acknowledged with FUA before the clone are in it, under the scheme's own check;
/// the device serves on.
#[test]
fn a_running_instance_is_copied_at_a_moment() {
    let host = Host::new();
    let daemon = host.serve(&["--name", "a", "--scheme", "dftl"]);
    let (written, ends) = (AtomicU8::new(0), AtomicBool::new(false));
    /// Ends the writer, whether the test passes or not.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    std::thread::scope(|scope| {
        let _end = End(&ends);
        scope.spawn(|| {
            let mut client = daemon.client();
            let mut round = 0u8;
            while !ends.load(SeqCst) {
                round = round % 250 + 1;
                for at in 0..64 {
                    assert_eq!(client.write(0, at * 4096, &page(round)).error, 0);
                }
                assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
                written.store(round, SeqCst);
            }
        });
        for copy in ["b", "c", "d"] {
            while written.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let flushed = written.load(SeqCst);
            // By its name, and by its path.
            let source = host.image("a");
            let source = if copy == "c" {
                source.to_str().unwrap()
            } else {
                "a"
            };
            let answer = host.json(&["clone", source, copy, "--json"]);
            let next = written.load(SeqCst);
            assert_eq!(answer["instance"], "a");
            assert!(answer["waited_seconds"].as_f64().unwrap() > 0.0);
            let (code, text, error) = host.run(&["check", copy]);
            assert_eq!(code, 0, "{text}{error}");
            let copy = host.serve(&["--name", copy]);
            let mut client = copy.client();
            // Pages of a round that is not flushed may be there: the one after `next` at most.
            let since = |round: u8| (i32::from(round) - i32::from(flushed)).rem_euclid(250);
            for at in 0..64 {
                let data = client.read(at * 4096, 4096).data;
                let round = (1..=250).find(|seed| page(*seed) == data).unwrap();
                assert!(
                    since(round) <= since(next) + 1,
                    "page {at}: round {round}, {flushed} was flushed before, {next} after"
                );
            }
        }
    });
    let status = host.json(&["status", "a", "--json"]);
    assert!(status["paused"].is_null(), "it runs again");
}

/// The copy alone loses the data that a power cut takes from the write cache.
#[test]
fn the_write_cache_of_a_copy_has_lost_power() {
    let host = Host::new();
    let options = ["--write-cache", "1MiB", "--cache-model", "lost"];
    let daemon = host.serve(&[&["--name", "a"][..], &options].concat());
    let mut client = daemon.client();
    client.write(FUA, 0, &page(1));
    client.write(0, 0, &page(2));
    client.write(0, 4096, &page(3));
    let answer = host.json(&["clone", "a", "b", "--json"]);
    let lost = answer["write_cache_units"]["lost"].as_u64().unwrap()
        + answer["write_cache_units"]["old"].as_u64().unwrap();
    assert!(lost > 0, "{answer}");
    let copy = host.serve(&["--name", "b"]);
    let mut copied = copy.client();
    assert_eq!(copied.read(0, 4096).data, page(1));
    assert_eq!(copied.read(4096, 4096).data, vec![0; 4096]);
    assert_eq!(client.read(0, 4096).data, page(2));
    assert_eq!(client.read(4096, 4096).data, page(3));
}

#[test]
fn a_device_that_was_paused_stays_paused() {
    let host = Host::new();
    let _daemon = host.serve(&["--name", "a"]);
    assert_eq!(host.run(&["pause", "a", "--for", "5m"]).0, 0);
    assert_eq!(host.run(&["clone", "a", "b"]).0, 0);
    let status = host.json(&["status", "a", "--json"]);
    let left = status["paused"]["seconds_left"].as_f64().unwrap();
    assert!(left > 240.0, "{left} s: a clone does not shorten a pause");
}

/// SIGTERM ends a clone at once, and nothing is left.
#[test]
fn an_interrupted_clone_leaves_nothing() {
    let host = Host::new();
    let create = ["create", "--name", "a", "--size", "256MiB", "--age", "0"];
    assert_eq!(host.run(&create).0, 0);
    let folder = host.image("a").parent().unwrap().to_owned();
    let begun = || {
        let names = std::fs::read_dir(&folder).unwrap();
        let names = names.map(|name| name.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with('.'))
            .count()
    };
    let mut clone = host.command(&["clone", "a", "b"]).spawn().unwrap();
    while begun() == 0 && clone.try_wait().unwrap().is_none() {}
    let pid = Pid::from_raw(i32::try_from(clone.id()).unwrap());
    // It may have ended by itself: then there is a copy.
    let _ = kill(pid, Signal::SIGTERM);
    let ended = clone.wait().unwrap();
    assert!(ended.code().is_some(), "no signal ended it: {ended}");
    assert_eq!(host.image("b").exists(), ended.success());
    assert_eq!(begun(), 0, "temporary files");
}

#[test]
fn what_cannot_be_copied_is_named_and_leaves_nothing() {
    let host = Host::new();
    assert_eq!(host.run(&["create", "--name", "a"]).0, 0);
    let image = host.image("a");
    let path = image.to_str().unwrap();
    host.fails(&["clone", "a", path], 1, &["a.ftld", "exists"]);
    host.fails(&["clone", "nosuch", "b"], 1, &["nosuch.ftld", "no such"]);
    host.fails(&["clone", "a", "no name"], 2, &["no name"]);
    host.fails(&["clone", "a", "/nonexistent/b"], 1, &["/nonexistent/b"]);
    std::fs::write(host.image("text"), "no image").unwrap();
    host.fails(&["clone", "text", "b"], 8, &["text.ftld"]);
    let file = std::fs::File::open(&image).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    host.fails(&["clone", "a", "b"], 7, &["a.ftld", "in use"]);
    let folder = image.parent().unwrap();
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.ftld", "text.ftld"]);
}

/// Paths may have any bytes: JSON shows them in readable form, and the files get exactly the given
/// names.
#[test]
fn paths_that_are_no_utf_8_are_used_as_they_are() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    let host = Host::new();
    let odd = host.folder.path().join(OsStr::from_bytes(b"f\xFFolder"));
    std::fs::create_dir(&odd).unwrap();
    let image = odd.join(OsStr::from_bytes(b"im\xFFage"));
    let run = |args: &[&str], paths: &[&Path]| {
        let mut command = host.command(args);
        command.env("FTLD_STATE_DIR", &odd).args(paths);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text, error)
    };
    let json = |args: &[&str], paths: &[&Path]| {
        let (code, text, error) = run(args, paths);
        assert_eq!(code, Some(0), "{args:?}: {error}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let new = ["create", "--profile", "torture", "--size", "1MiB", "--json"];
    let made = json(&[&new[..], &["--image"]].concat(), &[&image]);
    let shown = made["image"].as_str().unwrap();
    assert!(shown.ends_with("f\u{fffd}older/im\u{fffd}age"), "{shown}");
    json(&["inspect", "--json"], &[&image]);
    json(&["check", "--json"], &[&image]);
    json(&[&new[..], &["--name", "stopped"]].concat(), &[]);
    let all = json(&["list", "--all", "--json"], &[]);
    assert_eq!(all["instances"][0]["name"], "stopped", "{all}");
    json(&["--print-config", "--json", "--image"], &[&image]);
    let (code, _, error) = run(&["--print-config", "--image"], &[&image]);
    assert!(code == Some(2) && error.contains("no UTF-8"), "{error}");
    let copy = odd.join(OsStr::from_bytes(b"co\xFFpy"));
    json(&["clone", "--json"], &[&image, &copy]);
    assert!(copy.exists());
    json(&["rm", "stopped", "--json"], &[]);
    // The daemon has the path itself, whatever links lead to it.
    let link = host.folder.path().join("link");
    std::os::unix::fs::symlink(&odd, &link).unwrap();
    let served = link.join("served");
    let record = link.join("run.rec");
    let daemon = host.serve(&[
        "--image",
        served.to_str().unwrap(),
        "--record",
        record.to_str().unwrap(),
    ]);
    assert_eq!(daemon.client().write(0, 0, &crate::host::page(7)).error, 0);
    assert_eq!(daemon.get("/status").0, "HTTP/1.1 200 OK");
    let status = host.json(&["status", "--json"]);
    assert!(
        status["image"]
            .as_str()
            .unwrap()
            .ends_with("f\u{fffd}older/served")
    );
    let copy = host.folder.path().join("copy");
    host.json(&["clone", "default", copy.to_str().unwrap(), "--json"]);
    assert!(copy.exists());
}
