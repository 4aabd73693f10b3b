//! Runs of one cell, that is of jobs which differ in their seed alone: estimates of its measures,
//! and ratios to another cell.

use super::job::Job;
use super::row::Row;
use crate::statistics::{Estimate, Ratio};
use ftld_kit::convert::to_f64;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Schema name of a [`Summary`].
pub(crate) const SUMMARY_SCHEMA: &str = "ftld.summary/1";

/// A quantity of a row; `None` if the run had no such request.
pub(crate) type Quantity = fn(&Row) -> Option<f64>;

/// The measures of a summary by name; times in emulated ns.
pub(crate) const MEASURES: [(&str, Quantity); 6] = [
    ("write_amplification", |row| row.write_amplification.total),
    ("write_mean_ns", |row| {
        row.response_ns.write.as_ref().map(|of| of.mean)
    }),
    ("write_p99_ns", |row| {
        row.response_ns.write.as_ref().map(|of| to_f64(of.p99))
    }),
    ("read_mean_ns", |row| {
        row.response_ns.read.as_ref().map(|of| of.mean)
    }),
    ("read_p99_ns", |row| {
        row.response_ns.read.as_ref().map(|of| to_f64(of.p99))
    }),
    ("erases", |row| Some(to_f64(row.erases.total))),
];

/// The runs of one cell, together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// [`SUMMARY_SCHEMA`].
    pub(crate) schema: String,
    /// The job of the first run.
    pub(crate) job: Job,
    /// The seeds of the runs.
    pub(crate) seeds: Vec<u64>,
    /// [`MEASURES`] by name.
    pub(crate) measures: BTreeMap<String, Estimate>,
    /// The job of the first run of the cell that the ratios relate to.
    pub(crate) ratio_to: Option<Job>,
    /// Ratios by the name of the measure, paired by seed.
    pub(crate) ratios: BTreeMap<String, Ratio>,
}

impl Summary {
    /// Returns the summary of a cell's runs, and their ratios to those of `base`.
    pub(crate) fn new(runs: &[&Row], base: Option<&[&Row]>) -> Summary {
        assert!(!runs.is_empty(), "a cell without runs");
        let base = base.filter(|base| !base.is_empty());
        let measures = MEASURES.iter().filter_map(|&(name, of)| {
            let estimate = estimate(runs, of)?;
            Some((name.to_owned(), estimate))
        });
        let ratios = MEASURES.iter().filter_map(|&(name, of)| {
            let ratio = ratio(runs, base?, of)?;
            Some((name.to_owned(), ratio))
        });
        Summary {
            schema: SUMMARY_SCHEMA.into(),
            job: runs[0].job.clone(),
            seeds: runs.iter().map(|row| row.job.seed).collect(),
            measures: measures.collect(),
            ratio_to: base.map(|base| base[0].job.clone()),
            ratios: ratios.collect(),
        }
    }

    /// Returns a warning if several runs have equal measures: nothing in them depends on the seed.
    pub(crate) fn warning(&self) -> Option<String> {
        let equal = |of: &Estimate| of.low == of.high && of.low.is_some();
        (self.seeds.len() > 1 && self.measures.values().all(equal)).then(|| {
            format!(
                "EQUAL RUNS: {} on {}: the {} runs are equal, because nothing in them depends on the seed, as with most traces; \
                 their intervals say nothing",
                self.job.scheme.as_deref().unwrap_or("default"),
                self.job.workload,
                self.seeds.len()
            )
        })
    }

    /// Returns the summary as one line of JSON.
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).expect("a summary is plain data") + "\n"
    }
}

/// Returns the estimate of a quantity over the runs that have it.
pub(crate) fn estimate(runs: &[&Row], of: Quantity) -> Option<Estimate> {
    let values: Vec<f64> = runs.iter().filter_map(|row| of(row)).collect();
    Estimate::of(&values)
}

/// Returns the ratio of a quantity between two cells, over the seeds that both have.
pub(crate) fn ratio(runs: &[&Row], base: &[&Row], of: Quantity) -> Option<Ratio> {
    let by_seed: BTreeMap<u64, f64> = base
        .iter()
        .filter_map(|row| Some((row.job.seed, of(row)?)))
        .collect();
    let pairs: Vec<(f64, f64)> = runs
        .iter()
        .filter_map(|row| Some((of(row)?, *by_seed.get(&row.job.seed)?)))
        .collect();
    Ratio::of_pairs(&pairs)
}
