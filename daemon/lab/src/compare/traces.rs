//! The trace files of a plan, each read once before any run.

use crate::replay::{Job, check_trace};
use ftld_kit::failure::Failure;
use std::collections::BTreeMap;

/// A trace file, and the method, which has the requested format.
type Key = (String, String);

/// Faults of the traces of a plan.
pub(super) struct Traces(BTreeMap<Key, Option<Failure>>);

fn key(job: &Job) -> Key {
    let method = serde_json::to_string(&job.method).expect("a method is plain data");
    (job.workload.clone(), method)
}

impl Traces {
    /// Reads the trace of every job to its end.
    pub(super) fn read(jobs: &[Job]) -> Traces {
        let mut read = BTreeMap::new();
        let is_trace = |job: &&Job| ftld_traces::Workload::parse(&job.workload).is_none();
        for job in jobs.iter().filter(is_trace) {
            read.entry(key(job))
                .or_insert_with(|| check_trace(job).err());
        }
        Traces(read)
    }

    /// Checks that all can be read.
    ///
    /// # Errors
    /// One cannot.
    pub(super) fn all_readable(self) -> Result<(), Failure> {
        self.0.into_values().flatten().next().map_or(Ok(()), Err)
    }

    /// Returns what is wrong with the trace of a job.
    pub(super) fn of(&self, job: &Job) -> Option<&Failure> {
        self.0.get(&key(job)).and_then(Option::as_ref)
    }
}
