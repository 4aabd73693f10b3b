//! Emulated time. Dies and buses are resources with a busy-until instant; an operation takes its
//! earliest start and returns the instant it is done.

mod occupancy;
mod planes;
mod schedule;

use crate::addr::Ppn;
use crate::cause::Cause;
use crate::convert::index;
use crate::geometry::{Geometry, MultiPlane};
use crate::pairing::PairTable;
use crate::profile::{Cache, PageTimes, Suspend, Timing};
pub use occupancy::TimeSplit;
use occupancy::{Free, Occupancy};
use planes::Planes;
pub use schedule::Nanos;
use schedule::Schedule;

/// Busy-until instants of all dies and buses.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    timing: Timing,
    dies: Vec<Die>,
    buses: Vec<Nanos>,
    /// Takes the place of the instants if the device suspends anything.
    schedule: Option<Schedule>,
    /// Takes their place if the device has multi-plane or cache commands; excludes a schedule.
    planes: Option<Planes>,
    /// History of the dies and buses, if the time of requests is to be explained.
    occupancy: Option<Box<Occupancy>>,
}

/// Busy-until instant of a die, and its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Die {
    busy: Nanos,
    bus: u32,
}

impl Clocks {
    pub(crate) fn new(geometry: &Geometry, timing: Timing) -> Self {
        assert!(geometry.dies() > 0, "a device without dies");
        let dies: Vec<_> = (0..geometry.dies())
            .map(|die| Die {
                busy: 0,
                bus: die / geometry.ways,
            })
            .collect();
        let buses = index(geometry.channels);
        let schedule = (timing.suspend != Suspend::NONE)
            .then(|| Schedule::new(timing.suspend, dies.len(), buses));
        let joins = geometry.multi_plane != MultiPlane::Off;
        let planes =
            (joins || timing.cache != Cache::NONE).then(|| Planes::new(geometry, timing.cache));
        Clocks {
            timing,
            dies,
            buses: vec![0; buses],
            schedule,
            planes,
            occupancy: None,
        }
    }

    /// From now on remembers what the dies and buses do. A device that suspends operations has no
    /// such memory: a read there starts before work that was issued earlier. Nor has one with
    /// multi-plane or cache commands, whose operations share their time.
    pub(crate) fn keep_occupancy(&mut self) {
        if self.schedule.is_none() && self.planes.is_none() {
            let occupancy = Occupancy::new(self.dies.len(), self.buses.len());
            self.occupancy = Some(Box::new(occupancy));
        }
    }

    /// Begins a request at this instant, not before the last one.
    pub(crate) fn begin_request(&mut self, at: Nanos) {
        if let Some(occupancy) = &mut self.occupancy {
            occupancy.begin(at);
        }
    }

    /// Where the time of the current request went; it ends at `done`.
    pub(crate) fn time_split(&mut self, done: Nanos) -> Option<TimeSplit> {
        let occupancy = self.occupancy.as_mut()?;
        Some(occupancy.split(done))
    }

    /// Runs an operation of this cause, which takes `cells_ns` and this number of transfers, and
    /// remembers it.
    #[inline(always)]
    pub(crate) fn run(
        &mut self,
        (at, die): (Nanos, u32),
        cause: Cause,
        (cells_ns, transfers): (Nanos, u32),
        operation: impl FnOnce(&mut Clocks) -> Nanos,
    ) -> Nanos {
        if self.occupancy.is_none() {
            return operation(self);
        }
        let own_ns = cells_ns + self.timing.bus_ns * u64::from(transfers);
        let before = self.free(die);
        let done = operation(self);
        let (after, bus) = (self.free(die), self.dies[index(die)].bus);
        if let Some(occupancy) = &mut self.occupancy {
            occupancy.note(cause, (die, bus), (at, done), own_ns, (before, after));
        }
        done
    }

    fn free(&self, die: u32) -> Free {
        let die = self.dies[index(die)];
        Free {
            die: die.busy,
            bus: self.buses[index(die.bus)],
        }
    }

