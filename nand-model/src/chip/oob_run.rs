//! Reads of the OOBs of a run of pages. A mount reads those of whole blocks.

use super::device::Chip;
use super::read::Sense;
use crate::addr::Ppn;
use crate::cause::Cause;
use crate::convert::to_u32;
use crate::error::NandError;
use crate::store::{Health, Store};
use crate::timing::{Clocks, Nanos};

impl<S: Store> Chip<S> {
    /// Reads the OOBs of `health.len()` pages of one block with one store access; times, counts and
    /// results equal those of [`Chip::read_oob`] of each page, one after the other. Pages that
    /// cannot be read are reported in `health` instead of as an error; erased pages read as all
    /// ones. `oobs` holds an equal slice for each page.
    ///
    /// # Errors
    ///
    /// [`NandError::PowerLost`], [`NandError::Host`] or [`NandError::HostFull`] as for
    /// [`Chip::read`]; the contents of the buffers are then undefined.
    ///
    /// # Panics
    ///
    /// If the run is empty or leaves its block.
    pub fn read_oobs(
        &mut self,
        at: Nanos,
        first: Ppn,
        oobs: &mut [u8],
        health: &mut [Health],
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let block = self.check_page(first)?;
        assert!(!health.is_empty(), "NAND rule: an empty run");
        let (count, geometry) = (to_u32(health.len()), self.profile.geometry);
        assert!(
            geometry.offset_of(first) + count <= geometry.pages_per_block,
            "NAND rule: a run leaves its block"
        );
        let oob_bytes = oobs.len() / health.len();
        let pages = first.run(count);
        let cell_ns = self.short_read_ns_of(block);
        self.counters.of_mut(cause).partial_reads += u64::from(count);
        self.counters.read_busy_ns += cell_ns * u64::from(count);
        let die = geometry.die_of(block);
        let is_whole = pages.clone().all(|ppn| self.is_programmed(ppn));
        if is_whole && !self.read_faults {
            self.store.read(first, &mut [], oobs, health)?;
            let done = pages.clone().fold(at, |at, ppn| {
                let sense = |clocks: &mut Clocks| clocks.sense(at, die, ppn, cell_ns);
                self.clocks.run((at, die), cause, (cell_ns, 0), sense)
            });
            return self.conclude(done, Sense::Short, block, pages, &mut [], oobs, health);
        }
        // Page by page: an effect of a fault depends on the reads before it.
        let mut done = at;
        for ((ppn, oob), health) in pages.zip(oobs.chunks_exact_mut(oob_bytes)).zip(health) {
            let sense = |clocks: &mut Clocks| clocks.sense(done, die, ppn, cell_ns);
            done = self.clocks.run((done, die), cause, (cell_ns, 0), sense);
            let mut found = [self.fetch_health(ppn, &mut [], oob)?];
            let page = std::iter::once(ppn);
            done = self.conclude(done, Sense::Short, block, page, &mut [], oob, &mut found)?;
            [*health] = found;
        }
        Ok(done)
    }
}
