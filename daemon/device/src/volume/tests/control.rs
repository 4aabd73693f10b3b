//! Power cuts, pauses, and the published state of a busy or hanging volume.

use super::{Gate, PAGE, Trap, errno_of, toy};
use crate::device::{BlockDevice, FlushOf};
use crate::volume::*;
use nand_model::Pbn;
use nand_model::store::MemStore;
use std::sync::Mutex;
use std::time::Instant;

/// Waits until `wanted` writes are done, and 30 ms longer; returns the number done.
pub(super) fn settled(volume: &Volume, wanted: u64) -> u64 {
    let writes = || volume.host().of(Op::Write).completed;
    let until = Instant::now() + Duration::from_secs(10);
    while writes() < wanted && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(30));
    writes()
}

#[test]
fn a_power_cut_fails_every_verb_and_the_store_can_still_be_had() {
    let cut = crate::inject::Injection::PowerCut(Default::default());
    let (volume, handles) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.inject(&cut).unwrap();
    handles.calls();
    let mut buf = [0; PAGE];
    assert_eq!(errno_of(volume.read(0, &mut buf)), EIO);
    assert_eq!(errno_of(volume.write(0, &buf)), EIO);
    assert_eq!(errno_of(volume.trim(0, 512)), EIO);
    assert_eq!(errno_of(volume.write_zeroes(0, 512)), EIO);
    assert_eq!(errno_of(volume.flush(FlushOf::Everything).map(drop)), EIO);
    assert_eq!(errno_of(volume.extents(0, 512, 1)), EIO);
    assert!(volume.publish(true) && volume.idle(16) == Idle::Settled);
    assert_eq!(
        (volume.failure().as_deref(), volume.is_powerless()),
        (Some("power cut injected"), true)
    );
    assert!(
        volume
            .inject(&cut)
            .unwrap_err()
            .message
            .contains("failed already (power cut injected)")
    );
    assert_eq!(volume.injected()[..3], [1, 0, 0]);
    assert!(
        volume.close().is_ok() && handles.calls().is_empty(),
        "no verb reaches the scheme"
    );
}

#[test]
fn a_cut_that_strikes_a_verb_ends_the_device_and_one_taken_back_does_not() {
    let (volume, handles) = toy(None, false);
    handles.set(3, Trap::Fail(FtlError::PowerLost));
    assert_eq!(errno_of(volume.write(3 * PAGE as u64, &[1; PAGE])), EIO);
    assert!(volume.is_powerless() && !volume.keep_power());
    let (volume, _) = toy(None, false);
    let cut = crate::inject::PowerCut {
        after: Some(0),
        ..Default::default()
    };
    volume
        .inject(&crate::inject::Injection::PowerCut(cut))
        .unwrap();
    let armed = || {
        volume.shards[0]
            .lock()
            .as_ref()
            .unwrap()
            .ftl
            .chip()
            .faults()
            .is_some_and(|plan| plan.cut.is_some())
    };
    assert!(armed() && volume.keep_power() && !armed());
}

#[test]
fn a_paused_device_waits_steps_and_goes_on_while_everything_else_works() {
    let (volume, _) = toy(None, false);
    volume.write(PAGE as u64, &[1; PAGE]).unwrap();
    assert!(
        volume
            .step(Step::Requests(1))
            .unwrap_err()
            .message
            .contains("`ftld pause`")
    );
    volume.pause(Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        // Every third write is an event.
        scope.spawn(|| {
            (0..30).for_each(|i| drop(volume.write((i + 1) % 3 * PAGE as u64, &[2; PAGE]).unwrap()))
        });
        let until = Instant::now() + Duration::from_secs(10);
        while volume.host().of(Op::Write).in_flight == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(settled(&volume, 1), 1, "paused");
        assert!(
            volume.publish(false),
            "a waiting request does not hold the lock"
        );
        assert!(matches!(volume.idle(16), Idle::After(_)), "the flash rests");
        assert_eq!(volume.host().of(Op::Write).in_flight, 1);
        volume.step(Step::Requests(4)).unwrap();
        assert_eq!(settled(&volume, 5), 5);
        volume.step(Step::Events(2)).unwrap();
        assert_eq!(
            settled(&volume, 10),
            10,
            "two of these wrote page 0, the last one did"
        );
        assert!(
            !volume.paused().unwrap().stepping
                && volume.paused().unwrap().left > Duration::from_secs(50)
        );
        assert!(volume.resume());
    });
    assert_eq!(settled(&volume, 31), 31);
    assert!(volume.paused().is_none() && !volume.resume());
    let mut page = [0; PAGE];
    volume.read(0, &mut page).unwrap();
    assert_eq!(page, [2; PAGE], "nothing was lost");
}

#[test]
fn a_stop_a_power_cut_and_time_end_a_pause() {
    let ended_by = |end: &(dyn Fn(&Volume) + Sync), length| {
        let (volume, _) = toy(None, false);
        volume.pause(length).unwrap();
        std::thread::scope(|scope| {
            let write = scope.spawn(|| {
                volume
                    .write(0, &[1; PAGE])
                    .map(drop)
                    .map_err(|error| error.raw_os_error())
            });
            assert_eq!(settled(&volume, 0), 0);
            end(&volume);
            write.join().unwrap()
        })
    };
    let long = Duration::from_secs(500);
    assert_eq!(
        ended_by(&|_| {}, Duration::from_millis(100)),
        Ok(()),
        "time"
    );
    let cut = crate::inject::Injection::PowerCut(Default::default());
    assert_eq!(
        ended_by(&|volume| drop(volume.inject(&cut).unwrap()), long),
        Err(Some(EIO)),
        "a power cut"
    );
    // Either the write or the close may come first.
    let closed = ended_by(&|volume| drop(volume.close().unwrap()), long);
    assert!(matches!(closed, Ok(()) | Err(Some(EIO))), "{closed:?}");
    let (volume, _) = toy(None, false);
    volume.unlocked.fail(NO_WRITES, "sync failed".into());
    assert!(
        volume
            .pause(long)
            .unwrap_err()
            .message
            .contains("sync failed")
    );
}

