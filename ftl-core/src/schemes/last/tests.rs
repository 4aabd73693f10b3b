//! Sequential, hot and cold pages, and merge costs on ROSE's device: reads take 88 us, programs 263
//! us, erases 2,000 us.

use super::*;
use crate::families::hybrid::tests::rose_part::{COPY, ERASE, WRITE};
use crate::families::hybrid::tests::{self, Device, agrees_with_a_model, part_of_rose, started};

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("last", &[]);
    agrees_with_a_model(
        "last",
        &[("last.large_request", "1"), ("last.sequential", "2")],
    );
    for logs in ["2", "3", "6"] {
        agrees_with_a_model("last", &[("log.blocks", logs)]);
    }
}

fn full_device(logs: &str) -> Device {
    let params = [("wear.policy", "none"), ("log.blocks", logs)];
    let mut device = Device::new("last", "rose", 60, 20 * 64, &params);
    device.write(0, 20 * 64, 1);
    device
}

#[test]
fn large_requests_from_the_first_page_on_fill_a_log_block_of_their_own() {
    let mut device = full_device("8");
    for page in (0..64).step_by(4) {
        assert_eq!(device.write(64 + page, 4, 2), 4 * WRITE);
    }
    assert_eq!(
        device.write(128, 4, 2),
        4 * WRITE + ERASE,
        "switched when the next one begins"
    );
    assert_eq!(
        device.write(192, 4, 2),
        4 * WRITE + 60 * COPY + ERASE,
        "filled up"
    );
    assert_eq!(device.write(200, 4, 2), 4 * WRITE, "a gap: it is random");
    assert_eq!(
        (
            device.read(64).0,
            device.read(129).0,
            device.read(192).0,
            device.read(201).0
        ),
        (2, 2, 2, 2)
    );
    device.assert_sound();
}

#[test]
fn several_logical_blocks_are_written_in_sequence_side_by_side() {
    let mut device = full_device("16");
    for page in (0..64).step_by(4) {
        for block in [1, 2] {
            assert_eq!(device.write(64 * block + page, 4, 2), 4 * WRITE);
        }
    }
    assert_eq!(
        device.write(64 * 3, 4, 2),
        4 * WRITE + ERASE,
        "the older of the two is switched"
    );
    device.assert_sound();
}

/// There are no random writes between the sequential ones. If the age counted random writes, all
/// log blocks would be equally old, and the first would be reclaimed, even if written last.
#[test]
fn the_sequential_log_block_written_longest_ago_makes_room() {
    let mut device = full_device("16");
    for page in [64, 128, 64 + 4] {
        assert_eq!(device.write(page, 4, 2), 4 * WRITE);
    }
    assert_eq!(
        device.write(64 * 3, 4, 2),
        4 * WRITE + 60 * COPY + ERASE,
        "one of the two is filled up"
    );
    assert_eq!(
        device.write(64 + 8, 4, 2),
        4 * WRITE,
        "logical block 1 keeps its log block"
    );
    device.assert_sound();
}

#[test]
fn pages_overwritten_soon_die_together() {
    // Eight log blocks: one sequential; of the other seven, the hot partition may have up to five
    // and begins with three.
    let mut device = full_device("8");
    let mut n = 1;
    let mut round = |device: &mut Device| {
        n += 1;
        (0..32)
            .map(|page| device.write(64 * (page % 16) + page, 1, n))
            .sum::<u64>()
    };
    assert_eq!(round(&mut device), 32 * WRITE, "cold at first");
    // The hot pages fill a block in two rounds; by then the previous one has no valid page.
    let took = (0..8).map(|_| round(&mut device)).sum::<u64>() - 8 * 32 * WRITE;
    assert!(
        (ERASE..=4 * ERASE).contains(&took) && took.is_multiple_of(ERASE),
        "{took}"
    );
    assert!((0..32).all(|page| device.read(64 * (page % 16) + page).0 == n));
    device.assert_sound();
}

#[test]
fn what_still_lives_in_the_oldest_hot_block_moves_to_the_cold_ones() {
    // Of two random log blocks above the minimum, one may be hot.
    let mut device = full_device("5");
    let write = |device: &mut Device, page: u32, n| device.write(64 * (page % 16) + page, 1, n);
    for n in [2, 3] {
        for page in 0..40 {
            write(&mut device, page, n);
        }
    }
    // 40 hot pages; the next 24 fill the block, 23 of them replace hot ones.
    let took: u64 = (0..24).map(|page| write(&mut device, page, 4)).sum();
    assert_eq!(took, 24 * WRITE);
    assert_eq!(
        write(&mut device, 24, 4),
        WRITE + 40 * COPY + ERASE,
        "each block has valid pages: those of the oldest are moved, and it is erased"
    );
    assert!((0..25).all(|page| device.read(64 * (page % 16) + page).0 == 4));
    assert!((25..40).all(|page| device.read(64 * (page % 16) + page).0 == 3));
    device.assert_sound();
}

