//! Which states a check gets, with which marks; how it may end.

use ftld_crash::{At, Crash, Error, Model, Run, State};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::FileExt;

/// Writes a unit full of one letter.
fn put(disk: &ftld_crash::Disk, unit: u64, letter: u8) -> io::Result<()> {
    disk.write_all_at(&[letter; 4096], unit * 4096)
}

/// The first letter of each of three units, `.` for zeros.
fn letters(state: &State) -> String {
    let letter = |unit: u64| {
        let mut bytes = [0; 4096];
        state.disk().read_exact_at(&mut bytes, unit * 4096).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn unit");
        if bytes[0] == 0 { '.' } else { bytes[0].into() }
    };
    (0..3).map(letter).collect()
}

/// a and b, a sync, c over a, a mark.
fn run() -> Result<Run, Error> {
    Crash::new(3 * 4096).record(|disk| {
        disk.mark("begun")?;
        put(disk, 0, b'a')?;
        put(disk, 2, b'b')?;
        disk.sync_data()?;
        put(disk, 0, b'c')?;
        disk.mark("written")
    })
}

/// All states with their marks.
fn seen(run: &Run) -> Result<BTreeSet<String>, Error> {
    let mut seen = BTreeSet::new();
    let mut calls = 0;
    let report = run.explore(|state, mark| -> Result<(), String> {
        seen.insert(format!("{} {}", letters(state), mark.unwrap_or("-")));
        calls += 1;
        Ok(())
    })?;
    assert_eq!((report.checked(), report.failed()), (calls, 0));
    assert_eq!(calls, seen.len() as u64, "an equal state was checked twice");
    Ok(seen)
}

#[test]
fn a_cache_leaves_any_content_since_the_last_sync() -> Result<(), Error> {
    let expected = [
        "... begun",
        "a.. begun",
        "..b begun",
        "a.b begun",
        "c.b begun",
        "a.b written",
        "c.b written",
    ];
    assert_eq!(seen(&run()?)?, expected.map(str::to_owned).into());
    let at_marks = ["... begun", "a.b written", "c.b written"];
    assert_eq!(
        seen(&run()?.at(At::Mark))?,
        at_marks.map(str::to_owned).into()
    );
    // Before the sync takes effect; the whole run comes first.
    let at_syncs = ["... begun", "a.. begun", "..b begun", "a.b begun"];
    assert_eq!(
        seen(&run()?.at(At::Flush))?,
        at_syncs.map(str::to_owned).into()
    );
    Ok(())
}

#[test]
fn the_death_of_the_process_leaves_every_write() -> Result<(), Error> {
    let expected = [
        "... begun",
        "a.. begun",
        "a.b begun",
        "c.b begun",
        "c.b written",
    ];
    assert_eq!(
        seen(&run()?.model(Model::Prefix))?,
        expected.map(str::to_owned).into()
    );
    Ok(())
}

#[test]
fn no_mark_before_the_first_one() -> Result<(), Error> {
    let record = || {
        Crash::new(3 * 4096).record(|disk| {
            put(disk, 1, b'x')?;
            disk.mark("x")?;
            put(disk, 1, b'y')
        })
    };
    let expected = ["... -", ".x. -", "... x", ".x. x", ".y. x"];
    assert_eq!(seen(&record()?)?, expected.map(str::to_owned).into());
    assert_eq!(
        seen(&record()?.after_mark())?,
        expected[2..].iter().map(|at| (*at).to_owned()).collect()
    );
    Ok(())
}

/// 2^10 states at the last point: as many as asked for, by seed.
#[test]
fn many_states_are_drawn_by_seed() -> Result<(), Error> {
    let record =
        || Crash::new(10 * 4096).record(|disk| (0..10).try_for_each(|unit| put(disk, unit, b'x')));
    let drawn = |run: Run| -> Result<Vec<Vec<u8>>, Error> {
        let mut states = Vec::new();
        let report = run.explore(|state, _| -> io::Result<()> {
            let mut bytes = vec![0; 10 * 4096];
            state.disk().read_exact_at(&mut bytes, 0)?;
            states.push(bytes.into_iter().step_by(4096).collect());
            Ok(())
        })?;
        report.assert_none_failed();
        Ok(states)
    };
    let few = drawn(record()?.states(8))?;
    assert_eq!(few, drawn(record()?.states(8))?);
    assert_ne!(few, drawn(record()?.states(8).seed(2))?);
    assert!(few.len() <= 80, "{}", few.len());
    assert_eq!(drawn(record()?.states(1024))?.len(), 1024);
    Ok(())
}

