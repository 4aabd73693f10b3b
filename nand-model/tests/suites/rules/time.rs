//! Operation times, and the causes under which operations are counted.

use super::*;

#[test]
fn an_msb_page_takes_longer_and_a_die_does_one_thing_at_a_time() {
    let mut chip = chip("mlc-4k");
    let times = profile("mlc-4k").timing;
    let mut expected = 0;
    for page in 0..8 {
        // Dist3: pages 2, 4, 6 are MSB pages of 0, 1, 3.
        expected += if [2, 4, 6].contains(&page) {
            times.program_ns[1]
        } else {
            times.program_ns[0]
        };
        assert_eq!(program(&mut chip, 0, page), Ok(expected), "page {page}");
    }
    assert_eq!(chip.counters().program_busy_ns, expected);
    let erased = chip.erase(0, Pbn::new(1), Cause::Gc).unwrap();
    assert_eq!(erased, expected + times.erase_ns, "behind the programs");
    let ppn = chip.geometry().page(Pbn::new(0), 0);
    assert_eq!(
        chip.read(erased + 5, ppn, &mut [], &mut [0], Cause::Host),
        Ok(erased + 5 + times.read_ns[0])
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
        10 * later + times.program_ns[1] + times.program_ns[0],
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
    let one = times.bus_ns + times.program_ns[0];
    // Dies 0 and 1 are behind bus 0, dies 2 and 3 behind bus 1: the second of each waits for one
    // transfer, not for the cells.
    assert_eq!(done, [one, one + times.bus_ns, one, one + times.bus_ns]);
    let ppn = chip.geometry().page(Pbn::new(0), 0);
    let at = 10 * one;
    assert_eq!(
        chip.read(at, ppn, &mut [], &mut [0], Cause::Host),
        Ok(at + times.read_ns[0] + times.bus_ns)
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
        Ok(at + times.read_ns[0] + times.program_ns[0]),
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

/// A device of two dies on one bus that suspends erases and programs.
fn suspending() -> Chip<MemStore> {
    let mut part = profile("mlam");
    (part.geometry.channels, part.geometry.ways) = (1, 2);
    part.timing.suspend = Suspend {
        erase_ns: Some(40_000),
        program_ns: Some(20_000),
        resume_ns: 5_000,
    };
    Chip::open(part, MemStore::new(part.geometry)).unwrap()
}

#[test]
fn a_read_waits_for_the_suspension_of_an_erase_or_program_and_not_for_its_end() {
    let mut chip = suspending();
    let times = chip.profile().timing;
    program(&mut chip, 0, 0).unwrap();
    let read = times.read_ns[0] + times.bus_ns;
    let ppn = chip.geometry().page(Pbn::new(0), 0);
    let start = chip.busy_until();
    let erased = chip.erase(start, Pbn::new(2), Cause::Gc).unwrap();
    assert_eq!(erased, start + times.erase_ns);
    let at = start + 100_000;
    assert_eq!(
        chip.read(at, ppn, &mut [], &mut [0], Cause::Host),
        Ok(at + 40_000 + read)
    );
    let erased = erased + times.read_ns[0] + 5_000;
    assert_eq!(chip.busy_until(), erased, "the erase ends later");
    // The OOB alone, all pages of a run, and a copyback suspend as well.
    let at = start + 500_000;
    assert_eq!(
        chip.read_oob(at, ppn, &mut [0], Cause::Host),
        Ok(at + 40_000 + times.partial_read_ns)
    );
    let erased = erased + times.partial_read_ns + 5_000;
    let next = chip.geometry().page(Pbn::new(0), 1);
    let programmed = chip
        .program(at, next, &[1; 4096], &[], Cause::Host)
        .unwrap();
    assert_eq!(programmed, erased + times.program_ns[0]);
    let at = programmed - times.program_ns[0] + 1;
    assert_eq!(
        chip.read(at, ppn, &mut [], &mut [0], Cause::Host),
        Ok(at + 20_000 + read),
        "a program, in its own time"
    );
    let programmed = programmed + times.read_ns[0] + 5_000;
    assert_eq!(
        chip.read(at, next, &mut [], &mut [0], Cause::Host),
        Ok(programmed + read),
        "its own page is read when it is programmed"
    );
    // The counters contain work, not waits.
    assert_eq!(chip.counters().erase_busy_ns, times.erase_ns);
}

/// Work without overlaps takes as long as on a device without suspension.
#[test]
fn a_suspension_changes_nothing_where_no_read_meets_a_busy_die() {
    let mut suspends = suspending();
    let mut part = *suspends.profile();
    part.timing.suspend = Suspend::NONE;
    let mut plain = Chip::open(part, MemStore::new(part.geometry)).unwrap();
    let work = |chip: &mut Chip<MemStore>| {
        let geometry = *chip.geometry();
        let (mut at, mut ends) = (0, Vec::new());
        for block in 0..geometry.blocks {
            let page = |offset| geometry.page(Pbn::new(block), offset);
            at = chip
                .program_run(at, page(0), 5, &[7; 5 * 4096], &[], Cause::Host)
                .unwrap();
            ends.push(at);
            let (mut data, mut health) = ([0; 3 * 4096], [nand_model::Health::Good; 3]);
            at = chip
                .read_run(at, page(0), &mut data, &mut [], &mut health, Cause::Host)
                .unwrap();
            ends.push(at);
            let pages = [page(0), page(2), page(4)];
            at = chip
                .read_pages(at, &pages, &mut data, &mut [], &mut health, Cause::Host)
                .unwrap();
            ends.push(at);
            at = chip
                .copyback(at, page(1), page(5), &mut [], |_| true, Cause::Gc)
                .unwrap();
            at = chip.read_oob(at, page(1), &mut [0], Cause::Host).unwrap();
            at = chip.erase(at, Pbn::new(block), Cause::Gc).unwrap();
            ends.push(at);
        }
        ends
    };
    assert_eq!(work(&mut suspends), work(&mut plain));
    assert_eq!(suspends.busy_until(), plain.busy_until());
}

/// OOBs of a run: bytes, states, times and counts are those of page by page, with and without a
/// fault plan, also where pages are lost, unstable, blank or left out.
#[test]
fn oobs_of_a_run_are_those_of_its_pages() {
    for (name, bit_errors) in [("mlc-4k", 0.0), ("slc-2k", 0.0), ("mlc-4k", 1e4)] {
        let [mut run, mut single] = [(); 2].map(|()| chip(name));
        let (count, first) = (12, run.geometry().page(Pbn::new(1), 0));
        let oob_bytes = 16;
        for chip in [&mut run, &mut single] {
            for page in (0..10).filter(|page| name == "mlc-4k" || *page != 4) {
                program(chip, 1, page).unwrap();
            }
            chip.lose_oob(first.run(3).last().unwrap()).unwrap();
            let store = chip.store_mut();
            let page = first.run(6).last().unwrap();
            store.set_health(page, Health::Unstable(1)).unwrap();
            if bit_errors > 0.0 {
                chip.set_faults(FaultPlan {
                    bit_errors,
                    seed: 5,
                    ..FaultPlan::default()
                });
            }
        }
        let mut lost = 0;
        for _ in 0..2 {
            let mut oobs = vec![0; count * oob_bytes];
            let mut health = vec![Health::Good; count];
            let begin = run.busy_until();
            let done = run
                .read_oobs(begin, first, &mut oobs, &mut health, Cause::Recovery)
                .unwrap();
            let mut at = begin;
            for ((ppn, oob), health) in first
                .run(count as u32)
                .zip(oobs.chunks(oob_bytes))
                .zip(&health)
            {
                let before = single.counters().read_busy_ns;
                let mut own = vec![0; oob_bytes];
                let read = single.read_oob(at, ppn, &mut own, Cause::Recovery);
                assert_eq!(read.is_ok(), health.oob_ok(), "{name}: page {ppn}");
                at += single.counters().read_busy_ns - before;
                match read {
                    Ok(done) => assert_eq!((done, &own[..]), (at, oob), "{name}: page {ppn}"),
                    Err(_) => lost += 1,
                }
            }
            assert_eq!(
                (done, run.busy_until()),
                (at, single.busy_until()),
                "{name}"
            );
            assert_eq!(run.counters(), single.counters(), "{name}");
        }
        assert!(lost > 2, "{name}: {lost} lost");
    }
}
