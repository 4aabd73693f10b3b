//! Which pages share a word line.
//!
//! The bits of a cell belong to as many pages, programmed at different times: LSB first. A power
//! cut during the program of a later page may destroy the earlier pages of its word line although
//! they were complete. Every table here has each page of a block once (tested); those of two bits
//! per cell have as many LSB as MSB pages for any even number of pages. The kernel's own tables are
//! not bijections at the block's end.

use super::word_lines;
use crate::convert::{index, to_u8, to_u16, to_u32};
use crate::invalid::{Invalid, ensure};
use crate::rng::SplitMix;

/// Maximum bits per cell of any part: the pages of a word line.
pub(crate) const BITS_MAX: usize = 4;

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
    /// Each LSB page with a random later MSB page, for tests.
    Random {
        /// Chooses the table.
        seed: u16,
        /// Maximum pages between an LSB page and its MSB page: 1 to 15.
        span: u8,
    },
    /// The pages of a word line follow each other: `(0,1,2) (3,4,5) …`, as in 3D parts that finish
    /// a word line before the next.
    AdjacentOf {
        /// Bits per cell: 3 or 4; [`Pairing::Adjacent`] is that of 2.
        bits: u8,
    },
    /// Word line k gets its first page when line k-1 gets its second and line k-2 its third, as in
    /// planar parts, where it limits the interference of neighbouring lines: with three bits
    /// `(0,2,5) (1,4,8) (3,7,11) …`. [`Pairing::Dist3`] is that of 2 bits.
    Staggered {
        /// Bits per cell: 3 or 4.
        bits: u8,
    },
    /// The word lines of a device described by a file: [`Pairing::from_word_lines`].
    Table {
        /// Bits per cell.
        bits: u8,
        /// Per page of a block: how many pages back the earlier page of its word line is; 0 if it
        /// is the first.
        back: &'static [u8],
    },
}

impl Pairing {
    /// The longest span of any table here: the distance between the first and the last page of a
    /// word line. Translation layers keep the numbers of as many programs.
    pub(crate) const SPAN_MAX: u8 = 15;

    /// The rules whose name is the whole rule. Those with a number of bits are parsed apart.
    const NAMED: [(&'static str, Pairing); 6] = [
        ("none", Pairing::None),
        ("adjacent", Pairing::Adjacent),
        ("dist3", Pairing::Dist3),
        ("dist6", Pairing::Dist6),
        ("shared4", Pairing::Shared4),
        ("group4", Pairing::Group4),
    ];

    /// Every name that [`Pairing::parse`] knows.
    pub const NAMES: [&'static str; 8] = [
        "none",
        "adjacent",
        "staggered",
        "dist3",
        "dist6",
        "shared4",
        "group4",
        "random:SEED:SPAN",
    ];

    /// Name of the rule; with [`Pairing::bits`] it names one rule.
    pub const fn name(self) -> &'static str {
        match self {
            Pairing::None => "none",
            Pairing::Adjacent | Pairing::AdjacentOf { .. } => "adjacent",
            Pairing::Dist3 => "dist3",
            Pairing::Dist6 => "dist6",
            Pairing::Shared4 => "shared4",
            Pairing::Group4 => "group4",
            Pairing::Random { .. } => "random",
            Pairing::Staggered { .. } => "staggered",
            Pairing::Table { .. } => "table",
        }
    }

    /// Bits per cell.
    pub const fn bits(self) -> u8 {
        match self {
            Pairing::None => 1,
            Pairing::Adjacent
            | Pairing::Dist3
            | Pairing::Dist6
            | Pairing::Shared4
            | Pairing::Group4
            | Pairing::Random { .. } => 2,
            Pairing::AdjacentOf { bits }
            | Pairing::Staggered { bits }
            | Pairing::Table { bits, .. } => bits,
        }
    }

    /// The rule of this name for cells of `bits` bits; `random:SEED:SPAN` is a random one.
    ///
    /// # Errors
    ///
    /// The name is unknown, or its rule is not for as many bits.
    pub fn parse(name: &str, bits: u8) -> Result<Pairing, Invalid> {
        let rule = match (name, bits) {
            ("adjacent", 3 | 4) => Pairing::AdjacentOf { bits },
            ("staggered", 2) => Pairing::Dist3,
            ("staggered", _) => Pairing::Staggered { bits },
            _ => match Pairing::NAMED.iter().find(|(known, _)| *known == name) {
                Some((_, rule)) => *rule,
                None => Pairing::parse_random(name)?,
            },
        };
        let fits = !matches!(rule, Pairing::Staggered { bits: 0 | 1 | 5.. }) && rule.bits() == bits;
        let of = match rule.name() {
            "none" => "is for 1 bit per cell",
            "adjacent" | "staggered" => "is for 2 to 4 bits per cell",
            _ => "is for 2 bits per cell",
        };
        ensure(fits, Invalid::Pairing, || {
            format!("pairing {name:?} {of}, not {bits}")
        })?;
        Ok(rule)
    }

