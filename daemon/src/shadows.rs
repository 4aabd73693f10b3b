//! Schemes that follow a device's requests, on threads of their own.
//!
//! `ftld-shadows` takes the requests from the ring and gives each batch to the thread of every
//! shadow. A shadow that falls behind loses batches, which are counted; the others do not notice.
//!
//! Invariants: no request of the device waits for a thread here, and these threads yield to all
//! others of the host. Nothing of a shadow is stored, so power failure does not matter.

use ftld_device::config::{Latency, ShadowOptions};
use ftld_device::shadow::{Request, Requests, ShadowCommand, Tap, content};
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

/// Requests that a shadow may be behind; 24 MiB at most for all shadows.
const BEHIND_MAX: u64 = 1 << 19;
/// Requests taken from the ring at once.
const BATCH: usize = 8192;
/// Pause after an empty ring.
const POLL: Duration = Duration::from_millis(2);
/// Time after which requests no longer wait for one that began before them.
const GAP: Duration = Duration::from_secs(1);
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
    ended: AtomicBool,
    failure: OnceLock<String>,
    view: Mutex<TwinView>,
}

/// State that the threads share.
struct Shared {
    tap: Arc<Tap>,
    /// Requests that came too late for their place.
    late: AtomicU64,
    followers: Mutex<Vec<Arc<Follower>>>,
    changed: Condvar,
}

/// The shadows of a device.
pub(crate) struct Shadows {
    shared: Arc<Shared>,
    volume: Arc<Volume>,
    head: Head,
    latency: Latency,
    /// One command at a time.
    commands: Mutex<()>,
}

impl Shadows {
    /// Creates the shadows of a device that a recording would describe by `head`; there is none
    /// yet.
    pub(crate) fn new(tap: Arc<Tap>, volume: Arc<Volume>, head: Head, latency: Latency) -> Shadows {
        Shadows {
            shared: Arc::new(Shared {
                tap,
                late: AtomicU64::new(0),
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
        let _one_at_a_time = self.commands.lock();
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
        fits_memory(&plans, sys::memory_available())?;
        if plans.is_empty() {
            return Ok(());
        }
        self.start_thread()?;
        self.shared.tap.set_open(true);
        let listed = content(&*self.volume);
        let listed = listed.map_err(|error| Failure::io("the device's content", &error));
        let added = listed.and_then(|content| self.start(plans, content.into()));
        if added.is_err() {
            let is_open = !self.shared.followers.lock().is_empty();
            self.shared.tap.set_open(is_open);
        }
        added
    }

    fn start(&self, plans: Vec<TwinPlan>, content: Arc<[Range<u64>]>) -> Result<(), Failure> {
        self.volume.publish(true);
        let live = LiveCounters::of(&self.volume.flash(), &self.volume.host());
        for plan in plans {
            let (batches, taken) = channel();
            let follower = Arc::new(Follower {
                plan,
                live: live.clone(),
                lost_before: self.shared.lost(),
                batches,
                behind: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                ended: AtomicBool::new(false),
                failure: OnceLock::new(),
                view: Mutex::default(),
            });
            let (own, content) = (follower.clone(), content.clone());
            let thread = std::thread::Builder::new().name("ftld-shadow".into());
            thread
                .spawn(move || own.follow(&content, &taken))
                .map_err(|error| Failure::io("the thread of a shadow", &error))?;
            tracing::info!("shadow {}", follower.plan.name());
            self.shared.followers.lock().push(follower);
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Starts the thread that takes the requests, once.
    fn start_thread(&self) -> Result<(), Failure> {
        let Some(requests) = self.shared.tap.take() else {
            return Ok(());
        };
        let own = self.shared.clone();
        let thread = std::thread::Builder::new().name("ftld-shadows".into());
        thread
            .spawn(move || own.pass_on(requests))
            .map_err(|error| Failure::io("the thread of the shadows", &error))?;
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

    /// Gives the requests to the shadows.
    fn pass_on(&self, mut requests: Requests) {
        let mut batch = Vec::new();
        let mut in_order_since = Instant::now();
        loop {
            batch.clear();
            requests.take(BATCH, &mut batch);
            if !requests.has_gap() || !batch.is_empty() {
                in_order_since = Instant::now();
            } else if in_order_since.elapsed() > GAP {
                requests.skip_gaps(&mut batch);
            }
            self.late.store(requests.late(), Relaxed);
            let mut followers = self.followers.lock();
            if batch.is_empty() {
                match followers.is_empty() && !requests.has_gap() {
                    true => self.changed.wait(&mut followers),
                    false => {
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
        let done = self.plan.make(content).and_then(|mut twin| {
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

/// Refuses shadows that together are larger than the available memory.
fn fits_memory(plans: &[TwinPlan], available: Option<u64>) -> Result<(), Failure> {
    let needed: u64 = plans.iter().map(TwinPlan::memory_bytes).sum();
    let Some(available) = available.filter(|available| *available < needed) else {
        return Ok(());
    };
    let each: Vec<_> = plans
        .iter()
        .map(|plan| format!("{} {}", plan.name(), show_size(plan.memory_bytes())))
        .collect();
    Err(Failure::failed(format!(
        "the shadows take at least {} of memory ({}), {} are available; leave some out",
        show_size(needed),
        each.join(", "),
        show_size(available)
    )))
}

#[cfg(test)]
mod tests;
