//! Sequential, hot and cold pages, and merge costs on ROSE's device: reads take 88 us, programs 263
//! us, erases 2,000 us.

use crate::families::hybrid::tests::rose_part::{COPY, ERASE, WRITE};
use crate::families::hybrid::tests::{Device, agrees_with_a_model};

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
