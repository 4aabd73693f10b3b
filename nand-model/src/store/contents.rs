//! Contents of a store: health of pages, facts of blocks, cells and their tags.

use crate::addr::Ppn;
use crate::rng::SplitMix;
use crc32c::crc32c;

/// What of a page can be read; stands in for the ECC of a real chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// Everything.
    #[default]
    Good,
    /// The OOB is readable, the data is not.
    DataLost,
    /// The data is readable, the OOB is not.
    OobLost,
    /// Nothing.
    Lost,
    /// Everything is readable this many more times; then nothing is.
    Unstable(u8),
    /// Everything or nothing, at random at every read. The number determines the sequence of reads,
    /// so that a run repeats.
    Flickering(u8),
}

impl Health {
    /// Whether the data part can be read now.
    #[inline]
    pub fn data_ok(self) -> bool {
        matches!(self, Health::Good | Health::OobLost | Health::Unstable(1..))
            || self.flickers_well()
    }

    /// Whether the OOB part can be read now.
    #[inline]
    pub fn oob_ok(self) -> bool {
        matches!(
            self,
            Health::Good | Health::DataLost | Health::Unstable(1..)
        ) || self.flickers_well()
    }

    #[inline]
    fn flickers_well(self) -> bool {
        matches!(self, Health::Flickering(number) if SplitMix::new(u64::from(number)).one_in(2))
    }

    /// The page's health after a read, if it changes.
    pub(super) fn after_read(self) -> Option<Health> {
        match self {
            Health::Unstable(left @ 1..) => Some(Health::Unstable(left - 1)),
            Health::Flickering(number) => Some(Health::Flickering(number.wrapping_add(1))),
            _ => None,
        }
    }
}

/// Reason why a block must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Marked by the manufacturer; the block never held data.
    Factory,
    /// A program failed; the pages before it stay readable.
    FailedProgram,
    /// An erase failed; the pages stay readable.
    FailedErase,
}

/// Persistent facts of one block, besides its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// Started erases, completed or not.
    pub erase_count: u32,
    /// Whether the block is bad.
    pub bad: Option<Bad>,
    /// The last erase was interrupted although the block looks blank: pages programmed now will not
    /// hold their data.
    pub erase_interrupted: bool,
    /// Hour of the device's emulated time at which the first page since the last erase was
    /// programmed; before that, the hour of the erase.
    pub since: u32,
    /// Counted page reads since the last erase; the count may be too low.
    pub reads: u32,
}

impl BlockFacts {
    /// Whether programs of the block's pages hold their data.
    #[inline]
    pub(crate) fn takes_programs(&self) -> bool {
        self.bad.is_none() && !self.erase_interrupted
    }
}

/// Contents of one page's cells, whether they belong to this page or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The page's data.
    pub data: Vec<u8>,
    /// The whole OOB.
    pub oob: Vec<u8>,
    /// The tag with which the page was programmed; [`Health::Lost`] pages have a tag of no page.
    pub tag: u32,
}

/// Tag of unreadable cells; no page has it.
pub(super) const TAG_NONE: u32 = 0;

/// Returns the tag of a page in a life of its block. It is a CRC: two pages of one life, or two
/// lives of one page, never share a tag; any other two share one with probability 2⁻³².
#[inline]
pub(super) fn tag_of(ppn: Ppn, life: u64) -> u32 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&ppn.raw().to_le_bytes());
    bytes[4..].copy_from_slice(&life.to_le_bytes());
    match crc32c(&bytes) {
        TAG_NONE => u32::MAX,
        tag => tag,
    }
}
