//! Rows side by side, human-readable: a line per cell, with intervals if it has several seeds.

use super::cells::{Cell, cells};
use super::columns::{COLUMNS, Column};
use super::knee::knees;
use super::labels::Labels;
use super::notes::{overloaded, unsettled};
use crate::replay::{Row, Summary, estimate, trace_format};
use crate::statistics::Difference;
use ftld_kit::output::{width, wrapped};

/// Returns the workloads in order of appearance.
pub(super) fn workloads<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for row in rows {
        if !names.contains(&row.job.workload.as_str()) {
            names.push(row.job.workload.as_str());
        }
    }
    names
}

/// Returns the headings of the table's columns; the first is that of the label.
fn heads() -> Vec<String> {
    std::iter::once("")
        .chain(COLUMNS.iter().map(|column| column.head))
        .map(str::to_owned)
        .collect()
}

/// Returns the table's line of a cell.
fn line(cell: &Cell<'_>, labels: &Labels) -> Vec<String> {
    let values = COLUMNS
        .iter()
        .map(|column| column.plain(estimate(&cell.runs, column.of)));
    std::iter::once(labels.of(cell.first()))
        .chain(values)
        .collect()
}

/// Returns the bound of a workload. Its pages are the same under every scheme.
fn optimum(cell: &Cell<'_>) -> Vec<String> {
    let bound = |column: &Column| {
        estimate(&cell.runs, column.bound).map_or("-".into(), |value| column.unit.plain(value.mean))
    };
    std::iter::once("optimum (bound)".into())
        .chain(COLUMNS.iter().map(bound))
        .collect()
}

/// Ratios of a group of cells to its first one: a title, headings and lines.
pub(super) struct Ratios {
    pub(super) title: String,
    pub(super) lines: Vec<Vec<String>>,
}

/// Headings of the ratios, in the order of [`crate::replay::MEASURES`].
const RATIO_HEADS: [&str; 6] = [
    "WAF",
    "write mean",
    "write p99",
    "read mean",
    "read p99",
    "erases",
];

/// Returns the ratios of every group with several cells, if its cells have several seeds.
pub(super) fn ratios(cells: &[Cell<'_>], labels: &Labels) -> Vec<Ratios> {
    let summaries = super::cells::summaries(cells);
    let mut found: Vec<(usize, Ratios)> = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let base = &cells[cell.base];
        if cell.base == number || cell.runs.len() < 2 || base.runs.len() < 2 {
            continue;
        }
        if found.last().is_none_or(|(base, _)| *base != cell.base) {
            let title = format!(
                "ratio to {}, {} paired seeds, 95 % intervals; = is no difference",
                labels.of(base.first()),
                base.runs.len()
            );
            let heads = std::iter::once("").chain(RATIO_HEADS);
            let lines = vec![heads.map(str::to_owned).collect()];
            found.push((cell.base, Ratios { title, lines }));
        }
        let mut line = vec![labels.of(cell.first())];
        line.extend(ratio_cells(&summaries[number]));
        found.last_mut().expect("just added").1.lines.push(line);
    }
    found.into_iter().map(|(_, ratios)| ratios).collect()
}

/// Shows the ratios of a summary. Without a significant difference only the interval is shown, so
/// that no ratio can be quoted.
fn ratio_cells(summary: &Summary) -> impl Iterator<Item = String> {
    crate::replay::MEASURES.iter().map(|(name, _)| {
        summary.ratios.get(*name).map_or("-".into(), |ratio| {
            let interval = format!("({:.3} to {:.3})", ratio.low, ratio.high);
            match ratio.difference {
                Difference::None => format!("= {interval}"),
                Difference::Less | Difference::More => format!("{:.3} {interval}", ratio.ratio),
            }
        })
    })
}

/// Returns the tables of every workload.
pub(super) fn text(rows: &[&Row]) -> String {
    let labels = Labels::new(rows);
    let mut text = String::new();
    for workload in workloads(rows) {
        let of: Vec<_> = rows
            .iter()
            .filter(|row| row.job.workload == workload)
            .copied()
            .collect();
        let of = cells(&of);
        let mut lines = vec![heads()];
        lines.extend(of.iter().map(|cell| line(cell, &labels)));
        lines.extend(of.first().map(optimum));
        text += &wrapped(&match of.first().map(|cell| &cell.first().requests) {
            Some(requests) if requests.format.is_some() => {
                format!("{workload}: format {}", trace_format(requests))
            }
            _ => workload.to_owned(),
        });
        text += &format!("{}\n", columns(&lines, width()));
        let runs: Vec<&Row> = of
            .iter()
            .flat_map(|cell| cell.runs.iter().copied())
            .collect();
        for note in [unsettled(&runs, &labels), overloaded(&runs, &labels)] {
            if !note.is_empty() {
                text += &format!("{}\n", wrapped(&format!(" {note}")));
            }
        }
        for knee in knees(&of) {
            text += &format!("{}\n", wrapped(&format!("  {}", knee.text(&labels))));
        }
        for Ratios { title, lines } in ratios(&of, &labels) {
            text += &wrapped(&format!("  {title}"));
            text += &format!("{}\n", columns(&lines, width()));
        }
    }
    text
}

