//! Distributions: the curves of all cells in one figure, each with its name at its end.
//!
//! Invariants: no label leaves the figure or covers another one. Where a name is too long for the
//! margin, the curve has a letter, and the text below the figure has the names.

use super::axis::{Axis, Tick};
use super::colours::series;
use super::svg::{Anchor, Area, WIDTH, line, path, svg, text_width};
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::quote::escaped;

const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;
const FOOT: f64 = 24.0;
const HEIGHT_LEAST: f64 = 210.0;
/// Widest name in the margin.
const NAME_MOST: f64 = 116.0;
/// Distance of a curve's end and its name, bridged by a line.
const BRIDGE: f64 = 14.0;
/// Vertical distance of two names.
const APART: f64 = 13.5;
const LABELS_Y: usize = 7;
/// Lowest share of the responses above a time; also the place of the maximum.
const RAREST: f64 = 1e-5;

/// The horizontal axis: shares from 0 to 1.
#[derive(Clone, Copy)]
pub(super) enum Shares {
    /// Each decade of the rest has the same width: 90 %, 99 %, 99.9 % and so on.
    Tail,
    Linear,
}

impl Shares {
    fn at(self, share: f64) -> f64 {
        match self {
            Shares::Linear => share.clamp(0.0, 1.0),
            Shares::Tail => (1.0 - share).clamp(RAREST, 1.0).log10() / RAREST.log10(),
        }
    }

    fn ticks(self) -> &'static [(f64, &'static str)] {
        match self {
            Shares::Linear => &[
                (0.0, "0"),
                (0.25, ""),
                (0.5, "50 %"),
                (0.75, ""),
                (1.0, "100 %"),
            ],
            Shares::Tail => &[
                (0.0, ""),
                (0.5, "p50"),
                (0.9, "p90"),
                (0.99, "p99"),
                (0.999, "p99.9"),
                (0.9999, ""),
                (1.0, "max"),
            ],
        }
    }
}

/// Curves of one quantity.
pub(super) struct Curves<'a> {
    pub(super) title: String,
    /// Text below the title.
    pub(super) unit: &'static str,
    pub(super) show: fn(f64) -> String,
    pub(super) shares: Shares,
    pub(super) curves: Vec<Curve<'a>>,
}

/// A curve: shares in ascending order, and values.
pub(super) struct Curve<'a> {
    pub(super) label: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Returns the figure; nothing if no value is above 0.
pub(super) fn curves(of: &Curves<'_>) -> String {
    let values = of.curves.iter().flat_map(|curve| &curve.points);
    let Some(axis) = Axis::of(values.map(|point| point.1)) else {
        return String::new();
    };
    let widest = of.curves.iter().map(|curve| text_width(curve.label));
    let widest = widest.fold(0.0, f64::max);
    let has_letters = widest > NAME_MOST;
    let margin = BRIDGE + 4.0 + if has_letters { 22.0 } else { widest };
    let count = to_f64(to_u64(of.curves.len()));
    let area = Area {
        left: LEFT,
        top: TOP,
        width: WIDTH - LEFT - margin,
        height: HEIGHT_LEAST.max(count * APART),
    };
    let mut body = ground(of, &axis, area);
    let mut ends = Vec::new();
    for (number, curve) in of.curves.iter().enumerate() {
        let points = points(of.shares, &axis, curve, area);
        let title = format!("<title>{}</title>", escaped(curve.label));
        body += &format!(
            "<g>{title}{}</g>\n",
            path(&format!("curve {}", series(number)), &points)
        );
        if let Some(last) = curve.points.last() {
            ends.push((number, area.y(&axis, last.1)));
        }
    }
    let mut below = String::new();
    for (number, end, y) in placed(ends, area) {
        let (class, label) = (series(number), of.curves[number].label);
        let (from, to) = (area.left + area.width, area.left + area.width + BRIDGE);
        body += &path(
            &format!("bridge {class}"),
            &format!("M{from:.1} {end:.1}L{to:.1} {y:.1}"),
        );
        let letter = letter(number);
        let name = if has_letters { &letter } else { label };
        body += &line(
            &format!("curve {class}"),
            Anchor::Start,
            (to + 3.0, y),
            name,
        );
    }
    if has_letters {
        for (number, curve) in of.curves.iter().enumerate() {
            let (letter, label) = (letter(number), escaped(curve.label));
            let class = series(number);
            below += &format!("<span><b class=\"{class}\">{letter}</b> {label}</span>\n");
        }
        below = format!("<p class=\"legend\">{below}</p>\n");
    }
    let note = if axis.is_log() { " (log axis)" } else { "" };
    let plot = svg(&of.title, area.bottom() + FOOT, &body);
    let (title, unit) = (escaped(&of.title), escaped(of.unit));
    format!(
        "<figure><figcaption>{title} <span>{unit}{note}</span></figcaption>\n{plot}{below}</figure>\n"
    )
}

