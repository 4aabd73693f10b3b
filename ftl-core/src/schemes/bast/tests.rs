//! The three kinds of merge, at their cost on the device of the LazyFTL paper: reads take 80 us,
//! programs 200 us, erases 1,500 us.

use crate::families::hybrid::tests::{Device, SLC, agrees_with_a_model};

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
