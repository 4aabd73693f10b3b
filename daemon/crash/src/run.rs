//! Records a run and explores it.

use crate::disk::Disk;
use crate::error::Error;
use crate::report::Report;
use crate::state::State;
use ftld_lab::crashes::{self, At, Plan, Recorded, Snapshot};
use ftld_traces::recording::Kind;
use std::fmt::{self, Display};

/// Unit of atomicity in bytes, unless [`Crash::unit`] sets another.
const UNIT: u32 = 4096;

/// Which states a power cut can leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Model {
    /// Every unit has its content of the last sync, or a newer one: what a drive with a volatile
    /// cache can leave.
    #[default]
    Cache,
    /// All writes so far, in order: what the death of the process leaves.
    Prefix,
}

/// A disk on which a run is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    size: u64,
    unit: u32,
}

impl Crash {
    /// A disk of zeros of `size` bytes, a multiple of the unit.
    pub fn new(size: u64) -> Crash {
        Crash { size, unit: UNIT }
    }

    /// Sets the unit of atomicity, 4096 bytes by default: a power cut leaves a unit with one whole
    /// content. A power of two from 512 to 65536.
    #[must_use]
    pub fn unit(self, bytes: u32) -> Crash {
        Crash {
            unit: bytes,
            ..self
        }
    }

    /// Runs a closure on the disk and records its writes, syncs and marks.
    ///
    /// # Errors
    /// The size is 0 or no multiple of the unit; the closure returns an error, or neither writes
    /// nor sets a mark; the folder of temporary files cannot be written.
    pub fn record<E: Display>(
        self,
        run: impl FnOnce(&Disk) -> Result<(), E>,
    ) -> Result<Run, Error> {
        let Crash { size, unit } = self;
        if !Recorded::is_unit(unit) {
            return Err(Error::Unit(unit));
        }
        if size == 0 || !size.is_multiple_of(unit.into()) {
            return Err(Error::Size { size, unit });
        }
        let disk = Disk::recorded(size, unit);
        let result = run(&disk);
        let (entries, flushes_without_sync) = disk.end();
        if let Err(error) = result {
            return Err(Error::Failed {
                entries: entries.len(),
                reason: format!("{error:#}"),
            });
        }
        if entries.iter().all(|entry| entry.kind == Kind::Flush) {
            return Err(Error::Nothing);
        }
        Ok(Run {
            size,
            unit,
            recorded: Recorded::new(size, unit, entries)?,
            flushes_without_sync,
            plan: Plan::default(),
        })
    }
}

/// A recorded run, and which of its states are checked.
#[must_use]
pub struct Run {
    size: u64,
    unit: u32,
    recorded: Recorded,
    flushes_without_sync: u64,
    plan: Plan,
}

impl Run {
    /// Sets which states a power cut can leave; [`Model::Cache`] by default.
    pub fn model(mut self, model: Model) -> Run {
        self.plan.model = match model {
            Model::Cache => crashes::Model::Cache,
            Model::Prefix => crashes::Model::Prefix,
        };
        self
    }

    /// Sets where power fails; [`At::Request`] by default, after every write, sync and mark.
    pub fn at(mut self, at: At) -> Run {
        self.plan.at = at;
        self
    }

    /// Leaves out the points before the first mark: a cut while the store creates its files.
    pub fn after_mark(mut self) -> Run {
        self.plan.after_mark = true;
        self
    }

    /// Sets the states per point, 16 by default: all of them if they are at most as many.
    pub fn states(mut self, most: u32) -> Run {
        self.plan.states = most;
        self
    }

    /// Sets the seed of the states that are drawn; 1 by default.
    pub fn seed(mut self, seed: u64) -> Run {
        self.plan.seed = seed;
        self
    }

    /// Sets the number of failed states that ends an exploration, 10 by default; 0 for none.
    pub fn failures(mut self, most: u64) -> Run {
        self.plan.failures = most;
        self
    }

    /// Runs a check on every state. It gets the state and the last mark before the cut, and returns
    /// what is wrong, or panics.
    ///
    /// # Errors
    /// The run has no point of the kind that was set, or the folder of temporary files is full. A
    /// failed state is no error: [`Report::assert_none_failed`].
    pub fn explore<E: Display>(
        &self,
        check: impl FnMut(&State, Option<&str>) -> Result<(), E>,
    ) -> Result<Report, Error> {
        let explored = self
            .recorded
            .explore(&self.plan, &mut self.checked(check))?;
        let note = (explored.failed > 0 && self.flushes_without_sync > 0).then(|| {
            format!(
                "Write::flush was called {} times and makes nothing durable, as that of a File; \
                 sync_data does",
                self.flushes_without_sync
            )
        });
        Ok(Report::new(explored, note))
    }

    /// Runs a check on the state of one case, which a report names. Panics are printed, as
    /// in any test.
    ///
    /// # Errors
    /// The run has no such case, or the folder of temporary files is full.
    pub fn case<E: Display>(
        &self,
        name: &str,
        check: impl FnMut(&State, Option<&str>) -> Result<(), E>,
    ) -> Result<Report, Error> {
        let explored = self.recorded.case(name, &mut self.checked(check))?;
        Ok(Report::new(explored, None))
    }

    /// Returns the check as the lab calls it.
    fn checked<E: Display>(
        &self,
        mut check: impl FnMut(&State, Option<&str>) -> Result<(), E>,
    ) -> impl FnMut(Snapshot, Option<&str>) -> Result<(), String> {
        let (size, unit) = (self.size, self.unit);
        move |snapshot, mark| {
            let state = State::new(size, unit, snapshot);
            check(&state, mark).map_err(|error| format!("{error:#}"))
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [writes, syncs, marks] = self.recorded.counts();
        write!(f, "Run of {writes} writes, {syncs} syncs, {marks} marks")
    }
}
