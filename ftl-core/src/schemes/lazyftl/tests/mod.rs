mod faults;
mod paper;

use super::*;
use crate::block_table::State;
use crate::families::paged::tests::{
    self as common, assert_sound, config, content, profile, read, write,
};
use crate::families::paged::{HOST, MAP, map_pages};
use crate::ftl::Ftl;
use crate::gc::GarbageCollect;
use crate::trims::UntilWritten;
use crate::{Lpn, Start};
use nand_model::store::{MemStore, OobOnlyStore};
use nand_model::{BlockFault, Cause, Fault, FaultPlan, Nanos, Pbn, SplitMix};

type Lazy = PagedFtl<WholePages>;

fn format(profile: Profile, config: &FtlConfig) -> Lazy {
    common::format(new, profile, config)
}

fn remount(ftl: Lazy, config: &FtlConfig) -> Lazy {
    common::remount(new, ftl, config)
}

fn agrees_with_a_model(
    profile: Profile,
    logical_pages: u32,
    steps: u64,
    seed: u64,
    params: &[(&str, &str)],
) {
    let converts = common::agrees_with_a_model(new, profile, logical_pages, steps, seed, params);
    assert!(converts > 100, "{converts} converts");
}

fn survives_cuts(
    profile: Profile,
    logical_pages: u32,
    seed: u64,
    cuts: u64,
    params: &[(&str, &str)],
) -> u64 {
    common::survives_cuts(new, profile, logical_pages, seed, cuts, params)
}

#[test]
fn what_was_written_is_read_back_on_mlc() {
    agrees_with_a_model(
        profile("torture", 56),
        560,
        40_000,
        1,
        &[("ckpt.interval", "500")],
    );
}

#[test]
fn what_was_written_is_read_back_on_slc() {
    let small = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 60).geometry
    };
    let slc = Profile {
        geometry: small,
        ..profile("slc-2k", 60)
    };
    agrees_with_a_model(
        slc,
        600,
        40_000,
        2,
        &[("lazy.cache_pages", "1"), ("ckpt.interval", "800")],
    );
}

#[test]
fn mlc_survives_cuts_anywhere() {
    let checkpoints = survives_cuts(
        profile("torture", 56),
        400,
        3,
        40,
        &[("ckpt.interval", "120")],
    );
    assert!(checkpoints > 80, "{checkpoints}");
}

#[test]
fn mlc_survives_cuts_by_its_age_window_alone() {
    let params = [
        ("ckpt.interval", "0"),
        ("lazy.age_window", "12"),
        ("lazy.cache_pages", "1"),
    ];
    survives_cuts(profile("torture", 56), 400, 4, 40, &params);
}

#[test]
fn slc_survives_cuts_anywhere() {
    let small = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 60).geometry
    };
    survives_cuts(
        Profile {
            geometry: small,
            ..profile("slc-2k", 60)
        },
        400,
        5,
        40,
        &[("ckpt.interval", "120")],
    );
}

#[test]
fn every_placement_keeps_what_it_must() {
    common::every_placement_keeps_what_it_must(new);
}

/// Returns the paper's device with few blocks.
fn small_paper_device() -> (Lazy, FtlConfig) {
    let config = config(3000, &[("ckpt.interval", "0"), ("wear.policy", "none")]);
    (format(profile("lazyftl", 80), &config), config)
}

fn block_of(ftl: &Lazy, lpn: u32) -> Pbn {
    let entry = ftl.map.pending.get(lpn).expect("in the UMT");
    ftl.space
        .geometry()
        .block_of(entry.ppn().expect("not trimmed"))
}