    /// The instant at which the last die and the last bus are free.
    pub(crate) fn busy_until(&self) -> Nanos {
        if let Some(schedule) = &self.schedule {
            return schedule.busy_until();
        }
        if let Some(planes) = &self.planes {
            return planes.busy_until();
        }
        self.dies
            .iter()
            .map(|die| &die.busy)
            .chain(&self.buses)
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// Returns the array time that operations since the last call shared with others of their die.
    #[inline]
    pub(crate) fn take_shared(&mut self) -> Nanos {
        self.planes.as_mut().map_or(0, Planes::take_shared)
    }

    /// The last joint operation of a die, on a device that has them: the bit set of its planes, and
    /// when its array begins and ends.
    pub(crate) fn last_joint(&self, die: u32) -> Option<(u64, (Nanos, Nanos))> {
        self.planes.as_ref()?.last_joint(die)
    }

    /// Sets the time of a bus transfer and returns the old one: a copyback has none.
    pub(crate) fn set_bus_ns(&mut self, bus_ns: Nanos) -> Nanos {
        std::mem::replace(&mut self.timing.bus_ns, bus_ns)
    }

    /// Erases a block of this first page and number of pages.
    pub(crate) fn erase(&mut self, at: Nanos, die: u32, first: Ppn, count: u32) -> Nanos {
        let ns = self.timing.erase_ns;
        if let Some(planes) = &mut self.planes {
            return planes.erase(at, die, first, ns);
        }
        match &mut self.schedule {
            None => self.work(at, die, ns),
            Some(schedule) => {
                let last = Ppn::new(first.raw() + count - 1);
                schedule.erase(at, die, (first, last), ns)
            }
        }
    }

    /// Programs spare bytes, without a bus transfer.
    pub(crate) fn program_oob(&mut self, at: Nanos, die: u32, ppn: Ppn) -> Nanos {
        let ns = self.timing.oob_program_ns;
        match &mut self.schedule {
            None => self.work(at, die, ns),
            Some(schedule) => schedule.program_oob(at, die, ppn, ns),
        }
    }

    /// Senses a page for `cell_ns` without a bus transfer.
    #[inline]
    pub(crate) fn sense(&mut self, at: Nanos, die: u32, ppn: Ppn, cell_ns: Nanos) -> Nanos {
        match &mut self.schedule {
            None => self.work(at, die, cell_ns),
            Some(schedule) => schedule.sense(at, die, ppn, cell_ns),
        }
    }

    #[inline]
    fn work(&mut self, at: Nanos, die: u32, cell_ns: Nanos) -> Nanos {
        if let Some(planes) = &mut self.planes {
            return planes.work(at, die, cell_ns);
        }
        let die = &mut self.dies[index(die)];
        die.busy = at.max(die.busy) + cell_ns;
        die.busy
    }

    /// Reads `count` pages in sequence: the die senses a page, then the page crosses the bus.
    /// `cells_ns` is the cell time of all pages, `first_ns` that of the first; `pages` are the
    /// pages with their cell times.
    #[inline]
    pub(crate) fn read_run(
        &mut self,
        at: Nanos,
        die: u32,
        cells_ns: Nanos,
        first_ns: Nanos,
        count: u32,
        pages: impl Iterator<Item = (Ppn, Nanos)>,
    ) -> Nanos {
        debug_assert!(
            count > 0 && first_ns <= cells_ns,
            "{count} pages take {cells_ns} ns, the first {first_ns} ns"
        );
        let bus_ns = self.timing.bus_ns;
        if let Some(planes) = &mut self.planes {
            let bus = self.dies[index(die)].bus;
            return planes.read_run(at, (die, bus), pages, bus_ns);
        }
        if let Some(schedule) = &mut self.schedule {
            let bus = self.dies[index(die)].bus;
            return schedule.read_run(at, (die, bus), pages, bus_ns);
        }
        let sensed = self.work(at, die, first_ns);
        let first = self.transfer(sensed, die);
        if count == 1 {
            return first;
        }
        // Only the first page can wait: each later one starts when its predecessor is done.
        let done = first + (cells_ns - first_ns) + bus_ns * u64::from(count - 1);
        let die = &mut self.dies[index(die)];
        die.busy = done - bus_ns;
        if bus_ns > 0 {
            self.buses[index(die.bus)] = done;
        }
        done
    }

    /// Programs a run of pages in sequence: a page crosses the bus, then the die programs it.
    #[inline(always)]
    pub(crate) fn program_run(
        &mut self,
        at: Nanos,
        die: u32,
        times: &CellTimes,
        run: PageRun,
    ) -> Nanos {
        debug_assert!(run.count > 0, "a run without pages");
        if self.schedule.is_some() || self.planes.is_some() {
            return self.schedule_programs(at, die, times, run);
        }
        let cells_ns = times.of_run(run.offset, run.count);
        let bus_ns = self.timing.bus_ns;
        if bus_ns == 0 {
            return self.work(at, die, cells_ns);
        }
        let die = &mut self.dies[index(die)];
        let bus = &mut self.buses[index(die.bus)];
        let loaded = at.max(*bus) + bus_ns;
        die.busy = loaded.max(die.busy) + cells_ns + bus_ns * u64::from(run.count - 1);
        *bus = if run.count > 1 {
            die.busy - times.of(run.offset + run.count - 1)
        } else {
            loaded
        };
        die.busy
    }

    /// [`Clocks::program_run`] on a device that suspends operations or has multi-plane commands.
    #[cold]
    fn schedule_programs(&mut self, at: Nanos, die: u32, times: &CellTimes, run: PageRun) -> Nanos {
        let (bus, bus_ns) = (self.dies[index(die)].bus, self.timing.bus_ns);
        let pages = times.each(run.first, run.offset, run.count);
        if let Some(planes) = &mut self.planes {
            return planes.program_run(at, (die, bus), pages, bus_ns);
        }
        let schedule = self.schedule.as_mut().expect("the device has a schedule");
        schedule.program_run(at, (die, bus), pages, bus_ns)
    }

    #[inline]
    fn transfer(&mut self, at: Nanos, die: u32) -> Nanos {
        if self.timing.bus_ns == 0 {
            return at;
        }
        let bus = &mut self.buses[index(self.dies[index(die)].bus)];
        *bus = at.max(*bus) + self.timing.bus_ns;
        *bus
    }
}

/// Consecutive pages of a block: the first one, its offset there, and their number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRun {
    pub(crate) first: Ppn,
    pub(crate) offset: u32,
    pub(crate) count: u32,
}

