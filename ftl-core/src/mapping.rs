//! The interface of a scheme's map to the controller.

use crate::addr::Lpn;
use crate::error::FtlError;
use crate::gc::GarbageCollect;
use crate::stats::{RamEntry, RamPart, RamReport, SchemeStats};
use nand_model::{Geometry, Pbn};

/// A scheme's map. Before other calls of a request, the controller calls [`Mapping::begin`] and
/// rejects the request if a read-only device cannot serve it.
pub(crate) trait Mapping: GarbageCollect {
    /// Returns the name in the table of schemes.
    fn name(&self) -> &'static str;

    /// Starts a request.
    fn begin(&mut self) {}

    /// Reads consecutive pages into `out`.
    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError>;

    /// Writes consecutive pages.
    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError>;

    /// Makes `count` pages read as zeros.
    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError>;

    /// Makes all acknowledged writes survive a power cut of the flash.
    fn make_durable(&mut self) -> Result<(), FtlError>;

    /// Programs pages that are only in RAM, before the device stops.
    fn empty_buffers(&mut self) -> Result<(), FtlError> {
        Ok(())
    }

    /// Writes the state that makes the next mount fast. Everything is safe and the device is not
    /// read-only.
    fn shut_down(&mut self) -> Result<(), FtlError>;

    /// Rebuilds the tables from flash.
    fn mount(&mut self) -> Result<(), FtlError>;

    /// Returns whether the page holds data.
    fn is_mapped(&self, lpn: Lpn) -> bool;

    /// Returns the steps in RAM of the host's mapping lookups so far, in schemes that count them.
    fn lookup_steps(&self) -> u64 {
        0
    }

    /// Returns `common` with the map's own counters added.
    fn gauges(&self, common: SchemeStats) -> SchemeStats;

    /// Returns the RAM of the map; the controller adds the parts that all schemes share.
    fn ram(&self) -> RamReport;

    /// Returns whether GC must be able to select this full block. Some families have blocks that
    /// they empty in other ways.
    fn needs_gc(&self, _block: Pbn) -> bool {
        true
    }

    /// Compares the map with the chip; appends one line per error.
    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError>;
}

/// Returns an error if there are at least as many logical pages as flash pages.
pub(crate) fn check_size(geometry: &Geometry, logical_pages: u32) -> Result<(), FtlError> {
    if (u64::from(logical_pages)) < geometry.pages() {
        return Ok(());
    }
    let text = "more logical pages than physical pages";
    Err(FtlError::Config(text.into()))
}

/// Builds a line of a RAM report: entries, bytes by the paper's count, allocated bytes, and the
/// maximum that they become.
pub(crate) fn ram_entry(part: RamPart, entries: u64, paper: u64, real: u64, most: u64) -> RamEntry {
    RamEntry {
        part,
        entries,
        paper_bytes: paper,
        allocated_bytes: real,
        most_bytes: most.max(real),
    }
}
