//! Short forms of the sweeps of `power_cut` and `host_crash`, in the order that detects mistakes
//! soonest. The first failure ends the run. Correct code passes; `tests/canaries/run.py` and
//! `tests/mutants.py` run the suite on code with a mistake.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_battery::crashes::{self, EIO, ENOSPC};
use ftld_battery::cuts;
use ftld_battery::rig::Cells;
use ftld_battery::sweep::{self, Outcomes};
use ftld_battery::verdicts::Verdicts;
use ftld_battery::workload::Kind;
use ftld_tests::suite;
use std::time::Instant;

type Sweep = fn(&'static Scheme, Cells, &mut Verdicts);

/// Sweeps in the order of their runs.
const SWEEPS: [(&str, Sweep); 10] = [
    (
        "cuts in short rows of requests",
        |scheme, cells, verdicts| {
            sweep::cut_short_rows(
                &sweep::rig_of(scheme, cells, &suite::budget(scheme)),
                3,
                17,
                verdicts,
            );
        },
    ),
    ("cuts among failing blocks", |scheme, cells, verdicts| {
        for salt in 0..6 {
            let rig = sweep::with_failing_blocks(
                sweep::rig_of(scheme, cells, &suite::budget(scheme)),
                salt,
            );
            let recording = cuts::record_operations(&rig, Kind::HotCold, 2_000);
            sweep::cut_run(&rig, "hot_cold", &recording, 150, Outcomes::Three, verdicts);
        }
    }),
    ("syncs that fail", |scheme, cells, verdicts| {
        let rig = crashes::rig_of(scheme, cells, &suite::budget(scheme));
        (0..2).for_each(|n| {
            verdicts.case(&format!("{}/bad_sync/{n}", rig.path()), || {
                crashes::fail_sync(&rig, n)
            })
        });
    }),
    ("cuts of workloads", |scheme, cells, verdicts| {
        for kind in [Kind::TrimHeavy, Kind::HotCold, Kind::Log, Kind::FullDisk] {
            let rig = sweep::rig_of(scheme, cells, &suite::budget(scheme));
            sweep::cut_run(
                &rig,
                kind.name(),
                &cuts::record_operations(&rig, kind, 2_000),
                5,
                Outcomes::Three,
                verdicts,
            );
        }
    }),
    ("cuts inside mounts", |scheme, cells, verdicts| {
        let rig = sweep::rig_of(scheme, cells, &suite::budget(scheme));
        sweep::cut_mounts(
            &rig,
            "full_disk",
            &cuts::record(&rig, Kind::FullDisk),
            47,
            Outcomes::Three,
            verdicts,
        );
    }),
    ("lost checkpoints", |scheme, cells, verdicts| {
        let rig = sweep::rig_of(scheme, cells, &suite::budget(scheme));
        Kind::ALL
            .iter()
            .for_each(|kind| sweep::lose_checkpoints(&rig, *kind, false, verdicts));
    }),
    ("cuts in a row", |scheme, cells, verdicts| {
        sweep::cut_in_a_row(
            &sweep::rig_of(scheme, cells, &suite::budget(scheme)),
            60,
            verdicts,
        );
    }),
    ("random cuts", |scheme, cells, verdicts| {
        let rig = sweep::rig_of(scheme, cells, &suite::budget(scheme)).set("ckpt.interval", "40");
        let run =
            || sweep::cut_at_random(&rig, Kind::TrimHeavy, 4_000 / SCHEMES.len() as u64).map(drop);
        verdicts.case(&format!("{}/random", rig.path()), run);
    }),
    ("crashes of the host", |scheme, cells, verdicts| {
        let rig = crashes::rig_of(scheme, cells, &suite::budget(scheme));
        [Kind::FullDisk, Kind::TrimHeavy]
            .iter()
            .for_each(|kind| crashes::crash_all_along(&rig, *kind, 12, verdicts));
    }),
    ("writes that the host refuses", |scheme, cells, verdicts| {
        let rig = crashes::rig_of(scheme, cells, &suite::budget(scheme));
        for (index, how) in (0..40)
            .step_by(4)
            .zip([(ENOSPC, 700), (EIO, 100)].into_iter().cycle())
        {
            let here = format!("{}/refused/{index}", rig.path());
            verdicts.case(&here, || {
                crashes::refuse_write(&rig, 40, index, how, &mut true)
            });
        }
    }),
];

/// All sweeps of a scheme run before those of the next, the default scheme's first. They detect
/// mistakes in shared code as soon as with one scheme. A panic outside a case ends the run as well.
/// `FTLD_SCHEME` selects one scheme.
#[test]
fn shortened_sweeps_find_no_failure() {
    let (began, mut all) = (Instant::now(), suite::verdicts_of_all("hunt"));
    let only = std::env::var("FTLD_SCHEME")
        .ok()
        .map(|name| Scheme::find(&name).expect("FTLD_SCHEME names a scheme"));
    for scheme in SCHEMES
        .iter()
        .filter(|scheme| only.is_none_or(|only| only.name == scheme.name))
    {
        let mut verdicts = suite::verdicts("hunt", scheme).until_first_failure();
        for (name, sweep) in SWEEPS {
            for cells in Cells::ALL {
                sweep(scheme, cells, &mut verdicts);
                if let Some(failure) = verdicts.first() {
                    panic!("{name}, case {}: {failure}", all.cases + verdicts.cases);
                }
            }
        }
        all.merge(verdicts);
    }
    println!(
        "{} cases, {}, {:.1} s",
        all.cases,
        all.sample(),
        began.elapsed().as_secs_f64()
    );
}
