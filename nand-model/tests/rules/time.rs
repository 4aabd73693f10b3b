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
