use super::*;
use crate::addr::Lpn;
use crate::families::paged::tests::{self as common, profile};
use nand_model::{Cause, SplitMix};

const SMALL: (&str, &str) = ("learned.cache", "256");

#[test]
fn what_was_written_is_read_back() {
    common::cached_map_agrees_with_a_model(new, SMALL);
}

#[test]
fn every_placement_keeps_what_it_must() {
    common::every_placement_keeps_what_it_must(new);
}

#[test]
fn it_survives_cuts_anywhere() {
    common::cached_map_survives_cuts(new, SMALL);
}

#[test]
fn groups_keep_what_they_must() {
    let params = [
        SMALL,
        ("learned.groups", "3"),
        ("ckpt.interval", "120"),
        ("map.age_window", "64"),
    ];
    for (seed, pieces) in [(11, "2"), (12, "16")] {
        let params: Vec<_> = params
            .into_iter()
            .chain([("learned.pieces", pieces)])
            .collect();
        common::agrees_with_a_model(new, profile("torture", 90), 560, 16_000, seed, &params);
        common::survives_cuts(new, profile("torture", 90), 400, seed, 8, &params);
    }
}

/// 256 logical blocks of 16 pages with 7 % over-provisioning; mapping pages have 128 entries.
fn device(params: &[(&str, &str)]) -> (PagedFtl<Learned>, FtlConfig) {
    let slc = profile("slc-2k", 0);
    let profile = Profile {
        geometry: Geometry {
            pages_per_block: 16,
            page_bytes: 512,
            ..slc.geometry
        },
        ..slc
    };
    let config = common::config(PAGES, params);
    let overhead = overhead_blocks(&profile, PAGES, &config.params).unwrap();
    let blocks = PAGES / 16 * 107 / 100 + overhead;
    let ftl = common::format(new, profile.with_blocks(blocks), &config);
    (ftl, config)
}

const PAGES: u32 = 4096;

fn fill(ftl: &mut PagedFtl<Learned>) {
    for lpn in 0..PAGES {
        common::write(ftl, lpn, 1);
    }
}

fn mapping_reads(ftl: &PagedFtl<Learned>) -> u64 {
    ftl.space
        .flash
        .chip()
        .counters()
        .of(Cause::Translation)
        .reads
}

/// Returns the share of random reads that read a mapping page.
fn double_reads(ftl: &mut PagedFtl<Learned>) -> f64 {
    let mut rng = SplitMix::new(3);
    let (before, reads) = (mapping_reads(ftl), 4000);
    for _ in 0..reads {
        common::read(ftl, rng.below(PAGES.into()) as u32);
    }
    (mapping_reads(ftl) - before) as f64 / f64::from(reads)
}

#[test]
fn pages_written_in_order_are_read_at_once() {
    let (mut ftl, _) = device(&[SMALL]);
    fill(&mut ftl);
    assert_eq!(double_reads(&mut ftl), 0.0);
    let (mut ftl, _) = device(&[SMALL, ("learned.pieces", "0")]);
    fill(&mut ftl);
    let without = double_reads(&mut ftl);
    assert!(without > 0.9, "without models {without} are double reads");
}

#[test]
fn after_a_mount_each_mapping_page_is_read_once() {
    let (mut ftl, config) = device(&[SMALL]);
    fill(&mut ftl);
    ftl.shutdown(0).unwrap();
    let mut ftl = common::remount(new, ftl, &config);
    let before = mapping_reads(&ftl);
    double_reads(&mut ftl);
    assert_eq!(mapping_reads(&ftl) - before, u64::from(PAGES / 128));
}

/// Random single pages: a group that was rewritten is in order but for what was written since.
#[test]
fn groups_are_rewritten_in_order_under_random_writes() {
    let after_random_writes = |groups| {
        let (mut ftl, _) = device(&[SMALL, ("learned.groups", groups), ("learned.pieces", "32")]);
        fill(&mut ftl);
        let mut rng = SplitMix::new(8);
        for n in 0..4 * u64::from(PAGES) {
            common::write(&mut ftl, rng.below(PAGES.into()) as u32, 2 + n);
        }
        common::assert_sound(&mut ftl);
        double_reads(&mut ftl)
    };
    let (without, with) = (after_random_writes("1"), after_random_writes("4"));
    assert!(
        with < 0.3 && without > 0.6,
        "{with} with groups, {without} without"
    );
}

/// A write takes the time of its program, and of work that counts as a stall: of the rewriting of
/// groups, too, which reads mapping pages if nothing predicts what they have.
#[test]
fn a_write_waits_for_nothing_that_is_no_stall() {
    let (mut ftl, _) = device(&[SMALL, ("learned.groups", "4"), ("learned.pieces", "0")]);
    let timing = ftl.space.flash.chip().profile().timing;
    let own_ns = timing.bus_ns + timing.program_ns.iter().max().unwrap();
    let page = vec![7; ftl.space.geometry().page_len()];
    let stalled = |ftl: &PagedFtl<Learned>| -> u64 {
        let stalls = ftl.stats().write_stalls;
        stalls.iter().map(|totals| totals.total_ns).sum()
    };
    let read = |ftl: &PagedFtl<Learned>| {
        let counters = ftl.space.flash.chip().counters();
        counters.of(Cause::GcTranslation).reads
    };
    let (mut rng, mut at) = (SplitMix::new(8), 0);
    for n in 0..5 * PAGES {
        let lpn = match n < PAGES {
            true => n,
            false => rng.below(PAGES.into()) as u32,
        };
        let before = stalled(&ftl);
        let done = ftl.write(at, Lpn::new(lpn), &page).unwrap();
        let waited = done - at - (stalled(&ftl) - before);
        assert!(
            waited <= own_ns,
            "write {n} took {waited} ns besides stalls"
        );
        at = done;
    }
    assert!(read(&ftl) > 100, "{} mapping pages are read", read(&ftl));
}

#[test]
fn parameters_out_of_range_are_named() {
    for (key, value) in [
        ("learned.cache", "127"),
        ("learned.pieces", "65"),
        ("learned.groups", "0"),
        ("learned.groups", "17"),
    ] {
        let config = common::config(PAGES, &[(key, value)]);
        let error = overhead_blocks(&profile("slc-2k", 300), PAGES, &config.params);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
