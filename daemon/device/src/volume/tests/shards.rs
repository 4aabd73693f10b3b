//! Several shards: requests to one do not delay another, and a batch is split between them.

use super::*;
use crate::device::{BlockDevice, FlushOf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Pages of a stripe.
const STRIPE: u64 = 4;

/// A device of two toys.
fn pair(durable: Option<Arc<dyn Durable>>) -> (Volume, [Handles; 2]) {
    let (volume, handles) = toys(&[1, 1], durable);
    let Ok(handles) = handles.try_into() else {
        panic!("two shards")
    };
    (volume, handles)
}

/// A device of toys with these slowdowns.
fn toys(slow: &[u64], durable: Option<Arc<dyn Durable>>) -> (Volume, Vec<Handles>) {
    let made = slow.iter().map(|slow| toy_on_chip(*slow));
    let (ftls, handles): (Vec<_>, Vec<_>) = made.unzip();
    let chips = ftls.into_iter().map(|ftl| {
        let durable = durable.clone();
        MountedChip { ftl, durable }
    });
    let striping = Some(Striping {
        count: slow.len() as u32,
        stripe_bytes: STRIPE * PAGE as u64,
    });
    let options = VolumeOptions {
        size: slow.len() as u64 * u64::from(PAGES) * PAGE as u64,
        read_only: false,
        emulate: false,
    };
    let volume = Volume::sharded(chips.collect(), striping, options);
    (volume, handles)
}

/// Writes pages of the device, each with its place in the list, in one batch; returns the errnos.
pub(super) fn write_pages(volume: &Volume, pages: &[u64]) -> Vec<i32> {
    let data: Vec<_> = (0..pages.len()).map(|i| vec![i as u8 + 1; PAGE]).collect();
    let offsets = pages.iter().map(|page| page * PAGE as u64);
    let writes: Vec<_> = offsets.zip(data.iter().map(Vec::as_slice)).collect();
    let mut results = Vec::new();
    volume.write_many(&writes, &mut results);
    let errno = |error: io::Error| error.raw_os_error().unwrap();
    let results = results.into_iter();
    results
        .map(|result| result.map_or_else(errno, |_| 0))
        .collect()
}

fn first_byte(volume: &Volume, page: u64) -> u8 {
    let mut data = [0; PAGE];
    volume.read(page * PAGE as u64, &mut data).unwrap();
    data[0]
}

/// A request that hangs on one shard does not delay those on the other: they share no lock.
#[test]
fn requests_on_another_shard_do_not_wait() {
    let (volume, [first, _]) = pair(None);
    let (volume, until) = (&volume, Arc::new(Mutex::new(())));
    let held = until.lock().unwrap();
    first.set(1, Trap::Hang(until.clone()));
    std::thread::scope(|scope| {
        let (done, ended) = channel();
        let slow = scope.spawn(|| volume.write(PAGE as u64, &[9; PAGE]).map(drop));
        while first.calls.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        scope.spawn(move || {
            // All operations but FLUSH, which concerns all shards.
            let at = STRIPE * PAGE as u64;
            volume.write(at, &[1; 2 * PAGE]).unwrap();
            assert_eq!(write_pages(volume, &[4, 5, 6]), [0; 3]);
            assert_eq!(first_byte(volume, 5), 2);
            volume.trim(at, PAGE as u64).unwrap();
            volume.write_zeroes(at + PAGE as u64, 512).unwrap();
            volume.extents(at, PAGE as u64, 8).unwrap();
            // The calls that show the device do not wait for a lock, either.
            assert!(!volume.publish(false), "one of the locks is held");
            volume.flash();
            volume.idle(1);
            done.send(()).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(20));
        assert!(!slow.is_finished(), "the first shard was busy all along");
        drop(held);
        slow.join().unwrap().unwrap();
        ended.expect("the other shard waited");
    });
    assert_eq!(first_byte(volume, 1), 9);
}

#[test]
fn a_batch_is_split_by_shard_and_keeps_its_order_in_each() {
    let (volume, [first, second]) = pair(None);
    // Pages 0 to 3 and 8 to 11 are in the first shard, the others in the second.
    assert_eq!(write_pages(&volume, &[5, 0, 8, 5, 13, 0]), [0; 6]);
    assert_eq!(first.calls(), ["write 0+1", "write 4+1", "write 0+1"]);
    assert_eq!(second.calls(), ["write 1+1", "write 1+1", "write 5+1"]);
    let seen = [0, 5, 8, 13].map(|page| first_byte(&volume, page));
    assert_eq!(seen, [6, 4, 3, 5], "a later write of a page counts");
    first.calls();
    second.calls();
    // A write with bytes on both shards is executed alone; the writes around it are batches.
    let data = vec![7; 2 * PAGE];
    let page = PAGE as u64;
    let writes = [(0, &data[..]), (3 * page, &data), (5 * page, &data)];
    let mut results = Vec::new();
    volume.write_many(&writes, &mut results);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(first.calls(), ["write 0+2", "write 3+1"]);
    assert_eq!(second.calls(), ["write 0+1", "write 1+2"]);
    let writes = *volume.host().of(Op::Write);
    assert_eq!((writes.completed, writes.in_flight), (9, 0));
    assert_eq!(writes.bytes, 12 * page);
}

#[test]
fn what_one_shard_refuses_in_a_batch_is_done_again_there_alone() {
    let (volume, [first, second]) = pair(None);
    second.set(1, Trap::Fail(FtlError::HostFull));
    assert_eq!(write_pages(&volume, &[4, 0, 5, 1, 6]), [0, 0, ENOSPC, 0, 0]);
    assert_eq!(first.calls(), ["write 0+1", "write 1+1"], "once");
    let again = ["write 0+1", "write 1+1", "write 1+1", "write 2+1"];
    assert_eq!(second.calls(), again);
    *second.trap.lock().unwrap() = None;
    let seen = [4, 0, 5, 1, 6].map(|page| first_byte(&volume, page));
    assert_eq!(seen, [1, 2, 0, 4, 5]);
    let writes = *volume.host().of(Op::Write);
    assert_eq!((writes.completed, writes.in_flight), (4, 0));
}

/// A shard takes an extent of pages in a batch, whatever is on another.
#[test]
fn the_length_of_a_batch_is_that_of_a_shard() {
    let (volume, [first, second]) = pair(None);
    let pages: Vec<u64> = (0..40).collect();
    assert_eq!(write_pages(&volume, &pages), [0; 40]);
    let calls = |handles: &Handles| handles.calls().len();
    assert_eq!((calls(&first), calls(&second)), (20, 20));
    assert!(
        pages
            .iter()
            .all(|page| first_byte(&volume, *page) == *page as u8 + 1)
    );
}

/// A FLUSH, and so a request with FUA, is one of all shards, and waits for the number of each.
#[test]
fn a_flush_is_one_of_all_shards() {
    let gate = Arc::new(Gate::default());
    *gate.open.lock().unwrap() = true;
    let (volume, [first, second]) = pair(Some(gate.clone()));
    volume.write(0, &[1; PAGE]).unwrap();
    volume.write(0, &[2; PAGE]).unwrap();
    volume.write(STRIPE * PAGE as u64, &[3; PAGE]).unwrap();
    for of in [
        FlushOf::Everything,
        FlushOf::Request {
            offset: 0,
            len: PAGE as u64,
        },
    ] {
        first.calls();
        second.calls();
        gate.marks.lock().unwrap().clear();
        drop(volume.flush(of).unwrap().wait().unwrap());
        assert_eq!(
            [first.calls(), second.calls()].map(|calls| calls.len()),
            [1, 1]
        );
        let marks = gate.marks.lock().unwrap().clone();
        assert_eq!(marks.len(), 2, "{marks:?}");
        assert_eq!(marks[0], marks[1] + 1, "the first shard has one write more");
    }
}

/// Blocks of two shards fail together or not at all.
#[test]
fn a_fault_that_one_shard_refuses_is_in_none() {
    use crate::inject::{BadBlock, Injection};
    let (volume, _) = pair(None);
    let blocks = volume.flash().blocks / 2;
    let bad = |block: &[u32]| {
        let block = block.to_vec();
        volume.inject(&Injection::BadBlock(BadBlock {
            block,
            ..BadBlock::default()
        }))
    };
    bad(&[blocks]).unwrap();
    let refused = bad(&[0, blocks]).unwrap_err();
    assert!(refused.message.contains("already"), "{refused}");
    assert_eq!(bad(&[0]).unwrap().count, 1, "the first was not armed");
}

/// `inspect` numbers the pages of the device; a scheme those of its chip.
#[test]
fn an_error_names_the_shard_and_the_devices_page() {
    let (volume, [_, second]) = pair(None);
    second.set(5, Trap::Fail(FtlError::MediaLost(5)));
    // Page 5 of the second shard is page 13 of the device.
    let read = volume.read(13 * PAGE as u64, &mut [0; PAGE]);
    assert_eq!(read.err().and_then(|error| error.raw_os_error()), Some(EIO));
    let text = volume.error_text(1, &FtlError::MediaLost(5));
    assert_eq!(text, "data of logical page 13 cannot be read");
    let text = volume.error_text(0, &FtlError::MediaLost(5));
    assert_eq!(text, "data of logical page 9 cannot be read");
    let (one, _) = toy(None, false);
    let error = FtlError::MediaLost(5);
    assert_eq!(one.error_text(0, &error), error.to_string());
}

/// Extents end where one shard has found as many as were wanted; those of the next shard do not
/// continue them.
#[test]
fn a_limit_of_extents_reached_amid_a_stripe_ends_the_reply() {
    use crate::device::Extent;
    let (volume, _) = pair(None);
    let page = PAGE as u64;
    // Stripe 0 has a hole, data and a hole; stripe 1 is a hole, stripe 2 data.
    volume.write(page, &[1; PAGE]).unwrap();
    volume.write(2 * STRIPE * page, &[1; 4 * PAGE]).unwrap();
    let extent = |pages, mapped| Extent {
        len: pages * page,
        mapped,
    };
    let all = [
        extent(1, false),
        extent(1, true),
        extent(6, false),
        extent(4, true),
    ];
    let stripe = STRIPE * page;
    let content = [page..2 * page, 2 * stripe..3 * stripe];
    assert_eq!(volume.content().unwrap(), content);
    for max in 1..=all.len() {
        let found = volume.extents(0, 3 * STRIPE * page, max).unwrap();
        assert_eq!(found, all[..max], "at most {max}");
    }
}

/// A pause that begins while a batch runs on one shard holds up its writes on the next.
#[test]
fn a_pause_amid_a_batch_counts_the_rest_one_by_one() {
    use crate::volume::tests::control::settled;
    let (volume, [first, second]) = pair(None);
    let (volume, until) = (&volume, Arc::new(Mutex::new(())));
    let held = until.lock().unwrap();
    first.set(1, Trap::Hang(until.clone()));
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| write_pages(volume, &[1, STRIPE, STRIPE + 1]));
        while first.calls.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        // The pause waits for the lock of the first shard, but counts from its beginning.
        let pause = scope.spawn(|| volume.pause(Duration::from_secs(60)).map(drop));
        while !volume.is_paused() {
            std::thread::yield_now();
        }
        drop(held);
        pause.join().unwrap().unwrap();
        volume.step(Step::Requests(1)).unwrap();
        // The write of the first shard is done; the step is one of the second shard.
        assert_eq!(settled(volume, 2), 2);
        let stepped = second.calls();
        volume.resume();
        assert_eq!(batch.join().unwrap(), [0; 3]);
        assert_eq!(stepped, ["write 0+1"], "a step of one request");
    });
}

