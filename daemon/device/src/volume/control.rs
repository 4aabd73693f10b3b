//! Control of a volume: injected faults, power, pauses and steps.
//!
//! Invariants: a fault is injected between two extents. A pause is not stored: the device runs
//! again after a restart.

use super::Volume;
use super::pause_gate::{PAUSE_MAX, Paused, Step};
use super::unlocked::NO_POWER;
use super::write_cache::{Outcome, WriteCache};
use crate::inject::{Injected, Injection, Kind};
use ftl_core::Event;
use ftld_kit::convert::to_u32;
use ftld_kit::failure::{Exit, Failure};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strum::EnumCount;

impl Volume {
    /// Injects a flash fault between two extents. A power cut is one of all shards.
    ///
    /// # Errors
    /// The device is read-only, failed or stopping, or the fault cannot be injected.
    pub fn inject(&self, injection: &Injection) -> Result<Injected, Failure> {
        if self.shape.read_only {
            return Err(Failure::failed(
                "the image is served with --read-only and is not changed",
            ));
        }
        let blocks = self.shards[0]
            .lock()
            .as_ref()
            .map(|core| core.ftl.chip().geometry().blocks)
            .ok_or_else(already_stopping)?;
        let places = injection.shards(self.shards.len(), blocks)?;
        let (mut is_off, seed) = (false, injection.seed());
        // All or none, as far as no request changes a shard in between.
        for &number in &places {
            if let Some(core) = self.shards[number].lock().as_ref() {
                let own = injection.for_shard(seed, number, blocks);
                own.check(core.ftl.chip(), to_u32(number) * blocks)?;
            }
        }
        let mut all: Vec<Injected> = Vec::new();
        for (number, shard) in self
            .shards
            .iter()
            .enumerate()
            .filter(|(n, _)| places.contains(n))
        {
            let injection = match self.shards.len() {
                1 => injection.clone(),
                _ => injection.for_shard(seed, number, blocks),
            };
            let mut guard = shard.lock();
            if let Some(why) = self.failure().filter(|_| !is_off) {
                return Err(Failure::failed(format!(
                    "the device has failed already ({why}); restart it"
                )));
            }
            let core = guard.as_mut().ok_or_else(already_stopping)?;
            let injected = injection.apply(core.ftl.chip_mut(), to_u32(number) * blocks)?;
            if let (Some(cache), Some(seed)) = (&mut core.cache, injected.cut_seed) {
                cache.set_cut_seed(seed);
            }
            if !core.ftl.chip().powered() {
                core.lose_power();
                is_off = true;
            }
            all.push(injected);
        }
        let injected = Injected::of_shards(all, &places, self.shards.len());
        tracing::warn!("injected: {}", injected.text);
        self.unlocked.injected[injected.kind.index()].fetch_add(injected.count, Relaxed);
        if is_off {
            self.unlocked.lose_power();
            self.power_off();
        }
        Ok(injected)
    }

    /// Returns a request's result. If power failed in it, it fails in the other shards, too: in
    /// each between two operations, or at the one that its own fault names.
    pub(super) fn with_power<R>(&self, result: io::Result<R>) -> io::Result<R> {
        if result.is_err() && self.is_powerless() {
            self.power_off();
        }
        result
    }

    /// Takes the power of all shards, once.
    fn power_off(&self) {
        if self.unlocked.power_is_off.swap(true, Relaxed) {
            return;
        }
        for shard in &self.shards {
            if let Some(core) = shard.lock().as_mut() {
                core.ftl.chip_mut().power_off();
                core.lose_power();
            }
        }
    }

    /// Returns the number of injected faults, in the order of [`Kind`].
    pub fn injected(&self) -> [u64; Kind::COUNT] {
        self.unlocked
            .injected
            .each_ref()
            .map(|count| count.load(Relaxed))
    }

    /// Completes when the flash has lost power; one waiter is notified, once.
    pub async fn power_lost(&self) {
        self.unlocked.power_lost.notified().await;
    }

    /// Returns whether the flash has lost power.
    pub fn is_powerless(&self) -> bool {
        self.unlocked.health.load(Relaxed) == NO_POWER
    }

