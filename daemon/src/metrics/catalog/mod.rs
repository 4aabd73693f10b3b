//! Catalogue of all metrics: name, kind, labels, help, and source of the values. Names of counters
//! that rows and status share are in [`ftld_device::counters`]. The list of docs/METRICS.md is
//! generated from the catalogue; a test fails when the list is stale.
//!
//! Invariants: prefix `ftld_`, base units (seconds, bytes, ratios from 0 to 1), `_total` on
//! counters. A counter never decreases while the daemon lives. A label with a closed list of values
//! has all of them from the first scrape on. They start at 0, so that the first event is seen as an
//! increase. Every family has the label `device`, the instance's name; it is not repeated here.

mod cache;
mod device;
mod durability;
mod flash;
mod gc;
mod host;
mod nbd;
mod recording;
mod scheme;
mod service;
mod shadow;
mod shards;
mod space;
mod wear;

use ftl_core::{EventKind, SchemeStats};
use ftld_device::counters::{Operations, SchemeCounters};
use ftld_device::inject::Kind as Injection;
use ftld_device::status::StatusSnapshot;
use ftld_device::volume::{ErrorClass, HistogramView, Op, OpView};
use ftld_kit::convert::to_f64;
use nand_model::{Cause, Fault, OpCounts};
use std::sync::LazyLock;
use strum::{IntoStaticStr, VariantNames};

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    /// Only increases, from 0 at the daemon's start.
    Counter,
    /// A state.
    Gauge,
    /// Samples in fixed buckets.
    Histogram,
}

/// One label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    /// Its name.
    pub(crate) name: &'static str,
    /// All its values; empty if they are facts of the instance.
    pub(crate) values: &'static [&'static str],
}

/// One metric family.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its kind.
    pub(crate) kind: Kind,
    /// Labels besides `device`.
    pub(crate) labels: &'static [Label],
    /// One sentence.
    pub(crate) help: &'static str,
    /// Source of the values.
    pub(super) source: Source,
}

/// Source of a family's values.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// One value.
    Value(fn(&StatusSnapshot) -> f64),
    /// A counter of the scheme.
    Scheme(fn(&SchemeStats) -> u64),
    /// A counter of the flash, by cause.
    Cause(fn(&OpCounts) -> u64),
    /// A value for each value of the only label, in its order.
    Each(fn(&StatusSnapshot) -> Vec<f64>),
    /// Durations of host requests, by operation.
    Times(fn(&OpView) -> &HistogramView),
    /// Values with labels.
    Labelled(fn(&StatusSnapshot, &mut dyn Sink)),
}

impl Source {
    /// Gives the values to their receiver.
    pub(super) fn fill(self, labels: &[Label], view: &StatusSnapshot, to: &mut dyn Sink) {
        let mut each = |values: Vec<f64>| {
            let names = labels[0].values.iter();
            names
                .zip(values)
                .for_each(|(name, value)| to.value(&[name], value));
        };
        match self {
            Source::Value(of) => to.value(&[], of(view)),
            Source::Scheme(of) => to.value(&[], to_f64(of(&view.flash.scheme))),
            Source::Cause(of) => each(by_cause(view, |ops| to_f64(of(ops)))),
            Source::Each(of) => each(of(view)),
            Source::Times(of) => {
                for (op, view) in OPS.iter().zip(&view.host.ops) {
                    to.histogram(&[op], of(view));
                }
            }
            Source::Labelled(fill) => fill(view, to),
        }
    }
}

const fn gauge(name: &'static str, help: &'static str, of: fn(&StatusSnapshot) -> f64) -> Family {
    family(name, Kind::Gauge, &[], help, Source::Value(of))
}

const fn counter(name: &'static str, help: &'static str, of: fn(&StatusSnapshot) -> f64) -> Family {
    family(name, Kind::Counter, &[], help, Source::Value(of))
}

