//! Schemes that follow a device's requests, on threads of their own.
//!
//! `ftld-shadows` takes the requests from the ring and gives each batch to the thread of every
//! shadow. A shadow that falls behind loses batches, which are counted; the others do not notice.
//!
//! Invariants: no request of the device waits for a thread here, and those of the shadows have the
//! lowest priority. All end with [`Shadows`]. Nothing of a shadow is stored, so power failure does
//! not matter.

use ftld_device::config::{Latency, ShadowOptions};
use ftld_device::shadow::{Request, Requests, ShadowCommand, Tap};
use ftld_device::status::{Figures, LiveCounters, Shadow};
use ftld_device::sys;
use ftld_device::volume::Volume;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use ftld_lab::replay::{TwinPlan, TwinView};
use ftld_traces::recording::Head;
use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Requests that a shadow may be behind: 16 MiB, shared with others that are as far behind.
const BEHIND_MAX: u64 = 1 << 19;
/// Requests taken from the ring at once.
const BATCH: usize = 8192;
/// Pause after an empty ring.
const POLL: Duration = Duration::from_millis(2);
/// Time after which requests no longer wait for one that the ring had no room for.
const GAP: Duration = Duration::from_secs(1);
/// Memory that shadows leave, in bytes.
const RESERVE: u64 = 64 << 20;
/// Interval at which a shadow under load shows its counters.
const SHOW_EVERY: Duration = Duration::from_millis(250);
/// Maximum of shadows.
const SHADOWS_MAX: usize = 32;

/// One shadow, as its thread and all others see it.
struct Follower {
    plan: TwinPlan,
    /// Of the device when the shadow began.
    live: LiveCounters,
    /// Requests that the shadows had lost together when it began.
    lost_before: u64,
    batches: Sender<Arc<[Request]>>,
    behind: AtomicU64,
    dropped: AtomicU64,
    /// Whether its memory is in use.
    is_made: AtomicBool,
    ended: AtomicBool,
    failure: OnceLock<String>,
    view: Mutex<TwinView>,
}

impl Drop for Shadows {
    fn drop(&mut self) {
        let mut followers = self.shared.followers.lock();
        self.shared.tap.set_open(false);
        self.shared.closed.store(true, Relaxed);
        followers
            .drain(..)
            .for_each(|follower| follower.ended.store(true, Relaxed));
        self.shared.changed.notify_all();
    }
}

/// State that the threads share.
struct Shared {
    tap: Arc<Tap>,
    /// Requests that came too late for their place.
    late: AtomicU64,
    /// Whether the device has ended.
    closed: AtomicBool,
    followers: Mutex<Vec<Arc<Follower>>>,
    changed: Condvar,
}

/// The shadows of a device.
pub(crate) struct Shadows {
    shared: Arc<Shared>,
    volume: Arc<Volume>,
    head: Head,
    latency: Latency,
    /// One command at a time; whether the thread that takes the requests runs.
    commands: Mutex<bool>,
}

impl Shadows {
    /// Creates the shadows of a device that a recording would describe by `head`; there is none
    /// yet.
    pub(crate) fn new(tap: Arc<Tap>, volume: Arc<Volume>, head: Head, latency: Latency) -> Shadows {
        Shadows {
            shared: Arc::new(Shared {
                tap,
                late: AtomicU64::new(0),
                closed: AtomicBool::new(false),
                followers: Mutex::default(),
                changed: Condvar::new(),
            }),
            volume,
            head,
            latency,
            commands: Mutex::default(),
        }
    }

    /// Executes a command; returns the names of the shadows.
    ///
    /// # Errors
    /// As [`Shadows::add`]; or there is no shadow of that name.
    pub(crate) fn run(&self, command: &ShadowCommand) -> Result<Vec<String>, Failure> {
        match command {
            ShadowCommand::Add(text) => self.add(&[ShadowOptions::parse(text)?])?,
            ShadowCommand::Rm(name) => {
                let _one_at_a_time = self.commands.lock();
                if !self.names().contains(name) {
                    let names = self.names().join(", ");
                    return Err(Failure::usage(match names.is_empty() {
                        true => format!("no shadow {name:?}; there is none"),
                        false => format!("no shadow {name:?}; there are {names}"),
                    }));
                }
                self.remove(name);
            }
        }
        Ok(self.names())
    }

