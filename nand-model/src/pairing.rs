//! Which pages share a word line.
//!
//! On MLC the two bits of a cell belong to two pages, programmed at different times: LSB first, MSB later. A power cut during
//! the MSB program may destroy the LSB page although it was complete. Every table here is a bijection between the LSB pages and
//! the MSB pages of a block, for any even number of pages (tested), which the kernel's own tables are not at the block's end.

/// Rule that pairs the pages of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// One bit per cell: no page shares a word line.
    None,
    /// `(2k, 2k+1)`.
    Adjacent,
    /// Samsung K9GBG08U0A class, Toshiba TC58TEG5DCLTA00, Hynix 1x/2x nm: `(0,2) (1,4) (3,6) (5,8) … (P-2-1, P-2), (P-3, P-1)`.
    Dist3,
    /// [`Pairing::Dist3`] on pairs of pages (two planes of one die).
    Dist6,
    /// `(0,4) (1,5) (2,8) (3,9) (6,12) (7,13) …`: four pages per step, as on some Samsung and Micron parts.
    Shared4,
}

impl Pairing {
    /// Name as in profiles and image headers.
    pub const fn name(self) -> &'static str {
        match self {
            Pairing::None => "none",
            Pairing::Adjacent => "adjacent",
            Pairing::Dist3 => "dist3",
            Pairing::Dist6 => "dist6",
            Pairing::Shared4 => "shared4",
        }
    }
}

/// The pairing of one block, looked up by page offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTable {
    /// Partner of each page; a page that shares no word line is its own partner.
    partner: Vec<u16>,
}

impl PairTable {
    /// The table of `rule` for blocks of `pages` pages.
    pub fn new(rule: Pairing, pages: u32) -> Self {
        let mut partner: Vec<u16> = (0..pages as u16).collect();
        let group = match rule {
            Pairing::None => return PairTable { partner },
            Pairing::Dist6 | Pairing::Shared4 => 2,
            Pairing::Adjacent | Pairing::Dist3 => 1,
        };
        // Work on groups of pages that move together, then spread a group's pair over its pages.
        let groups = pages / group;
        for (lsb, msb) in Self::group_pairs(rule, groups) {
            for i in 0..group {
                let (lsb, msb) = (lsb * group + i, msb * group + i);
                partner[lsb as usize] = msb as u16;
                partner[msb as usize] = lsb as u16;
            }
        }
        PairTable { partner }
    }

    /// `(LSB, MSB)` groups: adjacent, or a group's MSB three steps after its LSB with the ends of the block closed up.
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

    /// The LSB page that an interrupted program of `offset` may destroy, if `offset` is an MSB page.
    #[inline]
    pub fn lsb_of(&self, offset: u32) -> Option<u32> {
        let partner = self.partner[offset as usize] as u32;
        (partner < offset).then_some(partner)
    }

    /// The MSB page whose program may still destroy `offset`, if `offset` is an LSB page.
    #[inline]
    pub fn msb_of(&self, offset: u32) -> Option<u32> {
        let partner = self.partner[offset as usize] as u32;
        (partner > offset).then_some(partner)
    }

    /// The largest distance between two partners: how far back from the frontier an unsafe page can lie.
    pub fn span(&self) -> u32 {
        (0..).zip(&self.partner).map(|(o, &p)| (p as u32).saturating_sub(o)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Pairing; 4] = [Pairing::Adjacent, Pairing::Dist3, Pairing::Dist6, Pairing::Shared4];

    #[test]
    fn every_table_is_a_bijection_of_lsb_onto_later_msb_pages() {
        for rule in RULES {
            for pages in [4, 8, 16, 32, 64, 128, 256] {
                let table = PairTable::new(rule, pages);
                let mut lsb = 0;
                for offset in 0..pages {
                    match (table.msb_of(offset), table.lsb_of(offset)) {
                        (Some(msb), None) => {
                            assert_eq!(table.lsb_of(msb), Some(offset), "{rule:?} {pages}");
                            lsb += 1;
                        }
                        (None, Some(lsb)) => assert_eq!(table.msb_of(lsb), Some(offset), "{rule:?} {pages}"),
                        other => panic!("{rule:?} {pages}: page {offset} is {other:?}"),
                    }
                }
                assert_eq!(lsb, pages / 2, "{rule:?} {pages}");
            }
        }
    }

    #[test]
    fn tables_start_and_end_as_in_the_data_sheets() {
        let dist3 = PairTable::new(Pairing::Dist3, 128);
        for (lsb, msb) in [(0, 2), (1, 4), (3, 6), (5, 8), (123, 126), (125, 127)] {
            assert_eq!(dist3.msb_of(lsb), Some(msb));
        }
        let shared4 = PairTable::new(Pairing::Shared4, 128);
        for (lsb, msb) in [(0, 4), (1, 5), (2, 8), (3, 9), (6, 12), (7, 13)] {
            assert_eq!(shared4.msb_of(lsb), Some(msb));
        }
        assert_eq!((dist3.span(), shared4.span()), (3, 6));
    }

    #[test]
    fn without_pairing_no_page_is_at_risk() {
        let slc = PairTable::new(Pairing::None, 64);
        assert!((0..64).all(|o| slc.lsb_of(o).is_none() && slc.msb_of(o).is_none()));
        assert_eq!(slc.span(), 0);
    }
}
