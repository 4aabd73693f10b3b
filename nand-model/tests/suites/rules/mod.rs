//! The NAND rules from outside: caller errors that panic, hardware errors that are returned,
//! outcomes of cuts, and operation times. Over memory and over an image file.

mod in_flight;
mod power_cut;
mod slc;
mod time;
mod word_line;

use nand_model::store::MemStore;
use nand_model::{
    Bad, BlockFault, Cause, Chip, Cut, CutHits, EraseCut, Fault, FaultPlan, FileStore, Health,
    ImageSpec, MultiPlane, NandError, Nanos, Pairing, Part, PartnerCut, Pbn, Ppn, Profile,
    ProgramCut, Store, Suspend,
};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn profile(name: &str) -> Profile {
    Profile::find(name).unwrap().with_blocks(8)
}

fn chip(name: &str) -> Chip<MemStore> {
    let profile = profile(name);
    Chip::open(profile, MemStore::new(profile.geometry)).unwrap()
}

fn program<S: Store>(chip: &mut Chip<S>, block: u32, page: u32) -> Result<Nanos, NandError> {
    let ppn = chip.geometry().page(Pbn::new(block), page);
    let data = vec![block as u8 ^ page as u8 ^ 0x5A; chip.geometry().page_bytes as usize];
    chip.program(0, ppn, &data, &[page as u8; 16], Cause::Host)
}

fn read<S: Store>(chip: &mut Chip<S>, block: u32, page: u32) -> Result<(u8, u8), NandError> {
    let ppn = chip.geometry().page(Pbn::new(block), page);
    let (mut data, mut oob) = (vec![0; chip.geometry().page_bytes as usize], [0; 16]);
    chip.read(0, ppn, &mut data, &mut oob, Cause::Host)?;
    assert!(data.iter().all(|&b| b == data[0]));
    Ok((data[0], oob[0]))
}

