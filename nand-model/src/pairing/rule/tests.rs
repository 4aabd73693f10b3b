//! Tables by rule.

use super::*;

const RULES: [Pairing; 5] = [
    Pairing::Adjacent,
    Pairing::Dist3,
    Pairing::Dist6,
    Pairing::Shared4,
    Pairing::Group4,
];

#[test]
fn every_table_is_a_bijection_of_lsb_onto_later_msb_pages() {
    for rule in RULES {
        for pages in [4, 8, 16, 32, 64, 128, 256] {
            let table = PairTable::new(rule, pages);
            let mut seen: Vec<u16> = table.word_lines.concat();
            seen.sort_unstable();
            assert!(
                seen.iter().map(|page| *page as u32).eq(0..pages),
                "{rule:?} {pages}: each page once"
            );
            for line in &table.word_lines {
                assert!(
                    line.is_sorted_by(|a, b| a < b) && line.len() % 2 == 0,
                    "{rule:?} {pages}: {line:?}"
                );
            }
            assert_eq!(
                (0..pages).filter(|page| table.is_msb(*page)).count() as u32,
                pages / 2
            );
        }
    }
}

#[test]
fn random_tables_are_bijections_of_every_span() {
    let mut tables = std::collections::HashSet::new();
    for (seed, span) in
        (0..300).flat_map(|seed| (1..=Pairing::SPAN_MAX).map(move |span| (seed, span)))
    {
        for pages in [2, 4, 6, 8, 16, 30, 64, 128] {
            let table = PairTable::new(Pairing::Random { seed, span }, pages);
            assert!(
                table
                    .word_lines
                    .iter()
                    .all(|line| line.len() == 2 && line[0] < line[1]),
                "{seed} {span}"
            );
            let mut seen: Vec<u16> = table.word_lines.concat();
            seen.sort_unstable();
            assert!(
                seen.iter().map(|page| *page as u32).eq(0..pages),
                "{seed} {span} {pages}: each page once"
            );
            assert!(
                table.span() <= span as u32,
                "{seed} {span} {pages}: {}",
                table.span()
            );
            assert_eq!(
                (0..pages).filter(|page| table.is_msb(*page)).count() as u32,
                pages / 2
            );
            if (pages, span) == (64, 7) {
                tables.insert(table.word_lines.concat());
            }
        }
    }
    assert!(tables.len() > 295, "{} tables of 300 seeds", tables.len());
    let odd = PairTable::new(Pairing::Random { seed: 1, span: 7 }, 9);
    assert_eq!(
        odd.word_lines.iter().filter(|line| line.len() == 1).count(),
        1,
        "one page stands alone"
    );
}

/// The translation layer depends on this: the last threat is the last program that can destroy
/// a page.
#[test]
fn victims_and_threats_are_two_sides_of_one_table() {
    for rule in RULES {
        let table = PairTable::new(rule, 64);
        for page in 0..64 {
            let threats: Vec<u32> = (0..64)
                .filter(|other| table.victims(*other).any(|v| v == page))
                .collect();
            assert_eq!(
                table.last_threat(page),
                threats.last().copied(),
                "{rule:?} {page}"
            );
            assert!(
                threats
                    .iter()
                    .all(|threat| *threat > page && table.is_msb(*threat)),
                "{rule:?} {page}"
            );
        }
    }
}

