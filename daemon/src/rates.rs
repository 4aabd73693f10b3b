//! Rates between two status answers of an instance, for `ftld top` and `ftld status --watch`.

use ftld_device::status::Status;
use ftld_device::volume::{HistogramView, Op};
use ftld_kit::convert::to_f64;
use nand_model::Cause;
use serde::Serialize;

/// Rates over the time between two status answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Bytes read per second.
    pub(crate) read_bytes: f64,
    /// Bytes written per second.
    pub(crate) written_bytes: f64,
    /// Completed requests of all kinds per second.
    pub(crate) requests: f64,
    /// Pages moved by garbage collection per second.
    pub(crate) gc_pages: f64,
    /// Flash programs per page written; `None` if nothing was written.
    pub(crate) write_amplification: Option<f64>,
    /// Write amplification by cause, largest first; causes without programs are left out.
    pub(crate) by_cause: Vec<(&'static str, f64)>,
    /// Share of map lookups that the cache answered; `None` without lookups.
    pub(crate) hit_ratio: Option<f64>,
    /// Wall-clock time of reads and writes.
    pub(crate) latency: Option<Latency>,
}

/// Wall-clock times of requests, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Mean.
    pub(crate) mean: f64,
    /// Median.
    pub(crate) p50: f64,
    /// 99 % are not above it.
    pub(crate) p99: f64,
    /// 99.9 % are not above it.
    pub(crate) p999: f64,
}

impl Rates {
    /// Returns the rates between two answers of the same instance, the older one first.
    pub(crate) fn between(before: &Status, now: &Status) -> Rates {
        let grown = |of: fn(&Status) -> u64| to_f64(of(now).saturating_sub(of(before)));
        let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-3);
        let pages = grown(|of| of.host_written_bytes) / f64::from(now.page_bytes.max(1));
        let programs = |cause: Cause| {
            let [before, now] = [before, now].map(|of| of.nand[cause.index()].programs);
            (cause, to_f64(now.saturating_sub(before)))
        };
        let by_cause = Cause::ALL.into_iter().map(programs);
        let mut by_cause: Vec<_> = by_cause
            .filter(|(_, programs)| *programs > 0.0 && pages > 0.0)
            .map(|(cause, programs)| (cause.name(), programs / pages))
            .collect();
        by_cause.sort_by(|(a, ratio_a), (b, ratio_b)| ratio_b.total_cmp(ratio_a).then(a.cmp(b)));
        let hits = grown(|of| of.scheme_stats.hits_read + of.scheme_stats.hits_write);
        let lookups = grown(|of| of.scheme_stats.lookups_read + of.scheme_stats.lookups_write);
        let completed = |of: &Status| of.host.iter().map(|requests| requests.completed).sum();
        Rates {
            read_bytes: grown(|of| of.requests(Op::Read).bytes) / seconds,
            written_bytes: grown(|of| of.requests(Op::Write).bytes) / seconds,
            requests: grown(completed) / seconds,
            gc_pages: grown(|of| of.scheme_stats.counters.gc_pages_moved) / seconds,
            write_amplification: (pages > 0.0).then(|| by_cause.iter().map(|(_, of)| of).sum()),
            by_cause,
            hit_ratio: (lookups > 0.0).then(|| hits / lookups),
            latency: Latency::between(before, now, &[Op::Read, Op::Write]),
        }
    }

    /// Returns the rates since the start.
    pub(crate) fn since_start(now: &Status) -> Rates {
        Rates::between(&Status::default(), now)
    }
}

impl Latency {
    /// Returns the times of these kinds of requests between two answers; `None` if none completed.
    pub(crate) fn between(before: &Status, now: &Status, ops: &[Op]) -> Option<Latency> {
        let mut times = HistogramView::default();
        for op in ops {
            let [before, now] = [before, now].map(|of| &of.requests(*op).wall);
            times.add(&now.since(before));
        }
        let at = |share| times.quantile(share);
        Some(Latency {
            mean: to_f64(times.sum_ns) / to_f64(times.count().max(1)),
            p50: at(0.5)?,
            p99: at(0.99)?,
            p999: at(0.999)?,
        })
    }

    /// Returns the times of one kind of requests since the start; `None` if none completed.
    pub(crate) fn since_start(now: &Status, op: Op) -> Option<Latency> {
        Latency::between(&Status::default(), now, &[op])
    }
}

/// A time with three digits.
pub(crate) fn show_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "\u{b5}s"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftld_device::volume::BOUNDS_NS;

    #[test]
    fn rates_are_what_happened_in_between() {
        let look = |seconds: f64, written: u64, moved: u64, slow: u64| {
            let mut status = Status {
                uptime_seconds: seconds,
                page_bytes: 4096,
                host_written_bytes: written,
                latency_bounds_ns: BOUNDS_NS,
                ..Status::default()
            };
            let write = &mut status.host[Op::Write.index()];
            (write.completed, write.bytes) = (written / 4096, written);
            write.wall.counts[0] = written / 4096 - slow;
            (write.wall.counts[2], write.wall.sum_ns) = (slow, written);
            status.nand[Cause::Host.index()].programs = written / 4096;
            status.nand[Cause::Gc.index()].programs = moved;
            status.nand[Cause::Trim.index()].programs = 7;
            let stats = &mut status.scheme_stats;
            stats.counters.gc_pages_moved = moved;
            (stats.hits_read, stats.lookups_read) = (moved, moved);
            (stats.hits_write, stats.lookups_write) = (2 * moved, 3 * moved);
            status
        };
        let (before, now) = (
            look(10.0, 4096 * 100, 100, 0),
            look(12.0, 4096 * 300, 200, 2),
        );
        let rates = Rates::between(&before, &now);
        assert_eq!(rates.written_bytes, 4096.0 * 100.0);
        assert_eq!((rates.requests, rates.gc_pages), (100.0, 50.0));
        assert_eq!(rates.write_amplification, Some(1.5));
        let by_cause = [("host", 1.0), ("gc", 0.5)];
        assert_eq!(rates.by_cause, by_cause);
        assert_eq!(rates.hit_ratio, Some(0.75));
        let latency = rates.latency.unwrap();
        assert_eq!((latency.mean, latency.p99), (4096.0, 25_000.0));
        assert_eq!(latency.p999.round(), 95_000.0);
        assert_eq!(Rates::between(&now, &now), Rates::default());
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [1.0, 999.0, 1_500.0, 25_000_000.0, 2e9].map(show_ns),
            ["1.00 ns", "999 ns", "1.50 \u{b5}s", "25.0 ms", "2.00 s"]
        );
    }
}
