//! Seals: an open may skip a slot only if everything in it is synced and nothing was written since.

use super::*;

/// Programs all pages of a block but the last `rest`.
fn fill(store: &mut FileStore, block: u32, rest: u32) {
    program(
        store,
        block,
        0..store.info().profile.geometry.pages_per_block - rest,
    );
}

fn seed_of(block: u32, page: u32) -> u64 {
    u64::from(block * 1000 + page + 1)
}

fn program(store: &mut FileStore, block: u32, pages: std::ops::Range<u32>) {
    let geometry = store.info().profile.geometry;
    for page in pages {
        let seed = seed_of(block, page);
        let (data, oob) = (
            content(seed, geometry.page_len()),
            content(!seed, geometry.oob_len()),
        );
        store
            .program(geometry.page(Pbn::new(block), page), 1, &data, &oob)
            .unwrap();
    }
}

fn settle(store: &FileStore) {
    let handle = store.sync_handle();
    handle.settle(handle.last_seq()).unwrap();
}

fn sealed(disk: &SimDisk) -> u32 {
    open(&disk.copy(), Access::ReadOnly).unwrap().1.slots_sealed
}

fn health_of(store: &mut FileStore, ppn: Ppn) -> Health {
    let mut health = [Health::Lost];
    let mut data = vec![0; store.info().profile.geometry.page_len()];
    store.read(ppn, &mut data, &mut [], &mut health).unwrap();
    health[0]
}

/// The records of complete blocks are skipped: they can be unreadable for the host.
#[test]
fn an_open_after_a_kill_reads_no_records_of_complete_synced_blocks() {
    let [mlc, slc] = shapes();
    let (disk, mut store) = fresh(mlc, 3);
    (0..4).for_each(|block| fill(&mut store, block, 0));
    fill(&mut store, 4, 3);
    assert_eq!(sealed(&disk), 0, "no sync has covered anything");
    settle(&store);
    assert_eq!(sealed(&disk), 4, "block 4 has blank pages");
    for block in 0..4 {
        // The OOB of the first page is in its record.
        let at = place_of(&disk, &content(!seed_of(block, 0), mlc.geometry.oob_len()));
        disk.fail_reads(ReadFault {
            range: at..at + 1,
            after: 0,
            count: u64::MAX,
        });
    }
    drop(store);
    let (mut store, report) = open(&disk, Access::ReadWrite).unwrap();
    assert_eq!((report.slots_sealed, report.ops_kept), (4, 0));
    disk.clear_faults();
    let mut counts = Vec::new();
    store
        .load(&mut |_, _, n| counts.push(n.iter().map(|n| u32::from(*n)).sum::<u32>()))
        .unwrap();
    let pages = mlc.geometry.pages_per_block;
    assert_eq!(counts[..6], [pages, pages, pages, pages, pages - 3, 0]);
    drop(store);
    // A part that allows partial programs: its records may change at any time.
    let (disk, mut store) = fresh(slc, 3);
    (0..4).for_each(|block| fill(&mut store, block, 0));
    settle(&store);
    assert_eq!(sealed(&disk), 0);
}

/// A sync covers the operations complete when it began, and its seals cover no more.
#[test]
fn a_slot_that_is_completed_during_a_sync_is_not_sealed_by_it() {
    use std::sync::mpsc::channel;
    let profile = shapes()[0];
    let last = profile.geometry.pages_per_block - 1;
    for seed in 0..40 {
        let (disk, mut store) = fresh(profile, 3);
        fill(&mut store, 0, 0);
        fill(&mut store, 1, 1);
        let (begun, wait) = channel();
        let (resume, resumed) = channel::<()>();
        let resumed = std::sync::Mutex::new(resumed);
        disk.during_sync(move || {
            // Only the first sync waits.
            let _ = begun.send(());
            let _ = resumed.lock().unwrap().recv();
        });
        let handle = store.sync_handle();
        let synced = handle.last_seq();
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| handle.sync_through(synced));
            wait.recv().unwrap();
            program(&mut store, 1, last..last + 1);
            fill(&mut store, 2, 0);
            drop(resume);
            sync.join().unwrap().unwrap();
        });
        let given = handle.last_seq();
        assert_eq!(given, synced + 1 + u64::from(last) + 2, "pages, and a slot");
        for how in Crash::kinds(seed) {
            let (mut store, report) = open(&disk.crashed(how), Access::ReadWrite).unwrap();
            let cut = store.sync_handle().last_seq();
            assert!(
                synced <= cut && cut <= given && report.slots_sealed <= 1,
                "{how:?}: {report:?}"
            );
            let mut there = Vec::new();
            store
                .load(&mut |_, _, n| there.push(n.iter().filter(|n| **n > 0).count() as u64))
                .unwrap();
            let of_block_1 = u64::from(last) + u64::from(cut > synced);
            let of_block_2 = cut.saturating_sub(synced + 2);
            assert_eq!(there[1..3], [of_block_1, of_block_2], "{how:?}");
        }
    }
}

