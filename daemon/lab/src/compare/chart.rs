//! Charts: a line per label, and panels beside each other, each with its own axis.
//!
//! A logarithmic axis has no 0, so lengths on it mean nothing: it has marks, never bars.

use super::axis::{Axis, percent};
use super::colours::class_of;
use super::svg::{Anchor, Area, label, line, path, svg, text_width};
use crate::statistics::Estimate;
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::quote::escaped;
use nand_model::Cause;

/// Least width of a chart.
const WIDTH: f64 = 1120.0;
const MARGIN: f64 = 8.0;
const ROW: f64 = 24.0;
const GAP: f64 = 26.0;
/// Height of the titles, and of a line of axis labels.
const HEAD: f64 = 44.0;
const FOOT: f64 = 24.0;
/// Width of a number behind a mark.
const NUMBER: f64 = 62.0;
const PANEL_LEAST: f64 = 210.0;
const LABEL_MOST: f64 = 400.0;
/// Width for one label of an axis.
const TICK: f64 = 62.0;
/// Rows from which on the axis labels are above the rows, too.
const TALL: usize = 20;
/// Half of the size of a mark.
const MARK: f64 = 4.5;
/// Vertical distance of marks of different series, which keeps their intervals apart.
const APART: f64 = 4.0;

/// Values of one kind: one per label.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) values: Vec<Option<Estimate>>,
}

/// Parts of a total with one cause: one value per label.
pub(super) struct Part {
    pub(super) cause: Cause,
    pub(super) values: Vec<f64>,
}

/// A part of a chart with an axis.
pub(super) struct Panel {
    title: String,
    axis: Axis,
    show: fn(f64) -> String,
    content: Content,
}

enum Content {
    /// Marks with intervals.
    Points(Vec<Series>),
    /// Bars of parts, and the interval of their sum.
    Bars(Vec<Part>, Vec<Option<Estimate>>),
    /// Bars of the parts' shares.
    Shares(Vec<Part>),
}

impl Panel {
    /// Returns marks; `None` if no value is above 0.
    pub(super) fn points(
        title: &str,
        show: fn(f64) -> String,
        series: Vec<Series>,
    ) -> Option<Panel> {
        let axis = axis(series.iter().flat_map(|series| &series.values))?;
        Some(Panel {
            title: title.into(),
            axis,
            show,
            content: Content::Points(series),
        })
    }

    /// Returns marks on an axis from 0 to 100 %; `None` without values.
    pub(super) fn shares(title: &str, values: Vec<Option<Estimate>>) -> Option<Panel> {
        let axis = Axis::Linear { high: 1.0 };
        let name = "share";
        values.iter().any(Option::is_some).then(|| Panel {
            title: title.into(),
            axis,
            show: percent,
            content: Content::Points(vec![Series { name, values }]),
        })
    }

    /// Returns totals and their parts: bars, or, where a logarithmic axis is needed, marks for the
    /// totals and bars for the shares.
    pub(super) fn parts(
        title: &str,
        show: fn(f64) -> String,
        parts: Vec<Part>,
        totals: Vec<Option<Estimate>>,
    ) -> Vec<Panel> {
        let Some(axis) = axis(totals.iter()) else {
            return Vec::new();
        };
        let title = title.to_owned();
        if !axis.is_log() {
            let content = Content::Bars(parts, totals);
            return vec![Panel {
                title,
                axis,
                show,
                content,
            }];
        }
        let name = "total";
        let values = totals;
        let content = Content::Points(vec![Series { name, values }]);
        let shares = Panel {
            title: "share of each cause".into(),
            axis: Axis::Linear { high: 1.0 },
            show: percent,
            content: Content::Shares(parts),
        };
        vec![
            Panel {
                title,
                axis,
                show,
                content,
            },
            shares,
        ]
    }

    /// Returns whether rows have a number behind their mark or bar.
    fn has_numbers(&self) -> bool {
        match &self.content {
            Content::Points(series) => series.len() == 1,
            Content::Bars(..) => true,
            Content::Shares(_) => false,
        }
    }

