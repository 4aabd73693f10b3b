//! What an instance tells about itself: one picture for `/status`, `ftld status` and the metrics.

use crate::config::Latency;
use crate::convert::to_f64;
use crate::inject::Kind;
use crate::transport::nbd::NbdSnapshot;
use crate::volume::{
    BOUNDS_NS, BlockMap, ErrorClass, EventsView, FlashSnapshot, HistogramView, HostView, Op,
    Paused, WritesFailing,
};
use nand_model::{Cause, Geometry, Profile};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use strum::{EnumCount, VariantArray};

/// Facts that do not change while an instance runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the instance: the `device` label.
    pub name: String,
    /// Where requests come from.
    pub target: String,
    /// `ublk` or `nbd`.
    pub transport: &'static str,
    /// The image.
    pub image: PathBuf,
    /// The scheme's name.
    pub scheme: &'static str,
    /// The flash device.
    pub profile: Profile,
    /// Bytes the host sees.
    pub size: u64,
    /// Bytes the scheme could map.
    pub logical_bytes: u64,
    /// URL of the metrics, if they are served.
    pub metrics: Option<String>,
    /// Whether writes were refused from the start.
    pub read_only: bool,
    /// How long requests take.
    pub latency: Latency,
    /// When it started.
    pub started: SystemTime,
    /// How long opening the image and mounting its scheme took.
    pub opened_in: Duration,
    /// Whether the image had been shut down cleanly before.
    pub was_clean: bool,
}

/// An instance at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// What does not change.
    pub facts: Arc<Facts>,
    /// Host requests.
    pub host: HostView,
    /// The flash side, as last published.
    pub flash: Arc<FlashSnapshot>,
    /// What the NBD server counts; all zero where there is none.
    pub nbd: NbdSnapshot,
    /// What was injected so far, in the order of [`Kind`].
    pub injected: [u64; Kind::COUNT],
    /// What went wrong for good, if anything did.
    pub trouble: Option<String>,
    /// Why the host's storage refuses writes, while it does.
    pub writes_failing: Option<WritesFailing>,
    /// The pause, if there is one: requests wait, and that is as it should be.
    pub paused: Option<Paused>,
    /// Who holds up a stop that was asked for; empty if none was.
    pub waiting_for: Vec<String>,
}

/// Where views come from.
pub trait Observed: Send + Sync {
    /// The instance now; never waits for a request.
    fn view(&self) -> View;

    /// Somebody looks: for some seconds, blocks and events are published.
    fn watch(&self);

    /// The blocks as last published; never waits for a request.
    fn blocks(&self) -> Arc<BlockMap>;

    /// Of the published events from number `from` on, the newest, at most `most`; never waits for a
    /// request.
    fn events(&self, from: u64, most: usize) -> EventsView;
}

impl Facts {
    /// Shape of the flash.
    pub fn geometry(&self) -> &Geometry {
        &self.profile.geometry
    }

    /// `slc` or `mlc`, as in metric labels.
    pub fn cell(&self) -> &'static str {
        if self.profile.is_mlc() { "mlc" } else { "slc" }
    }
}

impl View {
    /// Why writes are refused: empty while they are not.
    pub fn read_only_reason(&self) -> String {
        let asked = self.facts.read_only.then(|| "asked for".to_owned());
        let worn = || self.flash.scheme.read_only.map(str::to_owned);
        self.trouble
            .clone()
            .or(asked)
            .or_else(worn)
            .unwrap_or_default()
    }

    /// One word.
    pub fn state(&self) -> &'static str {
        match self.writes_failing {
            _ if self.trouble.is_some() => "failed",
            Some(failing) => failing.state(),
            None if !self.waiting_for.is_empty() => "stopping",
            None if self.paused.is_some() => "paused",
            None if !self.read_only_reason().is_empty() => "read-only",
            None => "serving",
        }
    }

    /// Flash programs per page the host wrote, since the image was opened; `None` before the first
    /// write.
    pub fn write_amplification(&self) -> Option<f64> {
        let page = u64::from(self.facts.geometry().page_bytes);
        let written = self.flash.host_written_bytes;
        let programmed = self.flash.counters.total().programs * page;
        (written > 0).then(|| to_f64(programmed) / to_f64(written))
    }

    /// The picture as JSON. Sizes in bytes, times in seconds.
    pub fn json(&self) -> Value {
        let Facts {
            name,
            target,
            transport,
            image,
            scheme,
            profile,
            size,
            metrics,
            latency,
            ..
        } = &*self.facts;
        let uptime = self
            .facts
            .started
            .elapsed()
            .unwrap_or_default()
            .as_secs_f64();
        json!({
            "name": name, "pid": std::process::id(), "state": self.state(), "target": target, "transport": transport,
            "image": image, "scheme": scheme, "profile": profile.name, "size_bytes": size,
            "latency": latency.name(),
            "page_bytes": self.facts.geometry().page_bytes,
            "raw_bytes": self.facts.geometry().data_bytes(), "flash_written_bytes": self.flash.host_written_bytes, "metrics": metrics, "uptime_seconds": uptime,
            "read_only_reason": self.read_only_reason(), "trouble": self.trouble,
            "writes_failing": self.writes_failing.map(WritesFailing::text), "waiting_for": self.waiting_for,
            "paused": self.paused.map(|pause| json!({"seconds_left": pause.left.as_secs_f64(), "stepping": pause.stepping})),
            "latency_bounds_ns": BOUNDS_NS,
            "write_amplification": self.write_amplification(),
            "snapshot": {
                "age_seconds": self.flash.taken.elapsed().as_secs_f64(), "host_written_bytes": self.flash.host_written_bytes,
            },
            "host": self.host_json(), "nand": self.nand_json(), "blocks": self.blocks_json(), "wear": self.wear_json(),
            "scheme_stats": self.scheme_json(), "ram": self.ram_json(), "faults_injected": self.injected_json(),
        })
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
                "completed": view.completed, "held": view.held, "bytes": view.bytes, "in_flight": view.in_flight,
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

    /// Where the blocks are; the counts add up to all blocks.
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
            "mapped_pages": s.mapped_pages, "valid_pages": s.valid_pages, "reserve_blocks": s.reserve_blocks,
            "checkpoints": s.checkpoints, "erase_credit": self.flash.erase_credit,
            "gc_runs": s.gc_runs, "gc_pages_moved": s.gc_pages_moved, "wear_moves": s.wear_moves, "refreshes": s.refreshes,
            "converts": s.converts, "convert_map_pages": s.convert_map_pages,
            "map_cache_hits": s.map_cache_hits, "map_cache_misses": s.map_cache_misses,
            "map_lookup_steps": s.map_lookup_steps,
            "mount": {
                "clean": self.facts.was_clean, "pages_scanned": s.mount.pages_scanned,
                "pages_discarded": s.mount.pages_discarded, "steps": steps,
            },
        })
    }

    fn ram_json(&self) -> Value {
        let entry = |e: &ftl_core::RamEntry| {
            json!({
                "part": e.part, "entries": e.entries, "paper_bytes": e.paper_bytes, "real_bytes": e.real_bytes,
            })
        };
        self.flash.ram.iter().map(entry).collect()
    }
}
