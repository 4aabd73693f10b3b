//! Costs of reads and folds, on the device of the LazyFTL paper: reads take 80 us, of OOB areas 20
//! us, programs 200 us, erases 1,500 us.

use super::Nftl1;
use crate::families::hybrid::tests::{Device, SLC, agrees_with_a_model, rank_after};

const US: u64 = 1_000;

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("nftl1", &[]);
}

#[test]
fn a_read_searches_the_replacement_block_from_its_end() {
    let mut device = Device::new("nftl1", SLC, 40, 10 * 64, &[("wear.policy", "none")]);
    device.write(0, 64, 1);
    assert_eq!(device.read(7), (1, 80 * US), "no replacement block");
    (0..3).for_each(|n| _ = device.write(5, 1, 2 + n));
    device.write(6, 1, 9);
    assert_eq!(device.read(6), (9, 100 * US), "the newest");
    assert_eq!(device.read(5), (4, 120 * US), "the one before");
    assert_eq!(device.read(7), (1, 160 * US), "it is none of the four");
    assert_eq!(device.read(70), (0, 0));
}

#[test]
fn a_full_replacement_block_is_folded() {
    let mut device = Device::new("nftl1", SLC, 40, 10 * 64, &[("wear.policy", "none")]);
    device.write(0, 64, 1);
    (0..64).for_each(|n| assert_eq!(device.write(5, 1, 2 + n), 200 * US));
    assert_eq!(
        device.write(6, 1, 99),
        200 * US + 64 * (80 + 200) * US + 2 * 1500 * US
    );
    assert_eq!(
        (device.read(5).0, device.read(6).0, device.read(7).0),
        (65, 99, 1)
    );
    device.assert_sound();
}

/// The replacement blocks are those of the logical blocks 3, 1 and 2, in the order of their age.
#[test]
fn the_pair_with_the_most_used_pages_is_folded_and_of_equal_ones_the_oldest() {
    assert_eq!(rank_after(Nftl1, &[13, 5, 9, 9]), Some(2));
    assert_eq!(rank_after(Nftl1, &[13, 5, 9]), Some(0));
}
