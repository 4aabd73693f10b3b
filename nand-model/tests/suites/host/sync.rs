//! Syncs, and the space that they free: failed and shared syncs, and a host without space.

use super::*;

#[test]
fn a_full_host_leaves_nothing_programmed_and_the_same_verb_works_later() {
    for profile in shapes() {
        for (writes, arrives) in
            (0..4).flat_map(|writes| [0, 1, 40, 300, 600].map(|arrives| (writes, arrives)))
        {
            let mut rig = Rig::new(profile, 77);
            let geometry = profile.geometry;
            let block = 3;
            if arrives % 2 == 0 {
                // A block whose slot had an earlier life.
                (0..30).for_each(|_| rig.step());
                rig.erase(block);
            }
            let (first, count) = (geometry.page(Pbn::new(block as u32), 0), 3);
            let (data, oobs) = (
                vec![7; 3 * geometry.page_bytes as usize],
                vec![8; 3 * geometry.oob_bytes as usize],
            );
            rig.disk.fail_write(writes, arrives, ENOSPC);
            let result = rig.store().program(first, count, &data, &oobs);
            let spent = !rig.disk.has_write_faults();
            rig.disk.clear_faults();
            assert_eq!(
                result.as_ref().err().and_then(io::Error::raw_os_error),
                spent.then_some(ENOSPC)
            );
            if result.is_err() {
                rig.catch_up(0);
                let given = rig.history.len() as u64 - 1;
                let (_, cut) = rig.check(
                    &SimDisk::holding(rig.disk.bytes()),
                    given,
                    &(writes, arrives),
                );
                assert_eq!(cut, given);
                // Another operation gets the number; a read must not find the refused one.
                rig.erase((block + 1) % 6);
                let given = rig.history.len() as u64 - 1;
                rig.check(
                    &SimDisk::holding(rig.disk.bytes()),
                    given,
                    &(writes, arrives),
                );
                rig.store().program(first, count, &data, &oobs).unwrap();
            }
            let mut seen = vec![0; data.len()];
            rig.store()
                .read(first, &mut seen, &mut [], &mut [Health::Lost; 3])
                .unwrap();
            assert_eq!(seen, data);
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_and_only_what_was_synced_comes_back() {
    for profile in shapes() {
        let mut rig = Rig::new(profile, 21);
        (0..60).for_each(|_| rig.step());
        let handle = rig.store().sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        let good = handle.synced_seq();
        (0..3).for_each(|block| rig.erase(block));
        handle.fail_next_sync();
        assert_eq!(
            handle.sync_through(handle.last_seq()),
            Err(SyncError::Failed(EIO))
        );
        assert_eq!(
            handle.sync_through(handle.last_seq()),
            Err(SyncError::Failed(EIO))
        );
        assert_eq!(handle.sync_through(good), Ok(()));
        let refused = rig
            .store()
            .erase(Pbn::new(0), BlockFacts::default())
            .unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(EIO));
        rig.store = None;
        let (store, report) = open(&rig.disk, Access::ReadOnly).unwrap();
        assert!(report.sync_failed && store.info().sync_failed && report.ops_dropped == 3);
        let (store, cut) = rig.check(&rig.disk, good, &"failed sync");
        assert_eq!(cut, good);
        rig.history.truncate(cut as usize + 1);
        rig.store = Some(store);
        (0..30).for_each(|_| rig.step());
        let (_, report) = open(&SimDisk::holding(rig.disk.bytes()), Access::ReadOnly).unwrap();
        assert!(!report.sync_failed);
    }
}

#[test]
fn a_disk_that_fails_its_sync_is_told_the_same_way() {
    let mut rig = Rig::new(shapes()[0], 3);
    (0..20).for_each(|_| rig.step());
    rig.disk.fail_syncs(u64::MAX);
    rig.erase(0);
    let handle = rig.store().sync_handle();
    assert_eq!(
        handle.sync_through(handle.last_seq()),
        Err(SyncError::Failed(EIO))
    );
    rig.disk.clear_faults();
    assert_eq!(
        handle.settle(handle.last_seq()),
        Err(SyncError::Failed(EIO))
    );
    assert!(rig.store.take().unwrap().close().is_err());
}

#[test]
fn erase_credit_counts_down_and_comes_back_after_two_syncs() {
    let (_, mut store) = fresh(shapes()[0], 5);
    let handle = store.sync_handle();
    let page = store.info().profile.geometry.page_bytes as usize;
    for block in 0..6 {
        store
            .program(
                store.info().profile.geometry.page(Pbn::new(block), 0),
                1,
                &vec![0; page],
                &[],
            )
            .unwrap();
    }
    for left in (0..5).rev() {
        store.erase(Pbn::new(left), BlockFacts::default()).unwrap();
        assert_eq!(store.erase_credit(), left);
    }
    handle.sync_through(handle.last_seq()).unwrap();
    assert_eq!(store.erase_credit(), 0);
    let before = handle.stats().count;
    handle.settle(handle.last_seq()).unwrap();
    assert_eq!(
        (store.erase_credit(), handle.stats().count - before),
        (5, 1)
    );
    // Without credit an erase syncs by itself.
    (0..11).for_each(|i| store.erase(Pbn::new(i % 6), BlockFacts::default()).unwrap());
}

#[test]
fn room_comes_back_for_what_stays_free() {
    let (disk, mut store) = fresh(shapes()[0], 4);
    let geometry = store.info().profile.geometry;
    let page = geometry.page_bytes as usize;
    let handle = store.sync_handle();
    for _ in 0..4 {
        for block in 0..6 {
            store
                .program(geometry.page(Pbn::new(block), 0), 1, &vec![3; page], &[])
                .unwrap();
            store.erase(Pbn::new(block), BlockFacts::default()).unwrap();
        }
    }
    handle.settle(handle.last_seq()).unwrap();
    store.trim_free_slots(100).unwrap();
    let given = store.trim_free_slots(100).unwrap();
    assert!(given >= 3, "{given}");
    let bytes = disk.bytes();
    let roomy = bytes
        .chunks(page)
        .filter(|page| page.iter().all(|byte| *byte == 3));
    let roomy = roomy.count();
    assert!(roomy <= 4, "{roomy} of 10 slots keep room");
    drop(store);
    let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
    for block in 0..6 {
        store
            .program(geometry.page(Pbn::new(block), 0), 1, &vec![3; page], &[])
            .unwrap();
    }
}

#[test]
fn waiters_share_a_sync_and_a_closed_store_lets_none_run() {
    let (_, mut store) = fresh(shapes()[0], 4);
    let handle = store.sync_handle();
    handle.set_sync_delay(std::time::Duration::from_millis(30));
    let begun = handle.stats().count;
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| handle.sync_through(1).unwrap());
        }
    });
    assert!(handle.stats().count - begun <= 2 && handle.stats().last_ns > 0);
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    drop(store);
    assert_eq!(
        (handle.sync_through(1), handle.sync_through(2)),
        (Ok(()), Err(SyncError::Closed))
    );
}

