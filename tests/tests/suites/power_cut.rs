//! Power cuts: at every program and erase of every workload, inside mounts, a thousand in a row,
//! and with destroyed checkpoints. The oracle (`ftld_battery::model`) defines the permitted losses;
//! docs/DURABILITY.md describes them.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_battery::parallel::in_parallel;
use ftld_battery::power_cuts;
use ftld_battery::rig::{self, Cells, Rig};
use ftld_battery::sweep::{self, rig_of};
use ftld_battery::verdicts::Verdicts;
use ftld_tests::suite;
use std::time::Instant;

/// Checks that the long form has at least the number of cases in docs/TESTING.md.
fn promised(what: &str, cases: u64, least: u64) {
    println!("{cases} {what}");
    assert!(
        cases >= least || !suite::is_acceptance(),
        "{cases} {what}, promised {least}"
    );
}

/// Runs a part of the battery for every scheme on both kinds of cells, and fails if a case failed.
/// Returns the number of cases.
fn for_every_scheme(what: &str, part: impl Fn(&'static Scheme, Cells, &mut Verdicts)) -> u64 {
    let mut cases = 0;
    for (scheme, cells) in suite::matrix() {
        let mut verdicts = suite::sampled_verdicts("power_cut", scheme);
        part(scheme, cells, &mut verdicts);
        println!(
            "{}/{}: {} {what}, {} failed; {}",
            scheme.name,
            cells.name(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
        cases += verdicts.cases;
    }
    cases
}

fn every_operation(cells: Cells, promise: u64) {
    let mut tried = 0;
    for scheme in SCHEMES {
        let mut verdicts = suite::sampled_verdicts("power_cut", scheme);
        let began = Instant::now();
        let power_cuts::Swept {
            operations,
            workloads,
        } = power_cuts::every_operation(scheme, cells, &mut verdicts);
        println!(
            "{}/{}: {} cuts at {operations} operations of {workloads} workloads, {} failed; {}; {:.1} s",
            scheme.name,
            cells.name(),
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

/// Word lines of three pages.
#[test]
fn a_cut_at_every_operation_loses_nothing_flushed_on_tlc() {
    every_operation(Cells::Tlc, 0);
}

/// Word lines of four pages.
#[test]
fn a_cut_at_every_operation_loses_nothing_flushed_on_qlc() {
    every_operation(Cells::Qlc, 0);
}

/// The same inside mounts and many times in a row.
#[test]
fn cuts_on_long_word_lines_inside_mounts_and_in_a_row_lose_nothing_flushed() {
    for (scheme, cells) in suite::long_word_lines() {
        let mut verdicts = suite::sampled_verdicts("power_cut", scheme);
        power_cuts::inside_mounts(scheme, cells, &mut verdicts);
        println!(
            "{}/{}: {} cuts inside mounts, {} failed",
            scheme.name,
            cells.name(),
            verdicts.cases,
            verdicts.failures
        );
        verdicts.assert_none_failed();
        in_a_row(&rig_of(scheme, cells, &suite::budget(scheme)));
    }
}

/// The suite is able to detect losses: it finds some once paired-page protection is off.
#[test]
fn without_pair_protection_the_same_cuts_lose_flushed_data() {
    let mut tried = 0;
    for scheme in SCHEMES
        .iter()
        .filter(|scheme| rig::has_param(scheme, "nand.pair_policy"))
    {
        let path = format!("{}/{}", scheme.name, Cells::Mlc.name());
        if !suite::wanted(&path) {
            continue;
        }
        let mut verdicts = suite::sampled_verdicts("power_cut", scheme).of_everything();
        power_cuts::without_pair_protection(scheme, &mut verdicts);
        println!(
            "{path}: {} of {} cuts lose data without protection",
            verdicts.failures, verdicts.cases
        );
        assert!(
            verdicts.failures > 10,
            "{path}: only {} cuts were found out",
            verdicts.failures
        );
        tried += 1;
    }
    assert!(tried > 0, "no scheme can have its protection switched off");
}

/// Some outcomes at every operation of variants of the usual rig: programs and erases that fail on
/// their own, other word-line pairings, lost OOB marks.
#[test]
fn cuts_with_failing_blocks_other_pairings_or_lost_marks_lose_nothing_flushed() {
    for_every_scheme("cuts in variants", power_cuts::variants);
}

/// Cuts on a device of four channels, sixteen dies and two planes, and on four planes that operate
/// together, over which the page maps among these schemes stripe their streams.
#[test]
fn cuts_on_sixteen_dies_lose_nothing_flushed() {
    let mut cases = 0;
    for name in ["pagemap", "lazyftl", "dftl", "mnftl"] {
        let scheme = Scheme::find(name).expect("a scheme of the table");
        for cells in [Cells::Mlc, Cells::Qlc] {
            let mut verdicts = suite::sampled_verdicts("power_cut", scheme);
            power_cuts::sixteen_dies(scheme, cells, &mut verdicts);
            println!(
                "{name}/{}: {} cuts on sixteen dies, {} failed",
                cells.name(),
                verdicts.cases,
                verdicts.failures
            );
            verdicts.assert_none_failed();
            cases += verdicts.cases;
        }
    }
    promised("cuts on sixteen dies", cases, 20_000);
}

/// Cuts on a device with blocks in SLC mode: at every operation of a run with folds, inside the
/// mounts after them, and in a row.
#[test]
fn cuts_of_a_device_that_folds_an_slc_region_lose_nothing_flushed() {
    let mut cases = 0;
    for scheme in SCHEMES {
        for cells in Cells::LONG_WORD_LINES {
            let mut verdicts = suite::sampled_verdicts("power_cut", scheme);
            power_cuts::slc_region(scheme, cells, &mut verdicts);
            if verdicts.cases > 0 {
                println!(
                    "{}/{}: {} cuts around an SLC region, {} failed",
                    scheme.name,
                    cells.name(),
                    verdicts.cases,
                    verdicts.failures
                );
            }
            verdicts.assert_none_failed();
            cases += verdicts.cases;
        }
    }
    promised("cuts around an SLC region", cases, 0);
}

/// A second cut inside the mount after the first one, after that mount has programmed or erased
/// something. The short form runs samples. The long form runs every pair of operations and outcomes
/// on a tiny device, and samples of all workloads on the usual one.
#[test]
fn a_cut_inside_a_mount_loses_nothing_flushed() {
    let cases = for_every_scheme("cuts inside mounts", power_cuts::inside_mounts);
    promised("cuts inside mounts", cases, 100_000);
}

/// A random third cut, inside the mount after the second one; both mounts had programmed or erased
/// something.
#[test]
fn a_cut_inside_the_mount_after_a_cut_mount_loses_nothing_flushed() {
    let cases = for_every_scheme("third cuts", power_cuts::inside_second_mounts);
    promised("third cuts", cases, 100_000);
}

/// Every sequence of four requests on two pages of a full device, cut at every operation. The short
/// form runs every second sequence of three.
#[test]
fn cuts_in_short_request_sequences_lose_nothing_flushed() {
    for_every_scheme("cuts in short rows", power_cuts::short_rows);
}

#[test]
fn a_full_device_stays_writable_through_cuts_in_a_row() {
    for (scheme, cells) in suite::matrix() {
        in_a_row(&rig_of(scheme, cells, &suite::budget(scheme)));
    }
}

/// The same on chips with commercial geometry: large blocks, where a cut leaves much of a block
/// unused.
#[test]
fn a_real_size_device_stays_writable_through_cuts_in_a_row() {
    for (scheme, cells) in suite::matrix() {
        in_a_row(&power_cuts::real_size_rig(
            scheme,
            cells,
            &suite::budget(scheme),
        ));
    }
}

fn in_a_row(rig: &Rig) {
    let mut verdicts = suite::sampled_verdicts("power_cut", rig.scheme);
    let cuts = power_cuts::cuts_in_a_row(rig, &verdicts);
    let fewest = power_cuts::in_a_row(rig, &mut verdicts);
    if verdicts.cases > 0 {
        let sweep::FewestFree { found, left } = fewest;
        println!(
            "{}: {cuts} cuts in a row; mounts found {found} free blocks and left {left}",
            rig.path()
        );
    }
    verdicts.assert_none_failed();
}

/// Random cuts of any outcome in sequence, on a few hundred blocks of a chip with commercial
/// geometry: a million in the long form.
#[test]
fn random_cuts_of_a_real_size_device_lose_nothing_flushed() {
    let rigs: Vec<Rig> = SCHEMES
        .iter()
        .flat_map(|scheme| (0..power_cuts::RANDOM_ROWS).map(move |row| (scheme, row)))
        .map(|(scheme, row)| power_cuts::random_rig(scheme, row, &suite::budget(scheme)))
        .collect();
    let total = if suite::long() { 1_000_000 } else { 2_000 };
    let cuts = total / rigs.len() as u64;
    let rows = in_parallel(&rigs, |rig| {
        let began = Instant::now();
        let mut verdicts = suite::sampled_verdicts("power_cut", rig.scheme);
        let seen = power_cuts::at_random(rig, cuts, &mut verdicts);
        let (blocks, took) = (rig.profile.geometry.blocks, began.elapsed().as_secs_f64());
        println!(
            "{}: {} on {blocks} blocks, {seen:?}, {took:.1} s",
            rig.path(),
            power_cuts::random_kind(rig).name()
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

/// Each checkpoint block in turn becomes unreadable; the state it recorded must still hold.
#[test]
fn loss_of_any_checkpoint_block_loses_nothing_flushed() {
    for_every_scheme(
        "losses of a checkpoint block or page",
        |scheme, cells, verdicts| {
            power_cuts::lost_checkpoints(scheme, cells, verdicts);
            let path = format!("{}/{}", scheme.name, cells.name());
            assert!(
                verdicts.places > 0 || !suite::wanted(&path),
                "{path}: no checkpoint block was found"
            );
        },
    );
}
