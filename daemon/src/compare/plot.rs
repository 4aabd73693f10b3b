//! Plots as SVG text.

use crate::convert::{to_f64, to_u32, to_u64};
use crate::failure::Failure;
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 1000;
/// Distinguishable colours, also for colour-blind readers (Okabe and Ito, and lighter variants).
const COLOURS: [RGBColor; 16] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
    RGBColor(100, 60, 140),
    RGBColor(150, 110, 60),
    RGBColor(150, 210, 150),
    RGBColor(250, 170, 170),
    RGBColor(0, 70, 70),
    RGBColor(120, 150, 30),
    RGBColor(200, 30, 50),
    RGBColor(30, 30, 30),
];

/// A bar chart: one bar per label, made of parts.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) labels: &'a [String],
    pub(super) parts: &'a [&'a str],
    /// Returns the value for a bar and a part, by index.
    pub(super) value: &'a dyn Fn(usize, usize) -> f64,
}

/// A line.
pub(super) struct Curve<'a> {
    pub(super) label: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// Returns the style of a line; lines beyond the number of colours are thinner.
fn stroke(number: usize) -> ShapeStyle {
    ShapeStyle::from(colour(number)).stroke_width(if number < COLOURS.len() { 2 } else { 1 })
}

fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("drawing: {error}"));
        draw(&area).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(text + "\n")
}

/// Draws horizontal bars, first label on top. Returns an empty string if all values are 0.
pub(super) fn bars(bars: &Bars<'_>) -> Result<String, Failure> {
    let sum = |bar: usize| {
        (0..bars.parts.len())
            .map(|part| (bars.value)(bar, part))
            .sum::<f64>()
    };
    let longest = (0..bars.labels.len()).map(sum).fold(0.0, f64::max);
    if longest <= 0.0 {
        return Ok(String::new());
    }
    let used: Vec<_> = (0..bars.parts.len())
        .filter(|&part| (0..bars.labels.len()).any(|bar| (bars.value)(bar, part) > 0.0))
        .collect();
    let parts: Vec<_> = used
        .iter()
        .map(|&part| bars.parts[part].to_owned())
        .collect();
    let count = bars.labels.len();
    svg(110 + 30 * to_u32(count), |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(bars.title, ("sans-serif", 17))
            .margin(8)
            .margin_right(if used.len() > 1 {
                legend_width(&parts)
            } else {
                40
            })
            .x_label_area_size(32)
            .y_label_area_size(label_width(bars.labels))
            .build_cartesian_2d(0.0..longest * 1.06, 0.0..to_f64(to_u64(count)))?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 13))
            .draw()?;
        for bar in 0..count {
            let (top, mut from) = (to_f64(to_u64(count - bar)) - 0.15, 0.0);
            for &part in &used {
                let to = from + (bars.value)(bar, part);
                let body = Rectangle::new([(from, top - 0.7), (to, top)], colour(part).filled());
                chart.draw_series(std::iter::once(body))?;
                from = to;
            }
            let (x, y) = chart.backend_coord(&(0.0, top - 0.35));
            let style = TextStyle::from(("sans-serif", 13)).pos(pos(HPos::Right));
            area.draw(&Text::new(bars.labels[bar].clone(), (x - 6, y), style))?;
            let (x, _) = chart.backend_coord(&(from, top));
            area.draw(&Text::new(
                short(from),
                (x + 4, y),
                TextStyle::from(("sans-serif", 12)).pos(pos(HPos::Left)),
            ))?;
        }
        if used.len() > 1 {
            legend(
                area,
                used.iter().map(|&part| (bars.parts[part], colour(part))),
            )?;
        }
        Ok(())
    })
}

fn pos(horizontal: HPos) -> Pos {
    Pos::new(horizontal, VPos::Center)
}

/// Lowest share in a logarithmic plot; also the share of the maximum of all requests.
const RAREST: f64 = 1e-5;

