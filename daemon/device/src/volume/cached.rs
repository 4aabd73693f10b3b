//! The volume's part of a write cache: room for writes, FLUSH, background work, replay, end.
//!
//! Invariants: one hold of the lock has one bounded step: an append, or the write-back of one run.
//! If power fails between two steps, every unit that is not written back is still dirty.

use super::block_device::ShardExtent;
use super::request::Request;
use super::shard::{Shard, shard_text};
use super::unlocked::WELL;
use super::write_cache::{CutCounts, Reason, WriteCache};
use super::{Core, EIO, Volume};
use crate::device::{BlockDevice, FlushOf};
use ftl_core::FtlError;
use ftld_kit::size::show_size;
use nand_model::{Nanos, atomic_bytes};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Runs of one turn of the background.
const AGED_RUNS: u32 = 64;

impl Volume {
    /// Gives shards a write cache: one for each, or `None` where there is none. Called before the
    /// first request.
    pub(crate) fn set_caches(&mut self, caches: Vec<Option<WriteCache>>) {
        assert_eq!(caches.len(), self.shards.len(), "a place for each shard");
        for (shard, cache) in self.shards.iter_mut().zip(caches) {
            let Some(cache) = cache else { continue };
            let unit = u64::from(cache.unit());
            self.shape.unit_bytes = cache.unit();
            self.shape.write_bytes = self.shape.write_bytes.min(cache.extent_bytes());
            assert!(
                self.shape.write_bytes.is_multiple_of(unit),
                "extents of {} bytes split units of {unit}",
                self.shape.write_bytes
            );
            shard.has_cache = true;
            if let Some(core) = shard.get_mut() {
                core.cache = Some(Box::new(cache));
            }
        }
    }

    /// Sets the unit of atomicity, which divides the page. Called before the first request, on a
    /// device without a cache.
    pub fn set_atomic_unit(&mut self, unit: u32) {
        assert!(
            self.shape.page_bytes.is_multiple_of(unit),
            "a unit of {unit} bytes spans pages of {}",
            self.shape.page_bytes
        );
        self.shape.unit_bytes = unit;
    }

    /// Takes the caches away: later requests go to the flash. Called before the first request.
    pub(crate) fn take_caches(&mut self) {
        self.shape.unit_bytes = atomic_bytes(self.shape.page_bytes);
        self.shape.write_bytes = self.shape.extent_bytes;
        for shard in &mut self.shards {
            shard.take_cache();
        }
    }

    /// Keeps the entries of an earlier daemon that the flash of these shards refused, for later
    /// starts, under any boot id. The other shards, whose entries are on the flash and synced,
    /// continue without a cache. Called before the first request.
    ///
    /// # Errors
    /// The host cannot write or sync the area.
    pub(crate) fn keep_caches(&mut self, refused: &[usize]) -> io::Result<()> {
        for (number, shard) in self.shards.iter_mut().enumerate() {
            if refused.contains(&number) {
                continue;
            }
            // Or a later start would write these entries over what the host writes from now on.
            if let Some(mut cache) = shard.take_cache() {
                cache.forget()?;
            }
        }
        // Syncs the others' headers, too: they are in the same file.
        for shard in self.cached_shards() {
            let mut guard = shard.lock();
            let cache = guard.as_mut().and_then(|core| core.cache.as_mut());
            cache.map_or(Ok(()), |cache| cache.seal())?;
        }
        Ok(())
    }

    /// Records the outcome of a power cut or host crash that this start found, by shard.
    pub(crate) fn set_last_cut(&mut self, counts: &[Option<CutCounts>]) {
        for (shard, counts) in self.shards.iter_mut().zip(counts) {
            if let (Some(core), Some(counts)) = (shard.get_mut(), *counts) {
                core.last_cache.last_cut = counts;
                if let Some(cache) = &mut core.cache {
                    cache.set_last_cut(counts);
                }
            }
        }
    }

    /// Runs a bounded step of a request on the cache, besides its own extents.
    fn step_cache(
        &self,
        shard: &Shard,
        request: &mut Request<'_>,
        verb: impl FnOnce(&mut Core, Nanos) -> Result<Nanos, FtlError>,
    ) -> io::Result<()> {
        let mut guard = self.lock_to_change(shard, request.begins())?;
        self.run(&mut guard, true, |core| {
            let stepped = request.step(core, false, verb);
            stepped.inspect_err(|error| self.unlocked.note_failed(error))
        })
    }

