//! Where a chip's bytes live. A store keeps bytes and judges nothing: the law, faults and time are
//! the chip's.
//!
//! Every programmed page carries a *tag* beside its bytes: one number made of its address and of
//! the present life of its block, given by the store when the page is programmed and compared when
//! it is read. A page whose tag is not that of its place and life reads as
//! [`Health::Lost`]: it was programmed for another page, or before an erase that never took place.
//!
//! What always holds: a page is programmed at most once between two erases of its block, except for
//! [`Store::and_oob`]; the chip has checked that before it calls. Only injected faults break it: a
//! page that is programmed twice is [`Health::Lost`] and belongs to nobody.

mod file;
mod mem;
mod oob_only;

pub use file::{Access, FileStore, OpenReport, SyncError, SyncHandle, SyncStats, peek};
#[cfg(any(test, feature = "sim"))]
pub use file::{Crash, End, Freeze, ReadFault, SimDisk, SyncFault, WriteFault};
pub use mem::{Change, MemStore};
pub use oob_only::OobOnlyStore;

use crate::addr::{Pbn, Ppn};
use crate::rng::SplitMix;
use crc32c::crc32c;
use std::io;

/// What can still be read of a page; stands for the ECC of a real part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// Everything.
    #[default]
    Good,
    /// The OOB, not the data.
    DataLost,
    /// The data, not the OOB.
    OobLost,
    /// Nothing.
    Lost,
    /// Everything, this many more times; then nothing.
    Unstable(u8),
    /// Everything or nothing, at random at every read. The number says which reads come next, so
    /// that a run repeats.
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

    /// The health that a read of the page leaves, if it is another.
    fn after_read(self) -> Option<Health> {
        match self {
            Health::Unstable(left @ 1..) => Some(Health::Unstable(left - 1)),
            Health::Flickering(number) => Some(Health::Flickering(number.wrapping_add(1))),
            _ => None,
        }
    }
}

/// Why a block must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Marked by the manufacturer; never held data.
    Factory,
    /// A program or erase failed; pages programmed before stay readable.
    Grown,
}

/// What outlives a power cut about one block, beside its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// Completed or begun erases.
    pub erase_count: u32,
    /// Whether the block is bad.
    pub bad: Option<Bad>,
    /// The last erase was interrupted although the block looks blank: what is programmed now will
    /// not hold.
    pub weak: bool,
    /// Hour of the device's emulated time at which the first page since the last erase was
    /// programmed; of the erase, while there is none.
    pub since: u32,
    /// Page reads since the last erase, as far as they were counted.
    pub reads: u32,
}

/// What the cells of one page hold, whether it belongs there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The page's data.
    pub data: Vec<u8>,
    /// The whole OOB.
    pub oob: Vec<u8>,
    /// The tag it was programmed with; of a page that is [`Health::Lost`], no page's.
    pub tag: u32,
}

/// Tag of cells that cannot be read: no page's.
const NOBODY: u32 = 0;

/// The tag of a page in a life of its block. A CRC: two pages of one life, or two lives of one
/// page, never share one; any other two do by a chance of 2⁻³².
#[inline]
fn tag_of(ppn: Ppn, life: u64) -> u32 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&ppn.raw().to_le_bytes());
    bytes[4..].copy_from_slice(&life.to_le_bytes());
    match crc32c(&bytes) {
        NOBODY => u32::MAX,
        tag => tag,
    }
}

