//! Times of joint operations, worked out by hand.

use super::*;

const READ: Nanos = 50;
const PROGRAM: Nanos = 400;
const ERASE: Nanos = 2000;
const BUS: Nanos = 20;
/// Pages per block: the page numbers of block `b` begin at `b * PAGES`.
const PAGES: u32 = 16;

/// Dies of four planes on one channel.
fn dies(ways: u32, multi_plane: MultiPlane) -> Planes {
    cached(ways, multi_plane, Cache::NONE)
}

fn cached(ways: u32, multi_plane: MultiPlane, cache: Cache) -> Planes {
    let geometry = Geometry {
        channels: 1,
        ways,
        planes: 4,
        multi_plane,
        blocks: 64,
        pages_per_block: PAGES,
        page_bytes: 512,
        oob_bytes: 64,
    };
    Planes::new(&geometry, cache)
}

/// Page `offset` of the first block on this plane of a device of one die.
fn page(plane: u32, offset: u32) -> Ppn {
    Ppn::new(plane * PAGES + offset)
}

fn program(planes: &mut Planes, at: Nanos, ppn: Ppn) -> Nanos {
    planes.program_run(at, (0, 0), [(ppn, PROGRAM)].into_iter(), BUS)
}

fn read(planes: &mut Planes, at: Nanos, ppn: Ppn) -> Nanos {
    planes.read_run(at, (0, 0), [(ppn, READ)].into_iter(), BUS)
}

/// Four transfers and one program; the next four pages wait for its end.
#[test]
fn four_pages_on_four_planes_take_one_program_and_four_transfers() {
    let mut die = dies(1, MultiPlane::SamePage);
    let ends = [0, 1, 2, 3].map(|plane| program(&mut die, 0, page(plane, 0)));
    assert_eq!(ends, [1, 2, 3, 4].map(|pages| pages * BUS + PROGRAM));
    assert_eq!(die.take_shared(), 3 * PROGRAM);
    let ends = [0, 1, 2, 3].map(|plane| program(&mut die, 0, page(plane, 1)));
    assert_eq!(ends[3], 2 * (4 * BUS + PROGRAM));
    assert_eq!(die.busy_until(), ends[3]);
}

/// One read of the cells, then four transfers; the next sequence waits for the last of them.
#[test]
fn four_pages_of_four_planes_take_one_read_and_four_transfers() {
    let mut die = dies(1, MultiPlane::SamePage);
    let ends = [0, 1, 2, 3].map(|plane| read(&mut die, 0, page(plane, 7)));
    assert_eq!(ends, [1, 2, 3, 4].map(|pages| READ + pages * BUS));
    let next = read(&mut die, 0, page(0, 8));
    assert_eq!(next, 2 * READ + 5 * BUS);
}

#[test]
fn blocks_of_four_planes_take_one_erase_whatever_their_numbers() {
    let mut die = dies(1, MultiPlane::SamePage);
    let ends = [0, 5, 10, 15].map(|block| die.erase(100, 0, page(block, 0), ERASE));
    assert_eq!(ends, [100 + ERASE; 4]);
    // A fifth block is on a plane that is taken.
    assert_eq!(die.erase(100, 0, page(4, 0), ERASE), 100 + 2 * ERASE);
}

/// What ONFI does not allow in one command takes two.
#[test]
fn another_page_plane_kind_or_arrival_is_an_operation_of_its_own() {
    let one = BUS + PROGRAM;
    for (at, ppn) in [(0, page(1, 1)), (0, page(4, 0)), (1, page(1, 0))] {
        let mut die = dies(1, MultiPlane::SamePage);
        program(&mut die, 0, page(0, 0));
        assert_eq!(program(&mut die, at, ppn), 2 * one, "{ppn} at {at}");
        assert_eq!(die.take_shared(), 0);
    }
    let mut die = dies(1, MultiPlane::AnyPage);
    program(&mut die, 0, page(0, 0));
    assert_eq!(program(&mut die, 0, page(1, 1)), one + BUS);
    let mut die = dies(1, MultiPlane::SamePage);
    program(&mut die, 0, page(0, 0));
    assert_eq!(read(&mut die, 0, page(1, 0)), one + READ + BUS);
    // An operation of one plane between two pages ends the command.
    let mut die = dies(1, MultiPlane::SamePage);
    program(&mut die, 0, page(0, 0));
    assert_eq!(die.work(0, 0, 5), one + 5);
    assert_eq!(program(&mut die, 0, page(1, 0)), 2 * one + 5);
}

