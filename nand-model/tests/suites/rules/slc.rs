//! Blocks in SLC mode: their pages, order, times, and what a cut leaves of them.

use super::*;
use nand_model::SlcRegion;
use nand_model::store::Change;

/// A part of 8 blocks of 18 pages on two dies, blocks 0 and 1 in SLC mode with 6 pages each.
fn part() -> Profile {
    let mut part = Profile::find("tlc-16k").unwrap().with_blocks(8);
    part.geometry.pages_per_block = 18;
    part.geometry.page_bytes = 512;
    part.geometry.ways = 2;
    part.slc = Some(SlcRegion {
        share: 2_000,
        read_ns: 20_000,
        program_ns: 200_000,
        endurance: 30_000,
    });
    part
}

fn open() -> Chip<MemStore> {
    Chip::open(part(), MemStore::new(part().geometry)).unwrap()
}

#[test]
fn a_block_in_slc_mode_has_a_page_per_word_line() {
    let mut chip = open();
    assert_eq!((chip.slc_blocks(), chip.geometry().dies()), (2, 2));
    breaks(&mut chip, "page 0 is next", |chip| program(chip, 0, 1));
    for block in 0..8 {
        let pages = if block < 2 { 6 } else { 18 };
        assert_eq!(chip.pages_in(Pbn::new(block)), pages);
        assert_eq!(chip.is_slc(Pbn::new(block)), block < 2);
        for page in 0..pages {
            program(&mut chip, block, page).unwrap();
        }
    }
    breaks(
        &mut chip,
        "page 6 of block 1, which is in SLC mode and has 6 pages",
        |chip| program(chip, 1, 6),
    );
    assert_eq!(
        read(&mut chip, 1, 6),
        Ok((0xFF, 0xFF)),
        "no page to program"
    );
    assert_eq!(read(&mut chip, 1, 3), Ok((0x58, 3)));
    chip.erase(0, Pbn::new(1), Cause::Fold).unwrap();
    program(&mut chip, 1, 0).unwrap();
}

#[test]
fn a_run_does_not_reach_beyond_the_pages_of_slc_mode() {
    let mut chip = open();
    let (data, oobs) = ([7; 7 * 512], [7; 7 * 16]);
    breaks(&mut chip, "page 6 of block 0", |chip| {
        chip.program_run(0, Ppn::new(0), 7, &data, &oobs, Cause::Host)
    });
    let run = chip.program_run(0, Ppn::new(0), 6, &data[..3072], &oobs[..96], Cause::Host);
    let bus_ns = part().timing.bus_ns;
    assert_eq!(run, Ok(6 * (200_000 + bus_ns)));
}

#[test]
fn slc_mode_has_its_own_times() {
    let mut chip = open();
    let bus_ns = part().timing.bus_ns;
    assert_eq!(program(&mut chip, 0, 0), Ok(200_000 + bus_ns));
    let of_tlc = part().timing.program_ns[0];
    assert_eq!(program(&mut chip, 3, 0), Ok(2 * bus_ns + of_tlc));
    let at = chip.busy_until();
    let (mut data, mut oob) = ([0; 512], [0; 16]);
    let page = Ppn::new(0);
    let done = chip.read(at, page, &mut data, &mut oob, Cause::Host);
    assert_eq!(done, Ok(at + 20_000 + bus_ns));
    let short = chip.read_oob(at + 1_000_000, page, &mut oob, Cause::Host);
    assert_eq!(short, Ok(at + 1_020_000));
}

/// The same cut destroys an earlier page of a word line of three bits, and none in SLC mode.
#[test]
fn no_cut_destroys_an_earlier_page_of_a_block_in_slc_mode() {
    for block in [0, 2] {
        for at_op in 1..4 {
            let mut chip = open();
            let cut = Cut {
                at_op,
                program: ProgramCut::RandomBits,
                partner: PartnerCut::Destroyed,
                erase: EraseCut::NotStarted,
                seed: 1,
            };
            chip.set_faults(FaultPlan {
                cut: Some(cut),
                ..FaultPlan::default()
            });
            let done = (0..4).take_while(|page| program(&mut chip, block, *page).is_ok());
            assert_eq!(done.count() as u64, at_op);
            chip.power_on();
            let lost = (0..at_op as u32).filter(|page| read(&mut chip, block, *page).is_err());
            let lost = lost.count();
            let victims = chip.pairs_of(Pbn::new(block)).victims(at_op as u32);
            assert_eq!(lost, victims.count(), "block {block}, cut at {at_op}");
            assert!(block == 2 || lost == 0);
        }
    }
    let change = |block: u32| Change::Program {
        ppn: part().geometry.page(Pbn::new(block), 2),
        data: Vec::new(),
        oob: Vec::new(),
    };
    let menu = |block| Cut::menu_of_operation(&part(), &change(block), 1).len();
    assert!(menu(0) < menu(2));
}