/// Returns the letter of a curve: A to Z, A1 to Z1 and so on.
fn letter(number: usize) -> String {
    let round = number / 26;
    let letter = char::from(b'A'.saturating_add(u8::try_from(number % 26).unwrap_or(0)));
    match round {
        0 => letter.to_string(),
        _ => format!("{letter}{round}"),
    }
}

/// Returns the grid with the labels of both axes.
fn ground(of: &Curves<'_>, axis: &Axis, area: Area) -> String {
    let (mut lines, mut labels) = (String::new(), String::new());
    let labelled = |tick: &Tick| tick.is_labelled;
    for tick in axis.ticks(LABELS_Y).into_iter().filter(labelled) {
        let y = area.y(axis, tick.value);
        lines += &format!("M{:.1} {y:.1}h{:.1}", area.left, area.width);
        labels += &line(
            "tick",
            Anchor::End,
            (area.left - 5.0, y),
            &(of.show)(tick.value),
        );
    }
    for &(share, label) in of.shares.ticks() {
        let x = area.left + of.shares.at(share) * area.width;
        lines += &format!("M{x:.1} {:.1}V{:.1}", area.top, area.bottom());
        if !label.is_empty() {
            labels += &line("tick", Anchor::Middle, (x, area.bottom() + 13.0), label);
        }
    }
    path("grid", &lines) + &labels
}

/// Returns the heights of the names: near the ends of their curves, and apart from each other.
fn placed(mut ends: Vec<(usize, f64)>, area: Area) -> Vec<(usize, f64, f64)> {
    ends.sort_by(|one, next| one.1.total_cmp(&next.1));
    let mut next = area.top + APART / 2.0;
    let mut found: Vec<(usize, f64, f64)> = Vec::with_capacity(ends.len());
    for (number, end) in ends {
        let y = end.max(next);
        next = y + APART;
        found.push((number, end, y));
    }
    let mut most = area.bottom() - APART / 2.0;
    for (_, _, y) in found.iter_mut().rev() {
        *y = y.min(most);
        most = *y - APART;
    }
    found
}

/// Returns the line of a curve.
fn points(shares: Shares, axis: &Axis, curve: &Curve<'_>, area: Area) -> String {
    let mut text = String::new();
    for &(share, value) in &curve.points {
        let (x, y) = (
            area.left + shares.at(share) * area.width,
            area.y(axis, value),
        );
        let step = if text.is_empty() { 'M' } else { 'L' };
        text += &format!("{step}{x:.1} {y:.1}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_has_its_name_at_its_end_and_names_do_not_meet() {
        let labels: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
        let curve = |label| Curve {
            label,
            points: vec![(0.0, 0.1), (0.5, 1.0), (1.0, 300.0)],
        };
        let mut of = Curves {
            title: "t<".into(),
            unit: "u",
            show: super::super::axis::time,
            shares: Shares::Tail,
            curves: labels.iter().map(|label| curve(label)).collect(),
        };
        let heights = |text: &str| -> Vec<f64> {
            let names = text.split("<text class=\"curve").skip(1);
            let y = |name: &str| name.split(" y=\"").nth(1)?.split('"').next()?.parse().ok();
            names.map(|name| y(name).unwrap()).collect()
        };
        let text = curves(&of);
        let found = heights(&text);
        assert_eq!(found.len(), 30);
        assert!(
            found.windows(2).all(|pair| pair[1] - pair[0] >= 13.0),
            "{found:?}"
        );
        let height: f64 = text
            .split("viewBox=\"0 0 340 ")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(
            found[0] > 8.0 && found[29] < height - FOOT,
            "{found:?} of {height}"
        );
        assert!(text.contains("t&lt; <span>u (log axis)") && text.contains(">s29</text>"));
        // A long name is below the figure, and a letter at the curve.
        let long = "lazyftl gc.policy=a-policy-with-a-long-name";
        of.curves.truncate(1);
        of.curves[0].label = long;
        let text = curves(&of);
        assert!(text.contains(">A</text>") && text.contains(&format!("A</b> {long}</span>")));
        assert_eq!((letter(0), letter(27)), ("A".into(), "B1".into()));
        of.curves[0]
            .points
            .iter_mut()
            .for_each(|point| point.1 = 0.0);
        assert_eq!(curves(&of), "");
    }
}
