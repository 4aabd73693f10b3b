//! Charts: a figure per quantity; each row has its label and its value above its bar or marks, so
//! that a plot as narrow as a phone shows them whole.
//!
//! A logarithmic axis has no 0, so lengths on it mean nothing: it has marks, never bars.

use super::axis::{Axis, percent};
use super::colours::class_of;
use super::svg::{Anchor, Area, WIDTH, label, line, path, svg, text_width};
use crate::statistics::Estimate;
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::quote::escaped;
use nand_model::Cause;

/// Space on the left and on the right of the axis.
const SIDE: f64 = 8.0;
/// Height of a row's text, and of the bar or the marks below it.
const TEXT: f64 = 17.0;
const BAR: f64 = 17.0;
const MARKS: f64 = 25.0;
/// Half of the height of a bar.
const BAR_HALF: f64 = 6.0;
/// Space above the rows, and with labels of the axis.
const HEAD: f64 = 4.0;
const HEAD_LABELLED: f64 = 22.0;
const FOOT: f64 = 24.0;
/// Width for one label of an axis.
const TICK: f64 = 62.0;
/// Rows from which on the axis labels are above the rows, too.
const TALL: usize = 20;
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

    /// Returns the value of a row that is written above it: the total of parts, or the only one.
    fn value(&self, row: usize) -> Option<String> {
        let of = match &self.content {
            Content::Points(series) => match &series[..] {
                [only] => only.values[row],
                _ => return None,
            },
            Content::Bars(_, totals) => totals[row],
            Content::Shares(_) => return None,
        };
        Some(of.map_or("-".into(), |of| (self.show)(of.mean)))
    }

    /// Returns the figure.
    fn draw(&self, title: &str, labels: &[String]) -> String {
        let below = match &self.content {
            Content::Points(series) if series.len() > 1 => MARKS,
            _ => BAR,
        };
        let is_tall = labels.len() >= TALL;
        let area = Area {
            left: SIDE,
            top: if is_tall { HEAD_LABELLED } else { HEAD },
            width: WIDTH - 2.0 * SIDE,
            height: to_f64(to_u64(labels.len())) * (TEXT + below),
        };
        let most = (area.width / TICK) as usize + 1;
        let mut text = area.grid_x(&self.axis, most);
        text += &area.labels_x(&self.axis, most, area.bottom() + 14.0, self.show);
        if is_tall {
            text += &area.labels_x(&self.axis, most, area.top - 10.0, self.show);
        }
        for (number, name) in labels.iter().enumerate() {
            let top = area.top + to_f64(to_u64(number)) * (TEXT + below);
            let y = top + TEXT + below / 2.0;
            let drawn = match &self.content {
                Content::Points(series) => self.marks(series, number, &area, y),
                Content::Bars(parts, totals) => {
                    let interval = totals[number].map(|total| self.interval(total, &area, y));
                    self.bar(parts, number, 1.0, &area, y) + &interval.unwrap_or_default()
                }
                Content::Shares(parts) => {
                    let total: f64 = parts.iter().map(|part| part.values[number]).sum();
                    match total > 0.0 {
                        true => self.bar(parts, number, total, &area, y),
                        false => String::new(),
                    }
                }
            };
            let value = self.value(number).unwrap_or_default();
            let right = WIDTH - SIDE;
            let room = right - area.left - text_width(&value) - SIDE;
            let above = label(Anchor::Start, (area.left, top + TEXT / 2.0), name, room)
                + &line("number", Anchor::End, (right, top + TEXT / 2.0), &value);
            let told = escaped(&format!("{name}: {}", self.told(number)));
            text += &format!("{above}<g><title>{told}</title>{drawn}</g>\n");
        }
        let plot = svg(title, area.bottom() + FOOT, &text);
        let note = if self.axis.is_log() {
            " (log axis)"
        } else {
            ""
        };
        format!(
            "<figure><figcaption>{} <span>{}{note}</span></figcaption>\n{}{plot}</figure>\n",
            escaped(title),
            escaped(&self.title),
            self.legend()
        )
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

    /// Returns a bar of parts divided by `by`.
    fn bar(&self, parts: &[Part], row: usize, by: f64, area: &Area, y: f64) -> String {
        let (mut text, mut from) = (String::new(), 0.0);
        let (top, height) = (y - BAR_HALF, 2.0 * BAR_HALF);
        for part in parts.iter().filter(|part| part.values[row] > 0.0) {
            let to = from + part.values[row] / by;
            let (left, right) = (area.x(&self.axis, from), area.x(&self.axis, to));
            text += &format!(
                "<rect class=\"{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height}\"/>\n",
                class_of(part.cause),
                right - left
            );
            from = to;
        }
        let end = area.x(&self.axis, from);
        let frame = format!("M{:.1} {top:.1}H{end:.1}v{height}H{0:.1}z", area.left);
        text + &path("frame", &frame)
    }

    fn marks(&self, series: &[Series], row: usize, area: &Area, y: f64) -> String {
        let of = |series: &Series| series.values[row];
        let at = |estimate: Estimate| area.x(&self.axis, estimate.mean);
        let points: Vec<f64> = series.iter().filter_map(of).map(at).collect();
        let (Some(&first), Some(&last)) = (points.first(), points.last()) else {
            return String::new();
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
        text
    }

    /// Returns the names of parts with their colours, and of marks with their shapes.
    fn legend(&self) -> String {
        let entries: String = match &self.content {
            Content::Points(series) if series.len() > 1 => {
                let entry = |(shape, series): (usize, &Series)| {
                    let mark = path("mark", &mark(shape, 8.0, 8.0));
                    let svg = "<svg width=\"16\" height=\"16\" aria-hidden=\"true\">";
                    format!("<span>{svg}{mark}</svg>{}</span>\n", escaped(series.name))
                };
                series.iter().enumerate().map(entry).collect()
            }
            Content::Points(_) => return String::new(),
            Content::Bars(parts, _) | Content::Shares(parts) => {
                let entry = |part: &Part| {
                    let (class, name) = (class_of(part.cause), part.cause.name());
                    format!("<span><i class=\"{class}\"></i>{name}</span>\n")
                };
                parts.iter().map(entry).collect()
            }
        };
        format!("<p class=\"legend\">{entries}</p>\n")
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

/// Returns a figure per panel; nothing without panels.
pub(super) fn chart(title: &str, labels: &[String], panels: &[Panel]) -> String {
    panels
        .iter()
        .map(|panel| panel.draw(title, labels))
        .collect()
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
        assert!(text.contains("<span>t (log axis)</span>") && text.contains("a: total 1<"));
        assert_eq!(text.matches("<figure>").count(), 2);
        let text = chart("c", &labels, &linear);
        assert!(!text.contains("log axis") && text.contains("b: 20 = host 1 + merge 19"));
        assert!(!text.contains("class=\"mark\""));
    }
}
