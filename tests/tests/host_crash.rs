//! Crashes of the host below an image: between two syncs the host's disk keeps any subset of what
//! was written, torn at sectors. Whatever it keeps, the image opens, the scheme mounts, and the
//! oracle finds everything flushed. The same with writes and syncs that the host refuses.

use ftld_battery::crashes::{self, EIO, ENOSPC, rig_of};
use ftld_battery::workload::Kind;
use ftld_tests::suite;
use nand_model::store::SimDisk;
use nand_model::{Access, ImageError, SplitMix};

#[test]
fn whatever_a_crash_of_the_host_keeps_everything_flushed_is_there() {
    let moments = if suite::long() { 1_100 } else { 30 };
    let mut states = 0;
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("host_crash", scheme);
        for kind in [Kind::FullDisk, Kind::Mixed, Kind::TrimHeavy] {
            crashes::crash_all_along(&rig, kind, moments, &mut verdicts);
        }
        println!(
            "{}: {} crash states, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
        states += verdicts.cases;
    }
    println!("{states} crash states");
}

/// While an image is made, a crash leaves a file that is refused with a reason, or a new image.
#[test]
fn a_crash_while_an_image_is_made_is_no_riddle() {
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let (disk, host) = crashes::device(&rig);
        let whole = disk.bytes();
        drop(host);
        for length in (0..whole.len()).step_by(2048) {
            let short = SimDisk::holding(whole[..length].to_vec());
            let error = short
                .open(Access::ReadWrite)
                .map(drop)
                .expect_err("an image that ends early is no image");
            let told = matches!(
                error,
                ImageError::TooShort { .. }
                    | ImageError::NotAnImage(_)
                    | ImageError::HeaderDamaged(_)
            );
            assert!(told, "{length}: {error}");
        }
        // No sync succeeds, so everything since the first byte may be missing.
        let sectors = whole.len() / 512;
        let mut rng = SplitMix::new(rig.seed);
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(8) {
                let sector = rng.below(sectors as u64) as usize;
                bytes[sector * 512..][..512].fill(0);
            }
            if let Ok((store, _)) = SimDisk::holding(bytes).open(Access::ReadWrite) {
                let _ = rig.mount(rig.open(store)).map(drop);
            }
        }
    }
}

/// The n-th write of the host's file fails, for every n: nothing acknowledged is lost, and the next
/// request goes well.
#[test]
fn every_write_that_the_host_refuses_costs_its_request_and_no_more() {
    let (requests, every) = if suite::long() { (160, 1) } else { (60, 7) };
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("host_crash", scheme);
        for (errno, arrives) in [(ENOSPC, 0), (ENOSPC, 700), (EIO, 0), (EIO, 100)] {
            // More than any scheme writes for so many requests.
            for index in (0..requests as u64 * 64).step_by(every) {
                let here = format!("{}/refused/{errno}/{arrives}/{index}", rig.path());
                if !suite::wanted(&here) || !verdicts.draws(&here) {
                    continue;
                }
                let mut reached = true;
                verdicts.case(&here, || {
                    crashes::refuse_write(&rig, requests, index, (errno, arrives), &mut reached)
                });
                if !reached {
                    break;
                }
            }
        }
        println!(
            "{}: {} refused writes, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
    }
}

/// A sync that fails once loses what it was to write for good, although the next one succeeds.
/// Nothing is acknowledged after it, and what was flushed before is there.
#[test]
fn a_sync_that_fails_once_ends_the_device_and_loses_nothing_flushed_before() {
    let rounds = if suite::long() { 200 } else { 12 };
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, suite::seed());
        let mut verdicts = suite::verdicts("host_crash", scheme);
        for round in 0..rounds {
            verdicts.case(&format!("{}/bad_sync/{round}", rig.path()), || {
                crashes::fail_sync(&rig, round)
            });
        }
        println!(
            "{}: {} failed syncs, {} failed",
            rig.path(),
            verdicts.cases,
            verdicts.failures
        );
        verdicts.assert_none_failed();
    }
}
