//! The log of orders, with and without the sync of a record.

use crate::log::{Log, Storage};
use ftld_crash::{Crash, Disk, Error, Model, Run, State};
use std::io;

impl Storage for Disk {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A record of order `n`; some are longer than a unit.
fn order(n: u64) -> Vec<u8> {
    let length = 100 + n as usize * 997 % 6000;
    (0..length).map(|at| (at as u64 + n) as u8).collect()
}

fn place_orders(careful: bool, orders: u64) -> Result<Run, Error> {
    Crash::new(1 << 20).record(|disk| -> io::Result<()> {
        let mut log = Log::open(disk.clone(), careful)?;
        for n in 1..=orders {
            log.append(&order(n))?;
            disk.mark(n)?;
        }
        Ok(())
    })
}

/// The log opens, has all acknowledged orders, and takes one more.
fn check(state: &State, mark: Option<&str>) -> Result<(), String> {
    let acknowledged = mark.map_or(0, |mark| mark.parse().unwrap());
    let text = |error: io::Error| error.to_string();
    let mut log = Log::open(state.disk().clone(), true).map_err(text)?;
    let records = log.records().map_err(text)?;
    let found = records.len() as u64;
    if found < acknowledged {
        return Err(format!(
            "{acknowledged} orders were acknowledged, there are {found}"
        ));
    }
    for (n, record) in (1..).zip(records) {
        assert!(record == order(n), "order {n} is another one");
    }
    log.append(&order(found + 1)).map_err(text)?;
    let log = Log::open(state.disk().clone(), true)
        .map_err(text)?
        .records();
    assert_eq!(log.map_err(text)?.len() as u64, found + 1);
    Ok(())
}

#[test]
fn a_log_that_syncs_each_record_survives_every_power_cut() -> Result<(), Error> {
    let run = place_orders(true, 30)?;
    let report = run.explore(check)?;
    report.assert_none_failed();
    // Two writes, two syncs and a mark per order; after a write the new units and the old ones.
    assert_eq!(report.points(), 150);
    assert!(report.states() > 240 && report.checked() > 90, "{report}");
    run.model(Model::Prefix)
        .explore(check)?
        .assert_none_failed();
    Ok(())
}

#[test]
fn a_log_that_counts_a_record_before_it_is_durable_is_caught() -> Result<(), Error> {
    let run = place_orders(false, 20)?;
    let report = run.explore(check)?;
    let shortest = report.shortest().expect("a failing case");
    assert_eq!(shortest.case, "cache/2/1=0");
    let explained = [
        "power fails after entry 2 (write of 24 bytes at 0)",
        "bytes 4096 to 8191 keep the content of the last FLUSH, not of entry 1 (write of 1113 bytes at 4096)",
    ];
    assert_eq!(shortest.explanation, explained);
    assert_eq!(shortest.mark, None);
    assert_eq!(shortest.ended, "returned an error");
    assert_eq!(shortest.reason, "record 0 of 1 is damaged");
    let text = report.to_string();
    for line in [
        "the run: 40 changes, 20 FLUSHes, 20 marks",
        "model cache, cut at every request: ",
        "shortest failing case:\n  power fails after entry 2",
        "  no mark before the cut\n  the check: returned an error\n    record 0 of 1 is damaged\n",
        "show it again:\n  run.case(\"cache/2/1=0\", check)\n",
        "stopped after 10 failed states; failures(0) visits all",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    // The case fails again, its neighbour without the loss does not; nor does the death of the
    // process lose anything.
    let again = run.case("cache/2/1=0", check)?;
    assert_eq!(again.shortest(), Some(shortest));
    run.case("cache/2", check)?.assert_none_failed();
    run.model(Model::Prefix)
        .explore(check)?
        .assert_none_failed();
    Ok(())
}

#[test]
#[should_panic(
    expected = "shortest failing case:\n  power fails after entry 2 (write of 24 bytes at 0)"
)]
fn a_test_of_the_careless_log_fails_with_the_report() {
    let run = place_orders(false, 3).unwrap();
    run.explore(check).unwrap().assert_none_failed();
}

/// The log runs unchanged on a file.
#[test]
fn the_image_of_a_state_opens_as_a_file() -> Result<(), Error> {
    let run = place_orders(true, 6)?;
    let report = run.explore(|state, mark| -> io::Result<()> {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(state.image()?)?;
        assert_eq!(file.metadata()?.len(), 1 << 20);
        let on_file = Log::open(file, true)?.records()?;
        assert_eq!(on_file, Log::open(state.disk().clone(), true)?.records()?);
        assert!(on_file.len() >= mark.map_or(0, |mark| mark.parse().unwrap()));
        Ok(())
    })?;
    report.assert_none_failed();
    assert!(report.checked() > 18, "{report}");
    Ok(())
}