/// Cell time of the reads, or of the programs, of a block by page offset.
#[derive(Clone, Debug)]
pub(crate) struct CellTimes {
    /// By offset: the time of that page.
    each: Vec<Nanos>,
    /// Sum over all pages before the offset.
    before: Vec<Nanos>,
    /// The time of every page, if all take the same.
    equal: Option<Nanos>,
}

impl CellTimes {
    pub(crate) fn new(times: &PageTimes, pairs: &PairTable, pages_per_block: u32) -> Self {
        let each: Vec<_> = (0..pages_per_block)
            .map(|offset| times[pairs.page_type(offset)])
            .collect();
        let mut before = vec![0];
        before.extend(each.iter().scan(0, |sum, ns| {
            *sum += ns;
            Some(*sum)
        }));
        debug_assert!(before.is_sorted(), "sums of cell times ascend");
        let is_equal = each.iter().all(|ns| *ns == each[0]);
        CellTimes {
            equal: is_equal.then_some(each[0]),
            each,
            before,
        }
    }

    /// Cell time of one page.
    #[inline(always)]
    pub(crate) fn of(&self, offset: u32) -> Nanos {
        self.each[index(offset)]
    }

    /// Pages upwards from `first`, each with its cell time.
    #[inline(always)]
    pub(crate) fn each(
        &self,
        first: Ppn,
        offset: u32,
        count: u32,
    ) -> impl Iterator<Item = (Ppn, Nanos)> {
        let times = (offset..).map(|offset| self.of(offset));
        first.run(count).zip(times)
    }