    /// Runs one extent of a change once the cache has what it needs.
    fn change_cached(
        &self,
        shard: &Shard,
        request: &mut Request<'_>,
        last: bool,
        need: impl Fn(&WriteCache) -> super::write_cache::Need,
        mut verb: impl FnMut(&mut Core, Nanos) -> Result<Option<Nanos>, FtlError>,
    ) -> io::Result<()> {
        loop {
            let mut ready = false;
            while !ready {
                self.step_cache(shard, request, |core, at| {
                    let (cache, mut io) = core.cached().expect("a cache");
                    let need = need(cache);
                    ready = cache.has(need);
                    if ready {
                        Ok(at)
                    } else {
                        cache.make_room(&mut io, at, need)
                    }
                })?;
            }
            let mut is_full = false;
            self.change(shard, request, last, |core, at| {
                let done = verb(core, at)?;
                // Another request took the room meanwhile.
                is_full = done.is_none();
                Ok(done.unwrap_or(at))
            })?;
            if !is_full {
                return Ok(());
            }
        }
    }

    pub(super) fn write_cached(
        &self,
        extent: &ShardExtent<'_>,
        request: &mut Request<'_>,
        data: &[u8],
    ) -> io::Result<()> {
        let ShardExtent {
            at: begin,
            len,
            is_last,
            ..
        } = *extent;
        self.change_cached(
            extent.shard,
            request,
            is_last,
            |cache| cache.need_of_write(begin, len),
            |core, at| {
                let (cache, mut io) = core.cached().expect("a cache");
                let done = cache.write(&mut io, at, begin, data)?;
                if done.is_some() {
                    core.note_write(at, extent.offset, data);
                }
                Ok(done)
            },
        )
    }

    pub(super) fn zero_cached(
        &self,
        shard: &Shard,
        request: &mut Request<'_>,
        last: bool,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.change_cached(
            shard,
            request,
            last,
            |cache| cache.need_of_trim(offset, len),
            |core, at| {
                let (cache, mut io) = core.cached().expect("a cache");
                cache.zero(&mut io, at, offset, len)
            },
        )
    }

    /// Writes back everything of a shard that a FLUSH which begins now has to cover.
    pub(super) fn drain_for_flush(
        &self,
        shard: &Shard,
        request: &mut Request<'_>,
    ) -> io::Result<()> {
        let mut target = None;
        loop {
            if self.unlocked.health.load(Relaxed) != WELL {
                return Err(io::Error::from_raw_os_error(EIO));
            }
            let mut is_done = false;
            self.step_cache(shard, request, |core, at| {
                let (cache, mut io) = core.cached().expect("a cache");
                let target = *target.get_or_insert_with(|| cache.begin_flush());
                is_done = cache.has_flushed(target);
                if is_done {
                    Ok(at)
                } else {
                    cache.write_back(&mut io, at, Reason::Flush)
                }
            })?;
            if is_done {
                return Ok(());
            }
        }
    }

