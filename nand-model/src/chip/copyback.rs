//! Copyback: moves a page inside its plane without a bus transfer.
//!
//! Invariant: the target is programmed as by [`Chip::program`], so a power cut has the outcomes of
//! a program's cut; the source does not change.

use super::device::Chip;
use super::read::Sense;
use crate::addr::{Pbn, Ppn};
use crate::cause::Cause;
use crate::error::{NandError, Part};
use crate::geometry::Geometry;
use crate::store::Store;
use crate::timing::{Clocks, Nanos};

impl<S: Store> Chip<S> {
    /// Moves a page inside one plane without a bus transfer. The chip reads the OOB, up to the
    /// length of `oob`, and passes it to `renew`; then it programs the updated OOB. `renew` returns
    /// false if this is not the expected page, which is an error. Counts one read and one program.
    ///
    /// Returns the instant at which the target page is programmed, in ns.
    ///
    /// # Errors
    ///
    /// - [`NandError::Uncorrectable`] of `from` if the source cannot be read or `renew` returned
    ///   false; nothing is programmed.
    /// - [`NandError::ProgramFailed`] of `to`: as for [`Chip::program`].
    /// - [`NandError::PowerLost`] while power is off, or if the fault plan cuts it in this program.
    /// - [`NandError::HostFull`] or [`NandError::Host`]: the host refused a read or write of the
    ///   image.
    ///
    /// # Panics
    ///
    /// If the pages are not in one plane, or the target breaks a rule that [`Chip::program`]
    /// checks.
    pub fn copyback(
        &mut self,
        at: Nanos,
        from: Ppn,
        to: Ppn,
        oob: &mut [u8],
        renew: impl FnOnce(&mut [u8]) -> bool,
        cause: Cause,
    ) -> Result<Nanos, NandError> {
        let source = self.check_page(from)?;
        let target = self.check_page(to)?;
        let domain = |b: Pbn, g: &Geometry| (g.die_of(b), b.raw() / g.dies() % g.planes);
        let geometry = self.profile.geometry;
        assert!(
            oob.len() <= geometry.oob_len(),
            "NAND rule: copyback of {} OOB bytes, a page has {}",
            oob.len(),
            geometry.oob_bytes
        );
        assert_eq!(
            domain(source, &geometry),
            domain(target, &geometry),
            "NAND rule: copyback leaves its plane"
        );
        let mut page = std::mem::take(&mut self.scratch);
        page.resize(geometry.page_len(), 0);
        let cell_ns = self.read_times_of(source).of(geometry.offset_of(from));
        self.counters.of_mut(cause).reads += 1;
        self.counters.read_busy_ns += cell_ns;
        let die = geometry.die_of(source);
        let sense = |clocks: &mut Clocks| clocks.sense(at, die, from, cell_ns);
        let sensed = self.clocks.run((at, die), cause, (cell_ns, 0), sense);
        let result = self
            .fetch(sensed, Sense::Page, from, &mut page, oob)
            .and_then(|sensed| {
                if !renew(oob) {
                    return Err(NandError::Uncorrectable {
                        ppn: from,
                        part: Part::Oob,
                    });
                }
                let bus_ns = self.clocks.set_bus_ns(0);
                let programmed = self.program(sensed, to, &page, oob, cause);
                self.clocks.set_bus_ns(bus_ns);
                self.counters.copybacks += u64::from(programmed.is_ok());
                self.counters.of_mut(cause).copybacks += u64::from(programmed.is_ok());
                programmed
            });
        self.scratch = page;
        result
    }
}
