//! The state after a host crash or the death of the process, and how the next open handles it.

use super::*;

#[test]
fn whatever_a_host_crash_keeps_is_a_prefix_with_everything_synced() {
    let (mut states, mut dropped, mut erases, mut sealed) = (0, 0u64, 0u32, 0);
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..16 {
            let mut rig = Rig::new(profile, seed);
            rig.stray = seed >= 12;
            rig.batches = seed < 12 && seed % 2 == 1;
            for round in 0..6u64 {
                for step in 0..60 {
                    rig.step();
                    if rig.rng.one_in(6) {
                        let floor = rig.store().sync_handle().synced_seq();
                        for how in Crash::kinds(rig.rng.next_u64()) {
                            let label = (shape, seed, round, step, how);
                            let disk = rig.disk.crashed(how);
                            sealed += open(&disk.copy(), Access::ReadOnly).unwrap().1.slots_sealed;
                            let (store, cut) = rig.check(&disk, floor, &label);
                            drop(store);
                            let (store, again) = rig.check(&disk, cut, &label);
                            assert_eq!(
                                (cut, &store.sync_handle().last_seq()),
                                (again, &cut),
                                "{label:?}: opening twice"
                            );
                            states += 1;
                            dropped += rig.history.len() as u64 - 1 - cut;
                        }
                    }
                }
                // Continue from one crash: records of dropped operations must not come back later.
                let floor = rig.store().sync_handle().synced_seq();
                let how = Crash::kinds(rig.rng.next_u64())[1 + rig.rng.below(5) as usize];
                let disk = rig.disk.crashed(how);
                let (store, cut) = rig.check(&disk, floor, &(shape, seed, round, how));
                erases += rig.now().erase_counts.iter().sum::<u32>();
                rig.history.truncate(cut as usize + 1);
                (rig.store, rig.disk) = (Some(store), disk);
                rig.in_batch = false;
            }
        }
    }
    println!(
        "{states} crash states, {dropped} operations dropped, {erases} erases, {sealed} slots sealed"
    );
    assert!(states > 3000 && dropped > 5000 && erases > 2000 && sealed > 2000);
}

#[test]
fn syncs_beside_the_work_promise_no_more_than_they_did() {
    for (seed, profile) in (0..8).flat_map(|seed| shapes().map(|profile| (seed, profile))) {
        let mut rig = Rig::new(profile, 300 + seed);
        rig.batches = seed % 2 == 1;
        let handle = rig.store().sync_handle();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for settle in [true, false] {
                let (handle, done) = (&handle, &done);
                scope.spawn(move || {
                    while !done.load(std::sync::atomic::Ordering::Acquire) {
                        let seq = handle.last_seq();
                        if settle {
                            handle.settle(seq)
                        } else {
                            handle.sync_through(seq)
                        }
                        .unwrap();
                        assert!(handle.synced_seq() >= seq);
                        std::thread::yield_now();
                    }
                });
            }
            // Also when a check fails: the other threads must end before the failure is reported.
            let _end = Finally(&done);
            for step in 0..400 {
                rig.step();
                if rig.rng.one_in(8) {
                    let floor = handle.synced_seq();
                    for how in Crash::kinds(rig.rng.next_u64()) {
                        rig.check(&rig.disk.crashed(how), floor, &(seed, step, how));
                    }
                }
            }
        });
    }
}

pub(super) struct Finally<'a>(pub(super) &'a std::sync::atomic::AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}

#[test]
fn an_interrupted_open_is_followed_by_one_that_finds_the_same() {
    let mut interrupted = 0;
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..10 {
            let mut rig = Rig::new(profile, 1000 + seed);
            (0..80).for_each(|_| rig.step());
            let floor = rig.store().sync_handle().synced_seq();
            let crashed = rig.disk.crashed(Crash::Sectors(seed)).bytes();
            let (_, cut) = rig.check(&SimDisk::holding(crashed.clone()), floor, &(shape, seed));
            for writes in 0..40 {
                let disk = SimDisk::holding(crashed.clone());
                disk.fail_write(writes, 0, EIO);
                match open(&disk, Access::ReadWrite) {
                    Ok(_) if disk.has_write_faults() => break,
                    _ => disk.clear_faults(),
                }
                interrupted += 1;
                for how in Crash::kinds(seed ^ writes) {
                    let (_, again) =
                        rig.check(&disk.crashed(how), cut, &(shape, seed, writes, how));
                    assert_eq!(again, cut, "{:?}", (shape, seed, writes, how));
                }
            }
        }
    }
    assert!(interrupted > 50, "{interrupted}");
}

