//! Cells of a comparison. The rows of a cell differ in their seed alone; the cells of a group
//! differ in preset, scheme and parameters, and their ratios relate to the group's first cell.

use crate::replay::{Job, Row, Summary};
use std::collections::{BTreeSet, HashMap};

/// The runs of one cell.
pub(super) struct Cell<'a> {
    /// At least one; each seed once, in order of appearance.
    pub(super) runs: Vec<&'a Row>,
    /// Index of the first cell of the group.
    pub(super) base: usize,
}

impl<'a> Cell<'a> {
    /// Returns the first run.
    pub(super) fn first(&self) -> &'a Row {
        self.runs[0]
    }
}

/// Returns the cells, in order of appearance.
pub(super) fn cells<'a>(rows: &[&'a Row]) -> Vec<Cell<'a>> {
    let (mut cells, mut seeds): (Vec<Cell<'a>>, Vec<BTreeSet<u64>>) = Default::default();
    let (mut known, mut groups) = (HashMap::new(), HashMap::new());
    for &row in rows {
        let cell = Job {
            seed: 0,
            ..row.job.clone()
        };
        let number = *known.entry(cell.line()).or_insert(cells.len());
        if number == cells.len() {
            let group = Job {
                preset: None,
                scheme: None,
                set: Vec::new(),
                ..cell
            };
            let base = *groups.entry(group.line()).or_insert(number);
            cells.push(Cell {
                runs: Vec::new(),
                base,
            });
            seeds.push(BTreeSet::new());
        }
        if seeds[number].insert(row.job.seed) {
            cells[number].runs.push(row);
        }
    }
    cells
}

/// Returns whether a cell has runs with several seeds.
pub(super) fn is_repeated(cells: &[Cell<'_>]) -> bool {
    cells.iter().any(|cell| cell.runs.len() > 1)
}

/// Returns the summary of every cell. The first cell of a group has no ratios.
pub(super) fn summaries(cells: &[Cell<'_>]) -> Vec<Summary> {
    let of = |(number, cell): (usize, &Cell<'_>)| {
        let base = (cell.base != number).then(|| &cells[cell.base].runs[..]);
        Summary::new(&cell.runs, base)
    };
    cells.iter().enumerate().map(of).collect()
}
