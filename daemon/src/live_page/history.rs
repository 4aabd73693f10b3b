//! The last ten minutes second by second, so that the plots of the live page are full when it is
//! opened. They go on from those of the daemon before (`kept.rs`), with a gap in between.
//!
//! Invariant: a sample is made from published snapshots and the lock-free host counters. It takes
//! no request lock.

use super::PageSource;
use super::kept::{Kept, unix_ms};
use ftl_core::Lookups;
use ftld_device::status::StatusSnapshot;
use ftld_device::volume::{BOUNDS_NS, HistogramView, Op};
use ftld_kit::convert::{millis, to_u64, to_usize};
use nand_model::Cause;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::MissedTickBehavior;

/// Number of samples kept: ten minutes.
pub(super) const KEPT: usize = 600;
/// Time for which samples are kept, ms.
const KEPT_MS: u64 = 600_000;
/// Most restarts that are kept.
const RESTARTS_MAX: usize = 100;
/// Seconds between two files of the history.
const STORED_EVERY: u32 = 5;
/// Interval between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// Operations whose latency is kept.
pub(super) const OPS: [Op; 3] = [Op::Read, Op::Write, Op::Flush];
pub(super) const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Adds a sample every second until the runtime ends.
pub(crate) async fn record(observed: Arc<dyn PageSource>) {
    let mut due = tokio::time::interval(EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = 0u32;
    loop {
        due.tick().await;
        let (page, view) = (observed.page(), observed.view());
        let mut history = page.history.lock();
        history.add(view, Instant::now());
        samples += 1;
        if samples % STORED_EVERY == 2
            && let Some(keeper) = &page.keeper
        {
            let kept = history.kept();
            drop(history);
            // If the file before is not written yet, the next one will do.
            drop(keeper.keep(kept));
        }
    }
}

/// Adds what happened since the last sample, and leaves the history to the next daemon.
pub(crate) fn leave(observed: &dyn PageSource) {
    let page = observed.page();
    if let Some(keeper) = &page.keeper {
        let mut history = page.history.lock();
        history.add(observed.view(), Instant::now());
        keeper.keep_last(&history.kept());
    }
}

/// Start of a daemon on the history of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restart {
    /// When, from the first snapshot of the history on, ms.
    pub(super) at_ms: u64,
    /// How the daemon before ended: an index of [`ENDED`].
    pub(super) cause: u8,
}

/// How a daemon ends.
const ENDED: [&str; 3] = ["clean", "unclean", "power cut"];

/// Changes between two snapshots. Counts per second fit 32 bits; larger ones saturate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Time from the first snapshot to the second one of this sample, ms.
    pub(super) at_ms: u64,
    /// Time over which host requests were counted, ms.
    pub(super) host_ms: u32,
    /// Time over which flash operations were counted, ms: a snapshot is up to 100 ms old.
    pub(super) flash_ms: u32,
    /// Advance of the emulated time.
    pub(super) emulated_ns: u64,
    /// Bytes that the host wrote, at the time of the flash snapshot.
    pub(super) written_bytes: u64,
    /// Bytes that the host wrote since the image was opened.
    pub(super) written_total_bytes: u64,
    /// Flash programs since the image was opened.
    pub(super) programs_total: u64,
    /// Flash programs in the order of [`Cause::ALL`].
    pub(super) programs: [u32; Cause::COUNT],
    pub(super) gc_runs: u32,
    pub(super) lookups: [LookupSample; 2],
    /// In the order of [`OPS`].
    pub(super) ops: [OpSample; OPS.len()],
}

/// Mapping lookups between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LookupSample {
    pub(super) total: u32,
    pub(super) hits: u32,
}

/// Requests of one operation between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OpSample {
    pub(super) completed: u32,
    pub(super) bytes: u64,
    pub(super) wall: [u32; BUCKETS],
    pub(super) emulated: [u32; BUCKETS],
}

fn grown(before: u64, now: u64) -> u32 {
    u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX)
}

impl LookupSample {
    fn between(before: Lookups, now: Lookups) -> LookupSample {
        LookupSample {
            total: grown(before.total, now.total),
            hits: grown(before.hits, now.hits),
        }
    }
}

impl OpSample {
    fn between(before: &StatusSnapshot, now: &StatusSnapshot, op: Op) -> OpSample {
        let (before, now) = (before.host.of(op), now.host.of(op));
        let counts = |before: &HistogramView, now: &HistogramView| {
            std::array::from_fn(|bucket| grown(before.counts[bucket], now.counts[bucket]))
        };
        OpSample {
            completed: grown(before.completed, now.completed),
            bytes: now.bytes.saturating_sub(before.bytes),
            wall: counts(&before.wall, &now.wall),
            emulated: counts(&before.emulated, &now.emulated),
        }
    }
}

