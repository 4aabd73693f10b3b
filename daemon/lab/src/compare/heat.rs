//! Heat maps: a row per group of cells, a column per scheme, a colour per value.

use super::cells::Cell;
use super::colours::STEPS;
use super::labels::Labels;
use super::svg::cut;
use crate::replay::{Quantity, estimate};
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::quote::escaped;

/// Least ratio of the ends of the colour scale, so that small differences look small.
const SPAN_LEAST: f64 = 2.0;
/// Largest number of characters of a label; the tooltip has the whole label.
const LABEL_MOST: usize = 40;

/// A heat map of one quantity, where less is better.
pub(super) struct Heat<'a> {
    pub(super) title: &'a str,
    pub(super) of: Quantity,
    pub(super) show: fn(f64) -> String,
}

/// The rows and columns of all heat maps of a page.
pub(super) struct Grid<'a> {
    cells: &'a [Cell<'a>],
    labels: &'a Labels,
    /// Names of the columns.
    columns: Vec<String>,
    /// First cell of each group, and the cell of each column.
    rows: Vec<(usize, Vec<Option<usize>>)>,
}

/// Colours on a logarithmic scale.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Returns the scale; `None` if no value is above 0.
    fn of(values: impl Iterator<Item = f64>) -> Option<Scale> {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let high = high.max(low * SPAN_LEAST);
        low.is_finite().then_some(Scale { low, high })
    }

    fn step(&self, value: f64) -> usize {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        let last = to_f64(to_u64(STEPS - 1));
        (share * last).round().min(last) as usize
    }

    /// Returns the value in the middle of a step.
    fn value(&self, step: usize) -> f64 {
        let share = to_f64(to_u64(step)) / to_f64(to_u64(STEPS - 1));
        self.low * (self.high / self.low).powf(share)
    }
}

impl<'a> Grid<'a> {
    pub(super) fn new(cells: &'a [Cell<'a>], labels: &'a Labels) -> Grid<'a> {
        let mut columns: Vec<String> = Vec::new();
        let mut rows: Vec<(usize, Vec<Option<usize>>)> = Vec::new();
        for (number, cell) in cells.iter().enumerate() {
            let row = rows.iter().position(|row| row.0 == cell.base);
            let row = row.unwrap_or_else(|| {
                rows.push((cell.base, Vec::new()));
                rows.len() - 1
            });
            let row = &mut rows[row].1;
            let name = labels.in_group(cell.first());
            let column = free_column(&mut columns, row, &name);
            if row.len() <= column {
                row.resize(column + 1, None);
            }
            row[column] = Some(number);
        }
        for (_, row) in &mut rows {
            row.resize(columns.len(), None);
        }
        Grid {
            cells,
            labels,
            columns,
            rows,
        }
    }

    /// Returns a heat map; nothing if no value is above 0. A number links to the section of its
    /// workload, whose address `section` returns.
    pub(super) fn map(&self, heat: &Heat<'_>, section: &dyn Fn(&str) -> String) -> String {
        let value = |cell: usize| estimate(&self.cells[cell].runs, heat.of);
        let means = (0..self.cells.len()).filter_map(|cell| Some(value(cell)?.mean));
        let Some(scale) = Scale::of(means) else {
            return String::new();
        };
        let heads: String = self
            .columns
            .iter()
            .map(|column| format!("<th scope=\"col\"><span>{}</span></th>", name(column)))
            .collect();
        let mut text = format!(
            "<figure class=\"map\"><figcaption>{}</figcaption>\n{}<div class=\"scroll\"><table class=\"heat\">\n<tr><td></td>{heads}</tr>\n",
            escaped(heat.title),
            legend(&scale, heat.show)
        );
        for (base, row) in &self.rows {
            let first = self.cells[*base].first();
            let link = escaped(&section(&first.job.workload));
            let label = name(&self.labels.of_group(first));
            text += &format!("<tr><th scope=\"row\"><a href=\"#{link}\">{label}</a></th>");
            let values: Vec<_> = row.iter().map(|cell| value((*cell)?)).collect();
            let known = || values.iter().flatten().map(|value| value.mean);
            let best = known().fold(f64::INFINITY, f64::min);
            // Values that are equal as shown are equally good.
            let best = (known().count() > 1).then(|| (heat.show)(best));
            for (column, value) in self.columns.iter().zip(&values) {
                let Some(value) = value else {
                    text += "<td>-</td>";
                    continue;
                };
                let shown = (heat.show)(value.mean);
                let mark = if best.as_ref() == Some(&shown) {
                    " best"
                } else {
                    ""
                };
                let interval = value.low.zip(value.high).map(|(low, high)| {
                    format!(
                        ", 95 % interval {} to {}",
                        (heat.show)(low),
                        (heat.show)(high)
                    )
                });
                let tip = escaped(&(column.clone() + &interval.unwrap_or_default()));
                text += &format!(
                    "<td class=\"h{}{mark}\" title=\"{tip}\"><a href=\"#{link}\">{shown}</a></td>",
                    scale.step(value.mean)
                );
            }
            text += "</tr>\n";
        }
        text + "</table></div></figure>\n"
    }
}

/// Returns a column of this name in which the row has no cell. If there is none, adds a numbered
/// one: cells with equal labels are shown side by side.
fn free_column(columns: &mut Vec<String>, row: &[Option<usize>], name: &str) -> usize {
    for copy in 1.. {
        let name = match copy {
            1 => name.to_owned(),
            _ => format!("{name} #{copy}"),
        };
        match columns.iter().position(|known| *known == name) {
            Some(column) if row.get(column).copied().flatten().is_some() => {}
            Some(column) => return column,
            None => {
                columns.push(name);
                return columns.len() - 1;
            }
        }
    }
    unreachable!("there is a column for every number of copies")
}

fn name(label: &str) -> String {
    let (whole, short) = (escaped(label), escaped(&cut(label, LABEL_MOST)));
    format!("<span title=\"{whole}\">{short}</span>")
}

/// Returns the values of some colours.
fn legend(scale: &Scale, show: fn(f64) -> String) -> String {
    let steps = (0..STEPS)
        .step_by(4)
        .map(|step| format!("<span class=\"h{step}\">{}</span>", show(scale.value(step))));
    let steps: String = steps.collect();
    format!(
        "<p class=\"legend scale\">{steps}<em>log scale; less is better; <b class=\"best\">framed</b> is the best of its row</em></p>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_shows_the_value_of_each_colour() {
        let scale = Scale::of([3.0, 0.0, 113.0].into_iter()).unwrap();
        for step in 0..STEPS {
            assert_eq!(scale.step(scale.value(step)), step);
        }
        let ends = [scale.value(0), scale.value(STEPS - 1)].map(super::super::axis::short);
        assert_eq!(ends, ["3", "113"]);
        let narrow = Scale::of([1.0, 1.01].into_iter()).unwrap();
        assert!(narrow.step(1.01) <= 1, "a small difference looks small");
        assert!(Scale::of([0.0].into_iter()).is_none());
    }

    #[test]
    fn cells_of_equal_name_have_columns_of_their_own() {
        let mut columns = vec!["pagemap".to_owned(), "fast".to_owned()];
        assert_eq!(free_column(&mut columns, &[], "fast"), 1);
        assert_eq!(free_column(&mut columns, &[None, Some(4)], "fast"), 2);
        assert_eq!(free_column(&mut columns, &[None, Some(4)], "pagemap"), 0);
        assert_eq!(columns, ["pagemap", "fast", "fast #2"]);
    }
}
