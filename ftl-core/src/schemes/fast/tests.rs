//! Targets of writes, and merge costs on ROSE's device: reads take 88 us, programs 263 us, erases
//! 2,000 us.

use super::{Fast, Predict};
use crate::families::hybrid::tests::rose_part::{COPY, ERASE, WRITE};
use crate::families::hybrid::tests::{Device, agrees_with_a_model, part_of_rose, rank_after, work};

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("fast", &[]);
    for predict in ["lp", "cp", "np", "ebw"] {
        agrees_with_a_model(
            "fast",
            &[
                ("fast.predict", predict),
                ("fast.sw_break", "keep_sw_then_rw"),
            ],
        );
    }
}

fn full_device(params: &[(&str, &str)]) -> Device {
    let mut all = vec![("wear.policy", "none"), ("log.blocks", "2")];
    all.extend(params);
    let mut device = Device::new("fast", "rose", 60, 20 * 64, &all);
    device.write(0, 20 * 64, 1);
    device
}

#[test]
fn a_random_log_block_takes_a_merge_for_every_logical_block_in_it() {
    for (blocks, merges) in [([1, 1], 1), ([1, 2], 2)] {
        let mut device = full_device(&[("fast.predict", "np")]);
        for page in (0..64).rev() {
            assert_eq!(
                device.write(64 * blocks[page as usize % 2] + page, 1, 2),
                WRITE
            );
        }
        (0..64).for_each(|page| assert_eq!(device.write(64 * 3 + page, 1, 2), WRITE));
        let (copies, erases) = (64 * merges * COPY, (merges + 1) * ERASE);
        assert_eq!(device.write(64 * 4, 1, 2), WRITE + copies + erases);
        assert_eq!(
            (
                device.read(64 + 2).0,
                device.read(64 * 3).0,
                device.read(64 * 4 + 1).0
            ),
            (2, 2, 1)
        );
        device.assert_sound();
    }
}

/// ROSE's Figure 3 (a): three data blocks of four pages with a free page each, a sequential and a
/// random log block, pages 0, 1, 2, 3, 5, 9, 4, 8. Page 3 takes its offset in the data block. Pages
/// 4 and 8 begin logical blocks, so that the sequential log block is merged twice: page 3 is
/// copied, then 5 and 6. Cleaning is two erases and three copies.
#[test]
fn first_pages_of_logical_blocks_merge_the_sequential_log_block() {
    let params = [("wear.policy", "none"), ("log.blocks", "2")];
    let mut device = Device::of("fast", part_of_rose(64, 4), 12, &params);
    [0, 1, 2, 4, 5, 6, 8, 9, 10]
        .iter()
        .for_each(|lpn| _ = device.write(*lpn, 1, 1));
    let before = work(&*device.ftl);
    [0, 1, 2, 3, 5, 9, 4, 8]
        .iter()
        .for_each(|lpn| _ = device.write(*lpn, 1, 2));
    let after = work(&*device.ftl);
    assert_eq!((after.0 - before.0, after.1 - before.1), (8 + 3, 2));
    device.assert_sound();
}

#[test]
fn pages_from_the_first_on_fill_the_sequential_log_block_which_becomes_the_data_block() {
    let mut device = full_device(&[]);
    (0..64).for_each(|page| assert_eq!(device.write(64 + page, 1, 2), WRITE));
    assert_eq!(
        device.write(128, 1, 2),
        WRITE + ERASE,
        "switched when another logical block begins"
    );
    assert_eq!(
        device.write(192, 1, 2),
        WRITE + 63 * COPY + ERASE,
        "filled up"
    );
    assert_eq!(
        device.write(194, 1, 2),
        WRITE + 63 * COPY + ERASE,
        "the page is not the next one of the sequential log block"
    );
    assert_eq!(
        (
            device.read(64).0,
            device.read(128).0,
            device.read(192).0,
            device.read(194).0
        ),
        (2, 2, 2, 2)
    );
    device.assert_sound();
}

#[test]
fn a_page_that_does_not_follow_may_leave_the_sequential_log_block_alone() {
    let mut device = full_device(&[("fast.sw_break", "keep_sw_then_rw")]);
    device.write(192, 1, 2);
    assert_eq!(
        (device.write(194, 1, 2), device.write(193, 1, 2)),
        (WRITE, WRITE)
    );
    assert_eq!(
        device.write(0, 1, 2),
        WRITE + 62 * COPY + ERASE,
        "194 was newer elsewhere and is gathered, too"
    );
}

#[test]
fn by_size_a_request_in_the_middle_of_a_block_is_merged_once() {
    let mut device = full_device(&[("fast.predict", "lp")]);
    // 8 KiB: all four pages continue the sequential log block.
    assert_eq!(device.write(64 + 8, 4, 2), 4 * WRITE);
    assert_eq!(
        device.write(64 + 12, 4, 2),
        4 * WRITE,
        "so does the next request"
    );
    assert_eq!(
        device.write(128, 4, 2),
        4 * WRITE + 64 * COPY + 2 * ERASE,
        "it begins in the middle, so it is no data block"
    );
    assert_eq!(
        (
            device.read(64 + 9).0,
            device.read(64 + 15).0,
            device.read(64 + 16).0
        ),
        (2, 2, 1)
    );
    device.assert_sound();
}

#[test]
fn a_request_for_a_whole_logical_block_takes_a_new_data_block() {
    let mut device = full_device(&[("fast.predict", "ebw")]);
    device.write(70, 1, 2);
    assert_eq!(device.write(64, 64, 3), 64 * WRITE + ERASE);
    assert_eq!((device.read(64).0, device.read(70).0), (3, 3));
    device.assert_sound();
}

/// The first of three random log blocks is the oldest, and its merge is the most expensive.
#[test]
fn random_log_blocks_are_merged_round_robin() {
    let policy = Fast {
        predict: Predict::Never,
        merges_broken: true,
        large: 4,
        owner: None,
        next: 0,
    };
    let writes = [1, 5, 9, 13, 2, 2, 2, 2, 6, 6, 6, 6];
    assert_eq!(rank_after(policy, &writes), Some(0));
}
