//! Outcomes of a power cut for operations in flight on other dies.

use super::*;

/// A chip of three dies with a cut at the fourth operation that also hits operations in flight: a
/// program of an MSB page on die 0, an erase on die 1, and the cut program on die 2, each issued at
/// its instant.
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
            [0, times.program_ns[0], times.program_ns[1] - 1],
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
                [0, times.program_ns[0], times.program_ns[1] - 1],
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
    let (msb, erase) = (times.program_ns[1], times.erase_ns);
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
            // The cut operation itself had ended when the erase began.
            ([0, msb, msb - times.program_ns[0]], hits(complete, 0, 1)),
            // The program on die 0 is the last one to start.
            (
                [erase, 0, erase - times.program_ns[0]],
                hits(complete, 1, 0),
            ),
        ] {
            let mut chip = cut_three_dies(make(), issued, seed);
            assert_eq!(chip.cut_hits(), wanted, "{issued:?}");
            let struck_ended = issued[2] + times.program_ns[0] <= issued[0].max(issued[1]);
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
    // Without the option only the cut operation is hit.
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

/// With multi-plane commands, whichever of the pages the cut is armed for: those before it are in
/// flight, those after it have not started. The array begins when the last page is loaded, which
/// may take longer than a program.
#[test]
fn a_cut_in_a_joint_program_tears_the_page_of_each_plane_on_its_own() {
    let mut part = Profile::find("torture").unwrap().with_blocks(8);
    (part.geometry.planes, part.geometry.multi_plane) = (4, MultiPlane::SamePage);
    let (program_cut, partner, erase) =
        (ProgramCut::Prefix, PartnerCut::Intact, EraseCut::Complete);
    for (at_op, bus_ns) in (0..4).flat_map(|at_op| [(at_op, 0), (at_op, 2_000_000)]) {
        part.timing.bus_ns = bus_ns;
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let mut chip = Chip::open(part, MemStore::new(part.geometry)).unwrap();
            let cut = Some(Cut {
                at_op: u64::from(at_op),
                program: program_cut,
                partner,
                erase,
                seed,
            });
            chip.set_faults(FaultPlan {
                cut,
                in_flight: true,
                ..FaultPlan::default()
            });
            for block in 0..4 {
                assert_eq!(program(&mut chip, block, 0).is_ok(), block < at_op);
            }
            assert_eq!(chip.cut_hits().programs, at_op);
            chip.power_on();
            assert!((at_op + 1..4).all(|block| chip.frontier(Pbn::new(block)) == 0));
            assert!(
                read(&mut chip, at_op, 0).is_err(),
                "the struck page is torn"
            );
            let good = |block| read(&mut chip, block, 0).is_ok();
            seen.insert((0..at_op).map(good).collect::<Vec<_>>());
        }
        assert_eq!(seen.len(), 1 << at_op, "{seen:?}");
    }
}

/// The pages of a joint program begin together, however long each of them takes. So a cut in a
/// short one hits what other dies do when the array begins.
#[test]
fn a_cut_in_the_short_page_of_a_joint_program_hits_what_runs_when_it_begins() {
    let mut part = Profile::find("torture").unwrap().with_blocks(8);
    (part.geometry.channels, part.geometry.planes) = (2, 2);
    part.geometry.multi_plane = MultiPlane::AnyPage;
    let mut chip = Chip::open(part, MemStore::new(part.geometry)).unwrap();
    for page in 0..2 {
        program(&mut chip, 0, page).unwrap();
    }
    let begin = chip.busy_until();
    chip.set_faults(FaultPlan {
        cut: Some(Cut {
            at_op: 2,
            program: ProgramCut::Prefix,
            partner: PartnerCut::Intact,
            erase: EraseCut::Complete,
            seed: 1,
        }),
        in_flight: true,
        ..FaultPlan::default()
    });
    // A page of the other die, an MSB page, and an LSB page on the other plane.
    let outcomes = [(1, 0), (0, 2), (2, 0)].map(|(block, page)| {
        let ppn = part.geometry.page(Pbn::new(block), page);
        let done = chip.program(begin, ppn, &[7; 1024], &[7; 16], Cause::Host);
        done.map(|done| done - begin)
    });
    let [lsb, msb, ..] = part.timing.program_ns;
    assert!(lsb < msb - lsb, "the page of the other die ends early");
    assert_eq!(outcomes, [Ok(lsb), Ok(msb), Err(NandError::PowerLost)]);
    assert_eq!(chip.cut_hits().programs, 2);
}
