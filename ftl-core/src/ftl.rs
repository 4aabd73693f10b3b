//! The interface between a volume and a scheme.
//!
//! Durability (docs/DURABILITY.md): when a verb returns, everything it acknowledged is in the
//! store. After [`Ftl::flush`] returned and the store was synced, that data survives any power cut.
//! A page is the unit of atomicity: after a cut it reads as its old or one of its newer contents,
//! whole.

use crate::addr::Lpn;
use crate::error::FtlError;
use crate::events::EventLog;
use crate::flash::DeferredRead;
use crate::stats::{BlockView, Lookups, RamReport, SchemeStats, StreamView};
use nand_model::{Chip, Nanos, Pbn, Ppn};

/// A flash translation layer over a chip. One caller at a time. Every verb takes its earliest start
/// time and returns its completion time, in emulated time.
pub trait Ftl: Send {
    /// Returns the scheme's name, as in the table.
    fn scheme(&self) -> &'static str;

    /// Returns the number of pages visible to the host.
    fn logical_pages(&self) -> u32;

    /// Reads consecutive pages; `out` is a whole number of pages. Unmapped pages read as zeros.
    ///
    /// # Errors
    /// [`FtlError::MediaLost`] if a page that holds data is unreadable; [`FtlError::Host`] if the
    /// host cannot read the image; [`FtlError::PowerLost`].
    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError>;

    /// Reads like [`Ftl::read`], but may leave pages of `out` to [`DeferredRead::finish`], which
    /// needs no scheme. Begin `deferred` before, with the pages of this call; time and counters are
    /// those of a read.
    ///
    /// # Errors
    /// As [`Ftl::read`]; a page that cannot be read may also be left to the second half.
    fn read_deferred(
        &mut self,
        at: Nanos,
        first: Lpn,
        out: &mut [u8],
        _deferred: &mut DeferredRead,
    ) -> Result<Nanos, FtlError> {
        self.read(at, first, out)
    }

    /// Sets the hint of the next writes, such as the number of a write stream. Policies of other
    /// crates read it; nothing else depends on it.
    fn set_write_hint(&mut self, _hint: u64) {}

    /// Writes consecutive pages; `data` is a whole number of pages. On an error a prefix of the
    /// pages may have been written.
    ///
    /// # Errors
    /// [`FtlError::ReadOnly`]; [`FtlError::HostFull`] and [`FtlError::Host`] if the image cannot be
    /// written; [`FtlError::MediaLost`] if a part of the map is unreadable;
    /// [`FtlError::PowerLost`].
    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError>;

    /// Begins a batch of verbs that are acknowledged together: consecutive programs of a block are
    /// written to the store as one. Batches nest; no result depends on them.
    fn begin_batch(&mut self) {
        self.chip_mut().begin_batch();
    }

    /// Ends a batch. No verb of the outermost one may be acknowledged before.
    ///
    /// # Errors
    /// [`FtlError::HostFull`] and [`FtlError::Host`] if the image cannot be written; the verbs have
    /// had their effect, but none is in the image for certain.
    fn end_batch(&mut self) -> Result<(), FtlError> {
        Ok(self.chip_mut().end_batch()?)
    }

    /// Makes `count` pages read as zeros. Also serves write-zeroes: no scheme reserves space for an
    /// address.
    ///
    /// # Errors
    /// As [`Ftl::write`].
    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError>;

    /// Makes everything acknowledged so far survive a power cut of the flash. The volume syncs the
    /// store.
    ///
    /// # Errors
    /// As [`Ftl::write`], but a read-only device flushes. On an error, the data is not durable.
    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError>;

    /// Does background work (idle GC, refresh, scrub) of about `budget` flash operations. Returns
    /// whether work remains.
    ///
    /// # Errors
    /// As [`Ftl::write`].
    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError>;

    /// Flushes and writes a checkpoint, which shortens the next mount.
    ///
    /// # Errors
    /// As [`Ftl::write`]. The device can still be mounted.
    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError>;

    /// Returns whether the page holds data. A page that was never written, or was trimmed, reads as
    /// zeros.
    ///
    /// # Errors
    /// [`FtlError::MediaLost`] if a part of the map is unreadable.
    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError>;

    /// Returns counters and gauges; cheap, does not access flash.
    fn stats(&self) -> SchemeStats;

    /// Returns the mapping lookups for pages read, of [`Ftl::stats`]; cheaper.
    fn lookups_read(&self) -> Lookups {
        self.stats().lookups_read
    }

    /// Returns use and valid pages of a block; cheap, does not access flash.
    fn block(&self, block: Pbn) -> BlockView;

    /// Returns whether a flash page is counted among the valid ones of its block: it has the newest
    /// content of a logical page, or is still needed until the map on flash has changed. Cheap,
    /// does not access flash.
    fn is_valid(&self, page: Ppn) -> bool;

    /// Returns the log of background operations.
    fn events(&self) -> &EventLog;

    /// Returns the programs of every stream.
    fn streams(&self) -> &[StreamView];

    /// Returns the RAM of the scheme's tables, by the paper's count and as allocated.
    fn ram_report(&self) -> RamReport;

    /// Compares every table with the chip. Returns one line per error, empty if there is none.
    ///
    /// # Errors
    /// [`FtlError::PowerLost`], or [`FtlError::Host`] if the host cannot read the image.
    fn check(&mut self) -> Result<Vec<String>, FtlError>;

    /// Returns the chip.
    fn chip(&self) -> &Chip;

    /// Returns the chip, for fault plans and access to the store.
    fn chip_mut(&mut self) -> &mut Chip;

    /// Drops all state in RAM, as a power cut does, and returns the chip.
    fn into_chip(self: Box<Self>) -> Chip;
}

/// How a device starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Format: every block is erased; the device is empty.
    Format,
    /// Mount: rebuild the tables from flash, also after a power cut.
    Mount,
}
