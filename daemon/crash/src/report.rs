//! Results of an exploration.

use ftld_lab::crashes::Explored;
pub use ftld_lab::crashes::Failing;
use std::fmt;

/// Result of an exploration. Its [`fmt::Display`] is what `ftld crashes` prints.
#[must_use = "a report is a verdict only with assert_none_failed"]
#[derive(Clone)]
pub struct Report {
    explored: Explored,
    /// Remark on the run, printed with the report.
    note: Option<String>,
}

impl Report {
    pub(crate) fn new(explored: Explored, note: Option<String>) -> Report {
        Report { explored, note }
    }

    /// Returns the number of points at which power failed.
    pub fn points(&self) -> u64 {
        self.explored.points
    }

    /// Returns the number of states, equal ones counted as often as they occurred.
    pub fn states(&self) -> u64 {
        self.explored.states
    }

    /// Returns the number of different states, on each of which the check ran.
    pub fn checked(&self) -> u64 {
        self.explored.checked
    }

    /// Returns the number of states that failed.
    pub fn failed(&self) -> u64 {
        self.explored.failed
    }

    /// Returns the failing case with the fewest units that are not as they were written.
    pub fn shortest(&self) -> Option<&Failing> {
        self.explored.shortest.as_ref()
    }

    /// Passes if no state failed.
    ///
    /// # Panics
    /// A state failed; the message is the report.
    #[track_caller]
    pub fn assert_none_failed(&self) {
        assert!(self.explored.failed == 0, "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explored.text)?;
        match &self.note {
            Some(note) => writeln!(f, "{note}"),
            None => Ok(()),
        }
    }
}

/// As [`fmt::Display`].
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
