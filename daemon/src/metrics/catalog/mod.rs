//! Catalogue of all metrics: name, kind, labels, help, and source of the values. The only place in
//! the code that names a metric. The list of docs/METRICS.md is generated from it; a test fails when
//! the list is stale.
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
mod shards;
mod space;
mod wear;

use crate::convert::to_f64;
use crate::inject::Kind as Injection;
use crate::status::StatusSnapshot;
use crate::volume::{ErrorClass, HistogramView, Op};
use ftl_core::{EventKind, EventTotals};
use nand_model::{Cause, Fault, OpCounts};
use strum::{IntoStaticStr, VariantNames};

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Only increases, from 0 at the daemon's start.
    Counter,
    /// A state.
    Gauge,
    /// Samples in fixed buckets.
    Histogram,
}

impl Kind {
    /// Returns the lower-case name, as in the text format.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One label.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All its values; empty if they are facts of the instance.
    pub values: &'static [&'static str],
}

/// One metric family.
#[derive(Clone, Copy)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Labels besides `device`.
    pub labels: &'static [Label],
    /// One sentence.
    pub help: &'static str,
    /// Fills in the values.
    pub(super) fill: fn(&StatusSnapshot, &mut dyn Sink),
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
const BY_STATE: &[Label] = &[label(
    "state",
    &[
        "free",
        "open",
        "data",
        "log",
        "map",
        "checkpoint",
        "released",
        "bad",
    ],
)];

/// The families of every part, in output order.
const PARTS: [&[Family]; 13] = [
    device::FAMILIES,
    host::FAMILIES,
    cache::FAMILIES,
    flash::FAMILIES,
    space::FAMILIES,
    gc::FAMILIES,
    wear::FAMILIES,
    shards::FAMILIES,
    scheme::FAMILIES,
    durability::FAMILIES,
    nbd::FAMILIES,
    recording::FAMILIES,
    service::FAMILIES,
];

/// Every family, in output order.
pub const CATALOG: &[Family] = &joined::<{ count() }>();

const fn count() -> usize {
    let (mut count, mut part) = (0, 0);
    while part < PARTS.len() {
        count += PARTS[part].len();
        part += 1;
    }
    count
}

const fn joined<const N: usize>() -> [Family; N] {
    let mut all = [PARTS[0][0]; N];
    let (mut next, mut part) = (0, 0);
    while part < PARTS.len() {
        let mut i = 0;
        while i < PARTS[part].len() {
            all[next] = PARTS[part][i];
            next += 1;
            i += 1;
        }
        part += 1;
    }
    assert!(next == N, "the catalogue has each family once");
    all
}

fn events(view: &StatusSnapshot, to: &mut dyn Sink, value: impl Fn(&EventTotals) -> f64) {
    EVENTS
        .iter()
        .zip(&view.flash.events)
        .for_each(|(event, totals)| to.value(&[event], value(totals)));
}

fn by_cause(view: &StatusSnapshot, to: &mut dyn Sink, value: impl Fn(&OpCounts) -> f64) {
    Cause::ALL
        .iter()
        .for_each(|&cause| to.value(&[cause.name()], value(view.flash.counters.of(cause))));
}

fn page_bytes(view: &StatusSnapshot) -> f64 {
    f64::from(view.facts.geometry().page_bytes)
}

fn seconds(ns: u64) -> f64 {
    to_f64(ns) / 1e9
}
