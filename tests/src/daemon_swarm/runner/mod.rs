//! Runs a plan: volume, NBD sessions and a real image over the simulated disk, beside the oracle.
//!
//! Connections are polled by the runner, in the order of the plan, so that a run follows from its
//! plan. Two things run on threads of their own: syncs, which the runner holds and lets go
//! ([`super::gate`]), and races, which are as the machine makes them.

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
use ftld::device::BlockDevice;
use ftld::inject::{Injection, PowerCut};
use ftld::transport::nbd::NbdStats;
use ftld::volume::Volume;
use ftld_battery::classes::Classes;
use ftld_battery::watch::watched;
use nand_model::store::{End, FileStore, Freeze, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Host crashes whose outcome was judged.
    pub crashes: u64,
    /// Kills whose outcome was judged.
    pub kills: u64,
    /// Requests answered.
    pub replies: u64,
}

impl Report {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Report) {
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.replies += other.replies;
    }
}

/// The runtime that a worker's runs need.
///
/// # Panics
/// If the host has no threads left.
pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .max_blocking_threads(8)
        .build()
        .expect("a runtime")
}

/// Runs a plan. One that does not end ends the process.
///
/// # Errors
/// What the device did wrong, and at which action.
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
    /// Whether a sync was in progress when it was submitted.
    during_sync: bool,
    /// Whether its connection waited for a sync already.
    behind: bool,
}

/// Traffic since the daemon started, as far as all of it went well.
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
    volume: Arc<Volume<FileStore>>,
    gate: Arc<Gate>,
    stats: Arc<NbdStats>,
    connections: Vec<Connection>,
    open: BTreeMap<u64, Open>,
    clock: Arc<AtomicU64>,
    cookies: u64,
    /// Versions given so far.
    versions: u32,
    /// The errno of a write that is to fail; when it did, its instant.
    fuse: Option<i32>,
    blown: Option<(u64, i32)>,
    /// Syncs that were to fail, and whether one did.
    bad_syncs: u64,
    sync_failed: bool,
    cut: bool,
    stopping: bool,
    traffic: Traffic,
    /// Bytes that the runner itself read since the daemon started.
    looked: u64,
    /// What made the last durable reply special, and the host's writes by then.
    durable: (BTreeSet<&'static str>, u64),
    partial_trims: bool,
    trap: Option<(Oracle, End)>,
    /// Whether requests run on real threads.
    racing: bool,
    /// When a write was last answered well.
    wrote_well: u64,
    /// Whether the device said, when a write failed last, that writes fail.
    failing: bool,
    /// The last restart was one after a failed sync.
    after_failed_sync: bool,
    after_kill: bool,
    report: Report,
}

impl<'a> Run<'a> {
    fn start(plan: &'a Plan, classes: &'a mut Classes) -> Result<Run<'a>, String> {
        let disk = make(plan)?;
        let gate = Arc::new(Gate::default());
        let volume = Arc::new(open(&disk, Some(&gate))?);
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
            trap: None,
            racing: false,
            failing: false,
            wrote_well: 0,
            after_failed_sync: false,
            after_kill: false,
            report: Report::default(),
        };
        run.serve()?;
        Ok(run)
    }

    /// Connects everybody.
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

    /// An end whose outcome is judged.
    fn judged(&mut self, end: End) {
        match end {
            End::Kill => self.report.kills += 1,
            End::Crash(_) => self.report.crashes += 1,
        }
    }

    /// Whether what was acknowledged and is not durable may be gone after this end.
    fn may_lose(&self, end: End) -> bool {
        matches!(end, End::Crash(_)) || self.is_lossy() || self.plan.ram_acknowledges()
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match self.trap.take() {
            Some((_, end))
                if !matches!(
                    action,
                    Action::Race(..) | Action::Die(..) | Action::DieTwice(..)
                ) =>
            {
                self.trap = Some((self.oracle.clone(), end));
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
            Action::Fork(end, again) => {
                let disk = self.disk.ended(*end);
                let bytes = self.look(&disk, *end)?;
                self.note_end(*end);
                if let Some(how) = again {
                    let once_more = contents(&open(&disk.crashed(*how), None)?)?;
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
            Action::Die(death, look) => self.die(*death, *look)?,
            Action::DieTwice(first, writes, second) => self.die_twice(*first, *writes, *second)?,
            Action::Trap(writes, end) => {
                self.disk.freeze_at(Freeze::Write(*writes));
                self.trap = Some((self.oracle.clone(), *end));
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
                    seed: after.map(|_| *seed),
                    ..PowerCut::default()
                };
                // Refused after an earlier failure.
                if self.volume.inject(&Injection::PowerCut(cut)).is_ok() {
                    self.cut = true;
                }
            }
            Action::Race(asks, pauses) => self.race(asks, *pauses)?,
            Action::Check(who) => self.check(*who)?,
            Action::Idle(budget) => {
                for _ in 0..4 {
                    let _ = self.volume.idle(*budget);
                }
                self.volume.tidy();
            }
            Action::Leave(who, hang_up) => self.leave(*who, hang_up.map(|after| after as usize))?,
            Action::ReadOnly(end) => self.look_read_only(*end)?,
        }
        self.look_at_faults()?;
        if let Some(frozen) = self.disk.take_frozen()
            && let Some((oracle, end)) = self.trap.take()
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
