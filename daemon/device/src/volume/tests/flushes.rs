//! FLUSH: coverage of a sync, waiters, and the effects of a failed one.

use super::control::settled;
use super::{Gate, PAGE, errno_of, toy};
use crate::device::{BlockDevice, Completion, FlushOf};
use crate::volume::unsynced::MOST_AGE;
use crate::volume::*;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use std::time::Instant;

/// Returns the number of verbs that changed the store so far.
fn changes(volume: &Volume) -> u64 {
    volume.shards[0]
        .lock()
        .as_ref()
        .expect("not closed")
        .ftl
        .chip()
        .store()
        .hour()
        .into()
}

#[test]
fn requests_and_snapshots_go_on_while_a_flush_waits() {
    let gate = Gate::closed();
    let (volume, _) = toy(Some(gate.clone()), false);
    volume.write(0, &[5; PAGE]).unwrap();
    let flush = volume.flush(FlushOf::Everything).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || tell.send(flush.wait()).unwrap());
        while gate.waits.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let mut page = [0; PAGE];
        volume.read(0, &mut page).unwrap();
        volume.write(0, &[6; PAGE]).unwrap();
        assert!(volume.publish(false));
        assert_eq!(volume.flash().scheme.mapped_pages, 1);
        assert_eq!(volume.host().of(Op::Flush).in_flight, 1);
        assert!(
            told.try_recv().is_err(),
            "the flush is not done before its sync"
        );
        gate.let_go();
        told.recv().unwrap().unwrap();
    });
    assert_eq!(volume.host().of(Op::Flush).completed, 1);
}

#[test]
fn a_flush_waits_for_a_mark_that_covers_its_own_flush_and_every_earlier_acknowledgement() {
    let gate = Gate::closed();
    gate.let_go();
    let (volume, _) = toy(Some(gate.clone()), false);
    let waited = || std::mem::take(&mut *gate.marks.lock().unwrap());
    let page = PAGE as u64;
    type Verb<'a> = &'a dyn Fn(&Volume) -> io::Result<Completion>;
    let verbs: [Verb<'_>; 4] = [
        &|volume| volume.write(0, &[1; PAGE]),
        &|volume| volume.write(3, &[2; 5]),
        &|volume| volume.trim(page, page),
        &|volume| volume.write_zeroes(1, 7),
    ];
    for verb in verbs {
        let before = changes(&volume);
        verb(&volume).unwrap();
        let answered = changes(&volume);
        let flush = volume.flush(FlushOf::Everything).unwrap();
        let own = changes(&volume);
        assert!(before < answered && answered < own, "every verb counts");
        volume.write(0, &[3; PAGE]).unwrap();
        flush.wait().unwrap();
        let marks = waited();
        assert!(
            matches!(marks[..], [mark] if mark >= own),
            "{marks:?}, flushed at {own}"
        );
    }
    let first = volume.flush(FlushOf::Everything).unwrap();
    volume.write(0, &[4; PAGE]).unwrap();
    let second = volume.flush(FlushOf::Everything).unwrap();
    let newest = changes(&volume);
    second.wait().unwrap();
    first.wait().unwrap();
    let marks = waited();
    assert!(
        matches!(marks[..], [two, one] if one < two && two >= newest),
        "two overlap: {marks:?} of {newest}"
    );
    volume.close().unwrap();
    assert!(
        matches!(waited()[..], [mark] if mark > newest),
        "a stop waits for its last change"
    );
}

/// Looks twice, `MOST_AGE` apart, whether the image has to be synced.
fn look_for_old_operations(volume: &Volume) {
    let now = Instant::now();
    let mut age = UnsyncedAge::new(now);
    volume.sync_when_due(&mut age, now);
    volume.sync_when_due(&mut age, now + MOST_AGE);
}