/// Eleven blocks are converted, and a block of the update area has no valid page. GC converts and
/// takes that one while each converted block has at least 15/16 of its 64 pages valid: 60.
#[test]
fn a_block_of_the_update_area_is_converted_early_while_converted_ones_are_nearly_full() {
    let victim = |superseded: u32| {
        let (mut ftl, _) = small_paper_device();
        (0..64).for_each(|lpn| write(&mut ftl, lpn, 1));
        let first = block_of(&ftl, 0);
        // The last of these blocks supersedes pages of the first one, which counts once converted.
        (64..640).for_each(|lpn| write(&mut ftl, lpn, 1));
        (0..superseded).for_each(|lpn| write(&mut ftl, lpn, 2));
        (640..704 - superseded).for_each(|lpn| write(&mut ftl, lpn, 2));
        let filled: Vec<Pbn> = (ftl.map.pending.blocks().map(|(block, _)| block))
            .filter(|block| ftl.space.table.state(*block) == State::Full)
            .collect();
        (filled.into_iter()).for_each(|block| ftl.convert(block).unwrap());
        // The block that takes these is full when the last one goes to another.
        (0..65).for_each(|n| write(&mut ftl, 640, 3 + n));
        let valid = ftl.space.table.valid_count(first);
        let converts = ftl.stats.converts;
        let victim = ftl.select_victim().unwrap().expect("a block to collect");
        let taken = ftl.space.table.valid_count(victim);
        assert_sound(&mut ftl);
        (valid, taken, ftl.stats.converts - converts)
    };
    assert_eq!(victim(4), (60, 0, 1));
    assert_eq!(victim(5), (59, 59, 0));
}

#[test]
fn impossible_parameters_are_refused_with_a_reason() {
    let refusals = [
        ("lazy.buffer_blocks", "3", "at least 4"),
        ("lazy.cache_pages", "0", "at least 1"),
        ("lazy.age_window", "7", "at least 8"),
        ("lazy.valid_tracking", "oob_mark", "use ram_bitmap"),
        ("lazy.valid_tracking", "lookup", "neither"),
        ("gc.free_threshold", "8", "need 9"),
        ("nand.pair_policy", "hope", "neither"),
    ];
    let device = profile("torture", 56);
    for (key, value, reason) in refusals {
        let chip = Chip::over(device, MemStore::new(device.geometry)).unwrap();
        match new(chip, &config(300, &[(key, value)]), Start::Format) {
            Err(FtlError::Config(text)) => {
                assert!(text.contains(reason) && text.contains(key), "{text}")
            }
            _ => panic!("{key}={value} was taken"),
        }
    }
}

#[test]
fn the_areas_have_room_for_an_open_block_of_every_stream() {
    let device = profile("torture", 80);
    let start = |params: &[(&str, &str)]| {
        let chip = Chip::over(device, MemStore::new(device.geometry)).unwrap();
        new(chip, &config(300, params), Start::Format)
    };
    // `age` has seven streams of data.
    let raised = start(&[("gc.placement", "age")]).unwrap();
    assert_eq!(raised.map.settings.buffer_blocks, Some(9));
    match start(&[("gc.placement", "age"), ("lazy.buffer_blocks", "8")]) {
        Err(FtlError::Config(text)) => assert!(text.contains("at least 9"), "{text}"),
        _ => panic!("eight blocks for seven streams were taken"),
    }
}

#[test]
fn the_age_window_has_room_for_the_blocks_that_a_conversion_opens() {
    let device = profile("torture", 160);
    let start = |window| {
        let chip = Chip::over(device, MemStore::new(device.geometry)).unwrap();
        let params = [("gc.placement", "age"), ("lazy.age_window", window)];
        new(chip, &config(300, &params), Start::Format)
    };
    assert!(start("28").is_ok());
    match start("27") {
        Err(FtlError::Config(text)) => assert!(text.contains("at least 28"), "{text}"),
        _ => panic!("a window of 27 blocks for seven lanes was taken"),
    }
}

/// Lays out a device of this size, with as many factory bad blocks as its data sheet allows.
fn laid_out(name: &str, bytes: u64, op: f64, params: &[(&str, &str)]) -> (Lazy, FtlConfig) {
    let params = config(0, params).params;
    let scheme = Scheme::find("lazyftl").unwrap();
    let layout = scheme
        .layout(Profile::find(name).unwrap(), bytes, op, &params)
        .unwrap();
    let config = FtlConfig {
        logical_pages: layout.logical_pages,
        params,
    };
    let mut chip = Chip::over(layout.profile, MemStore::new(layout.profile.geometry)).unwrap();
    chip.mark_factory_bad(9).unwrap();
    (new(chip, &config, Start::Format).unwrap(), config)
}

