use super::*;
use crate::families::paged::tests::{self as common, profile};
use crate::ftl::Ftl;

const SMALL: (&str, &str) = ("dftl.cache", "256");

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

/// Makes a device without background work, with `entries` in the cache and all pages written once.
fn filled(entries: u32) -> (PagedFtl<Cmt>, u64) {
    filled_with(entries, "0")
}

/// Like [`filled`], on a device with this `timing.ram`.
fn filled_with(entries: u32, ram: &str) -> (PagedFtl<Cmt>, u64) {
    use crate::Lpn;
    let profile = profile("lazyftl", 200);
    let mut params = Params::default();
    let cache = (8 * entries).to_string();
    for (key, value) in [
        ("dftl.cache", cache.as_str()),
        ("ckpt.interval", "0"),
        ("wear.policy", "none"),
        ("timing.ram", ram),
    ] {
        params.set(key, value);
    }
    let config = FtlConfig {
        logical_pages: 4096,
        params,
    };
    let chip = Chip::over(profile, nand_model::store::MemStore::new(profile.geometry)).unwrap();
    let mut ftl = new(chip, &config, Start::Format).unwrap();
    let page = vec![7; 2048];
    let mut at = 0;
    for lpn in 0..4096 {
        at = ftl.write(at, Lpn::new(lpn), &page).unwrap();
    }
    (ftl, at)
}

#[test]
fn a_read_costs_what_the_cache_makes_of_it() {
    use crate::Lpn;
    let (mut ftl, mut at) = filled(16);
    // Two dirty entries of each of eight mapping pages fill the cache.
    for lpn in (0..8).flat_map(|vtpn| [vtpn * 512, vtpn * 512 + 100]) {
        at = ftl.write(at, Lpn::new(lpn), &[9; 2048]).unwrap();
    }
    let mut read = |lpn| {
        let began = at;
        at = ftl.read(at, Lpn::new(lpn), &mut [0; 2048]).unwrap();
        at - began
    };
    let (read_ns, write_ns) = (80_000, 200_000);
    // A miss reads the mapping page. The evicted entry is dirty, so its mapping page is read and
    // written.
    assert_eq!(read(5), 2 * read_ns + read_ns + write_ns);
    // The next victim was written with it (batch update).
    assert_eq!(read(600), 2 * read_ns);
    assert_eq!(read(600), read_ns);
    assert_eq!(read(601), 2 * read_ns + read_ns + write_ns);
}

#[test]
fn an_entry_that_was_used_again_outlives_those_that_were_not() {
    use crate::families::paged::Policy;
    use crate::families::paged::pending::Pending;
    let (mut cmt, pending) = (
        Cmt::new(8, 512),
        Pending::new(profile("lazyftl", 200).geometry, 16, false),
    );
    let page = vec![0; 2048];
    let load = |cmt: &mut Cmt, lpn| {
        cmt.load(0, &page, lpn, 0, &pending);
        cmt.evict(&pending)
    };
    (0..8).for_each(|lpn| assert_eq!(load(&mut cmt, lpn), None));
    (0..3).for_each(|lpn| assert!(cmt.get(lpn, false).is_some()));
    (100..108).for_each(|lpn| assert_eq!(load(&mut cmt, lpn), None));
    assert!((0..3).all(|lpn| cmt.peek(lpn).is_some()) && (3..8).all(|lpn| cmt.peek(lpn).is_none()));
    // Half the cache is protected: five more uses return the longest unused to probation.
    (103..108).for_each(|lpn| assert!(cmt.get(lpn, false).is_some()));
    (200..204).for_each(|lpn| assert_eq!(load(&mut cmt, lpn), None));
    assert!(
        (0..3).all(|lpn| cmt.peek(lpn).is_none()) && (104..108).all(|lpn| cmt.peek(lpn).is_some())
    );
}

