//! Emulated time: dies and buses are resources with a busy-until; an operation takes the instant it may start and returns the
//! instant it is done.

use crate::geometry::Geometry;
use crate::pairing::PairTable;
use crate::profile::Timing;

/// An instant or a span of emulated time, in nanoseconds.
pub type Nanos = u64;

/// When each die and each bus is free again.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    timing: Timing,
    dies: Vec<Nanos>,
    buses: Vec<Nanos>,
    ways: usize,
}

impl Clocks {
    pub(crate) fn new(geometry: &Geometry, timing: Timing) -> Self {
        let (dies, buses) = (vec![0; geometry.dies() as usize], vec![0; geometry.channels as usize]);
        Clocks { timing, dies, buses, ways: geometry.ways as usize }
    }

    /// Sets the price of a bus transfer, returns the old one: a copyback pays none.
    pub(crate) fn set_bus_ns(&mut self, bus_ns: Nanos) -> Nanos {
        std::mem::replace(&mut self.timing.bus_ns, bus_ns)
    }

    /// Cell time of a program at this page offset.
    #[inline]
    pub(crate) fn program_ns(&self, pairs: &PairTable, offset: u32) -> Nanos {
        if pairs.lsb_of(offset).is_some() { self.timing.program_msb_ns } else { self.timing.program_ns }
    }

    /// A die works for `cell_ns`, nothing crosses the bus.
    #[inline]
    pub(crate) fn work(&mut self, at: Nanos, die: u32, cell_ns: Nanos) -> Nanos {
        let busy = &mut self.dies[die as usize];
        *busy = at.max(*busy) + cell_ns;
        *busy
    }

    /// Cells first, then the page crosses the bus.
    #[inline]
    pub(crate) fn read(&mut self, at: Nanos, die: u32, cell_ns: Nanos) -> Nanos {
        let sensed = self.work(at, die, cell_ns);
        self.transfer(sensed, die)
    }

    /// The page crosses the bus, then the cells.
    #[inline]
    pub(crate) fn program(&mut self, at: Nanos, die: u32, cell_ns: Nanos) -> Nanos {
        let loaded = self.transfer(at, die);
        self.work(loaded, die, cell_ns)
    }

    #[inline]
    fn transfer(&mut self, at: Nanos, die: u32) -> Nanos {
        if self.timing.bus_ns == 0 {
            return at;
        }
        let bus = &mut self.buses[die as usize / self.ways];
        *bus = at.max(*bus) + self.timing.bus_ns;
        *bus
    }
}