/// The newest samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    /// Number of the next sample.
    next: u64,
    /// Wall clock of the time 0 of all samples, ms since 1970.
    origin_ms: u64,
    /// Time at which this daemon began, ms.
    began_ms: u64,
    began: Option<Instant>,
    restarts: Vec<Restart>,
    last: Option<(StatusSnapshot, Instant)>,
    /// JSON of all samples, and the number of the next sample then.
    all: Option<(u64, Arc<str>)>,
}

impl History {
    /// Returns the history of a daemon that begins.
    pub(super) fn new(now: SystemTime) -> History {
        History {
            origin_ms: unix_ms(now),
            ..History::default()
        }
    }

    /// Continues the history of the daemon before, which ended as `ended` says. It lasts as long as
    /// the wall clock says; if that was set back, no time has passed.
    pub(super) fn resume(&mut self, left: Kept, ended: &str) {
        let last_ms = left.samples.last().map_or(0, |sample| sample.at_ms);
        self.began_ms = self.origin_ms.saturating_sub(left.origin_ms).max(last_ms);
        self.origin_ms = self.origin_ms.saturating_sub(self.began_ms);
        (self.next, self.restarts) = (left.next, left.restarts);
        let cause = ENDED.iter().position(|name| *name == ended);
        self.restarts.push(Restart {
            at_ms: self.began_ms,
            cause: cause.and_then(|at| u8::try_from(at).ok()).unwrap_or(1),
        });
        self.samples = left.samples.into();
        self.forget(self.began_ms);
    }

    /// Forgets what is older than ten minutes.
    fn forget(&mut self, now_ms: u64) {
        let is_old = |at_ms: u64| now_ms.saturating_sub(at_ms) >= KEPT_MS;
        let old = self.samples.partition_point(|sample| is_old(sample.at_ms));
        self.samples.drain(..old);
        self.restarts.retain(|restart| !is_old(restart.at_ms));
        let extra = self.restarts.len().saturating_sub(RESTARTS_MAX);
        self.restarts.drain(..extra);
    }

    /// Returns what is stored.
    pub(super) fn kept(&self) -> Kept {
        Kept {
            origin_ms: self.origin_ms,
            next: self.next,
            restarts: self.restarts.clone(),
            samples: self.samples.iter().copied().collect(),
        }
    }

    /// Adds what happened since the last snapshot.
    pub(super) fn add(&mut self, view: StatusSnapshot, at: Instant) {
        let began = *self.began.get_or_insert(at);
        let Some((before, earlier)) = self.last.replace((view, at)) else {
            self.samples
                .reserve_exact(KEPT.saturating_sub(self.samples.len()));
            return;
        };
        let Some((now, _)) = &self.last else { return };
        let (flash, old) = (&now.flash, &before.flash);
        let short = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let programs = |cause: Cause| {
            let (before, now) = (old.counters.of(cause), flash.counters.of(cause));
            grown(before.programs, now.programs)
        };
        let sample = Sample {
            at_ms: self.began_ms + millis(at.saturating_duration_since(began)),
            host_ms: short(at.saturating_duration_since(earlier)),
            flash_ms: short(flash.taken.saturating_duration_since(old.taken)),
            emulated_ns: flash.emulated_ns.saturating_sub(old.emulated_ns),
            written_bytes: (flash.host_written_bytes).saturating_sub(old.host_written_bytes),
            written_total_bytes: flash.host_written_bytes,
            programs_total: flash.counters.total().programs,
            programs: Cause::ALL.map(programs),
            gc_runs: grown(old.scheme.gc_runs, flash.scheme.gc_runs),
            lookups: [
                LookupSample::between(old.scheme.lookups_read, flash.scheme.lookups_read),
                LookupSample::between(old.scheme.lookups_write, flash.scheme.lookups_write),
            ],
            ops: OPS.map(|op| OpSample::between(&before, now, op)),
        };
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.forget(sample.at_ms);
        self.samples.push_back(sample);
        self.next += 1;
    }