const fn gauges(
    name: &'static str,
    labels: &'static [Label],
    help: &'static str,
    of: fn(&StatusSnapshot) -> Vec<f64>,
) -> Family {
    family(name, Kind::Gauge, labels, help, Source::Each(of))
}

const fn counters(
    name: &'static str,
    labels: &'static [Label],
    help: &'static str,
    of: fn(&StatusSnapshot) -> Vec<f64>,
) -> Family {
    family(name, Kind::Counter, labels, help, Source::Each(of))
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [Label],
    help: &'static str,
    source: Source,
) -> Family {
    Family {
        name,
        kind,
        labels,
        help,
        source,
    }
}

/// Receiver of a family's values; label values come in the order of its labels.
pub(super) trait Sink {
    /// Adds the value of a counter or a gauge.
    fn value(&mut self, labels: &[&str], value: f64);
    /// Adds a histogram of durations.
    fn histogram(&mut self, labels: &[&str], view: &HistogramView);
    /// Adds a histogram: samples per class, not cumulative, with one class above all bounds.
    fn classes(&mut self, labels: &[&str], bounds: &[f64], counts: &[u64], sum: f64);
}

const fn label(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values }
}

/// Lists the names of all values of a core enum, for a label.
macro_rules! names {
    ($all:expr) => {{
        let mut names = [""; $all.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = $all[i].name();
            i += 1;
        }
        names
    }};
}

const CAUSES: [&str; Cause::COUNT] = names!(Cause::ALL);
const OPS: &[&str] = Op::VARIANTS;
const ERRNOS: &[&str] = ErrorClass::VARIANTS;
const FAULTS: [&str; Fault::COUNT] = names!(Fault::ALL);
const INJECTIONS: &[&str] = Injection::VARIANTS;
const EVENTS: [&str; EventKind::COUNT] = names!(EventKind::ALL);
/// Operations with an address, which may cover a part of a page.
const ADDRESSED: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes];

const BY_CAUSE: &[Label] = &[label("cause", &CAUSES)];
const BY_OP: &[Label] = &[label("op", OPS)];
const BY_ADDRESSED: &[Label] = &[label("op", &["read", "write", "discard", "write_zeroes"])];
const BY_EVENT: &[Label] = &[label("event", &EVENTS)];

/// Every family, in output order.
pub(crate) static CATALOG: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let operations = Operations::METRICS.iter();
    let operations: Vec<_> = operations
        .map(|of| {
            family(
                of.metric,
                Kind::Counter,
                BY_CAUSE,
                of.help,
                Source::Cause(of.of),
            )
        })
        .collect();
    let scheme = SchemeCounters::METRICS.iter();
    let scheme: Vec<_> = scheme
        .map(|of| {
            family(
                of.metric,
                Kind::Counter,
                &[],
                of.help,
                Source::Scheme(of.of),
            )
        })
        .collect();
    [
        device::FAMILIES,
        host::FAMILIES,
        cache::FAMILIES,
        &operations,
        flash::FAMILIES,
        space::FAMILIES,
        gc::FAMILIES,
        &scheme,
        wear::FAMILIES,
        shards::FAMILIES,
        shadow::FAMILIES,
        scheme::FAMILIES,
        durability::FAMILIES,
        nbd::FAMILIES,
        recording::FAMILIES,
        service::FAMILIES,
    ]
    .concat()
});

fn by_cause(view: &StatusSnapshot, value: impl Fn(&OpCounts) -> f64) -> Vec<f64> {
    let causes = Cause::ALL.iter();
    causes
        .map(|cause| value(view.flash.counters.of(*cause)))
        .collect()
}

fn list<const N: usize>(counts: [u64; N]) -> Vec<f64> {
    counts.map(to_f64).to_vec()
}

fn page_bytes(view: &StatusSnapshot) -> f64 {
    f64::from(view.facts.geometry().page_bytes)
}

fn seconds(ns: u64) -> f64 {
    to_f64(ns) / 1e9
}
