//! Work of a volume besides requests: snapshots, background work of the scheme, reclaiming of
//! erased space, and closing.
//!
//! Invariants: background work takes the lock only if it is free; [`Volume::close`] and a caller
//! with `insist` wait for it. If power fails, a mount repeats the unfinished work.

use super::host::Op;
use super::locked::Core;
use super::shard::Shard;
use super::snapshot::FlashSnapshot;
use super::unlocked::{NO_DATA, WELL};
use super::watch::{BlockMap, EventsView};
use super::write_cache::WriteCache;
use super::{EIO, Idle, Volume, WATCHED, sums};
use ftld_kit::convert::millis;
use nand_model::Store;
use nand_model::store::AnyStore;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Volume {
    /// Returns the time since the last request ended; zero while requests are in flight.
    pub(crate) fn idle_time(&self) -> Duration {
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

    /// Returns the last published block maps, one shard after the other. Never waits for a request.
    pub fn blocks(&self) -> Arc<BlockMap> {
        let maps = self.shards.iter().map(|shard| shard.map.lock().clone());
        sums::block_map(maps.collect())
    }

    /// Returns the newest published events from number `from` on, at most `most`. Never waits for a
    /// request.
    pub fn events(&self, from: u64, most: usize) -> EventsView {
        self.shown.lock().since(from, most)
    }

    /// Publishes a new snapshot and, while a client watches, the block map and the events. Waits
    /// for the locks only if `insist`; returns whether it got all of them.
    pub fn publish(&self, insist: bool) -> bool {
        let mut got_all = true;
        for (number, shard) in self.shards.iter().enumerate() {
            got_all &= self.publish_shard(number, shard, insist);
        }
        *self.published.lock() = sums::snapshot(&self.shards);
        got_all
    }

    fn publish_shard(&self, number: usize, shard: &Shard, insist: bool) -> bool {
        let mut scan = self.is_watched().then(|| shard.scan.lock());
        let next = self.shown.lock().next_of(number);
        let mut guard = match shard.try_lock() {
            Some(guard) => guard,
            None if insist => shard.lock(),
            None => return false,
        };
        if self.unlocked.health.load(Relaxed) >= NO_DATA {
            return true;
        }
        guard.note_events();
        let taken = self.run(&mut guard, false, |core| {
            core.look_at_wear();
            let written = self.unlocked.counters.bytes(Op::Write);
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
        *shard.published.lock() = Arc::new(snapshot);
        if let Some(scan) = scan.filter(|_| changed) {
            *shard.map.lock() = Arc::new(scan.map().clone());
        }
        self.shown.lock().add(number, events);
        true
    }

    /// Does background work of about `budget` flash operations in each shard whose lock is free.
    pub fn idle(&self, budget: u32) -> Idle {
        let shards = self.shards.iter();
        let left = shards.map(|shard| self.idle_shard(shard, budget));
        left.reduce(Idle::soonest).unwrap_or(Idle::Settled)
    }

    fn idle_shard(&self, shard: &Shard, budget: u32) -> Idle {
        if self.shape.read_only || self.unlocked.health.load(Relaxed) != WELL {
            return Idle::Settled;
        }
        if self.paused().is_some() {
            return Idle::After(Duration::from_secs(1));
        }
        let Some(mut guard) = shard.try_lock() else {
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
            self.tell_short(shard);
            return Idle::Settled;
        }
        let work = |core: &mut Core| match core.clock.until(core.ftl.chip().busy_until()) {
            Some(busy) => Ok(Idle::After(busy)),
            None if core.ftl.idle(core.clock.start(1), budget)? => Ok(Idle::More),
            None => Ok(Idle::Settled),
        };
        let left = self.run(&mut guard, true, work);
        drop(guard);
        self.with_power(left).unwrap_or(Idle::Settled)
    }

    /// Discards a bounded part of the freed space of each shard whose lock is free; nothing while
    /// the device is paused, since its image may be copied meanwhile.
    pub fn discard_freed_space(&self) {
        if self.shape.read_only || self.unlocked.health.load(Relaxed) != WELL {
            return;
        }
        for shard in &self.shards {
            let Some(mut guard) = shard.try_lock() else {
                continue;
            };
            if self.paused().is_some() {
                return;
            }
            if let Some(Err(error)) = guard
                .as_mut()
                .map(|core| core.ftl.chip_mut().store_mut().trim_free_slots(1))
            {
                tracing::debug!("giving space back: {error}");
            }
        }
    }

    /// Waits up to `patience` for erases to run short, then for the sync that makes more erases
    /// possible.
    pub fn reclaim_when_short(&self, patience: Duration) {
        let is_short = |shard: &Shard| shard.short.load(Relaxed);
        let (lock, told) = &self.unlocked.short_told;
        let mut guard = lock.lock();
        let quiet = |_: &mut ()| !self.shards.iter().any(is_short);
        told.wait_while_for(&mut guard, quiet, patience);
        drop(guard);
        for shard in self.shards.iter().filter(|shard| is_short(shard)) {
            let mark = shard.lock().mark();
            let _ = self.wait_for_erased_space(shard, mark);
            shard.short.store(false, Relaxed);
        }
    }

    /// Flushes, writes checkpoints, waits for the host's storage and returns the stores of all
    /// shards. Later requests fail with `EIO`. A read-only or failed volume, or one whose flash
    /// loses power meanwhile, only returns the stores.
    ///
    /// # Errors
    /// `EIO` if the volume was closed already, if a scheme failed to shut down, or if the last sync
    /// failed.
    pub fn close(&self) -> io::Result<Vec<AnyStore>> {
        self.resume();
        let eio = || io::Error::from_raw_os_error(EIO);
        let is_well = || !self.shape.read_only && self.unlocked.health.load(Relaxed) == WELL;
        if self.shards.iter().any(|shard| shard.lock().is_none()) {
            return Err(eio());
        }
        let drained = if self.has_cache() && is_well() {
            self.drain_to_close()
        } else {
            Ok(false)
        };
        let (mut cores, mut marks) = (Vec::new(), Vec::new());
        let (mut stopped, mut were_well) = (Ok(()), true);
        for shard in &self.shards {
            let mut guard = shard.lock();
            let well = is_well();
            if well {
                let shut_down = self.run(&mut guard, true, |core| {
                    core.ftl.shutdown(core.clock.start(1)).map(drop)
                });
                stopped = stopped.and(shut_down);
            }
            were_well &= well;
            marks.extend(Self::mark_of(&mut guard));
            cores.push(guard.take().ok_or_else(eio)?);
        }
        if self.is_powerless() {
            // In a shard that had not noticed, too.
            cores.iter_mut().for_each(Core::lose_power);
        } else {
            stopped?;
            if were_well {
                self.unlocked.wait(&marks)?;
                let caches = cores.iter_mut().filter_map(|core| core.cache.as_mut());
                if self.has_cache() {
                    end_caches(caches.map(|cache| &mut **cache), drained?)?;
                }
            }
        }
        let stores = cores.into_iter();
        Ok(stores
            .map(|core| core.ftl.into_chip().into_store())
            .collect())
    }
}

/// Ends the use of drained caches, which have one area; keeps the entries of others.
fn end_caches<'a>(
    mut caches: impl Iterator<Item = &'a mut WriteCache>,
    drained: bool,
) -> io::Result<()> {
    if drained {
        return caches.next().map_or(Ok(()), WriteCache::detach);
    }
    caches.try_for_each(WriteCache::seal)
}