    /// Returns the samples from number `since` on as JSON, as columns. A column of zeros is empty.
    ///
    /// The text of all samples is kept until the next sample, so that any number of pages that open
    /// cost one text per second.
    pub(crate) fn json(&mut self, since: u64) -> Arc<str> {
        let first = self.next - to_u64(self.samples.len());
        if since > first {
            return self.text(since - first).into();
        }
        match &self.all {
            Some((next, text)) if *next == self.next => text.clone(),
            _ => {
                let text: Arc<str> = self.text(0).into();
                self.all = Some((self.next, text.clone()));
                text
            }
        }
    }

    /// Returns the JSON of all but the `skipped` oldest samples. It is written as text, because a
    /// tree of 50,000 values takes several times as long.
    fn text(&self, skipped: u64) -> String {
        let skipped = to_usize(skipped).min(self.samples.len());
        let samples = || self.samples.range(skipped..);
        let column = |value: &dyn Fn(&Sample) -> u64| match samples().all(|of| value(of) == 0) {
            true => "[]".to_owned(),
            false => {
                list(samples().map(|sample| itoa::Buffer::new().format(value(sample)).to_owned()))
            }
        };
        let buckets = |value: &dyn Fn(&Sample) -> &[u32; BUCKETS]| {
            list((0..BUCKETS).map(|bucket| column(&|sample| value(sample)[bucket].into())))
        };
        let lookups = |at: usize| {
            object([
                ("total", column(&|sample| sample.lookups[at].total.into())),
                ("hits", column(&|sample| sample.lookups[at].hits.into())),
            ])
        };
        let op = |at: usize| {
            let columns = object([
                (
                    "completed",
                    column(&|sample| sample.ops[at].completed.into()),
                ),
                ("bytes", column(&|sample| sample.ops[at].bytes)),
                ("wall", buckets(&|sample| &sample.ops[at].wall)),
                ("emulated", buckets(&|sample| &sample.ops[at].emulated)),
            ]);
            (OPS[at].name(), columns)
        };
        let restart = |Restart { at_ms, cause }: &Restart| {
            let cause = ENDED.get(usize::from(*cause)).unwrap_or(&ENDED[1]);
            format!("[{at_ms},\"{cause}\"]")
        };
        let cause = |cause: Cause| {
            let programs = column(&|sample| sample.programs[cause as usize].into());
            (cause.name(), programs)
        };
        object([
            ("next", self.next.to_string()),
            ("samples", samples().count().to_string()),
            ("restarts", list(self.restarts.iter().map(restart))),
            ("at_ms", column(&|sample| sample.at_ms)),
            ("host_ms", column(&|sample| sample.host_ms.into())),
            ("flash_ms", column(&|sample| sample.flash_ms.into())),
            ("emulated_ns", column(&|sample| sample.emulated_ns)),
            ("written_bytes", column(&|sample| sample.written_bytes)),
            (
                "written_total_bytes",
                column(&|sample| sample.written_total_bytes),
            ),
            ("programs_total", column(&|sample| sample.programs_total)),
            ("programs", object(Cause::ALL.map(cause))),
            ("gc_runs", column(&|sample| sample.gc_runs.into())),
            (
                "lookups",
                object([("read", lookups(0)), ("write", lookups(1))]),
            ),
            ("host", object((0..OPS.len()).map(op))),
        ])
    }
}

/// Returns a JSON array of these texts.
fn list(items: impl IntoIterator<Item = String>) -> String {
    let mut text = String::from("[");
    for item in items {
        if text.len() > 1 {
            text.push(',');
        }
        text += &item;
    }
    text + "]"
}

