//! Crashes of the host below an image: between two syncs the host's disk keeps any subset of the
//! writes, torn at sectors. For every subset, the image opens, the scheme mounts, and the oracle
//! finds all flushed data. The same with writes and syncs rejected by the host.

use ftld_battery::host_crashes;
use ftld_tests::suite;

/// Runs a part of the battery for every scheme on both kinds of cells, and fails if a case failed.
fn for_every_scheme(what: &str, part: host_crashes::Part) {
    let mut cases = 0;
    for (scheme, cells) in suite::matrix() {
        let mut verdicts = suite::verdicts("host_crash", scheme);
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
    println!("{cases} {what}");
}

#[test]
fn host_crash_loses_nothing_flushed() {
    for_every_scheme("crash states", host_crashes::all_along);
}

/// A crash during image creation leaves a file that is rejected with a reason, or a new image.
#[test]
fn host_crash_during_create_leaves_valid_or_refused_image() {
    for_every_scheme("new images", host_crashes::new_images);
}

/// The n-th write of the host's file fails, for every n: no acknowledged data is lost, and the next
/// request succeeds.
#[test]
fn refused_host_write_fails_only_its_request() {
    for_every_scheme("refused writes", host_crashes::refused_writes);
}

/// A sync that fails once loses its data for good, although the next sync succeeds. No request is
/// acknowledged after it, and data flushed before persists.
#[test]
fn failed_sync_stops_acknowledgements_and_loses_nothing_flushed() {
    for_every_scheme("failed syncs", host_crashes::failed_syncs);
}
