//! Status of an instance: one snapshot, and its JSON, for `/status`, the control socket and the
//! metrics. `commands/instances.rs` prints it.

use crate::config::{Latency, verify_name};
use crate::convert::to_f64;
use crate::inject::Kind;
use crate::path_json;
use crate::record::RecordingView;
use crate::service_counters::ServiceView;
use crate::transport::nbd::NbdSnapshot;
use crate::volume::write_cache::Reason;
use crate::volume::{
    BOUNDS_NS, ErrorClass, FlashSnapshot, HistogramView, HostView, Op, Paused, WritesFailing,
};
use nand_model::{Cause, Geometry, Pbn, Profile, Verify};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use strum::{EnumCount, VariantArray};

/// Constant properties of a running instance.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    /// Name of the instance: the `device` label.
    pub name: String,
    /// Source of requests.
    pub target: String,
    /// `ublk` or `nbd`.
    pub transport: &'static str,
    /// The image.
    pub image: PathBuf,
    /// The scheme's name.
    pub scheme: &'static str,
    /// The flash device.
    pub profile: Profile,
    /// Number of its chips.
    pub shards: u32,
    /// Device size in bytes.
    pub size: u64,
    /// Bytes that the scheme can map.
    pub logical_bytes: u64,
    /// URL of the metrics, if served.
    pub metrics: Option<String>,
    /// Whether the instance was started read-only.
    pub read_only: bool,
    /// Latency model of requests.
    pub latency: Latency,
    /// When reads check page data.
    pub verify: Verify,
    /// Start time.
    pub started: SystemTime,
    /// Duration of opening the image and mounting its scheme.
    pub opened_in: Duration,
    /// Whether the image had a clean shutdown.
    pub was_clean: bool,
}

/// State of an instance at one moment.
#[derive(Clone, Debug)]
pub struct StatusSnapshot {
    /// Constant properties.
    pub facts: Arc<InstanceInfo>,
    /// Host requests.
    pub host: HostView,
    /// Flash state, as last published: the sum over all shards.
    pub flash: Arc<FlashSnapshot>,
    /// Flash state of each shard.
    pub flash_by_shard: Vec<Arc<FlashSnapshot>>,
    /// Counters of the NBD server; all zero without one.
    pub nbd: NbdSnapshot,
    /// Requests to the daemon itself.
    pub service: ServiceView,
    /// Injected faults, in the order of [`Kind`].
    pub injected: [u64; Kind::COUNT],
    /// Faults of requests in force, one phrase each.
    pub faults: Vec<String>,
    /// Permanent failure, if any.
    pub failure: Option<String>,
    /// Reason why the host's storage currently refuses writes.
    pub writes_failing: Option<WritesFailing>,
    /// The pause, if any: requests wait as intended.
    pub paused: Option<Paused>,
    /// The recording, if there is one.
    pub recording: Option<RecordingView>,
    /// Processes that a requested stop waits for; empty without a stop.
    pub waiting_for: Vec<String>,
}

impl InstanceInfo {
    /// Returns the data bytes of all pages of all chips.
    pub fn raw_bytes(&self) -> u64 {
        self.geometry().data_bytes() * u64::from(self.shards)
    }

    /// Returns the pages of all chips.
    pub fn pages(&self) -> u64 {
        self.geometry().pages() * u64::from(self.shards)
    }

    /// Returns the blocks of all chips.
    pub fn blocks(&self) -> u32 {
        self.geometry().blocks * self.shards
    }

    /// Returns the dies of all chips.
    pub fn dies(&self) -> u32 {
        self.geometry().dies() * self.shards
    }

    /// Returns the geometry of each chip.
    pub fn geometry(&self) -> &Geometry {
        &self.profile.geometry
    }

    /// Returns `slc`, `mlc`, `tlc` or `qlc`, as in metric labels.
    pub fn cell(&self) -> &'static str {
        self.profile.cell()
    }
}

impl StatusSnapshot {
    /// Returns the reason why writes are refused; empty if they are not.
    pub fn read_only_reason(&self) -> String {
        let asked = self
            .facts
            .read_only
            .then(|| "requested by --read-only".to_owned());
        let worn = || self.flash.scheme.read_only.map(str::to_owned);
        self.failure
            .clone()
            .or(asked)
            .or_else(worn)
            .unwrap_or_default()
    }

