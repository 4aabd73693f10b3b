//! Work between requests: snapshots, collection ahead of need, giving file space back. In small
//! slices under the request lock, and only while nobody asks for anything.

use crate::volume::{Idle, Volume};
use nand_model::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two snapshots.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// Snapshots skipped because the lock was taken, before one waits for it.
const PATIENCE: u32 = 10;
/// Silence of the host after which background work begins.
const QUIET: Duration = Duration::from_millis(200);
/// Flash operations of one slice: some hundred microseconds of the lock.
const SLICE_OPS: u32 = 16;

/// After which a device that was left with nothing to do is asked again: its cells age.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Between two looks for space of the host that can be given back.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// How long ending may wait for the thread that syncs, when there is nothing to sync.
const SYNC_PATIENCE: Duration = Duration::from_millis(200);

/// The threads; end when dropped.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    turns: Arc<AtomicU64>,
}

impl Background {
    /// Starts them.
    pub(crate) fn start<S: Store + 'static>(
        volume: &Arc<Volume<S>>,
    ) -> std::io::Result<Background> {
        let turns = Arc::<AtomicU64>::default();
        let mut background = Background {
            stop: Vec::new(),
            threads: Vec::new(),
            turns: turns.clone(),
        };
        let mut worker = Worker {
            volume: volume.clone(),
            turns,
            skipped: 0,
            settled: None,
            tidied: Instant::now(),
        };
        background.repeat("ftld-background", PUBLISH_EVERY, move || worker.tick())?;
        let volume = volume.clone();
        // Begins the sync that frees erased space before a request would have to wait for it.
        background.repeat("ftld-sync", Duration::ZERO, move || {
            volume.reclaim_when_short(SYNC_PATIENCE)
        })?;
        Ok(background)
    }

    /// Counts how often it had the request lock: some times a second, as long as nobody keeps it.
    pub(crate) fn turns(&self) -> Arc<AtomicU64> {
        self.turns.clone()
    }

    fn repeat(
        &mut self,
        name: &str,
        every: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> std::io::Result<()> {
        let (stop, stopped) = channel::<()>();
        let again = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                work();
            }
        };
        self.stop.push(stop);
        self.threads
            .push(std::thread::Builder::new().name(name.into()).spawn(again)?);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Worker<S: Store> {
    volume: Arc<Volume<S>>,
    turns: Arc<AtomicU64>,
    skipped: u32,
    /// When there was nothing left to do, and how many programs and erases were done by then.
    settled: Option<(Instant, u64)>,
    tidied: Instant,
}

impl<S: Store + 'static> Worker<S> {
    fn tick(&mut self) {
        let had_it = self.volume.publish(self.skipped >= PATIENCE);
        self.skipped = if had_it { 0 } else { self.skipped + 1 };
        self.turns.fetch_add(had_it.into(), Relaxed);
        if self.volume.quiet_for() < QUIET {
            return;
        }
        let total = self.volume.flash().counters.total();
        let work = total.programs + total.erases;
        if !self
            .settled
            .is_some_and(|(since, then)| then == work && since.elapsed() < LOOK_AGAIN)
        {
            self.settled = None;
            if !self.idle() {
                self.volume.publish(true);
                let total = self.volume.flash().counters.total();
                self.settled = Some((Instant::now(), total.programs + total.erases));
            }
        }
        if self.tidied.elapsed() >= TIDY_EVERY {
            self.tidied = Instant::now();
            self.volume.tidy();
        }
    }

    /// Slices until the next snapshot is due or a request comes. Returns whether there is more to
    /// do.
    fn idle(&self) -> bool {
        let until = Instant::now() + PUBLISH_EVERY;
        while Instant::now() < until && self.volume.quiet_for() >= QUIET {
            match self.volume.idle(SLICE_OPS) {
                Idle::Settled => return false,
                Idle::More => {}
                Idle::After(busy) => {
                    std::thread::sleep(busy.min(until.saturating_duration_since(Instant::now())))
                }
            }
        }
        true
    }
}
