//! Pairings given word line by word line.

use super::rule::{BITS_MAX, Pairing};
use crate::convert::{index, to_u8, to_u16, to_u32};
use crate::intern;
use crate::invalid::{Invalid, ensure};

/// Maximum pages of a block whose word lines are given one by one: an image stores half a byte for
/// each in its header.
pub(crate) const TABLE_PAGES_MAX: u32 = 2048;

impl Pairing {
    /// The pairing of these word lines: each a list of the block's pages that share cells, in the
    /// order in which they are programmed. A line has up to `bits` pages, or a multiple of `bits`
    /// if several word lines form one group.
    ///
    /// # Errors
    ///
    /// One human-readable line: a page is missing, twice there or out of order, or too far from its
    /// partners.
    pub fn from_word_lines(bits: u8, lines: &[Vec<u32>]) -> Result<Pairing, Invalid> {
        let pages = lines.iter().map(Vec::len).sum::<usize>();
        ensure(pages <= index(TABLE_PAGES_MAX), Invalid::Pairing, || {
            format!(
                "word lines of {pages} pages, an image keeps up to {TABLE_PAGES_MAX}; use a pairing by name"
            )
        })?;
        let pages = to_u32(pages);
        let mut back = vec![None; index(pages)];
        for line in lines {
            let mut earlier = None;
            for page in line.iter().copied() {
                let entry = back.get_mut(index(page)).ok_or_else(|| {
                    Invalid::Pairing(format!(
                        "word line {line:?}: page {page}, the lines have {pages} pages in all"
                    ))
                })?;
                ensure(entry.is_none(), Invalid::Pairing, || {
                    format!("page {page} is on two word lines")
                })?;
                let ascends = earlier.is_none_or(|earlier| earlier < page);
                ensure(ascends, Invalid::Pairing, || {
                    format!("word line {line:?}: its pages do not ascend")
                })?;
                let distance = page - earlier.unwrap_or(page);
                check_distance(distance, line)?;
                *entry = Some(to_u8(distance));
                earlier = Some(page);
            }
        }
        let back: Option<Vec<u8>> = back.into_iter().collect();
        Pairing::from_back(bits, &back.expect("as many pages as places, none twice"))
    }

    /// The pairing of a table as [`Pairing::Table`] has it.
    ///
    /// # Errors
    ///
    /// As [`Pairing::from_word_lines`].
    pub(crate) fn from_back(bits: u8, back: &[u8]) -> Result<Pairing, Invalid> {
        check(bits, back, to_u32(back.len()))?;
        let back = intern::bytes(back);
        Ok(Pairing::Table { bits, back })
    }
}

fn check_distance(pages: u32, line: &[u32]) -> Result<(), Invalid> {
    let most = Pairing::SPAN_MAX;
    ensure(pages <= u32::from(most), Invalid::Pairing, || {
        format!("word line {line:?}: its pages lie more than {most} pages apart")
    })
}

/// See [`Pairing::check`].
pub(super) fn check(bits: u8, back: &[u8], pages: u32) -> Result<(), Invalid> {
    let bits = usize::from(bits);
    ensure((1..=BITS_MAX).contains(&bits), Invalid::Pairing, || {
        format!("{bits} bits per cell, need 1 to {BITS_MAX}")
    })?;
    let given = back.len();
    let fits = pages <= TABLE_PAGES_MAX && given == index(pages);
    ensure(fits, Invalid::Pairing, || {
        format!(
            "word lines of {given} pages, a block has {pages}; an image keeps up to {TABLE_PAGES_MAX}"
        )
    })?;
    let lines = lines_of(back)?;
    for line in &lines {
        let pages = line.len();
        ensure(
            pages <= bits || pages.is_multiple_of(bits),
            Invalid::Pairing,
            || format!("word line {line:?}: {pages} pages, need up to {bits} or a multiple of it"),
        )?;
        check_distance(line[pages - 1] - line[0], line)?;
    }
    let shared = bits == 1 || lines.iter().any(|line| line.len() > 1);
    ensure(shared, Invalid::Pairing, || {
        format!("no word line has the pages of {bits} bits per cell")
    })
}

