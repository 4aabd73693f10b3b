//! Emulated time: counting, delays, and the start of background work.

use super::shards::write_pages;
use super::{Gate, PAGE, PAGES, SLOW, errno_of, make, slow_toy, toy};
use crate::device::{BlockDevice, FlushOf};
use crate::volume::*;
use nand_model::store::MemStore;
use nand_model::{Chip, Profile};
use std::time::Instant;

/// Every operation takes an hour.
fn slow_timing() -> nand_model::Timing {
    let hour = 3_600_000_000_000;
    nand_model::Timing {
        read_ns: [hour; 4],
        partial_read_ns: hour,
        program_ns: [hour; 4],
        oob_program_ns: hour,
        erase_ns: hour,
        bus_ns: 0,
        controller_ns: 0,
        suspend: nand_model::Suspend::NONE,
        cache: nand_model::Cache::NONE,
    }
}

#[test]
fn emulated_time_is_counted_beside_wall_time() {
    let (volume, _) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.read(0, &mut [0; PAGE]).unwrap();
    let host = volume.host();
    assert_eq!(
        (
            host.of(Op::Write).emulated.sum_ns,
            host.of(Op::Read).emulated.sum_ns
        ),
        (500_000, 50_000)
    );
    assert_eq!(
        (
            host.of(Op::Write).bytes,
            host.of(Op::Write).wall.counts.iter().sum()
        ),
        (PAGE as u64, 1)
    );
}

#[test]
fn a_held_request_is_under_way_until_its_client_hears_of_it() {
    let volume = slow_toy(None);
    let began = Instant::now();
    let hold = volume
        .write(0, &[1; PAGE])
        .unwrap()
        .expect("it takes ten hours");
    assert!(hold.due() >= began + Duration::from_nanos(500_000 * SLOW));
    let mut page = [0; PAGE];
    let read = volume
        .read(0, &mut page)
        .unwrap()
        .expect("it takes an hour");
    assert_eq!(page, [1; PAGE], "delayed is done, only not told");
    assert!(volume.publish(false), "nothing is locked meanwhile");
    let under_way = || [Op::Read, Op::Write].map(|op| volume.host().of(op).in_flight);
    assert_eq!(under_way(), [1, 1]);
    assert_eq!(volume.idle_time(), Duration::ZERO);
    drop(read);
    assert_eq!(under_way(), [0, 1]);
    drop(hold);
    assert_eq!(under_way(), [0, 0]);
    let write = *volume.host().of(Op::Write);
    assert_eq!(
        (write.completed, write.delayed, write.emulated.sum_ns),
        (1, 1, 500_000 * SLOW)
    );
    assert!(
        write.wall.sum_ns >= write.emulated.sum_ns,
        "also when a longer hold took its place"
    );
}

#[test]
fn a_flush_is_held_after_its_sync_and_a_failed_one_is_told_at_once() {
    let gate = Gate::closed();
    gate.let_go();
    let volume = slow_toy(Some(gate.clone()));
    let hold = volume
        .flush(FlushOf::Everything)
        .unwrap()
        .wait()
        .unwrap()
        .expect("it takes hours");
    assert_eq!(volume.host().of(Op::Flush).in_flight, 1);
    drop(hold);
    let flush = volume.host().ops[Op::Flush as usize];
    assert_eq!((flush.in_flight, flush.completed, flush.delayed), (0, 1, 1));
    gate.fails.store(true, Relaxed);
    assert_eq!(
        errno_of(volume.flush(FlushOf::Everything).unwrap().wait()),
        EIO
    );
    assert_eq!(volume.host().of(Op::Flush).in_flight, 0);
    assert_eq!(errno_of(volume.write(0, &[1; PAGE])), EPERM);
}

#[test]
fn background_work_waits_for_the_emulated_flash() {
    // A scheme whose pages are on the chip.
    let profile = Profile {
        timing: slow_timing(),
        ..Profile::find("torture").unwrap().with_blocks(64)
    };
    let start = |emulate| {
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let config = ftl_core::FtlConfig {
            logical_pages: 256,
            params: ftl_core::Params::default(),
        };
        let scheme = ftl_core::schemes::Scheme::find("pagemap").unwrap();
        let ftl = scheme
            .start(chip, &config, ftl_core::Start::Format)
            .unwrap();
        Volume::new(
            ftl,
            VolumeOptions {
                size: 256 * PAGE as u64,
                read_only: false,
                emulate,
            },
            None,
        )
    };
    for emulate in [true, false] {
        let volume = start(emulate);
        drop(volume.write(0, &[1; PAGE]).unwrap());
        assert_eq!(matches!(volume.idle(1), Idle::After(_)), emulate);
    }
}

/// A batch takes as long, and leaves the same queue, as its writes one by one at its depth.
#[test]
fn a_batch_takes_the_time_and_the_queue_of_its_writes() {
    const HOUR: u64 = 3_600_000_000_000;
    let options = VolumeOptions {
        size: u64::from(PAGES) * PAGE as u64,
        read_only: false,
        emulate: false,
    };
    // When the next requests may start, by the depth of the queue.
    let starts = |volume: &Volume| {
        let guard = volume.shards[0].lock();
        let clock = &guard.as_ref().unwrap().clock;
        [1, 2, 3, 4, 5].map(|depth| clock.start(depth) / HOUR)
    };
    let write = |volume: &Volume, page: u64| {
        drop(volume.write(page * PAGE as u64, &[1; PAGE]).unwrap());
    };
    for together in [false, true] {
        // A write takes ten hours.
        let (volume, _) = make(None, options, SLOW);
        if together {
            assert_eq!(write_pages(&volume, &[1, 2, 3]), [0; 3]);
        } else {
            // The same number of requests is in flight as in the batch.
            let counters = &volume.unlocked.counters;
            counters.begin(Op::Write, 2);
            (1..4).for_each(|page| write(&volume, page));
            counters.end(Op::Write, 2);
        }
        assert_eq!(starts(&volume), [10, 10, 10, 0, 0], "together: {together}");
        write(&volume, 4);
        assert_eq!(starts(&volume), [20, 10, 10, 10, 0], "together: {together}");
        assert_eq!(write_pages(&volume, &[5, 6]), [0; 2]);
        // Two in flight: each began when the one before the last had ended.
        assert_eq!(
            starts(&volume),
            [30, 20, 20, 10, 10],
            "together: {together}"
        );
        let writes = *volume.host().of(Op::Write);
        assert_eq!((writes.completed, writes.in_flight), (6, 0));
        assert_eq!(writes.emulated.sum_ns, 6 * 500_000 * SLOW);
    }
}
