//! Gate that delays the host's syncs until the runner lets them complete, and a recorder of each
//! connection's calls to the volume.

use ftld_device::device::{BlockDevice, Completion, Flush, FlushOf, Layer};
use ftld_device::volume::{Durable, Volume};
use nand_model::store::AnyStore;
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest time that a flush may be pending without a waiting thread; afterwards none is expected.
const UNCLAIMED: Duration = Duration::from_millis(200);
/// Longest delay of a sync: a request may wait for it inside the scheme, invisible to the runner.
const PATIENCE: Duration = Duration::from_millis(300);

thread_local! {
    /// Whether a sync on this thread may be delayed. Never set on the runner's thread.
    static MAY_HOLD: Cell<bool> = const { Cell::new(false) };
}

/// Gate that delays syncs.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    hold: bool,
    /// Delayed syncs.
    held: u32,
    /// Number of delayed syncs that may complete.
    passes: u32,
    /// Flushes started and not ended.
    pending: u64,
    /// Number of pending flushes with a waiting thread.
    waited_for: u64,
    /// Whether no thread waited for a pending flush in time: nothing will happen to these flushes.
    unclaimed: bool,
    /// Ended flushes, by connection.
    ended: Vec<u64>,
    reclaims: u64,
}

impl State {
    fn is_busy(&self) -> bool {
        self.pending > 0 && !self.unclaimed && !(self.hold && self.held > self.passes)
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by a sync in progress.
    pub(super) fn during_sync(&self) {
        if !MAY_HOLD.get() {
            return;
        }
        let mut state = self.lock();
        state.held += 1;
        self.changed.notify_all();
        let closed = |state: &mut State| state.hold && state.passes == 0;
        state = self
            .changed
            .wait_timeout_while(state, PATIENCE, closed)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        state.passes = state.passes.saturating_sub(1);
        state.held -= 1;
        self.changed.notify_all();
    }

    pub(super) fn hold(&self, on: bool) {
        let mut state = self.lock();
        (state.hold, state.passes) = (on, 0);
        self.changed.notify_all();
    }

    /// Lets the delayed sync complete.
    pub(super) fn pass(&self) {
        let mut state = self.lock();
        if state.held > 0 {
            state.passes = 1;
            self.changed.notify_all();
            while state.passes > 0 {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.lock().held > 0
    }

    /// Waits until no thread proceeds without the runner: no flush is pending, a sync is delayed,
    /// or another flush has ended since there were `known`. Returns the ended flushes, by
    /// connection.
    pub(super) fn quiet(&self, known: u64) -> Vec<u64> {
        let busy = |state: &mut State| state.is_busy() && state.ended.iter().sum::<u64>() <= known;
        let mut state = self.lock();
        loop {
            let (next, timeout) = self
                .changed
                .wait_timeout_while(state, UNCLAIMED, busy)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if !timeout.timed_out() {
                return state.ended.clone();
            }
            state.unclaimed = state.waited_for == 0;
        }
    }

    /// Returns whether pending flushes will proceed without the runner.
    pub(super) fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// Notes that a session runs: it may let threads wait for flushes.
    pub(super) fn expect_threads(&self) {
        self.lock().unclaimed = false;
    }

    /// Waits until no flush is pending.
    pub(super) fn idle(&self) {
        drop(
            self.changed
                .wait_while(self.lock(), |state| state.pending > 0)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Returns whether requests had to wait for erased space since the last call.
    pub(super) fn reclaimed(&self) -> bool {
        std::mem::take(&mut self.lock().reclaims) > 0
    }
}

/// Path to the host's storage: a request that waits there for space must not wait for the runner.
pub(super) struct Unblocked {
    pub(super) inner: Arc<dyn Durable>,
    pub(super) gate: Arc<Gate>,
}

impl Durable for Unblocked {
    fn mark(&self, store: &mut AnyStore) -> u64 {
        self.inner.mark(store)
    }
    fn synced(&self) -> u64 {
        self.inner.synced()
    }
    fn wait(&self, mark: u64) -> io::Result<()> {
        self.inner.wait(mark)
    }
    fn wait_for_erased_space(&self, mark: u64) -> io::Result<()> {
        self.gate.hold(false);
        self.gate.lock().reclaims += 1;
        self.inner.wait_for_erased_space(mark)
    }
    fn failed(&self) -> bool {
        self.inner.failed()
    }
}

/// Call of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) well: bool,
    /// Flushes ended by then.
    pub(super) flushes: u64,
}

/// The volume, recorded for one connection.
pub(super) struct Watched {
    pub(super) volume: Arc<Volume>,
    pub(super) gate: Arc<Gate>,
    pub(super) who: usize,
    /// Writes since the last reply.
    pub(super) writes: Mutex<Vec<Call>>,
}

impl Layer for Watched {
    fn below(&self) -> &dyn BlockDevice {
        &*self.volume
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let result = self.volume.write(offset, data);
        let flushes = self.gate.lock().ended.iter().sum();
        let call = Call {
            offset,
            length: data.len() as u64,
            well: result.is_ok(),
            flushes,
        };
        self.writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(call);
        result
    }
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        let inner = self.volume.flush(of)?;
        let mut state = self.gate.lock();
        state.pending += 1;
        state.unclaimed = false;
        if state.ended.len() <= self.who {
            state.ended.resize(self.who + 1, 0);
        }
        Ok(Box::new(WatchedFlush {
            inner: Some(inner),
            end: End {
                gate: self.gate.clone(),
                who: self.who,
            },
        }))
    }
}

struct WatchedFlush {
    inner: Option<Box<dyn Flush>>,
    end: End,
}

impl Flush for WatchedFlush {
    fn wait(mut self: Box<Self>) -> io::Result<Completion> {
        let mut state = self.end.gate.lock();
        (state.waited_for, state.unclaimed) = (state.waited_for + 1, false);
        drop(state);
        MAY_HOLD.set(true);
        let result = self.inner.take().expect("waited for once").wait();
        MAY_HOLD.set(false);
        self.end.gate.lock().waited_for -= 1;
        let WatchedFlush { end, .. } = *self;
        drop(end);
        result
    }
}

/// Counts the end of a flush, with or without a waiting thread.
struct End {
    gate: Arc<Gate>,
    who: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.pending -= 1;
        state.ended[self.who] += 1;
        self.gate.changed.notify_all();
    }
}
