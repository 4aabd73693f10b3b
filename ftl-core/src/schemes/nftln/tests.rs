//! Growth of lists and costs of folding them, on the device of the LazyFTL paper: reads take 80 us,
//! programs 200 us, erases 1,500 us.

use super::*;
use crate::families::hybrid::tests::{
    self, Device, SLC, agrees_with_a_model, part_of_rose, started,
};

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

/// Writes ten logical blocks of four pages, then these single pages. Returns the logical block
/// whose list is folded when blocks are short.
fn folded_after(writes: &[u32]) -> u32 {
    let policy = Nftln {
        added: 3,
        folded: None,
    };
    let params = [("wear.policy", "none"), ("log.blocks", "8")];
    let mut ftl = started(policy, part_of_rose(64, 4), 40, &params);
    tests::write(&mut ftl, 0, 40);
    writes
        .iter()
        .for_each(|lpn| tests::write(&mut ftl, *lpn, 1));
    ftl.map.with_policy_view(&ftl.space, |policy, view| {
        let block = policy.victim(view).expect("there are lists to fold");
        let folded = policy.folded.expect("a list is folded").raw();
        let stream = view.logs.get(block).and_then(|log| log.stream);
        let last = policy
            .streams(Lbn::new(folded))
            .rfind(|stream| view.logs.newest(*stream).is_some());
        assert_eq!(stream, last, "its last block is merged");
        folded
    })
}

/// The lists of logical blocks 3, 1 and 2 get a second block in this order, then that of 2 a third.
#[test]
fn the_longest_list_is_folded() {
    assert_eq!(folded_after(&[13, 5, 9, 9]), 2);
}

#[test]
fn of_equally_long_lists_the_one_whose_last_block_is_oldest_is_folded() {
    assert_eq!(
        folded_after(&[13, 5, 9]),
        3,
        "neither the lowest nor the newest"
    );
    assert_eq!(
        folded_after(&[5, 13, 13, 5]),
        3,
        "the second block of 1 is older, but its third is newer"
    );
}
