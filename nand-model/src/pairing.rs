//! Which pages share a word line.
//!
//! On MLC the two bits of a cell belong to two pages, programmed at different times: LSB first, MSB
//! later. A power cut during the MSB program may destroy the LSB page although it was complete.
//! Every table here is a bijection between the LSB pages and the MSB pages of a block, for any even
//! number of pages (tested). The kernel's own tables are not bijections at the block's end.

use crate::convert::{index, to_u16, to_u32};
use crate::rng::SplitMix;

/// Rule that pairs the pages of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// One bit per cell: no page shares a word line.
    None,
    /// `(2k, 2k+1)`.
    Adjacent,
    /// Samsung K9GBG08U0A class, Toshiba TC58TEG5DCLTA00, Hynix 1x/2x nm: `(0,2) (1,4) (3,6) (5,8)
    /// … (P-2-1, P-2), (P-3, P-1)`.
    Dist3,
    /// [`Pairing::Dist3`] on pairs of pages (two planes of one die).
    Dist6,
    /// `(0,4) (1,5) (2,8) (3,9) (6,12) (7,13) …`: four pages per step, as on some Samsung and
    /// Micron parts.
    Shared4,
    /// Hynix H27UCG8T2 class: [`Pairing::Dist6`], but the two LSB and the two MSB pages of a step
    /// form one group: a cut in either MSB program may destroy all pages of the group.
    Group4,
    /// Each LSB page with a random later MSB page, for tests and for devices described by a file.
    Random {
        /// Chooses the table.
        seed: u16,
        /// Most pages between an LSB page and its MSB page: 1 to [`Pairing::SPAN_MAX`].
        span: u8,
    },
}

impl Pairing {
    /// The longest span of any table here: translation layers reserve blocks for it.
    pub const SPAN_MAX: u8 = 7;

    /// Name as in profiles and image headers.
    pub const fn name(self) -> &'static str {
        match self {
            Pairing::None => "none",
            Pairing::Adjacent => "adjacent",
            Pairing::Dist3 => "dist3",
            Pairing::Dist6 => "dist6",
            Pairing::Shared4 => "shared4",
            Pairing::Group4 => "group4",
            Pairing::Random { .. } => "random",
        }
    }
}

/// The pairing of one block, looked up by page offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTable {
    /// Pages of the word line of each page, ascending: LSB pages first, then as many MSB pages. A
    /// single page has no partner.
    word_lines: Vec<Vec<u16>>,
    /// Index into `word_lines`, by page.
    line_of: Vec<u16>,
    /// Last page of the word line, by page.
    last: Vec<u16>,
    span: u32,
}

impl PairTable {
    /// The table of `rule` for blocks of `pages` pages.
    pub fn new(rule: Pairing, pages: u32) -> Self {
        assert!(
            pages <= u32::from(u16::MAX),
            "a block of {pages} pages: page offsets have 16 bits"
        );
        let word_lines: Vec<Vec<u16>> = match rule {
            Pairing::None => (0..to_u16(pages)).map(|page| vec![page]).collect(),
            Pairing::Adjacent | Pairing::Dist3 => Self::pairs(rule, pages, 1),
            Pairing::Dist6 | Pairing::Shared4 | Pairing::Group4 => Self::pairs(rule, pages, 2),
            Pairing::Random { seed, span } => Self::random_pairs(seed, span, pages),
        };
        debug_assert_eq!(
            word_lines.iter().map(Vec::len).sum::<usize>(),
            index(pages),
            "each page is on one word line"
        );
        let (mut line_of, mut last) = (vec![0; index(pages)], vec![0; index(pages)]);
        for (number, line) in (0..).zip(&word_lines) {
            for page in line {
                line_of[usize::from(*page)] = number;
                last[usize::from(*page)] = line[line.len() - 1];
            }
        }
        let span = (0..)
            .zip(&last)
            .map(|(page, last)| u32::from(*last).saturating_sub(page))
            .max()
            .unwrap_or(0);
        assert!(
            span <= u32::from(Pairing::SPAN_MAX),
            "a pairing of span {span}, schemes count on {} at most",
            Pairing::SPAN_MAX
        );
        PairTable {
            word_lines,
            line_of,
            last,
            span,
        }
    }

