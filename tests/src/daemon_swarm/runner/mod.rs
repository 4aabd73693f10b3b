//! Runner of a plan: volume, NBD sessions and a real image over the simulated disk, alongside the
//! oracle.
//!
//! The runner polls connections in the order of the plan, so a run is determined by its plan. Two
//! things run on their own threads. The runner delays and releases syncs ([`super::gate`]); races
//! depend on the machine's schedule.

mod connection;
mod device;
mod ends;
mod leaving;
mod looks;
mod races;
mod requests;

use super::Class;
use super::gate::Gate;
use super::oracle::{OpId, Oracle};
use super::plan::{Action, Ask, Plan};
use connection::{Connection, connect};
use device::{contents, make, open};
use ftld_battery::classes::Classes;
use ftld_battery::watch::watched;
use ftld_device::device::BlockDevice;
use ftld_device::inject::{Injection, PowerCut};
use ftld_device::transport::nbd::NbdStats;
use ftld_device::volume::Volume;
use ftld_host_disk::{End, Freeze, SimDisk};
use races::sync_old_operations;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Report of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Host crashes with a checked outcome.
    pub crashes: u64,
    /// Kills with a checked outcome.
    pub kills: u64,
    /// Requests answered.
    pub replies: u64,
}

impl Report {
    /// Adds another run's report.
    pub fn add(&mut self, other: &Report) {
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.replies += other.replies;
    }
}

/// Creates the runtime for a worker's runs.
///
/// # Panics
/// If the host cannot start threads.
pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .max_blocking_threads(8)
        .build()
        .expect("a runtime")
}

/// Runs a plan. A hung run ends the process.
///
/// # Errors
/// Returns the device's mistake, and the action at which it occurred.
pub fn run(plan: &Plan, runtime: &Runtime, classes: &mut Classes) -> Result<Report, String> {
    let _context = runtime.enter();
    let carry_out = || {
        let scheme = plan.scheme()?.name;
        let mut run = Run::start(plan, classes)?;
        for (number, action) in plan.actions.iter().enumerate() {
            run.act(action)
                .map_err(|why| format!("action {number}, {action}: {why}"))?;
        }
        let report = run.finish().map_err(|why| format!("at the end: {why}"))?;
        classes.note_times(scheme, report.crashes);
        Ok(report)
    };
    let described = plan.clone();
    let outcome = watched(move || described.to_string(), carry_out);
    classes.end_run();
    outcome
}

/// A request without a reply.
#[derive(Clone, Copy, Debug)]
struct Open {
    ask: Ask,
    who: usize,
    op: Option<OpId>,
    began: u64,
    /// Whether a sync was in progress at its submission.
    during_sync: bool,
    /// Whether its connection already waited for a sync.
    behind: bool,
}

/// Traffic since the daemon started, if all of it succeeded.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    written: u64,
    trimmed: u64,
    zeroed: u64,
    read: u64,
    flushes: u64,
    errors: u64,
}

struct Run<'a> {
    plan: &'a Plan,
    classes: &'a mut Classes,
    oracle: Oracle,
    disk: SimDisk,
    volume: Arc<Volume>,
    gate: Arc<Gate>,
    stats: Arc<NbdStats>,
    connections: Vec<Connection>,
    open: BTreeMap<u64, Open>,
    clock: Arc<AtomicU64>,
    cookies: u64,
    /// Versions assigned so far.
    versions: u32,
    /// Errno of a planned write failure; after the failure, its time.
    fuse: Option<i32>,
    blown: Option<(u64, i32)>,
    /// Planned sync failures, and whether one occurred.
    bad_syncs: u64,
    sync_failed: bool,
    cut: bool,
    stopping: bool,
    traffic: Traffic,
    /// Bytes read by the runner itself since the daemon started.
    looked: u64,
    /// Classes of the last durable reply, and the host's writes by then.
    durable: (BTreeSet<&'static str>, u64),
    partial_trims: bool,
    before_write: Option<(Oracle, End)>,
    /// Whether requests run on threads.
    racing: bool,
    /// Time of the last successful reply to a write.
    wrote_well: u64,
    /// Whether the device reported failing writes at the last failed write.
    failing: bool,
    /// Whether the last restart followed a failed sync.
    after_failed_sync: bool,
    after_kill: bool,
    report: Report,
}

