//! Makes the document of a snapshot.

use super::StatusSnapshot;
use super::document::{
    BlockState, Mount, MountStep, Pause, RamPart, SchemeStatus, Shard, Snapshot, Status, Stream,
    WearOfRated,
};
use super::recovery::{MARKED_FOR, Recovery};
use crate::config::verify_name;
use crate::counters::{EnergyUsed, Operations, SchemeCounters};
use crate::volume::{BOUNDS_NS, FlashSnapshot, Paused, WritesFailing};
use ftl_core::{BlockMark, MountReport, RamEntry, StreamView};
use ftld_kit::path_json::ImagePath;
use nand_model::{Cause, Pbn};
use strum::EnumCount;

impl StatusSnapshot {
    /// Returns the document of this snapshot.
    pub fn status(&self) -> Status {
        let (facts, flash) = (&*self.facts, &*self.flash);
        let shards = self.flash_by_shard.iter();
        Status {
            name: facts.name.clone(),
            pid: std::process::id(),
            state: self.state().into(),
            target: facts.target.clone(),
            transport: facts.transport.into(),
            image: ImagePath::new(&facts.image),
            scheme: facts.scheme.into(),
            profile: facts.profile.name.into(),
            size_bytes: facts.size,
            raw_bytes: facts.raw_bytes(),
            page_bytes: facts.geometry().page_bytes,
            latency: facts.latency.name().into(),
            verify: verify_name(facts.verify).into(),
            shards: shards.map(|flash| Shard::of(flash)).collect(),
            host_written_bytes: flash.host_written_bytes,
            metrics: facts.metrics.clone(),
            uptime_seconds: facts.started.elapsed().unwrap_or_default().as_secs_f64(),
            read_only_reason: self.read_only_reason(),
            failure: self.failure.clone(),
            writes_failing: self.writes_failing.map(WritesFailing::text),
            waiting_for: self.waiting_for.clone(),
            host_behind: self.host_behind(),
            recording: self.recording.clone(),
            paused: self.paused.map(Pause::of),
            recovery: self.recovery(),
            latency_bounds_ns: BOUNDS_NS,
            write_amplification: self.write_amplification(),
            snapshot: Snapshot::of(flash),
            host: self.host.ops,
            nand: Cause::ALL.map(|cause| Operations::of(flash.counters.of(cause))),
            energy_j: EnergyUsed::of(&facts.profile, |cause| *flash.counters.of(cause)),
            blocks: self.blocks(),
            wear: WearOfRated {
                wear: flash.wear.clone(),
                rated: facts.profile.endurance,
            },
            scheme_stats: SchemeStatus::of(flash, facts.was_clean),
            ram: flash.ram.iter().map(RamPart::of).collect(),
            faults_injected: self.injected,
            faults: self.faults.clone(),
            write_cache: flash.cache,
            shadows: self.shadows.clone(),
        }
    }

    /// Returns the recovery at this start, if the image was not clean.
    fn recovery(&self) -> Option<Recovery> {
        let was_cut = self.facts.power_cut;
        (!self.facts.was_clean).then(|| Recovery::of(&self.flash.scheme.mount, was_cut))
    }

    /// Returns the blocks that this start recovered, for ten minutes.
    pub fn marks(&self) -> &[(Pbn, BlockMark)] {
        let is_fresh = self
            .facts
            .started
            .elapsed()
            .is_ok_and(|age| age < MARKED_FOR);
        match is_fresh && !self.facts.was_clean {
            true => &self.flash.scheme.mount.marks,
            false => &[],
        }
    }

    /// Returns the blocks in the order of [`BlockState`]; the counts add up to all blocks.
    pub fn blocks(&self) -> [u32; BlockState::COUNT] {
        let b = &self.flash.scheme.blocks;
        [
            b.free,
            b.open,
            b.data,
            b.log,
            b.map,
            b.checkpoint,
            b.released,
            b.bad,
        ]
    }
}

impl Shard {
    fn of(flash: &FlashSnapshot) -> Shard {
        let ops = flash.counters.total();
        Shard {
            reads: ops.reads,
            programs: ops.programs,
            erases: ops.erases,
            free_blocks: flash.scheme.blocks.free,
            valid_pages: flash.scheme.valid_pages,
            erases_mean: flash.wear.mean,
            erase_credit: flash.erase_credit,
            write_cache_dirty_bytes: flash.cache.dirty_bytes,
        }
    }
}

impl Pause {
    fn of(pause: Paused) -> Pause {
        Pause {
            seconds_left: pause.left.as_secs_f64(),
            stepping: pause.stepping,
            runs: pause.runs,
        }
    }
}

impl Snapshot {
    fn of(flash: &FlashSnapshot) -> Snapshot {
        let stream = |stream: &StreamView| Stream {
            kind: stream.kind.name().into(),
            number: stream.number,
            pages: stream.pages,
            block: stream.block.map(Pbn::raw),
        };
        Snapshot {
            age_seconds: flash.taken.elapsed().as_secs_f64(),
            host_written_bytes: flash.host_written_bytes,
            emulated_ns: flash.emulated_ns,
            last_write: flash.last_write,
            streams: flash.streams.iter().map(stream).collect(),
        }
    }
}

impl SchemeStatus {
    fn of(flash: &FlashSnapshot, was_clean: bool) -> SchemeStatus {
        let stats = &flash.scheme;
        SchemeStatus {
            counters: SchemeCounters::of(stats),
            lookups_read: stats.lookups_read.total,
            hits_read: stats.lookups_read.hits,
            lookups_write: stats.lookups_write.total,
            hits_write: stats.lookups_write.hits,
            mapped_pages: stats.mapped_pages,
            valid_pages: stats.valid_pages,
            free_threshold_blocks: stats.free_threshold_blocks,
            erase_credit: flash.erase_credit,
            mount: Mount::of(&stats.mount, was_clean),
        }
    }
}

impl Mount {
    fn of(mount: &MountReport, clean: bool) -> Mount {
        let step = |(step, nanoseconds): &(&str, u64)| MountStep {
            step: (*step).into(),
            nanoseconds: *nanoseconds,
        };
        Mount {
            clean,
            pages_scanned: mount.pages_scanned,
            pages_discarded: mount.pages_discarded,
            steps: mount.steps.iter().map(step).collect(),
        }
    }
}

impl RamPart {
    fn of(entry: &RamEntry) -> RamPart {
        RamPart {
            part: entry.part.name().into(),
            entries: entry.entries,
            paper_bytes: entry.paper_bytes,
            allocated_bytes: entry.allocated_bytes,
        }
    }
}
