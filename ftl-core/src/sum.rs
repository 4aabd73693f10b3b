//! Sums of what the chips of one device report.

use crate::stats::{
    BlockCounts, BlockMark, Evictions, Lookups, MountReport, RamEntry, RamReport, SchemeStats,
    StreamView,
};
use nand_model::Pbn;

impl SchemeStats {
    /// Adds the counters and gauges of another chip. The mount is that of the slower chip, with the
    /// pages of both.
    pub fn add(&mut self, other: &SchemeStats) {
        // Every field is named, so that a new one is not forgotten.
        let SchemeStats {
            host_pages_read,
            host_pages_written,
            host_pages_trimmed,
            gc_runs,
            gc_pages_moved,
            wear_moves,
            refreshes,
            converts,
            convert_map_pages,
            switch_merges,
            partial_merges,
            full_merges,
            convert_costs,
            write_stalls,
            lookups_read,
            lookups_write,
            map_lookup_steps,
            map_cache_evictions,
            buffered_pages,
            buffer_capacity_pages,
            checkpoints,
            pages_since_checkpoint,
            mapped_pages,
            valid_pages,
            free_threshold_blocks,
            blocks,
            read_only,
            mount,
        } = other;
        for (sum, count) in [
            (&mut self.host_pages_read, host_pages_read),
            (&mut self.host_pages_written, host_pages_written),
            (&mut self.host_pages_trimmed, host_pages_trimmed),
            (&mut self.gc_runs, gc_runs),
            (&mut self.gc_pages_moved, gc_pages_moved),
            (&mut self.wear_moves, wear_moves),
            (&mut self.refreshes, refreshes),
            (&mut self.converts, converts),
            (&mut self.convert_map_pages, convert_map_pages),
            (&mut self.switch_merges, switch_merges),
            (&mut self.partial_merges, partial_merges),
            (&mut self.full_merges, full_merges),
            (&mut self.map_lookup_steps, map_lookup_steps),
            (&mut self.buffered_pages, buffered_pages),
            (&mut self.buffer_capacity_pages, buffer_capacity_pages),
            (&mut self.checkpoints, checkpoints),
            (&mut self.pages_since_checkpoint, pages_since_checkpoint),
            (&mut self.mapped_pages, mapped_pages),
            (&mut self.valid_pages, valid_pages),
        ] {
            *sum += count;
        }
        let longest = self.convert_costs.len().max(convert_costs.len());
        self.convert_costs.resize(longest, 0);
        let costs = self.convert_costs.iter_mut().zip(convert_costs);
        costs.for_each(|(sum, count)| *sum += count);
        for (sum, stalls) in self.write_stalls.iter_mut().zip(write_stalls) {
            sum.writes += stalls.writes;
            sum.total_ns += stalls.total_ns;
        }
        self.lookups_read.add(lookups_read);
        self.lookups_write.add(lookups_write);
        self.map_cache_evictions.add(map_cache_evictions);
        self.free_threshold_blocks += free_threshold_blocks;
        self.blocks.add(blocks);
        self.read_only = self.read_only.or(*read_only);
        self.mount.add(mount);
    }
}

impl Lookups {
    fn add(&mut self, other: &Lookups) {
        let Lookups { total, hits } = other;
        self.total += total;
        self.hits += hits;
    }
}

impl Evictions {
    fn add(&mut self, other: &Evictions) {
        let Evictions { clean, dirty } = other;
        self.clean += clean;
        self.dirty += dirty;
    }
}

impl BlockCounts {
    fn add(&mut self, other: &BlockCounts) {
        let BlockCounts {
            free,
            open,
            data,
            log,
            map,
            checkpoint,
            released,
            bad,
        } = other;
        self.free += free;
        self.open += open;
        self.data += data;
        self.log += log;
        self.map += map;
        self.checkpoint += checkpoint;
        self.released += released;
        self.bad += bad;
    }
}

impl MountReport {
    fn add(&mut self, other: &MountReport) {
        let MountReport {
            clean,
            steps,
            pages_scanned,
            pages_discarded,
            free_blocks,
            pages_kept,
            pages_dropped,
            pages_rewritten,
            blocks_rewritten,
            // Only the caller knows the numbers of its chips' blocks: `add_marks`.
            marks: _,
        } = other;
        self.clean &= clean;
        if other.total_ns() > self.total_ns() {
            self.steps.clone_from(steps);
        }
        self.pages_scanned += pages_scanned;
        self.pages_discarded += pages_discarded;
        self.free_blocks += free_blocks;
        self.pages_kept += pages_kept;
        self.pages_dropped += pages_dropped;
        self.pages_rewritten += pages_rewritten;
        self.blocks_rewritten += blocks_rewritten;
    }

    /// Adds the marks of another chip; `blocks` are the blocks of the chips before it.
    pub fn add_marks(&mut self, other: &MountReport, blocks: u32) {
        let own = |(block, mark): &(Pbn, BlockMark)| (Pbn::new(blocks + block.raw()), *mark);
        self.marks.extend(other.marks.iter().map(own));
    }
}

/// Adds the streams of another chip to those of the same kind and number; `blocks` are the blocks
/// of the chips before it.
pub fn add_streams(sum: &mut Vec<StreamView>, other: &[StreamView], blocks: u32) {
    for stream in other {
        let block = stream.block.map(|block| Pbn::new(blocks + block.raw()));
        let same = |own: &&mut StreamView| own.kind == stream.kind && own.number == stream.number;
        match sum.iter_mut().find(same) {
            Some(own) => {
                own.pages += stream.pages;
                own.block = own.block.or(block);
            }
            None => sum.push(StreamView { block, ..*stream }),
        }
    }
}

/// Adds the RAM of another chip, part by part.
pub fn add_ram(sum: &mut RamReport, other: &RamReport) {
    for entry in other {
        let RamEntry {
            part,
            entries,
            paper_bytes,
            allocated_bytes,
            most_bytes,
        } = entry;
        match sum.iter_mut().find(|own| own.part == *part) {
            Some(own) => {
                own.entries += entries;
                own.paper_bytes += paper_bytes;
                own.allocated_bytes += allocated_bytes;
                own.most_bytes += most_bytes;
            }
            None => sum.push(entry.clone()),
        }
    }
}
