//! Programs and erases that fail.

use super::*;

#[test]
fn a_refused_trim_uses_up_no_version() {
    common::a_refused_trim_uses_up_no_version(new, common::small_slc());
    common::a_refused_trim_uses_up_no_version(new, profile("torture", 64));
}

#[test]
fn a_block_that_fails_when_nothing_lives_in_it_leaves_the_update_area() {
    let (mut ftl, _) = small_paper_device();
    let page = 5;
    write(&mut ftl, page, 1);
    let block = block_of(&ftl, page);
    let block_faults = vec![BlockFault::next(block, Fault::ProgramFail)];
    ftl.chip_mut().set_faults(FaultPlan {
        block_faults,
        ..FaultPlan::default()
    });
    write(&mut ftl, page, 2);
    assert!(
        ftl.map.pending.holds(block)
            && ftl.space.table.valid_count(block) == 0
            && ftl.space.failing_block() == Some(block)
    );
    write(&mut ftl, page, 3);
    assert!(!ftl.map.pending.holds(block) && ftl.space.table.state(block) == State::Bad);
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_superseded_page_that_turns_out_blank_is_not_marked() {
    let (mut ftl, config) = small_paper_device();
    write(&mut ftl, 4, 1);
    let block_faults = vec![BlockFault::next(
        block_of(&ftl, 4),
        Fault::MisdirectedProgram,
    )];
    ftl.chip_mut().set_faults(FaultPlan {
        block_faults,
        ..FaultPlan::default()
    });
    write(&mut ftl, 5, 2);
    let ppn = ftl
        .map
        .pending
        .get(5)
        .and_then(|entry| entry.ppn())
        .unwrap();
    ftl.shutdown(0).unwrap();
    let mut ftl = remount(ftl, &config);
    assert!(
        !ftl.chip().is_programmed(ppn) && ftl.space.table.is_valid(ppn),
        "the map names {ppn}, which is not programmed"
    );
    write(&mut ftl, 5, 3);
    ftl.shutdown(0).unwrap();
    assert!(
        !ftl.chip().is_programmed(ppn) && !ftl.space.table.is_valid(ppn),
        "{ppn} is superseded, and still not programmed"
    );
    assert_eq!(read(&mut ftl, 5), 3);
}

#[test]
fn failing_programs_and_erases_cost_blocks_but_no_data() {
    let (mut ftl, config) = laid_out("torture", 2 << 20, 0.3, &[]);
    let rates = [(Fault::ProgramFail, 400_000), (Fault::EraseFail, 2_000_000)].into();
    let plan = FaultPlan {
        rates,
        seed: 4,
        ..FaultPlan::default()
    };
    ftl.chip_mut().set_faults(plan.clone());
    let mut rng = SplitMix::new(6);
    let mut model = vec![0; config.logical_pages as usize];
    let mut last = None;
    for step in 1..=40_000 {
        let lpn = rng.below(model.len() as u64) as u32;
        let page = content(1024, step);
        match ftl.write(0, Lpn::new(lpn), &page) {
            Ok(_) => model[lpn as usize] = step,
            Err(FtlError::ReadOnly(_)) => {
                last = Some((lpn, step));
                break;
            }
            Err(other) => panic!("step {step}: {other}"),
        }
        if step % 3000 == 0 {
            assert_sound(&mut ftl);
            ftl = remount(ftl, &config);
            ftl.chip_mut().set_faults(FaultPlan {
                seed: step,
                ..plan.clone()
            });
        }
    }
    ftl.flush(0).unwrap();
    assert_sound(&mut ftl);
    assert!(ftl.space.table.counts().bad > 8, "{:?}", ftl.stats());
    let mut ftl = remount(ftl, &config);
    for (lpn, expected) in (0..).zip(model) {
        let got = read(&mut ftl, lpn);
        assert!(
            got == expected || last == Some((lpn, got)),
            "page {lpn} reads {got}, not {expected}"
        );
    }
}
