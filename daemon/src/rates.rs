//! What happened between two status answers of an instance, for `ftld top` and `ftld status
//! --watch`.

use serde_json::Value;

/// Kinds of requests, as the status names them.
const OPS: [&str; 5] = ["read", "write", "flush", "discard", "write_zeroes"];

/// Rates over the time between two status answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// Completed requests of all kinds per second.
    pub requests: f64,
    /// Pages moved by garbage collection per second.
    pub gc_pages: f64,
    /// Flash programs per page written; `None` if nothing was written.
    pub write_amplification: Option<f64>,
    /// The same by cause, largest first; causes without programs are left out.
    pub by_cause: Vec<(String, f64)>,
    /// Share of map lookups that the cache answered; `None` without lookups.
    pub hit_ratio: Option<f64>,
    /// Wall-clock time of reads and writes.
    pub latency: Option<Latency>,
}

/// Wall-clock times of requests, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99 % are not above it.
    pub p99: f64,
    /// 99.9 % are not above it.
    pub p999: f64,
}

impl Rates {
    /// Returns the rates between two answers of the same instance, the older one first.
    pub(crate) fn between(before: &Value, now: &Value) -> Rates {
        let grown = |path: &str| (number(now, path) - number(before, path)).max(0.0);
        let seconds = grown("/uptime_seconds").max(1e-3);
        let pages = grown("/host_written_bytes") / number(now, "/page_bytes").max(1.0);
        let causes = now["nand"].as_object().into_iter().flatten();
        let mut by_cause: Vec<_> = causes
            .map(|(cause, _)| (cause.clone(), grown(&format!("/nand/{cause}/programs"))))
            .filter(|(_, programs)| *programs > 0.0 && pages > 0.0)
            .map(|(cause, programs)| (cause, programs / pages))
            .collect();
        by_cause.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let lookups = |what: &str| {
            grown(&format!("/scheme_stats/{what}_read"))
                + grown(&format!("/scheme_stats/{what}_write"))
        };
        let of_ops = |what: &str| {
            let op = |op: &&str| grown(&format!("/host/{op}/{what}"));
            OPS.iter().map(op).sum::<f64>()
        };
        Rates {
            read_bytes: grown("/host/read/bytes") / seconds,
            written_bytes: grown("/host/write/bytes") / seconds,
            requests: of_ops("completed") / seconds,
            gc_pages: grown("/scheme_stats/gc_pages_moved") / seconds,
            write_amplification: (pages > 0.0).then(|| by_cause.iter().map(|(_, of)| of).sum()),
            by_cause,
            hit_ratio: ratio(lookups("hits"), lookups("lookups")),
            latency: Latency::between(before, now, &["read", "write"]),
        }
    }
}

impl Latency {
    /// Returns the times of these kinds of requests between two answers; `None` if none completed.
    pub(crate) fn between(before: &Value, now: &Value, ops: &[&str]) -> Option<Latency> {
        let bounds: Vec<f64> = floats(&now["latency_bounds_ns"]);
        let mut counts = vec![0.0; bounds.len() + 1];
        let mut sum = 0.0;
        for op in ops {
            let path = format!("/host/{op}/wall/counts");
            let of = |status: &Value| status.pointer(&path).map(floats).unwrap_or_default();
            let old = of(before);
            for (at, count) in of(now).into_iter().enumerate().take(counts.len()) {
                counts[at] += (count - old.get(at).copied().unwrap_or_default()).max(0.0);
            }
            let path = format!("/host/{op}/wall/sum_ns");
            sum += (number(now, &path) - number(before, &path)).max(0.0);
        }
        let all: f64 = counts.iter().sum();
        let at = |share| quantile(&bounds, &counts, share);
        (all > 0.0).then(|| Latency {
            mean: sum / all,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        })
    }
}

/// Returns the value below which this share of a histogram lies, as if a bucket were filled evenly.
/// Above the last bound, the last bound.
fn quantile(bounds: &[f64], counts: &[f64], share: f64) -> f64 {
    let mut left = share * counts.iter().sum::<f64>();
    let mut low = 0.0;
    for (count, high) in counts.iter().zip(bounds) {
        if left <= *count {
            return low + (high - low) * left / count.max(1.0);
        }
        (left, low) = (left - count, *high);
    }
    low
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

/// Returns the number at a path of the status; 0 if there is none.
pub(crate) fn number(status: &Value, path: &str) -> f64 {
    (status.pointer(path).and_then(Value::as_f64)).unwrap_or_default()
}

fn floats(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().into_iter().flatten();
    numbers.filter_map(Value::as_f64).collect()
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_what_happened_in_between() {
        let look = |seconds: f64, written: u64, moved: u64, slow: u64| {
            json!({
                "uptime_seconds": seconds, "page_bytes": 4096, "host_written_bytes": written,
                "latency_bounds_ns": [1000, 2000, 4000],
                "host": {
                    "write": {"completed": written / 4096, "bytes": written,
                        "wall": {"counts": [written / 4096 - slow, 0, slow, 0], "sum_ns": written}},
                    "read": {"completed": 0, "bytes": 0, "wall": {"counts": [0, 0, 0, 0], "sum_ns": 0}},
                },
                "nand": {"host": {"programs": written / 4096}, "gc": {"programs": moved}, "trim": {"programs": 7}},
                "scheme_stats": {"gc_pages_moved": moved, "hits_read": moved, "lookups_read": moved,
                    "hits_write": 2 * moved, "lookups_write": 3 * moved},
            })
        };
        let (before, now) = (
            look(10.0, 4096 * 100, 100, 0),
            look(12.0, 4096 * 300, 200, 2),
        );
        let rates = Rates::between(&before, &now);
        assert_eq!(rates.written_bytes, 4096.0 * 100.0);
        assert_eq!((rates.requests, rates.gc_pages), (100.0, 50.0));
        assert_eq!(rates.write_amplification, Some(1.5));
        let by_cause = [("host".to_owned(), 1.0), ("gc".to_owned(), 0.5)];
        assert_eq!(rates.by_cause, by_cause);
        assert_eq!(rates.hit_ratio, Some(0.75));
        let latency = rates.latency.unwrap();
        assert_eq!((latency.mean, latency.p99), (4096.0, 1000.0));
        assert_eq!(latency.p999.round(), 3800.0);
        assert_eq!(Rates::between(&now, &now), Rates::default());
    }

    #[test]
    fn a_quantile_above_the_last_bound_is_the_last_bound() {
        assert_eq!(quantile(&[1.0, 2.0], &[0.0, 0.0, 5.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], &[4.0, 0.0, 0.0], 0.5), 0.5);
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [1.0, 999.0, 1_500.0, 25_000_000.0, 2e9].map(show_ns),
            ["1.00 ns", "999 ns", "1.50 \u{b5}s", "25.0 ms", "2.00 s"]
        );
    }
}
