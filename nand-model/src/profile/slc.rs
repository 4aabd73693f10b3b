//! Blocks in SLC mode: the region of a part with several bits per cell whose blocks keep one.
//!
//! The first blocks of every die form the region: block `b` is on die `b mod dies`, so they are the
//! blocks below [`Profile::slc_blocks`]. Profile and number of blocks determine the mode of every
//! block; it never changes. Such a block has the pages from 0 to [`Profile::slc_pages`], and none
//! of them shares a word line.

use super::device::Profile;
use crate::addr::Pbn;
use crate::invalid::{Invalid, ensure};
use crate::timing::Nanos;

/// Shares are in hundredths of a percent.
const WHOLE: u32 = 10_000;
/// Largest share of a region: half of the blocks.
const SHARE_MAX: u32 = WHOLE / 2;
/// Fewest pages of a block in SLC mode.
const PAGES_MIN: u32 = 2;
const HOUR_NS: Nanos = 3_600_000_000_000;

/// A region of blocks in SLC mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlcRegion {
    /// Share of the blocks, in hundredths of a percent: 1 to 5,000. [`Profile::slc_blocks`] rounds
    /// up to whole blocks of every die.
    pub share: u32,
    /// Read of a page, in ns.
    pub read_ns: Nanos,
    /// Program of a page, in ns.
    pub program_ns: Nanos,
    /// Rated program/erase cycles of a block.
    pub endurance: u32,
}

impl SlcRegion {
    /// A region of this share, in hundredths of a percent, on a part whose sheet has no figures of
    /// SLC mode. Read and program take 25 and 300 us, as on the SLC part Micron MT29F2G08 and in
    /// HP's table of cell types (*Differences between SLC, MLC and TLC NAND*), but no longer than
    /// the first page of the part's word lines. A block lasts ten times the part's cycles: Swissbit
    /// (2023) has 30,000 for TLC in SLC mode and 3,000 else.
    pub fn typical(profile: &Profile, share: u32) -> Self {
        SlcRegion {
            share,
            read_ns: profile.timing.read_ns[0].min(25_000),
            program_ns: profile.timing.program_ns[0].min(300_000),
            endurance: profile.endurance.saturating_mul(10),
        }
    }

    /// The share in percent.
    pub fn percent(&self) -> f64 {
        f64::from(self.share) / 100.0
    }
}

impl Profile {
    /// Blocks in SLC mode: those with lower numbers. 0 without a region.
    pub fn slc_blocks(&self) -> u32 {
        let Some(region) = self.slc else { return 0 };
        let (blocks, dies) = (self.geometry.blocks, u64::from(self.geometry.dies().max(1)));
        let share = u64::from(blocks) * u64::from(region.share);
        let of_region = share.div_ceil(u64::from(WHOLE)).next_multiple_of(dies);
        u32::try_from(of_region).unwrap_or(blocks).min(blocks)
    }

    /// Pages of a block in SLC mode.
    pub fn slc_pages(&self) -> u32 {
        self.geometry.pages_per_block / u32::from(self.bits())
    }

    /// Bytes of all blocks in SLC mode.
    pub fn slc_bytes(&self) -> u64 {
        let pages = u64::from(self.slc_blocks()) * u64::from(self.slc_pages());
        pages * u64::from(self.geometry.page_bytes)
    }

    /// Whether the block is in SLC mode.
    pub fn is_slc(&self, block: Pbn) -> bool {
        block.raw() < self.slc_blocks()
    }

    /// Rated cycles of a block.
    pub(crate) fn endurance_of(&self, is_slc: bool) -> u32 {
        let region = self.slc.filter(|_| is_slc);
        region.map_or(self.endurance, |region| region.endurance)
    }

    /// Good blocks in SLC mode, and other good blocks, `bad` of all being bad. Which blocks are bad
    /// is not known here; the region gets its proportional share.
    pub fn good_blocks(&self, bad: u32) -> (u32, u32) {
        let (blocks, of_region) = (self.geometry.blocks, self.slc_blocks());
        let share = u64::from(bad) * u64::from(of_region) / u64::from(blocks.max(1));
        let bad_slc = u32::try_from(share).unwrap_or(bad).min(bad);
        let others = (blocks - of_region).saturating_sub(bad - bad_slc);
        (of_region - bad_slc, others)
    }