/// Asserts that the caller's error panics with these words.
fn breaks<S: Store, T>(chip: &mut Chip<S>, words: &str, act: impl FnOnce(&mut Chip<S>) -> T) {
    let panic = catch_unwind(AssertUnwindSafe(|| act(chip)))
        .err()
        .expect(words);
    let fixed = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = fixed
        .or(panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    assert!(
        text.contains("NAND rule: ") && text.contains(words),
        "{text:?} instead of {words:?}"
    );
}

#[test]
fn mlc_pages_are_programmed_once_and_one_after_the_other() {
    let mut chip = chip("torture");
    breaks(&mut chip, "page 0 is next", |chip| program(chip, 0, 1));
    program(&mut chip, 0, 0).unwrap();
    program(&mut chip, 0, 1).unwrap();
    breaks(&mut chip, "not erased", |chip| program(chip, 0, 1));
    breaks(&mut chip, "not erased", |chip| program(chip, 0, 0));
    breaks(&mut chip, "page 2 is next", |chip| program(chip, 0, 5));
    chip.erase(0, Pbn::new(0), Cause::Gc).unwrap();
    breaks(&mut chip, "page 0 is next", |chip| program(chip, 0, 2));
    program(&mut chip, 0, 0).unwrap();
}

#[test]
fn slc_pages_come_in_any_order_but_once() {
    let mut chip = chip("slc-2k");
    for page in [7, 2, 63, 0] {
        program(&mut chip, 1, page).unwrap();
        breaks(&mut chip, "not erased", |chip| program(chip, 1, page));
    }
    assert_eq!(
        read(&mut chip, 1, 3),
        Ok((0xFF, 0xFF)),
        "left out, so still erased"
    );
}

#[test]
fn oob_alone_is_programmed_as_often_as_nop_allows() {
    let mut slc = chip("slc-2k");
    let ppn = slc.geometry().page(Pbn::new(0), 4);
    assert!(!slc.takes_oob_program(ppn));
    breaks(&mut slc, "OOB program of the erased page", |chip| {
        chip.program_oob(0, ppn, &[0], Cause::Host)
    });
    program(&mut slc, 0, 4).unwrap();
    for bits in [0xFE, 0xFD, 0xFB] {
        assert!(slc.takes_oob_program(ppn));
        slc.program_oob(0, ppn, &[bits], Cause::Host).unwrap();
    }
    assert_eq!(read(&mut slc, 0, 4), Ok((4 ^ 0x5A, 4 & 0xF8)));
    assert!(!slc.takes_oob_program(ppn));
    breaks(&mut slc, "programmed 4 times, NOP is 4", |chip| {
        chip.program_oob(0, ppn, &[0], Cause::Host)
    });
    let mut mlc = chip("torture");
    program(&mut mlc, 0, 0).unwrap();
    let ppn = mlc.geometry().page(Pbn::new(0), 0);
    assert!(!mlc.takes_oob_program(ppn));
    breaks(&mut mlc, "NOP is 1", |chip| {
        chip.program_oob(0, ppn, &[0], Cause::Host)
    });
}

#[test]
fn runs_stay_in_their_block_and_addresses_on_the_chip() {
    let mut chip = chip("torture");
    let page = chip.geometry().page_bytes as usize;
    for offset in 0..15 {
        program(&mut chip, 0, offset).unwrap();
    }
    let last = chip.geometry().page(Pbn::new(0), 15);
    breaks(&mut chip, "a run leaves its block", |chip| {
        chip.program_run(0, last, 2, &vec![0; 2 * page], &[], Cause::Host)
    });
    breaks(&mut chip, "a run leaves its block", |chip| {
        let health = &mut [Default::default(); 2];
        chip.read_run(
            0,
            last,
            &mut vec![0; 2 * page],
            &mut [],
            health,
            Cause::Host,
        )
    });
    let beyond = Ppn::new(chip.geometry().page_slots() as u32);
    breaks(&mut chip, "no page", |chip| {
        chip.read(0, beyond, &mut [], &mut [0], Cause::Host)
    });
    breaks(&mut chip, "no block", |chip| {
        chip.erase(0, Pbn::new(8), Cause::Host)
    });
}

#[test]
fn copyback_stays_in_its_plane_and_takes_new_oob() {
    let mut two = profile("torture");
    two.geometry.planes = 2;
    let mut chip = Chip::open(two, MemStore::new(two.geometry)).unwrap();
    program(&mut chip, 0, 0).unwrap();
    let [from, near, far] = [0, 2, 1].map(|block| chip.geometry().page(Pbn::new(block), 0));
    let renew = |oob: &mut [u8]| {
        oob.fill(9);
        true
    };
    chip.copyback(0, from, near, &mut [0; 16], renew, Cause::Gc)
        .unwrap();
    assert_eq!(read(&mut chip, 2, 0), Ok((0x5A, 9)));
    breaks(&mut chip, "copyback leaves its plane", |chip| {
        chip.copyback(0, from, far, &mut [], |_| true, Cause::Gc)
    });
}

#[test]
fn erased_pages_read_as_ones_and_erases_count() {
    let mut chip = chip("mlc-4k");
    assert_eq!(read(&mut chip, 3, 9), Ok((0xFF, 0xFF)));
    program(&mut chip, 3, 0).unwrap();
    assert_eq!(
        (read(&mut chip, 3, 0), chip.frontier(Pbn::new(3))),
        (Ok((3 ^ 0x5A, 0)), 1)
    );
    chip.erase(0, Pbn::new(3), Cause::Gc).unwrap();
    assert_eq!(
        (read(&mut chip, 3, 0), chip.frontier(Pbn::new(3))),
        (Ok((0xFF, 0xFF)), 0)
    );
    assert_eq!(
        (chip.erase_count(Pbn::new(3)), chip.erase_count(Pbn::new(2))),
        (1, 0)
    );
}

#[test]
fn bad_blocks_refuse_and_keep_what_they_held() {
    let mut chip = chip("torture");
    program(&mut chip, 0, 0).unwrap();
    chip.set_faults(FaultPlan {
        block_faults: vec![
            BlockFault::next(Pbn::new(0), Fault::ProgramFail),
            BlockFault::next(Pbn::new(1), Fault::EraseFail),
        ],
        ..Default::default()
    });
    let failed = chip.geometry().page(Pbn::new(0), 1);
    assert_eq!(
        program(&mut chip, 0, 1),
        Err(NandError::ProgramFailed(failed))
    );
    assert_eq!(
        (chip.bad(Pbn::new(0)), read(&mut chip, 0, 0)),
        (Some(Bad::FailedProgram), Ok((0x5A, 0)))
    );
    assert!(matches!(
        read(&mut chip, 0, 1),
        Err(NandError::Uncorrectable {
            part: Part::Data,
            ..
        })
    ));
    assert!(matches!(
        program(&mut chip, 0, 2),
        Err(NandError::ProgramFailed(_))
    ));
    assert_eq!(
        chip.erase(0, Pbn::new(0), Cause::Gc),
        Err(NandError::EraseFailed(Pbn::new(0)))
    );
    assert_eq!(
        chip.erase(0, Pbn::new(1), Cause::Gc),
        Err(NandError::EraseFailed(Pbn::new(1)))
    );
    assert_eq!(chip.bad(Pbn::new(1)), Some(Bad::FailedErase));
    assert_eq!(
        (chip.counters().program_fails, chip.counters().erase_fails),
        (1, 1)
    );
    let mut worn = profile("torture").with_blocks(200);
    worn.factory_bad_permille = 30;
    let mut chip = Chip::open(worn, MemStore::new(worn.geometry)).unwrap();
    chip.mark_factory_bad(1).unwrap();
    assert_eq!(
        chip.geometry()
            .all_blocks()
            .filter(|&block| chip.bad(block) == Some(Bad::Factory))
            .count(),
        6
    );
}

#[test]
fn a_failed_page_of_a_run_ends_it_and_says_how_far_it_came() {
    let mut chip = chip("torture");
    let cut = Cut {
        at_op: 2,
        program: ProgramCut::NotStarted,
        partner: PartnerCut::Intact,
        erase: EraseCut::NotStarted,
        seed: 0,
    };
    chip.set_faults(FaultPlan {
        cut: Some(cut),
        ..Default::default()
    });
    let first = chip.geometry().page(Pbn::new(0), 0);
    let run = chip
        .program_run(0, first, 4, &[1; 4096], &[2; 64], Cause::Host)
        .unwrap_err();
    assert_eq!((run.done, run.error), (2, NandError::PowerLost));
    assert_eq!(chip.frontier(Pbn::new(0)), 2);
    for verb in [
        |chip: &mut Chip<MemStore>| program(chip, 1, 0),
        |chip: &mut Chip<MemStore>| chip.erase(0, Pbn::new(1), Cause::Gc),
        |chip: &mut Chip<MemStore>| read(chip, 0, 0).map(|_| 0),
    ] {
        assert_eq!(verb(&mut chip), Err(NandError::PowerLost));
    }
    chip.power_on();
    assert_eq!(read(&mut chip, 0, 1), Ok((1, 2)));
}