/// A mark on a page of a sealed slot clears the seal and waits for the sync; it is not back after
/// an open has not found it.
#[test]
fn a_mark_in_a_sealed_slot_is_found_or_gone_for_good() {
    let profile = shapes()[0];
    let page = |block, page| profile.geometry.page(Pbn::new(block), page);
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..30 {
        let (disk, mut store) = fresh(profile, 3);
        (0..3).for_each(|block| fill(&mut store, block, 0));
        settle(&store);
        assert_eq!(sealed(&disk), 3);
        store.set_health(page(1, 2), Health::DataLost).unwrap();
        assert_eq!(sealed(&disk), 2);
        assert_eq!(sealed(&disk.crashed(Crash::Nothing)), 2, "before the mark");
        let killed = disk.copy();
        for how in Crash::kinds(seed) {
            let disk = disk.crashed(how);
            let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
            let found = health_of(&mut store, page(1, 2));
            assert!([Health::Good, Health::DataLost].contains(&found), "{how:?}");
            kept += u32::from(found == Health::DataLost);
            lost += u32::from(found == Health::Good);
            // Another mark: the next open reads the records of that block again.
            store.set_health(page(1, 5), Health::Lost).unwrap();
            drop(store);
            let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
            assert_eq!(health_of(&mut store, page(1, 5)), Health::Lost);
            assert_eq!(health_of(&mut store, page(1, 2)), found, "{how:?}");
        }
        drop(store);
        let (mut store, report) = open(&killed, Access::ReadWrite).unwrap();
        assert_eq!(report.slots_sealed, 2);
        assert_eq!(health_of(&mut store, page(1, 2)), Health::DataLost);
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}

/// If the host refuses the write that clears a seal, the mark is refused too, and later again.
#[test]
fn a_seal_that_cannot_be_cleared_refuses_the_mark() {
    let profile = shapes()[0];
    let page = profile.geometry.page(Pbn::new(1), 2);
    for (count, arrives) in [(1, 0), (1, 300), (3, 0), (3, 300)] {
        let (disk, mut store) = fresh(profile, 3);
        (0..3).for_each(|block| fill(&mut store, block, 0));
        settle(&store);
        disk.fail_writes(WriteFault {
            after: 0,
            count,
            arrives,
            errno: ENOSPC,
            needs_room: false,
            longest: usize::MAX,
        });
        let mut refused = 0;
        while disk.has_write_faults() {
            let error = store.set_health(page, Health::Lost).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(ENOSPC));
            refused += 1;
        }
        assert_eq!(refused, count);
        store.set_health(page, Health::Lost).unwrap();
        drop(store);
        let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
        assert_eq!(health_of(&mut store, page), Health::Lost);
    }
}

/// Slots are used again only when their seal is cleared on the disk, also if the host refuses to
/// write the map for a while.
#[test]
fn a_slot_with_a_seal_on_the_disk_is_not_used_again() {
    let profile = shapes()[0];
    for seed in 0..20 {
        let mut rig = Rig::new(profile, 4000 + seed);
        (0..80).for_each(|_| rig.step());
        let handle = rig.store().sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        rig.disk.fail_writes(WriteFault {
            after: seed % 7,
            count: 2,
            arrives: 0,
            errno: ENOSPC,
            needs_room: false,
            longest: usize::MAX,
        });
        for _ in 0..4 {
            let _ = handle.sync_through(handle.last_seq());
            let _ = handle.settle(handle.last_seq());
        }
        rig.disk.clear_faults();
        for step in 0..40 {
            rig.step();
            let floor = rig.store().sync_handle().synced_seq();
            for how in Crash::kinds(seed * 100 + step) {
                rig.check(&rig.disk.crashed(how), floor, &(seed, step, how));
            }
        }
    }
}