    /// Pages that these good blocks can take.
    pub fn good_pages(&self, bad: u32) -> u64 {
        let (of_region, others) = self.good_blocks(bad);
        u64::from(of_region) * u64::from(self.slc_pages())
            + u64::from(others) * u64::from(self.geometry.pages_per_block)
    }

    /// Checks that the part can have its region.
    pub(super) fn check_slc(&self) -> Result<(), Invalid> {
        let Some(region) = self.slc else {
            return Ok(());
        };
        ensure(self.is_mlc(), Invalid::Profile, || {
            "an SLC region on a part of 1 bit per cell: all its blocks are in SLC mode; leave the \
             region out"
                .into()
        })?;
        let share = region.share;
        ensure((1..=SHARE_MAX).contains(&share), Invalid::Profile, || {
            format!(
                "an SLC region of {} % of the blocks, need 0.01 to {} %",
                region.percent(),
                SHARE_MAX / 100
            )
        })?;
        let (pages, bits) = (self.slc_pages(), self.bits());
        ensure(pages >= PAGES_MIN, Invalid::Profile, || {
            format!(
                "an SLC region of blocks of {} pages, {bits} bits per cell: need {} pages",
                self.geometry.pages_per_block,
                PAGES_MIN * u32::from(bits)
            )
        })?;
        let times = [region.read_ns, region.program_ns];
        ensure(
            times.iter().all(|ns| *ns <= HOUR_NS),
            Invalid::Profile,
            || "an operation of more than an hour in SLC mode".into(),
        )?;
        ensure(region.endurance > 0, Invalid::Profile, || {
            "an endurance of 0 cycles in SLC mode".into()
        })?;
        let (blocks, of_region) = (self.geometry.blocks, self.slc_blocks());
        ensure(blocks == 0 || of_region < blocks, Invalid::Profile, || {
            format!(
                "an SLC region of {of_region} blocks, one at least on each of {} dies, leaves none \
                 of {blocks}",
                self.geometry.dies()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlc(blocks: u32, share: u32) -> Profile {
        let mut tlc = Profile::find("tlc-16k").unwrap().with_blocks(blocks);
        tlc.geometry.ways = 4;
        tlc.slc = Some(SlcRegion::typical(&tlc, share));
        tlc
    }

    #[test]
    fn the_region_has_the_first_blocks_of_every_die() {
        let part = tlc(1000, 500);
        part.validate().unwrap();
        assert_eq!((part.slc_blocks(), part.slc_pages()), (52, 128));
        let of_die = |die| (0..1000).filter(move |b| b % 4 == die && part.is_slc(Pbn::new(*b)));
        assert!((0..4).all(|die| of_die(die).eq((die..52).step_by(4))));
        assert_eq!(part.good_pages(0), 52 * 128 + 948 * 384);
        assert_eq!(part.good_pages(20), 51 * 128 + 929 * 384);
        let none = Profile { slc: None, ..part };
        assert_eq!((none.slc_blocks(), none.good_pages(20)), (0, 980 * 384));
    }

    #[test]
    fn impossible_regions_are_refused_with_the_reason() {
        let refused = |part: Profile, reason: &str| {
            let text = part.validate().unwrap_err().to_string();
            assert!(text.contains(reason), "{text}, not {reason}");
        };
        let slc = Profile::find("slc-2k").unwrap();
        let region = Some(SlcRegion::typical(slc, 500));
        refused(
            Profile {
                slc: region,
                ..*slc
            },
            "1 bit per cell",
        );
        refused(tlc(1000, 0), "of 0 % of the blocks");
        refused(tlc(1000, 5001), "of 50.01 % of the blocks");
        refused(tlc(4, 1), "leaves none of 4");
        let mut still = tlc(1000, 500);
        still.slc.as_mut().unwrap().endurance = 0;
        refused(still, "0 cycles in SLC mode");
    }
}
