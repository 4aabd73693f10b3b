//! Do the suites find mistakes? Every seeded bug of [`nand_model::canary`] is armed in turn and has to be found out by the sweeps that the
//! suites are built of, at about the length of their short forms, in a fixed order; without one they all pass.
//!
//! A build of its own (`--features canary`): no other build contains the mistakes.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_tests::crashes::{self, EIO, ENOSPC};
use ftld_tests::cuts;
use ftld_tests::rig::{self, Cells, Verdicts};
use ftld_tests::sweep::{self, Outcomes};
use ftld_tests::workload::Kind;
use nand_model::canary::{self, Canary};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How a case is repeated.
const SUITE: &str = "canaries --features canary";

/// In this time each has to be found out.
const LIMIT: Duration = Duration::from_secs(60);

type Sweep = fn(&'static Scheme, Cells, &mut Verdicts);

/// What is tried, in this order.
const SWEEPS: [(&str, Sweep); 10] = [
    ("cuts in short rows of requests", |scheme, cells, verdicts| {
        sweep::cut_short_rows(&sweep::rig_of(scheme, cells), 3, 17, verdicts);
    }),
    ("cuts among failing blocks", |scheme, cells, verdicts| {
        for salt in 0..6 {
            let rig = sweep::with_failing_blocks(sweep::rig_of(scheme, cells), salt);
            let recording = cuts::record_operations(&rig, Kind::HotCold, 2_000);
            sweep::cut_run(&rig, "hot_cold", &recording, 150, Outcomes::Three, verdicts);
        }
    }),
    ("syncs that fail", |scheme, cells, verdicts| {
        let rig = crashes::rig_of(scheme, cells);
        (0..2).for_each(|n| verdicts.case(&format!("{}/bad_sync/{n}", rig.path()), || crashes::fail_sync(&rig, n)));
    }),
    ("cuts of workloads", |scheme, cells, verdicts| {
        for kind in [Kind::TrimHeavy, Kind::HotCold, Kind::Log, Kind::FullDisk] {
            let rig = sweep::rig_of(scheme, cells);
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
        let rig = sweep::rig_of(scheme, cells);
        sweep::cut_mounts(&rig, "full_disk", &cuts::record(&rig, Kind::FullDisk), 47, Outcomes::Three, verdicts);
    }),
    ("lost checkpoints", |scheme, cells, verdicts| {
        let rig = sweep::rig_of(scheme, cells);
        Kind::ALL.iter().for_each(|kind| sweep::lose_checkpoints(&rig, *kind, false, verdicts));
    }),
    ("cuts in a row", |scheme, cells, verdicts| {
        sweep::cut_in_a_row(&sweep::rig_of(scheme, cells), 60, verdicts);
    }),
    ("random cuts", |scheme, cells, verdicts| {
        let rig = sweep::rig_of(scheme, cells).set("ckpt.interval", "40");
        let run = || sweep::cut_at_random(&rig, Kind::TrimHeavy, 4_000 / SCHEMES.len() as u64).map(drop);
        verdicts.case(&format!("{}/random", rig.path()), run);
    }),
    ("crashes of the host", |scheme, cells, verdicts| {
        let rig = crashes::rig_of(scheme, cells);
        [Kind::FullDisk, Kind::TrimHeavy].iter().for_each(|kind| crashes::crash_all_along(&rig, *kind, 12, verdicts));
    }),
    ("writes that the host refuses", |scheme, cells, verdicts| {
        let rig = crashes::rig_of(scheme, cells);
        for (index, how) in (0..40).step_by(4).zip([(ENOSPC, 700), (EIO, 100)].into_iter().cycle()) {
            let here = format!("{}/refused/{index}", rig.path());
            verdicts.case(&here, || crashes::refuse_write(&rig, 40, index, how, &mut true));
        }
    }),
];

/// Runs the sweeps until one finds something. Returns which did, and what. All of the default scheme's come first: what they find, they
/// find as soon however many schemes there are.
fn find(verdicts: &mut Verdicts) -> Option<(&'static str, String)> {
    for (scheme, cells) in rig::matrix() {
        for (name, sweep) in SWEEPS {
            // A run that fails before any cut is found out as well.
            let outcome = catch_unwind(AssertUnwindSafe(|| sweep(scheme, cells, verdicts)));
            if outcome.is_err() || verdicts.are_enough() {
                let first = verdicts.first().unwrap_or("a run fails before its cut");
                return Some((name, first.lines().next().unwrap_or_default().to_string()));
            }
        }
    }
    None
}

fn hunt(canary: Canary) -> Result<(), String> {
    canary::arm(Some(canary));
    let (began, mut verdicts) = (Instant::now(), Verdicts::until_first_failure(SUITE));
    let found = find(&mut verdicts);
    canary::arm(None);
    let (took, cases) = (began.elapsed(), verdicts.cases);
    match found {
        Some((sweep, what)) if took < LIMIT => {
            println!("canary {canary:?}: caught by {sweep} after {cases} cases, {:.2} s: {what}", took.as_secs_f64());
            Ok(())
        }
        Some((sweep, _)) => Err(format!("{canary:?}: caught by {sweep} only after {:.0} s", took.as_secs_f64())),
        None => Err(format!("{canary:?}: nothing found it in {cases} cases, {:.0} s", took.as_secs_f64())),
    }
}

#[test]
fn every_canary_is_found_out() {
    let one = std::env::var("FTLD_CANARY").ok();
    let wanted: Vec<Canary> = Canary::ALL
        .into_iter()
        .filter(|canary| one.as_ref().is_none_or(|name| *name == format!("{canary:?}")))
        .collect();
    assert!(!wanted.is_empty(), "FTLD_CANARY={one:?} is no canary of {:?}", Canary::ALL);
    let missed: Vec<String> = rig::in_parallel(&wanted, |canary| hunt(*canary).err()).into_iter().flatten().collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What finds the canaries finds nothing without them.
#[test]
fn without_a_canary_the_same_cases_pass() {
    let (began, mut verdicts) = (Instant::now(), Verdicts::new(SUITE));
    let found = find(&mut verdicts);
    println!("no canary: {} cases, {}, {:.1} s", verdicts.cases, verdicts.sample(), began.elapsed().as_secs_f64());
    verdicts.assert_none_failed();
    assert_eq!(found, None);
}
