//! Distributions as small plots of one scale: each shows one curve before all others in grey, so
//! that no colour has to tell them apart.

use super::axis::{Axis, percent};
use super::svg::{Anchor, Area, label, path, svg};
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::quote::escaped;

const COLUMNS: usize = 4;
const LEFT: f64 = 58.0;
const GAP: f64 = 16.0;
const WIDTH: f64 = 248.0;
const HEIGHT: f64 = 110.0;
const HEAD: f64 = 22.0;
const FOOT: f64 = 26.0;
/// Labels of an axis.
const LABELS_X: usize = 5;
const LABELS_Y: usize = 6;
/// Plots from which on they are folded away.
const MANY: usize = 24;

/// Curves of one quantity.
pub(super) struct Curves<'a> {
    /// Name of the plots, unique on the page.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) show: fn(f64) -> String,
    /// The vertical axis, of shares.
    pub(super) shares: Axis,
    pub(super) curves: Vec<Curve<'a>>,
}

/// A curve: values and shares.
pub(super) struct Curve<'a> {
    pub(super) label: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Returns the plots; nothing if no value is above 0.
pub(super) fn curves(of: &Curves<'_>) -> String {
    let values = of.curves.iter().flat_map(|curve| &curve.points);
    let Some(axis) = Axis::of(values.map(|point| point.0)) else {
        return String::new();
    };
    // All curves are drawn once, at the origin, and referred to by every plot.
    let origin = Area {
        left: 0.0,
        top: 0.0,
        width: WIDTH,
        height: HEIGHT,
    };
    let lines: Vec<String> = of
        .curves
        .iter()
        .map(|curve| points(of, &axis, curve, origin))
        .collect();
    let (id, all) = (escaped(&of.id), path("other", &lines.concat()));
    let mut ground = origin.grid_x(&axis, LABELS_X);
    for tick in of
        .shares
        .ticks(LABELS_Y)
        .iter()
        .filter(|tick| tick.is_labelled)
    {
        let y = origin.y(&of.shares, tick.value);
        ground += &path("grid", &format!("M0 {y:.1}h{WIDTH}"));
    }
    let mut body = format!("<defs><g id=\"{id}\">{ground}{all}</g></defs>\n");
    for (number, (curve, points)) in of.curves.iter().zip(lines).enumerate() {
        let (column, row) = (number % COLUMNS, number / COLUMNS);
        let left = LEFT + to_f64(to_u64(column)) * (WIDTH + GAP);
        let top = HEAD + to_f64(to_u64(row)) * (HEAD + HEIGHT + FOOT);
        let this = path("this", &points);
        let head = label(Anchor::Start, (0.0, -11.0), curve.label, WIDTH);
        let feet = origin.labels_x(&axis, LABELS_X, HEIGHT + 13.0, of.show);
        let mut sides = String::new();
        for tick in of
            .shares
            .ticks(LABELS_Y)
            .iter()
            .filter(|tick| column == 0 && tick.is_labelled)
        {
            let at = (-6.0, origin.y(&of.shares, tick.value));
            sides += &super::svg::line("tick", Anchor::End, at, &percent(tick.value));
        }
        body += &format!(
            "<g transform=\"translate({left:.1} {top:.1})\"><use href=\"#{id}\"/>{head}{this}{feet}{sides}</g>\n"
        );
    }
    let columns = to_f64(to_u64(of.curves.len().min(COLUMNS)));
    let rows = to_f64(to_u64(of.curves.len().div_ceil(COLUMNS)));
    let width = LEFT + columns * (WIDTH + GAP);
    let plot = svg(&of.title, width, rows * (HEAD + HEIGHT + FOOT), &body);
    let note = if axis.is_log() { " (log axis)" } else { "" };
    let title = escaped(&format!("{}{note}", of.title));
    let open = if of.curves.len() < MANY { " open" } else { "" };
    format!("<figure><details{open}><summary>{title}</summary>\n{plot}</details></figure>\n")
}

/// Returns the line of a curve.
fn points(of: &Curves<'_>, axis: &Axis, curve: &Curve<'_>, area: Area) -> String {
    let mut text = String::new();
    for &(value, share) in &curve.points {
        let (x, y) = (area.x(axis, value), area.y(&of.shares, share));
        let step = if text.is_empty() { 'M' } else { 'L' };
        text += &format!("{step}{x:.1} {y:.1}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_has_a_plot_before_all_others() {
        let labels: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
        let curve = |label| Curve {
            label,
            points: vec![(0.0, 1.0), (1.0, 0.5), (300.0, 0.0)],
        };
        let mut of = Curves {
            id: "a\"b".into(),
            title: "t".into(),
            show: super::super::axis::time,
            shares: Axis::Log {
                low: 1e-5,
                high: 1.0,
                zero: false,
            },
            curves: labels.iter().map(|label| curve(label)).collect(),
        };
        let text = curves(&of);
        assert_eq!(text.matches("<use href=\"#a&quot;b\"/>").count(), 30);
        assert_eq!(text.matches("class=\"this\"").count(), 30);
        assert!(text.contains("<summary>t (log axis)</summary>") && !text.contains("details open"));
        of.curves.truncate(3);
        assert!(curves(&of).contains("details open"));
        of.curves
            .iter_mut()
            .for_each(|curve| curve.points.truncate(1));
        assert_eq!(curves(&of), "");
    }
}
