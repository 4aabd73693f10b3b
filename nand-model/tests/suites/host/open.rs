//! Opening after a stop: read-only, with marks and bad blocks, and of contradictory images.

use super::*;
use std::sync::Mutex;
use std::sync::mpsc::channel;

#[test]
fn a_read_only_open_writes_nothing_and_takes_every_verb() {
    for profile in shapes() {
        let mut rig = Rig::new(profile, 9);
        (0..70).for_each(|_| rig.step());
        let disk = rig.disk.crashed(Crash::Sectors(3));
        let before = disk.bytes();
        let (store, report) = open(&disk, Access::ReadOnly).unwrap();
        let cut = store.sync_handle().last_seq();
        assert!(!report.was_clean && store.is_read_only());
        let mut inside = Rig {
            profile,
            disk: disk.clone(),
            store: Some(store),
            history: rig.history[..=cut as usize].to_vec(),
            stray: false,
            batches: false,
            in_batch: false,
            hit: HashSet::new(),
            rng: SplitMix::new(4),
        };
        (0..200).for_each(|_| inside.step());
        let model = inside.now();
        expect(inside.store(), &model, &HashSet::new(), &"overlay");
        inside.store.take().unwrap().close().unwrap();
        assert!(disk.bytes() == before && disk.unsynced() == 0);
        let (_, again) = rig.check(&disk, cut, &"after");
        assert_eq!(again, cut);
    }
}

/// The device's hour is in the file as soon as it changes, or after the sync in progress, and never
/// earlier than an hour recorded in a block.
#[test]
fn the_hour_survives_a_stop_and_is_never_behind_what_a_block_says() {
    let (disk, mut store) = fresh(shapes()[0], 3);
    let hour = |disk: &SimDisk| {
        open(&SimDisk::holding(disk.bytes()), Access::ReadOnly)
            .unwrap()
            .0
            .hour()
    };
    store.set_hour(40);
    assert_eq!(hour(&disk), 40);
    let handle = store.sync_handle();
    for amid in [false, true] {
        let (begun, wait) = channel();
        let (resume, resumed) = channel::<()>();
        let resumed = Mutex::new(resumed);
        disk.during_sync(move || {
            let _ = begun.send(());
            // Waits for the end of the other side, so only the first sync does.
            let _ = resumed.lock().unwrap().recv();
        });
        store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
        let seq = handle.last_seq();
        std::thread::scope(|scope| {
            let syncing = amid.then(|| scope.spawn(|| handle.settle(seq)));
            if amid {
                wait.recv().unwrap();
            }
            store.set_hour(41 + u32::from(amid));
            drop(resume);
            if let Some(thread) = syncing {
                thread.join().unwrap().unwrap();
            }
        });
        handle.settle(seq).unwrap();
        assert_eq!(hour(&disk), 41 + u32::from(amid));
    }
    store
        .erase(
            Pbn::new(1),
            BlockFacts {
                since: 77,
                ..BlockFacts::default()
            },
        )
        .unwrap();
    drop(store);
    assert_eq!(hour(&disk), 77, "a block was erased in hour 77");
    let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
    store.set_hour(90);
    store.close().unwrap();
    assert_eq!(hour(&disk.crashed(Crash::Nothing)), 90);
}

#[test]
fn marks_and_bad_blocks_survive_a_stop_and_a_close() {
    for (profile, close) in shapes().into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let (disk, mut store) = fresh(profile, 3);
        let geometry = profile.geometry;
        let (page, last) = (geometry.page_bytes as usize, Pbn::new(5));
        store
            .program(geometry.page(last, 0), 3, &vec![1; 3 * page], &[])
            .unwrap();
        store
            .set_health(geometry.page(last, 1), Health::Unstable(2))
            .unwrap();
        store
            .set_health(geometry.page(last, 2), Health::DataLost)
            .unwrap();
        store
            .set_health(geometry.page(last, 0), Health::Flickering(255))
            .unwrap();
        store
            .set_facts(
                Pbn::new(2),
                BlockFacts {
                    bad: Some(Bad::Factory),
                    ..BlockFacts::default()
                },
            )
            .unwrap();
        store
            .set_facts(
                last,
                BlockFacts {
                    erase_count: 7,
                    erase_interrupted: true,
                    since: 4,
                    reads: 9,
                    bad: None,
                },
            )
            .unwrap();
        store
            .set_facts(
                Pbn::new(1),
                BlockFacts {
                    erase_count: 3,
                    erase_interrupted: true,
                    ..BlockFacts::default()
                },
            )
            .unwrap();
        if close {
            store.close().unwrap()
        } else {
            drop(store)
        }
        let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
        let mut facts = Vec::new();
        store.load(&mut |_, own, _| facts.push(own)).unwrap();
        assert_eq!(facts[2].bad, Some(Bad::Factory));
        assert_eq!(
            (
                facts[5].erase_count,
                facts[5].erase_interrupted,
                facts[1].erase_count,
                facts[1].erase_interrupted
            ),
            (7, true, 3, true)
        );
        assert_eq!((facts[5].since, facts[5].reads), (4, 9));
        let mut seen = [Health::Good; 3];
        store
            .read(
                geometry.page(last, 0),
                &mut vec![0; 3 * page],
                &mut [],
                &mut seen,
            )
            .unwrap();
        assert_eq!(
            seen,
            [
                Health::Flickering(255),
                Health::Unstable(2),
                Health::DataLost
            ]
        );
        store
            .read(geometry.page(last, 0), &mut [], &mut [0; 3], &mut seen)
            .unwrap();
        assert_eq!(seen[..2], [Health::Flickering(0), Health::Unstable(1)]);
    }
}

