//! Batches: writes and trims that are acknowledged together, when the batch ends.
//!
//! Invariants: until then, each page of them may have its old or its new content after the process
//! died. A read, a FLUSH and idle work end a batch; so does everything that a volume does not do
//! while it holds its lock.

use super::{Runner, Verdict};
use crate::host::is_barrier;
use crate::swarm::plan::{Down, Step};
use crate::swarm::world::World;
use crate::workload::HostOp;

/// A batch that has begun.
#[derive(Default)]
pub(super) struct Batch {
    /// Requests that it still takes.
    left: u32,
    /// Pages and values of the requests so far.
    written: Vec<(u32, u64)>,
}

/// Whether a step is one that happens in a batch: a request of it, a sync by another thread, the
/// end of process or host.
pub(super) fn may_contain(step: &Step) -> bool {
    match step {
        Step::Do(op) => !is_barrier(op) && !matches!(op, HostOp::Read { .. } | HostOp::Idle(_)),
        Step::Cut(..) | Step::Sync | Step::Down(Down::Kill | Down::Crash(_), _) => true,
        _ => false,
    }
}

impl<W: World> Runner<'_, W> {
    pub(super) fn begin_batch(&mut self, requests: u32) -> Verdict {
        self.ftl().begin_batch();
        self.batch = Some(Batch {
            left: requests,
            written: Vec::new(),
        });
        Ok(())
    }

    /// A request of the batch was executed.
    pub(super) fn executed_in_batch(&mut self, written: Vec<(u32, u64)>) -> Verdict {
        for (lpn, value) in &written {
            self.oracle.doubt(*lpn, *value);
        }
        let batch = self.batch.as_mut().expect("a batch has begun");
        batch.written.extend(written);
        batch.left = batch.left.saturating_sub(1);
        match batch.left {
            0 => self.end_batch(),
            _ => Ok(()),
        }
    }

    /// Power fails in a request of the batch: the store gets what was programmed before, and
    /// nothing is acknowledged.
    pub(super) fn cut_in_batch(&mut self) {
        if self.batch.take().is_some() {
            self.classes.note("batch cut");
            // The disk may refuse it, as any write.
            let _ = self.ftl().end_batch();
        }
    }

    /// Ends the batch, if there is one.
    pub(super) fn end_batch(&mut self) -> Verdict {
        let Some(Batch { written, .. }) = self.batch.take() else {
            return Ok(());
        };
        match self.ftl().end_batch() {
            Ok(()) => {
                self.classes.note("batch");
                written
                    .iter()
                    .for_each(|(lpn, value)| self.oracle.acknowledge(*lpn, *value));
                Ok(())
            }
            Err(error) => {
                self.classes.note("batch refused by the host");
                self.refused_writes(&written);
                self.refused(error)
            }
        }
    }
}
