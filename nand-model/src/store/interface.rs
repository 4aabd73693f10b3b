//! Interface of all stores.

use super::contents::{BlockFacts, Cells, Health};
use super::file::{PageReader, Pin, PlacedRun};
use crate::addr::{Pbn, Ppn};
use std::any::Any;
use std::io;

/// Storage of pages and block facts. Runs never cross a block; `first` and the run's length are
/// within one.
pub trait Store: Any + Send {
    /// Calls `each` once per block, in ascending order, with its facts and the program count of
    /// each of its pages since the last erase (0 = erased).
    ///
    /// # Errors
    ///
    /// The host's, if it cannot read the image; `each` may have been called for some blocks.
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()>;

    /// Reads `health.len()` programmed pages from `first` on. `data` is empty or has room for that
    /// many pages; `oobs` is empty or has that many equal slices, each at most the OOB size. Every
    /// element of `health` is set, whatever its old value.
    ///
    /// # Errors
    ///
    /// The host's, if it cannot read the pages or record the read of an unstable one; the contents
    /// of the buffers are then undefined. An uncorrectable page is not an error: `health` reports
    /// it.
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

    /// Prepares for a read of the OOBs of all blocks.
    fn expect_scan(&self) {}

    /// Returns a reader of placed pages, for any thread; `None` if only the store itself can read.
    fn reader(&self) -> Option<PageReader> {
        None
    }

    /// Keeps the places that [`Store::place`] names from now on until the pin is dropped; `None` if
    /// the store has no reader.
    fn pin(&self) -> Option<Pin> {
        None
    }

    /// Returns the place of a run of programmed pages of one block, for [`Store::reader`]; `None`
    /// if the store itself has to read it.
    fn place(&self, _first: Ppn, _count: u32) -> Option<PlacedRun> {
        None
    }

    /// Programs `count` pages from `first` on. `oobs` holds `count` equal slices; OOB bytes beyond
    /// them read as 0xFF. On an error none of the pages counts as programmed.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a write: ENOSPC and EDQUOT when its file system is full, EIO after
    /// a failed sync.
    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()>;

    /// Begins a batch: a store may keep consecutive programs of one block in memory and write them
    /// together, at the latest when the batch ends. Batches nest.
    fn begin_batch(&mut self) {}

    /// Ends a batch; nothing stays unwritten after the outermost one.
    ///
    /// # Errors
    ///
    /// As [`Store::program`]. Programs of the batch are then not in the image, but are read like
    /// others, and the next operation writes them first.
    fn end_batch(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Programs one page with its health; otherwise like [`Store::program`]. A host crash keeps
    /// both or neither.
    ///
    /// # Errors
    ///
    /// As [`Store::program`].
    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()>;

    /// Records the effect of the interrupted program of `by` on programmed pages of its block. A
    /// host crash that undoes that program also undoes this effect.
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
    /// host crash may lose or keep this change independently of others: its content is a hint.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a read or a write; the OOB then has its old or its new bits.
    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()>;

    /// Records the health of a programmed page; ignores a blank page.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a read or a write; the health stays what it was.
    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()>;

    /// Erases the block's pages and records its facts. The bad mark does not change: bad blocks are
    /// not erased.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a write or the sync that frees space; the block then does not
    /// change.
    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()>;

    /// Records facts that changed without an erase.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a write; the facts then do not change.
    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()>;

    /// The tag that a program of this page would get now; `None` if the store has no tags.
    fn tag(&self, _ppn: Ppn) -> Option<u32> {
        None
    }

    /// Contents of a page's cells, whether they belong to it or not; `None` while they are blank.
    /// For silent faults.
    ///
    /// # Errors
    ///
    /// The host's, if it cannot read the page; [`io::ErrorKind::Unsupported`] for a store without
    /// tags.
    fn cells(&mut self, _ppn: Ppn) -> io::Result<Option<Cells>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Programs cells with any tag. A page that is programmed already becomes [`Health::Lost`]; its
    /// bytes stay. For silent faults.
    ///
    /// # Errors
    ///
    /// The host's, if it refuses a read or a write; [`io::ErrorKind::Unsupported`] for a store
    /// without tags.
    fn put_cells(&mut self, _ppn: Ppn, _cells: &Cells) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Hours of emulated time since the device was created.
    fn hour(&self) -> u32 {
        0
    }

    /// Records the device's hour. A crash may lose it; [`BlockFacts::since`] stays a lower bound.
    fn set_hour(&mut self, _hour: u32) {}

    /// Whether a page's data can be read back; otherwise only its first OOB bytes can.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Leaves data of pages for the next owner of a store that keeps none. Other stores do nothing.
    fn leave_data(&mut self, _pages: Vec<(Ppn, Box<[u8]>)>) {}

    /// Takes the data that the last owner left.
    fn take_data(&mut self) -> Vec<(Ppn, Box<[u8]>)> {
        Vec::new()
    }

    /// Erases allowed before a sync is needed; `u32::MAX` if erasing needs none.
    fn erase_credit(&self) -> u32 {
        u32::MAX
    }

    /// The credit after a sync, at least, whatever the state of the blocks.
    fn erase_credit_full(&self) -> u32 {
        u32::MAX
    }

    /// Releases space of at most `max` slots to the host's file system: free slots, and erased
    /// blocks other than the latest, which the next erases and programs will use. For idle time;
    /// returns the number of released slots.
    ///
    /// # Errors
    ///
    /// The host's, if it cannot release space; EIO after a failed sync. Slots released before the
    /// error stay released, and the store stays usable.
    fn trim_free_slots(&mut self, _max: usize) -> io::Result<usize> {
        Ok(0)
    }
}