    /// Adds shadows that begin with the device's content. All of them are checked before the first
    /// is made.
    ///
    /// # Errors
    /// A shadow is wrong, there already, or does not fit into memory; or the device cannot list its
    /// content.
    pub(crate) fn add(&self, shadows: &[ShadowOptions]) -> Result<(), Failure> {
        let mut is_running = self.commands.lock();
        let mut names = self.names();
        let mut plans = Vec::new();
        for shadow in shadows {
            if names.contains(&shadow.name) {
                let name = &shadow.name;
                return Err(Failure::usage(format!(
                    "shadow {name:?} is there already; `ftld shadow rm` removes one"
                )));
            }
            names.push(shadow.name.clone());
            plans.push(TwinPlan::new(shadow, &self.head, self.latency)?);
        }
        if names.len() > SHADOWS_MAX {
            return Err(Failure::usage(format!(
                "{} shadows; a device has at most {SHADOWS_MAX}",
                names.len()
            )));
        }
        let planned = self.shared.planned_bytes();
        fits_memory(&plans, planned, sys::memory_available())?;
        if plans.is_empty() {
            return Ok(());
        }
        self.start_thread(&mut is_running)?;
        let added = self.start(plans);
        if let Err((_, names)) = &added {
            names.iter().for_each(|name| self.remove(name));
        }
        added.map_err(|(failure, _)| failure)
    }

    /// Starts shadows. They get requests from before their content is listed: none is missing, and
    /// one of that moment may be in both.
    ///
    /// # Errors
    /// A step failed; the names are those of the shadows to remove.
    fn start(&self, plans: Vec<TwinPlan>) -> Result<(), (Failure, Vec<String>)> {
        self.volume.publish(true);
        let live = LiveCounters::of(&self.volume.flash(), &self.volume.host());
        let lost_before = self.shared.lost();
        let followers = plans.into_iter().map(|plan| {
            let (batches, taken) = channel();
            let follower = Follower {
                plan,
                live: live.clone(),
                lost_before,
                batches,
                behind: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                is_made: AtomicBool::new(false),
                ended: AtomicBool::new(false),
                failure: OnceLock::new(),
                view: Mutex::default(),
            };
            (Arc::new(follower), taken)
        });
        let followers: Vec<_> = followers.collect();
        let new = followers.iter().map(|(follower, _)| follower.clone());
        self.shared.followers.lock().extend(new);
        self.shared.tap.set_open(true);
        self.shared.changed.notify_all();
        let names = || followers.iter().map(|(one, _)| one.plan.name().to_owned());
        let failed = |what: &str, error| (Failure::io(what, &error), names().collect());
        let content = self.volume.content();
        let content: Arc<[Range<u64>]> = content
            .map_err(|error| failed("the device's content", error))?
            .into();
        let names: Vec<String> = names().collect();
        for (follower, taken) in followers {
            tracing::info!("shadow {}", follower.plan.name());
            let content = content.clone();
            let thread = std::thread::Builder::new().name("ftld-shadow".into());
            thread
                .spawn(move || follower.follow(&content, &taken))
                .map_err(|error| {
                    let failure = Failure::io("the thread of a shadow", &error);
                    (failure, names.clone())
                })?;
        }
        Ok(())
    }

    /// Starts the thread that takes the requests, once.
    fn start_thread(&self, is_running: &mut bool) -> Result<(), Failure> {
        if *is_running {
            return Ok(());
        }
        let (own, (requests, taken)) = (self.shared.clone(), channel());
        let thread = std::thread::Builder::new().name("ftld-shadows".into());
        thread
            .spawn(move || taken.iter().for_each(|requests| own.pass_on(requests)))
            .map_err(|error| Failure::io("the thread of the shadows", &error))?;
        *is_running = true;
        if let Some(taken) = self.shared.tap.take() {
            // The thread waits for them.
            let _ = requests.send(taken);
        }
        Ok(())
    }

    fn remove(&self, name: &str) {
        let mut followers = self.shared.followers.lock();
        followers.retain(|follower| {
            let is_removed = follower.plan.name() == name;
            follower.ended.store(is_removed, Relaxed);
            !is_removed
        });
        self.shared.tap.set_open(!followers.is_empty());
    }

    fn names(&self) -> Vec<String> {
        let followers = self.shared.followers.lock();
        let names = followers.iter().map(|one| one.plan.name().to_owned());
        names.collect()
    }

    /// Returns the state of all. Never waits for a request.
    pub(crate) fn view(&self) -> Vec<Shadow> {
        let followers = self.shared.followers.lock().clone();
        if followers.is_empty() {
            return Vec::new();
        }
        let now = LiveCounters::of(&self.volume.flash(), &self.volume.host());
        let lost = self.shared.lost();
        let shadows = followers.iter().map(|one| one.view(&now, lost));
        shadows.collect()
    }
}

impl Shared {
    /// Returns the requests that no shadow gets.
    fn lost(&self) -> u64 {
        self.tap.dropped() + self.late.load(Relaxed)
    }

    /// Returns the memory of the shadows that are not made yet, in bytes.
    fn planned_bytes(&self) -> u64 {
        let followers = self.followers.lock();
        let planned = followers.iter().filter(|one| !one.is_made.load(Relaxed));
        planned.map(|one| one.plan.memory_bytes()).sum()
    }

