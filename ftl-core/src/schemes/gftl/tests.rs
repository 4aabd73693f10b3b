//! The numbers of the sources, and the latency bound of every request.

use super::*;
use crate::addr::Lpn;
use crate::ftl::Ftl;
use crate::stats::SchemeStats;
use nand_model::store::MemStore;
use nand_model::{Geometry, SplitMix};

const US: u64 = 1_000;

fn device(name: &str, blocks: u32) -> Profile {
    let profile = *Profile::find(name).unwrap();
    Profile {
        geometry: Geometry {
            blocks,
            ..profile.geometry
        },
        ..profile
    }
}

/// Formats a device on which, as in the paper, only GC relocates pages.
fn format(profile: Profile, logical_pages: u32, more: &[(&str, &str)]) -> UnitFtl<Gftl> {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    let mode = [
        ("wear.policy", "none"),
        ("nand.pair_policy", "none"),
        ("scrub.hours", "0"),
    ];
    mode.iter()
        .chain(more)
        .for_each(|(key, value)| config.params.set(key, value));
    create(
        Chip::over(profile, MemStore::new(profile.geometry)).unwrap(),
        &config,
        Start::Format,
    )
    .unwrap()
}

/// Returns the emulated time of one write.
fn write(ftl: &mut UnitFtl<Gftl>, lpn: u32, n: u64) -> u64 {
    let at = ftl.space.flash.chip().busy_until();
    let page = ftl.space.geometry().page_bytes as usize;
    ftl.write(at, Lpn::new(lpn), &n.to_le_bytes().repeat(page / 8))
        .unwrap()
        - at
}

fn read(ftl: &mut UnitFtl<Gftl>, lpn: u32) -> (u64, u64) {
    let at = ftl.space.flash.chip().busy_until();
    let mut out = vec![1; ftl.space.geometry().page_bytes as usize];
    let done = ftl.read(at, Lpn::new(lpn), &mut out).unwrap();
    (done - at, u64::from_le_bytes(out[..8].try_into().unwrap()))
}

#[test]
fn a_slice_is_an_erase_or_as_many_copies_as_take_no_longer() {
    let sizes = |name| {
        let slicing = slicing(&device(name, 64), false);
        (slicing.pages, slicing.slot_ns / US)
    };
    assert_eq!(sizes("mnftl"), (1, 1500), "880 us a copy");
    assert_eq!(sizes("lazyftl"), (5, 1500), "300 us a copy");
    assert_eq!(sizes("slc-2k"), (5, 2000), "345 us a copy");
    assert_eq!(sizes("mlc-4k"), (2, 3500), "1375 us a copy");
    let mut slow = device("mnftl", 64);
    slow.timing.erase_ns = 500 * US;
    assert_eq!(
        slicing(&slow, false).slot_ns,
        880 * US,
        "one copy, though it is longer"
    );
}

#[test]
fn without_anything_to_clean_a_request_is_its_service() {
    let mut ftl = format(device("mnftl", 60), 30 * 128, &[]);
    assert_eq!(
        write(&mut ftl, 200, 1),
        800 * US,
        "the first of its subtable"
    );
    assert_eq!(write(&mut ftl, 201, 2), 820 * US);
    assert_eq!(read(&mut ftl, 200), (80 * US, 1));
    assert_eq!(read(&mut ftl, 230), (0, 0), "a subtable that maps nothing");
}

/// The published 1488 us are a read and 0.95 erases; here a whole erase, and the read of the
/// subtable.
#[test]
fn a_slot_may_be_waited_for_always() {
    let mut ftl = format(
        device("mnftl", 60),
        30 * 128,
        &[("gftl.slice_always", "true")],
    );
    assert_eq!(write(&mut ftl, 200, 1), (1500 + 800) * US);
    assert_eq!(read(&mut ftl, 200), ((1500 + 20 + 60) * US, 1));
    (0..128).for_each(|lpn| _ = write(&mut ftl, lpn, 1));
    let times: Vec<u64> = (0..300).map(|n| write(&mut ftl, n % 100, 2)).collect();
    assert!(ftl.stats().gc_pages_moved > 50, "slots were used");
    assert!(
        times
            .iter()
            .all(|time| (1500 + 800..=1500 + 820).contains(&(time / US))),
        "and none was longer: {times:?}"
    );
}

