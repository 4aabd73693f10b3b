//! `ftld --record` and `ftld mark`, as their users meet them.

use crate::host::{Host, page};
use ftld_nbd_client::{FLUSH, FUA, TRIM, WRITE_ZEROES};
use ftld_traces::recording::{Entry, Kind, Reader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn entries(file: &Path, cut_off: bool) -> Vec<Entry> {
    let reader = Reader::open(file, cut_off).unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

fn kinds(entries: &[Entry]) -> Vec<Kind> {
    entries.iter().map(|entry| entry.kind).collect()
}

fn recording(host: &Host) -> PathBuf {
    host.folder.path().join("requests.rec")
}

#[test]
fn requests_marks_and_flags_are_recorded_and_shown() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    let daemon = host.serve(&["--name", "a", "--record", path]);
    let mut client = daemon.client();
    client.write(0, 4096, &page(1));
    client.write(FUA, 8192, &page(2));
    assert_eq!(client.read(4096, 4096).error, 0);
    assert_eq!(client.ask(TRIM, 0, 8192, 4096).error, 0);
    assert_eq!(client.ask(WRITE_ZEROES, FUA, 0, 1024).error, 0);
    let (code, out, error) = host.run(&["mark", "committed 17"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(out, format!("a: mark at moment 14 of {path}\n"));
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    let (_, text, _) = host.run(&["status"]);
    assert!(text.contains(&format!("recording  to {path}: ")), "{text}");
    let status = host.json(&["status", "--json"]);
    assert_eq!(status["recording"]["failure"], Value::Null);
    assert_eq!(daemon.metric("ftld_recording_failed"), 0.0);
    // The thread is a little behind.
    let began = Instant::now();
    while daemon.metric("ftld_recording_entries_total") < 9.0 {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    assert!(daemon.metric("ftld_recording_bytes_total") > 0.0);
    assert_eq!(daemon.metric("ftld_recording_waits_total"), 0.0);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let entries = entries(&file, false);
    let expected = [
        Kind::Write,
        Kind::Write,
        Kind::Flush,
        Kind::Read,
        Kind::Trim,
        Kind::WriteZeroes,
        Kind::Flush,
        Kind::Mark,
        Kind::Flush,
    ];
    assert_eq!(kinds(&entries), expected);
    assert_eq!((&entries[0].data, &entries[1].data), (&page(1), &page(2)));
    let fua = |entry: &Entry| (entry.fua, entry.offset, entry.length);
    assert_eq!(fua(&entries[2]), (true, 8192, 4096));
    assert_eq!(fua(&entries[6]), (true, 0, 1024));
    assert_eq!(fua(&entries[8]), (false, 0, 0));
    assert_eq!(entries[7].data, b"committed 17");
    let reader = Reader::open(&file, false).unwrap();
    let head = reader.head();
    assert_eq!((head.size, head.has_data), (2 << 20, true));
    let flash = head.flash.as_ref().unwrap();
    assert_eq!(
        (flash.scheme.as_str(), flash.logical_pages),
        ("lazyftl", 2048)
    );
    let profile = ftld_kit::profile_file::from_toml(&flash.profile).unwrap();
    let inspected = host.json(&["inspect", "a", "--json"]);
    assert_eq!(
        u64::from(profile.geometry.blocks),
        inspected["geometry"]["blocks"].as_u64().unwrap()
    );
}

#[test]
fn a_file_that_exists_is_refused_before_anything_is_made() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    std::fs::write(&file, "precious").unwrap();
    host.fails(
        &["--record", path],
        2,
        &["the file exists", "name another file"],
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    assert!(!host.image("default").exists());
    host.fails(
        &["--record", "/nonexistent/x"],
        1,
        &["--record /nonexistent/x: there is no folder /nonexistent; create it"],
    );
    host.fails(&["--record-data", "off"], 2, &["add --record FILE"]);
    host.fails(
        &["--record", path, "--record-data", "of"],
        2,
        &["neither on nor off"],
    );
    // A start that fails leaves no recording behind.
    std::fs::remove_file(&file).unwrap();
    host.fails(
        &[
            "--record",
            path,
            "--size",
            "2MiB",
            "--profile",
            "torture",
            "--scheme",
            "nosuch",
        ],
        2,
        &["nosuch"],
    );
    let busy = host.serve(&["--name", "default"]);
    host.fails(&["--record", path], 7, &["default"]);
    assert!(!file.exists());
    drop(busy);
}

#[test]
fn a_mark_without_a_recording_or_a_text_is_one_clear_error() {
    let host = Host::new();
    host.fails(&["mark", ""], 2, &["a mark without text"]);
    host.fails(&["mark", &"x".repeat(4000)], 2, &["at most 3072"]);
    host.fails(&["mark", "here"], 3, &["no instance"]);
    let daemon = host.serve(&["--name", "a"]);
    host.fails(
        &["mark", "a", "here"],
        1,
        &["nothing is recorded", "--record FILE"],
    );
    let status = host.json(&["status", "--json"]);
    assert_eq!(status["recording"], Value::Null);
    assert_eq!(daemon.metric("ftld_recording_entries_total"), 0.0);
}

/// A killed daemon leaves all but the last moments; the next start needs another file, and begins
/// with the content.
#[test]
fn a_killed_daemon_leaves_a_recording_and_the_next_one_begins_with_the_content() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    let daemon = host.serve(&["--name", "a", "--record", path]);
    let mut client = daemon.client();
    for i in 0..100u8 {
        client.write(0, u64::from(i) * 4096, &page(i));
    }
    let last = Instant::now();
    std::thread::sleep(Duration::from_millis(1100).saturating_sub(last.elapsed()));
    drop(daemon);
    assert_eq!(entries(&file, true).len(), 100);
    let error = Reader::open(&file, false).unwrap().find_map(Result::err);
    assert!(error.unwrap().to_string().contains("--cut-off"));
    let args = ["--name", "a", "--record", path];
    host.fails(&args, 2, &["the file exists"]);
    let again = host.folder.path().join("again.rec");
    let daemon = host.serve(&["--name", "a", "--record", again.to_str().unwrap()]);
    daemon.client().write(0, 0, &page(9));
    let (code, _, error) = host.run(&["stop", "a"]);
    assert_eq!(code, 0, "{error}");
    let entries = entries(&again, false);
    let (last, base) = entries.split_last().unwrap();
    assert_eq!((last.kind, &last.data), (Kind::Write, &page(9)));
    let mut content: Vec<u8> = Vec::new();
    for entry in base {
        assert_eq!(
            (entry.kind, entry.offset),
            (Kind::Base, content.len() as u64)
        );
        content.extend(&entry.data);
    }
    let expected: Vec<u8> = (0..100u8).flat_map(page).collect();
    assert!(content == expected, "{} bytes", content.len());
}

#[test]
fn a_recording_whose_disk_is_full_ends_and_the_device_goes_on() {
    let host = Host::new();
    let folder = host.folder.path().join("small");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("x.rec");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "ftld"])
        .arg(&folder)
        .status();
    assert!(
        mounted.unwrap().success(),
        "this test mounts a tmpfs: run it as root"
    );
    let _unmount = Unmount(folder);
    let daemon = host.serve(&["--name", "a", "--record", file.to_str().unwrap()]);
    let mut client = daemon.client();
    let mut rng = nand_model::SplitMix::new(1);
    let mut noise = || -> Vec<u8> {
        (0..512)
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect()
    };
    let began = Instant::now();
    while daemon.metric("ftld_recording_failed") == 0.0 {
        assert!(began.elapsed() < Duration::from_secs(20));
        assert_eq!(client.write(0, 0, &noise()).error, 0);
    }
    assert_eq!(client.write(0, 0, &page(3)).error, 0);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    let (_, text, _) = host.run(&["status"]);
    assert!(
        text.contains("recording  failed: ") && text.contains("No space left"),
        "{text}"
    );
    assert!(
        host.log()
            .contains("the recording has ended, the device continues")
    );
    host.fails(
        &["mark", "here"],
        1,
        &["the recording has failed", "No space left"],
    );
    drop(client);
    let (code, _, error) = host.run(&["stop", "a"]);
    assert_eq!(code, 0, "{error}");
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

/// Flash operations by cause, as a row has them.
fn flash(before: &Value, after: &Value) -> serde_json::Map<String, Value> {
    let causes = after["nand"].as_object().unwrap().iter();
    let since = |(cause, of): (&String, &Value)| {
        let kinds = of.as_object().unwrap().iter();
        let kinds = kinds.map(|(kind, count)| {
            let before = before["nand"][cause][kind].as_u64().unwrap();
            (kind.clone(), Value::from(count.as_u64().unwrap() - before))
        });
        (cause.clone(), Value::Object(kinds.collect()))
    };
    let is_some = |(_, of): &(String, Value)| of.as_object().unwrap().values().any(|n| *n != 0);
    causes.map(since).filter(is_some).collect()
}

/// A client writes, trims and flushes over NBD; the replay of the recording does the same to the
/// flash. The device is paused and stepped, so there is no background work, which a replay would
/// not repeat.
#[test]
fn a_replay_has_the_counters_of_the_live_device() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    let daemon = host.serve(&["--name", "a", "--scheme", "dftl", "--record", path]);
    assert_eq!(host.run(&["pause", "a", "--for", "10m"]).0, 0);
    let before = host.json(&["status", "--json"]);
    let mut step = host
        .command(&["step", "a", "--requests", "1000000"])
        .spawn()
        .unwrap();
    let (mut client, mut rng) = (daemon.client(), nand_model::SplitMix::new(5));
    for _ in 0..2500 {
        let at = rng.below(1900) * 1024;
        let answer = match rng.below(30) {
            0 => client.ask(FLUSH, 0, 0, 0),
            1 => client.ask(TRIM, 0, at, 8192),
            2 => client.ask(WRITE_ZEROES, FUA, at, 1536),
            3 => client.read(at, 4096),
            4 => client.write(FUA, at, &page(4)[..1024]),
            5 => client.write(0, at + 512, &page(5)[..1024]),
            _ => client.write(0, at, &page(6)[..2048]),
        };
        assert_eq!(answer.error, 0);
    }
    let last = Instant::now();
    let after = loop {
        let since = last.elapsed().as_secs_f64();
        let status = host.json(&["status", "--json"]);
        if status["snapshot"]["age_seconds"].as_f64().unwrap() < since {
            break status;
        }
        assert!(since < 20.0, "no snapshot");
    };
    assert_eq!(host.run(&["stop", "a"]).0, 0);
    step.wait().unwrap();
    let row = host.json(&["replay", path, "--json"]);
    let live = flash(&before, &after);
    assert_eq!(row["flash"].as_object().unwrap(), &live);
    for cause in ["host", "pad", "gc", "translation", "trim"] {
        assert!(
            live[cause]["programs"].as_u64().unwrap() > 0,
            "{cause}: {live:?}"
        );
    }
    assert_eq!(
        (&row["scheme"], &row["device"]["profile"]),
        (&"dftl".into(), &"torture".into())
    );
    let flushes = row["requests"]["flushes"].as_u64().unwrap();
    let counted = &after["host"]["flush"]["completed"];
    assert_eq!(Value::from(flushes), *counted);
    let (code, text, error) = host.run(&["inspect", path]);
    assert_eq!(code, 0, "{error}");
    for part in [
        "a recording of ftld",
        "2 MiB, with data",
        "scheme     dftl",
        "\n  write_zeroes",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    host.fails(
        &["inspect", path, "--blocks"],
        2,
        &["a recording has no blocks"],
    );
    // A cut-off recording is refused, or used up to its last whole chunk.
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 24]).unwrap();
    host.fails(&["replay", path], 1, &["without its end mark", "--cut-off"]);
    let cut = host.json(&["replay", path, "--cut-off", "--json"]);
    assert_eq!(cut["flash"], row["flash"]);
    let other = host.json(&["replay", path, "--cut-off", "--scheme", "pagemap", "--json"]);
    assert_eq!(
        (&other["scheme"], &other["device"]["size_bytes"]),
        (&"pagemap".into(), &(2 << 20).into())
    );
}