/// The cold block to merge is the one with the fewest logical blocks, then with the fewest pages,
/// whatever its age: ROSE's paper says so of LAST (section 3.2). Four cold log blocks of 64 pages
/// have pages of 4, 2, 2 and 4 logical blocks; eight pages of the third are trimmed. Its merge
/// copies 56 and 64 pages and erases both data blocks, then the log block is erased.
#[test]
fn the_cold_block_with_the_cheapest_merge_goes_first() {
    let fill = |device: &mut Device, first: u32, count: u32| {
        for n in 0..64 {
            device.write(64 * (first + n % count) + n, 1, 2);
        }
    };
    // One log block is for sequential writes, four are for the others.
    let mut device = full_device("5");
    for (first, count) in [(0, 4), (4, 2), (6, 2), (8, 4)] {
        fill(&mut device, first, count);
    }
    for n in (0..64).step_by(8) {
        let lpn = Lpn::new(64 * (6 + n % 2) + n);
        device.ftl.trim(0, lpn, 1).unwrap();
    }
    let cost =
        |blocks: u64, trimmed: u64| WRITE + (64 * blocks - trimmed) * COPY + (blocks + 1) * ERASE;
    assert_eq!(device.write(64 * 12, 1, 2), cost(2, 8), "the third");
    (1..64).for_each(|n| _ = device.write(64 * 12 + n, 1, 2));
    assert_eq!(device.write(64 * 13, 1, 2), cost(1, 0), "the fifth has 1");
    (1..64).for_each(|n| _ = device.write(64 * 13 + n, 1, 2));
    device.assert_sound();
}

/// Two cold log blocks have 64 pages of two logical blocks each.
#[test]
fn of_equally_cheap_cold_blocks_the_oldest_is_merged() {
    let mut ftl = asked();
    for n in 0..128 {
        tests::write(&mut ftl, 64 * (6 - 2 * (n / 64) + n % 2) + n % 64, 1);
    }
    assert_eq!(tests::victim_rank(&mut ftl), Some(0));
}

/// Starts LAST so that tests can ask its policy: every page of 20 logical blocks is written, and
/// eight log blocks are one for sequential writes and seven others, at most five of them hot.
fn asked() -> HybridFtl<Last> {
    let (part, mut own) = (part_of_rose(60, 64), Params::default());
    let params = [("wear.policy", "none"), ("log.blocks", "8")];
    params.iter().for_each(|(key, value)| own.set(key, value));
    let policy = Last::new(&own, &part.geometry).unwrap();
    let mut ftl = started(policy, part, 20 * 64, &params);
    tests::write(&mut ftl, 0, 20 * 64);
    ftl
}

/// The thresholds are 0.2 and 0.9 (Ma, Feng, Li, LazyFTL, SIGMOD 2011, section 6.1): the hot
/// partition grows if more than a fifth of its pages are valid, and less than nine tenths of the
/// cold ones. 64 pages are written once, which is cold, and some of them again, which is hot.
#[test]
fn the_hot_partition_grows_while_it_is_well_used_and_the_cold_one_is_not() {
    let quotas = |again: &mut dyn Iterator<Item = u32>| {
        let mut ftl = asked();
        let page = |n: u32| 64 * (n % 16) + n;
        (0..64).for_each(|n| tests::write(&mut ftl, page(n), 1));
        again.for_each(|n| tests::write(&mut ftl, page(n), 1));
        ftl.map.with_policy_view(&ftl.space, |policy, view| {
            let used = (utilisation(HOT, view), utilisation(COLD, view));
            (used, [1, 3, 5].map(|quota| policy.adapt(quota, view)))
        })
    };
    // 16 of 16 hot pages are valid, 48 of 64 cold ones.
    assert_eq!(quotas(&mut (0..16)), ((1.0, 0.75), [2, 4, 5]));
    // 16 of 80 hot pages: no more than a fifth.
    let five_times = (0..80).map(|n| n % 16);
    assert_eq!(quotas(&mut five_times.clone()), ((0.2, 0.75), [1, 2, 4]));
    // 58 of 64 cold pages: nine tenths and more.
    assert_eq!(quotas(&mut (0..6)), ((1.0, 0.90625), [1, 2, 4]));
}

/// ROSE's full size: an eighth of 16,384 log blocks takes sequential writes.
#[test]
fn as_many_sequential_log_blocks_as_rose_gives_it() {
    let with = |value: &str| {
        let mut params = Params::default();
        params.set("last.sequential", value);
        Last::new(&params, &part_of_rose(60, 64).geometry)
    };
    let policy = with("2048").unwrap();
    assert_eq!(
        (policy.slots_of(16_384), policy.shared_streams()),
        (2048, 2050)
    );
    assert_eq!(policy.slots_of(800), 100, "never more than an eighth");
    for wrong in ["0", "4097"] {
        let error = with(wrong).map(drop).unwrap_err().to_string();
        assert!(error.contains("within 1 to 4096"), "{error}");
    }
}