#[test]
fn old_operations_are_synced_without_a_request() {
    let gate = Gate::closed();
    gate.let_go();
    let (volume, _) = toy(Some(gate.clone()), false);
    let waited = || std::mem::take(&mut *gate.marks.lock().unwrap());
    volume.write(0, &[1; PAGE]).unwrap();
    look_for_old_operations(&volume);
    assert_eq!(waited(), [changes(&volume)]);
    assert_eq!(volume.host().of(Op::Flush).completed, 0);
    gate.synced.store(changes(&volume), Relaxed);
    look_for_old_operations(&volume);
    assert!(waited().is_empty(), "everything is synced");
    volume.write(0, &[1; PAGE]).unwrap();
    volume.pause(Duration::from_secs(60)).unwrap();
    look_for_old_operations(&volume);
    assert!(
        waited().is_empty(),
        "a copy of the image may be in progress"
    );
    volume.resume();
    look_for_old_operations(&volume);
    assert_eq!(waited(), [changes(&volume)]);
    gate.fails.store(true, Relaxed);
    look_for_old_operations(&volume);
    assert_eq!(errno_of(volume.write(0, &[1; PAGE])), EPERM);
    assert!(volume.failure().unwrap().contains("sync"));
    waited();
    look_for_old_operations(&volume);
    assert!(waited().is_empty(), "the device has failed");
}

#[test]
fn a_flush_among_writers_covers_what_any_of_them_was_told() {
    let gate = Gate::closed();
    gate.let_go();
    let (volume, _) = toy(Some(gate.clone()), false);
    let (told, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                let before = changes(&volume);
                volume.write(0, &[1; PAGE]).unwrap();
                told.fetch_max(before + 1, Relaxed);
            }
        });
        for _ in 0..500 {
            let acknowledged = told.load(Relaxed);
            volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
            let mark = gate.marks.lock().unwrap().pop().expect("it waited");
            assert!(
                mark > acknowledged,
                "a mark of {mark} after an acknowledgement of {acknowledged}"
            );
        }
        ended.store(true, Relaxed);
    });
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let gate = Gate::closed();
    gate.let_go();
    gate.fails.store(true, Relaxed);
    let (volume, _) = toy(Some(gate.clone()), false);
    volume.write(0, &[5; PAGE]).unwrap();
    let (first, second) = (
        volume.flush(FlushOf::Everything).unwrap(),
        volume.flush(FlushOf::Everything).unwrap(),
    );
    assert_eq!(errno_of(first.wait()), EIO);
    gate.fails.store(false, Relaxed);
    assert_eq!(
        errno_of(second.wait()),
        EIO,
        "a sync that succeeds later proves nothing"
    );
    assert_eq!(errno_of(volume.flush(FlushOf::Everything)), EIO);
    assert_eq!(errno_of(volume.write(0, &[5; PAGE])), EPERM);
    volume.read(0, &mut [0; PAGE]).unwrap();
    assert!(
        volume
            .failure()
            .unwrap()
            .contains("sync of the image failed")
    );
    assert_eq!(
        volume.host().of(Op::Flush).errors[ErrorClass::Eio as usize],
        3
    );
}

#[test]
fn changes_that_wait_while_a_sync_fails_are_refused() {
    let gate = Gate::closed();
    let (volume, handles) = toy(Some(gate.clone()), false);
    volume.write(0, &[5; PAGE]).unwrap();
    let flush = volume.flush(FlushOf::Everything).unwrap();
    volume.pause(Duration::from_secs(500)).unwrap();
    handles.calls();
    std::thread::scope(|scope| {
        let waiting = [
            scope.spawn(|| errno_of(volume.write(0, &[6; PAGE]))),
            scope.spawn(|| errno_of(volume.trim(0, PAGE as u64))),
            scope.spawn(|| errno_of(volume.write_zeroes(0, PAGE as u64))),
        ];
        assert_eq!(settled(&volume, 0), 1);
        gate.fails.store(true, Relaxed);
        gate.let_go();
        assert_eq!(errno_of(flush.wait()), EIO);
        waiting
            .into_iter()
            .for_each(|change| assert_eq!(change.join().unwrap(), EPERM));
    });
    assert_eq!(
        handles.calls(),
        Vec::<String>::new(),
        "nothing reached the scheme"
    );
}

/// A thread that waits for a sync may be one of a transport, which only sees an error.
#[test]
fn a_sync_that_panics_fails_the_device() {
    let gate = Gate::closed();
    let (volume, _) = toy(Some(gate.clone()), false);
    volume.write(0, &[1; PAGE]).unwrap();
    gate.panics.store(true, Relaxed);
    let flush = volume.flush(FlushOf::Everything).unwrap();
    assert_eq!(errno_of(flush.wait()), EIO);
    let why = volume.failure().unwrap();
    assert_eq!(why, "internal error in a sync: planted");
    assert!(!volume.waits_for_storage(), "nobody waits any more");
    assert_eq!(errno_of(volume.write(0, &[1; PAGE])), EPERM);
    volume.read(0, &mut [0; PAGE]).unwrap();
}