    /// Gives the requests to the shadows.
    fn pass_on(&self, mut requests: Requests) {
        let mut batch = Vec::new();
        let (mut in_order_since, mut dropped) = (Instant::now(), 0);
        while !self.closed.load(Relaxed) {
            batch.clear();
            requests.take(BATCH, &mut batch);
            if !requests.has_gap() || !batch.is_empty() {
                in_order_since = Instant::now();
            } else if in_order_since.elapsed() > GAP && self.tap.dropped() > dropped {
                // Without a drop, the one that is missing is still under way.
                dropped = self.tap.dropped();
                requests.skip_gaps(&mut batch);
            }
            self.late.store(requests.late(), Relaxed);
            let mut followers = self.followers.lock();
            if batch.is_empty() {
                let has_work = !followers.is_empty() || requests.has_gap();
                match has_work || self.closed.load(Relaxed) {
                    false => self.changed.wait(&mut followers),
                    true => {
                        drop(followers);
                        std::thread::sleep(POLL);
                    }
                }
                continue;
            }
            let taken = Arc::<[Request]>::from(&batch[..]);
            followers.iter().for_each(|one| one.give(&taken));
        }
    }
}

impl Follower {
    /// Gives it a batch, unless it is too far behind.
    fn give(&self, batch: &Arc<[Request]>) {
        let requests = to_u64(batch.len());
        if self.failure.get().is_some() {
            return;
        }
        if self.behind.load(Relaxed) + requests > BEHIND_MAX {
            self.dropped.fetch_add(requests, Relaxed);
            return;
        }
        self.behind.fetch_add(requests, Relaxed);
        // Without a receiver it has ended.
        let _ = self.batches.send(batch.clone());
    }

    /// Executes batches until it is removed or fails.
    fn follow(&self, content: &[Range<u64>], batches: &Receiver<Arc<[Request]>>) {
        sys::yield_to_others();
        let made = self.plan.make(content, &self.ended);
        self.is_made.store(true, Relaxed);
        let done = made.and_then(|mut twin| {
            *self.view.lock() = twin.view();
            let mut shown = Instant::now();
            while !self.ended.load(Relaxed) {
                let Ok(batch) = batches.recv_timeout(SHOW_EVERY) else {
                    continue;
                };
                let done = self.plan.run(&mut twin, &batch);
                let behind = self.behind.fetch_sub(to_u64(batch.len()), Relaxed);
                let is_last = behind == to_u64(batch.len());
                if is_last || done.is_err() || shown.elapsed() > SHOW_EVERY {
                    *self.view.lock() = twin.view();
                    shown = Instant::now();
                }
                done?;
            }
            Ok(())
        });
        if let Err(failure) = done {
            tracing::warn!("{failure}; it no longer follows the device");
            let _ = self.failure.set(failure.message);
            self.behind.store(0, Relaxed);
        }
    }

    fn view(&self, now: &LiveCounters, lost: u64) -> Shadow {
        let view = self.view.lock().clone();
        let dropped = self.dropped.load(Relaxed) + lost.saturating_sub(self.lost_before);
        let failure = self.failure.get().cloned();
        Shadow {
            name: self.plan.name().into(),
            scheme: self.plan.scheme().into(),
            profile: self.plan.profile().into(),
            op_percent: self.plan.op_percent(),
            parameters: self.plan.parameters(),
            requests: view.requests,
            behind: self.behind.load(Relaxed),
            dropped,
            exact: dropped == 0 && failure.is_none(),
            failure,
            memory_bytes: self.plan.memory_bytes(),
            figures: Figures::new(
                (view.host_pages_written, view.programs, view.erases),
                view.ram_bytes,
                [&view.reads, &view.writes],
            ),
            live: now.since(&self.live),
        }
    }
}

/// Refuses shadows that, together with those `planned`, may take more than the available memory: a
/// half more than the least that they take.
fn fits_memory(plans: &[TwinPlan], planned: u64, available: Option<u64>) -> Result<(), Failure> {
    let least: u64 = plans.iter().map(TwinPlan::memory_bytes).sum();
    let needed = (least + planned) / 2 * 3 + RESERVE;
    let Some(available) = available.filter(|available| *available < needed) else {
        return Ok(());
    };
    let each: Vec<_> = plans
        .iter()
        .map(|plan| format!("{} {}", plan.name(), show_size(plan.memory_bytes())))
        .collect();
    Err(Failure::failed(format!(
        "the shadows take at least {} of memory ({}), {} are available, of which some stay free; \
         leave some out",
        show_size(least + planned),
        each.join(", "),
        show_size(available)
    )))
}

#[cfg(test)]
mod tests;