    fn draw(&self, labels: &[String], outer: Area) -> String {
        let room = if self.has_numbers() { NUMBER } else { 0.0 };
        let area = Area {
            width: outer.width - room,
            ..outer
        };
        let most = (area.width / TICK) as usize + 1;
        let note = if self.axis.is_log() {
            " (log axis)"
        } else {
            ""
        };
        let title = format!("{}{note}", self.title);
        let mut text = line("head", Anchor::Start, (area.left, 10.0), &title);
        text += &area.grid_x(&self.axis, most);
        let below = area.bottom() + 14.0;
        text += &area.labels_x(&self.axis, most, below, self.show);
        if labels.len() >= TALL {
            text += &area.labels_x(&self.axis, most, area.top - 10.0, self.show);
        }
        for (number, label) in labels.iter().enumerate() {
            let y = area.top + (to_f64(to_u64(number)) + 0.5) * ROW;
            let drawn = match &self.content {
                Content::Points(series) => self.marks(series, number, &area, y),
                Content::Bars(parts, totals) => {
                    let total = totals[number];
                    let (mut drawn, end) = self.bar(parts, number, 1.0, &area, y);
                    let interval = total.map(|total| self.interval(total, &area, y));
                    drawn += &interval.unwrap_or_default();
                    let high = total.and_then(|total| total.high);
                    let x = high.map_or(end, |high| area.x(&self.axis, high).max(end));
                    drawn + &self.number(total, x + 6.0, y)
                }
                Content::Shares(parts) => {
                    let total: f64 = parts.iter().map(|part| part.values[number]).sum();
                    match total > 0.0 {
                        true => self.bar(parts, number, total, &area, y).0,
                        false => String::new(),
                    }
                }
            };
            let title = escaped(&format!("{label}: {}", self.told(number)));
            text += &format!("<g><title>{title}</title>{drawn}</g>\n");
        }
        text
    }

    /// Returns the values of a row as a sentence.
    fn told(&self, row: usize) -> String {
        let parts = |parts: &[Part]| -> Vec<String> {
            let used = parts.iter().filter(|part| part.values[row] > 0.0);
            used.map(|part| {
                let value = super::axis::short(part.values[row]);
                format!("{} {value}", part.cause.name())
            })
            .collect()
        };
        match &self.content {
            Content::Points(series) => {
                let values = series.iter().filter_map(|series| {
                    let estimate = series.values[row]?;
                    Some(format!("{} {}", series.name, self.shown(estimate)))
                });
                values.collect::<Vec<_>>().join(", ")
            }
            Content::Bars(of, totals) => {
                let total = totals[row]
                    .map(|total| self.shown(total))
                    .unwrap_or_default();
                format!("{total} = {}", parts(of).join(" + "))
            }
            Content::Shares(of) => parts(of).join(" + "),
        }
    }

    fn shown(&self, estimate: Estimate) -> String {
        let interval = estimate
            .low
            .zip(estimate.high)
            .map(|(low, high)| format!(" ({} to {})", (self.show)(low), (self.show)(high)));
        (self.show)(estimate.mean) + &interval.unwrap_or_default()
    }

    /// Returns a bar of parts divided by `by`, and the position of its end.
    fn bar(&self, parts: &[Part], row: usize, by: f64, area: &Area, y: f64) -> (String, f64) {
        let (mut text, mut from) = (String::new(), 0.0);
        for part in parts.iter().filter(|part| part.values[row] > 0.0) {
            let to = from + part.values[row] / by;
            let (left, right) = (area.x(&self.axis, from), area.x(&self.axis, to));
            text += &format!(
                "<rect class=\"{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/>\n",
                class_of(part.cause),
                y - 7.0,
                right - left
            );
            from = to;
        }
        let end = area.x(&self.axis, from);
        let frame = format!("M{:.1} {:.1}H{end:.1}v14H{0:.1}z", area.left, y - 7.0);
        (text + &path("frame", &frame), end)
    }