    /// Cancels pending power cuts. Returns whether there is power.
    pub fn keep_power(&self) -> bool {
        for shard in &self.shards {
            if let Some(core) = shard
                .lock()
                .as_mut()
                .filter(|core| core.ftl.chip().faults().is_some())
            {
                core.ftl.chip_mut().update_faults(|plan| plan.cut = None);
            }
        }
        !self.is_powerless()
    }

    /// Pauses the device for `length`: no further extent begins and requests wait. An extent in
    /// flight has ended when this returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn pause(&self, length: Duration) -> Result<(), Failure> {
        if let Some(why) = self.failure() {
            return Err(Failure::failed(format!(
                "the device has failed ({why}) and serves no requests; restart it"
            )));
        }
        self.unlocked.pause_gate.pause(length.min(PAUSE_MAX));
        self.shards.iter().for_each(|shard| drop(shard.lock()));
        tracing::warn!(
            "paused for at most {} s: requests wait; `ftld resume` ends it",
            length.min(PAUSE_MAX).as_secs()
        );
        Ok(())
    }

    /// Returns what a power cut now would leave of the write cache; `None` without one.
    ///
    /// # Errors
    /// The device is not paused, so the answer would be old at once.
    pub(crate) fn cache_outcome(&self, seed: Option<u64>) -> Result<Option<Outcome>, Failure> {
        let mut outcomes = Vec::new();
        for (number, shard) in (0u64..).zip(&self.shards) {
            let guard = shard.lock();
            if self.paused().is_none() {
                return Err(Failure::failed(
                    "the device is not paused; `ftld pause` pauses it",
                ));
            }
            let cache = guard.as_ref().and_then(|core| core.cache.as_deref());
            let seed = seed.map(|seed| seed.wrapping_add(number));
            let outcome = |cache: &WriteCache| {
                let begin = number * cache.area_len();
                Some((begin, cache.outcome(seed)?))
            };
            outcomes.extend(cache.and_then(outcome));
        }
        Ok(Outcome::of_shards(outcomes))
    }

    /// Runs a paused device for a step; the step restarts the pause with its original length.
    /// Returns the number of the first event of each shard that the step may produce.
    ///
    /// # Errors
    /// The device is not paused.
    pub fn step(&self, step: Step) -> Result<Vec<u64>, Failure> {
        self.shards
            .iter()
            .for_each(|shard| shard.lock().note_events());
        let events = self.shards.iter().map(|shard| shard.events.load(Relaxed));
        let events: Vec<u64> = events.collect();
        if !self.unlocked.pause_gate.step(step, events.iter().sum()) {
            return Err(Failure::failed(
                "the device is not paused; `ftld pause` pauses it",
            ));
        }
        tracing::info!("paused, running a step: {step:?}");
        Ok(events)
    }

    /// Returns the first `most` events of each shard from its number on, with the shard. Waits for
    /// the locks.
    pub(crate) fn noted_since(&self, from: &[u64], most: usize) -> Vec<(usize, u64, Event)> {
        let mut noted = Vec::new();
        for (number, (shard, from)) in self.shards.iter().zip(from).enumerate() {
            let guard = shard.lock();
            let events = guard.iter().flat_map(|core| core.ftl.events().since(*from));
            noted.extend(events.take(most).map(|(event, of)| (number, event, *of)));
        }
        noted.sort_by_key(|(_, _, event)| event.at);
        noted.truncate(most);
        noted
    }

    /// Ends a pause. Returns whether there was one.
    pub fn resume(&self) -> bool {
        let was = self.unlocked.pause_gate.resume();
        if was {
            tracing::info!("resumed");
        }
        was
    }

    /// Returns the pause, if there is one. Never waits for a request.
    pub fn paused(&self) -> Option<Paused> {
        self.unlocked.pause_gate.paused(self.events_noted())
    }
}

/// Returns the failure for a command to a volume that is closed.
fn already_stopping() -> Failure {
    Failure::new(Exit::NotRunning, "already stopping")
}