/// A clean close writes the table in parts, of 256 blocks here.
#[test]
fn a_table_of_several_writes_is_found_after_a_clean_close() {
    let mut profile = Profile::find("slc-2k").unwrap().with_blocks(600);
    let geometry = &mut profile.geometry;
    (
        geometry.pages_per_block,
        geometry.page_bytes,
        geometry.oob_bytes,
    ) = (4096, 512, 16);
    let spec = ImageSpec {
        profile,
        size: 4096,
        scheme: "none".into(),
        params: String::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut store = FileStore::create(&path, &spec).unwrap();
    let used = [0, 255, 256, 511, 512, 599];
    let bad = [1, 257, 598];
    for block in used {
        let first = profile.geometry.page(Pbn::new(block), 0);
        let erased = BlockFacts {
            erase_count: block + 1,
            ..BlockFacts::default()
        };
        store.erase(Pbn::new(block), erased).unwrap();
        store.program(first, 2, &[1; 1024], &[]).unwrap();
    }
    for block in bad {
        let facts = BlockFacts {
            bad: Some(Bad::Factory),
            ..BlockFacts::default()
        };
        store.set_facts(Pbn::new(block), facts).unwrap();
    }
    store.close().unwrap();
    let (mut store, _) = FileStore::open(&path, Access::ReadOnly).unwrap();
    store
        .load(&mut |block, facts, counts| {
            let number = block.raw();
            let (is_used, is_bad) = (used.contains(&number), bad.contains(&number));
            let expected = if is_used { number + 1 } else { 0 };
            assert_eq!(facts.erase_count, expected, "{block}");
            assert_eq!(facts.bad, is_bad.then_some(Bad::Factory), "{block}");
            let programmed = counts.iter().filter(|&&count| count > 0).count();
            assert_eq!(programmed, if is_used { 2 } else { 0 }, "{block}");
        })
        .unwrap();
}

/// An image with so many slots that threads share them.
#[test]
fn threads_that_share_the_slots_find_every_operation() {
    let mut profile = shapes()[1].with_blocks(2500);
    (
        profile.geometry.pages_per_block,
        profile.geometry.page_bytes,
        profile.geometry.oob_bytes,
    ) = (6, 512, 16);
    let geometry = profile.geometry;
    let (disk, mut store) = fresh(profile, 8);
    let page = |block, offset| geometry.page(Pbn::new(block), offset);
    let bytes = |block: u32| content(block.into(), 512);
    for block in 0..2500 {
        store
            .program(page(block, 0), 1, &bytes(block), &[1; 16])
            .unwrap();
    }
    let handle = store.sync_handle();
    handle.sync_through(handle.last_seq()).unwrap();
    let late: Vec<u32> = (0..2500).step_by(50).collect();
    for &block in &late {
        store
            .program(page(block, 1), 1, &bytes(9000 + block), &[2; 16])
            .unwrap();
        store.set_health(page(block, 0), Health::OobLost).unwrap();
    }
    let (synced, last) = (handle.synced_seq(), handle.last_seq());
    drop(store);
    let found = |disk: &SimDisk| {
        let (mut store, report) = open(disk, Access::ReadOnly).unwrap();
        let (mut pages, mut marks) = (0, 0);
        store
            .load(&mut |_, _, counts| pages += counts.iter().filter(|n| **n > 0).count())
            .unwrap();
        for block in 0..2500 {
            let (mut data, mut health) = (vec![0; 512], [Health::Good]);
            store
                .read(page(block, 0), &mut data, &mut [], &mut health)
                .unwrap();
            assert_eq!(data, bytes(block), "block {block}");
            marks += u64::from(health != [Health::Good]);
        }
        (report.ops_kept, report.ops_dropped, pages, marks)
    };
    assert_eq!(last - synced, 50);
    assert_eq!(found(&disk.copy()), (50, 0, 2550, 50));
    for (kept, &block) in (0..).zip(&late).step_by(24) {
        let mut image = disk.bytes();
        image[place_of(&disk, &bytes(9000 + block)) as usize] ^= 1;
        let disk = SimDisk::holding(image);
        assert_eq!(found(&disk), (kept, 50 - kept, 2500 + kept as usize, 50));
    }
}