#[test]
fn the_death_of_the_process_loses_nothing_and_a_clean_close_is_found() {
    for (profile, stray) in shapes().into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let mut rig = Rig::new(profile, 5);
        rig.stray = stray;
        for round in 0..10 {
            (0..50).for_each(|_| rig.step());
            let given = rig.history.len() as u64 - 1;
            let store = rig.store.take().unwrap();
            if round % 2 == 0 {
                drop(store)
            } else {
                store.close().unwrap()
            }
            if round % 2 == 1 {
                rig.disk = rig.disk.crashed(Crash::Nothing);
            }
            assert_eq!(
                open(&rig.disk, Access::ReadOnly).unwrap().1.was_clean,
                round % 2 == 1
            );
            let (store, cut) = rig.check(&rig.disk, given, &round);
            assert_eq!(cut, given);
            rig.store = Some(store);
        }
    }
}

#[test]
fn a_damaged_header_copy_does_not_bring_an_old_state_back() {
    for profile in shapes() {
        for seed in 0..20 {
            let mut rig = Rig::new(profile, 50 + seed);
            (0..100).for_each(|_| rig.step());
            let given = rig.history.len() as u64 - 1;
            for copy in [0, 1] {
                let mut bytes = rig.disk.bytes();
                bytes[copy * PAGE as usize + 100] ^= 1;
                let (_, cut) = rig.check(&SimDisk::holding(bytes), given, &(seed, copy));
                assert_eq!(cut, given, "seed {seed} copy {copy}");
            }
        }
    }
}

/// A restart of the process finds the cache. Unsynced writes of any process stay unsynced until a
/// sync: a host crash at any moment of the open loses older and newer writes alike, and never
/// synced ones.
#[test]
fn unsynced_writes_stay_unsynced_over_a_restart() {
    let mut moments = 0;
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..8 {
            let mut rig = Rig::new(profile, 700 + seed);
            (0..60).for_each(|_| rig.step());
            while rig.store().sync_handle().synced_seq() == rig.store().sync_handle().last_seq() {
                rig.step();
            }
            let (floor, given) = (
                rig.store().sync_handle().synced_seq(),
                rig.store().sync_handle().last_seq(),
            );
            rig.store = None;
            let unsynced = rig.disk.unsynced();
            for call in (0..4).map(Freeze::Write).chain((0..3).map(Freeze::Sync)) {
                let label = (shape, seed, call);
                // Also when the process is killed: the next one starts on the cache that both left.
                let copy = rig.disk.copy();
                copy.freeze_at(call);
                drop(open(&copy, Access::ReadWrite).unwrap());
                let Some(frozen) = copy.take_frozen() else {
                    continue;
                };
                moments += 1;
                let first_sync = call == Freeze::Sync(0);
                assert!(
                    !first_sync || frozen.unsynced() >= unsynced,
                    "{label:?}: nothing was synced on the way"
                );
                let (_, cut) = rig.check(&frozen.copy(), given, &label);
                assert_eq!(cut, given, "{label:?}: the page cache survives the process");
                for how in Crash::kinds(seed) {
                    rig.check(&frozen.crashed(how), floor, &(label, how));
                }
                if first_sync {
                    let (_, cut) = rig.check(&frozen.crashed(Crash::Nothing), floor, &label);
                    assert!(
                        cut < given,
                        "{label:?}: the last operations were not synced"
                    );
                }
            }
        }
    }
    assert!(moments >= 48, "{moments}");
}