#[test]
fn blocks_and_events_are_published_while_somebody_looks() {
    let (volume, _) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.publish(true);
    assert_eq!(
        (volume.blocks().generation, volume.events(0, 9)),
        (0, EventsView::default()),
        "nobody looks"
    );
    volume.watch();
    volume.publish(true);
    let (blocks, events) = (volume.blocks(), volume.events(0, 9));
    assert_eq!(
        (blocks.generation, blocks.blocks, blocks.cells.len()),
        (1, 8, 8)
    );
    assert_eq!(
        (events.next, events.events[0].1.block),
        (1, Some(Pbn::new(3)))
    );
    volume.publish(true);
    assert_eq!(
        (volume.blocks().generation, volume.events(1, 9).events),
        (1, vec![]),
        "nothing is new"
    );
}

#[test]
fn a_scheme_that_hangs_is_stuck_and_goes_on_when_it_does() {
    use crate::background::Background;
    use crate::stall::{ProgressSample, Stall, StallDetector};
    let (volume, handles) = toy(None, false);
    let volume = Arc::new(volume);
    let background = Background::start(&volume, None).unwrap();
    let turns = background.turns();
    let pulse = || ProgressSample {
        turns: turns.load(Relaxed),
        volume: volume.queue(),
        device: None,
        at_storage: volume.waits_for_storage(),
        paused: volume.paused().is_some(),
    };
    let until = |done: &dyn Fn() -> bool| {
        while !done() {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let hung = Arc::new(Mutex::new(()));
    let held = hung.lock().unwrap();
    handles.set(3, Trap::Hang(hung.clone()));
    std::thread::scope(|scope| {
        scope.spawn(|| volume.read(3 * PAGE as u64, &mut [0; PAGE]).unwrap());
        until(&|| !handles.calls().is_empty());
        let mut progress = StallDetector::default();
        // A background turn that had begun may still end.
        let _ = progress.look(pulse());
        std::thread::sleep(Duration::from_millis(500));
        let _ = progress.look(pulse());
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(progress.look(pulse()), Err(Stall::Lock));
        assert_eq!(
            volume.queue(),
            Queue {
                in_flight: 1,
                answered: 0
            }
        );
        drop(held);
        let last = turns.load(Relaxed);
        until(&|| turns.load(Relaxed) > last && volume.queue().in_flight == 0);
        assert_eq!(progress.look(pulse()), Ok(()));
        assert_eq!(
            volume.queue(),
            Queue {
                in_flight: 0,
                answered: 1
            }
        );
    });
}

#[test]
fn a_pause_holds_a_write_that_waited_for_erased_space_when_it_began() {
    let gate = Gate::closed();
    let (volume, handles) = toy(Some(gate.clone()), false);
    let set_credit = |left| {
        let mut guard = volume.shards[0].lock();
        let chip = guard.as_mut().unwrap().ftl.chip_mut();
        let store = chip.store_mut().downcast_mut::<MemStore>();
        store.unwrap().set_erase_credit(left);
    };
    set_credit(3);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| volume.write(PAGE as u64, &[1; PAGE]).map(drop));
        while gate.waits.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        volume.pause(Duration::from_secs(60)).unwrap();
        set_credit(u32::MAX);
        gate.let_go();
        assert_eq!(settled(&volume, 0), 0);
        let calls = handles.calls();
        volume.resume();
        write.join().unwrap().unwrap();
        assert_eq!(calls, [""; 0], "while it was paused");
    });
    assert_eq!(handles.calls(), ["write 1+1"]);
}

/// No thread of the daemon dies unseen.
#[test]
fn a_background_thread_that_dies_fails_the_device() {
    let (volume, _) = toy(None, false);
    let volume = Arc::new(volume);
    volume.write(PAGE as u64, &[1; PAGE]).unwrap();
    crate::background::start_panicking(&volume, "ftld-sync").unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while volume.failure().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let why = volume.failure().expect("a failure");
    assert!(why.contains("thread ftld-sync has ended: planted"), "{why}");
    assert_eq!(errno_of(volume.write(0, &[1; PAGE])), EPERM);
    volume.read(PAGE as u64, &mut [0; PAGE]).unwrap();
    let (second, _) = toy(None, false);
    second.note_dead_thread("ftld-cache", "planted");
    let mut view = crate::fresh_status::fresh();
    view.failure = second.failure();
    assert_eq!(view.state(), "failed");
}

#[test]
fn a_step_of_any_length_is_taken() {
    let (volume, _) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.pause(Duration::from_secs(60)).unwrap();
    for step in [Step::Events(u64::MAX), Step::Requests(u64::MAX)] {
        volume.step(step).unwrap();
        volume.write(0, &[1; PAGE]).unwrap();
        assert!(volume.paused().unwrap().stepping, "{step:?}");
    }
}