/// Draws shares over a quantity, both logarithmic, for rare values.
pub(super) fn tails(title: &str, unit: &str, curves: &[Curve<'_>]) -> Result<String, Failure> {
    // A logarithm has no 0: times below 0.1 us are drawn at 0.1 us.
    let least = 0.1;
    let Some((low, high)) = range(curves) else {
        return Ok(String::new());
    };
    plotted(title, curves, |mut builder| {
        let (x, y) = (
            (low.max(least) * 0.8..high.max(2.0 * least) * 1.2).log_scale(),
            (RAREST..1.0).log_scale(),
        );
        let at = |&(x, y): &(f64, f64)| (x.max(least), y.max(RAREST));
        draw(builder.build_cartesian_2d(x, y)?, unit, curves, at)
    })
}

/// Draws shares over a quantity.
pub(super) fn curves(title: &str, unit: &str, curves: &[Curve<'_>]) -> Result<String, Failure> {
    let Some((low, high)) = range(curves) else {
        return Ok(String::new());
    };
    plotted(title, curves, |mut builder| {
        draw(
            builder.build_cartesian_2d(low..high.max(low + 1.0), 0.0..1.02)?,
            unit,
            curves,
            |point| *point,
        )
    })
}

fn range(curves: &[Curve<'_>]) -> Option<(f64, f64)> {
    let all = || {
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|point| point.0))
    };
    let (low, high) = (
        all().fold(f64::INFINITY, f64::min),
        all().fold(0.0, f64::max),
    );
    low.is_finite().then_some((low, high))
}

fn plotted(
    title: &str,
    curves: &[Curve<'_>],
    draw: impl FnOnce(ChartBuilder<'_, '_, SVGBackend<'_>>) -> Drawn,
) -> Result<String, Failure> {
    svg(340.max(60 + 20 * to_u32(curves.len())), |area| {
        let labels: Vec<_> = curves.iter().map(|curve| curve.label.to_owned()).collect();
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(title, ("sans-serif", 17))
            .margin(8)
            .margin_right(legend_width(&labels));
        builder.x_label_area_size(44).y_label_area_size(64);
        draw(builder)?;
        legend(
            area,
            curves
                .iter()
                .enumerate()
                .map(|(number, curve)| (curve.label, colour(number))),
        )
    })
}

fn draw<X, Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    unit: &str,
    curves: &[Curve<'_>],
    at: impl Fn(&(f64, f64)) -> (f64, f64),
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(RGBColor(242, 242, 242))
        .x_desc(unit)
        .x_labels(7)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| format!("{} %", (value * 1e6).round() / 1e4))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        chart.draw_series(LineSeries::new(
            curve.points.iter().map(&at),
            stroke(number),
        ))?;
    }
    Ok(())
}

/// Draws the names alongside the plot.
fn legend<'a>(area: &Area<'_>, entries: impl Iterator<Item = (&'a str, RGBColor)>) -> Drawn {
    let entries: Vec<_> = entries.collect();
    let names: Vec<_> = entries.iter().map(|entry| entry.0.to_owned()).collect();
    assert!(
        legend_width(&names) < WIDTH,
        "a legend of {} pixels in a plot of {WIDTH}",
        legend_width(&names)
    );
    let left = (WIDTH - legend_width(&names)) as i32 + 16;
    for (number, (name, colour)) in entries.into_iter().enumerate() {
        let y = 46 + 20 * number as i32;
        area.draw(&Rectangle::new(
            [(left, y - 6), (left + 12, y + 6)],
            colour.filled(),
        ))?;
        area.draw(&Text::new(
            name.to_owned(),
            (left + 18, y),
            TextStyle::from(("sans-serif", 13)).pos(pos(HPos::Left)),
        ))?;
    }
    Ok(())
}

/// Returns the width for the longest label.
fn label_width(labels: &[String]) -> u32 {
    let longest = to_u32(
        labels
            .iter()
            .map(|label| label.chars().count())
            .max()
            .unwrap_or(0),
    );
    (longest * 8 + 14).clamp(60, 420)
}

/// Returns the width of a legend alongside a plot: a square and a name.
fn legend_width(names: &[String]) -> u32 {
    label_width(names) + 30
}

/// Formats a number in few characters.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e6 => format!("{:.1} M", value / 1e6),
        size if size >= 1e4 => format!("{:.0} k", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