/// A host crash keeps a torn page with its mark or not at all, and the same for its program's
/// effect on an earlier page.
#[test]
fn a_host_crash_keeps_a_torn_page_with_its_marks_or_not_at_all() {
    for profile in shapes() {
        let (disk, mut store) = fresh(profile, 3);
        let (geometry, block) = (profile.geometry, Pbn::new(1));
        let page = |offset| geometry.page(block, offset);
        let bytes = geometry.page_bytes as usize;
        store.program(page(0), 2, &vec![1; 2 * bytes], &[]).unwrap();
        let handle = store.sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        handle.sync_through(handle.last_seq()).unwrap();
        let before = disk.unsynced();
        store
            .program_as(page(2), &vec![3; bytes], &[], Health::DataLost)
            .unwrap();
        store
            .spoil(page(2), &[(page(0), Health::Unstable(2))])
            .unwrap();
        let writes = disk.unsynced() - before;
        assert_eq!(
            writes, 3,
            "data, record with its mark, mark of the other page"
        );
        let torn = (Health::DataLost, 3);
        for kept in 0..1u64 << writes {
            let crashed = disk.crashed(Crash::Mask(!0 << writes | kept));
            // A later program of the page must not find the mark of the other one.
            for again in [false, true] {
                let (mut store, _) = open(&crashed, Access::ReadWrite).unwrap();
                let mut counts = vec![];
                store
                    .load(&mut |own, _, n| {
                        if own == block {
                            counts = n.to_vec()
                        }
                    })
                    .unwrap();
                let programmed = counts[2] > 0;
                let mut seen = [Health::Lost; 3];
                store
                    .read(page(0), &mut vec![0; 3 * bytes], &mut [], &mut seen)
                    .unwrap();
                assert_eq!(programmed, again || kept & 0b110 == 0b110, "{kept:b}");
                if again {
                    assert_eq!(seen, [Health::Good; 3], "{kept:b}");
                } else if programmed {
                    let first = if kept & 1 == 1 {
                        Health::Unstable(2)
                    } else {
                        Health::Good
                    };
                    assert_eq!((seen[0], seen[2]), (first, torn.0), "{kept:b}");
                    break;
                } else {
                    assert_eq!(seen[..2], [Health::Good; 2], "{kept:b}");
                    store.program(page(2), 1, &vec![4; bytes], &[]).unwrap();
                }
            }
        }
    }
}

/// A host crash that undoes the programs before an interrupted erase also undoes the erase.
#[test]
fn an_interrupted_erase_is_undone_with_what_came_before_it() {
    use nand_model::{Cause, Chip, Cut, EraseCut, FaultPlan, PartnerCut, ProgramCut};
    for (profile, erase) in shapes()
        .into_iter()
        .flat_map(|p| [EraseCut::Mixed, EraseCut::AllButOne, EraseCut::OnlyOne].map(|e| (p, e)))
    {
        let (disk, store) = fresh(profile, 3);
        let mut chip = Chip::open(profile, store).unwrap();
        let geometry = profile.geometry;
        let page = |block, offset| geometry.page(Pbn::new(block), offset);
        let bytes = vec![5; geometry.page_bytes as usize];
        for offset in 0..4 {
            chip.program(0, page(1, offset), &bytes, &[1], Cause::Host)
                .unwrap();
        }
        let handle = chip.store().sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        handle.sync_through(handle.last_seq()).unwrap();
        for offset in 0..4 {
            chip.program(0, page(2, offset), &bytes, &[1], Cause::Gc)
                .unwrap();
        }
        let (program, partner) = (ProgramCut::Complete, PartnerCut::Intact);
        chip.set_faults(FaultPlan {
            cut: Some(Cut {
                at_op: 0,
                program,
                partner,
                erase,
                seed: 3,
            }),
            ..Default::default()
        });
        assert!(chip.erase(0, Pbn::new(1), Cause::Gc).is_err());
        drop(chip);
        let (mut undone, mut begun) = (0, 0);
        let writes = disk.unsynced() as u64;
        for kept in (0..=writes)
            .map(|lost| u64::MAX << lost)
            .chain((0..200).map(|seed| SplitMix::new(seed).next_u64()))
        {
            let (mut store, _) = open(&disk.crashed(Crash::Mask(kept)), Access::ReadWrite).unwrap();
            let mut good = |block| {
                (0..4).all(|offset| {
                    let mut health = [Health::Lost];
                    store
                        .read(
                            page(block, offset),
                            &mut bytes.clone(),
                            &mut [0],
                            &mut health,
                        )
                        .unwrap();
                    health == [Health::Good]
                })
            };
            let (old, new) = (good(1), good(2));
            assert!(old || new, "{erase:?}, writes {kept:b} kept");
            undone += u32::from(!new);
            begun += u32::from(!old);
        }
        assert!(
            undone > 0 && begun > 0,
            "{erase:?}: {undone} undone, {begun} begun"
        );
    }
}

