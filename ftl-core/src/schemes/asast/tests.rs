//! Sharing of log blocks, and merge costs on ROSE's device: reads take 88 us, programs 263 us,
//! erases 2,000 us.

use super::Asast;
use crate::families::hybrid::tests::rose_part::{COPY, ERASE, WRITE};
use crate::families::hybrid::tests::{Device, agrees_with_a_model, rank_after};

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("asast", &[]);
    agrees_with_a_model(
        "asast",
        &[("asast.adapt", "off"), ("asast.victim", "least_valid")],
    );
    for logs in ["2", "3", "6"] {
        agrees_with_a_model("asast", &[("log.blocks", logs)]);
        agrees_with_a_model(
            "asast",
            &[
                ("log.blocks", logs),
                ("asast.group", "16"),
                ("asast.victim", "least_valid"),
            ],
        );
    }
}

fn full_device(params: &[(&str, &str)]) -> Device {
    let mut all = vec![("wear.policy", "none")];
    all.extend(params);
    let mut device = Device::new("asast", "rose", 60, 20 * 64, &all);
    device.write(0, 20 * 64, 1);
    device
}

#[test]
fn the_blocks_of_a_group_share_its_log_blocks_and_no_others() {
    let sast = [
        ("asast.adapt", "off"),
        ("asast.group", "2"),
        ("asast.logs", "1"),
        ("log.blocks", "8"),
    ];
    let mut device = full_device(&sast);
    for page in (0..64).rev() {
        assert_eq!(device.write(64 * (page % 2) + page, 1, 2), WRITE);
    }
    assert_eq!(device.write(64 * 2, 1, 2), WRITE, "another group");
    assert_eq!(
        device.write(0, 1, 3),
        WRITE + 2 * 64 * COPY + 3 * ERASE,
        "both are merged for the next log block"
    );
    assert_eq!(
        (
            device.read(0).0,
            device.read(2).0,
            device.read(65).0,
            device.read(128).0
        ),
        (3, 2, 2, 2)
    );
    device.assert_sound();
}

#[test]
fn neighbours_come_together_when_their_log_blocks_are_used_badly() {
    // Four log blocks, eight logical blocks in turn: every write merges one, as with BAST.
    let mut device = full_device(&[("log.blocks", "4")]);
    let round = |device: &mut Device, n| {
        (0..8)
            .map(|block| device.write(64 * block + 7, 1, n))
            .sum::<u64>()
    };
    assert_eq!(
        round(&mut device, 2),
        8 * WRITE + 4 * (64 * COPY + 2 * ERASE)
    );
    for n in 3..20 {
        round(&mut device, n);
    }
    assert_eq!(
        round(&mut device, 20),
        8 * WRITE,
        "in groups they share log blocks that have room"
    );
    assert!((0..8).all(|block| device.read(64 * block + 7).0 == 20));
    device.assert_sound();
}

#[test]
fn a_group_whose_merges_are_many_is_halved() {
    // All 16 logical blocks of a group in four log blocks. Merging one log block then merges 16
    // logical blocks.
    let mut device = full_device(&[
        ("log.blocks", "4"),
        ("asast.group", "16"),
        ("asast.victim", "least_valid"),
    ]);
    let round = |device: &mut Device, n| {
        // Other pages than in the last rounds.
        let place = |page: u32| 64 * (5 * page % 16) + (page + 17 * n as u32) % 64;
        (0..64)
            .map(|page| device.write(place(page), 1, n))
            .collect::<Vec<u64>>()
    };
    round(&mut device, 2);
    let merged_for = |took: u64| (took - WRITE) / (64 * COPY + ERASE);
    let worst: Vec<u64> = (3..40)
        .map(|n| {
            round(&mut device, n)
                .into_iter()
                .map(merged_for)
                .max()
                .unwrap()
        })
        .collect();
    assert_eq!(worst.iter().max(), Some(&16));
    assert!(worst[20..].iter().all(|merges| *merges <= 8), "{worst:?}");
    device.assert_sound();
}

/// Logical block 3 fills two log blocks with two valid pages each; then logical block 1 gets one.
#[test]
fn of_a_groups_log_blocks_with_equally_many_valid_pages_the_oldest_is_merged() {
    let rank = |by_use, writes: &[u32]| {
        let policy = Asast {
            adapts: false,
            most_logs: 0,
            pages_per_block: 4,
            sizes: vec![0; 10],
            changed: 0,
            by_use,
            used: Default::default(),
            writes: 0,
        };
        rank_after(policy, writes)
    };
    let two = [12, 13, 12, 13, 14, 15, 14, 15];
    assert_eq!(rank(true, &two), Some(0));
    assert_eq!(rank(true, &[&two[..], &[5, 12]].concat()), Some(2), "LRU");
    assert_eq!(rank(false, &[&two[..], &[5, 6]].concat()), Some(0));
}
