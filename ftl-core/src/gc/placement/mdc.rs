//! `mdc`: GC collects the block whose cleaning cost is expected to decline least, and pages of
//! about the same update frequency share blocks. It chooses streams and victims.
//!
//! Lomet, Luo: *Efficiently Reclaiming Space in a Log Structured Store*, ICDE 2021, arXiv
//! 2005.00044. Fidelity A: the paper's text. Its rules, by section:
//!
//! - *4.3, 5.2.2 update frequency*: a block has one time `up2`, the next to last update of its
//!   pages; the frequency of each of its pages is `2 / (now - up2)`. Time counts host writes. A
//!   write over a page of this block has the time `up2 + (now - up2) / 2`, a copy has that of its
//!   block, and a new block has the mean of its pages ([`Mdc::time_of_write`], [`Mdc::on_seal`]).
//!   The first write of a page has the oldest time of the batch.
//! - *5.1.3 victims*: with `A` free and `C` valid pages of equal size, the declining cost is
//!   `((B - A) / A)^2 / (C (now - up2))`, with `B - A = C` then `C / (A^2 (now - up2))`
//!   ([`declining_cost`]). The lowest goes first.
//! - *5.3, 6.1.1 batches*: one search selects the victims of a cycle, whose pages are written in
//!   order of their times. The victims of a batch are emptied in that order here: all pages of a
//!   block have its time.
//!
//! Deviations:
//!
//! - The paper sorts host writes in a buffer of 16 segments in RAM, unacknowledged or lost in a
//!   power cut. Here eight streams take the place of the sorted buffer. Their bounds are the
//!   octiles of the estimated periods of the last 16 blocks' worth of writes.
//! - The paper empties 64 of 51,200 segments in one cycle, and sorts their pages. Here a batch is a
//!   128th of the blocks, 1 to 64, and is emptied one by one as the device needs blocks. So copies
//!   have four streams, by the quartiles of their periods.
//! - The paper assigns `up2` when a segment is written from RAM. Here a page may be written again
//!   while its block is open; then the new time is that of the block's opening, for the last update
//!   was not earlier.
//! - A block whose history is unknown (of mapping pages, or from before a mount) gets
//!   `now - 2 x age`, with the age of `gc.policy`: its valid count has not changed since.
//!
//! RAM: 8 B per block. A search looks at every block, once per batch. A mount forgets the times:
//! until a block is rewritten the estimate above stands in, and the first batch of writes goes to
//! one stream.

use crate::gc::policy::{Candidate, Candidates, DataBlock, HostWrite, PageCopy, Policy};
use nand_model::{Geometry, Pbn};

/// Streams of the host, and of copies behind them.
const HOST: usize = 8;
const COPIES: usize = 4;
/// Blocks' worth of writes between two settings of the bounds: the paper's sort buffer.
const BUFFER: u64 = 16;
/// Periods sampled in that time.
const SAMPLES: u64 = 256;
/// Share of the blocks in a batch, and its largest size.
const BATCH_SHARE: u32 = 128;
const BATCH_MOST: u32 = 64;
/// The time of a block that is open, or was filled before the mount.
const UNKNOWN: u64 = u64::MAX;

pub(super) struct Mdc {
    pages_per_block: u64,
    /// Time of the last write.
    now: u64,
    /// By block: `up2`.
    times: Vec<u64>,
    /// By stream: sum of the times of the pages in its open block, and their number.
    open: [(u64, u64); HOST + COPIES],
    writes: Sort,
    copies: Sort,
    /// Oldest time of this batch of writes.
    oldest: u64,
    /// Oldest time of the last batch.
    oldest_before: u64,
    /// Victims still to collect, that with the latest time first.
    victims: Vec<Pbn>,
    batch: usize,
    /// Reused by the search.
    costs: Vec<(f64, Pbn)>,
}

