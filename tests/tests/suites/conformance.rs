//! Every scheme against the oracle, with bad blocks as the only faults: thousands of requests,
//! checks, clean and unclean remounts. Includes overwrites of a full device, factory-bad blocks,
//! failing programs and erases, and the end of life.

use ftld_battery::conformance;
use ftld_tests::suite;

/// Runs a part of the battery for every scheme on both kinds of cells, and fails if a case failed.
fn for_every_scheme(part: conformance::Part) {
    for (scheme, cells) in suite::matrix() {
        let rig = conformance::rig_of(scheme, cells, &suite::budget(scheme));
        let mut verdicts = suite::verdicts("conformance", scheme);
        part(&rig, &mut verdicts);
        verdicts.assert_none_failed();
    }
}

#[test]
fn written_data_is_read_after_collections_and_mounts() {
    for_every_scheme(conformance::collections_and_mounts);
}

#[test]
fn fully_mapped_device_can_be_overwritten() {
    for_every_scheme(conformance::overwrites);
}

#[test]
fn mapped_and_trimmed_pages_are_distinguished() {
    for_every_scheme(conformance::mapped_pages);
}

/// A device without checkpoints accepts an unlimited number of trims.
#[test]
fn trims_without_checkpoints_do_not_fill_the_device() {
    for_every_scheme(conformance::trims_without_checkpoints);
}

/// As many factory-bad blocks as the data sheet allows, at positions from the seed.
#[test]
fn factory_bad_blocks_are_never_used() {
    for_every_scheme(conformance::factory_bad_blocks);
}

/// Failing programs and erases, each in a block chosen by the seed, as many as the data sheet
/// allows.
#[test]
fn failing_blocks_lose_nothing() {
    for_every_scheme(conformance::failing_blocks);
}

/// The host's file system is sometimes full, at any point. Requests fail, but no data is lost and
/// no block retires. The same request succeeds when there is space again.
#[test]
fn full_host_file_system_fails_requests_and_retires_no_block() {
    for_every_scheme(conformance::full_host);
}

/// Blocks fail until the device becomes read-only: acknowledged data stays readable, flushes
/// continue, and the device mounts.
#[test]
fn a_worn_out_device_turns_read_only_and_loses_nothing() {
    for_every_scheme(conformance::worn_out);
}
