//! Runs that cannot be recorded or explored: the errors name the cause.

use ftld_crash::{At, Crash, Disk, Run};
use std::io;
use std::os::unix::fs::FileExt;

fn refused(size: u64, run: impl FnOnce(&Disk) -> io::Result<()>) -> String {
    let error = Crash::new(size).record(run).unwrap_err();
    assert_eq!(error.to_string(), format!("{error:?}"));
    error.to_string()
}

#[test]
fn a_disk_has_whole_units() {
    for size in [0, 4095, 6000] {
        let why = refused(size, |disk| disk.mark(1));
        let text = format!(
            "a disk of {size} bytes: the size is a multiple of its unit, 4096 bytes, and not 0"
        );
        assert_eq!(why, text);
    }
    let unit = |bytes| Crash::new(1 << 20).unit(bytes).record(|disk| disk.mark(1));
    for wrong in [0, 256, 3000, 128 << 10] {
        let why = unit(wrong).unwrap_err().to_string();
        assert_eq!(
            why,
            format!("a unit of {wrong} bytes: it is a power of two from 512 to 65536")
        );
    }
    assert!(unit(512).is_ok() && unit(64 << 10).is_ok());
}

#[test]
fn a_write_beyond_the_end_is_refused_and_leaves_nothing() {
    let run = Crash::new(8192).record(|disk| {
        for (at, length) in [(8192, 1), (8190, 3), (u64::MAX, 2)] {
            let error = disk.write_all_at(&[1; 3][..length], at).unwrap_err();
            let text = format!(
                "write of {length} bytes at {at}: beyond the end of the disk, which has 8192 bytes"
            );
            assert_eq!(error.to_string(), text);
        }
        disk.write_all_at(&[1; 2], 8190)
    });
    let run = run.unwrap();
    let empty = refused(8192, |disk| disk.mark(""));
    assert!(
        empty.ends_with("a mark without a text; say what the store has promised"),
        "{empty}"
    );
    assert_eq!(run.explore(ok).unwrap().points(), 1);
}

fn ok(_: &ftld_crash::State, _: Option<&str>) -> Result<(), String> {
    Ok(())
}

#[test]
fn an_error_of_the_closure_is_the_error() {
    let why = refused(8192, |disk| {
        disk.write_all_at(b"x", 0)?;
        Err(io::Error::other("the store is full"))
    });
    assert_eq!(
        why,
        "the recorded closure failed after 1 entries: the store is full"
    );
}

#[test]
fn a_run_without_a_write_or_mark_says_so() {
    for syncs in [0, 2] {
        let why = refused(8192, |disk| (0..syncs).try_for_each(|_| disk.sync_data()));
        assert!(
            why.starts_with("the recorded closure wrote nothing and set no mark"),
            "{why}"
        );
    }
    assert!(
        Crash::new(8192)
            .record(|disk| disk.mark("a mark alone"))
            .is_ok()
    );
}

#[test]
fn what_the_run_does_not_have_is_named() {
    let record = || {
        Crash::new(8192)
            .record(|disk| disk.write_all_at(b"x", 0))
            .unwrap()
    };
    let why = |run: &Run| run.explore(ok).unwrap_err().to_string();
    for run in [
        record().at(At::Mark),
        record().at(At::Flush),
        record().after_mark(),
    ] {
        let text = "no point to cut power at: the run has 1 writes, 0 syncs and 0 marks";
        assert_eq!(why(&run), text);
    }
    for (case, text) in [
        (
            "nonsense",
            "\"nonsense\" is no case; a report names them, such as cache/412/256-263=0",
        ),
        (
            "cache/9/0=0",
            "entry 9 of the recording is no write, trim, FLUSH or mark",
        ),
        ("cache/1/1=0", "unit 1 is certain there, no cut changes it"),
        ("flash/1/1/1", "a run in this process has no flash"),
    ] {
        assert_eq!(record().case(case, ok).unwrap_err().to_string(), text);
    }
}
