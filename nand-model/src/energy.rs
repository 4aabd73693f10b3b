//! Energy of flash operations: the figures of a device, and the energy of counted operations.
//!
//! Definitions. The energy of an operation is its supply current times the supply voltage times the
//! array time, as in a data sheet. Every transfer over the bus is charged per byte, spare bytes
//! included. A short read senses as many cells as a read, and a program of spare bytes pulses as
//! many as a program; neither is charged a transfer, nor is a copyback. Idle time and read retries
//! are not charged.

use crate::convert::to_real;
use crate::counters::OpCounts;
use crate::geometry::Geometry;
use crate::invalid::{Invalid, ensure};

/// Energy of single operations, in picojoules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Energy {
    /// Sensing a page.
    pub read_pj: u64,
    /// Program of a page: the mean over the pages of a word line.
    pub program_pj: u64,
    /// Erase of a block.
    pub erase_pj: u64,
    /// Transfer of a byte over the bus.
    pub byte_pj: u64,
}

impl Energy {
    /// Largest energy of an operation, pJ: a joule, a thousand times that of an erase in data
    /// sheets.
    pub const MAX_PJ: u64 = 1_000_000_000_000;

    /// Checks that a part can have these figures.
    ///
    /// # Errors
    ///
    /// One human-readable line: the operation and its limit.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        for (name, pj) in [
            ("read", self.read_pj),
            ("program", self.program_pj),
            ("erase", self.erase_pj),
            ("transferred byte", self.byte_pj),
        ] {
            ensure(pj <= Energy::MAX_PJ, Invalid::Profile, || {
                format!("energy of {pj} pJ per {name}: need up to 1 J")
            })?;
        }
        Ok(())
    }

    /// Returns the energy of these operations in joules.
    pub fn joules(&self, counts: &OpCounts, geometry: &Geometry) -> f64 {
        let OpCounts {
            reads,
            partial_reads,
            programs,
            oob_programs,
            erases,
            copybacks,
        } = *counts;
        let page_bytes = u64::from(geometry.page_bytes + geometry.oob_bytes);
        let transfers = reads + programs - 2 * copybacks;
        let charges = [
            (reads + partial_reads, self.read_pj),
            (programs + oob_programs, self.program_pj),
            (erases, self.erase_pj),
            (transfers * page_bytes, self.byte_pj),
        ];
        let pj: f64 = charges
            .iter()
            .map(|(n, pj)| to_real(*n) * to_real(*pj))
            .sum();
        pj / 1e12
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    /// 33 mW (10 mA at 3.3 V) over 25, 300 and 2000 us, and over 30 ns per byte.
    const SHEET: Energy = Energy {
        read_pj: 825_000,
        program_pj: 9_900_000,
        erase_pj: 66_000_000,
        byte_pj: 990,
    };

    #[test]
    fn energy_is_the_sum_of_the_operations_and_of_the_bytes_transferred() {
        let geometry = Profile::find("slc-2k").unwrap().geometry;
        let of = |counts: OpCounts| SHEET.joules(&counts, &geometry) * 1e6;
        let close = |uj: f64, expected: f64| assert!((uj - expected).abs() < 1e-9, "{uj} uJ");
        let none = OpCounts::default();
        close(of(none), 0.0);
        // 2112 bytes of 0.99 nJ are 2.09088 uJ.
        close(of(OpCounts { reads: 1, ..none }), 0.825 + 2.09088);
        close(
            of(OpCounts {
                programs: 2,
                ..none
            }),
            2.0 * (9.9 + 2.09088),
        );
        close(of(OpCounts { erases: 3, ..none }), 198.0);
        let short = OpCounts {
            partial_reads: 2,
            oob_programs: 1,
            ..none
        };
        close(of(short), 2.0 * 0.825 + 9.9);
        let copyback = OpCounts {
            reads: 1,
            programs: 1,
            copybacks: 1,
            ..none
        };
        close(of(copyback), 0.825 + 9.9);
    }
}