/// A ledger is appended to; a file of something else stays as it is, whether its line ends or not.
#[test]
fn verdicts_are_not_written_into_another_file() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    let daemon = host.serve(&["--record", path]);
    daemon.client().write(0, 0, &page(1));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let notes = host.folder.path().join("notes");
    let notes_path = notes.to_str().unwrap();
    let explore = [
        "crashes",
        path,
        "--check",
        "true",
        "--jobs",
        "1",
        "--ledger",
        notes_path,
        "--scratch",
    ];
    let explore = [&explore[..], &[host.folder.path().to_str().unwrap()]].concat();
    for text in [
        &b"what I wanted to buy"[..],
        b"what I\nwanted to buy",
        b"\xff\xfe\n",
    ] {
        std::fs::write(&notes, text).unwrap();
        host.fails(&explore, 2, &[notes_path, "is no ledger", "another file"]);
        assert_eq!(std::fs::read(&notes).unwrap(), text);
    }
    // The part of its own first line that a killed run left is completed.
    std::fs::remove_file(&notes).unwrap();
    assert_eq!(host.run(&explore).0, 0);
    let ledger = std::fs::read_to_string(&notes).unwrap();
    std::fs::write(&notes, &ledger[..20]).unwrap();
    let (code, _, error) = host.run(&explore);
    assert_eq!(code, 0, "{error}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), ledger);
}