#[test]
fn mapping_pages_that_gc_needs_have_their_own_cause() {
    use crate::block_table::State;
    use crate::format::Role;
    use crate::gc::GarbageCollect;
    use nand_model::Cause;
    let (mut ftl, _) = filled(16);
    let mut evacuate = |role, cause| {
        let table = &ftl.space.table;
        let fits = |block: &nand_model::Pbn| {
            table.state(*block) == State::Full
                && table.role(*block) == role
                && table.valid_count(*block) > 0
        };
        let geometry = ftl.space.geometry();
        let block = geometry.all_blocks().find(fits);
        let block = block.expect("a full block of this role");
        let valid = u64::from(table.valid_count(block));
        let before = ftl.space.flash.chip().counters().clone();
        ftl.evacuate(block, cause).unwrap();
        let done = ftl.space.flash.chip().counters();
        let of = |cause: Cause| {
            let (old, new) = (before.of(cause), done.of(cause));
            (new.reads - old.reads, new.programs - old.programs)
        };
        let others = [Cause::Translation, Cause::Convert].map(of);
        assert_eq!(others, [(0, 0); 2], "{role:?}");
        (
            valid,
            of(Cause::Gc),
            of(Cause::GcTranslation),
            of(Cause::Wear),
        )
    };
    // The 64 pages of the first block are in one mapping page, and none of them is cached.
    let (none, all, one) = ((0, 0), (64, 64), (1, 1));
    assert_eq!(evacuate(Role::Data, Cause::Gc), (64, all, one, none));
    let (valid, gc, of_map, wear) = evacuate(Role::Map, Cause::Gc);
    assert_eq!((gc, of_map, wear), (none, (valid, valid), none));
    // Other work has one cause for data and map.
    let (valid, gc, of_map, wear) = evacuate(Role::Data, Cause::Wear);
    assert_eq!((valid, gc, of_map, wear), (64, none, none, (65, 65)));
}

#[test]
fn a_lookup_is_one_step_and_takes_the_time_of_ram() {
    use crate::{Lookups, Lpn};
    let (mut ftl, mut at) = filled_with(16, "5");
    let (read_ns, write_ns, step_ns) = (80_000, 200_000, 5_000);
    let before = ftl.stats();
    // The last 16 pages are cached; the first is not. The entry that it evicts was written with
    // others of its mapping page.
    for (lpn, ns) in [
        (4095, read_ns + step_ns),
        (0, 2 * read_ns + step_ns),
        (0, read_ns + step_ns),
    ] {
        let began = at;
        at = ftl.read(at, Lpn::new(lpn), &mut [0; 2048]).unwrap();
        assert_eq!(at - began, ns, "page {lpn}");
    }
    let began = at;
    at = ftl.write(at, Lpn::new(0), &[9; 2048]).unwrap();
    assert_eq!(at - began, write_ns + step_ns);
    let after = ftl.stats();
    assert_eq!(after.map_lookup_steps - before.map_lookup_steps, 4);
    let grown =
        |before: Lookups, after: Lookups| (after.total - before.total, after.hits - before.hits);
    assert_eq!(grown(before.lookups_read, after.lookups_read), (3, 2));
    assert_eq!(grown(before.lookups_write, after.lookups_write), (1, 1));
}

#[test]
fn a_lookup_by_list_examines_protected_entries_and_newer_ones_first() {
    use crate::families::paged::Policy;
    use crate::families::paged::pending::Pending;
    let pending = Pending::new(profile("lazyftl", 200).geometry, 16, false);
    let steps = |by_list: bool| {
        let mut cmt = Cmt::new(8, 512).count_by_list(by_list);
        let page = vec![0; 2048];
        (0..4).for_each(|lpn| cmt.load(0, &page, lpn, 0, &pending));
        // The oldest, which is then protected; the same again; the newest; one that is not cached.
        [0, 0, 3, 9].map(|lpn| {
            let before = cmt.lookup_steps();
            assert_eq!(cmt.get(lpn, false).is_some(), lpn < 4);
            cmt.lookup_steps() - before
        })
    };
    assert_eq!((steps(false), steps(true)), ([1; 4], [4, 1, 2, 4]));
}
