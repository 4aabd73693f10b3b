//! The paper's numbers and its worked example, and this implementation's additions.

use super::*;
use crate::addr::Lpn;
use crate::families::units::stream_of;
use crate::ftl::Ftl;
use crate::mapping::Mapping;
use nand_model::Store;
use nand_model::store::MemStore;
use nand_model::{Cause, Geometry, Pbn, Ppn, SplitMix};

const US: u64 = 1_000;

/// Returns the paper's device, or a small part of it.
fn paper(blocks: u32, pages_per_block: u32) -> Profile {
    let profile = *Profile::find("mnftl").unwrap();
    let geometry = Geometry {
        blocks,
        pages_per_block,
        ..profile.geometry
    };
    Profile {
        geometry,
        ..profile
    }
}

/// Returns the paper's mode: GC runs when no block is free, and erases at once.
fn paper_mode(logical_pages: u32, more: &[(&str, &str)]) -> FtlConfig {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    let mode = [
        ("gc.free_threshold", "2"),
        ("wear.policy", "none"),
        ("nand.pair_policy", "none"),
    ];
    mode.iter()
        .chain(more)
        .for_each(|(key, value)| config.params.set(key, value));
    config
}

fn blank(profile: Profile) -> Chip {
    Chip::over(profile, MemStore::new(profile.geometry)).unwrap()
}

fn made(chip: Chip, config: &FtlConfig, how: Start) -> UnitFtl<Mnftl> {
    create(chip, config, how).unwrap()
}

fn page(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(256)
}

/// Returns the emulated time of one write.
fn write(ftl: &mut UnitFtl<Mnftl>, lpn: u32, n: u64) -> u64 {
    let at = ftl.space.flash.chip().busy_until();
    ftl.write(at, Lpn::new(lpn), &page(n)).unwrap() - at
}

fn read(ftl: &mut UnitFtl<Mnftl>, lpn: u32) -> (u64, u64) {
    let at = ftl.space.flash.chip().busy_until();
    let mut out = vec![1; 2048];
    let done = ftl.read(at, Lpn::new(lpn), &mut out).unwrap();
    assert!(out.chunks_exact(8).all(|word| word == &out[..8]));
    (done - at, u64::from_le_bytes(out[..8].try_into().unwrap()))
}