    fn marks(&self, series: &[Series], row: usize, area: &Area, y: f64) -> String {
        let of = |series: &Series| series.values[row];
        let at = |estimate: Estimate| area.x(&self.axis, estimate.mean);
        let points: Vec<f64> = series.iter().filter_map(of).map(at).collect();
        let (Some(&first), Some(&last)) = (points.first(), points.last()) else {
            return line("tick", Anchor::Start, (area.left + 4.0, y), "-");
        };
        // A linear axis starts at 0, so the distance from there is the value.
        let is_linear = !self.axis.is_log();
        let from = if is_linear && series.len() == 1 {
            area.left
        } else {
            first
        };
        let mut text = path("span", &format!("M{from:.1} {y:.1}H{last:.1}"));
        let middle = to_f64(to_u64(series.len() - 1)) / 2.0;
        for (shape, series) in series.iter().enumerate() {
            if let Some(estimate) = of(series) {
                let y = y + (to_f64(to_u64(shape)) - middle) * APART;
                text += &self.interval(estimate, area, y);
                text += &path("mark", &mark(shape, at(estimate), y));
            }
        }
        if let [only] = series {
            let end = of(only).and_then(|estimate| estimate.high);
            let x = end.map_or(last, |high| area.x(&self.axis, high).max(last));
            text += &self.number(of(only), x + MARK + 4.0, y);
        }
        text
    }

    fn number(&self, estimate: Option<Estimate>, x: f64, y: f64) -> String {
        let text = estimate.map_or("-".into(), |estimate| (self.show)(estimate.mean));
        line("number", Anchor::Start, (x, y), &text)
    }

    /// Returns the interval of an estimate. An end beyond the axis has no cap.
    fn interval(&self, estimate: Estimate, area: &Area, y: f64) -> String {
        let Some((low, high)) = estimate.low.zip(estimate.high) else {
            return String::new();
        };
        let (left, right) = (area.x(&self.axis, low), area.x(&self.axis, high));
        let cap = |x: f64| format!("M{x:.1} {:.1}v9", y - 4.5);
        let mut points = format!("M{left:.1} {y:.1}H{right:.1}{}", cap(right));
        if !self.axis.is_below(low) {
            points += &cap(left);
        }
        path("interval", &points)
    }
}

/// Returns the axis for estimates and the upper ends of their intervals.
fn axis<'a>(estimates: impl Iterator<Item = &'a Option<Estimate>>) -> Option<Axis> {
    let values = estimates
        .flatten()
        .flat_map(|estimate| std::iter::once(estimate.mean).chain(estimate.high));
    Axis::of(values)
}

/// Returns the outline of a mark: circle, square, triangle, rhombus.
fn mark(shape: usize, x: f64, y: f64) -> String {
    match shape {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x - 4.0),
        1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
        2 => format!("M{:.1} {:.1}h10l-5 -9z", x - 5.0, y + 4.0),
        _ => format!("M{:.1} {y:.1}l5.5 -5.5l5.5 5.5l-5.5 5.5z", x - 5.5),
    }
}

/// Returns a chart; nothing without panels.
pub(super) fn chart(title: &str, labels: &[String], panels: &[Panel]) -> String {
    if panels.is_empty() {
        return String::new();
    }
    let widest = labels
        .iter()
        .map(|label| text_width(label))
        .fold(0.0, f64::max);
    let left = MARGIN + widest.clamp(40.0, LABEL_MOST) + 10.0;
    let count = to_f64(to_u64(panels.len()));
    let width = ((WIDTH - left - MARGIN) / count - GAP).max(PANEL_LEAST);
    let total = left + count * (width + GAP) + MARGIN;
    let rows = to_f64(to_u64(labels.len()));
    let top = if labels.len() >= TALL {
        HEAD
    } else {
        HEAD - 20.0
    };
    let mut body = String::new();
    let mut lines = String::new();
    for (number, text) in labels.iter().enumerate() {
        let y = top + to_f64(to_u64(number)) * ROW;
        lines += &format!("M{MARGIN} {y:.1}H{:.1}", total - MARGIN);
        let at = (left - 10.0, y + ROW / 2.0);
        body += &label(Anchor::End, at, text, LABEL_MOST);
    }
    body.insert_str(0, &path("row", &lines));
    for (number, panel) in panels.iter().enumerate() {
        let left = left + to_f64(to_u64(number)) * (width + GAP);
        let height = rows * ROW;
        body += &panel.draw(
            labels,
            Area {
                left,
                top,
                width,
                height,
            },
        );
    }
    let plot = svg(title, total, top + rows * ROW + FOOT, &body);
    let legend = legend(panels);
    let title = escaped(title);
    format!("<figure><figcaption>{title}</figcaption>\n{legend}{plot}</figure>\n")
}

