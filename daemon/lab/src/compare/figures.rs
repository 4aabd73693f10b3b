//! The figures of a workload, made of its cells.

use super::axis::{short, time};
use super::cells::Cell;
use super::chart::{Panel, Part, Series, chart};
use super::curves::{Curve, Curves, Shares, curves};
use crate::replay::{Quantity, Response, Row, estimate};
use crate::statistics::Estimate;
use ftl_core::RamPart;
use ftld_kit::convert::to_f64;
use nand_model::Cause;

/// Shortest time in a plot of response times, us.
const SHORTEST: f64 = 0.1;

/// The response times of one kind of request.
pub(super) type Side = fn(&Row) -> Option<&Response>;

/// Returns the response times of writes.
pub(super) fn writes(row: &Row) -> Option<&Response> {
    row.response_ns.write.as_ref()
}

/// Returns the response times of reads.
pub(super) fn reads(row: &Row) -> Option<&Response> {
    row.response_ns.read.as_ref()
}

/// Returns the figures.
pub(super) fn figures(cells: &[Cell<'_>], labels: &[String]) -> String {
    let mut text = write_amplification(cells, labels);
    for (name, side) in [("Write", writes as Side), ("Read", reads as Side)] {
        text += &responses(name, side, cells, labels);
        text += &tails(name, side, cells, labels);
    }
    text += &erases(cells, labels);
    let hits = estimates(cells, |row| row.map_cache.hit_ratio);
    let hits = Panel::shares("share of all lookups", hits);
    text += &chart("Mapping cache: hits", labels, &Vec::from_iter(hits));
    let (ram, note) = ram(cells, labels);
    format!("<div class=\"figures\">\n{text}{ram}</div>\n{note}")
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

fn tails(name: &str, side: Side, cells: &[Cell<'_>], labels: &[String]) -> String {
    let curve = |(cell, label): (&Cell<'_>, _)| {
        let quantiles = side(cell.first())?.quantiles.iter();
        let points = quantiles.map(|&(share, ns)| (share, (to_f64(ns) / 1e3).max(SHORTEST)));
        Some(Curve {
            label,
            points: points.collect(),
        })
    };
    let labelled = cells.iter().zip(labels.iter().map(String::as_str));
    curves(&Curves {
        title: format!("{name} response time: distribution"),
        unit: "emulated time that this share of the requests does not exceed",
        show: time,
        shares: Shares::Tail,
        curves: labelled.filter_map(curve).collect(),
    })
}

fn erases(cells: &[Cell<'_>], labels: &[String]) -> String {
    let of = |head, value: Quantity| {
        let values = cells
            .iter()
            .map(|cell| estimate(&cell.runs, value))
            .collect();
        Panel::points(head, short, vec![Series { name: head, values }])
    };
    let panels = [
        of("mean per block", |row| Some(row.erases.mean)),
        of("maximum", |row| Some(f64::from(row.erases.max))),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    let curve = |(cell, label): (&Cell<'_>, _)| Curve {
        label,
        points: spread(cell.first()),
    };
    let labelled = cells.iter().zip(labels.iter().map(String::as_str));
    chart("Erases", labels, &panels)
        + &curves(&Curves {
            title: "Erases: distribution".into(),
            unit: "erases that this share of the blocks does not exceed",
            show: short,
            shares: Shares::Linear,
            curves: labelled.map(curve).collect(),
        })
}

/// Returns the distribution of erases as a curve: a share of the blocks, and the erases that they
/// do not exceed.
fn spread(row: &Row) -> Vec<(f64, f64)> {
    let classes = &row.erases.distribution;
    let blocks: f64 = classes.iter().map(|class| to_f64(class.1)).sum();
    let width = classes.get(1).map_or(1, |second| second.0 - classes[0].0);
    let mut below = 0.0;
    let mut points: Vec<_> = classes
        .first()
        .map(|class| (0.0, f64::from(class.0)))
        .into_iter()
        .collect();
    for &(from, count) in classes {
        below += to_f64(count);
        let last = from.saturating_add(width - 1).min(row.erases.max);
        points.push((below / blocks.max(1.0), f64::from(last)));
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

/// Returns the figures of RAM, and a note on what they leave out.
fn ram(cells: &[Cell<'_>], labels: &[String]) -> (String, String) {
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
            "the paper's count",
            estimates(cells, |row| Some(kib(row.ram.paper_bytes))),
        ),
        kind("mapping tables", Kind::Map),
        kind("caches", Kind::Cache),
        kind("block tables", Kind::Blocks),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() {
        return (String::new(), String::new());
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
    let note = format!(
        "<p class=\"note\">RAM is without buffers for copies, checkpoints and work in progress: {sizes} per run.</p>\n"
    );
    (chart("RAM", labels, &panels), note)
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