    /// Cell time of `count` pages at these offsets.
    #[inline(always)]
    pub(crate) fn of_pages(&self, offsets: impl Iterator<Item = u32>, count: u32) -> Nanos {
        match self.equal {
            Some(each) => each * u64::from(count),
            None => offsets.map(|offset| self.of(offset)).sum(),
        }
    }

    /// Cell time of `count` pages from `offset` on.
    #[inline(always)]
    pub(crate) fn of_run(&self, offset: u32, count: u32) -> Nanos {
        if count == 1 {
            return self.of(offset);
        }
        self.before[index(offset + count)] - self.before[index(offset)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{PROFILES, Profile};

    fn tables(profile: &Profile) -> [CellTimes; 2] {
        let pages = profile.geometry.pages_per_block;
        let pairs = PairTable::new(profile.pairing, pages);
        let of = |times| CellTimes::new(times, &pairs, pages);
        [of(&profile.timing.read_ns), of(&profile.timing.program_ns)]
    }

    fn no_pages() -> impl Iterator<Item = (Ppn, Nanos)> {
        std::iter::empty()
    }

    /// A run takes as long as its pages one by one, whatever the state of the die and the bus.
    #[test]
    fn a_run_takes_as_long_as_its_pages() {
        let mut tlc = *Profile::find("mlam").unwrap();
        tlc.pairing = crate::Pairing::Staggered { bits: 3 };
        tlc.timing.read_ns = [56_500, 77_500, 106_000, 106_000];
        tlc.timing.program_ns = [820_500, 2_225_000, 5_734_000, 5_734_000];
        for profile in [*Profile::find("mlam").unwrap(), PROFILES[0], tlc] {
            let profile = profile.with_blocks(64);
            let geometry = profile.geometry;
            let [reads, programs] = tables(&profile);
            let mut runs = Clocks::new(&geometry, profile.timing);
            let mut pages = runs.clone();
            let (mut at, mut rng) = (0, crate::rng::SplitMix::new(3));
            for _ in 0..2000 {
                let die = rng.below(geometry.dies() as u64) as u32;
                let (offset, count) = (rng.below(100) as u32, 1 + rng.below(28) as u32);
                let start = at - rng.below(at.min(500_000) + 1);
                let mut one = start;
                let many = if rng.one_in(2) {
                    for offset in offset..offset + count {
                        let sensed = pages.work(one, die, reads.of(offset));
                        one = pages.transfer(sensed, die);
                    }
                    let (cells_ns, first_ns) = (reads.of_run(offset, count), reads.of(offset));
                    runs.read_run(start, die, cells_ns, first_ns, count, no_pages())
                } else {
                    for offset in offset..offset + count {
                        let loaded = pages.transfer(one, die);
                        one = pages.work(loaded, die, programs.of(offset));
                    }
                    let run = PageRun {
                        first: Ppn::new(offset),
                        offset,
                        count,
                    };
                    runs.program_run(start, die, &programs, run)
                };
                assert_eq!(one, many);
                assert_eq!((&pages.dies, &pages.buses), (&runs.dies, &runs.buses));
                at = many;
            }
        }
    }

    #[test]
    fn later_pages_of_a_word_line_take_longer_and_the_sums_know() {
        let [reads, programs] = tables(Profile::find("mlc-4k").unwrap());
        assert_eq!(
            (0..5).map(|o| programs.of(o)).collect::<Vec<_>>(),
            [500, 500, 1300, 500, 1300].map(|us| us * 1000)
        );
        assert_eq!(programs.of_run(0, 128), 64 * 1_800_000);
        assert_eq!(reads.of_run(0, 128), 128 * 50_000);
    }
}