    /// Returns whether there is a write cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.shards.iter().any(|shard| shard.has_cache)
    }

    /// Announces no volatile cache: every change is durable before its acknowledgement. Called
    /// before the first request.
    pub fn announce_no_cache(&self) {
        self.unlocked.write_through.store(true, Relaxed);
    }

    /// Sets whether the kernel sends no FLUSH and no FUA, because it was told that the device has
    /// no volatile cache: then every change is durable before its acknowledgement. What was
    /// acknowledged before becomes durable at once.
    pub(crate) fn set_write_through(&self, on: bool) {
        let is_new = self.unlocked.write_through.swap(on, Relaxed) != on;
        if is_new {
            tracing::info!(
                "the kernel's write cache of the device is {}",
                if on {
                    "\"write through\": every write waits until it is durable"
                } else {
                    "\"write back\""
                }
            );
        }
        let owes_flush = is_new || self.unlocked.owes_flush.load(Relaxed);
        if !on || !owes_flush {
            return;
        }
        let flush = self.flush(FlushOf::Everything);
        let flushed = flush.and_then(|flush| flush.wait());
        // The kernel sends no FLUSH, so a failed one is repeated at the next call.
        self.unlocked.owes_flush.store(flushed.is_err(), Relaxed);
        if let Err(error) = flushed
            && is_new
        {
            tracing::error!("the FLUSH after the switch to write through failed: {error}");
        }
    }

    /// Writes back what has been dirty for at least `age`, while the lock is free.
    pub fn write_back_aged(&self, age: Duration) {
        for shard in self.cached_shards() {
            self.write_back_aged_of(shard, age);
        }
    }

    fn write_back_aged_of(&self, shard: &Shard, age: Duration) {
        if self.shape.read_only || self.paused().is_some() {
            return;
        }
        for _ in 0..AGED_RUNS {
            if self.unlocked.health.load(Relaxed) != WELL {
                return;
            }
            let Some(mut guard) = shard.try_lock() else {
                return;
            };
            if self.paused().is_some() {
                return;
            }
            let left = guard.as_mut().map_or(0, |core| core.erases_left());
            if left < self.shape.erases_eager {
                return self.tell_short(shard);
            }
            let aged = self.run(&mut guard, true, |core| {
                let at = core.clock.start(1);
                let is_busy = core.clock.until(core.ftl.chip().busy_until()).is_some();
                match core.cached() {
                    Some((cache, mut io)) if !is_busy && cache.is_aged(age) => {
                        cache.write_back(&mut io, at, Reason::Age).map(|_| true)
                    }
                    _ => Ok(false),
                }
            });
            drop(guard);
            if !matches!(self.with_power(aged), Ok(true)) {
                return;
            }
        }
    }

    /// Writes everything of a shard back and flushes its flash, without a request. Returns the
    /// scheme's error if the flash or the host refuses.
    fn drain(&self, shard: &Shard, reason: Reason) -> io::Result<Result<(), FtlError>> {
        let mut target = None;
        loop {
            let mut guard = self.lock_to_change(shard, false)?;
            let mut is_done = false;
            let mut refused = None;
            self.run(&mut guard, true, |core| {
                let at = core.clock.start(1);
                let (cache, mut io) = core.cached().expect("a cache");
                let target = *target.get_or_insert_with(|| cache.begin_flush());
                is_done = cache.has_flushed(target);
                let stepped = if is_done {
                    core.flush(at)
                } else {
                    cache.write_back(&mut io, at, reason)
                };
                match stepped {
                    Err(FtlError::PowerLost) => Err(FtlError::PowerLost),
                    Err(error) => {
                        refused = Some(error);
                        Ok(())
                    }
                    Ok(_) => Ok(()),
                }
            })?;
            if let Some(error) = refused {
                return Ok(Err(error));
            }
            if is_done {
                return Ok(Ok(()));
            }
        }
    }

    /// Writes the entries of an earlier daemon to the flash, shard by shard, and waits until they
    /// are durable. Returns the shards whose flash or host refuses an entry, with the scheme's
    /// error; nothing is lost.
    ///
    /// # Errors
    /// The volume failed meanwhile.
    pub(crate) fn replay_cache(&self) -> io::Result<Vec<(usize, FtlError)>> {
        let (mut marks, mut refused) = (Vec::new(), Vec::new());
        for (number, shard) in self.shards.iter().enumerate() {
            if !shard.has_cache {
                continue;
            }
            match self.drain(shard, Reason::Mount)? {
                Ok(()) => marks.extend(Self::mark_of(&mut shard.lock())),
                Err(error) => refused.push((number, error)),
            }
        }
        self.unlocked.wait(&marks)?;
        Ok(refused)
    }

    /// Writes the caches back before a clean shutdown, shard by shard. Returns whether nothing is
    /// left.
    pub(super) fn drain_to_close(&self) -> io::Result<bool> {
        let mut is_drained = true;
        for (number, shard) in self.shards.iter().enumerate() {
            if !shard.has_cache {
                continue;
            }
            if let Err(error) = self.drain(shard, Reason::Shutdown)? {
                is_drained = false;
                tracing::warn!(
                    "{}{} stay in the write cache of the image: {}; the next start reads them",
                    shard_text(number, self.shards.len()),
                    show_size(shard.dirty_bytes()),
                    self.error_text(number, &error)
                );
            }
        }
        Ok(is_drained)
    }

    /// Returns the bytes of a shard that wait in its write cache.
    pub(crate) fn dirty_bytes(&self, shard: usize) -> u64 {
        self.shards[shard].dirty_bytes()
    }

    fn cached_shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|shard| shard.has_cache)
    }
}
