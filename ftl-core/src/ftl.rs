//! The contract between a volume and a scheme.
//!
//! Durability (docs/DURABILITY.md): a verb that returned has everything it acknowledged in the
//! store; after [`Ftl::flush`] returned and the store was synced, it survives any power cut. A page
//! is the unit of atomicity: after a cut it reads as its old or one of its newer contents, whole.

use crate::addr::Lpn;
use crate::error::FtlError;
use crate::events::EventLog;
use crate::stats::{BlockView, RamReport, SchemeStats};
use nand_model::{Chip, Nanos, Pbn, Store};

/// A flash translation layer over a chip whose bytes live in `S`. One caller at a time; every verb
/// takes the instant it may start and returns the instant it is done, in emulated time.
pub trait Ftl<S: Store>: Send {
    /// Name of the scheme, as in the table.
    fn scheme(&self) -> &'static str;

    /// Pages the host sees.
    fn logical_pages(&self) -> u32;

    /// Reads consecutive pages; `out` is a whole number of pages. Unmapped pages read as zeros.
    ///
    /// # Errors
    /// [`FtlError::MediaLost`] where a page that holds data cannot be read; [`FtlError::Host`]
    /// where the host cannot read the image; [`FtlError::PowerLost`].
    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError>;

    /// Writes consecutive pages; `data` is a whole number of pages. On an error a prefix of the
    /// pages may have been written.
    ///
    /// # Errors
    /// [`FtlError::ReadOnly`]; [`FtlError::HostFull`] and [`FtlError::Host`] where the image cannot
    /// be written; [`FtlError::MediaLost`] where a part of the map cannot be read;
    /// [`FtlError::PowerLost`].
    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError>;

    /// Makes `count` pages read as zeros. Also serves write-zeroes: space is never promised to an
    /// address.
    ///
    /// # Errors
    /// As [`Ftl::write`].
    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError>;

    /// Makes everything acknowledged so far survive a power cut of the flash. The store's own sync
    /// is the volume's business.
    ///
    /// # Errors
    /// As [`Ftl::write`], but a read-only device flushes. What failed is not durable.
    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError>;

    /// Does background work (collection ahead of need, wear levelling) of about `budget` flash
    /// operations. Returns whether there is more to do.
    ///
    /// # Errors
    /// As [`Ftl::write`].
    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError>;

    /// Flushes and writes a checkpoint, so that the next mount need not scan.
    ///
    /// # Errors
    /// As [`Ftl::write`]. The device can be mounted all the same.
    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError>;

    /// Whether the page holds data (as opposed to reading as zeros because nothing was written, or
    /// it was trimmed).
    ///
    /// # Errors
    /// [`FtlError::MediaLost`] where a part of the map cannot be read.
    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError>;

    /// Counters and gauges; cheap, takes nothing from the flash.
    fn stats(&self) -> SchemeStats;

    /// What a block is used for, and how much of it; cheap, takes nothing from the flash.
    fn block(&self, block: Pbn) -> BlockView;

    /// What was done beside the host's requests.
    fn events(&self) -> &EventLog;

    /// RAM of the scheme's tables, as its paper counts it and as it really is.
    fn ram_report(&self) -> RamReport;

    /// Compares every table with the chip. Returns what is wrong, one line each; empty when nothing
    /// is.
    ///
    /// # Errors
    /// [`FtlError::PowerLost`], or [`FtlError::Host`] where the host cannot read the image.
    fn check(&mut self) -> Result<Vec<String>, FtlError>;

    /// The chip below.
    fn chip(&self) -> &Chip<S>;

    /// The chip below, for fault plans and the store's own needs.
    fn chip_mut(&mut self) -> &mut Chip<S>;

    /// Drops all state in RAM, as a power cut does, and gives the chip back.
    fn into_chip(self: Box<Self>) -> Chip<S>;
}

/// Whether a device is laid out anew or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Every block is erased; nothing is on the device.
    Format,
    /// Find what an earlier run left, also after a power cut.
    Mount,
}