/// A program over programmed pages is not an operation, and the operations of those pages stay
/// complete: later synced operations survive any host crash, also if no header on the disk records
/// them as synced yet.
#[test]
fn programs_over_programmed_pages_leave_the_sequence_unbroken() {
    for (profile, lost_erase) in shapes()
        .into_iter()
        .flat_map(|profile| [(profile, false), (profile, true)])
    {
        let (disk, mut store) = fresh(profile, 3);
        let geometry = profile.geometry;
        let page = |block, offset| geometry.page(Pbn::new(block), offset);
        let bytes = geometry.page_bytes as usize;
        let oob = vec![0x5A; geometry.oob_bytes as usize];
        store
            .program(page(0, 0), 4, &vec![1; 4 * bytes], &oob.repeat(4))
            .unwrap();
        if lost_erase {
            let kept: Vec<_> = (0..4)
                .map(|offset| (page(0, offset), store.cells(page(0, offset)).unwrap()))
                .collect();
            store
                .erase(
                    Pbn::new(0),
                    BlockFacts {
                        erase_count: 1,
                        ..BlockFacts::default()
                    },
                )
                .unwrap();
            kept.iter()
                .for_each(|(ppn, cells)| store.put_cells(*ppn, cells.as_ref().unwrap()).unwrap());
        }
        store.program(page(1, 0), 1, &vec![2; bytes], &oob).unwrap();
        let handle = store.sync_handle();
        let synced = handle.last_seq();
        handle.sync_through(synced).unwrap();
        let tag = store.tag(page(2, 1)).unwrap();
        for offset in [1, 3] {
            store
                .put_cells(
                    page(0, offset),
                    &Cells {
                        data: vec![4; bytes],
                        oob: oob.clone(),
                        tag,
                    },
                )
                .unwrap();
        }
        store.program(page(0, 2), 1, &vec![8; bytes], &oob).unwrap();
        assert_eq!(handle.last_seq(), synced, "none of these is an operation");
        let lost = [false, true, true, true].map(|over| over || lost_erase);
        let health = |store: &mut FileStore| {
            let mut seen = [Health::Good; 4];
            store
                .read(page(0, 0), &mut vec![0; 4 * bytes], &mut [], &mut seen)
                .unwrap();
            seen.map(|health| health == Health::Lost)
        };
        assert_eq!(health(&mut store), lost);
        assert_eq!(
            store.cells(page(0, 1)).unwrap().unwrap().tag,
            0,
            "no page has it"
        );
        let writes = disk.unsynced();
        assert!((4..12).contains(&writes), "{writes}");
        for kept in 0..1 << writes {
            let (mut store, report) =
                open(&disk.crashed(Crash::Mask(kept)), Access::ReadWrite).unwrap();
            let seen = (store.sync_handle().last_seq(), report.ops_dropped);
            assert_eq!(
                seen,
                (synced, 0),
                "writes {kept:b} kept, lost erase: {lost_erase}"
            );
            let mut one = vec![0; bytes];
            let mut good = [Health::Lost];
            store
                .read(page(1, 0), &mut one, &mut [], &mut good)
                .unwrap();
            assert_eq!((good, one[0]), ([Health::Good], 2));
            assert!(
                health(&mut store)
                    .into_iter()
                    .zip(lost)
                    .all(|(seen, lost)| !seen || lost)
            );
        }
    }
}