impl Mdc {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let batch = (geometry.blocks / BATCH_SHARE).clamp(1, BATCH_MOST);
        Mdc {
            pages_per_block: u64::from(geometry.pages_per_block),
            now: 0,
            times: vec![UNKNOWN; geometry.block_slots()],
            open: [(0, 0); HOST + COPIES],
            writes: Sort::new(HOST, geometry),
            copies: Sort::new(COPIES, geometry),
            oldest: u64::MAX,
            oldest_before: 0,
            victims: Vec::with_capacity(batch as usize),
            batch: batch as usize,
            costs: Vec::new(),
        }
    }

    /// Returns the new `up2` of a page that the host writes.
    fn time_of_write(&self, write: &HostWrite) -> u64 {
        let known = write.replaces.map(|block| self.times[block.index()]);
        match (known, write.lifespan) {
            (Some(UNKNOWN), Some(lifespan)) => self.now.saturating_sub(lifespan),
            (Some(time), _) => time + (self.now - time.min(self.now)) / 2,
            // A version whose block is not in RAM is cold, as a first one.
            (None, _) => self.oldest.min(self.oldest_before),
        }
    }

    /// Adds a page to the open block of a stream.
    fn add(&mut self, stream: usize, time: u64) {
        let (sum, pages) = &mut self.open[stream];
        (*sum, *pages) = (*sum + time, *pages + 1);
    }

    /// Returns the time of a candidate.
    fn time_of(&self, candidate: &Candidate) -> u64 {
        match self.times[candidate.block.index()] {
            UNKNOWN => {
                let unchanged = candidate.age as u64 * self.pages_per_block;
                self.now.saturating_sub(2 * unchanged)
            }
            time => time,
        }
    }

    /// Selects the victims of a batch.
    fn search(&mut self, candidates: &Candidates) {
        let mut costs = std::mem::take(&mut self.costs);
        costs.clear();
        let pages = self.pages_per_block as f64;
        costs.extend(candidates.all().filter(|c| c.utilisation < 1.0).map(|c| {
            let valid = (c.utilisation * pages).round();
            let period = self.now.saturating_sub(self.time_of(&c));
            (declining_cost(valid, pages - valid, period), c.block)
        }));
        let order = |a: &(f64, Pbn), b: &(f64, Pbn)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if costs.len() > self.batch {
            costs.select_nth_unstable_by(self.batch, order);
            costs.truncate(self.batch);
        }
        let mut victims = std::mem::take(&mut self.victims);
        victims.extend(costs.iter().map(|(_, block)| *block));
        let time = |block: &Pbn| self.time_of(&candidates.about(*block));
        victims.sort_unstable_by_key(|block| (std::cmp::Reverse(time(block)), *block));
        (self.victims, self.costs) = (victims, costs);
    }
}

impl Policy for Mdc {
    fn streams(&self) -> (u32, u32) {
        (HOST as u32, COPIES as u32)
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        self.now = write.now;
        let time = self.time_of_write(write).min(self.now);
        let period = self.now - time;
        let stream = self.writes.place(period);
        self.add(stream, time);
        self.oldest = self.oldest.min(time);
        if self.writes.sample(period) {
            (self.oldest_before, self.oldest) = (self.oldest, u64::MAX);
        }
        stream as u32
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        let time = match self.times[copy.block.index()] {
            UNKNOWN => self.now.saturating_sub(copy.age),
            time => time,
        };
        let period = self.now.saturating_sub(time);
        let stream = HOST + self.copies.place(period);
        if copy.lpn.is_some() {
            self.add(stream, time);
            self.copies.sample(period);
        }
        stream as u32
    }

    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        let qualifies =
            |block: &Pbn| candidates.contains(*block) && candidates.about(*block).utilisation < 1.0;
        while let Some(victim) = self.victims.pop() {
            if qualifies(&victim) {
                return Some(victim);
            }
        }
        self.search(candidates);
        self.victims.pop()
    }

    fn on_seal(&mut self, block: &DataBlock) {
        let open = self.open.get_mut(block.stream as usize);
        if let Some((sum, pages)) = open.map(std::mem::take).filter(|(_, pages)| *pages > 0) {
            self.times[block.block.index()] = sum / pages;
        }
    }

    fn on_erase(&mut self, block: Pbn) {
        self.times[block.index()] = UNKNOWN;
        self.victims.retain(|victim| *victim != block);
    }

    fn bytes(&self) -> (u64, u64) {
        let of_blocks = 8 * self.times.len() as u64;
        let entry = std::mem::size_of::<(f64, Pbn)>() as u64;
        let others = 16 * SAMPLES + 4 * self.batch as u64 + entry * self.costs.capacity() as u64;
        (of_blocks, of_blocks + others)
    }
}

/// Streams in the place of a sorted batch: each gets an equal share of it.
struct Sort {
    /// Shortest period of the second and further streams.
    bounds: Vec<u64>,
    /// Pages of a batch, those of this batch so far, and the periods sampled of them.
    of_batch: u64,
    pages: u64,
    periods: Vec<u64>,
}

impl Sort {
    fn new(streams: usize, geometry: &Geometry) -> Self {
        Sort {
            bounds: vec![u64::MAX; streams - 1],
            of_batch: BUFFER * u64::from(geometry.pages_per_block),
            pages: 0,
            periods: Vec::with_capacity(SAMPLES as usize),
        }
    }

    /// Returns the stream of a page of this period.
    fn place(&self, period: u64) -> usize {
        self.bounds.partition_point(|bound| *bound <= period)
    }

    /// Samples a period, and sets the bounds at the end of a batch. Returns whether it is one.
    fn sample(&mut self, period: u64) -> bool {
        let step = (self.of_batch / SAMPLES).max(1);
        if self.pages.is_multiple_of(step) && self.periods.len() < SAMPLES as usize {
            self.periods.push(period);
        }
        self.pages += 1;
        if self.pages < self.of_batch {
            return false;
        }
        self.periods.sort_unstable();
        let streams = self.bounds.len() + 1;
        for (i, bound) in self.bounds.iter_mut().enumerate() {
            *bound = self.periods[(i + 1) * self.periods.len() / streams];
        }
        self.periods.clear();
        self.pages = 0;
        true
    }
}