/// Figure 4: eight pages per block, four slots per subtable; logical block 4 gets blocks 11 and 17.
#[test]
fn the_papers_example() {
    let profile = paper(30, 8);
    let mut chip = blank(profile);
    for block in (0..18).filter(|block| ![11, 17].contains(block)) {
        chip.mark_factory_bad_block(Pbn::new(block)).unwrap();
    }
    let mut ftl = made(
        chip,
        &paper_mode(48, &[("mnftl.subtables", "2")]),
        Start::Format,
    );
    for (n, lpn) in (1..).zip([35, 36, 33, 34, 37, 35, 38, 39, 33, 37, 38]) {
        write(&mut ftl, lpn, n);
    }
    assert_eq!(ftl.map.head_of(4, 0), Some(Ppn::new(136)));
    assert_eq!(ftl.map.head_of(4, 1), Some(Ppn::new(138)));
    Mapping::begin(&mut ftl);
    let before = ftl.space.flash.chip().counters().total();
    assert_eq!(
        ftl.map
            .look_up(&mut ftl.space, Lpn::new(36), Cause::Host)
            .unwrap(),
        89
    );
    let after = ftl.space.flash.chip().counters().total();
    assert_eq!(
        (after.partial_reads - before.partial_reads, after.reads),
        (1, before.reads)
    );
    assert_eq!(read(&mut ftl, 36), (80 * US, 2));
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn reads_and_writes_cost_what_the_paper_says() {
    let mut ftl = made(blank(paper(40, 128)), &paper_mode(1280, &[]), Start::Format);
    assert_eq!(
        write(&mut ftl, 200, 1),
        800 * US,
        "the first of its subtable"
    );
    assert_eq!(write(&mut ftl, 201, 2), 820 * US);
    assert_eq!(write(&mut ftl, 200, 3), 820 * US);
    assert_eq!(read(&mut ftl, 200), (80 * US, 3));
    assert_eq!(
        read(&mut ftl, 202),
        (20 * US, 0),
        "an unmapped page of a subtable that maps others"
    );
    assert_eq!(read(&mut ftl, 230), (0, 0), "a subtable that maps nothing");
}

/// 160 + 860 S + 1500 us for a GC run with S copies.
#[test]
fn collections_cost_what_the_paper_says() {
    for victim in ["max_chain", "global_min"] {
        let logical = 12 * 128;
        let mut ftl = made(
            blank(paper(24, 128)),
            &paper_mode(logical, &[("mnftl.victim", victim)]),
            Start::Format,
        );
        (0..logical).for_each(|lpn| _ = write(&mut ftl, lpn, 1));
        let mut rng = SplitMix::new(1);
        let mut runs = 0;
        for n in 0..20_000 {
            // Nine of ten writes go to four logical blocks.
            let among = if rng.one_in(10) { logical } else { 4 * 128 };
            let lpn = rng.below(among as u64) as u32;
            let (before, erases) = (
                ftl.stats(),
                ftl.space.flash.chip().counters().total().erases,
            );
            let took = write(&mut ftl, lpn, n);
            let (after, erased) = (
                ftl.stats(),
                ftl.space.flash.chip().counters().total().erases - erases,
            );
            let (collected, copied) = (
                after.gc_runs - before.gc_runs,
                after.gc_pages_moved - before.gc_pages_moved,
            );
            assert_eq!(
                took,
                (820 + 160 * collected + 860 * copied + 1500 * erased) * US,
                "write {n}, {victim}"
            );
            runs += collected;
        }
        assert!(runs > 100, "{victim}: {runs} collections");
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    }
}

/// 3160 us for a write, an erase and one copy: every block has one page that is not rewritten.
#[test]
fn the_papers_example_of_a_collection() {
    let mut ftl = made(blank(paper(8, 128)), &paper_mode(128, &[]), Start::Format);
    // Writes a page of every subtable first, so that GC must read all subtables.
    (0..8).for_each(|k| _ = write(&mut ftl, 16 * k + 15, 0));
    let mut writes = (0..2_000).map(|n| {
        let lpn = if n % 128 == 0 {
            n / 128
        } else {
            15 + 16 * (n % 8)
        };
        (write(&mut ftl, lpn, 1), ftl.stats())
    });
    let (took, stats) = writes.find(|(_, stats)| stats.gc_runs > 0).unwrap();
    // The first GC run opens the block that the write needs, the second returns one.
    assert_eq!((stats.gc_runs, stats.gc_pages_moved), (2, 2));
    let another = (8 * 20 + 60 + 800 + 1500) * US;
    assert_eq!(
        took - another - (20 + 8 * 20) * US,
        3160 * US,
        "without the reads of spare bytes"
    );
}

/// "If P + 1 physical blocks are mapped to the same logical block, at least one of them does not
/// have valid pages."
#[test]
fn of_more_full_blocks_than_pages_one_has_no_valid_page() {
    let mut ftl = made(blank(paper(60, 8)), &paper_mode(16, &[]), Start::Format);
    let mut rng = SplitMix::new(2);
    while ftl.map.lists.length(0) < 8 + 2 {
        write(&mut ftl, rng.below(8) as u32, 1);
    }
    let emptiest = ftl.map.emptiest_of(&ftl.space, 0).unwrap();
    assert_eq!(ftl.space.table.valid_count(emptiest), 0);
}

/// 34 bytes per logical block with one physical one: 1.06 MB for the paper's 32 x 1024.
#[test]
fn ram_is_counted_as_in_the_paper() {
    let mut ftl = made(
        blank(paper(40, 128)),
        &paper_mode(10 * 128, &[]),
        Start::Format,
    );
    (0..10).for_each(|lbn| _ = write(&mut ftl, lbn * 128, 1));
    let report = ftl.ram_report();
    let map = report
        .iter()
        .find(|entry| entry.part.name() == "map")
        .unwrap();
    assert_eq!((map.entries, map.paper_bytes), (10, 340));
    assert!(map.allocated_bytes > 0);
}

#[test]
fn a_part_with_too_few_spare_bytes_is_refused() {
    let config = paper_mode(1280, &[("mnftl.subtables", "4")]);
    let refused = start(blank(paper(40, 128)), &config, Start::Format)
        .map(drop)
        .unwrap_err();
    let FtlError::Config(why) = refused else {
        panic!("{refused}")
    };
    assert!(
        why.contains("92 spare bytes") && why.contains("has 64"),
        "{why}"
    );
}

/// Trims of single pages leave subtables in RAM. Their number stays below the limit, and trims of
/// whole logical blocks cost no reads.
#[test]
fn trims_leave_little_behind() {
    let logical = 64 * 128;
    let mut ftl = made(
        blank(paper(140, 128)),
        &paper_mode(logical, &[]),
        Start::Format,
    );
    (0..logical).for_each(|lpn| _ = write(&mut ftl, lpn, 1));
    for lpn in (0..logical).step_by(5) {
        ftl.trim(0, Lpn::new(lpn), 1).unwrap();
    }
    let (in_ram, trims) = ftl.map.groups_in_ram_and_trim_pages();
    assert!(in_ram <= 66, "{in_ram} subtables in RAM");
    assert!(trims < 2 * 128, "{trims} trim pages");
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    let before = ftl.space.flash.chip().counters().total();
    ftl.trim(0, Lpn::new(0), logical).unwrap();
    let after = ftl.space.flash.chip().counters().total();
    assert_eq!(
        (after.reads, after.partial_reads),
        (before.reads, before.partial_reads)
    );
    assert_eq!(
        (
            ftl.stats().mapped_pages,
            ftl.map.groups_in_ram_and_trim_pages().0,
            ftl.map.lists.total()
        ),
        (0, 0, 0)
    );
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

/// After a clean shutdown open blocks stay open; after any other stop none does.
#[test]
fn open_blocks_outlast_a_clean_stop_alone() {
    let config = paper_mode(1280, &[]);
    let mut ftl = made(blank(paper(40, 128)), &config, Start::Format);
    (0..10).for_each(|lbn| _ = write(&mut ftl, lbn * 128, lbn as u64));
    ftl.shutdown(0).unwrap();
    let mut ftl = made(ftl.space.flash.into_chip(), &config, Start::Mount);
    assert!(ftl.stats().mount.clean && ftl.map.groups_in_ram_and_trim_pages().0 == 0);
    let open = ftl.space.open_block(stream_of(3)).unwrap();
    assert_eq!(write(&mut ftl, 3 * 128 + 1, 77), 820 * US);
    assert_eq!(
        ftl.space.open_block(stream_of(3)),
        Some((open.0, open.1 + 1))
    );
    let mut chip = ftl.space.flash.into_chip();
    chip.power_on();
    let mut ftl = made(chip, &config, Start::Mount);
    assert!(!ftl.stats().mount.clean && ftl.space.open_block(stream_of(3)).is_none());
    assert_eq!(
        (read(&mut ftl, 3 * 128 + 1).1, read(&mut ftl, 4 * 128).1),
        (77, 4)
    );
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

/// A page whose record is lost also loses its subtable: the other pages restore the rest.
#[test]
fn a_lost_subtable_costs_the_page_that_carried_it() {
    let mut ftl = made(blank(paper(40, 128)), &paper_mode(1280, &[]), Start::Format);
    (0..128).for_each(|lpn| _ = write(&mut ftl, lpn, lpn as u64));
    let carrier = ftl.map.head_of(0, 2).unwrap();
    ftl.space
        .flash
        .chip_mut()
        .store_mut()
        .set_health(carrier, nand_model::Health::Lost)
        .unwrap();
    for lpn in 32..47 {
        assert_eq!(read(&mut ftl, lpn).1, lpn as u64);
    }
    let mut out = vec![0; 2048];
    assert_eq!(
        ftl.read(0, Lpn::new(47), &mut out),
        Err(FtlError::MediaLost(47))
    );
    write(&mut ftl, 47, 99);
    assert_eq!(read(&mut ftl, 47).1, 99);
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

/// A new device that is filled in random order: where logical blocks are written in part, the only
/// room is in their open blocks, and no full block has an invalid page.
#[test]
fn room_in_open_blocks_is_used() {
    for victim in ["max_chain", "global_min"] {
        let (profile, mut params) = (Profile::find("mlc-4k").unwrap(), Params::default());
        params.set("mnftl.victim", victim);
        let layout = SCHEME
            .layout(profile, 80 * 128 * 4096, 0.12, &params)
            .unwrap();
        let logical_pages = layout.logical_pages;
        let config = FtlConfig {
            logical_pages,
            params,
        };
        let mut ftl = made(blank(layout.profile), &config, Start::Format);
        let mut rng = SplitMix::new(1);
        let mut order: Vec<u32> = (0..logical_pages).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let mut newest = vec![0u64; logical_pages as usize];
        let mut number = 0u64;
        for (written, lpn) in (1..).zip(&order) {
            // One write in three goes to a page that was written before.
            let again = (rng.below(2) == 0).then(|| order[rng.below(written) as usize]);
            for lpn in [Some(*lpn), again].into_iter().flatten() {
                number += 1;
                let data = number.to_le_bytes().repeat(512);
                ftl.write(0, Lpn::new(lpn), &data).unwrap();
                newest[lpn as usize] = number;
            }
        }
        let mut out = vec![0; 4096];
        for (lpn, number) in (0..).zip(newest) {
            ftl.read(0, Lpn::new(lpn), &mut out).unwrap();
            assert_eq!(
                out,
                number.to_le_bytes().repeat(512),
                "{victim}: page {lpn}"
            );
        }
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    }
}
