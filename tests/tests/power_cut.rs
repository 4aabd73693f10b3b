//! Power cuts: at every program and erase of every workload, inside mounts, a thousand in a row,
//! and with checkpoints destroyed. What may be lost is the oracle's business (`ftld_battery::model`);
//! docs/DURABILITY.md says it in prose.

use ftl_core::Params;
use ftl_core::schemes::SCHEMES;
use ftld_battery::cuts::{self, Recording};
use ftld_battery::host::Host;
use ftld_battery::rig::{self, Cells, Rig};
use ftld_battery::sweep::{self, Outcomes, PAGES, rig_of};
use ftld_battery::verdicts::Verdicts;
use ftld_battery::workload::{Kind, Workload};
use ftld_tests::suite;
use nand_model::Pairing;
use std::time::Instant;

/// Programs and erases of each workload: in the long form as many as make a million cuts of all
/// schemes together, in the short form as few as prove something, and of those every second.
const LONG_OPERATIONS: u64 = 2_400;

/// In the long form there are as many cases as docs/TESTING.md says.
fn promised(what: &str, cases: u64, least: u64) {
    println!("{cases} {what}");
    assert!(
        cases >= least || !suite::is_acceptance(),
        "{cases} {what}, promised {least}"
    );
}

fn every_operation(cells: Cells, promise: u64) {
    let (least, every) = if suite::long() {
        (LONG_OPERATIONS, 1)
    } else {
        (0, 2)
    };
    let mut tried = 0;
    for scheme in SCHEMES {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("power_cut", scheme);
        let began = Instant::now();
        let (mut operations, mut workloads) = (0, 0);
        for kind in Kind::ALL {
            if !suite::wanted(&format!("{}/{}", rig.path(), kind.name())) {
                continue;
            }
            let recording = cuts::record_operations(&rig, kind, least);
            let missing = cuts::missing(&rig, &recording.coverage);
            assert_eq!(
                missing,
                None,
                "{}/{}: the workload proves too little",
                rig.path(),
                kind.name()
            );
            sweep::cut_run(
                &rig,
                kind.name(),
                &recording,
                every,
                Outcomes::by_form(verdicts.budget()),
                &mut verdicts,
            );
            operations += recording.operations();
            workloads += 1;
        }
        println!(
            "{}: {} cuts at {operations} operations of {workloads} workloads, {} failed; {}; {:.1} s",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample(),
            began.elapsed().as_secs_f64()
        );
        verdicts.assert_none_failed();
        tried += verdicts.cases;
    }
    promised("cuts at every operation", tried, promise);
}

#[test]
fn a_cut_at_every_operation_loses_nothing_flushed_on_slc() {
    every_operation(Cells::Slc, 350_000);
}

#[test]
fn a_cut_at_every_operation_loses_nothing_flushed_on_mlc() {
    every_operation(Cells::Mlc, 650_000);
}

/// Without protection of paired pages the very same suite must find losses, or it would not find
/// them with it.
#[test]
fn without_pair_protection_the_same_cuts_lose_flushed_data() {
    let mut tried = 0;
    for scheme in SCHEMES
        .iter()
        .filter(|scheme| rig::has_param(scheme, "nand.pair_policy"))
    {
        let rig = rig_of(scheme, Cells::Mlc, suite::seed()).set("nand.pair_policy", "none");
        if !suite::wanted(&rig.path()) {
            continue;
        }
        let mut verdicts = suite::verdicts("power_cut", scheme).of_everything();
        let recording = cuts::record(&rig, Kind::Uniform);
        sweep::cut_run(
            &rig,
            Kind::Uniform.name(),
            &recording,
            1,
            Outcomes::by_form(verdicts.budget()),
            &mut verdicts,
        );
        println!(
            "{}: {} of {} cuts lose data without protection",
            rig.path(),
            verdicts.failures,
            verdicts.cases
        );
        assert!(
            verdicts.failures > 10,
            "{}: only {} cuts were found out",
            rig.path(),
            verdicts.failures
        );
        tried += 1;
    }
    assert!(tried > 0, "no scheme can have its protection switched off");
}