/// Headings of columns that belong to the one on their left.
const CONTINUED: [&str; 4] = ["p99", "p99.9", "max", "stddev"];

/// Returns the lines as one table, or as several with the same labels if it is wider than
/// `most` columns. Columns without a value are left out.
fn columns(lines: &[Vec<String>], most: usize) -> String {
    let Some((heads, values)) = lines.split_first() else {
        return String::new();
    };
    let is_empty = |column: usize| values.iter().all(|line| line[column] == "-");
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    // Columns that stay together.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for column in (1..heads.len()).filter(|column| values.is_empty() || !is_empty(*column)) {
        match groups.last_mut() {
            Some(group) if CONTINUED.contains(&heads[column].as_str()) => group.push(column),
            _ => groups.push(vec![column]),
        }
    }
    let wide = |columns: &[usize]| columns.iter().map(|at| 2 + widths[*at]).sum::<usize>();
    let label = 2 + widths[0];
    let mut tables: Vec<Vec<usize>> = Vec::new();
    for mut group in groups {
        match tables.last_mut() {
            Some(table) if label + wide(table) + wide(&group) <= most => table.append(&mut group),
            _ => tables.push(Vec::new()),
        }
        // A group that is too wide for a line by itself is divided.
        for column in group {
            match tables.last_mut() {
                Some(table)
                    if table.is_empty() || label + wide(table) + wide(&[column]) <= most =>
                {
                    table.push(column)
                }
                _ => tables.push(vec![column]),
            }
        }
    }
    let tables = tables.iter().map(|columns| table(lines, &widths, columns));
    tables.collect::<Vec<_>>().join("\n")
}

/// Returns the labels and these columns.
fn table(lines: &[Vec<String>], widths: &[usize], columns: &[usize]) -> String {
    let mut text = String::new();
    for line in lines {
        text += &format!("  {:<width$}", line[0], width = widths[0]);
        for &column in columns {
            text += &format!("  {:>width$}", line[column], width = widths[column]);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_at_most_100() {
        let mut line = vec!["1".to_owned(); COLUMNS.len() + 1];
        (line[0], line[2]) = ("lazyftl".into(), "12.345".into());
        let text = columns(&[heads(), line.clone()], 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "           OP %     WAF  taxes  write mean us  p99  p99.9  max  read mean us  p99  p99.9  max"
        );
        assert!(
            lines[1].starts_with("  lazyftl     1  12.345      1"),
            "{text}"
        );
        assert!(
            lines[2].is_empty() && lines[3].starts_with("           flash time s"),
            "{text}"
        );
        assert!(lines[3].ends_with("  raw  RAM paper  RAM real"), "{text}");
        assert!(
            lines[6].ends_with("  all mean us  p99  p99.9  max"),
            "{text}"
        );
        // Columns of a group stay together; a column that no row has is left out.
        line[4] = "1234567.8".into();
        (8..12).for_each(|at| line[at] = "1234567.8".into());
        let text = columns(&[heads(), line.clone()], 100);
        assert!(
            text.lines()
                .next()
                .unwrap()
                .ends_with("  write mean us  p99  p99.9  max"),
            "{text}"
        );
        assert!(
            text.lines()
                .nth(3)
                .unwrap()
                .starts_with("           read mean us  "),
            "{text}"
        );
        (8..12).for_each(|at| line[at] = "-".into());
        let text = columns(&[heads(), line.clone()], 100);
        assert!(!text.contains("read mean us"), "{text}");
        let narrow = columns(&[heads(), line], 60);
        let wide = columns(&[vec!["x".repeat(70); 3]], 100);
        for (text, width) in [(text, 100), (wide, 100), (narrow, 60)] {
            let shown = text.lines().filter(|line| !line.is_empty());
            assert!(shown.clone().count() > 1, "{text}");
            assert!(
                shown
                    .filter(|line| !line.contains("xx"))
                    .all(|line| line.chars().count() <= width),
                "{text}"
            );
        }
    }
}