/// The word lines of a table that was checked.
pub(super) fn word_lines(back: &[u8]) -> Vec<Vec<u16>> {
    let lines = lines_of(back).expect("a checked table");
    let narrow = |line: Vec<u32>| line.into_iter().map(to_u16).collect();
    lines.into_iter().map(narrow).collect()
}

/// Follows each page to the earlier one of its word line.
fn lines_of(back: &[u8]) -> Result<Vec<Vec<u32>>, Invalid> {
    let mut lines: Vec<Vec<u32>> = Vec::new();
    let mut line_of = Vec::with_capacity(back.len());
    for (page, distance) in (0u32..).zip(back) {
        if *distance == 0 {
            line_of.push(lines.len());
            lines.push(vec![page]);
            continue;
        }
        let earlier = page.checked_sub(u32::from(*distance)).ok_or_else(|| {
            Invalid::Pairing(format!("page {page} has a partner before the block"))
        })?;
        let line = line_of[index(earlier)];
        let members: &mut Vec<u32> = &mut lines[line];
        ensure(members.last() == Some(&earlier), Invalid::Pairing, || {
            format!("page {earlier} has two next pages on its word line")
        })?;
        members.push(page);
        line_of.push(line);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairing::PairTable;

    fn lines(table: &PairTable) -> Vec<Vec<u32>> {
        let wide = |line: &Vec<u16>| line.iter().map(|page| u32::from(*page)).collect();
        table.word_lines().iter().map(wide).collect()
    }

    #[test]
    fn every_rule_as_a_table_is_the_same_pairing() {
        for (name, bits) in [
            ("adjacent", 2),
            ("dist3", 2),
            ("dist6", 2),
            ("shared4", 2),
            ("group4", 2),
            ("random:7:5", 2),
            ("adjacent", 3),
            ("staggered", 3),
            ("adjacent", 4),
            ("staggered", 4),
        ] {
            let rule = Pairing::parse(name, bits).unwrap();
            for pages in [24, 48, 64, 576] {
                let by_rule = PairTable::new(rule, pages);
                let table = Pairing::from_word_lines(bits, &lines(&by_rule)).unwrap();
                assert_eq!(table.bits(), bits);
                assert_eq!(table.check(pages), Ok(()));
                let by_table = PairTable::new(table, pages);
                for page in 0..pages {
                    let facts = |pairs: &PairTable| {
                        (
                            pairs.page_type(page),
                            pairs.last_threat(page),
                            pairs.victims(page).collect::<Vec<_>>(),
                        )
                    };
                    assert_eq!(facts(&by_rule), facts(&by_table), "{name} {bits} {page}");
                }
                assert_eq!(by_rule.span(), by_table.span());
            }
        }
    }

    #[test]
    fn word_lines_that_are_no_bijection_are_refused_with_the_reason() {
        let refused = |bits: u8, lines: &[&[u32]], part: &str| {
            let lines: Vec<Vec<u32>> = lines.iter().map(|line| line.to_vec()).collect();
            let reason = Pairing::from_word_lines(bits, &lines)
                .unwrap_err()
                .to_string();
            assert!(reason.contains(part), "{reason}, not {part}");
        };
        refused(2, &[&[0, 2], &[1, 2]], "page 2 is on two word lines");
        refused(2, &[&[0, 2], &[1, 4]], "page 4, the lines have 4 pages");
        refused(2, &[&[2, 0], &[1, 3]], "do not ascend");
        refused(2, &[&[0, 1, 2], &[3]], "3 pages, need up to 2");
        refused(5, &[&[0, 1]], "need 1 to 4");
        refused(2, &[&[0], &[1]], "no word line");
        let far: Vec<Vec<u32>> = std::iter::once(vec![0, 17])
            .chain((1..17).map(|page| vec![page]))
            .collect();
        let reason = Pairing::from_word_lines(2, &far).unwrap_err().to_string();
        assert!(reason.contains("more than 15 pages apart"), "{reason}");
        // Tables as a damaged image may have them.
        assert!(check(2, &[1, 0], 2).is_err());
        assert!(check(2, &[0, 1, 2], 3).is_err());
        assert!(check(2, &[0, 1], 4).is_err());
    }
}