/// Some of the outcomes at every operation of variants of the usual rig: programs and erases that
/// fail on their own, other word-line pairings, marks in the OOB that were lost.
#[test]
fn cuts_among_failing_blocks_other_pairings_and_lost_marks() {
    for (scheme, cells) in suite::matrix() {
        let mut verdicts = suite::verdicts("power_cut", scheme);
        for salt in 0..if suite::long() { 8 } else { 2 } {
            // Long enough for the blocks to be programmed and erased.
            let failing = sweep::with_failing_blocks(rig_of(scheme, cells, suite::seed()), salt);
            let recording = cuts::record_operations(&failing, Kind::HotCold, 2_000);
            let bad = recording.coverage.bad_blocks;
            assert!(bad >= 2, "{}: only {bad} blocks went bad", failing.path());
            cut_variant(&failing, &recording, 2, &mut verdicts);
        }
        if cells == Cells::Mlc {
            for pairing in [
                Pairing::Adjacent,
                Pairing::Dist6,
                Pairing::Shared4,
                Pairing::Group4,
            ] {
                let paired = rig_of(scheme, cells, suite::seed())
                    .variant(pairing.name(), |rig| rig.profile.pairing = pairing);
                cut_variant(
                    &paired,
                    &cuts::record(&paired, Kind::HotCold),
                    1,
                    &mut verdicts,
                );
            }
        }
        for (key, value) in [
            ("page.gc_stream", "same"),
            ("ckpt.interval", "0"),
            ("valid_tracking", "ram_bitmap"),
            ("mlam.ack", "buffer"),
        ] {
            if rig::has_param(scheme, key) {
                let other = rig_of(scheme, cells, suite::seed())
                    .variant(&format!("{key}={value}"), |_| {})
                    .set(key, value);
                cut_variant(&other, &after_filling(&other), 1, &mut verdicts);
            }
        }
        let unmarked = rig_of(scheme, cells, suite::seed()).variant("unmarked", |_| {});
        if let Some(recording) = cuts::record(&unmarked, Kind::HotCold).without_marks() {
            cut_variant(&unmarked, &recording, 1, &mut verdicts);
        }
        let (name, cells) = (scheme.name, cells.name());
        println!(
            "{name}/{cells}: {} cuts in variants, {} failed; {}",
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
    }
}

/// A run on a device that is full already, with what it may lack.
fn after_filling(rig: &Rig) -> Recording {
    let mut host = Host::format(rig);
    for op in Workload::new(Kind::HotCold, PAGES, rig.seed).take(400) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{}: {op:?}: {}", rig.path(), String::from(trouble)));
    }
    let workload = Workload::new(Kind::HotCold, PAGES, rig.seed + 1)
        .skip(60)
        .take(400);
    Recording::of(host, workload, |_| false)
}

/// Every operation in the long form, else every fifth of every `share`-th part.
fn cut_variant(rig: &Rig, recording: &Recording, share: usize, verdicts: &mut Verdicts) {
    let every = if suite::long() { 1 } else { 5 * share };
    sweep::cut_run(
        rig,
        Kind::HotCold.name(),
        recording,
        every,
        Outcomes::by_form(verdicts.budget()),
        verdicts,
    );
}

/// A second cut inside the mount that follows the first one, after the mount has programmed or
/// erased something: samples in the short form; in the long form every pair of operations and
/// outcomes on a tiny device, and samples of all workloads on the usual one.
#[test]
fn a_cut_inside_a_mount_loses_nothing_either() {
    let mut cases = 0;
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("power_cut", scheme);
        let (every, kinds) = if suite::long() {
            (29, &Kind::ALL[..])
        } else {
            (29, &[Kind::FullDisk, Kind::Mixed][..])
        };
        for kind in kinds {
            cut_mounts(&rig, *kind, every, Outcomes::Three, &mut verdicts);
        }
        if suite::long() {
            let tiny =
                Rig::with_params(scheme, cells, 64, rig.config.params.clone(), suite::seed())
                    .variant("tiny", |_| {});
            cut_mounts(&tiny, Kind::Mixed, 1, Outcomes::All, &mut verdicts);
        }
        println!(
            "{}: {} cuts inside mounts, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
        cases += verdicts.cases;
    }
    promised("cuts inside mounts", cases, 100_000);
}

/// A third cut, inside the mount after the second one, at random; both mounts had programmed or
/// erased something.
#[test]
fn a_cut_inside_the_mount_after_that_loses_nothing_either() {
    let (kinds, every, per_mount) = if suite::long() {
        (&Kind::ALL[..], 3, 16)
    } else {
        (&[Kind::HotCold, Kind::Files][..], 20, 2)
    };
    let mut cases = 0;
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("power_cut", scheme);
        for kind in kinds
            .iter()
            .filter(|kind| suite::wanted(&format!("{}/{}", rig.path(), kind.name())))
        {
            let recording = cuts::record(&rig, *kind);
            sweep::cut_mounts_of_mounts(
                &rig,
                kind.name(),
                &recording,
                every,
                per_mount,
                &mut verdicts,
            );
        }
        println!(
            "{}: {} third cuts, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
        cases += verdicts.cases;
    }
    promised("third cuts", cases, 100_000);
}

fn cut_mounts(rig: &Rig, kind: Kind, every: usize, outcomes: Outcomes, verdicts: &mut Verdicts) {
    if suite::wanted(&format!("{}/{}", rig.path(), kind.name())) {
        sweep::cut_mounts(
            rig,
            kind.name(),
            &cuts::record(rig, kind),
            every,
            outcomes,
            verdicts,
        );
    }
}

