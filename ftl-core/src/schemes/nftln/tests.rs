//! Growth of lists and costs of folding them, on the device of the LazyFTL paper: reads take 80 us,
//! programs 200 us, erases 1,500 us.

use crate::families::hybrid::tests::{Device, SLC, agrees_with_a_model};

const US: u64 = 1_000;
const WRITE: u64 = 200 * US;
const COPY: u64 = (80 + 200) * US;
const ERASE: u64 = 1500 * US;

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("nftln", &[]);
    agrees_with_a_model("nftln", &[("nftln.max_length", "3")]);
}

#[test]
fn a_page_goes_to_the_first_block_whose_offset_is_free_and_a_list_that_is_full_is_folded_into_its_last_block()
 {
    let params = [("wear.policy", "none"), ("nftln.max_length", "4")];
    let mut device = Device::new("nftln", SLC, 60, 20 * 64, &params);
    device.write(0, 20 * 64, 1);
    // Page 5 fills the list; page 6 finds its offset free in the second block.
    (2..5).for_each(|n| assert_eq!(device.write(5, 1, n), WRITE));
    (2..5).for_each(|n| assert_eq!(device.write(6, 1, n), WRITE));
    assert_eq!(
        (device.read(5), device.read(6), device.read(7)),
        ((4, 80 * US), (4, 80 * US), (1, 80 * US))
    );
    assert_eq!(
        device.write(5, 1, 9),
        WRITE + 62 * COPY + 3 * ERASE,
        "what the last block lacks"
    );
    assert_eq!(
        (device.read(5).0, device.read(6).0, device.read(7).0),
        (9, 4, 1)
    );
    device.assert_sound();
}
