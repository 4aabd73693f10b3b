//! A host request from its first extent to its completion.
//!
//! Invariants: a request is counted once, when it ends; until then it is in flight. A request with
//! a delayed completion ends when its [`DelayedCompletion`] is dropped. Its recorded time then
//! reaches at least to the due time.

use super::{Core, Durable, EIO, Op, Unlocked};
use crate::device::{Completion, DelayedCompletion, Flush};
use ftl_core::FtlError;
use nand_model::Nanos;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Values recorded when a request ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) op: Op,
    pub(super) bytes: u64,
    pub(super) began: Instant,
    /// Emulated flash time, if the request reached the flash.
    pub(super) emulated: Option<Nanos>,
    /// Due time of the completion, if it is delayed.
    pub(super) due: Option<Instant>,
}

/// A request that outlives the call that began it. Counted when dropped.
struct InFlight {
    facts: Facts,
    errno: Option<i32>,
    unlocked: Arc<Unlocked>,
}

impl InFlight {
    /// Converts it into its completion.
    fn completion(self) -> Completion {
        self.facts
            .due
            .map(|due| DelayedCompletion::counted(due, self))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.unlocked.end(&self.facts, self.errno);
    }
}

/// One host request across its extents.
pub(super) struct Request<'a> {
    op: Op,
    bytes: u64,
    began: Instant,
    unlocked: &'a Arc<Unlocked>,
    /// Emulated start time, on the current shard.
    start: Option<Nanos>,
    /// Whether its first extent has begun.
    begun: bool,
    /// Emulated end, on the current shard.
    done: Nanos,
    /// Longest emulated time on one of the shards before.
    longest: Option<Nanos>,
    due: Option<Instant>,
}

impl<'a> Request<'a> {
    pub(super) fn begin(unlocked: &'a Arc<Unlocked>, op: Op, bytes: u64) -> Self {
        unlocked.counters.begin(op, 1);
        Request {
            op,
            bytes,
            began: Instant::now(),
            unlocked,
            start: None,
            begun: false,
            done: 0,
            longest: None,
            due: None,
        }
    }

    /// Continues on another shard, whose flash works at the same time.
    pub(super) fn next_shard(&mut self) {
        self.longest = self.emulated();
        (self.start, self.done) = (None, 0);
    }

    /// Returns the emulated time so far, if the request reached the flash.
    fn emulated(&self) -> Option<Nanos> {
        let here = self.start.map(|start| self.done.saturating_sub(start));
        self.longest.max(here)
    }

    /// Returns true once, before the first extent.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// Returns whether the request has data to write.
    pub(super) fn is_write(&self) -> bool {
        self.op == Op::Write
    }

    /// Runs one extent: all extents of a request start at the same emulated instant on a shard.
    /// `last` marks the last one on the shard.
    pub(super) fn step(
        &mut self,
        core: &mut Core,
        last: bool,
        verb: impl FnOnce(&mut Core, Nanos) -> Result<Nanos, FtlError>,
    ) -> Result<(), FtlError> {
        let at = *self
            .start
            .get_or_insert_with(|| core.clock.start(self.unlocked.counters.depth()));
        let done = verb(core, at)?;
        debug_assert!(
            done >= at,
            "an extent that began at {at} ns ended at {done} ns"
        );
        self.done = self.done.max(done);
        if last {
            self.due = self.due.max(core.clock.done(self.done));
        }
        Ok(())
    }

    pub(super) fn end(self, result: io::Result<()>) -> io::Result<Completion> {
        if let Err(error) = result {
            return Err(self.fail(error));
        }
        assert!(
            self.emulated().is_some() || self.bytes == 0,
            "{} bytes of type {:?} succeeded without the flash",
            self.bytes,
            self.op
        );
        match self.due.filter(|due| *due > Instant::now()) {
            Some(_) => Ok(self.in_flight(None).completion()),
            None => {
                self.unlocked.end(
                    &Facts {
                        due: None,
                        ..self.facts()
                    },
                    None,
                );
                Ok(None)
            }
        }
    }

    pub(super) fn fail(&self, error: io::Error) -> io::Error {
        let facts = Facts {
            emulated: None,
            due: None,
            ..self.facts()
        };
        self.unlocked
            .end(&facts, Some(error.raw_os_error().unwrap_or(EIO)));
        error
    }

    fn facts(&self) -> Facts {
        Facts {
            op: self.op,
            bytes: self.bytes,
            began: self.began,
            emulated: self.emulated(),
            due: self.due,
        }
    }

    fn in_flight(self, errno: Option<i32>) -> InFlight {
        InFlight {
            facts: self.facts(),
            errno,
            unlocked: self.unlocked.clone(),
        }
    }
}

/// The newest operation of a store, to wait for.
pub(super) struct Mark {
    pub(super) durable: Arc<dyn Durable>,
    pub(super) mark: u64,
}

/// A FLUSH that waits for the stores' sync. Dropped without waiting, it counts as failed.
pub(super) struct FlushWait {
    request: InFlight,
    /// One mark for each shard.
    marks: Vec<Mark>,
}

impl FlushWait {
    pub(super) fn new(request: Request<'_>, marks: Vec<Mark>) -> Self {
        assert_eq!(
            request.op,
            Op::Flush,
            "a request that is no flush waits for a sync"
        );
        let errno = (!marks.is_empty()).then_some(EIO);
        FlushWait {
            request: request.in_flight(errno),
            marks,
        }
    }
}

impl Flush for FlushWait {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        let FlushWait { mut request, marks } = *self;
        request.unlocked.wait(&marks)?;
        request.errno = None;
        request.facts.due = request.facts.due.filter(|due| *due > Instant::now());
        Ok(request.completion())
    }
}
