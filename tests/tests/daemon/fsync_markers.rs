//! `fsync_markers` checks the crash tests of scripts: without evidence it must fail.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Runs the program; returns whether it succeeded, and its output line.
fn run(words: &[&str], folder: &Path, markers: &Path, seed: &[&str]) -> (bool, String) {
    let program = env!("CARGO_BIN_EXE_fsync_markers");
    let output = Command::new(program)
        .args(words)
        .arg(folder)
        .arg(markers)
        .args(seed)
        .output()
        .expect("the program runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Returns one marker, as the program writes it: a sector.
fn marker(text: &str) -> String {
    format!("{text:<511}\n")
}

#[test]
fn check_fails_without_durable_markers() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (folder, markers) = (
        scratch.path().join("folder"),
        scratch.path().join("markers"),
    );
    fs::create_dir(&folder).expect("a folder");

    let (passed, line) = run(&["check"], &folder, &markers, &[]);
    assert!(
        !passed && line.contains("No such file"),
        "missing markers: {line}"
    );
    assert!(!markers.exists(), "`check` made its own evidence");

    fs::write(&markers, "").expect("markers");
    let (passed, line) = run(&["check"], &folder, &markers, &[]);
    assert!(
        !passed && line.contains("nothing to check"),
        "no marker at all: {line}"
    );

    fs::write(&markers, marker("begin replace 0/file1 1")).expect("markers");
    let (passed, line) = run(&["check"], &folder, &markers, &[]);
    assert!(
        !passed && line.contains("nothing to check"),
        "nothing was durable: {line}"
    );

    fs::write(&markers, marker("done replace 0/file1 1")).expect("markers");
    let (passed, line) = run(&["check"], &folder, &markers, &[]);
    assert!(
        !passed && line.contains("0/file1 is version 0, durable was 1"),
        "an empty folder: {line}"
    );

    fs::write(
        &markers,
        marker("begin replace 0/file1 1").replace("begin", "bogus word"),
    )
    .expect("markers");
    let (passed, line) = run(&["check"], &folder, &markers, &[]);
    assert!(
        !passed && line.contains("not a marker"),
        "foreign bytes: {line}"
    );
}

#[test]
fn work_fails_without_a_durable_operation() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (folder, markers) = (
        scratch.path().join("folder"),
        scratch.path().join("markers"),
    );
    // A write to the memory of a nonexistent process gets EIO, as from a missing device.
    fs::create_dir_all(folder.join("0")).expect("a folder");
    symlink("/proc/self/mem", folder.join("0/slots")).expect("a link");
    let (passed, line) = run(&["work"], &folder, &markers, &["1"]);
    assert!(
        !passed && line.contains("Input/output error"),
        "no marker: {line}"
    );
}