/// Keeper of bytes. Runs never cross a block; `first` and the run's length are within one.
pub trait Store: Send + 'static {
    /// Calls `each` once per block, ascending, with its facts and how often each of its pages was
    /// programmed since the last erase (0 = erased).
    ///
    /// # Errors
    ///
    /// The host's, if it cannot read what the store holds; `each` may have seen some blocks.
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()>;

    /// Reads `health.len()` programmed pages from `first` on. `data` is empty or holds that many
    /// pages; `oobs` is empty or holds that many equal slices, each at most the OOB size. Every
    /// element of `health` is set, whatever it was before.
    ///
    /// # Errors
    ///
    /// The host's, if it cannot read the pages or write down that an unstable one was read; the
    /// buffers then hold anything. A page that cannot be corrected is no error: `health` tells.
    fn read(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()>;

    /// Reads programmed pages of one block, ascending; the buffers are as in [`Store::read`].
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    fn read_pages(
        &mut self,
        pages: &[Ppn],
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        assert_eq!(health.len(), pages.len(), "a health for each page");
        let (page, part) = (data.len() / pages.len(), oobs.len() / pages.len());
        let mut done = 0;
        for run in pages.chunk_by(|a, b| a.raw() + 1 == b.raw()) {
            let range = |size: usize| done * size..(done + run.len()) * size;
            self.read(
                run[0],
                &mut data[range(page)],
                &mut oobs[range(part)],
                &mut health[range(1)],
            )?;
            done += run.len();
        }
        Ok(())
    }

    /// Keeps `count` pages from `first` on. `oobs` holds `count` equal slices; OOB bytes beyond
    /// them read as 0xFF. On an error none of the pages counts as programmed.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a write: ENOSPC and EDQUOT when it is full, EIO after a failed
    /// sync.
    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()>;

    /// Keeps one page with its health; the rest is as in [`Store::program`]. A host crash keeps
    /// both or neither.
    ///
    /// # Errors
    ///
    /// As [`Store::program`].
    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()>;

    /// Records what the interrupted program of `by` did to programmed pages of its block. A host
    /// crash that undoes that program undoes this, too.
    ///
    /// # Errors
    ///
    /// As [`Store::set_health`]; pages before the one that failed are recorded.
    fn spoil(&mut self, _by: Ppn, pages: &[(Ppn, Health)]) -> io::Result<()> {
        pages
            .iter()
            .try_for_each(|(ppn, health)| self.set_health(*ppn, *health))
    }

    /// Clears those OOB bits of a programmed page that are 0 in `oob`; blank cells stay blank. A
    /// host crash may lose or keep this on its own: what it says is a hint.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a read or a write; the OOB then has its old or its new bits.
    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()>;

    /// Records what can still be read of a programmed page; of a page that holds nothing there is
    /// nothing to record.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a read or a write; the health stays what it was.
    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()>;

    /// Forgets the block's pages and records its facts. Whether it is bad does not change: bad
    /// blocks are not erased.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a write or the sync that makes room; the block then stays as it
    /// was.
    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()>;

    /// Records facts that changed without an erase.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a write; the facts then stay what they were.
    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()>;

    /// The tag that a program of this page would give it now; `None` where no tags are kept.
    fn tag(&self, _ppn: Ppn) -> Option<u32> {
        None
    }

    /// What the cells of a page hold, belonging there or not; `None` while they are blank. For
    /// faults that the part keeps to itself.
    ///
    /// # Errors
    ///
    /// The host's, if it cannot read the page; [`io::ErrorKind::Unsupported`] of a store without
    /// tags.
    fn cells(&mut self, _ppn: Ppn) -> io::Result<Option<Cells>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Programs cells with a tag of any origin. A page that is programmed already is
    /// [`Health::Lost`] from then on; its bytes stay. For faults that the part keeps to itself.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a read or a write; [`io::ErrorKind::Unsupported`] of a store
    /// without tags.
    fn put_cells(&mut self, _ppn: Ppn, _cells: &Cells) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Hours of emulated time that passed for the device until now.
    fn hour(&self) -> u32 {
        0
    }

    /// Notes the device's hour. A crash may lose it; what [`BlockFacts::since`] says stays a lower
    /// bound.
    fn set_hour(&mut self, _hour: u32) {}

    /// Whether a page's data can be read back; else only its first OOB bytes can.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Erases that can be taken before a sync is needed; `u32::MAX` where erasing needs none.
    fn erase_credit(&self) -> u32 {
        u32::MAX
    }

    /// The credit that a sync is sure to restore, whatever the blocks hold.
    fn erase_credit_full(&self) -> u32 {
        u32::MAX
    }
}