/// Returns the names of parts with their colours, and of marks with their shapes.
fn legend(panels: &[Panel]) -> String {
    let mut entries: Vec<String> = Vec::new();
    let mut add = |entry: String| {
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    };
    for panel in panels {
        match &panel.content {
            Content::Points(series) if series.len() > 1 => {
                for (shape, series) in series.iter().enumerate() {
                    let shape = path("mark", &mark(shape, 8.0, 8.0));
                    let svg = format!(
                        "<svg width=\"16\" height=\"16\" aria-hidden=\"true\">{shape}</svg>"
                    );
                    add(format!("{svg}{}", escaped(series.name)));
                }
            }
            Content::Points(_) => {}
            Content::Bars(parts, _) | Content::Shares(parts) => {
                for part in parts {
                    let class = class_of(part.cause);
                    add(format!("<i class=\"{class}\"></i>{}", part.cause.name()));
                }
            }
        }
    }
    if entries.is_empty() {
        return String::new();
    }
    let entries: String = entries
        .into_iter()
        .map(|entry| format!("<span>{entry}</span>\n"))
        .collect();
    format!("<p class=\"legend\">{entries}</p>\n")
}

#[cfg(test)]
mod tests {
    use super::super::axis::short;
    use super::*;

    fn estimate(mean: f64, half: f64) -> Option<Estimate> {
        let (low, high) = (Some(mean - half), Some(mean + half));
        Some(Estimate {
            count: 3,
            mean,
            low,
            high,
        })
    }

    #[test]
    fn an_interval_has_a_cap_at_each_end_that_is_on_the_axis() {
        let caps = |values: Vec<Option<Estimate>>| {
            let labels = vec![String::new(); values.len()];
            let series = Series { name: "n", values };
            let panel = Panel::points("t", short, vec![series]).unwrap();
            let text = chart("t", &labels, &[panel]);
            let intervals = text.split("class=\"interval\" d=\"").skip(1);
            let path = |text: &str| text.split('"').next().unwrap().matches('M').count() - 1;
            intervals.map(path).collect::<Vec<_>>()
        };
        assert_eq!(caps(vec![estimate(2.0, 1.0), estimate(1.0, 1.5)]), [2, 1]);
        assert_eq!(caps(vec![estimate(100.0, 1.0), estimate(1.0, 0.5)]), [2, 1]);
        assert!(caps(vec![Estimate::of(&[1.0]), None]).is_empty());
    }

    #[test]
    fn totals_of_a_large_span_are_marks_and_their_parts_are_shares() {
        let panels = |most: f64| {
            let part = |cause, values: [f64; 2]| Part {
                cause,
                values: values.to_vec(),
            };
            let parts = vec![
                part(Cause::Host, [1.0, 1.0]),
                part(Cause::Merge, [0.0, most - 1.0]),
            ];
            Panel::parts(
                "t",
                short,
                parts,
                [1.0, most].map(|value| Estimate::of(&[value])).to_vec(),
            )
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let (linear, log) = (panels(20.0), panels(113.0));
        assert_eq!((linear.len(), log.len()), (1, 2));
        let text = chart("c", &labels, &log);
        assert_eq!(text.matches("<rect ").count(), 3);
        assert!(text.contains(">t (log axis)</text>") && text.contains("a: total 1<"));
        let text = chart("c", &labels, &linear);
        assert!(!text.contains("log axis") && text.contains("b: 20 = host 1 + merge 19"));
        assert!(!text.contains("class=\"mark\""));
    }
}
