//! Background work. One thread publishes snapshots and, while no request is in flight, runs GC and
//! releases file space, in small slices under the request lock. Another thread syncs when erased
//! space runs short or much is unsynced; it waits without the lock.

use crate::volume::write_cache::AGE;
use crate::volume::{Idle, UnsyncedAge, Volume};
use ftld_kit::failure::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between two snapshots.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// Snapshots skipped because the lock was taken, before the worker waits for the lock.
const PATIENCE: u32 = 10;
/// Idle time of the host before background work begins.
const QUIET: Duration = Duration::from_millis(200);
/// Flash operations of one slice: the lock is held for a few 100 us.
const SLICE_OPS: u32 = 16;

/// Interval after which an idle device is checked again: its cells age.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Interval between two looks at the kernel's write cache of the device.
const LOOK_AT_KERNEL_EVERY: Duration = Duration::from_secs(1);
/// Interval between two searches for host file space to release.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Longest wait of the sync thread for work, and so the longest delay of a stop.
const SYNC_PATIENCE: Duration = Duration::from_millis(200);

/// Background threads; dropping it stops them.
#[derive(Debug)]
pub struct Background {
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    turns: Arc<AtomicU64>,
}

impl Background {
    /// Starts the threads. `write_through` is the kernel's file with the write cache of the device,
    /// if the kernel serves the device.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        volume: &Arc<Volume>,
        write_through: Option<PathBuf>,
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
        background.repeat(volume, "ftld-background", PUBLISH_EVERY, move || {
            worker.tick();
        })?;
        if volume.has_cache() {
            let cached = volume.clone();
            background.repeat(volume, "ftld-cache", PUBLISH_EVERY, move || {
                cached.write_back_aged(AGE);
            })?;
        }
        if let Some(file) = write_through {
            let told = volume.clone();
            background.repeat(volume, "ftld-kernel", LOOK_AT_KERNEL_EVERY, move || {
                if let Ok(text) = std::fs::read_to_string(&file) {
                    told.set_write_through(text.trim() == "write through");
                }
            })?;
        }
        let syncs = volume.clone();
        let mut unsynced = UnsyncedAge::new(Instant::now());
        background.repeat(volume, "ftld-sync", Duration::ZERO, move || {
            // Starts the sync that frees erased space before a request has to wait for it.
            syncs.reclaim_when_short(SYNC_PATIENCE);
            syncs.sync_when_due(&mut unsynced, Instant::now());
        })?;
        Ok(background)
    }

    /// Returns a counter of the worker's turns with the request lock. It grows several times per
    /// second unless the lock is blocked.
    pub fn turns(&self) -> Arc<AtomicU64> {
        self.turns.clone()
    }

    /// Starts a thread that works once per interval. If it panics, the device fails: nothing else
    /// would report it.
    fn repeat(
        &mut self,
        volume: &Arc<Volume>,
        name: &'static str,
        every: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> std::io::Result<()> {
        let (stop, stopped) = channel::<()>();
        let volume = volume.clone();
        let again = move || {
            let repeated = catch_unwind(AssertUnwindSafe(|| {
                while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    work();
                }
            }));
            if let Err(panic) = repeated {
                volume.note_dead_thread(name, panic_text(&*panic));
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

struct Worker {
    volume: Arc<Volume>,
    turns: Arc<AtomicU64>,
    skipped: u32,
    /// Time at which background work ran out, and the programs and erases done by then.
    settled: Option<(Instant, u64)>,
    tidied: Instant,
}

impl Worker {
    fn tick(&mut self) {
        let had_it = self.volume.publish(self.skipped >= PATIENCE);
        self.skipped = if had_it { 0 } else { self.skipped + 1 };
        assert!(
            self.skipped <= PATIENCE,
            "{} snapshots skipped, limited to {PATIENCE}",
            self.skipped
        );
        self.turns.fetch_add(had_it.into(), Relaxed);
        if self.volume.idle_time() < QUIET {
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
            self.volume.discard_freed_space();
        }
    }

    /// Runs slices until the next snapshot is due or a request arrives. Returns whether work
    /// remains.
    fn idle(&self) -> bool {
        let until = Instant::now() + PUBLISH_EVERY;
        while Instant::now() < until && self.volume.idle_time() >= QUIET {
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

/// Starts a thread that panics at once.
#[cfg(test)]
pub(crate) fn start_panicking(volume: &Arc<Volume>, name: &'static str) -> std::io::Result<()> {
    let mut background = Background {
        stop: Vec::new(),
        threads: Vec::new(),
        turns: Arc::default(),
    };
    background.repeat(volume, name, Duration::ZERO, || panic!("planted"))?;
    background
        .threads
        .drain(..)
        .for_each(|thread| drop(thread.join()));
    Ok(())
}
