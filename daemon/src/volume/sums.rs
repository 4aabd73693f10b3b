//! What the shards of a device publish, in sum. A device of one chip has its figures unchanged.

use super::shard::Shard;
use super::snapshot::{FlashSnapshot, Wear};
use super::watch::BlockMap;
use super::write_cache::{CacheView, CutCounts, Outcome};
use crate::convert::to_f64;
use ftl_core::{add_ram, add_streams};
use nand_model::Store;
use std::sync::Arc;

/// Returns the sum of what the shards have published.
pub(super) fn snapshot<S: Store>(shards: &[Shard<S>]) -> Arc<FlashSnapshot> {
    let mut all = shards.iter().map(|shard| shard.published.lock().clone());
    let first = all.next().expect("a device has a chip");
    if shards.len() == 1 {
        return first;
    }
    let mut sum = FlashSnapshot::clone(&first);
    let mut blocks = 0;
    for (place, snapshot) in all.enumerate() {
        if place == 0 {
            blocks = first.blocks;
        }
        sum.add(&snapshot, blocks);
        blocks += snapshot.blocks;
    }
    Arc::new(sum)
}

impl FlashSnapshot {
    /// Adds the flash of another shard, behind `blocks` blocks of the shards before it.
    fn add(&mut self, other: &FlashSnapshot, blocks: u32) {
        let FlashSnapshot {
            taken,
            host_written_bytes,
            emulated_ns,
            last_write,
            streams,
            counters,
            scheme,
            events,
            gc_pages,
            ram,
            wear,
            erase_credit,
            blocks_to_refresh,
            cache,
            blocks: own_blocks,
        } = other;
        self.taken = self.taken.min(*taken);
        // These two are of the whole device in each snapshot.
        self.host_written_bytes = self.host_written_bytes.max(*host_written_bytes);
        self.emulated_ns = self.emulated_ns.max(*emulated_ns);
        let newest = [self.last_write, *last_write];
        self.last_write = newest.into_iter().flatten().max_by_key(|write| write.at);
        add_streams(&mut self.streams, streams, blocks);
        self.counters.add(counters);
        self.scheme.add(scheme);
        for (sum, totals) in self.events.iter_mut().zip(events) {
            sum.count += totals.count;
            sum.pages += totals.pages;
            sum.took += totals.took;
        }
        let classes = self.gc_pages.iter_mut().zip(gc_pages);
        classes.for_each(|(sum, count)| *sum += count);
        add_ram(&mut self.ram, ram);
        self.wear = self.wear.with(wear);
        self.erase_credit = self.erase_credit.min(*erase_credit);
        self.blocks_to_refresh += blocks_to_refresh;
        self.cache = self.cache.with(cache);
        self.blocks += own_blocks;
    }
}

impl Wear {
    fn good(&self) -> u64 {
        self.distribution.iter().sum()
    }

    /// Returns the wear of the blocks of both.
    fn with(&self, other: &Wear) -> Wear {
        let (some, more) = (self.good(), other.good());
        if some == 0 || more == 0 {
            let counts = if some == 0 { other } else { self };
            return Wear {
                bad_factory: self.bad_factory + other.bad_factory,
                bad_grown: self.bad_grown + other.bad_grown,
                ..counts.clone()
            };
        }
        let (a, b) = (to_f64(some), to_f64(more));
        let mean = (self.mean * a + other.mean * b) / (a + b);
        let square = |wear: &Wear| wear.stddev.powi(2) + wear.mean.powi(2);
        let squares = (square(self) * a + square(other) * b) / (a + b);
        let mut distribution = self.distribution;
        let classes = distribution.iter_mut().zip(other.distribution);
        classes.for_each(|(sum, count)| *sum += count);
        Wear {
            min: self.min.min(other.min),
            mean,
            max: self.max.max(other.max),
            stddev: (squares - mean.powi(2)).max(0.0).sqrt(),
            distribution,
            bad_factory: self.bad_factory + other.bad_factory,
            bad_grown: self.bad_grown + other.bad_grown,
        }
    }
}

impl CacheView {
    fn with(&self, other: &CacheView) -> CacheView {
        let mut written_back_bytes = self.written_back_bytes;
        let reasons = written_back_bytes.iter_mut().zip(other.written_back_bytes);
        reasons.for_each(|(sum, bytes)| *sum += bytes);
        CacheView {
            capacity_bytes: self.capacity_bytes + other.capacity_bytes,
            dirty_bytes: self.dirty_bytes + other.dirty_bytes,
            read_hit_bytes: self.read_hit_bytes + other.read_hit_bytes,
            written_back_bytes,
            failed_write_backs: self.failed_write_backs + other.failed_write_backs,
            model: self.model,
            protected: self.protected,
            write_through: self.write_through,
            last_cut: self.last_cut.with(&other.last_cut),
        }
    }
}

impl CutCounts {
    pub(super) fn with(&self, other: &CutCounts) -> CutCounts {
        CutCounts {
            new: self.new + other.new,
            torn: self.torn + other.torn,
            old: self.old + other.old,
            lost: self.lost + other.lost,
        }
    }
}

impl Outcome {
    /// Returns the outcomes of all shards as one of the whole area; each comes with the place of its
    /// part.
    pub(super) fn of_shards(outcomes: Vec<(u64, Outcome)>) -> Option<Outcome> {
        let mut all: Option<Outcome> = None;
        for (begin, outcome) in outcomes {
            let sum = all.get_or_insert_with(|| Outcome {
                counts: CutCounts::default(),
                changes: Vec::new(),
            });
            sum.counts = sum.counts.with(&outcome.counts);
            let changes = outcome.changes.into_iter();
            sum.changes
                .extend(changes.map(|(at, changed)| (begin + at, changed)));
        }
        all
    }
}

/// Returns the maps of all shards as one, in the order of the shards.
pub(super) fn block_map(mut maps: Vec<Arc<BlockMap>>) -> Arc<BlockMap> {
    if maps.len() == 1 {
        return maps.remove(0);
    }
    let mut sum = BlockMap::default();
    for map in maps {
        sum.generation += map.generation;
        sum.blocks += map.blocks;
        sum.per_cell = sum.per_cell.max(map.per_cell);
        sum.cells.extend_from_slice(&map.cells);
        let uses = sum.counts.iter_mut().zip(map.counts);
        uses.for_each(|(sum, blocks)| *sum += blocks);
    }
    Arc::new(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wear_of_two_chips_is_that_of_all_their_blocks() {
        let of = |counts: &[u32]| {
            let mut wear = Wear::default();
            let n = counts.len() as f64;
            wear.mean = counts.iter().sum::<u32>() as f64 / n;
            let square = |c: &u32| (f64::from(*c) - wear.mean).powi(2);
            wear.stddev = (counts.iter().map(square).sum::<f64>() / n).sqrt();
            wear.min = *counts.iter().min().unwrap();
            wear.max = *counts.iter().max().unwrap();
            wear.distribution[0] = counts.len() as u64;
            wear
        };
        let (one, other) = ([1, 2, 3, 10], [4, 4, 7]);
        let both = of(&one).with(&of(&other));
        let all = of(&[1, 2, 3, 10, 4, 4, 7]);
        assert_eq!((both.min, both.max), (all.min, all.max));
        assert!((both.mean - all.mean).abs() < 1e-9 && (both.stddev - all.stddev).abs() < 1e-9);
        assert_eq!(both.distribution, all.distribution);
        assert_eq!(of(&one).with(&Wear::default()), of(&one));
        assert_eq!(Wear::default().with(&of(&one)), of(&one));
    }
}
