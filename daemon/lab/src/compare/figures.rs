//! The figures of a workload, made of its cells.

use super::axis::{Axis, short, time};
use super::cells::Cell;
use super::chart::{Panel, Part, Series, chart};
use super::curves::{Curve, Curves, curves};
use crate::replay::{Quantity, Response, Row, estimate};
use crate::statistics::Estimate;
use ftl_core::RamPart;
use ftld_kit::convert::to_f64;
use nand_model::Cause;

/// Lowest share in a plot of response times; also the share of the maximum of all requests.
const RAREST: f64 = 1e-5;
/// Shortest time in such a plot, us.
const SHORTEST: f64 = 0.1;

type Side = fn(&Row) -> Option<&Response>;

/// Returns the response times of writes.
fn writes(row: &Row) -> Option<&Response> {
    row.response_ns.write.as_ref()
}

/// Returns the response times of reads.
fn reads(row: &Row) -> Option<&Response> {
    row.response_ns.read.as_ref()
}

/// Returns the figures. `id` is unique on the page.
pub(super) fn figures(id: &str, cells: &[Cell<'_>], labels: &[String]) -> String {
    let mut text = write_amplification(cells, labels);
    for (name, side) in [("Write", writes as Side), ("Read", reads as Side)] {
        text += &responses(name, side, cells, labels);
        text += &tails(&format!("{id}-{name}"), name, side, cells, labels);
    }
    text += &erases(id, cells, labels);
    let hits = estimates(cells, |row| row.map_cache.hit_ratio);
    let hits = Panel::shares("share of all lookups", hits);
    text += &chart("Mapping cache: hits", labels, &Vec::from_iter(hits));
    text + &ram(cells, labels)
}

fn estimates(cells: &[Cell<'_>], of: impl Fn(&Row) -> Option<f64>) -> Vec<Option<Estimate>> {
    let values = |cell: &Cell<'_>| {
        cell.runs
            .iter()
            .filter_map(|row| of(row))
            .collect::<Vec<_>>()
    };
    cells
        .iter()
        .map(|cell| Estimate::of(&values(cell)))
        .collect()
}

fn write_amplification(cells: &[Cell<'_>], labels: &[String]) -> String {
    let mean = |cell: &Cell<'_>, cause: Cause| {
        let of = |row: &Row| row.write_amplification.by_cause.get(cause.name()).copied();
        let values: Vec<f64> = cell.runs.iter().map(|row| of(row).unwrap_or(0.0)).collect();
        Estimate::of(&values).map_or(0.0, |estimate| estimate.mean)
    };
    let part = |cause| Part {
        cause,
        values: cells.iter().map(|cell| mean(cell, cause)).collect(),
    };
    let parts = Cause::ALL.into_iter().map(part);
    let used = |part: &Part| part.values.iter().any(|value| *value > 0.0);
    let totals = estimates(cells, |row| row.write_amplification.total);
    let unit = "flash programs per page that the host wrote";
    let panels = Panel::parts(unit, short, parts.filter(used).collect(), totals);
    chart("Write amplification by cause", labels, &panels)
}

fn responses(name: &str, side: Side, cells: &[Cell<'_>], labels: &[String]) -> String {
    let us = |ns: f64| ns / 1e3;
    let series = |name, value: fn(&Response) -> f64| Series {
        name,
        values: estimates(cells, |row| Some(us(value(side(row)?)))),
    };
    let all = vec![
        series("mean", |of| of.mean),
        series("p99", |of| to_f64(of.p99)),
        series("p99.9", |of| to_f64(of.p999)),
        series("maximum", |of| to_f64(of.max)),
    ];
    let panel = Panel::points("emulated time", time, all);
    chart(
        &format!("{name} response time"),
        labels,
        &Vec::from_iter(panel),
    )
}

fn tails(id: &str, name: &str, side: Side, cells: &[Cell<'_>], labels: &[String]) -> String {
    let curve = |(cell, label): (&Cell<'_>, _)| {
        let quantiles = side(cell.first())?.quantiles.iter();
        let points = quantiles.map(|&(share, ns)| ((to_f64(ns) / 1e3).max(SHORTEST), 1.0 - share));
        Some(Curve {
            label,
            points: points.collect(),
        })
    };
    let found: Vec<Curve<'_>> = cells
        .iter()
        .zip(labels.iter().map(String::as_str))
        .filter_map(curve)
        .collect();
    curves(&Curves {
        id: format!("{id}-tails"),
        title: format!("{name} response time: share of the responses above x"),
        show: time,
        shares: Axis::Log {
            low: RAREST,
            high: 1.0,
            zero: false,
        },
        curves: found,
    })
}

fn erases(id: &str, cells: &[Cell<'_>], labels: &[String]) -> String {
    let of = |head, value: Quantity| {
        let values = cells
            .iter()
            .map(|cell| estimate(&cell.runs, value))
            .collect();
        Panel::points(head, short, vec![Series { name: head, values }])
    };
    let panels = [
        of("mean per block", |row| Some(row.erases.mean)),
        of("standard deviation", |row| Some(row.erases.stddev)),
        of("maximum", |row| Some(f64::from(row.erases.max))),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    let curve = |(cell, label): (&Cell<'_>, _)| Curve {
        label,
        points: spread(cell.first()),
    };
    let found = cells
        .iter()
        .zip(labels.iter().map(String::as_str))
        .map(curve);
    chart("Erases", labels, &panels)
        + &curves(&Curves {
            id: format!("{id}-erases"),
            title: "Erases: share of the blocks with at most x erases".into(),
            show: short,
            shares: Axis::Linear { high: 1.0 },
            curves: found.collect(),
        })
}

/// Returns the distribution of erases as a curve: an erase count, and the share of the blocks with
/// at most that many erases.
fn spread(row: &Row) -> Vec<(f64, f64)> {
    let classes = &row.erases.distribution;
    let blocks: f64 = classes.iter().map(|class| to_f64(class.1)).sum();
    let width = classes.get(1).map_or(1, |second| second.0 - classes[0].0);
    let mut below = 0.0;
    let mut points: Vec<_> = classes
        .first()
        .map(|class| (f64::from(class.0), 0.0))
        .into_iter()
        .collect();
    for &(from, count) in classes {
        below += to_f64(count);
        let last = from.saturating_add(width - 1).min(row.erases.max);
        points.push((f64::from(last), below / blocks.max(1.0)));
    }
    points
}

/// Kinds of structures in RAM.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The map of the whole device, and changes that are not on flash yet.
    Map,
    /// Copies of mapping entries, and the write buffer.
    Cache,
    /// State of blocks and streams.
    Blocks,
    /// Buffers for copies and checkpoints: nearly equal under every scheme.
    Buffers,
}

impl Kind {
    /// Returns the kind of a row's structure; an unknown structure belongs to the map.
    fn of(name: &str) -> Kind {
        use RamPart::*;
        match RamPart::find(name) {
            Some(MapCache | Ctpa | WriteBuffer) => Kind::Cache,
            Some(Bitmaps | Gc | Blocks | Placement | Slices) => Kind::Blocks,
            Some(Buffers | Work) => Kind::Buffers,
            Some(
                Map | PageOffsets | Pending | PendingIndexes | Directory | Flags | Mapped | Trims,
            )
            | None => Kind::Map,
        }
    }
}

fn ram(cells: &[Cell<'_>], labels: &[String]) -> String {
    let kib = |bytes: u64| to_f64(bytes) / 1024.0;
    let of = |row: &Row, kind| {
        let parts = row
            .ram
            .parts
            .iter()
            .filter(|part| Kind::of(&part.part) == kind);
        parts.map(|part| kib(part.allocated_bytes)).sum::<f64>()
    };
    let panel = |head, values| Panel::points(head, kibibytes, vec![Series { name: head, values }]);
    let kind = |head, kind| panel(head, estimates(cells, |row| Some(of(row, kind))));
    let panels = [
        panel(
            "paper",
            estimates(cells, |row| Some(kib(row.ram.paper_bytes))),
        ),
        kind("mapping tables", Kind::Map),
        kind("caches", Kind::Cache),
        kind("block tables", Kind::Blocks),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() {
        return String::new();
    }
    let buffers = || cells.iter().map(|cell| of(cell.first(), Kind::Buffers));
    let (least, most) = (
        buffers().fold(f64::INFINITY, f64::min),
        buffers().fold(0.0, f64::max),
    );
    let sizes = match kibibytes(least) == kibibytes(most) {
        true => kibibytes(least),
        false => format!("{} to {}", kibibytes(least), kibibytes(most)),
    };
    chart(
        "RAM: the paper's count, and the allocated tables",
        labels,
        &panels,
    ) + &format!(
        "<p class=\"note\">Buffers for copies, checkpoints and work in progress are left out: {sizes} per run.</p>\n"
    )
}

fn kibibytes(kib: f64) -> String {
    match kib {
        kib if kib >= 1024.0 * 1024.0 => short(kib / 1024.0 / 1024.0) + " GiB",
        kib if kib >= 1024.0 => short(kib / 1024.0) + " MiB",
        0.0 => "0".into(),
        kib => short(kib) + " KiB",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{self, Job};
    use ftld_device::method::Precondition;
    use std::collections::BTreeSet;

    #[test]
    fn the_structures_of_every_scheme_are_found_by_their_names() {
        for scheme in ftl_core::schemes::all() {
            let mut job = Job {
                workload: "uniform:requests=1".into(),
                scheme: Some(scheme.name.into()),
                size: Some("8MiB".into()),
                ..Job::default()
            };
            job.method.precondition = Some(Precondition::New);
            let row = replay::run(&job, &mut |_, _| ()).unwrap();
            for part in row.ram.parts {
                assert!(RamPart::find(&part.part).is_some(), "{}", part.part);
            }
        }
        let named: BTreeSet<_> = RamPart::ALL.map(RamPart::name).into();
        assert_eq!(named.len(), RamPart::ALL.len());
    }
}
