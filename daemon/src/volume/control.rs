//! Control of a volume: injected faults, power, pauses and steps.
//!
//! Invariants: a fault is injected between two extents. A pause is not stored: the device runs
//! again after a restart.

use super::Volume;
use super::pause_gate::{PAUSE_MAX, Paused, Step};
use super::unlocked::NO_POWER;
use super::write_cache::Outcome;
use crate::failure::Failure;
use crate::inject::{Injected, Injection, Kind};
use ftl_core::Event;
use nand_model::Store;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strum::EnumCount;

impl<S: Store + 'static> Volume<S> {
    /// Injects a flash fault between two extents.
    ///
    /// # Errors
    /// The device is read-only, failed or stopping, or the fault cannot be injected.
    pub fn inject(&self, injection: &Injection) -> Result<Injected, Failure> {
        if self.shape.read_only {
            return Err(Failure::failed(
                "the image is served with --read-only and is not changed",
            ));
        }
        let mut guard = self.lock();
        if let Some(why) = self.failure() {
            return Err(Failure::failed(format!(
                "the device has failed already ({why}); restart it"
            )));
        }
        let core = guard
            .as_mut()
            .ok_or_else(|| Failure::failed("already stopping"))?;
        let injected = injection.apply(core.ftl.chip_mut())?;
        if let (Some(cache), Some(seed)) = (&mut core.cache, injected.cut_seed) {
            cache.set_cut_seed(seed);
        }
        tracing::warn!("injected: {}", injected.text);
        self.unlocked.injected[injected.kind.index()].fetch_add(injected.count, Relaxed);
        if !core.ftl.chip().powered() {
            core.lose_power();
            self.unlocked.lose_power();
        }
        Ok(injected)
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

    /// Cancels a pending power cut. Returns whether there is power.
    pub fn keep_power(&self) -> bool {
        if let Some(core) = self
            .lock()
            .as_mut()
            .filter(|core| core.ftl.chip().faults().is_some())
        {
            core.ftl.chip_mut().update_faults(|plan| plan.cut = None);
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
        drop(self.lock());
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
    pub fn cache_outcome(&self, seed: Option<u64>) -> Result<Option<Outcome>, Failure> {
        let guard = self.lock();
        if self.paused().is_none() {
            return Err(Failure::failed(
                "the device is not paused; `ftld pause` pauses it",
            ));
        }
        let cache = guard.as_ref().and_then(|core| core.cache.as_deref());
        Ok(cache.and_then(|cache| cache.outcome(seed)))
    }

    /// Runs a paused device for a step; the step restarts the pause with its original length.
    /// Returns the number of the first event that the step may produce.
    ///
    /// # Errors
    /// The device is not paused.
    pub fn step(&self, step: Step) -> Result<u64, Failure> {
        let events = self.noted(&self.lock());
        if !self.unlocked.pause_gate.step(step, events) {
            return Err(Failure::failed(
                "the device is not paused; `ftld pause` pauses it",
            ));
        }
        tracing::info!("paused, running a step: {step:?}");
        Ok(events)
    }

    /// Returns the first `most` events from number `from` on. Waits for the lock.
    pub(crate) fn noted_since(&self, from: u64, most: usize) -> Vec<(u64, Event)> {
        let guard = self.lock();
        let events = guard.iter().flat_map(|core| core.ftl.events().since(from));
        events
            .take(most)
            .map(|(number, event)| (number, *event))
            .collect()
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
        self.unlocked
            .pause_gate
            .paused(self.unlocked.events.load(Relaxed))
    }
}