    /// Gives the first page without a partner a random free page within the span, until all pages
    /// have one. A free page always exists: no earlier page reaches the end of a later page's span,
    /// and enough pages are free at the block's end.
    fn random_pairs(seed: u16, span: u8, pages: u32) -> Vec<Vec<u16>> {
        assert!(
            (1..=Pairing::SPAN_MAX).contains(&span),
            "a pairing of span {span}"
        );
        let mut rng = SplitMix::new(u64::from(seed));
        let mut free = vec![true; index(pages)];
        let mut lines = Vec::new();
        for lsb in 0..pages {
            if !free[index(lsb)] {
                continue;
            }
            let last = (pages - 1).min(lsb + u32::from(span));
            let choice: Vec<u32> = (lsb + 1..=last).filter(|page| free[index(*page)]).collect();
            let mut line = vec![to_u16(lsb)];
            if !choice.is_empty() {
                let msb = choice[rng.index(choice.len())];
                free[index(msb)] = false;
                line.push(to_u16(msb));
            }
            lines.push(line);
        }
        lines
    }

    /// Word lines where `step` pages form one group; pages left over at the block's end have no
    /// partner.
    fn pairs(rule: Pairing, pages: u32, step: u32) -> Vec<Vec<u16>> {
        let spread = |group: u32| (group * step..(group + 1) * step).map(to_u16);
        let groups = Self::group_pairs(rule, pages / step);
        let mut lines: Vec<Vec<u16>> = Vec::new();
        for (lsb, msb) in groups {
            if rule == Pairing::Group4 {
                lines.push(spread(lsb).chain(spread(msb)).collect());
            } else {
                lines.extend(
                    spread(lsb)
                        .zip(spread(msb))
                        .map(|(lsb, msb)| vec![lsb, msb]),
                );
            }
        }
        let paired: u32 = lines.iter().map(|line| to_u32(line.len())).sum();
        lines.extend((paired..pages).map(|page| vec![to_u16(page)]));
        lines
    }

    /// `(LSB, MSB)` groups: adjacent, or a group's MSB three steps after its LSB with the ends of
    /// the block closed up.
    fn group_pairs(rule: Pairing, groups: u32) -> Vec<(u32, u32)> {
        let even = groups & !1;
        if rule == Pairing::Adjacent || even < 4 {
            return (0..even).step_by(2).map(|k| (k, k + 1)).collect();
        }
        let mut pairs = vec![(0, 2)];
        pairs.extend((1..even - 3).step_by(2).map(|lsb| (lsb, lsb + 3)));
        pairs.push((even - 3, even - 1));
        pairs
    }

    fn line(&self, offset: u32) -> &[u16] {
        &self.word_lines[usize::from(self.line_of[index(offset)])]
    }

    /// Whether `offset` is programmed into cells that already hold an LSB page.
    #[inline]
    pub fn is_msb(&self, offset: u32) -> bool {
        let line = self.line(offset);
        line.len() > 1 && line[line.len() / 2..].contains(&to_u16(offset))
    }

    /// The earlier pages that an interrupted program of `offset` may destroy: none unless it is an
    /// MSB page.
    #[inline]
    pub fn victims(&self, offset: u32) -> impl Iterator<Item = u32> + '_ {
        let line = if self.is_msb(offset) {
            self.line(offset)
        } else {
            &[]
        };
        line.iter()
            .map(|page| u32::from(*page))
            .take_while(move |page| *page < offset)
    }

    /// The last page whose program may still destroy `offset`: the page is safe once that one is
    /// programmed.
    #[inline]
    pub fn last_threat(&self, offset: u32) -> Option<u32> {
        let last = u32::from(self.last[index(offset)]);
        (last > offset).then_some(last)
    }

    /// The largest distance between a page and its last threat: how far back from the frontier an
    /// unsafe page can lie.
    #[inline]
    pub fn span(&self) -> u32 {
        self.span
    }
}

#[cfg(test)]
mod tests {
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
}
