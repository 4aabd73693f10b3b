//! The three kinds of merge, at their cost on the device of the LazyFTL paper: reads take 80 us,
//! programs 200 us, erases 1,500 us.

use super::Bast;
use crate::families::hybrid::tests::{Device, SLC, agrees_with_a_model, rank_after};
use nand_model::{Cause, OpCounts};

const US: u64 = 1_000;
const WRITE: u64 = 200 * US;
const COPY: u64 = (80 + 200) * US;
const ERASE: u64 = 1500 * US;

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("bast", &[]);
    agrees_with_a_model("bast", &[("bast.victim", "least_valid")]);
}

fn full_device(params: &[(&str, &str)]) -> Device {
    let mut all = vec![("wear.policy", "none")];
    all.extend(params);
    let mut device = Device::new("bast", SLC, 60, 20 * 64, &all);
    device.write(0, 20 * 64, 1);
    device
}

#[test]
fn a_log_block_with_all_pages_in_order_is_switched() {
    let mut device = full_device(&[]);
    (0..64).for_each(|page| assert_eq!(device.write(64 + page, 1, 2), WRITE));
    assert_eq!(
        device.write(64, 1, 3),
        WRITE + ERASE,
        "the old data block is erased, nothing is copied"
    );
    assert_eq!(
        (device.read(64), device.read(65)),
        ((3, 80 * US), (2, 80 * US))
    );
    device.assert_sound();
}

#[test]
fn a_log_block_that_begins_in_order_is_filled_up() {
    let mut device = full_device(&[("log.blocks", "2")]);
    (0..10).for_each(|page| _ = device.write(64 + page, 1, 2));
    device.write(128, 1, 2);
    assert_eq!(
        device.write(192, 1, 2),
        WRITE + 54 * COPY + ERASE,
        "that of logical block 1 was not used for longest"
    );
    assert_eq!((device.read(64).0, device.read(80).0), (2, 1));
    device.assert_sound();
}

#[test]
fn another_log_block_is_merged_with_the_data_block() {
    let mut device = full_device(&[("log.blocks", "2")]);
    [70, 66, 70]
        .iter()
        .for_each(|page| _ = device.write(*page, 1, 2));
    device.write(128, 1, 2);
    assert_eq!(device.write(192, 1, 2), WRITE + 64 * COPY + 2 * ERASE);
    assert_eq!(
        (device.read(70).0, device.read(66).0, device.read(67).0),
        (2, 2, 1)
    );
    device.assert_sound();
}

#[test]
fn the_victim_is_the_least_recently_used_or_the_one_with_the_fewest_valid_pages() {
    for (policy, copied) in [("lru", 64), ("least_valid", 63)] {
        let mut device = full_device(&[("log.blocks", "2"), ("bast.victim", policy)]);
        // Logical block 1 has two valid pages and is older. Logical block 2 has one and, after the
        // trim, one page fewer to copy.
        [70, 66]
            .iter()
            .for_each(|page| _ = device.write(*page, 1, 2));
        device.write(130, 1, 2);
        device
            .ftl
            .trim(
                device.ftl.chip().busy_until(),
                crate::addr::Lpn::new(150),
                1,
            )
            .unwrap();
        assert_eq!(
            device.write(192, 1, 2),
            WRITE + copied * COPY + 2 * ERASE,
            "{policy}"
        );
    }
}

/// Merges have their own cause; their kinds are counted apart.
#[test]
fn copies_and_erases_of_merges_are_not_those_of_gc() {
    let (switch, partial, full) = ((64, vec![64]), (10, vec![128, 192]), (1, vec![128, 192]));
    for (kind, (pages, more)) in [(0, switch), (1, partial), (2, full)] {
        let mut device = full_device(&[("log.blocks", "2")]);
        // In order from page 0 of logical block 1 on; a full merge begins at another page.
        let first = if kind == 2 { 70 } else { 64 };
        (0..pages).for_each(|page| _ = device.write(first + page, 1, 2));
        more.iter().for_each(|page| _ = device.write(*page, 1, 2));
        let stats = device.ftl.stats();
        let merges = [stats.switch_merges, stats.partial_merges, stats.full_merges];
        let once: [u64; 3] = std::array::from_fn(|at| u64::from(at == kind));
        assert_eq!(merges, once, "{pages} pages");
        let counters = device.ftl.chip().counters();
        let (merge, gc) = (counters.of(Cause::Merge), counters.of(Cause::Gc));
        let (copies, erases) = [(0, 1), (54, 1), (64, 2)][kind];
        assert_eq!(
            (merge.reads, merge.programs, merge.erases),
            (copies, copies, erases),
            "{pages} pages"
        );
        assert_eq!(*gc, OpCounts::default(), "{pages} pages");
        device.assert_sound();
    }
}

/// The log blocks are those of the logical blocks 3 and 1, in the order of their age.
#[test]
fn of_equally_many_valid_pages_the_oldest_log_block_is_merged() {
    let rank = |by_use, writes: &[u32]| {
        let policy = Bast {
            by_use,
            used: Default::default(),
            writes: 0,
        };
        rank_after(policy, writes)
    };
    assert_eq!(rank(false, &[13, 14, 5]), Some(1), "it has fewer");
    assert_eq!(rank(false, &[13, 5, 13]), Some(0));
    assert_eq!(
        rank(true, &[13, 5, 13]),
        Some(1),
        "the other was used since"
    );
}
