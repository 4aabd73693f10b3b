//! Host calls that fail in an operation of a store.

use super::*;

#[test]
fn a_call_of_the_host_that_fails_fails_the_verb_and_the_verb_works_later() {
    let mut failures = 0;
    for profile in shapes() {
        let used = used(profile);
        for (name, verb) in verbs(&profile) {
            let mut wanted = reopened(&used.copy());
            verb(&mut wanted).unwrap_or_else(|error| panic!("{name}: {error}"));
            let wanted = sight(&mut wanted);
            for (call, after) in CALLS
                .into_iter()
                .flat_map(|call| (0..40).map(move |after| (call, after)))
            {
                let disk = used.copy();
                let mut store = reopened(&disk);
                fail(&disk, call, after, 1);
                let result = verb(&mut store);
                let spent = !disk.has_faults();
                disk.clear_faults();
                // A block that turns bad is synced. The image's header behind a sync may fail: the
                // next sync writes it.
                let of_bad = name.starts_with("facts");
                let is_header = of_bad && matches!(call, Call::Write(_)) && result.is_ok() && spent;
                assert!(
                    result.is_err() == spent || is_header,
                    "{name}, {call:?} {after}: {result:?}"
                );
                if !spent {
                    continue;
                }
                failures += 1;
                let case = format!("{name}, {call:?} {after}");
                if store.sync_handle().failure().is_none() {
                    verb(&mut store).unwrap_or_else(|error| panic!("{case}: once more: {error}"));
                    assert_eq!(sight(&mut store), wanted, "{case}");
                }
                // A failed sync may lose the block's facts, but no page.
                let may_lose = of_bad && store.sync_handle().failure().is_some();
                drop(store);
                let found = sight(&mut reopened(&disk));
                if may_lose {
                    let pages = |of: &[Sight]| -> Vec<_> {
                        of.iter().map(|block| block.2.clone()).collect()
                    };
                    assert_eq!(pages(&found), pages(&wanted), "{case}: after a restart");
                } else {
                    assert_eq!(found, wanted, "{case}: after a restart");
                }
            }
        }
    }
    assert!(failures > 200, "{failures}");
}