/// The chips work at the same time: a request takes as long as on the slowest.
#[test]
fn a_request_takes_the_time_of_its_slowest_shard_wherever_that_is() {
    for slow in [[3, 1, 2], [1, 3, 2], [1, 2, 3]] {
        let (volume, _) = toys(&slow, None);
        let all = 3 * STRIPE as usize * PAGE;
        volume.write(0, &vec![1; all]).unwrap();
        volume.read(0, &mut vec![0; all]).unwrap();
        drop(volume.flush(FlushOf::Everything).unwrap().wait().unwrap());
        let host = volume.host();
        let took = [Op::Write, Op::Read, Op::Flush].map(|op| host.of(op).emulated.sum_ns);
        assert_eq!(took, [1_500_000, 150_000, 2_000_000], "{slow:?}");
    }
}

#[test]
fn a_device_has_idle_work_while_any_shard_has() {
    for busy in 0..3 {
        let (volume, handles) = toys(&[1; 3], None);
        handles[busy].work.store(2, Relaxed);
        let left = [(); 3].map(|()| volume.idle(1));
        let expected = [Idle::More, Idle::More, Idle::Settled];
        assert_eq!(left, expected, "shard {busy} has some");
    }
    let after = |seconds| Idle::After(Duration::from_secs(seconds));
    for (one, other, sooner) in [
        (Idle::Settled, Idle::Settled, Idle::Settled),
        (Idle::Settled, after(1), after(1)),
        (Idle::Settled, Idle::More, Idle::More),
        (after(2), after(1), after(1)),
        (after(1), Idle::More, Idle::More),
    ] {
        assert_eq!((one.soonest(other), other.soonest(one)), (sooner, sooner));
    }
}