    fn parse_random(name: &str) -> Result<Pairing, Invalid> {
        let number = |text: &str| text.parse::<u16>().ok();
        let given = name
            .strip_prefix("random:")
            .and_then(|rest| rest.split_once(':'))
            .and_then(|(seed, span)| Some((number(seed)?, number(span)?)));
        match given {
            Some((seed, span)) if (1..=u16::from(Pairing::SPAN_MAX)).contains(&span) => {
                Ok(Pairing::Random {
                    seed,
                    span: to_u8(u32::from(span)),
                })
            }
            _ => Err(Invalid::Pairing(format!("no pairing {name:?}"))),
        }
    }

    /// Checks that blocks of `pages` pages can have this pairing, as [`PairTable::new`] asserts.
    ///
    /// # Errors
    ///
    /// One human-readable line.
    pub(crate) fn check(self, pages: u32) -> Result<(), Invalid> {
        let rule = self.name();
        match self {
            Pairing::Table { bits, back } => word_lines::check(bits, back, pages),
            Pairing::Random { span, .. } => {
                let most = Pairing::SPAN_MAX;
                ensure((1..=most).contains(&span), Invalid::Pairing, || {
                    format!("pairing {rule}: span {span}, need 1 to {most}")
                })
            }
            Pairing::AdjacentOf { bits } | Pairing::Staggered { bits } => {
                let fits = (3..=BITS_MAX).contains(&usize::from(bits));
                ensure(fits, Invalid::Pairing, || {
                    format!("pairing {rule}: {bits} bits per cell, need 2 to 4")
                })
            }
            _ => Ok(()),
        }
    }
}

/// The pairing of one block, looked up by page offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTable {
    /// Pages of each word line, ascending: LSB pages first, then as many of each further type. A
    /// short line at the block's end has the first types only.
    word_lines: Vec<Vec<u16>>,
    bits: usize,
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
            Pairing::AdjacentOf { bits } => Self::staggered(bits, 0, pages),
            Pairing::Staggered { bits } => Self::staggered(bits, 1, pages),
            Pairing::Table { back, .. } => word_lines::word_lines(back),
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
            bits: usize::from(rule.bits()),
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

    /// Word lines of `bits` pages. In round k, line k gets its first page, line `k - lag` its
    /// second and so on; lines before the first and after the last are left out.
    fn staggered(bits: u8, lag: u32, pages: u32) -> Vec<Vec<u16>> {
        let lines = pages.div_ceil(u32::from(bits));
        let mut word_lines = vec![Vec::new(); index(lines)];
        let rounds = 0..lines + lag * u32::from(bits - 1);
        let in_order = rounds.flat_map(|round| {
            (0..u32::from(bits))
                .filter_map(move |bit| round.checked_sub(lag * bit))
                .filter(|line| *line < lines)
        });
        for (page, line) in (0..to_u16(pages)).zip(in_order) {
            word_lines[index(line)].push(page);
        }
        word_lines
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

    /// Type of the page among those of its word line: 0 is LSB, the next is programmed next.
    pub fn page_type(&self, offset: u32) -> usize {
        let line = self.line(offset);
        let at = line
            .iter()
            .position(|page| u32::from(*page) == offset)
            .expect("a page is on its word line");
        if line.len() > self.bits {
            at * self.bits / line.len()
        } else {
            at
        }
    }

    /// Whether `offset` is programmed into cells that already hold an earlier page.
    #[inline]
    pub(crate) fn is_msb(&self, offset: u32) -> bool {
        self.page_type(offset) > 0
    }

    /// Pages of the word lines, for a file that describes the device.
    pub fn word_lines(&self) -> &[Vec<u16>] {
        &self.word_lines
    }

    /// The most earlier pages that one interrupted program may destroy.
    pub fn victims_max(&self) -> u32 {
        (0..to_u32(self.line_of.len()))
            .map(|page| to_u32(self.victims(page).count()))
            .max()
            .unwrap_or(0)
    }

    /// The earlier pages that an interrupted program of `offset` may destroy: none if it is an LSB
    /// page.
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
mod tests;
