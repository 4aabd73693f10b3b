//! Outcomes of a power cut for the interrupted program or erase, and for its word line.

use super::*;

/// Cuts the program of page 2, the MSB partner of page 0, and returns the chip after power-on.
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

/// On parts with groups of four pages, a cut in the second MSB program destroys three other pages.
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

/// Reads of a flickering page fail at random. Pages with the same number have the same sequence of
/// failures.
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
