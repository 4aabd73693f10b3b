//! Word lines of three and four pages: times, and the outcomes of a cut in every page.

use super::*;
use nand_model::PairTable;

fn part(bits: u8, rule: &str) -> Profile {
    let mut part = profile("torture");
    part.geometry.pages_per_block = 48;
    part.pairing = Pairing::parse(rule, bits).unwrap();
    part.timing.read_ns = [10, 20, 40, 80];
    part.timing.program_ns = [100, 300, 900, 2_700];
    part
}

const PARTS: [(u8, &str); 4] = [
    (3, "adjacent"),
    (3, "staggered"),
    (4, "adjacent"),
    (4, "staggered"),
];

#[test]
fn each_page_of_a_word_line_has_its_own_times() {
    for (bits, rule) in PARTS {
        let part = part(bits, rule);
        let pairs = PairTable::new(part.pairing, 48);
        let mut chip = Chip::open(part, MemStore::new(part.geometry)).unwrap();
        let mut now = 0;
        for page in 0..48 {
            let kind = pairs.page_type(page);
            let done = program(&mut chip, 0, page).unwrap();
            assert_eq!(done - now, part.timing.program_ns[kind], "{rule} {page}");
            now = done;
        }
        for page in 0..48 {
            let ppn = chip.geometry().page(Pbn::new(0), page);
            let kind = pairs.page_type(page);
            let done = chip.read(now, ppn, &mut [], &mut [0], Cause::Host).unwrap();
            assert_eq!(done - now, part.timing.read_ns[kind], "{rule} {page}");
            now = done;
        }
    }
}

/// A cut in the program of each page: the earlier pages of its word line, and no others, are as the
/// outcome says.
#[test]
fn a_cut_in_any_page_may_take_all_earlier_pages_of_its_word_line_or_one() {
    for (bits, rule) in PARTS {
        let part = part(bits, rule);
        let pairs = PairTable::new(part.pairing, 48);
        let outcomes = [
            PartnerCut::Intact,
            PartnerCut::Destroyed,
            PartnerCut::Unstable(0),
            PartnerCut::DestroyedOne(0),
            PartnerCut::DestroyedOne(1),
            PartnerCut::DestroyedOne(2),
        ];
        for (last, partner) in (0..48).flat_map(|last| outcomes.map(|partner| (last, partner))) {
            let mut chip = Chip::open(part, MemStore::new(part.geometry)).unwrap();
            for page in 0..last {
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
            assert_eq!(program(&mut chip, 0, last), Err(NandError::PowerLost));
            chip.power_on();
            let earlier: Vec<u32> = pairs.victims(last).collect();
            assert_eq!(earlier.len(), pairs.page_type(last), "{rule} {last}");
            let lost: Vec<u32> = match partner {
                PartnerCut::Intact => Vec::new(),
                PartnerCut::DestroyedOne(number) => {
                    let one = |earlier: &[u32]| earlier[usize::from(number) % earlier.len()];
                    (!earlier.is_empty())
                        .then(|| one(&earlier))
                        .into_iter()
                        .collect()
                }
                _ => earlier,
            };
            let seen: Vec<u32> = (0..=last)
                .filter(|page| read(&mut chip, 0, *page).is_err())
                .collect();
            assert_eq!(
                seen, lost,
                "{rule} of {bits} bits, page {last}: {partner:?}"
            );
        }
    }
}

/// Every outcome of the menu is there once, and that of each page alone where there are several.
#[test]
fn the_menu_of_a_word_line_has_each_earlier_page_alone() {
    let usual = Cut::menu(0, 1).len();
    let of = |earlier| Cut::menu_of_word_line(0, 1, earlier);
    assert_eq!([0, 1].map(|earlier| of(earlier).len()), [usual; 2]);
    let three = of(3);
    assert_eq!(three.len(), usual + 3 * usual / 3);
    for number in 0..3 {
        let one = |cut: &&Cut| cut.partner == PartnerCut::DestroyedOne(number);
        assert_eq!(three.iter().filter(one).count(), usual / 3);
    }
}
