//! Host calls that fail while an image is opened, closed or synced.

use super::*;

#[test]
fn a_call_of_the_host_that_fails_fails_the_open_and_the_next_one_finds_the_same() {
    let mut failures = 0;
    for profile in shapes() {
        let unclean = used(profile);
        let clean = unclean.copy();
        reopened(&clean).close().unwrap();
        let distrusted = unclean.copy();
        let mut store = reopened(&distrusted);
        store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
        store.sync_handle().fail_next_sync();
        store
            .sync_handle()
            .sync_through(store.sync_handle().last_seq())
            .unwrap_err();
        drop(store);
        for (kind, image) in [
            ("unclean", unclean),
            ("clean", clean),
            ("distrusted", distrusted),
        ] {
            let (mut store, report) = image.copy().open(Access::ReadWrite).unwrap();
            assert_eq!(
                (report.was_clean, report.sync_failed),
                (kind == "clean", kind == "distrusted")
            );
            let wanted = sight(&mut store);
            let accesses = [Access::ReadOnly, Access::ReadWrite];
            for (call, access) in CALLS
                .into_iter()
                .flat_map(|call| accesses.map(|access| (call, access)))
            {
                for after in 0..500 {
                    let (disk, case) = (
                        image.copy(),
                        format!("{kind}, {call:?} {after}, {access:?}"),
                    );
                    fail(&disk, call, after, 1);
                    let result = disk.open(access);
                    let spent = !disk.has_faults();
                    disk.clear_faults();
                    match result {
                        // A header that cannot be written is tried once more.
                        Ok((mut store, _)) => assert_eq!(sight(&mut store), wanted, "{case}"),
                        Err(error) => {
                            assert!(
                                spent && matches!(error, ImageError::Io { .. }),
                                "{case}: {error}"
                            );
                            failures += 1;
                        }
                    }
                    if !spent {
                        break;
                    }
                    assert_eq!(sight(&mut reopened(&disk)), wanted, "{case}");
                }
            }
        }
    }
    assert!(failures > 200, "{failures}");
}

#[test]
fn a_call_of_the_host_that_fails_fails_the_close_and_the_next_open_finds_everything() {
    let mut failures = 0;
    for profile in shapes() {
        let used = used(profile);
        let wanted = sight(&mut reopened(&used.copy()));
        for (call, after) in CALLS
            .into_iter()
            .flat_map(|call| (0..20).map(move |after| (call, after)))
        {
            for count in [1, u64::MAX] {
                let disk = used.copy();
                let store = reopened(&disk);
                fail(&disk, call, after, count);
                let result = store.close();
                let failing = result.is_err();
                disk.clear_faults();
                let (mut store, report) = disk.open(Access::ReadWrite).unwrap();
                let case = format!("{call:?} {after}, {count} times");
                assert!(failing || report.was_clean, "{case}");
                assert_eq!(sight(&mut store), wanted, "{case}");
                failures += u64::from(failing);
            }
        }
    }
    assert!(failures > 20, "{failures}");
}

/// The header cannot be written, everything else can: space of erased blocks is not reusable until
/// it can.
#[test]
fn a_header_that_cannot_be_written_is_told_to_who_waits_for_room() {
    let disk = used(shapes()[0]);
    let mut store = reopened(&disk);
    let handle = store.sync_handle();
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    fail(&disk, Call::Write(0), 0, u64::MAX);
    assert_eq!(
        handle.settle(handle.last_seq()),
        Err(SyncError::Header(ENOSPC))
    );
    assert_eq!(handle.failure(), None);
    disk.clear_faults();
    assert_eq!(handle.settle(handle.last_seq()), Ok(()));
    assert!(format!("{store:?} {handle:?}").contains("simulated disk"));
    handle.fail_next_sync();
    assert_eq!(
        handle.sync_through(handle.last_seq() + 1),
        Err(SyncError::Failed(EIO))
    );
    // The first failure is the reported one.
    store
        .cache_area()
        .fail(&io::Error::from_raw_os_error(ENOSPC));
    assert_eq!(handle.failure(), Some(SyncError::Failed(EIO)));
}