/// Returns the declining cost of a block of equal pages: `C / (A^2 (now - up2))`, without the
/// constants.
fn declining_cost(valid: f64, free: f64, period: u64) -> f64 {
    valid / (free * free * period.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Lpn;

    /// 1,280 blocks of four pages: a batch of ten.
    fn mdc() -> Mdc {
        Mdc::new(&Geometry {
            channels: 1,
            ways: 1,
            planes: 1,
            multi_plane: nand_model::MultiPlane::Off,
            blocks: 1_280,
            pages_per_block: 4,
            page_bytes: 512,
            oob_bytes: 64,
        })
    }

    fn write(now: u64, replaces: Option<(u32, u64)>) -> HostWrite {
        HostWrite {
            lpn: Lpn::new(0),
            hint: 0,
            replaces: replaces.map(|(block, _)| Pbn::new(block)),
            lifespan: replaces.map(|(_, lifespan)| lifespan),
            now,
        }
    }

    fn copy(block: u32) -> PageCopy {
        PageCopy {
            lpn: Some(Lpn::new(0)),
            block: Pbn::new(block),
            stream: 0,
            age: 0,
            now: 0,
        }
    }

    fn sealed(block: u32, stream: u32) -> DataBlock {
        DataBlock {
            block: Pbn::new(block),
            stream,
            lifetime: 0,
            age: 0,
            now: 0,
        }
    }

    /// Section 5.2.2: with up2 = 600 at time 1,000, up1 is taken to be 800, which the write makes
    /// up2.
    #[test]
    fn a_write_moves_the_time_of_its_page_half_way_to_now() {
        let mut mdc = mdc();
        mdc.times[7] = 600;
        mdc.now = 1_000;
        assert_eq!(mdc.time_of_write(&write(1_000, Some((7, 9)))), 800);
        // Block 8 is open since 40 writes ago.
        assert_eq!(mdc.time_of_write(&write(1_000, Some((8, 40)))), 960);
        // A first write has the oldest time so far.
        (mdc.oldest, mdc.oldest_before) = (500, 300);
        assert_eq!(mdc.time_of_write(&write(1_000, None)), 300);
    }

    /// Section 5.2.2: the mean over the pages; copies carry the time of their block.
    #[test]
    fn a_block_has_the_mean_time_of_its_pages() {
        let mut mdc = mdc();
        (mdc.times[1], mdc.times[2]) = (100, 500);
        for block in [1, 1, 1, 2] {
            mdc.stream_of_copy(&copy(block));
        }
        mdc.on_seal(&sealed(3, HOST as u32));
        assert_eq!(mdc.times[3], 200);
        // Periods 200 and 400 from block 2 and 1 at time 900: (700 + 500) / 2.
        mdc.stream_of_write(&write(900, Some((2, 0))));
        mdc.stream_of_write(&write(900, Some((1, 0))));
        mdc.on_seal(&sealed(4, 0));
        assert_eq!(mdc.times[4], 600);
        mdc.on_erase(Pbn::new(4));
        assert_eq!(mdc.times[4], UNKNOWN);
    }

    /// Section 4.5: under equal frequencies the order is that of greedy. Section 5.1.3: a block
    /// of half the frequency goes before a somewhat emptier one.
    #[test]
    fn the_lowest_decline_of_the_cost_goes_first() {
        let costs = [1.0, 2.0, 3.0].map(|valid| declining_cost(valid, 4.0 - valid, 100));
        assert!(costs.is_sorted(), "{costs:?}");
        // 2 / (4 x 100) = 0.005; 3 / (1 x 400) = 0.0075; 3 / (1 x 800) = 0.00375.
        assert_eq!(declining_cost(2.0, 2.0, 100), 0.005);
        assert_eq!(declining_cost(3.0, 1.0, 400), 0.0075);
        assert_eq!(declining_cost(3.0, 1.0, 800), 0.00375);
    }

    /// A batch of 64 writes with the periods 0 to 630: the octiles are every 80th.
    #[test]
    fn streams_divide_the_writes_of_a_batch_evenly() {
        let mut mdc = mdc();
        let ends = (0..64).filter(|i| mdc.writes.sample(10 * i));
        assert_eq!(ends.collect::<Vec<_>>(), [63]);
        assert_eq!(mdc.writes.bounds, [80, 160, 240, 320, 400, 480, 560]);
        let streams = [0, 79, 80, 559, 560, 10_000].map(|period| mdc.writes.place(period));
        assert_eq!(streams, [0, 0, 1, 6, 7, 7]);
        // Copies by quartiles, in the streams behind.
        for i in 0..64 {
            mdc.copies.sample(10 * i);
        }
        assert_eq!(mdc.copies.bounds, [160, 320, 480]);
        (mdc.now, mdc.times[5]) = (1_000, 520);
        assert_eq!(mdc.stream_of_copy(&copy(5)), 11);
        mdc.times[5] = 521;
        assert_eq!(mdc.stream_of_copy(&copy(5)), 10);
    }
}
