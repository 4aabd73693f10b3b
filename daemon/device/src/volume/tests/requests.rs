//! Requests: data read, refusals, and the state after a panic of the scheme.

use super::{END_OF_BATCH, PAGE, Trap, errno_of, toy};
use crate::device::{BlockDevice, Extent, FlushOf};
use crate::volume::*;
use nand_model::store::MemStore;
use nand_model::{Chip, Profile};

#[test]
fn any_byte_extent_reads_back_as_written_and_its_neighbours_stay() {
    let (volume, _) = toy(None, false);
    let mut model = vec![0u8; volume.size() as usize];
    let mut rng = nand_model::SplitMix::new(7);
    for round in 0..500u32 {
        let offset = rng.below(model.len() as u64) as usize;
        let len = 1 + rng.below((model.len() - offset).min(5000) as u64) as usize;
        let range = offset..offset + len;
        match rng.below(4) {
            0 => {
                volume.trim(offset as u64, len as u64).unwrap();
                model[range.clone()].fill(0);
            }
            1 => {
                volume.write_zeroes(offset as u64, len as u64).unwrap();
                model[range.clone()].fill(0);
            }
            _ => {
                model[range.clone()].fill(round as u8 | 1);
                volume.write(offset as u64, &model[range.clone()]).unwrap();
            }
        }
        let mut all = vec![0xEE; model.len()];
        volume.read(0, &mut all).unwrap();
        assert!(all == model, "round {round}: {range:?}");
        let mut part = vec![0xEE; len];
        volume.read(offset as u64, &mut part).unwrap();
        assert!(part == model[range], "round {round}, read of the part");
    }
}

#[test]
fn whole_pages_reach_the_scheme_as_one_extent_and_parts_are_patched() {
    let (volume, handles) = toy(None, false);
    volume.write(512, &vec![1; 512 + 3 * PAGE + 100]).unwrap();
    assert_eq!(
        handles.calls(),
        [
            "read 0+1",
            "write 0+1",
            "write 1+3",
            "read 4+1",
            "write 4+1"
        ]
    );
    volume.trim(0, 6 * PAGE as u64 + 1).unwrap();
    assert_eq!(
        handles.calls(),
        ["trim 0+6"],
        "the page of the last byte holds nothing: nothing to read_modify_write"
    );
}

#[test]
fn beyond_the_end_reads_and_trims_are_invalid_and_writes_have_no_space() {
    let (volume, handles) = toy(None, false);
    let size = volume.size();
    assert_eq!(errno_of(volume.read(size - 1, &mut [0; 2])), EINVAL);
    assert_eq!(errno_of(volume.read(u64::MAX, &mut [0; 2])), EINVAL);
    assert_eq!(errno_of(volume.trim(size, 1)), EINVAL);
    assert_eq!(errno_of(volume.write(size - 1, &[0; 2])), ENOSPC);
    assert_eq!(errno_of(volume.write_zeroes(1, u64::MAX)), ENOSPC);
    assert_eq!(errno_of(volume.extents(size, 1, 1)), EINVAL);
    assert!(handles.calls().is_empty(), "nothing reached the scheme");
    volume.read(size, &mut []).unwrap();
    let host = volume.host();
    assert_eq!(host.of(Op::Read).errors[ErrorClass::Einval as usize], 2);
    assert_eq!(
        host.of(Op::WriteZeroes).errors[ErrorClass::Enospc as usize],
        1
    );
    assert!(host.ops.iter().all(|op| op.in_flight == 0));
}

#[test]
fn a_schemes_error_becomes_one_errno_and_service_goes_on() {
    let (volume, handles) = toy(None, false);
    for (error, errno) in [
        (FtlError::HostFull, ENOSPC),
        (FtlError::ReadOnly("worn out"), EPERM),
        (FtlError::MediaLost(3), EIO),
        (FtlError::Host(28), EIO),
        (FtlError::Corrupt("x".into()), EIO),
    ] {
        handles.set(3, Trap::Fail(error));
        assert_eq!(errno_of(volume.write(3 * PAGE as u64, &[0; PAGE])), errno);
        volume.write(0, &[9; PAGE]).unwrap();
    }
    assert_eq!(volume.failure(), None);
}