/// A recording of a device with several shards names their number. It is replayed on one chip; the
/// model of the flash, which needs the device itself, refuses it.
#[test]
fn a_recording_of_shards_is_replayed_on_one_chip() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    let daemon = host.serve(&["--shards", "3", "--record", path]);
    let mut client = daemon.client();
    let data: Vec<u8> = (0..200u8).flat_map(page).collect();
    client.write(0, 0, &data);
    client.write(FUA, 1 << 20, &page(9));
    assert_eq!(client.read(0, 200 * 4096).data, data);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let expected = [Kind::Write, Kind::Write, Kind::Flush, Kind::Read];
    assert_eq!(kinds(&entries(&file, false)), expected);
    let reader = Reader::open(&file, false).unwrap();
    let head = reader.head();
    let flash = head.flash.as_ref().unwrap();
    assert_eq!((head.size, flash.shards), (2 << 20, Some(3)));
    let row = host.json(&["replay", path, "--json"]);
    assert_eq!(row["scheme"], "lazyftl");
    assert_eq!(row["device"]["size_bytes"], 2 << 20);
    let (_, _, said) = host.run(&["replay", path]);
    let parts = ["3 shards", "on one chip", "record a device with one shard"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for (command, equal) in [
        (&["replay", path, "--seeds", "2"][..], 1),
        (&["compare", path, "--seeds", "2"], 1),
        (&["compare", path], 0),
    ] {
        let (code, _, said) = host.run(&[command, &["--scheme", "pagemap"]].concat());
        let count = |text| said.matches(text).count();
        let found = (code, count("on one chip"), count("EQUAL RUNS"));
        assert_eq!(found, (0, 1, equal), "{said}");
    }
    let explore = [
        "crashes",
        path,
        "--check",
        "true",
        "--jobs",
        "1",
        "--scratch",
    ];
    let explore = [&explore[..], &[host.folder.path().to_str().unwrap()]].concat();
    assert_eq!(host.run(&explore).0, 0);
    let of_flash = [&explore[..], &["--model", "flash"]].concat();
    let parts = ["a device of 3 shards", "leave the model of the flash out"];
    host.fails(&of_flash, 2, &parts);
}

/// A paper's device has its flash on each shard: the size of all does not fit one chip.
#[test]
fn a_recording_of_shards_of_fixed_flash_is_refused_with_the_reason() {
    let host = Host::new();
    let file = recording(&host);
    let path = file.to_str().unwrap();
    let fixed = ["--profile", "lazyftl", "--shards", "2", "--metrics", "off"];
    let mut start = host.command(&[&fixed[..], &["--record", path]].concat());
    let mut daemon = start.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    let mut out = BufReader::new(daemon.stdout.take().unwrap());
    out.read_line(&mut ready).unwrap();
    let pid = Pid::from_raw(daemon.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(daemon.wait().unwrap().success(), "{ready}");
    let size = Reader::open(&file, false).unwrap().head().size;
    let replay = ["replay", path];
    let parts = [
        "2 shards",
        "one chip",
        "lazyftl has 8192 blocks",
        "--profile",
    ];
    host.fails(&replay, 2, &parts);
    let other = [&replay[..], &["--profile", "slc-2k", "--json"]].concat();
    assert_eq!(host.json(&other)["device"]["size_bytes"], size);
}
