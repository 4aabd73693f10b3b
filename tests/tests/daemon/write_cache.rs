//! The write cache of the daemon: nothing acknowledged is lost by a kill, nothing flushed by a
//! power cut, and what a power cut leaves is what the model says: see [`ftld_tests::write_cache`].
//!
//! `FTLD_LONG=1` runs 10,000 cuts over five schemes; `FTLD_SEED` sets the first seed.

use ftld_device::volume::write_cache::Model;
use ftld_tests::write_cache::{Report, Setup, run, schemes};
use ftld_tests::{announce, suite};
use nand_model::SplitMix;

/// Model, power-loss protection, and the share of the cuts in percent.
const MODELS: [(Model, bool, u64); 4] = [
    (Model::Any, false, 50),
    (Model::Ordered, false, 25),
    (Model::Lost, false, 12),
    (Model::Any, true, 13),
];
/// Rounds of a device.
const ROUNDS: u64 = 5;

fn runs(suite: &str, cuts: u64, cuts_only: bool, shards: &[u32]) -> [Report; MODELS.len()] {
    let mut rng = SplitMix::new(suite::seed());
    let mut reports = [Report::default(); MODELS.len()];
    for (place, (model, protected, share)) in MODELS.into_iter().enumerate() {
        if model == Model::Ordered && !shards.is_empty() {
            // Refused: several caches keep no common order.
            continue;
        }
        let each = cuts * share / 100 / 5 / ROUNDS;
        for scheme in schemes() {
            for number in 0..each.max(1) as usize {
                let seed = rng.next_u64();
                let setup = Setup::draw(scheme.name, model, protected, seed);
                let setup = match shards {
                    [] => setup,
                    _ => setup.on_shards(shards[number % shards.len()], seed),
                };
                let report = run(setup, seed, ROUNDS, cuts_only).unwrap_or_else(|why| {
                    panic!("{suite}: {why}");
                });
                reports[place].add(&report);
            }
        }
        announce(&format!(
            "write_cache: {suite}: {} protected={protected}: {:?}",
            model.name(),
            reports[place]
        ));
    }
    reports
}

#[test]
fn power_cuts_leave_what_the_model_says_and_lose_nothing_flushed() {
    let cuts = if suite::long() { 10_000 } else { 600 };
    let [any, ordered, lost, protected] = runs("power cuts", cuts, true, &[]);
    let seen = [any.units.new, any.units.torn, any.units.old, any.units.lost];
    assert!(
        seen.iter().all(|&count| count > 0),
        "not every way occurred: {any:?}"
    );
    let seen = [any.newest, any.between, any.base, any.torn_writes];
    assert!(
        seen.iter().all(|&count| count > 0),
        "not every way was seen: {any:?}"
    );
    for report in [any, ordered, lost, protected] {
        assert!(
            report.dirty_cuts > 0 && report.starts_interrupted > 0,
            "{report:?}"
        );
    }
    assert!(
        ordered.units.new > 0 && ordered.units.lost > 0,
        "{ordered:?}"
    );
    assert!(any.written_back.iter().all(|&bytes| bytes > 0), "{any:?}");
    assert_eq!((lost.units.new, lost.units.old, lost.units.torn), (0, 0, 0));
    assert_eq!(protected.units.lost + protected.units.old, 0);
    assert!(lost.units.lost > 0 && protected.units.new > 0);
    assert!(lost.lost_whole > 0, "no cut without a write-back: {lost:?}");
}

#[test]
fn kills_lose_nothing_and_host_crashes_nothing_flushed() {
    let rounds = if suite::long() { 4_000 } else { 300 };
    let mut total = Report::default();
    for report in runs("kills and crashes", rounds, false, &[]) {
        total.add(&report);
    }
    let stops = [total.stops, total.stops_interrupted];
    let ends = [total.kills, total.crashes, total.cuts].into_iter();
    assert!(ends.chain(stops).all(|count| count > 0), "{total:?}");
}

#[test]
fn each_of_several_shards_loses_what_the_model_says_and_nothing_flushed() {
    let cuts = if suite::long() { 5_000 } else { 400 };
    let [any, _, lost, protected] = runs("power cuts of shards", cuts, true, &[2, 4]);
    let seen = [any.units.new, any.units.torn, any.units.old, any.units.lost];
    assert!(
        seen.iter().all(|&count| count > 0),
        "not every way occurred: {any:?}"
    );
    assert_eq!((lost.units.new, lost.units.old, lost.units.torn), (0, 0, 0));
    assert_eq!(protected.units.lost + protected.units.old, 0);
    assert!(lost.units.lost > 0 && protected.units.new > 0);
    let mut total = Report::default();
    for report in runs("kills and crashes of shards", cuts / 2, false, &[2, 4]) {
        total.add(&report);
    }
    let stops = [total.stops, total.stops_interrupted, total.refusals];
    let ends = [total.kills, total.crashes, total.cuts].into_iter();
    assert!(ends.chain(stops).all(|count| count > 0), "{total:?}");
}