/// Every row of four requests on two pages of a full device, cut everywhere. The short form takes
/// every second row of three.
#[test]
fn every_short_row_of_requests_may_be_cut() {
    let (length, every) = if suite::long() { (4, 1) } else { (3, 2) };
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("power_cut", scheme);
        sweep::cut_short_rows(&rig, length, every, &mut verdicts);
        println!(
            "{}: {} cuts in short rows, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
    }
}

#[test]
fn a_full_device_stays_writable_through_cuts_in_a_row() {
    let cuts = if suite::long() { 1_000 } else { 100 };
    for (scheme, cells) in suite::matrix() {
        in_a_row(&rig_of(scheme, cells, suite::seed()), cuts);
    }
}

/// The same on chips as they are sold: large blocks, where a cut leaves much of a block unused.
#[test]
fn a_real_chip_stays_writable_through_cuts_in_a_row() {
    let cuts = if suite::long() { 1_000 } else { 40 };
    for (scheme, cells) in suite::matrix() {
        let name = if cells == Cells::Mlc {
            "mlc-4k"
        } else {
            "slc-2k"
        };
        let profile = *nand_model::Profile::find(name).expect("a built-in profile");
        let mut params = Params::default();
        params.set("ckpt.interval", "700");
        in_a_row(
            &Rig::on_profile(scheme, cells, profile, 1024, params, suite::seed())
                .variant(name, |_| {}),
            cuts,
        );
    }
}

/// Random cuts of any outcome on a chip as it is sold, some hundred blocks of it, one after
/// another: a million in the long form.
#[test]
fn random_cuts_of_a_real_chip_lose_nothing_flushed() {
    let profile = *nand_model::Profile::find("mlc-4k").expect("a built-in profile");
    let rigs: Vec<Rig> = SCHEMES
        .iter()
        .flat_map(|scheme| (0..RANDOM_ROWS).map(move |row| (scheme, row)))
        .map(|(scheme, row)| {
            let mut params = Params::default();
            params.set("ckpt.interval", "2000");
            Rig::on_profile(scheme, Cells::Mlc, profile, 10_240, params, suite::seed()).variant(
                &format!("random{row}"),
                |rig| {
                    rig.seed += row;
                },
            )
        })
        .collect();
    let total = if suite::long() { 1_000_000 } else { 2_000 };
    let cuts = total / rigs.len() as u64;
    let rows = suite::in_parallel(&rigs, |rig| {
        let (began, mut verdicts) = (Instant::now(), suite::verdicts("power_cut", rig.scheme));
        let mut seen = sweep::RandomCuts::default();
        let kind = RANDOM_KINDS[(rig.seed % RANDOM_KINDS.len() as u64) as usize];
        verdicts.case(&rig.path(), || {
            seen = sweep::cut_at_random(rig, kind, cuts)?;
            Ok(())
        });
        let (blocks, took) = (rig.profile.geometry.blocks, began.elapsed().as_secs_f64());
        println!(
            "{}: {} on {blocks} blocks, {seen:?}, {took:.1} s",
            rig.path(),
            kind.name()
        );
        (verdicts, seen.cuts)
    });
    rows.iter()
        .for_each(|(verdicts, _)| verdicts.assert_none_failed());
    promised(
        "random cuts",
        rows.iter().map(|(_, cuts)| cuts).sum(),
        1_000_000,
    );
}

/// Rows of random cuts per scheme, each with its own seed and workload.
const RANDOM_ROWS: u64 = 4;
const RANDOM_KINDS: [Kind; 4] = [Kind::HotCold, Kind::Mixed, Kind::Files, Kind::Uniform];

fn in_a_row(rig: &Rig, cuts: u32) {
    let mut verdicts = suite::verdicts("power_cut", rig.scheme);
    let fewest = sweep::cut_in_a_row(rig, cuts, &mut verdicts);
    if verdicts.cases > 0 {
        let sweep::FewestFree { found, left } = fewest;
        println!(
            "{}: {cuts} cuts in a row; mounts found {found} free blocks and left {left}",
            rig.path()
        );
    }
    verdicts.assert_none_failed();
}

/// Each checkpoint block in turn cannot be read any more: what it said is still true.
#[test]
fn any_checkpoint_block_may_be_lost() {
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("power_cut", scheme);
        for kind in Kind::ALL {
            for clean in [true, false] {
                sweep::lose_checkpoints(&rig, kind, clean, &mut verdicts);
            }
        }
        println!(
            "{}: {} losses of a checkpoint block or page, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        assert!(
            verdicts.places > 0 || !suite::wanted(&rig.path()),
            "{}: no checkpoint block was found",
            rig.path()
        );
        verdicts.assert_none_failed();
    }
}