#[test]
fn a_failed_sync_ends_the_cache_area_with_the_first_open_after_it() {
    let mut rig = Rig::new(shapes()[0], 5);
    (0..20).for_each(|_| rig.step());
    rig.store().cache_area().attach(4096, |_| Ok(())).unwrap();
    rig.store().sync_handle().fail_next_sync();
    rig.erase(0);
    let last = rig.store().sync_handle().last_seq();
    assert!(rig.store().sync_handle().sync_through(last).is_err());
    rig.store = None;
    // A read-only open, one that dies before it has used the area, and one after that.
    let found = [Access::ReadOnly, Access::ReadWrite, Access::ReadWrite].map(|access| {
        let (store, report) = open(&rig.disk, access).unwrap();
        let found = store.info().cache_area.is_some();
        (report.sync_failed, found, store.cache_area().section())
    });
    assert_eq!(
        found,
        [(true, true, None), (true, true, None), (false, false, None)]
    );
}

/// A header written and then torn between two syncs leaves the other copy the durable one, which no
/// write may touch.
#[test]
fn a_header_torn_after_it_was_written_is_not_taken_for_durable() {
    for [seed, arrives] in (0..8).flat_map(|seed| [0, 40, 100].map(|arrives| [seed, arrives])) {
        let (disk, mut store) = fresh(shapes()[0], 3);
        let handle = store.sync_handle();
        store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
        handle.settle(handle.last_seq()).unwrap();
        let durable = handle.durable_seq();
        store.set_hour(41);
        disk.fail_write(0, arrives as usize, EIO);
        store.set_hour(42);
        assert!(!disk.has_write_faults(), "the second header was refused");
        store.cache_area().sync().unwrap();
        assert!(handle.durable_seq() >= durable, "a durable number fell");
        for how in Crash::kinds(seed) {
            let opened = open(&disk.crashed(how), Access::ReadWrite);
            let (store, _) = opened.unwrap_or_else(|e| panic!("{arrives}, {how:?}: {e}"));
            assert!(
                store.sync_handle().last_seq() >= durable,
                "{arrives}, {how:?}"
            );
        }
    }
}

#[test]
fn a_panic_in_a_sync_ends_the_waiting_of_others() {
    let mut rig = Rig::new(shapes()[0], 5);
    (0..20).for_each(|_| rig.step());
    let sync = rig.store().sync_handle();
    rig.disk.during_sync(|| panic!("planted"));
    let last = sync.last_seq();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = sync.sync_through(last);
    }));
    assert!(panicked.is_err());
    assert_eq!(sync.sync_through(last), Err(SyncError::Failed(5)));
    // Waits for the end of a sync in progress.
    rig.store = None;
}