/// A block is found bad after every crash of the host that follows its mark, whatever else of its
/// facts the host refused.
#[test]
fn no_crash_of_the_host_loses_the_mark_of_a_bad_block() {
    let mut refused = 0;
    for profile in shapes() {
        let used = used(profile);
        for (name, verb) in verbs(&profile) {
            if !name.starts_with("facts") {
                continue;
            }
            for (arrives, after) in [0, 40, 600]
                .into_iter()
                .flat_map(|arrives| (0..8).map(move |after| (arrives, after)))
            {
                let disk = used.copy();
                let mut store = reopened(&disk);
                fail(&disk, Call::Write(arrives), after, 1);
                let first = verb(&mut store);
                disk.clear_faults();
                refused += u32::from(first.is_err());
                verb(&mut store).expect("the host takes it the second time");
                let found = sight(&mut reopened(&disk.ended(End::Crash(Crash::Nothing))));
                let bad = found
                    .iter()
                    .filter(|block| block.0.bad == Some(Bad::FailedErase));
                let case = format!("{name}, write {after}, {arrives} bytes: {first:?}");
                assert_eq!(bad.count(), 1, "{case}");
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

/// Returns a chip on this disk whose next operation of this kind fails in the block.
fn failing(profile: Profile, disk: &SimDisk, block: Pbn, fault: Fault) -> Chip<FileStore> {
    let mut chip = Chip::open(profile, reopened(disk)).unwrap();
    chip.update_faults(|plan| plan.block_faults.push(BlockFault::next(block, fault)));
    chip
}

fn program(chip: &mut Chip<FileStore>, page: Ppn) -> Result<Nanos, NandError> {
    let geometry = chip.geometry();
    let (data, oob) = (vec![1; geometry.page_len()], vec![2; geometry.oob_len()]);
    chip.program(0, page, &data, &oob, Cause::Host)
}

/// A mark that the host refused when its block turned bad is written before the block refuses
/// anything else: a caller that continues on another block relies on the mark.
#[test]
fn a_mark_that_the_host_refused_is_written_before_its_block_refuses_more() {
    let mut refused = [0; 2];
    for profile in shapes() {
        let (used, block) = (used(profile), Pbn::new(0));
        let page = profile.geometry.page(block, 4);
        for (number, after) in (0..2).flat_map(|number| (0..8).map(move |after| (number, after))) {
            let disk = used.copy();
            let fault = [Fault::ProgramFail, Fault::EraseFail][number];
            let mut chip = failing(profile, &disk, block, fault);
            let verb = |chip: &mut Chip<FileStore>| match number {
                0 => program(chip, page),
                _ => chip.erase(0, block, Cause::Gc),
            };
            fail(&disk, Call::Write(0), after, 1);
            let first = verb(&mut chip);
            disk.clear_faults();
            if chip.bad(block).is_none() {
                // The host refused what comes before the mark.
                continue;
            }
            let reported = [
                NandError::ProgramFailed(page),
                NandError::EraseFailed(block),
            ];
            let is_reported = |outcome| outcome == Err(reported[number]);
            if !is_reported(first) {
                assert!(
                    is_reported(verb(&mut chip)),
                    "{fault:?}, write {after}: {first:?}"
                );
                refused[number] += 1;
            }
            let found = sight(&mut reopened(&disk.ended(End::Crash(Crash::Nothing))));
            assert_eq!(
                found[0].0.bad,
                Some([Bad::FailedProgram, Bad::FailedErase][number]),
                "{fault:?}, write {after}: {first:?}"
            );
        }
    }
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
}

/// A stop writes the marks that the host refused.
#[test]
fn a_mark_that_the_host_refused_is_written_at_a_stop() {
    let mut refused = 0;
    for profile in shapes() {
        let (used, block) = (used(profile), Pbn::new(0));
        let page = profile.geometry.page(block, 4);
        for after in 0..8 {
            let disk = used.copy();
            let mut chip = failing(profile, &disk, block, Fault::ProgramFail);
            fail(&disk, Call::Write(0), after, 1);
            let failed = program(&mut chip, page);
            disk.clear_faults();
            if chip.bad(block).is_none() {
                continue;
            }
            refused += u32::from(failed != Err(NandError::ProgramFailed(page)));
            chip.into_store().close().unwrap();
            let found = sight(&mut reopened(&disk));
            assert_eq!(found[0].0.bad, Some(Bad::FailedProgram), "write {after}");
        }
    }
    assert!(refused > 0, "the host refused no mark");
}

/// A crash of the host may undo the erase before a failed program, and keep the block's mark.
#[test]
fn a_failed_program_is_none_of_the_life_before_it() {
    let (mut kept, mut undone) = (0, 0);
    for profile in shapes() {
        let (used, block) = (used(profile), Pbn::new(0));
        let page = profile.geometry.page(block, 0);
        let before = sight(&mut reopened(&used.copy())).swap_remove(0);
        for seed in 0..40 {
            let disk = used.copy();
            let mut chip = failing(profile, &disk, block, Fault::ProgramFail);
            chip.erase(0, block, Cause::Gc).unwrap();
            fail(&disk, Call::Sync, 0, 1);
            let failed = program(&mut chip, page);
            assert!(matches!(failed, Err(NandError::Host(_))), "{failed:?}");
            disk.clear_faults();
            let end = match seed {
                0 => End::Kill,
                _ => End::Crash(Crash::Writes(seed)),
            };
            let ended = disk.ended(end);
            // The second opening finds what the first one left.
            for _ in 0..2 {
                let mut store = reopened(&ended);
                let found = sight(&mut store).swap_remove(0);
                let is_old = found.1 == before.1;
                let most = if is_old {
                    Bad::FailedErase
                } else {
                    Bad::FailedProgram
                };
                let case = format!("seed {seed}: {:?}", found.0);
                assert!(found.0.bad.is_none_or(|bad| bad == most), "{case}");
                kept += u32::from(found.0.bad.is_some());
                undone += u32::from(is_old && found.0.bad.is_some());
            }
        }
    }
    assert!(undone > 0 && kept >= undone, "{undone} of {kept}");
}

/// The failed sync of a mark may leave it in the page cache alone. An opening that finds it writes
/// it again.
#[test]
fn no_crash_of_the_host_loses_the_mark_that_an_opening_found() {
    let mut found_bad = 0;
    for profile in shapes() {
        let (used, block) = (used(profile), Pbn::new(0));
        let page = profile.geometry.page(block, 4);
        for after in 0..8 {
            let disk = used.copy();
            let mut chip = failing(profile, &disk, block, Fault::ProgramFail);
            fail(&disk, Call::Sync, 0, 1);
            fail(&disk, Call::Write(0), after, u64::MAX);
            program(&mut chip, page).unwrap_err();
            let killed = disk.ended(End::Kill);
            let found = sight(&mut reopened(&killed))[0].0.bad;
            let crashed = killed.ended(End::Crash(Crash::Nothing));
            let later = sight(&mut reopened(&crashed))[0].0.bad;
            assert_eq!(later, found, "write {after}");
            found_bad += u32::from(found.is_some());
        }
    }
    assert!(found_bad > 0, "no opening found the mark");
}

/// The next operation has the number of the refused one, so no host crash may keep that one.
#[test]
fn no_crash_of_the_host_finds_what_arrived_of_a_refused_operation() {
    let mut refused = 0;
    for profile in shapes() {
        let used = used(profile);
        let pages = |disk: &SimDisk| -> Vec<_> {
            sight(&mut reopened(disk))
                .into_iter()
                .map(|block| block.1)
                .collect()
        };
        let before = pages(&used.copy());
        for (name, verb) in verbs(&profile) {
            for (arrives, after) in [600, 5000]
                .into_iter()
                .flat_map(|arrives| (0..8).map(move |after| (arrives, after)))
            {
                let disk = used.copy();
                let mut store = reopened(&disk);
                fail(&disk, Call::Write(arrives), after, 1);
                if verb(&mut store).is_ok() {
                    continue;
                }
                refused += 1;
                for seed in 0..8 {
                    let found = pages(&disk.ended(End::Crash(Crash::AllBut(seed))));
                    assert_eq!(
                        found, before,
                        "{name}, write {after}, {arrives} bytes, all but {seed}"
                    );
                }
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

/// A failed write whose partial bytes cannot be restored makes the store refuse all changes; the
/// next open finds the synced state.
#[test]
fn a_host_that_refuses_to_take_a_part_back_ends_the_store() {
    let (mut ended, mut held) = (0, 0);
    for profile in shapes() {
        let used = used(profile);
        let before = sight(&mut reopened(&used.copy()));
        for (name, verb) in verbs(&profile) {
            for (arrives, after) in [600, 5000]
                .into_iter()
                .flat_map(|arrives| (0..8).map(move |after| (arrives, after)))
            {
                for count in [2, u64::MAX] {
                    let (disk, case) = (
                        used.copy(),
                        format!("{name}, write {after}, {arrives} bytes, {count} times"),
                    );
                    let mut store = reopened(&disk);
                    fail(&disk, Call::Write(arrives), after, count);
                    let result = verb(&mut store);
                    disk.clear_faults();
                    if store.sync_handle().failure().is_none() {
                        held += 1;
                        continue;
                    }
                    ended += 1;
                    assert!(result.is_err(), "{case}");
                    assert!(
                        store.erase(Pbn::new(5), BlockFacts::default()).is_err(),
                        "{case}: it goes on"
                    );
                    drop(store);
                    let found = sight(&mut reopened(&disk));
                    // Marks and facts are changed in place, by single writes.
                    let pages = |blocks: &[Sight]| -> Vec<_> {
                        blocks.iter().map(|block| block.1.clone()).collect()
                    };
                    assert_eq!(pages(&found), pages(&before), "{case}");
                }
            }
        }
    }
    assert!(ended > 0 && held > 0, "{ended} ended, {held} did not");
}
