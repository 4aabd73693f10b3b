//! Sums of the figures that the shards of a device publish. For one chip they are the chip's
//! figures.

use super::shard::Shard;
use super::snapshot::{FlashSnapshot, Wear};
use super::watch::BlockMap;
use super::write_cache::{CacheView, CutCounts, Outcome};
use ftl_core::{add_ram, add_streams};
use ftld_kit::convert::to_f64;
use std::sync::Arc;

/// Returns the sum of what the shards have published.
pub(super) fn snapshot(shards: &[Shard]) -> Arc<FlashSnapshot> {
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
        // Each snapshot has these two figures for the whole device.
        self.host_written_bytes = self.host_written_bytes.max(*host_written_bytes);
        self.emulated_ns = self.emulated_ns.max(*emulated_ns);
        let newest = [self.last_write, *last_write];
        self.last_write = newest.into_iter().flatten().max_by_key(|write| write.at);
        add_streams(&mut self.streams, streams, blocks);
        self.counters.add(counters);
        self.scheme.add(scheme);
        self.scheme.mount.add_marks(&scheme.mount, blocks);
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
    /// Returns the outcomes of all shards as one of the whole area; each comes with the place of
    /// its part.
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
    use crate::volume::LastWrite;
    use ftl_core::{BlockMark, RamEntry, StreamKind, StreamView};
    use nand_model::Pbn;
    use std::collections::BTreeSet;

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

    /// How a figure of the device follows from those of its shards.
    #[derive(Clone, Copy, Debug)]
    enum Rule {
        Sum,
        /// Each shard has the figure of the whole device.
        Whole,
        Least,
        Most,
    }

    /// Returns all figures of a snapshot; a new field has to be named here, with its rule.
    fn figures(of: &FlashSnapshot) -> Vec<(&'static str, Rule, u64)> {
        use Rule::{Least, Most, Sum, Whole};
        let FlashSnapshot {
            taken: _,
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
            blocks,
            cache,
        } = of;
        let CacheView {
            capacity_bytes,
            dirty_bytes,
            read_hit_bytes,
            written_back_bytes,
            failed_write_backs,
            model: _,
            protected: _,
            write_through: _,
            last_cut,
        } = cache;
        let mut all = vec![
            ("host_written_bytes", Whole, *host_written_bytes),
            ("emulated_ns", Most, *emulated_ns),
            ("last_write", Most, last_write.map_or(0, |write| write.at)),
            ("erase_credit", Least, u64::from(*erase_credit)),
            ("blocks_to_refresh", Sum, u64::from(*blocks_to_refresh)),
            ("blocks", Sum, u64::from(*blocks)),
            ("read_busy_ns", Sum, counters.read_busy_ns),
            ("program_busy_ns", Sum, counters.program_busy_ns),
            ("cache capacity", Sum, *capacity_bytes),
            ("cache dirty", Sum, *dirty_bytes),
            ("cache hits", Sum, *read_hit_bytes),
            ("cache failed", Sum, *failed_write_backs),
            ("wear min", Least, u64::from(wear.min)),
            ("wear max", Most, u64::from(wear.max)),
            ("bad_factory", Sum, u64::from(wear.bad_factory)),
            ("bad_grown", Sum, u64::from(wear.bad_grown)),
            ("gc_runs", Sum, scheme.gc_runs),
            ("mapped_pages", Sum, scheme.mapped_pages),
            ("valid_pages", Sum, scheme.valid_pages),
            ("checkpoints", Sum, scheme.checkpoints),
            ("lookups", Sum, scheme.lookups_read.total),
            ("free blocks", Sum, u64::from(scheme.blocks.free)),
            ("scanned", Sum, scheme.mount.pages_scanned),
            ("kept", Sum, scheme.mount.pages_kept),
            ("dropped", Sum, scheme.mount.pages_dropped),
            ("rewritten", Sum, scheme.mount.pages_rewritten),
            ("rewritten blocks", Sum, scheme.mount.blocks_rewritten),
        ];
        let mut add = |name, counts: &[u64]| {
            all.extend(counts.iter().map(|count| (name, Sum, *count)));
        };
        add("cache written back", written_back_bytes);
        add("cut", &last_cut.by_name());
        add("wear", &wear.distribution);
        add("gc_pages", gc_pages);
        add(
            "streams",
            &streams.iter().map(|of| of.pages).collect::<Vec<_>>(),
        );
        for of in events {
            add("events", &[of.count, of.pages, of.took]);
        }
        for of in ram {
            let RamEntry {
                part: _,
                entries,
                paper_bytes,
                allocated_bytes,
                most_bytes,
            } = of;
            add(
                "ram",
                &[*entries, *paper_bytes, *allocated_bytes, *most_bytes],
            );
        }
        all
    }

    /// Returns the snapshot of shard `n` of a device: no two figures are equal.
    fn shard(n: u64) -> FlashSnapshot {
        let mut last = 1000 * n;
        let mut next = || {
            last += 1;
            last
        };
        let mut of = FlashSnapshot::clone(&crate::fresh_status::fresh().flash);
        of.host_written_bytes = 77;
        (of.emulated_ns, of.erase_credit) = (next(), next() as u32);
        of.last_write = Some(LastWrite {
            at: next(),
            offset: n,
            bytes: n,
        });
        (of.blocks_to_refresh, of.blocks) = (next() as u32, next() as u32);
        of.streams = vec![StreamView {
            kind: StreamKind::Host,
            number: 0,
            pages: next(),
            block: None,
        }];
        (of.counters.read_busy_ns, of.counters.program_busy_ns) = (next(), next());
        let cache = &mut of.cache;
        (cache.capacity_bytes, cache.dirty_bytes) = (next(), next());
        (cache.read_hit_bytes, cache.failed_write_backs) = (next(), next());
        cache.written_back_bytes.fill_with(&mut next);
        cache.last_cut = CutCounts {
            new: next(),
            torn: next(),
            old: next(),
            lost: next(),
        };
        of.gc_pages.fill_with(&mut next);
        of.wear.distribution.fill_with(&mut next);
        (of.wear.min, of.wear.max) = (next() as u32, next() as u32);
        (of.wear.bad_factory, of.wear.bad_grown) = (next() as u32, next() as u32);
        for event in &mut of.events {
            (event.count, event.pages, event.took) = (next(), next(), next());
        }
        let scheme = &mut of.scheme;
        (scheme.gc_runs, scheme.mapped_pages) = (next(), next());
        (scheme.valid_pages, scheme.checkpoints) = (next(), next());
        (scheme.lookups_read.total, scheme.blocks.free) = (next(), next() as u32);
        let mount = &mut scheme.mount;
        (mount.pages_scanned, mount.pages_kept) = (next(), next());
        (mount.pages_dropped, mount.pages_rewritten) = (next(), next());
        mount.blocks_rewritten = next();
        mount.marks = vec![(Pbn::new(n as u32), BlockMark::Torn)];
        for part in &mut of.ram {
            (part.entries, part.paper_bytes) = (next(), next());
            (part.allocated_bytes, part.most_bytes) = (next(), next());
        }
        of
    }

    /// Each figure of a device of three shards against those of its shards.
    #[test]
    fn every_figure_of_a_device_follows_from_those_of_its_shards() {
        let shards = [1, 3, 2].map(shard);
        let mut sum = shards[0].clone();
        sum.add(&shards[1], shards[0].blocks);
        sum.add(&shards[2], shards[0].blocks + shards[1].blocks);
        let each: Vec<_> = shards.iter().map(figures).collect();
        let seen: BTreeSet<u64> = each.iter().flatten().map(|(_, _, value)| *value).collect();
        let all = each.iter().map(Vec::len).sum::<usize>();
        assert_eq!(seen.len(), all - 2, "no two figures are equal but one");
        for (place, (name, rule, found)) in figures(&sum).into_iter().enumerate() {
            let of = each.iter().map(|figures| figures[place].2);
            let expected = match rule {
                Rule::Sum => of.sum(),
                Rule::Whole | Rule::Most => of.max().unwrap(),
                Rule::Least => of.min().unwrap(),
            };
            assert_eq!(found, expected, "{name}, {rule:?}");
        }
        let blocks = shards.each_ref().map(|shard| shard.blocks);
        let marks = [1, blocks[0] + 3, blocks[0] + blocks[1] + 2];
        let marks = marks.map(|block| (Pbn::new(block), BlockMark::Torn));
        assert_eq!(
            sum.scheme.mount.marks, marks,
            "as the map numbers the blocks"
        );
        // Write amplification: the programs of all for the bytes of the device.
        assert_eq!(sum.host_written_bytes, shards[0].host_written_bytes);
    }
}