    /// Returns the state in one word.
    pub fn state(&self) -> &'static str {
        match self.writes_failing {
            _ if self.failure.is_some() => "failed",
            Some(failing) => failing.state(),
            None if !self.waiting_for.is_empty() => "stopping",
            None if self.paused.is_some() => "paused",
            None if !self.read_only_reason().is_empty() => "read-only",
            None => "serving",
        }
    }

    /// Returns what to say about a host that is too slow for `--latency emulate`: reads and writes
    /// took over 10 % longer than on the emulated flash, since the start.
    pub fn host_behind(&self) -> Option<String> {
        if self.facts.latency != Latency::Emulate {
            return None;
        }
        let (reads, writes) = (self.host.of(Op::Read), self.host.of(Op::Write));
        let took = to_f64(reads.wall.sum_ns + writes.wall.sum_ns);
        let flash = to_f64(reads.emulated.sum_ns + writes.emulated.sum_ns);
        (flash > 0.0 && took > flash * 1.1).then(|| {
            let percent = (took / flash - 1.0) * 100.0;
            format!(
                "requests took {percent:.0} % longer than on the emulated flash: the host is too slow for this \
                 load, or requests were paused"
            )
        })
    }

    /// Returns the flash programs per page written by the host, since the image was opened. `None`
    /// before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let page = u64::from(self.facts.geometry().page_bytes);
        let written = self.flash.host_written_bytes;
        let programmed = self.flash.counters.total().programs * page;
        (written > 0).then(|| to_f64(programmed) / to_f64(written))
    }

    /// Returns the snapshot as JSON. Sizes are in bytes, times in seconds.
    pub fn json(&self) -> Value {
        let InstanceInfo {
            name,
            target,
            transport,
            image,
            scheme,
            profile,
            size,
            metrics,
            ..
        } = &*self.facts;
        let uptime = self.facts.started.elapsed().unwrap_or_default();
        let mut status = json!({
            "name": name, "pid": std::process::id(), "state": self.state(), "target": target, "transport": transport,
            "scheme": scheme, "profile": profile.name, "size_bytes": size,
            "latency": self.facts.latency.name(), "verify": verify_name(self.facts.verify),
            "page_bytes": self.facts.geometry().page_bytes,
            "raw_bytes": self.facts.raw_bytes(), "shards": self.shards_json(), "host_written_bytes": self.flash.host_written_bytes, "metrics": metrics, "uptime_seconds": uptime.as_secs_f64(),
            "read_only_reason": self.read_only_reason(), "failure": self.failure,
            "writes_failing": self.writes_failing.map(WritesFailing::text), "waiting_for": self.waiting_for,
            "host_behind": self.host_behind(), "recording": self.recording.as_ref().map(RecordingView::json),
            "paused": self.paused.map(|pause| json!({"seconds_left": pause.left.as_secs_f64(), "stepping": pause.stepping, "runs": pause.runs})),
            "latency_bounds_ns": BOUNDS_NS,
            "write_amplification": self.write_amplification(),
            "snapshot": {
                "age_seconds": self.flash.taken.elapsed().as_secs_f64(), "host_written_bytes": self.flash.host_written_bytes,
                "emulated_ns": self.flash.emulated_ns,
                "last_write": self.flash.last_write.map(|write| json!({"offset": write.offset, "bytes": write.bytes})),
                "streams": self.streams_json(),
            },
            "host": self.host_json(), "nand": self.nand_json(), "blocks": self.blocks_json(), "wear": self.wear_json(),
            "scheme_stats": self.scheme_json(), "ram": self.ram_json(), "faults_injected": self.injected_json(), "faults": self.faults,
            "write_cache": self.cache_json(),
        });
        path_json::put(&mut status, "image", image);
        status
    }

    fn cache_json(&self) -> Value {
        let cache = &self.flash.cache;
        let reason = |reason: &Reason| {
            let bytes = cache.written_back_bytes[*reason as usize];
            (reason.name().to_owned(), json!(bytes))
        };
        let written_back: serde_json::Map<_, _> = Reason::VARIANTS.iter().map(reason).collect();
        let cut = cache.last_cut;
        json!({
            "capacity_bytes": cache.capacity_bytes, "dirty_bytes": cache.dirty_bytes,
            "read_hit_bytes": cache.read_hit_bytes, "written_back_bytes": written_back,
            "failed_write_backs": cache.failed_write_backs, "model": cache.model.name(),
            "power_loss_protection": cache.protected, "write_through": cache.write_through,
            "last_cut_units": {"new": cut.new, "torn": cut.torn, "old": cut.old, "lost": cut.lost},
        })
    }

    /// Returns the shards in short; a device of one chip has one.
    fn shards_json(&self) -> Value {
        let shard = |flash: &Arc<FlashSnapshot>| {
            let ops = flash.counters.total();
            json!({
                "reads": ops.reads, "programs": ops.programs, "erases": ops.erases,
                "free_blocks": flash.scheme.blocks.free, "valid_pages": flash.scheme.valid_pages,
                "erases_mean": flash.wear.mean, "erase_credit": flash.erase_credit,
                "write_cache_dirty_bytes": flash.cache.dirty_bytes,
            })
        };
        self.flash_by_shard.iter().map(shard).collect()
    }

    fn injected_json(&self) -> Value {
        let count = |kind: Kind| (kind.name().to_owned(), json!(self.injected[kind.index()]));
        Value::Object(Kind::VARIANTS.iter().copied().map(count).collect())
    }

    fn host_json(&self) -> Value {
        let op = |op: &Op| {
            let view = self.host.of(*op);
            let errors = ErrorClass::VARIANTS
                .iter()
                .map(|&class| (class.name().to_owned(), json!(view.errors[class.index()])));
            let histogram = |h: &HistogramView| json!({"counts": h.counts, "sum_ns": h.sum_ns});
            let value = json!({
                "wall": histogram(&view.wall), "emulated": histogram(&view.emulated),
                "completed": view.completed, "delayed": view.delayed, "bytes": view.bytes, "in_flight": view.in_flight,
                "unaligned": view.unaligned, "errors": Value::Object(errors.collect()),
            });
            (op.name().to_owned(), value)
        };
        Value::Object(Op::VARIANTS.iter().map(op).collect())
    }

    fn nand_json(&self) -> Value {
        let cause = |cause: &Cause| {
            let ops = self.flash.counters.of(*cause);
            let value = json!({
                "reads": ops.reads, "partial_reads": ops.partial_reads, "programs": ops.programs,
                "oob_programs": ops.oob_programs, "erases": ops.erases,
            });
            (cause.name().to_owned(), value)
        };
        Value::Object(Cause::ALL.iter().map(cause).collect())
    }

    fn blocks_json(&self) -> Value {
        Value::Object(
            self.blocks()
                .into_iter()
                .map(|(state, count)| (state.to_owned(), json!(count)))
                .collect(),
        )
    }

    /// Returns the blocks per state; the counts add up to all blocks.
    pub fn blocks(&self) -> [(&'static str, u32); 8] {
        let b = &self.flash.scheme.blocks;
        [
            ("free", b.free),
            ("open", b.open),
            ("data", b.data),
            ("log", b.log),
            ("map", b.map),
            ("checkpoint", b.checkpoint),
            ("released", b.released),
            ("bad", b.bad),
        ]
    }

    fn wear_json(&self) -> Value {
        let wear = &self.flash.wear;
        json!({
            "min": wear.min, "mean": wear.mean, "max": wear.max, "stddev": wear.stddev,
            "rated": self.facts.profile.endurance, "bad_factory": wear.bad_factory, "bad_grown": wear.bad_grown,
        })
    }

    fn scheme_json(&self) -> Value {
        let s = &self.flash.scheme;
        let steps: Vec<_> = s
            .mount
            .steps
            .iter()
            .map(|(step, ns)| json!({"step": step, "nanoseconds": ns}))
            .collect();
        json!({
            "mapped_pages": s.mapped_pages, "valid_pages": s.valid_pages, "free_threshold_blocks": s.free_threshold_blocks,
            "checkpoints": s.checkpoints, "erase_credit": self.flash.erase_credit,
            "gc_runs": s.gc_runs, "gc_pages_moved": s.gc_pages_moved, "wear_moves": s.wear_moves, "refreshes": s.refreshes,
            "switch_merges": s.switch_merges, "partial_merges": s.partial_merges, "full_merges": s.full_merges,
            "converts": s.converts, "convert_map_pages": s.convert_map_pages,
            "lookups_read": s.lookups_read.total, "hits_read": s.lookups_read.hits,
            "lookups_write": s.lookups_write.total, "hits_write": s.lookups_write.hits,
            "map_lookup_steps": s.map_lookup_steps,
            "mount": {
                "clean": self.facts.was_clean, "pages_scanned": s.mount.pages_scanned,
                "pages_discarded": s.mount.pages_discarded, "steps": steps,
            },
        })
    }

    fn streams_json(&self) -> Value {
        let stream = |of: &ftl_core::StreamView| {
            json!({
                "kind": of.kind.name(), "number": of.number, "pages": of.pages, "block": of.block.map(Pbn::raw),
            })
        };
        self.flash.streams.iter().map(stream).collect()
    }

    fn ram_json(&self) -> Value {
        let entry = |e: &ftl_core::RamEntry| {
            json!({
                "part": e.part.name(), "entries": e.entries, "paper_bytes": e.paper_bytes, "allocated_bytes": e.allocated_bytes,
            })
        };
        self.flash.ram.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fresh_status::fresh;
    use crate::volume::write_cache::{CacheView, CutCounts, Model};

    #[test]
    fn every_count_has_its_own_name() {
        let mut view = fresh();
        let flash = Arc::make_mut(&mut view.flash);
        flash.cache = CacheView {
            capacity_bytes: 1,
            dirty_bytes: 2,
            read_hit_bytes: 3,
            written_back_bytes: [4, 5, 6, 7, 8, 9],
            failed_write_backs: 10,
            model: Model::Ordered,
            protected: false,
            write_through: true,
            last_cut: CutCounts {
                new: 11,
                torn: 12,
                old: 13,
                lost: 14,
            },
        };
        (flash.wear.min, flash.wear.max, flash.wear.mean) = (1, 3, 2.0);
        (flash.wear.bad_factory, flash.wear.bad_grown) = (4, 5);
        let scheme = &mut flash.scheme;
        (scheme.gc_runs, scheme.gc_pages_moved) = (1, 2);
        (scheme.wear_moves, scheme.refreshes) = (3, 4);
        (scheme.switch_merges, scheme.partial_merges) = (5, 6);
        (scheme.full_merges, scheme.checkpoints) = (7, 8);
        (scheme.converts, scheme.convert_map_pages) = (9, 10);
        let lookups = |total, hits| ftl_core::Lookups { total, hits };
        scheme.lookups_read = lookups(14, 13);
        scheme.lookups_write = lookups(12, 11);
        let write = &mut view.host.ops[Op::Write.index()];
        (write.completed, write.delayed, write.bytes) = (1, 2, 3);
        (write.in_flight, write.unaligned) = (4, 5);
        (write.wall.sum_ns, write.emulated.sum_ns) = (6, 7);
        let status = view.json();
        let expected = json!({
            "capacity_bytes": 1, "dirty_bytes": 2, "read_hit_bytes": 3, "failed_write_backs": 10,
            "written_back_bytes":
                {"age": 4, "pressure": 5, "flush": 6, "trim": 7, "shutdown": 8, "mount": 9},
            "model": "ordered", "power_loss_protection": false, "write_through": true,
            "last_cut_units": {"new": 11, "torn": 12, "old": 13, "lost": 14},
        });
        assert_eq!(status["write_cache"], expected);
        let is = |part: &str, expected: &[(&str, u64)]| {
            for (key, value) in expected {
                let found = status.pointer(part).and_then(|part| part[key].as_f64());
                assert_eq!(found, Some(to_f64(*value)), "{part}: {key}");
            }
        };
        is(
            "/wear",
            &[
                ("min", 1),
                ("mean", 2),
                ("max", 3),
                ("bad_factory", 4),
                ("bad_grown", 5),
            ],
        );
        let stats = [
            "gc_runs",
            "gc_pages_moved",
            "wear_moves",
            "refreshes",
            "switch_merges",
            "partial_merges",
            "full_merges",
            "checkpoints",
            "converts",
            "convert_map_pages",
            "hits_write",
            "lookups_write",
            "hits_read",
            "lookups_read",
        ];
        let numbered: Vec<_> = stats.into_iter().zip(1..).collect();
        is("/scheme_stats", &numbered);
        let host = ["completed", "delayed", "bytes", "in_flight", "unaligned"];
        let numbered: Vec<_> = host.into_iter().zip(1..).collect();
        is("/host/write", &numbered);
        is("/host/write/wall", &[("sum_ns", 6)]);
        is("/host/write/emulated", &[("sum_ns", 7)]);
    }

    #[test]
    fn a_host_that_is_slower_than_the_emulated_flash_is_named_and_no_other() {
        let behind = |latency, wall_ns, emulated_ns| {
            let mut view = fresh();
            Arc::make_mut(&mut view.facts).latency = latency;
            for op in [Op::Read, Op::Write] {
                let counters = &mut view.host.ops[op.index()];
                counters.wall.sum_ns = wall_ns;
                counters.emulated.sum_ns = emulated_ns;
            }
            view.json()["host_behind"].as_str().map(str::to_owned)
        };
        let said = behind(Latency::Emulate, 150_000, 100_000).unwrap();
        assert!(said.starts_with("requests took 50 % longer"), "{said}");
        assert_eq!(behind(Latency::Emulate, 109_000, 100_000), None);
        assert_eq!(behind(Latency::Emulate, 100_000, 0), None);
        assert_eq!(behind(Latency::None, 150_000, 100_000), None);
    }
}