/// The slowest page determines the time.
#[test]
fn the_array_time_is_that_of_the_longest_page() {
    let mut die = dies(1, MultiPlane::AnyPage);
    let pages = [(page(0, 0), 100), (page(1, 1), 300), (page(2, 2), 200)];
    let ends = pages.map(|page| die.program_run(0, (0, 0), [page].into_iter(), BUS));
    assert_eq!(ends, [BUS + 100, 2 * BUS + 300, 3 * BUS + 300]);
    assert_eq!(die.take_shared(), 100 + 200);
}

/// While one die programs, the bus is free for another.
#[test]
fn the_planes_of_two_dies_share_the_bus_and_program_at_once() {
    let mut two = dies(2, MultiPlane::SamePage);
    // Blocks alternate between the dies.
    let on = |die: u32, plane: u32| Ppn::new((2 * plane + die) * PAGES);
    for die in 0..2 {
        for plane in 0..4 {
            two.program_run(0, (die, 0), [(on(die, plane), PROGRAM)].into_iter(), BUS);
        }
    }
    assert_eq!(two.busy_until(), 8 * BUS + PROGRAM);
    // A second sequence of die 0 leaves gaps on the bus that die 1 can use.
    let again = two.program_run(0, (0, 0), [(Ppn::new(1), PROGRAM)].into_iter(), BUS);
    assert_eq!(again, 4 * BUS + PROGRAM + BUS + PROGRAM);
}

const BOTH: Cache = Cache {
    program: true,
    read: true,
};

fn pages(ns: Nanos) -> impl Iterator<Item = (Ppn, Nanos)> {
    (0..3).map(move |offset| (page(0, offset), ns))
}

/// Whichever of transfer and array takes longer is never idle.
#[test]
fn a_cached_program_overlaps_transfers_with_the_array() {
    let run = |cache, cell_ns, bus_ns| {
        let mut die = cached(1, MultiPlane::Off, cache);
        die.program_run(0, (0, 0), pages(cell_ns), bus_ns)
    };
    assert_eq!(run(Cache::NONE, 400, 20), 3 * (20 + 400));
    assert_eq!(run(BOTH, 400, 20), 20 + 3 * 400);
    assert_eq!(run(BOTH, 20, 400), 3 * 400 + 20);
}

#[test]
fn a_cached_read_overlaps_transfers_with_the_array() {
    let run = |cache, cell_ns, bus_ns| {
        let mut die = cached(1, MultiPlane::Off, cache);
        die.read_run(0, (0, 0), pages(cell_ns), bus_ns)
    };
    assert_eq!(run(Cache::NONE, 50, 20), 3 * (50 + 20));
    assert_eq!(run(BOTH, 50, 20), 3 * 50 + 20);
    assert_eq!(run(BOTH, 20, 50), 20 + 3 * 50);
}

/// Two joint programs of four planes: the second is loaded while the first programs.
#[test]
fn cached_joint_programs_take_one_load_and_their_programs() {
    let mut die = cached(1, MultiPlane::SamePage, BOTH);
    for offset in 0..2 {
        for plane in 0..4 {
            program(&mut die, 0, page(plane, offset));
        }
    }
    assert_eq!(die.busy_until(), 4 * BUS + 2 * PROGRAM);
}

/// Another block, another kind, or a later arrival is another sequence.
#[test]
fn what_ends_a_sequence_waits_for_the_array() {
    let one = BUS + PROGRAM;
    for (at, ppn) in [(0, page(4, 1)), (1, page(0, 1))] {
        let mut die = cached(1, MultiPlane::Off, BOTH);
        program(&mut die, 0, page(0, 0));
        assert_eq!(program(&mut die, at, ppn), 2 * one, "{ppn} at {at}");
    }
    let mut die = cached(1, MultiPlane::Off, BOTH);
    program(&mut die, 0, page(0, 0));
    assert_eq!(read(&mut die, 0, page(1, 0)), one + READ + BUS);
    assert_eq!(program(&mut die, 0, page(0, 1)), one + READ + BUS + one);
}
