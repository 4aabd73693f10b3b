//! The law of the chip, from outside: what panics because no caller may do it, what comes back as
//! an error because silicon does it, what a cut leaves, and what time it takes. Over memory and
//! over an image file alike.

use nand_model::store::MemStore;
use nand_model::{
    Bad, Bomb, Cause, Chip, Cut, CutHits, EraseCut, Fault, FaultPlan, FileStore, ImageSpec,
    NandError, Nanos, Pairing, Part, PartnerCut, Pbn, Ppn, Profile, ProgramCut, Store,
};
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

/// Asserts that the caller's mistake panics with these words.
fn breaks<S: Store, T>(chip: &mut Chip<S>, words: &str, act: impl FnOnce(&mut Chip<S>) -> T) {
    let panic = catch_unwind(AssertUnwindSafe(|| act(chip)))
        .err()
        .expect(words);
    let fixed = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = fixed
        .or(panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    assert!(
        text.contains("law: ") && text.contains(words),
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
        bombs: vec![
            Bomb::next(Pbn::new(0), Fault::ProgramFail),
            Bomb::next(Pbn::new(1), Fault::EraseFail),
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
        (Some(Bad::Grown), Ok((0x5A, 0)))
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
    assert_eq!(chip.bad(Pbn::new(1)), Some(Bad::Grown));
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

/// Cuts the program of page 2, the MSB partner of page 0, and returns the chip after power came
/// back.
fn cut_program<S: Store>(mut chip: Chip<S>, outcome: ProgramCut, partner: PartnerCut) -> Chip<S> {
    program(&mut chip, 0, 0).unwrap();
    program(&mut chip, 0, 1).unwrap();
    let cut = Cut {
        at_op: 0,
        program: outcome,
        partner,
        erase: EraseCut::Complete,
        seed: 11,
    };
    chip.set_faults(FaultPlan {
        cut: Some(cut),
        ..Default::default()
    });
    assert_eq!(program(&mut chip, 0, 2), Err(NandError::PowerLost));
    assert!(!chip.powered());
    chip.power_on();
    chip
}

fn program_outcomes<S: Store>(make: impl Fn() -> Chip<S>) {
    let page = make().geometry().page(Pbn::new(0), 2);
    let lost = |part| Err(NandError::Uncorrectable { ppn: page, part });
    let good = Ok((2 ^ 0x5A, 2));
    let menu = [
        (ProgramCut::NotStarted, Ok((0xFF, 0xFF))),
        (ProgramCut::Prefix, lost(Part::Data)),
        (ProgramCut::RandomBits, lost(Part::Data)),
        (ProgramCut::DataTorn, lost(Part::Data)),
        (ProgramCut::OobTorn, lost(Part::Oob)),
        (ProgramCut::Unstable(0), lost(Part::Data)),
        (ProgramCut::Complete, good),
    ];
    for (outcome, wanted) in menu {
        for partner in [
            PartnerCut::Intact,
            PartnerCut::Destroyed,
            PartnerCut::Unstable(1),
        ] {
            let mut chip = cut_program(make(), outcome, partner);
            assert_eq!(
                chip.frontier(Pbn::new(0)),
                2 + (outcome != ProgramCut::NotStarted) as u32,
                "{outcome:?}"
            );
            let seen = match outcome {
                ProgramCut::DataTorn | ProgramCut::OobTorn => {
                    let (mut data, mut oob) = (vec![0; 1024], [0; 16]);
                    let data_read = chip.read(0, page, &mut data, &mut [], Cause::Host);
                    let oob_read = chip.read_oob(0, page, &mut oob, Cause::Host);
                    assert_eq!(data_read.is_err(), outcome == ProgramCut::DataTorn);
                    assert_eq!(oob_read.is_err(), outcome == ProgramCut::OobTorn);
                    read_err(&mut chip, page)
                }
                ProgramCut::Prefix | ProgramCut::RandomBits => read_err(&mut chip, page),
                _ => read(&mut chip, 0, 2),
            };
            assert_eq!(seen, wanted, "{outcome:?}");
            let begun = outcome != ProgramCut::NotStarted;
            let lost_at_once = begun && partner == PartnerCut::Destroyed;
            let lost_later = lost_at_once || begun && partner == PartnerCut::Unstable(1);
            for lost in [lost_at_once, lost_later] {
                assert_eq!(
                    read(&mut chip, 0, 0).is_err(),
                    lost,
                    "{outcome:?} {partner:?}"
                );
            }
            assert!(
                read(&mut chip, 0, 1).is_ok(),
                "page 1 shares no word line with page 2"
            );
        }
    }
    let mut chip = cut_program(make(), ProgramCut::Unstable(2), PartnerCut::Intact);
    assert_eq!([read(&mut chip, 0, 2), read(&mut chip, 0, 2)], [good, good]);
    assert_eq!(
        [read(&mut chip, 0, 2), read(&mut chip, 0, 2)],
        [lost(Part::Data), lost(Part::Data)]
    );
}

fn read_err<S: Store>(chip: &mut Chip<S>, ppn: Ppn) -> Result<(u8, u8), NandError> {
    let (mut data, mut oob) = (vec![0; 1024], [0; 16]);
    chip.read(0, ppn, &mut data, &mut oob, Cause::Host)
        .map(|_| (data[0], oob[0]))
}

fn erase_outcomes<S: Store>(make: impl Fn() -> Chip<S>) {
    for outcome in EraseCut::ALL {
        let mut chip = make();
        for page in 0..10 {
            program(&mut chip, 5, page).unwrap();
        }
        let cut = Cut {
            at_op: 0,
            program: ProgramCut::Complete,
            partner: PartnerCut::Intact,
            erase: outcome,
            seed: 3,
        };
        chip.set_faults(FaultPlan {
            cut: Some(cut),
            ..Default::default()
        });
        assert_eq!(
            chip.erase(0, Pbn::new(5), Cause::Gc),
            Err(NandError::PowerLost)
        );
        chip.power_on();
        let begun = outcome != EraseCut::NotStarted;
        assert_eq!(chip.erase_count(Pbn::new(5)), begun as u32, "{outcome:?}");
        let readable = (0..10)
            .filter(|&page| read(&mut chip, 5, page).is_ok_and(|seen| seen != (0xFF, 0xFF)))
            .count();
        let blank = chip.frontier(Pbn::new(5)) == 0;
        match outcome {
            EraseCut::NotStarted => assert_eq!((readable, blank), (10, false)),
            EraseCut::Mixed => assert!((1..10).contains(&readable) && !blank, "{readable}"),
            EraseCut::AllButOne => assert_eq!((readable, blank), (9, false)),
            EraseCut::OnlyOne => assert_eq!((readable, blank), (1, false)),
            EraseCut::LooksBlank | EraseCut::Complete => assert_eq!((readable, blank), (0, true)),
        }
        if blank {
            program(&mut chip, 5, 0).unwrap();
            let holds = read(&mut chip, 5, 0).is_ok();
            assert_eq!(
                holds,
                outcome == EraseCut::Complete,
                "what is programmed after an erase that only looks blank is lost"
            );
        }
        chip.erase(0, Pbn::new(5), Cause::Gc).unwrap();
        program(&mut chip, 5, 0).unwrap();
        assert!(
            read(&mut chip, 5, 0).is_ok(),
            "{outcome:?}: a whole erase heals the block"
        );
    }
}

#[test]
fn a_cut_leaves_what_its_outcome_says() {
    program_outcomes(|| chip("torture"));
    erase_outcomes(|| chip("torture"));
    let folder = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    let in_file = || {
        count.set(count.get() + 1);
        let profile = profile("torture");
        let spec = ImageSpec {
            profile,
            size: 4096,
            scheme: "none".into(),
            params: String::new(),
        };
        Chip::open(
            profile,
            FileStore::create(folder.path().join(count.get().to_string()), &spec).unwrap(),
        )
        .unwrap()
    };
    program_outcomes(in_file);
    erase_outcomes(in_file);
}

/// On parts whose pages stand and fall in groups of four, the cut in the second MSB program takes
/// three pages with it.
#[test]
fn a_cut_takes_the_whole_word_line_group_with_it() {
    let mut grouped = profile("torture");
    grouped.pairing = Pairing::Group4;
    for (partner, lost) in [
        (PartnerCut::Intact, false),
        (PartnerCut::Destroyed, true),
        (PartnerCut::Unstable(0), true),
    ] {
        let mut chip = Chip::open(grouped, MemStore::new(grouped.geometry)).unwrap();
        for page in 0..5 {
            program(&mut chip, 0, page).unwrap();
        }
        let cut = Cut {
            at_op: 0,
            program: ProgramCut::Complete,
            partner,
            erase: EraseCut::Complete,
            seed: 1,
        };
        chip.set_faults(FaultPlan {
            cut: Some(cut),
            ..Default::default()
        });
        assert_eq!(program(&mut chip, 0, 5), Err(NandError::PowerLost));
        chip.power_on();
        let seen: Vec<bool> = (0..6)
            .map(|page| read(&mut chip, 0, page).is_err())
            .collect();
        assert_eq!(seen, [lost, lost, false, false, lost, false], "{partner:?}");
    }
}

#[test]
fn an_msb_page_takes_longer_and_a_die_does_one_thing_at_a_time() {
    let mut chip = chip("mlc-4k");
    let times = profile("mlc-4k").timing;
    let mut expected = 0;
    for page in 0..8 {
        // Dist3: pages 2, 4, 6 are MSB pages of 0, 1, 3.
        expected += if [2, 4, 6].contains(&page) {
            times.program_msb_ns
        } else {
            times.program_ns
        };
        assert_eq!(program(&mut chip, 0, page), Ok(expected), "page {page}");
    }
    assert_eq!(chip.counters().program_busy_ns, expected);
    let erased = chip.erase(0, Pbn::new(1), Cause::Gc).unwrap();
    assert_eq!(erased, expected + times.erase_ns, "behind the programs");
    let ppn = chip.geometry().page(Pbn::new(0), 0);
    assert_eq!(
        chip.read(erased + 5, ppn, &mut [], &mut [0], Cause::Host),
        Ok(erased + 5 + times.read_ns)
    );
    let later = erased + 1_000_000;
    assert_eq!(
        chip.read_oob(later, ppn, &mut [0], Cause::Host),
        Ok(later + times.partial_read_ns)
    );
    let again = chip.geometry().page(Pbn::new(0), 8);
    let run = chip
        .program_run(10 * later, again, 2, &[0; 8192], &[], Cause::Host)
        .unwrap();
    assert_eq!(
        run,
        10 * later + times.program_msb_ns + times.program_ns,
        "page 8 is the MSB page of 5, page 9 an LSB page"
    );
}

#[test]
fn dies_work_side_by_side_and_share_their_bus() {
    let mut wide = profile("mlam");
    (wide.geometry.channels, wide.geometry.ways) = (2, 2);
    let times = wide.timing;
    let mut chip = Chip::open(wide, MemStore::new(wide.geometry)).unwrap();
    let done: Vec<Nanos> = (0..4)
        .map(|block| program(&mut chip, block, 0).unwrap())
        .collect();
    let one = times.bus_ns + times.program_ns;
    // Dies 0 and 1 are behind bus 0, dies 2 and 3 behind bus 1: the second of each waits for one
    // transfer, not for the cells.
    assert_eq!(done, [one, one + times.bus_ns, one, one + times.bus_ns]);
    let ppn = chip.geometry().page(Pbn::new(0), 0);
    let at = 10 * one;
    assert_eq!(
        chip.read(at, ppn, &mut [], &mut [0], Cause::Host),
        Ok(at + times.read_ns + times.bus_ns)
    );
    let at = 20 * one;
    assert_eq!(
        chip.read_oob(at, ppn, &mut [0], Cause::Host),
        Ok(at + times.partial_read_ns),
        "no transfer"
    );
    let at = 30 * one;
    let to = chip.geometry().page(Pbn::new(4), 0);
    assert_eq!(
        chip.copyback(at, ppn, to, &mut [], |_| true, Cause::Gc),
        Ok(at + times.read_ns + times.program_ns),
        "no bus at all"
    );
}

#[test]
fn operations_are_counted_under_their_cause() {
    let mut chip = chip("slc-2k");
    let ppn = chip.geometry().page(Pbn::new(0), 0);
    let page = vec![0; 2048];
    chip.program(0, ppn, &page, &[], Cause::Gc).unwrap();
    chip.program_oob(0, ppn, &[0], Cause::Merge).unwrap();
    chip.read(0, ppn, &mut [], &mut [0], Cause::Host).unwrap();
    chip.read_oob(0, ppn, &mut [0], Cause::Recovery).unwrap();
    chip.erase(0, Pbn::new(0), Cause::Wear).unwrap();
    let of = |cause| *chip.counters().of(cause);
    assert_eq!(
        (
            of(Cause::Gc).programs,
            of(Cause::Merge).oob_programs,
            of(Cause::Host).reads
        ),
        (1, 1, 1)
    );
    assert_eq!(
        (
            of(Cause::Recovery).partial_reads,
            of(Cause::Wear).erases,
            of(Cause::Host).programs
        ),
        (1, 1, 0)
    );
    assert_eq!(chip.ops(), 2);
}

/// A chip of three dies with a cut at the fourth operation that also hits what is in flight: a
/// program of an MSB page on die 0, an erase on die 1, and the struck program on die 2, each issued
/// at its instant.
fn cut_three_dies<S: Store>(mut chip: Chip<S>, issued: [Nanos; 3], seed: u64) -> Chip<S> {
    for page in 0..2 {
        program(&mut chip, 0, page).unwrap();
    }
    for page in 0..10 {
        program(&mut chip, 1, page).unwrap();
    }
    let begin = chip.busy_until();
    let (program, partner, erase) = (ProgramCut::Prefix, PartnerCut::Intact, EraseCut::Complete);
    let cut = Some(Cut {
        at_op: 2,
        program,
        partner,
        erase,
        seed,
    });
    chip.set_faults(FaultPlan {
        cut,
        in_flight: true,
        ..FaultPlan::default()
    });
    let [first, second, third] = issued.map(|at| begin + at);
    let (struck, msb) = (
        chip.geometry().page(Pbn::new(2), 0),
        chip.geometry().page(Pbn::new(0), 2),
    );
    chip.program(first, msb, &[2 ^ 0x5A; 1024], &[2; 16], Cause::Host)
        .unwrap();
    chip.erase(second, Pbn::new(1), Cause::Gc).unwrap();
    assert_eq!(
        chip.program(third, struck, &[7; 1024], &[7; 16], Cause::Host),
        Err(NandError::PowerLost)
    );
    chip.power_on();
    chip
}

fn three_dies() -> Profile {
    let mut profile = Profile::find("torture").unwrap().with_blocks(9);
    (profile.geometry.channels, profile.geometry.ways) = (3, 1);
    profile
}

#[test]
fn a_cut_hits_what_is_in_flight_on_every_die() {
    let times = three_dies().timing;
    let folder = tempfile::tempdir().unwrap();
    let (mut pages, mut partners, mut blocks) = ([0; 2], [0; 2], [0; 3]);
    for seed in 0..120 {
        let mut chip = cut_three_dies(
            Chip::open(three_dies(), MemStore::new(three_dies().geometry)).unwrap(),
            [0, times.program_ns, times.program_msb_ns - 1],
            seed,
        );
        let own = Some((ProgramCut::Prefix, PartnerCut::Intact));
        assert_eq!(
            chip.cut_hits(),
            CutHits {
                program: own,
                erase: None,
                programs: 1,
                erases: 1
            }
        );
        assert!(read(&mut chip, 2, 0).is_err(), "the struck page is torn");
        let seen: Vec<bool> = (0..3)
            .map(|page| read(&mut chip, 0, page).is_ok())
            .collect();
        assert!(seen[1], "page 1 shares no word line with page 2");
        pages[seen[2] as usize] += 1;
        partners[seen[0] as usize] += 1;
        assert_eq!(chip.erase_count(Pbn::new(1)), 1);
        let readable = (0..chip.frontier(Pbn::new(1)))
            .filter(|&page| read(&mut chip, 1, page).is_ok())
            .count();
        blocks[(readable > 0) as usize] += 1;
        if chip.frontier(Pbn::new(1)) == 0 {
            program(&mut chip, 1, 0).unwrap();
            blocks[2] += read(&mut chip, 1, 0).is_err() as u32;
        }
        if seed < 12 {
            // The same in a file, also after the process died.
            let spec = ImageSpec {
                profile: three_dies(),
                size: 4096,
                scheme: "none".into(),
                params: String::new(),
            };
            let path = folder.path().join(seed.to_string());
            let file = Chip::open(three_dies(), FileStore::create(&path, &spec).unwrap()).unwrap();
            drop(cut_three_dies(
                file,
                [0, times.program_ns, times.program_msb_ns - 1],
                seed,
            ));
            let (store, _) = FileStore::open(&path, nand_model::Access::ReadWrite).unwrap();
            let mut file = Chip::open(three_dies(), store).unwrap();
            assert!(read(&mut file, 2, 0).is_err());
            let again: Vec<bool> = (0..3)
                .map(|page| read(&mut file, 0, page).is_ok())
                .collect();
            assert_eq!(again, seen, "seed {seed}");
        }
    }
    assert!(
        pages
            .iter()
            .chain(&partners)
            .chain(&blocks)
            .all(|&count| count >= 8),
        "{pages:?} {partners:?} {blocks:?}"
    );
}

#[test]
fn a_cut_spares_what_has_ended() {
    let times = three_dies().timing;
    let make = || Chip::open(three_dies(), MemStore::new(three_dies().geometry)).unwrap();
    let (msb, erase) = (times.program_msb_ns, times.erase_ns);
    let hits = |own, programs, erases| CutHits {
        program: Some((own, PartnerCut::Intact)),
        erase: None,
        programs,
        erases,
    };
    let (torn, complete) = (ProgramCut::Prefix, ProgramCut::Complete);
    for seed in 0..40 {
        for (issued, wanted) in [
            ([0, 0, erase.max(msb)], hits(torn, 0, 0)),
            ([0, 0, msb], hits(torn, 0, 1)),
            // The struck one had ended itself when the erase began.
            ([0, msb, msb - times.program_ns], hits(complete, 0, 1)),
            // The last one to begin is the program on die 0.
            ([erase, 0, erase - times.program_ns], hits(complete, 1, 0)),
        ] {
            let mut chip = cut_three_dies(make(), issued, seed);
            assert_eq!(chip.cut_hits(), wanted, "{issued:?}");
            let struck_ended = issued[2] + times.program_ns <= issued[0].max(issued[1]);
            assert_eq!(
                read(&mut chip, 2, 0),
                if struck_ended {
                    Ok((7, 7))
                } else {
                    read(&mut chip, 2, 0)
                }
            );
            if issued[0] + msb <= issued[1].max(issued[2]) {
                assert_eq!(
                    [0, 1, 2].map(|page| read(&mut chip, 0, page).is_ok()),
                    [true; 3],
                    "{issued:?}"
                );
            }
            if wanted.erases == 0 {
                program(&mut chip, 1, 0).unwrap();
                assert!(
                    read(&mut chip, 1, 0).is_ok(),
                    "{issued:?}: the erase was complete"
                );
            }
        }
    }
    // Without the option only the struck operation is hit.
    let mut chip = make();
    let cut = Some(Cut::menu(1, 5)[1]);
    chip.set_faults(FaultPlan {
        cut,
        ..FaultPlan::default()
    });
    program(&mut chip, 0, 0).unwrap();
    assert_eq!(program(&mut chip, 1, 0), Err(NandError::PowerLost));
    chip.power_on();
    assert_eq!(
        (chip.cut_hits(), read(&mut chip, 0, 0)),
        (hits(torn, 0, 0), Ok((0x5A, 0)))
    );
}

/// A flickering page reads well or not at random, and the same row of reads repeats from its
/// number.
#[test]
fn a_flickering_page_reads_differently_each_time() {
    let row = |number| {
        let mut chip = cut_program(
            chip("torture"),
            ProgramCut::Flickering(number),
            PartnerCut::Flickering(!number),
        );
        let pages = [0, 2].map(|page| {
            (0..64)
                .map(|_| read(&mut chip, 0, page).is_ok())
                .collect::<Vec<_>>()
        });
        for well in &pages {
            assert!(
                (16..48).contains(&well.iter().filter(|well| **well).count()),
                "{number}: {well:?}"
            );
            assert!(
                well.windows(2).any(|pair| pair == [false, true]),
                "it comes back"
            );
        }
        pages
    };
    assert_eq!(row(3), row(3));
    assert_ne!(row(3), row(90));
}