/// Work of a request besides its service.
#[derive(Debug, PartialEq, Eq)]
enum Slice {
    Nothing,
    Copies(u64),
    Erase,
}

fn slice_between(before: &(SchemeStats, u64), after: &(SchemeStats, u64)) -> Slice {
    let (copies, erases) = (
        after.0.gc_pages_moved - before.0.gc_pages_moved,
        after.1 - before.1,
    );
    match (copies, erases) {
        (0, 0) => Slice::Nothing,
        (copies, 0) => Slice::Copies(copies),
        (0, 1) => Slice::Erase,
        both => panic!("a request did {both:?} copies and erases"),
    }
}

/// Random requests for single pages; each takes at most its service and a slice.
fn bounded(name: &str, more: &[(&str, &str)], among: u32, requests: u32) {
    let profile = device(name, 60);
    let pages = profile.geometry.pages_per_block;
    let mut ftl = format(profile, 30 * pages, more);
    let Slicing {
        pages: alpha,
        slot_ns,
        ..
    } = slicing(&profile, false);
    let times = profile.timing;
    let program_ns = times.program_ns_max();
    let mut rng = SplitMix::new(7);
    let mut newest = vec![0; 30 * pages as usize];
    let (mut copying, mut erasing, mut in_ram, mut longest) = (0, 0, 0, 0);
    let seen = |ftl: &UnitFtl<Gftl>| {
        (
            ftl.stats(),
            ftl.space.flash.chip().counters().total().erases,
        )
    };
    for n in 1..=requests as u64 {
        // Uses a part of every logical block, so that the write buffer suffices.
        let lpn = rng.below(30) as u32 * pages + rng.below(among as u64) as u32;
        let before = seen(&ftl);
        let (took, service) = if rng.one_in(5) {
            let (took, found) = read(&mut ftl, lpn);
            assert_eq!(
                found, newest[lpn as usize],
                "logical page {lpn} at request {n}"
            );
            (took, times.partial_read_ns + times.read_ns_max())
        } else {
            newest[lpn as usize] = n;
            (write(&mut ftl, lpn, n), times.partial_read_ns + program_ns)
        };
        let after = seen(&ftl);
        assert!(
            took <= service + slot_ns,
            "{name}: request {n} took {took} ns, {service} and a slot of {slot_ns}"
        );
        longest = longest.max(took);
        match slice_between(&before, &after) {
            Slice::Nothing => {}
            Slice::Erase => erasing += 1,
            Slice::Copies(copies) => {
                assert!(
                    copies <= alpha as u64,
                    "{name}: request {n} copied {copies} pages"
                );
                copying += 1;
            }
        }
        in_ram = in_ram.max(ftl.map.groups_in_ram_and_trim_pages().0);
    }
    assert!(
        copying > requests / 20 && erasing > 50 && in_ram > 5,
        "{name}: too few slices with copies ({copying}) or an erase ({erasing}), or groups in RAM ({in_ram})"
    );
    assert!(longest > slot_ns, "{name}: the longest took {longest} ns");
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn no_request_takes_longer_than_its_service_and_a_slice() {
    bounded("mnftl", &[], 40, 30_000);
    bounded("lazyftl", &[], 48, 30_000);
    bounded("slc-2k", &[], 48, 30_000);
    bounded("mnftl", &[("nand.pair_policy", "defer_erase")], 32, 20_000);
    bounded("mlc-4k", &[("nand.pair_policy", "defer_erase")], 40, 20_000);
    bounded("slc-2k", &[("wear.policy", "cold_to_worn")], 40, 20_000);
}

/// The load exceeds the capacity of slices: requests wait, and no data is lost.
#[test]
fn a_full_device_is_slower_but_goes_on() {
    let profile = device("mnftl", 40);
    let logical = 26 * 128;
    let mut ftl = format(profile, logical, &[]);
    (0..logical).for_each(|lpn| _ = write(&mut ftl, lpn, 0));
    let (mut rng, mut newest, mut longest) = (SplitMix::new(3), vec![0; logical as usize], 0);
    for n in 1..10_000 {
        let lpn = rng.below(logical as u64) as u32;
        newest[lpn as usize] = n;
        longest = longest.max(write(&mut ftl, lpn, n));
    }
    assert!(longest > 20_000 * US, "the longest write took {longest} ns");
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    (0..logical).for_each(|lpn| assert_eq!(read(&mut ftl, lpn).1, newest[lpn as usize]));
}

/// Reads alone finish cleaning; then no page is relocated.
#[test]
fn cleaning_ends_when_nobody_writes() {
    for (name, policy) in [
        ("mnftl", "none"),
        ("mnftl", "defer_erase"),
        ("slc-2k", "none"),
    ] {
        let profile = device(name, 60);
        let pages = profile.geometry.pages_per_block;
        let logical = 30 * pages;
        let mut ftl = format(profile, logical, &[("nand.pair_policy", policy)]);
        (0..logical).for_each(|lpn| _ = write(&mut ftl, lpn, 1));
        let mut rng = SplitMix::new(5);
        (0..2_000).for_each(|n| _ = write(&mut ftl, rng.below(logical as u64) as u32, n));
        (0..20_000).for_each(|_| _ = read(&mut ftl, 0));
        let (moved, erases) = (
            ftl.stats().gc_pages_moved,
            ftl.space.flash.chip().counters().total().erases,
        );
        (0..1_000).for_each(|_| _ = read(&mut ftl, 0));
        assert_eq!(ftl.stats().gc_pages_moved, moved, "{name}, {policy}");
        assert_eq!(
            ftl.space.flash.chip().counters().total().erases,
            erases,
            "{name}, {policy}"
        );
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    }
}

/// An interrupted GC run leaves a block with fewer valid pages, and nothing else.
#[test]
fn a_power_cut_between_two_slices_is_harmless() {
    let profile = device("mnftl", 60);
    let logical = 30 * 128;
    let mut ftl = format(profile, logical, &[]);
    (0..128).for_each(|lpn| _ = write(&mut ftl, lpn, lpn as u64));
    (0..20).for_each(|lpn| _ = write(&mut ftl, lpn, 1000 + lpn as u64));
    let moved = ftl.stats().gc_pages_moved;
    assert!(
        (5..100).contains(&moved),
        "{moved} pages were moved: the collection is under way"
    );
    assert_eq!(ftl.map.lists.length(0), 2);
    let config = FtlConfig {
        logical_pages: logical,
        params: Params::default(),
    };
    let mut chip = ftl.space.flash.into_chip();
    chip.power_on();
    let mut ftl = create(chip, &config, Start::Mount).unwrap();
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    for lpn in 0..128 {
        let expected = if lpn < 20 { 1000 + lpn } else { lpn };
        assert_eq!(read(&mut ftl, lpn as u32).1, expected);
    }
}

/// The device of the MNFTL paper's Table 2 has 256 blocks besides the data.
#[test]
fn it_fits_on_the_device_that_it_was_measured_on() {
    let mut params = Params::default();
    params.set("gftl.extra", "1");
    let layout = SCHEME
        .layout(
            Profile::find("mnftl-region").unwrap(),
            1 << 30,
            0.01,
            &params,
        )
        .unwrap();
    assert_eq!(
        (layout.logical_pages, layout.profile.geometry.blocks),
        (1 << 19, 4352)
    );
}

#[test]
fn ram_is_reported_with_the_write_buffer() {
    let mut ftl = format(device("mnftl", 60), 30 * 128, &[]);
    (0..30).for_each(|lbn| _ = write(&mut ftl, lbn * 128, 1));
    let report = ftl.ram_report();
    let map = report
        .iter()
        .find(|entry| entry.part.name() == "map")
        .unwrap();
    assert_eq!(
        (map.entries, map.paper_bytes),
        (30, 30 * (4 + 6) + 5 * 128 * 4)
    );
}