#[test]
fn tables_start_and_end_as_in_the_data_sheets() {
    let dist3 = PairTable::new(Pairing::Dist3, 128);
    for (lsb, msb) in [(0, 2), (1, 4), (3, 6), (5, 8), (123, 126), (125, 127)] {
        assert_eq!(
            (
                dist3.last_threat(lsb),
                dist3.victims(msb).collect::<Vec<_>>()
            ),
            (Some(msb), vec![lsb])
        );
    }
    let shared4 = PairTable::new(Pairing::Shared4, 128);
    for (lsb, msb) in [(0, 4), (1, 5), (2, 8), (3, 9), (6, 12), (7, 13)] {
        assert_eq!(shared4.last_threat(lsb), Some(msb));
    }
    let group4 = PairTable::new(Pairing::Group4, 128);
    assert_eq!(group4.victims(4).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(group4.victims(5).collect::<Vec<_>>(), [0, 1, 4]);
    assert_eq!(
        [0, 1, 4, 5].map(|page| group4.last_threat(page)),
        [Some(5), Some(5), Some(5), None]
    );
    assert_eq!((dist3.span(), shared4.span(), group4.span()), (3, 6, 7));
}

#[test]
fn without_pairing_no_page_is_at_risk() {
    let slc = PairTable::new(Pairing::None, 64);
    assert!((0..64).all(|o| slc.victims(o).next().is_none()
        && slc.last_threat(o).is_none()
        && !slc.is_msb(o)));
    assert_eq!(slc.span(), 0);
}

/// Every rule of three and four bits: each page once, whole word lines but for the block's end, and
/// page types that count up along the line.
#[test]
fn long_word_lines_have_each_page_once_in_ascending_order_of_types() {
    for (name, bits, span) in [
        ("adjacent", 3, 2),
        ("staggered", 3, 8),
        ("adjacent", 4, 3),
        ("staggered", 4, 15),
    ] {
        let rule = Pairing::parse(name, bits).unwrap();
        for pages in [24, 40, 48, 64, 100, 384, 512, 576] {
            let table = PairTable::new(rule, pages);
            let mut seen: Vec<u16> = table.word_lines.concat();
            seen.sort_unstable();
            assert!(
                seen.iter().map(|page| *page as u32).eq(0..pages),
                "{name} {bits} {pages}: each page once"
            );
            for line in &table.word_lines {
                assert!(line.is_sorted_by(|a, b| a < b) && line.len() <= usize::from(bits));
                let types: Vec<usize> = line.iter().map(|p| table.page_type(*p as u32)).collect();
                assert!(types.into_iter().eq(0..line.len()), "{name} {line:?}");
            }
            let short = table
                .word_lines
                .iter()
                .filter(|line| line.len() < bits as usize);
            assert!(short.count() <= usize::from(bits), "{name} {bits} {pages}");
            // Small blocks have no line in the middle.
            assert!(table.span() <= span && (pages < 64 || table.span() == span));
            assert_eq!(table.victims_max(), u32::from(bits) - 1);
        }
    }
    let tlc = PairTable::new(Pairing::Staggered { bits: 3 }, 48);
    for line in [[0, 2, 5], [1, 4, 8], [3, 7, 11], [6, 10, 14]] {
        assert!(tlc.word_lines.contains(&line.to_vec()), "{line:?}");
        let [first, second, third] = line.map(u32::from);
        assert_eq!(tlc.victims(first).count(), 0);
        assert_eq!(tlc.victims(second).collect::<Vec<_>>(), [first]);
        assert_eq!(tlc.victims(third).collect::<Vec<_>>(), [first, second]);
        let threats = [first, second, third].map(|page| tlc.last_threat(page));
        assert_eq!(threats, [Some(third), Some(third), None]);
    }
    let qlc = PairTable::new(Pairing::Staggered { bits: 4 }, 64);
    assert!(qlc.word_lines.contains(&vec![0, 2, 5, 9]));
    assert!(qlc.word_lines.contains(&vec![1, 4, 8, 13]));
}

#[test]
fn the_staggered_rule_of_two_bits_is_dist3() {
    let lines = PairTable::staggered(2, 1, 128);
    let dist3 = PairTable::new(Pairing::Dist3, 128);
    assert_eq!(lines, dist3.word_lines);
}

#[test]
fn a_rule_is_found_by_its_name_and_its_bits() {
    for rule in RULES {
        assert_eq!(Pairing::parse(rule.name(), rule.bits()), Ok(rule));
    }
    assert_eq!(Pairing::parse("staggered", 2), Ok(Pairing::Dist3));
    for (name, bits) in [
        ("none", 2),
        ("dist3", 3),
        ("adjacent", 1),
        ("adjacent", 5),
        ("staggered", 1),
        ("random:1:0", 2),
        ("random:1:16", 2),
        ("random:x:3", 2),
        ("random:1:3", 3),
        ("table", 2),
    ] {
        assert!(Pairing::parse(name, bits).is_err(), "{name} {bits}");
    }
}