#[test]
fn writes_fail_from_the_first_refusal_to_the_next_success() {
    let (volume, handles) = toy(None, false);
    for (error, state) in [
        (FtlError::HostFull, Some("disk-full")),
        (FtlError::Host(EIO), Some("host-error")),
        (FtlError::MediaLost(3), None),
    ] {
        handles.set(3, Trap::Fail(error));
        assert!(volume.write(3 * PAGE as u64, &[0; PAGE]).is_err());
        assert_eq!(volume.writes_failing().map(WritesFailing::state), state);
        // Requests without an effect on the flash do not end the failure.
        volume.read(0, &mut [0; PAGE]).unwrap();
        volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
        volume.trim(5 * PAGE as u64, PAGE as u64).unwrap();
        assert!(volume.write(volume.size(), &[0; PAGE]).is_err());
        assert_eq!(volume.writes_failing().map(WritesFailing::state), state);
        volume.write(0, &[9; PAGE]).unwrap();
        assert_eq!(volume.writes_failing(), None);
    }
}

#[test]
fn a_panic_in_a_write_ends_data_service_and_is_told() {
    let (volume, handles) = toy(None, false);
    volume.write(0, &[9; PAGE]).unwrap();
    handles.set(3, Trap::Panic);
    assert_eq!(errno_of(volume.write(3 * PAGE as u64, &[0; PAGE])), EIO);
    handles.calls();
    assert_eq!(errno_of(volume.write(0, &[0; PAGE])), EPERM);
    assert_eq!(
        errno_of(volume.read(0, &mut [0; PAGE])),
        EIO,
        "the table may be half changed"
    );
    assert_eq!(errno_of(volume.flush(FlushOf::Everything)), EIO);
    assert!(handles.calls().is_empty(), "the scheme is left alone");
    assert!(volume.failure().unwrap().contains("NAND rule: page 3"));
    assert!(volume.publish(true) && volume.idle(1) == Idle::Settled);
}

#[test]
fn a_panic_in_a_read_stops_writes_only() {
    let (volume, handles) = toy(None, false);
    volume.write(0, &[9; PAGE]).unwrap();
    handles.set(3, Trap::Panic);
    assert_eq!(errno_of(volume.read(3 * PAGE as u64, &mut [0; PAGE])), EIO);
    let mut page = [0; PAGE];
    volume.read(0, &mut page).unwrap();
    assert_eq!(page, [9; PAGE]);
    assert_eq!(errno_of(volume.write(0, &[0; PAGE])), EPERM);
}

#[test]
fn read_only_refuses_changes_and_closes_without_one() {
    let (volume, handles) = toy(None, true);
    assert_eq!(errno_of(volume.write(0, &[0; PAGE])), EPERM);
    assert_eq!(errno_of(volume.trim(0, 1)), EPERM);
    volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
    volume.read(0, &mut [0; PAGE]).unwrap();
    volume.close().unwrap();
    assert_eq!(handles.calls(), ["read 0+1"]);
    assert_eq!(errno_of(volume.read(0, &mut [0; PAGE])), EIO, "closed");
}

#[test]
fn extents_tell_data_from_holes_and_obey_the_limit() {
    let (volume, _) = toy(None, false);
    volume.write(2 * PAGE as u64, &[1; 2 * PAGE]).unwrap();
    let hole = |len| Extent { len, mapped: false };
    let data = |len| Extent { len, mapped: true };
    let page = PAGE as u64;
    assert_eq!(
        volume.extents(100, 5 * page, 9).unwrap(),
        [hole(2 * page - 100), data(2 * page), hole(page + 100)]
    );
    assert_eq!(
        volume.extents(100, 5 * page, 1).unwrap(),
        [hole(2 * page - 100)]
    );
    assert_eq!(volume.extents(2 * page + 1, 7, 9).unwrap(), [data(7)]);
}

/// Executes writes of whole pages, each filled with its number; returns the errnos, 0 for success.
fn write_pages(volume: &dyn BlockDevice, pages: &[u64]) -> Vec<i32> {
    let data: Vec<Vec<u8>> = (1..=pages.len()).map(|i| vec![i as u8; PAGE]).collect();
    let writes: Vec<(u64, &[u8])> = pages
        .iter()
        .zip(&data)
        .map(|(page, data)| (page * PAGE as u64, &data[..]))
        .collect();
    let mut results = Vec::new();
    volume.write_many(&writes, &mut results);
    results
        .into_iter()
        .map(|result| result.map_or_else(|error| error.raw_os_error().unwrap(), |_| 0))
        .collect()
}