#[test]
fn a_full_device_takes_random_overwrites_and_cuts() {
    for (name, bytes) in [
        ("torture", 1 << 20),
        ("torture", 4 << 20),
        ("mlc-4k", 32 << 20),
        ("slc-2k", 16 << 20),
    ] {
        for (op, params) in [
            (0.07, &[][..]),
            (
                0.02,
                &[("lazy.cache_pages", "1"), ("lazy.buffer_blocks", "4")][..],
            ),
        ] {
            let (mut ftl, config) = laid_out(name, bytes, op, params);
            let pages = config.logical_pages;
            let mut rng = SplitMix::new(8);
            let mut model: Vec<u64> = (1..=pages as u64).collect();
            (0..pages).for_each(|lpn| write(&mut ftl, lpn, model[lpn as usize]));
            for step in 0..3 * pages as u64 {
                let lpn = rng.below(pages as u64) as u32;
                model[lpn as usize] = 1_000_000 + step;
                write(&mut ftl, lpn, model[lpn as usize]);
                if step % (pages as u64 / 4) == 0 {
                    ftl = remount(ftl, &config);
                }
            }
            assert_sound(&mut ftl);
            (0..pages).for_each(|lpn| assert_eq!(read(&mut ftl, lpn), model[lpn as usize]));
            assert_eq!(ftl.stats().mapped_pages, pages as u64, "{name} {bytes}");
        }
    }
}

#[test]
fn trims_alone_do_not_fill_the_device() {
    let (mut ftl, config) = laid_out("torture", 2 << 20, 0.07, &[]);
    let mut rng = SplitMix::new(5);
    let pages = config.logical_pages;
    for step in 0..6 * pages as u64 {
        let lpn = rng.below(pages as u64 - 1) as u32;
        write(&mut ftl, lpn, step);
        ftl.trim(0, Lpn::new(lpn), 1 + rng.below(2) as u32).unwrap();
        if step % 100 == 0 {
            ftl.trim(0, Lpn::new(0), pages).unwrap();
        }
        assert!(ftl.map.trims.len() as u32 <= UntilWritten::limit(&ftl.space.geometry()));
    }
    assert_sound(&mut ftl);
    ftl.trim(0, Lpn::new(0), pages).unwrap();
    let mut ftl = remount(ftl, &config);
    assert_eq!(ftl.stats().mapped_pages, 0);
    assert!((0..pages).all(|lpn| read(&mut ftl, lpn) == 0));
    assert_sound(&mut ftl);
}

#[test]
fn a_block_leaves_the_window_only_when_what_superseded_it_is_safe() {
    let params = [
        ("ckpt.interval", "0"),
        ("lazy.buffer_blocks", "4"),
        ("lazy.age_window", "8"),
    ];
    let mut ftl = format(profile("torture", 56), &config(300, &params));
    let age = |ftl: &mut Lazy, blocks: u64| {
        let until = ftl.space.next_epoch() + blocks;
        while ftl.space.next_epoch() < until {
            ftl.ensure_space(MAP).unwrap();
            ftl.map
                .load_map_page(&mut ftl.space, 1, false, Cause::Translation)
                .unwrap();
            ftl.map
                .program_map_page(&mut ftl.space, 1, 0, Cause::Translation)
                .unwrap();
        }
    };
    (0..16).for_each(|lpn| write(&mut ftl, lpn, 1));
    ftl.flush(0).unwrap();
    let old = block_of(&ftl, 0);
    age(&mut ftl, 6);
    write(&mut ftl, 0, 2);
    let new = ftl.map.pending.get(0).unwrap().ppn().unwrap();
    assert!(ftl.map.pending.holds(old) && !ftl.space.is_safe(new));
    age(&mut ftl, 4);
    assert!(
        !ftl.map.pending.holds(old),
        "the old block is out of the window"
    );
    assert!(
        ftl.map.pending.holds(ftl.space.geometry().block_of(new)),
        "the new one is not"
    );
    assert!(
        ftl.space.is_safe(new),
        "a cut now would lose the old version's block and the new version"
    );
}