/// Returns a JSON object of these keys and texts.
fn object<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let entries = entries
        .into_iter()
        .map(|(key, text)| format!("\"{key}\":{text}"));
    let list = list(entries);
    format!("{{{}}}", &list[1..list.len() - 1])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ftld_device::fresh_status::fresh;
    use serde_json::{Value, json};

    pub(in crate::live_page) fn read(history: &mut History, since: u64) -> Value {
        serde_json::from_str(&history.json(since)).unwrap()
    }

    /// Returns the instance `n` seconds after its start: each second is like the others.
    pub(in crate::live_page) fn after(n: u64, began: Instant) -> StatusSnapshot {
        let mut view = fresh();
        let flash = Arc::make_mut(&mut view.flash);
        flash.taken = began + EVERY * n as u32;
        flash.host_written_bytes = n << 20;
        flash.emulated_ns = n * 15_000_000_000;
        flash.scheme.gc_runs = 3 * n;
        flash.scheme.lookups_read = Lookups {
            total: 8 * n,
            hits: 7 * n,
        };
        flash.scheme.lookups_write = Lookups {
            total: 10 * n,
            hits: 9 * n,
        };
        let write = &mut view.host.ops[Op::Write.index()];
        (write.completed, write.bytes) = (256 * n, n << 20);
        write.wall.counts[2] = 256 * n;
        write.emulated.counts[3] = 255 * n;
        view
    }

    #[test]
    fn a_second_is_what_happened_between_two_snapshots() {
        let (mut history, began) = (History::default(), Instant::now());
        assert_eq!(read(&mut history, 0)["samples"], 0);
        for n in 0..=3 {
            history.add(after(n, began), began + EVERY * n as u32);
        }
        let answer = read(&mut history, 0);
        assert_eq!(
            (&answer["next"], &answer["samples"]),
            (&json!(3), &json!(3))
        );
        assert_eq!(answer["at_ms"], json!([1000, 2000, 3000]));
        assert_eq!(answer["flash_ms"], json!([1000, 1000, 1000]));
        assert_eq!(
            answer["written_total_bytes"],
            json!([1 << 20, 2 << 20, 3 << 20])
        );
        assert_eq!(answer["emulated_ns"][2], 15_000_000_000u64);
        assert_eq!(answer["host_ms"], json!([1000, 1000, 1000]));
        assert_eq!(answer["written_bytes"], json!([1 << 20, 1 << 20, 1 << 20]));
        assert_eq!(answer["gc_runs"], json!([3, 3, 3]));
        let lookups = json!({
            "read": {"total": [8, 8, 8], "hits": [7, 7, 7]},
            "write": {"total": [10, 10, 10], "hits": [9, 9, 9]},
        });
        assert_eq!(answer["lookups"], lookups);
        let write = &answer["host"]["write"];
        assert_eq!(write["completed"], json!([256, 256, 256]));
        assert_eq!(write["bytes"], json!([1 << 20, 1 << 20, 1 << 20]));
        let of = |which: &str, bucket: usize| write[which][bucket].clone();
        assert_eq!(
            (of("wall", 2), of("wall", 3)),
            (json!([256, 256, 256]), json!([]))
        );
        let emulated = (of("emulated", 2), of("emulated", 3));
        assert_eq!(emulated, (json!([]), json!([255, 255, 255])));
        assert_eq!(answer["host"]["flush"]["completed"], json!([]), "zeros");
        assert_eq!(read(&mut history, 2)["at_ms"], json!([3000]));
        assert_eq!(read(&mut history, 3)["samples"], 0);
    }

    /// A snapshot is older than the look at it, by more or less: each figure has its own time.
    #[test]
    fn host_and_flash_are_counted_over_their_own_times() {
        let (mut history, began) = (History::default(), Instant::now());
        for (taken, at) in [(0, 50), (900, 1050), (2100, 2150)] {
            let mut view = after(at, began);
            Arc::make_mut(&mut view.flash).taken = began + Duration::from_millis(taken);
            history.add(view, began + Duration::from_millis(at));
        }
        let answer = read(&mut history, 0);
        assert_eq!(answer["at_ms"], json!([1000, 2100]));
        assert_eq!(answer["host_ms"], json!([1000, 1100]));
        assert_eq!(answer["flash_ms"], json!([900, 1200]));
    }

    #[test]
    fn ten_minutes_are_kept_in_a_ring_of_a_fixed_size() {
        let (mut history, began) = (History::default(), Instant::now());
        for n in 0..=KEPT as u64 + 7 {
            history.add(after(n, began), began + EVERY * n as u32);
        }
        let answer = read(&mut history, 0);
        assert_eq!(
            (&answer["next"], &answer["samples"]),
            (&json!(KEPT + 7), &json!(KEPT))
        );
        assert_eq!(answer["at_ms"][0], 8000);
        assert!(history.samples.capacity() <= KEPT + 1);
        let bytes = KEPT * size_of::<Sample>();
        assert_eq!(bytes, 350_400, "0.35 MB, whatever the device");
        assert!(answer.to_string().len() < 200_000);
    }

    #[test]
    fn pages_that_open_in_the_same_second_share_one_text() {
        let (mut history, began) = (History::default(), Instant::now());
        for n in 0..=KEPT as u64 {
            history.add(after(n, began), began + EVERY * n as u32);
        }
        let text = history.json(0);
        assert!(Arc::ptr_eq(&text, &history.json(0)));
        history.add(after(KEPT as u64 + 1, began), began + EVERY * 601);
        assert_eq!(read(&mut history, 0)["next"], KEPT + 1);
        assert_eq!(read(&mut history, 1), read(&mut history, 0));
    }
}