#[test]
fn writes_of_a_batch_are_in_order_and_each_is_counted() {
    let (volume, _) = toy(None, false);
    assert_eq!(write_pages(&volume, &[5, 3, 5, 9]), [0; 4]);
    let mut pages = [0; 3 * PAGE];
    for (page, at) in pages.chunks_exact_mut(PAGE).zip([3, 5, 9]) {
        volume.read(at * PAGE as u64, page).unwrap();
    }
    let seen = [pages[0], pages[PAGE], pages[2 * PAGE]];
    assert_eq!(seen, [2, 3, 4], "the later write of page 5 counts");
    let writes = *volume.host().of(Op::Write);
    assert_eq!(
        (writes.completed, writes.bytes, writes.in_flight),
        (4, 4 * PAGE as u64, 0)
    );
}

#[test]
fn what_the_scheme_refuses_in_a_batch_fails_and_nothing_else() {
    let (volume, handles) = toy(None, false);
    handles.set(7, Trap::Fail(FtlError::HostFull));
    assert_eq!(write_pages(&volume, &[5, 7, 6]), [0, ENOSPC, 0]);
    assert!(volume.writes_failing().is_none(), "the last one succeeded");
    // Nothing of a batch that the store did not take is acknowledged before it is written again.
    handles.set(END_OF_BATCH, Trap::Fail(FtlError::HostFull));
    handles.calls();
    assert_eq!(write_pages(&volume, &[5, 6]), [0, 0]);
    let twice = ["write 5+1", "write 6+1", "write 5+1", "write 6+1"];
    assert_eq!(handles.calls(), twice);
    // Zeros of a part of a page without data change nothing, and wait for the store all the same.
    assert_eq!(
        errno_of(volume.write_zeroes(9 * PAGE as u64 + 512, 512)),
        ENOSPC
    );
    assert_eq!(handles.calls(), [""; 0]);
    handles.set(7, Trap::Panic);
    assert_eq!(
        write_pages(&volume, &[5, 7, 6]),
        [EPERM; 3],
        "the device has failed"
    );
    let writes = *volume.host().of(Op::Write);
    assert_eq!((writes.completed, writes.in_flight), (4, 0));
}

#[test]
fn parts_of_pages_and_writes_beyond_the_end_are_no_batch() {
    let (volume, handles) = toy(None, false);
    let size = volume.size();
    let data = [7; PAGE];
    let (whole, part) = (&data[..], &data[..100]);
    let last = size / PAGE as u64 * PAGE as u64;
    let writes = [
        (0, whole),
        (PAGE as u64, whole),
        (5000, part),
        (last, whole),
        (size, part),
    ];
    let mut results = Vec::new();
    volume.write_many(&writes, &mut results);
    let errnos: Vec<i32> = results
        .into_iter()
        .map(|result| result.map_or_else(|error| error.raw_os_error().unwrap(), |_| 0))
        .collect();
    assert_eq!(errnos, [0, 0, 0, ENOSPC, ENOSPC]);
    assert_eq!(
        handles.calls(),
        ["write 0+1", "write 1+1", "read 4+1", "write 4+1"]
    );
}

/// Block layers know only powers of two, and a power cut tears a request at the ends of pages.
#[test]
fn the_announced_blocks_are_powers_of_two_that_divide_a_page() {
    let announced = |page_bytes: u32| {
        let mut profile = Profile::find("torture").unwrap().with_blocks(40);
        profile.geometry.page_bytes = page_bytes;
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let config = ftl_core::FtlConfig {
            logical_pages: 200,
            params: ftl_core::Params::default(),
        };
        let scheme = ftl_core::schemes::Scheme::find("pagemap").unwrap();
        let ftl = scheme.start(chip, &config, ftl_core::Start::Format);
        let options = VolumeOptions {
            size: 200 * u64::from(page_bytes),
            read_only: false,
            emulate: false,
        };
        let mut volume = Volume::new(ftl.unwrap(), options, None);
        let direct = (volume.physical_block(), volume.preferred_block());
        volume.take_caches();
        assert_eq!(direct.0, volume.physical_block(), "pages of {page_bytes}");
        direct
    };
    let pages = [512, 1536, 2560, 3072, 4096, 6144, 12288, 16384];
    assert_eq!(
        pages.map(announced),
        [
            (512, 512),
            (512, 512),
            (512, 512),
            (1024, 1024),
            (4096, 4096),
            (2048, 2048),
            (4096, 4096),
            (4096, 16384)
        ]
    );
}