impl<'a> Run<'a> {
    fn start(plan: &'a Plan, classes: &'a mut Classes) -> Result<Run<'a>, String> {
        let disk = make(plan)?;
        let gate = Arc::new(Gate::default());
        let volume = Arc::new(open(plan, &disk, Some(&gate))?);
        let oracle = Oracle::new(plan.seed, volume.physical_block() as usize, plan.size);
        let mut run = Run {
            plan,
            classes,
            oracle,
            disk,
            volume,
            gate,
            stats: Arc::default(),
            connections: Vec::new(),
            open: BTreeMap::new(),
            clock: Arc::new(AtomicU64::new(1)),
            cookies: 0,
            versions: 0,
            fuse: None,
            blown: None,
            bad_syncs: 0,
            sync_failed: false,
            cut: false,
            stopping: false,
            traffic: Traffic::default(),
            looked: 0,
            durable: (BTreeSet::new(), 0),
            partial_trims: false,
            before_write: None,
            racing: false,
            failing: false,
            wrote_well: 0,
            after_failed_sync: false,
            after_kill: false,
            report: Report::default(),
        };
        if plan.striping.is_some() {
            run.note(Class::Shards);
        }
        run.serve()?;
        Ok(run)
    }

    /// Starts all connections.
    fn serve(&mut self) -> Result<(), String> {
        let gate = self.gate.clone();
        self.disk.during_sync(move || gate.during_sync());
        self.stats = Arc::default();
        self.connections.clear();
        for who in 0..self.plan.wires.len() {
            let connection = connect(self.plan, who, &self.volume, &self.gate, &self.stats)?;
            self.connections.push(connection);
        }
        Ok(())
    }

    fn note(&mut self, class: Class) {
        self.classes.note(class.name());
    }

    /// Records an end with a checked outcome.
    fn judged(&mut self, end: End) {
        match end {
            End::Kill => self.report.kills += 1,
            End::Crash(_) => self.report.crashes += 1,
        }
    }

    /// Returns whether acknowledged data that is not durable may be lost after this end.
    fn may_lose(&self, end: End) -> bool {
        matches!(end, End::Crash(_)) || self.is_lossy() || self.plan.ram_acknowledges()
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Syncs old operations, as the daemon does without a request.
    fn sync_in_background(&mut self) {
        if self.gate.is_held() {
            return;
        }
        let before = self.disk.unsynced();
        sync_old_operations(&self.volume);
        // The header that follows the sync is not synced.
        if self.disk.unsynced() < before {
            self.note(Class::BackgroundSync);
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match self.before_write.take() {
            Some((_, end))
                if !matches!(
                    action,
                    Action::Race(..)
                        | Action::End(..)
                        | Action::EndTwice(..)
                        | Action::EndInStop(..)
                ) =>
            {
                self.before_write = Some((self.oracle.clone(), end));
            }
            _ => {}
        }
        match action {
            Action::Send(who, ask) => self.send(*who, *ask),
            Action::Turn(who, inward, outward) => {
                self.turn(*who, *inward as usize, *outward as usize)?
            }
            Action::Hold(on) => {
                self.gate.hold(*on);
                self.settle()?;
            }
            Action::Sync => {
                self.gate.pass();
                self.settle()?;
            }
            Action::CheckState(end, again) => {
                let disk = self.disk.ended(*end);
                let bytes = self.look(&disk, *end)?;
                self.note_end(*end);
                if let Some(how) = again {
                    let once_more = contents(&open(self.plan, &disk.crashed(*how), None)?)?;
                    self.judged(End::Crash(*how));
                    self.note(Class::CrashAfterOpen);
                    if once_more != bytes {
                        let at = bytes
                            .iter()
                            .zip(&once_more)
                            .position(|(one, other)| one != other);
                        return Err(format!("two recoveries disagree at byte {at:?}"));
                    }
                }
            }
            Action::End(how, look) => self.end_daemon(*how, *look)?,
            Action::EndTwice(first, at, second) => self.end_twice(*first, *at, *second)?,
            Action::EndInStop(at, end) => self.end_in_stop(*at, *end)?,
            Action::CheckBeforeWrite(writes, end) => {
                self.disk.freeze_at(Freeze::Write(*writes));
                self.before_write = Some((self.oracle.clone(), *end));
            }
            Action::FailWrite(left, arrives, errno) => {
                self.disk.fail_write(*left, *arrives, *errno);
                self.fuse = Some(*errno);
            }
            Action::FailSyncs(count) => {
                self.disk.fail_syncs(*count);
                self.bad_syncs = *count;
            }
            Action::Cut(after, seed) => {
                let cut = PowerCut {
                    after: *after,
                    seed: Some(*seed),
                    ..PowerCut::default()
                };
                let dirty = self.is_dirty();
                // Rejected after an earlier failure.
                if self.volume.inject(&Injection::PowerCut(cut)).is_ok() {
                    self.cut = true;
                    if dirty {
                        self.note(Class::CutCache);
                    }
                }
            }
            Action::Race(asks, pauses) => self.race(asks, *pauses)?,
            Action::Check(who) => self.check(*who)?,
            Action::Idle(budget) => {
                for _ in 0..4 {
                    let _ = self.volume.idle(*budget);
                    self.volume.write_back_aged(Duration::ZERO);
                }
                self.volume.discard_freed_space();
                self.sync_in_background();
            }
            Action::Leave(who, hang_up) => self.leave(*who, hang_up.map(|after| after as usize))?,
            Action::ReadOnly(end) => self.look_read_only(*end)?,
        }
        self.look_at_faults()?;
        if let Some(frozen) = self.disk.take_frozen()
            && let Some((oracle, end)) = self.before_write.take()
        {
            let disk = frozen.ended(end);
            let before = std::mem::replace(&mut self.oracle, oracle);
            let judged = self
                .look(&disk, end)
                .map_err(|why| format!("before a write of the host: {why}"));
            self.oracle = before;
            judged?;
            self.note(Class::EndBeforeAWrite);
        }
        Ok(())
    }
}
