//! Labels of runs: what differs between the runs of a comparison.

use crate::replay::{Job, Row};
use ftld_kit::size::{parse_size, show_size};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::slice::SliceIndex;

type Setting = fn(&Job) -> Option<String>;

/// Settings in a label, if they differ between the runs.
const SETTINGS: [(&str, Setting); 11] = [
    ("", |job| job.preset.clone()),
    ("", |job| job.profile.clone()),
    ("slc ", |job| {
        job.slc_region.map(|percent| format!("{percent} %"))
    }),
    ("", |job| job.size.clone()),
    ("op ", |job| job.op.map(|op| format!("{op} %"))),
    ("effective op ", |job| {
        job.op_effective.map(|op| format!("{op} %"))
    }),
    ("raw ", |job| job.raw.as_deref().map(size)),
    ("", |job| job.method.form.map(|form| form.name().to_owned())),
    ("", |job| Some(job.method.precondition().name().to_owned())),
    ("ram ", |job| job.ram.as_deref().map(size)),
    ("rate ", |job| job.rate.map(|rate| rate.to_string())),
];

/// Index of the preset in [`SETTINGS`].
const PRESET: usize = 0;
/// Index of the rate, the last one.
const RATE: usize = SETTINGS.len() - 1;

fn size(text: &str) -> String {
    parse_size(text).map_or(text.into(), show_size)
}

/// Settings that differ between the runs of a comparison.
pub(super) struct Labels {
    varied: [bool; SETTINGS.len()],
    /// Number of runs of a scheme, and of those with a parameter value.
    schemes: HashMap<String, usize>,
    values: HashMap<(String, String), usize>,
    /// Paths of the traces by the names of their files.
    traces: HashMap<String, BTreeSet<String>>,
}

/// Returns the name of a trace's file; `None` for a synthetic workload.
fn file_name(row: &Row) -> Option<&str> {
    row.requests.format.as_ref()?;
    Path::new(&row.job.workload).file_name()?.to_str()
}

impl Labels {
    pub(super) fn new(rows: &[&Row]) -> Labels {
        let varied = SETTINGS.map(|(_, of)| {
            let values: BTreeSet<_> = rows.iter().map(|row| of(&row.job)).collect();
            values.len() > 1
        });
        let (mut schemes, mut values) = (HashMap::new(), HashMap::new());
        for row in rows {
            *schemes.entry(row.scheme.clone()).or_default() += 1;
            for pair in row.job.set.iter().collect::<BTreeSet<_>>() {
                *values
                    .entry((row.scheme.clone(), pair.clone()))
                    .or_default() += 1;
            }
        }
        let mut traces: HashMap<String, BTreeSet<String>> = HashMap::new();
        for row in rows {
            if let Some(name) = file_name(row) {
                let paths = traces.entry(name.to_owned()).or_default();
                paths.insert(row.job.workload.clone());
            }
        }
        Labels {
            varied,
            schemes,
            values,
            traces,
        }
    }

    /// Returns the label of a run: its scheme, and the settings that differ between the runs.
    pub(super) fn of(&self, row: &Row) -> String {
        row.scheme.clone() + &self.settings(row, ..) + &self.params(row)
    }

    /// Returns the label without the rate.
    pub(super) fn of_rates(&self, row: &Row) -> String {
        row.scheme.clone() + &self.settings(row, ..RATE) + &self.params(row)
    }

    /// Returns the part of the label that differs within a group of cells: scheme, preset and
    /// parameters.
    pub(super) fn in_group(&self, row: &Row) -> String {
        row.scheme.clone() + &self.settings(row, ..=PRESET) + &self.params(row)
    }

    /// Returns the workload, and the settings that all cells of its group share.
    pub(super) fn of_group(&self, row: &Row) -> String {
        self.workload(row) + &self.settings(row, PRESET + 1..)
    }

    /// Returns the name of a workload: of a trace that of its file, or its path if another trace
    /// has that name.
    pub(super) fn workload(&self, row: &Row) -> String {
        let workload = &row.job.workload;
        match file_name(row) {
            Some(name) if self.traces.get(name).is_some_and(|paths| paths.len() == 1) => {
                name.to_owned()
            }
            _ => workload.clone(),
        }
    }

    /// Returns the settings that all cells of a group share, of those that differ.
    pub(super) fn of_settings(&self, row: &Row) -> String {
        self.settings(row, PRESET + 1..).trim_start().to_owned()
    }

    fn settings(&self, row: &Row, which: impl SliceIndex<[usize], Output = [usize]>) -> String {
        let numbers: [usize; SETTINGS.len()] = std::array::from_fn(|number| number);
        let varied = numbers[which].iter().filter(|number| self.varied[**number]);
        let texts = varied.filter_map(|&number| {
            let (name, of) = SETTINGS[number];
            Some(format!(" {name}{}", of(&row.job)?))
        });
        texts.collect()
    }

    fn params(&self, row: &Row) -> String {
        let mut text = String::new();
        for pair in &row.job.set {
            let with = self.values.get(&(row.scheme.clone(), pair.clone()));
            if with != self.schemes.get(&row.scheme) {
                text += &format!(" {pair}");
            }
        }
        text
    }
}