#[test]
fn a_panic_is_a_failed_state_with_its_place_and_message() -> Result<(), Error> {
    let run = run()?;
    let mut calls = 0;
    let report = run.explore(|state, _| -> Result<(), String> {
        calls += 1;
        assert!(!letters(state).starts_with('c'), "it starts with c");
        Ok(())
    })?;
    // c.b under both marks; the exploration continues.
    assert_eq!((report.checked(), report.failed()), (7, 2), "{report}");
    let shortest = report.shortest().unwrap();
    assert!(
        shortest
            .ended
            .starts_with("panicked at daemon/crash/tests/crash/states.rs:")
            || shortest
                .ended
                .starts_with("panicked at tests/crash/states.rs:"),
        "{shortest:?}"
    );
    assert_eq!(shortest.reason, "it starts with c");
    assert_eq!(
        shortest.explanation,
        ["power fails after entry 5 (write of 4096 bytes at 0)"]
    );
    let again = run.case(&shortest.case, |_, _| -> Result<(), String> {
        panic!("again")
    })?;
    assert_eq!(again.shortest().unwrap().reason, "again");
    assert!(
        again
            .to_string()
            .contains("\nagain\nthe check: panicked at "),
        "{again}"
    );
    Ok(())
}

#[test]
fn the_failures_wanted_end_the_exploration() -> Result<(), Error> {
    for (failures, failed) in [(1, 1), (3, 3), (0, 7)] {
        let report = run()?
            .failures(failures)
            .explore(|_, _| Err("never right"))?;
        assert_eq!(report.failed(), failed, "{report}");
    }
    Ok(())
}

/// Of eight units that a careless store needs together, the report has the one that matters.
#[test]
fn the_shortest_case_lacks_one_unit() -> Result<(), Error> {
    let run = Crash::new(16 * 4096).record(|disk| {
        (0..16).try_for_each(|unit| put(disk, unit, b'x'))?;
        disk.mark("all")
    })?;
    let report = run.at(At::Mark).explore(|state, _| {
        let mut byte = [0];
        state.disk().read_exact_at(&mut byte, 11 * 4096).unwrap();
        if byte == [0] {
            Err("unit 11 is missing")
        } else {
            Ok(())
        }
    })?;
    let shortest = report.shortest().unwrap();
    assert_eq!(shortest.case, "cache/17/11=0");
    assert_eq!(shortest.mark.as_deref(), Some("all"));
    assert_eq!(
        shortest.explanation[1],
        "bytes 45056 to 49151 keep the content of the last FLUSH, not of entry 12 (write of 4096 bytes at 45056)"
    );
    Ok(())
}

/// Writes of one check are not in the next state, neither on the disk nor in the image.
#[test]
fn what_a_check_writes_is_gone_in_the_next_state() -> Result<(), Error> {
    let report = run()?.explore(|state, _| -> io::Result<()> {
        let mut image = vec![0; 3 * 4096];
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(state.image()?)?;
        file.read_exact_at(&mut image, 0)?;
        let mut bytes = vec![0; 3 * 4096];
        state.disk().read_exact_at(&mut bytes, 0)?;
        assert!(image == bytes, "image and disk differ");
        assert!(!bytes.contains(&b'!'), "a repair of another state");
        state.disk().write_all_at(b"!", 5000)?;
        state.disk().sync_data()?;
        state.disk().mark("repaired")?;
        file.write_all_at(b"!", 6000)?;
        file.set_len(100_000)?;
        state.disk().read_exact_at(&mut bytes, 0)?;
        assert_eq!((bytes[5000], bytes[6000]), (b'!', 0));
        Ok(())
    })?;
    report.assert_none_failed();
    assert_eq!(report.checked(), 7);
    Ok(())
}
