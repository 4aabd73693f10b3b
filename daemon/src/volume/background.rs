//! Work of a volume besides requests: snapshots, background work of the scheme, reclaiming of
//! erased space, and closing.
//!
//! Invariants: background work takes the lock only if it is free; [`Volume::close`] and a caller
//! with `insist` wait for it. If power fails, a mount repeats the unfinished work.

use super::host::Op;
use super::locked::Core;
use super::snapshot::FlashSnapshot;
use super::unlocked::{NO_DATA, WELL};
use super::watch::{BlockMap, EventsView};
use super::{EIO, Idle, Volume, WATCHED};
use crate::convert::millis;
use nand_model::Store;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl<S: Store + 'static> Volume<S> {
    /// Returns the time since the last request ended; zero while requests are in flight.
    pub fn idle_time(&self) -> Duration {
        let last = Duration::from_millis(self.unlocked.last_request_ms.load(Relaxed));
        if self.unlocked.counters.depth() > 0 {
            return Duration::ZERO;
        }
        self.unlocked.origin.elapsed().saturating_sub(last)
    }

    /// Records that a client watches: for the next `WATCHED`, [`Volume::publish`] includes the
    /// block map and the events.
    pub fn watch(&self) {
        let now = millis(self.unlocked.origin.elapsed());
        self.unlocked.watched_ms.store(now.max(1), Relaxed);
    }

    fn is_watched(&self) -> bool {
        let last = self.unlocked.watched_ms.load(Relaxed);
        last > 0
            && self
                .unlocked
                .origin
                .elapsed()
                .saturating_sub(Duration::from_millis(last))
                < WATCHED
    }

    /// Returns the last published block map. Never waits for a request.
    pub fn blocks(&self) -> Arc<BlockMap> {
        self.map.lock().clone()
    }

    /// Returns the newest published events from number `from` on, at most `most`. Never waits for a
    /// request.
    pub fn events(&self, from: u64, most: usize) -> EventsView {
        self.shown.lock().since(from, most)
    }

    /// Publishes a new snapshot and, while a client watches, the block map and the events. Waits
    /// for the lock only if `insist`; returns whether it got the lock.
    pub fn publish(&self, insist: bool) -> bool {
        let mut scan = self.is_watched().then(|| self.scan.lock());
        let next = self.shown.lock().next();
        let mut guard = match self.core.try_lock() {
            Some(guard) => guard,
            None if insist => self.lock(),
            None => return false,
        };
        if self.unlocked.health.load(Relaxed) >= NO_DATA {
            return true;
        }
        let taken = self.run(&mut guard, false, |core| {
            core.look_at_wear();
            self.unlocked
                .events
                .store(core.ftl.events().total(), Relaxed);
            let written = self.unlocked.counters.of(Op::Write).bytes.load(Relaxed);
            let changed = scan.as_mut().is_some_and(|scan| scan.slice(&*core.ftl));
            let events = match scan {
                Some(_) => core
                    .ftl
                    .events()
                    .since(next)
                    .map(|(number, event)| (number, *event))
                    .collect(),
                None => Vec::new(),
            };
            let mut snapshot = FlashSnapshot::take(core, written);
            snapshot.cache.write_through = self.unlocked.write_through.load(Relaxed);
            Ok((snapshot, changed, events))
        });
        drop(guard);
        let Ok((snapshot, changed, events)) = taken else {
            return true;
        };
        *self.published.lock() = Arc::new(snapshot);
        if let Some(scan) = scan.filter(|_| changed) {
            *self.map.lock() = Arc::new(scan.map().clone());
        }
        self.shown.lock().add(events);
        true
    }

    /// Does background work of about `budget` flash operations, if the lock is free.
    pub fn idle(&self, budget: u32) -> Idle {
        if self.shape.read_only || self.unlocked.health.load(Relaxed) != WELL {
            return Idle::Settled;
        }
        if self.paused().is_some() {
            return Idle::After(Duration::from_secs(1));
        }
        let Some(mut guard) = self.core.try_lock() else {
            return Idle::More;
        };
        // A pause that began meanwhile has ended when its command is answered.
        if self.paused().is_some() {
            return Idle::After(Duration::from_secs(1));
        }
        if guard
            .as_mut()
            .is_some_and(|core| core.erases_left() < self.shape.erases_eager)
        {
            self.tell_short();
            return Idle::Settled;
        }
        let work = |core: &mut Core<S>| match core.clock.until(core.ftl.chip().busy_until()) {
            Some(busy) => Ok(Idle::After(busy)),
            None if core.ftl.idle(core.clock.start(1), budget)? => Ok(Idle::More),
            None => Ok(Idle::Settled),
        };
        self.run(&mut guard, true, work).unwrap_or(Idle::Settled)
    }

    /// Discards a bounded part of the image's freed space, if the lock is free.
    pub fn discard_freed_space(&self) {
        if self.shape.read_only || self.unlocked.health.load(Relaxed) != WELL {
            return;
        }
        let (Some(durable), Some(mut guard)) = (&self.durable, self.core.try_lock()) else {
            return;
        };
        if let Some(Err(error)) = guard
            .as_mut()
            .map(|core| durable.discard_freed_space(core.ftl.chip_mut().store_mut()))
        {
            tracing::debug!("giving space back: {error}");
        }
    }

    /// Waits up to `patience` for erases to run short, then for the sync that makes more erases
    /// possible.
    pub fn reclaim_when_short(&self, patience: Duration) {
        let (lock, told) = &self.unlocked.short_told;
        let mut guard = lock.lock();
        let quiet = |_: &mut ()| !self.unlocked.short.load(Relaxed);
        told.wait_while_for(&mut guard, quiet, patience);
        drop(guard);
        if self.unlocked.short.load(Relaxed) {
            let mark = self.mark(&mut self.lock());
            let _ = self.wait_for_erased_space(mark);
            self.unlocked.short.store(false, Relaxed);
        }
    }

    /// Flushes, writes a checkpoint, waits for the host's storage and returns the store. Later
    /// requests fail with `EIO`. A read-only or failed volume, or one whose flash loses power
    /// meanwhile, only returns the store.
    ///
    /// # Errors
    /// `EIO` if the volume was closed already, if the scheme failed to shut down, or if the last
    /// sync failed.
    pub fn close(&self) -> io::Result<S> {
        self.resume();
        let is_well = || !self.shape.read_only && self.unlocked.health.load(Relaxed) == WELL;
        let drained = if self.shape.has_cache && is_well() && self.lock().is_some() {
            self.drain_to_close()
        } else {
            Ok(false)
        };
        let mut guard = self.lock();
        if guard.is_none() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let well = is_well();
        let stopped = if well {
            self.run(&mut guard, true, |core| {
                core.ftl.shutdown(core.clock.start(1)).map(drop)
            })
        } else {
            Ok(())
        };
        let mark = self.mark(&mut guard);
        let Some(mut core) = guard.take() else {
            return Err(io::Error::from_raw_os_error(EIO));
        };
        drop(guard);
        if !self.is_powerless() {
            stopped?;
            if well {
                self.wait(mark)?;
                if let Some(cache) = &mut core.cache {
                    if drained? {
                        cache.detach()
                    } else {
                        cache.seal()
                    }?;
                }
            }
        }
        Ok(core.ftl.into_chip().into_store())
    }
}
