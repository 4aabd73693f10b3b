//! Runs a plan: volume, NBD sessions and a real image over the simulated disk, beside the oracle.
//!
//! Connections are polled by the runner, in the order of the plan, so that a run follows from its
//! plan. Two things run on threads of their own: syncs, which the runner holds and lets go
//! ([`super::gate`]), and races, which are as the machine makes them.

use super::Class;
use super::client::{Client, Part, Reply};
use super::gate::{Gate, Unblocked, Watched};
use super::oracle::{Change, OpId, Oracle, fill};
use super::plan::{Action, Ask, Death, Plan, Verb, Wire};
use ftl_core::{FtlConfig, Params, Start};
use ftld::config::Latency;
use ftld::device::BlockDevice;
use ftld::inject::{Injection, PowerCut};
use ftld::stack::volume_on;
use ftld::transport::nbd::{ExportInfo, Limits, NbdStats, attach_stream, serve_stream};
use ftld::volume::{Idle, Op, Step, Volume};
use ftld_battery::classes::Classes;
use ftld_battery::rig::has_param;
use ftld_battery::watch::watched;
use nand_model::store::{Access, Crash, End, FileStore, Freeze, SimDisk};
use nand_model::{Chip, Geometry, ImageSpec, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

/// What images on a simulated disk are called.
const NAME: &str = "simulated disk";
/// Requests that change something and are not answered, at most: more make too many orders.
const UNANSWERED_MAX: usize = 5;
/// How long a request may stay unanswered when nothing is in its way.
const UNANSWERED: Duration = Duration::from_secs(10);
/// Pages of one go of a long trim or block status.
const LONG_PAGES: u64 = 16_384;
/// Bytes that the volume takes in one go.
const SLICE: u64 = 512 << 10;
const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ESHUTDOWN: u32 = 108;

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

type Session = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

struct Connection {
    client: Client,
    device: Arc<Watched>,
    session: Option<Session>,
    /// How the session ended.
    ended: Option<Result<(), String>>,
    stop: Option<oneshot::Sender<()>>,
    woken: Arc<Woken>,
    /// Flushes that have ended, as far as the runner saw.
    seen: u64,
    /// Whether it changed anything since it began.
    wrote: bool,
    /// Whether the client has ended it.
    left: bool,
}

impl Connection {
    /// Whether it ended because a read failed after its reply had begun, which cannot carry an
    /// error any more.
    fn is_broken(&self) -> bool {
        matches!(&self.ended, Some(Err(why)) if why.contains("in the middle of a reply"))
    }

    fn poll(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let waker = Waker::from(self.woken.clone());
        if let Poll::Ready(end) = session.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.session = None;
            self.ended = Some(end);
        }
    }
}

/// Whether a session has something to do.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Woken {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }

    /// Gives a thread that has ended a flush the time to say so, on a busy machine, too. A session
    /// in the middle of a reply does not listen.
    fn wait(&self) {
        let until = Instant::now() + Duration::from_millis(20);
        while !self.0.load(Ordering::SeqCst) && Instant::now() < until {
            std::thread::yield_now();
        }
    }
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

fn profile_of(plan: &Plan) -> Profile {
    let profile = plan.cells.profile();
    let geometry = Geometry {
        page_bytes: plan.page,
        pages_per_block: plan.block,
        ..profile.geometry
    };
    // Wear is another suite's.
    Profile {
        geometry,
        endurance: 1 << 20,
        ..profile
    }
}

/// A request of a racer: cookie, payload, request, version.
type Job = (u64, Vec<u8>, Ask, u32);

/// Its answer: submitted, replied, request, version, reply.
type Answer = (u64, u64, Ask, u32, Reply);

/// A new image on a new disk.
fn make(plan: &Plan) -> Result<SimDisk, String> {
    let scheme = plan.scheme()?;
    let mut params = Params::default();
    for (key, value) in [
        ("ckpt.interval", plan.checkpoint.to_string()),
        ("wear.gap", "4".into()),
    ] {
        if has_param(scheme, key) {
            params.set(key, &value);
        }
    }
    plan.params
        .iter()
        .for_each(|(key, value)| params.set(key, value));
    let text = params.iter().fold(String::new(), |text, (key, value)| {
        text + &format!("{key}={value}\n")
    });
    let told = |error: &dyn std::fmt::Display| format!("plan: {error}");
    // A device may end inside a page, though one that the command line makes does not.
    let room = plan.size.next_multiple_of(4096);
    let layout = scheme.layout(&profile_of(plan), room, f64::from(plan.op) / 100.0, &params);
    let layout = layout.map_err(|error| told(&error))?;
    let spec = ImageSpec {
        profile: layout.profile,
        size: plan.size,
        scheme: scheme.name.into(),
        params: text,
    };
    let (disk, store) = SimDisk::create(&spec, plan.spare).map_err(|error| told(&error))?;
    let chip = Chip::open(layout.profile, store).map_err(|error| told(&error))?;
    let logical_pages = plan.size.div_ceil(u64::from(plan.page)) as u32;
    let config = FtlConfig {
        logical_pages,
        params,
    };
    let mut ftl = scheme
        .start(chip, &config, Start::Format)
        .map_err(|error| told(&error))?;
    ftl.shutdown(0).map_err(|error| told(&error))?;
    ftl.into_chip()
        .into_store()
        .close()
        .map_err(|error| told(&error))?;
    Ok(disk)
}

fn open(disk: &SimDisk, gate: Option<&Arc<Gate>>) -> Result<Volume<FileStore>, String> {
    let (store, _) = disk
        .open(Access::ReadWrite)
        .map_err(|error| format!("open: {error}"))?;
    let stack = volume_on(
        Path::new(NAME),
        store,
        false,
        Latency::None,
        |inner| match gate {
            Some(gate) => Arc::new(Unblocked {
                inner,
                gate: gate.clone(),
            }),
            None => inner,
        },
    );
    Ok(stack.map_err(|failure| format!("mount: {failure}"))?.volume)
}

/// A session on the volume, as one of the plan's connections.
fn connect(
    plan: &Plan,
    who: usize,
    volume: &Arc<Volume<FileStore>>,
    gate: &Arc<Gate>,
    stats: &Arc<NbdStats>,
) -> Result<Connection, String> {
    let (wire, piece) = (plan.wires[who], plan.piece as usize);
    let limits = Limits {
        piece,
        backlog: piece.min(64 << 10),
        resting: 4096,
        ..Limits::default()
    };
    let client = Client::new(wire);
    let device = Arc::new(Watched {
        volume: volume.clone(),
        gate: gate.clone(),
        who,
        writes: Vec::new().into(),
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let (pipe, served, stats) = (client.pipe.clone(), device.clone(), stats.clone());
    let session: Session = Box::pin(async move {
        let info = ExportInfo {
            name: "disk".into(),
            description: String::new(),
        };
        let stopped = async { drop(stopped.await) };
        let end = match wire {
            Wire::Attached => attach_stream(pipe, served, &limits, &stats, stopped).await,
            _ => serve_stream(pipe, served, info, &limits, &stats, stopped).await,
        };
        end.map_err(|ended| ended.to_string())
    });
    let mut connection = Connection {
        client,
        device,
        session: Some(session),
        ended: None,
        stop: Some(stop),
        woken: Arc::default(),
        seen: 0,
        wrote: false,
        left: false,
    };
    connection.client.pipe.allow(usize::MAX, usize::MAX);
    connection.poll();
    if !connection.client.negotiated()? {
        return Err(format!(
            "connection {who} is not let in: {:?}",
            connection.ended
        ));
    }
    Ok(connection)
}

/// Everything that a volume holds, its holes included.
fn contents(volume: &Volume<FileStore>) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0xA5; volume.size() as usize];
    volume
        .read(0, &mut bytes)
        .map_err(|error| format!("read after a restart: {error}"))?;
    let mut at = 0;
    while at < bytes.len() {
        let left = (bytes.len() - at) as u64;
        let extents = volume
            .extents(at as u64, left, 1024)
            .map_err(|error| format!("extents: {error}"))?;
        for extent in extents {
            let part = &bytes[at..at + extent.len as usize];
            if !extent.mapped && part.iter().any(|byte| *byte != 0) {
                return Err(format!(
                    "the hole at byte {at} of {} bytes does not read as zeros",
                    extent.len
                ));
            }
            at += extent.len as usize;
        }
    }
    Ok(bytes)
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

    /// Whether what was not durable may be gone although the host lives.
    fn is_lossy(&self) -> bool {
        self.volume.trouble().is_some() || self.sync_failed
    }

    /// Notes faults that struck. Trouble that nobody asked for is a failure.
    fn look_at_faults(&mut self) -> Result<(), String> {
        if let Some(errno) = self.fuse.take_if(|_| !self.disk.fuse_is_whole()) {
            self.blown = Some((self.now(), errno));
        }
        // The volume hears of a sync that failed inside the scheme when it next waits for one.
        if self.disk.bad_syncs() < self.bad_syncs && !self.sync_failed {
            self.sync_failed = true;
            self.note(Class::SyncFailed);
        }
        match self.volume.trouble() {
            Some(why) if why.contains("sync of the image failed") && self.sync_failed => {}
            Some(_) if self.cut && self.volume.is_powerless() => self.note(Class::PowerCut),
            Some(why) => return Err(format!("the device failed: {why}")),
            None => {}
        }
        if self.gate.reclaimed() {
            self.note(Class::ErasesShort);
        }
        Ok(())
    }

    /// Opens a disk, judges what it holds and returns it.
    fn look(&mut self, disk: &SimDisk, end: End) -> Result<Vec<u8>, String> {
        self.judged(end);
        let bytes = contents(&open(disk, None)?)?;
        self.oracle.judge(&bytes, self.may_lose(end))?;
        Ok(bytes)
    }

    /// The same without a change of the disk, and with a session that asks for changes.
    fn look_read_only(&mut self, end: End) -> Result<(), String> {
        let disk = self.disk.ended(end);
        let writes = disk.writes();
        let (store, _) = disk
            .open(Access::ReadOnly)
            .map_err(|error| format!("read-only open: {error}"))?;
        let stack = volume_on(Path::new(NAME), store, true, Latency::None, |inner| inner);
        let volume = Arc::new(
            stack
                .map_err(|failure| format!("read-only mount: {failure}"))?
                .volume,
        );
        let bytes = contents(&volume)?;
        self.judged(end);
        self.oracle
            .judge(&bytes, self.may_lose(end))
            .map_err(|why| format!("read-only: {why}"))?;
        let mut connection = connect(self.plan, 0, &volume, &Arc::default(), &Arc::default())?;
        let length = self.plan.size.min(3000);
        for (verb, errno) in [
            (Verb::Write, EPERM),
            (Verb::Trim, EPERM),
            (Verb::Zero, EPERM),
            (Verb::Flush, 0),
            (Verb::Read, 0),
        ] {
            let flush = verb == Verb::Flush;
            let ask = Ask::new(
                verb,
                if flush { 0 } else { 100.min(length - 1) },
                if flush {
                    0
                } else {
                    length - 100.min(length - 1)
                },
            );
            let payload = vec![
                7;
                if verb == Verb::Write {
                    ask.length as usize
                } else {
                    0
                }
            ];
            let (_, _, _, _, reply) =
                race_alone(&mut connection, &[(1, payload, ask, 0)], &self.clock)?.remove(0);
            if reply.errno != errno {
                return Err(format!("read-only: errno {} for {ask}", reply.errno));
            }
            if verb == Verb::Read && !reply.holds(&bytes) {
                return Err("read-only: a session reads other bytes than the volume".into());
            }
        }
        if contents(&volume)? != bytes || disk.writes() != writes {
            return Err("a read-only device changed".into());
        }
        self.note(Class::ReadOnly);
        Ok(())
    }

    /// Notes what this end, whose outcome was judged, was like.
    fn note_end(&mut self, end: End) {
        let End::Crash(_) = end else {
            self.note(Class::Kill);
            return;
        };
        self.note(Class::Crash);
        if self.disk.writes() == self.durable.1 {
            self.note(Class::CrashAfterReply);
        }
        for class in std::mem::take(&mut self.durable.0) {
            self.classes.note(class);
        }
        if self.plan.ram_acknowledges()
            && self.connections.iter().any(|connection| connection.wrote)
        {
            self.note(Class::RamAcknowledged);
        }
        if self.after_kill {
            self.note(Class::CrashAfterKill);
        }
        if self.after_failed_sync {
            self.note(Class::CrashAfterFailedSync);
        }
        if self.gate.is_held() {
            self.note(Class::CrashDuringSync);
        }
    }

    fn send(&mut self, who: usize, ask: Ask) {
        let unanswered = self.open.values().filter(|open| open.op.is_some()).count();
        let busy = self
            .connections
            .get(who)
            .is_none_or(|each| each.client.open.len() > 6 || each.session.is_none());
        // Simple replies have no room for extents.
        let simple = matches!(
            self.plan.wires.get(who),
            Some(Wire::Simple | Wire::Attached)
        );
        let mute = ask.verb == Verb::Status && simple;
        if busy || mute || ask.changes() && unanswered >= UNANSWERED_MAX {
            return;
        }
        let (cookie, payload, open) = self.prepare(who, ask);
        self.open.insert(cookie, open);
        self.connections[who].client.send(cookie, &ask, &payload);
    }

    fn is_inside(&self, ask: &Ask) -> bool {
        ask.offset
            .checked_add(ask.length)
            .is_some_and(|end| end <= self.plan.size)
    }

    /// Tells the oracle of a request.
    fn prepare(&mut self, who: usize, ask: Ask) -> (u64, Vec<u8>, Open) {
        let began = self.now();
        self.versions += 1;
        let (version, range) = (self.versions, ask.offset..ask.offset + ask.length);
        let mut payload = Vec::new();
        if ask.verb == Verb::Write {
            payload.resize(ask.length as usize, 0);
            fill(self.plan.seed, version, ask.offset, &mut payload);
        }
        let change = if ask.verb == Verb::Write {
            Change::Version(version)
        } else {
            Change::Zeros
        };
        let op = (ask.changes() && self.is_inside(&ask)).then(|| self.oracle.submit(change, range));
        self.cookies += 1;
        self.connections[who].wrote |= op.is_some();
        let behind = self
            .open
            .values()
            .any(|open| open.who == who && open.ask.waits_for_a_sync());
        (
            self.cookies,
            payload,
            Open {
                ask,
                who,
                op,
                began,
                during_sync: self.gate.is_held(),
                behind,
            },
        )
    }

    fn turn(&mut self, who: usize, inward: usize, outward: usize) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(who) else {
            return Ok(());
        };
        self.gate.expect_threads();
        connection.client.pipe.allow(inward, outward);
        connection.poll();
        self.take(who)?;
        self.settle()
    }

    /// Takes and judges the replies of a connection.
    fn take(&mut self, who: usize) -> Result<(), String> {
        self.look_at_faults()?;
        let replies = self.connections[who].client.receive()?;
        for reply in replies {
            self.oracle.horizon = self.open.values().map(|open| open.began).min().unwrap_or(0);
            let now = self.now();
            let open = self
                .open
                .remove(&reply.cookie)
                .expect("the client knows it");
            self.replied(&open, &reply, now)
                .map_err(|why| format!("{}: {why}", open.ask))?;
        }
        let ends_anyway = self.stopping || self.connections[who].left;
        if self.is_broken(who) && !ends_anyway {
            return self.replace_broken(who);
        }
        match &self.connections[who].ended {
            Some(end) if !ends_anyway => Err(format!("connection {who} ended: {end:?}")),
            _ => Ok(()),
        }
    }

    /// Waits for threads and serves the connections whose flushes ended.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            let ended = self.gate.quiet(
                self.connections
                    .iter()
                    .map(|connection| connection.seen)
                    .sum(),
            );
            let mut progress = false;
            for who in 0..self.connections.len() {
                let ended = ended.get(who).copied().unwrap_or(0);
                let waits = self
                    .open
                    .values()
                    .any(|open| open.who == who && open.ask.waits_for_a_sync());
                let connection = &mut self.connections[who];
                if connection.seen < ended && waits {
                    connection.woken.wait();
                }
                progress |= connection.seen < ended;
                connection.seen = ended;
                if connection.woken.take() {
                    progress = true;
                    connection.poll();
                    self.take(who)?;
                }
            }
            if !progress && !self.gate.is_busy() {
                return Ok(());
            }
        }
    }

    fn replied(&mut self, open: &Open, reply: &Reply, now: u64) -> Result<(), String> {
        self.report.replies += 1;
        let Open {
            ask,
            who,
            op,
            began,
            ..
        } = *open;
        let well = reply.errno == 0;
        let calls = std::mem::take(
            &mut *self.connections[who]
                .device
                .writes
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let pieces: Vec<_> = calls
            .iter()
            .filter(|call| (ask.offset..ask.offset + ask.length).contains(&call.offset))
            .collect();
        if !well {
            self.traffic.errors += 1;
            let struck = self.blown.filter(|(when, _)| *when > began);
            let expected = match ask.verb {
                Verb::Write | Verb::Zero => ENOSPC,
                _ => EINVAL,
            };
            let inside = self.is_inside(&ask);
            if !inside && reply.errno == expected {
                self.note(Class::BeyondTheEnd);
            } else if let Some((_, errno)) = struck {
                self.note(if errno == ENOSPC as i32 {
                    Class::Enospc
                } else {
                    Class::Eio
                });
                let failed = pieces.iter().position(|call| !call.well);
                if failed.is_some_and(|place| ask.length > pieces[place].length) {
                    self.note(Class::PieceFailed);
                }
            } else if !(self.is_lossy() && (self.volume.is_powerless() || ask.verb != Verb::Read))
                && !(self.stopping && reply.errno == ESHUTDOWN)
            {
                return Err(format!("errno {}", reply.errno));
            }
        } else if !self.is_inside(&ask) && ask.verb != Verb::Flush {
            return Err("answered well, though it reaches beyond the end".into());
        }
        if let Some(op) = op {
            self.oracle.answered(op, now, well, ask.fua)?;
        }
        self.look_at_state(&ask, well, (began, now))?;
        if well {
            let between = pieces.windows(2).any(|two| two[0].flushes < two[1].flushes);
            self.succeeded(open, reply, (pieces.len(), between), now)?;
        }
        Ok(())
    }

    /// A write that no other one succeeded beside decides whether the device says that writes fail.
    fn look_at_state(
        &mut self,
        ask: &Ask,
        well: bool,
        (began, now): (u64, u64),
    ) -> Result<(), String> {
        let beside = self.wrote_well > began;
        if well && ask.verb == Verb::Write {
            self.wrote_well = now;
        }
        let alone = self.open.is_empty() && !self.racing && !self.is_lossy() && !self.stopping;
        let told = self.volume.writes_failing().map(|failing| failing.text());
        let struck = self.blown.is_some_and(|(when, _)| when > began);
        if ask.verb != Verb::Write || !self.is_inside(ask) || !alone {
            return Ok(());
        }
        match told {
            None if !well && struck && !beside => {
                Err("writes fail, and the device does not say so".into())
            }
            Some(why) if well && !struck && self.fuse.is_none() => Err(format!(
                "a write succeeded, and the device still says: {why}"
            )),
            Some(_) if !well => {
                self.failing = true;
                Ok(())
            }
            _ => {
                if well && std::mem::take(&mut self.failing) {
                    self.note(Class::WritesFailing);
                }
                Ok(())
            }
        }
    }

    fn succeeded(
        &mut self,
        open: &Open,
        reply: &Reply,
        (pieces, between): (usize, bool),
        now: u64,
    ) -> Result<(), String> {
        let Open {
            ask,
            who,
            began,
            during_sync,
            behind,
            ..
        } = *open;
        let page = u64::from(self.plan.page);
        let aligned = ask.offset.is_multiple_of(page) && ask.length.is_multiple_of(page);
        let flag = |traffic: &mut u64| *traffic += ask.length;
        match ask.verb {
            Verb::Read => flag(&mut self.traffic.read),
            Verb::Write => flag(&mut self.traffic.written),
            Verb::Trim => flag(&mut self.traffic.trimmed),
            Verb::Zero => flag(&mut self.traffic.zeroed),
            Verb::Flush => self.traffic.flushes += 1,
            Verb::Cache => self.note(Class::Cache),
            Verb::Status => {}
        }
        self.traffic.flushes += u64::from(ask.fua);
        if ask.changes() && !aligned {
            self.note(Class::PartOfAPage);
            self.partial_trims |= ask.verb != Verb::Write;
        }
        if ask.verb == Verb::Trim && ask.length > LONG_PAGES * page {
            self.note(Class::LongTrim);
        }
        if ask.verb == Verb::Write
            && pieces == 1
            && ask.offset / SLICE != (ask.offset + ask.length - 1) / SLICE
        {
            self.note(Class::SeveralSlices);
        }
        if self.plan.wires[who] == Wire::Attached {
            self.note(Class::Attached);
        }
        if ask.no_hole || ask.fast {
            self.note(Class::ZeroFlags);
        }
        if ask.verb == Verb::Flush || ask.fua {
            let mut kinds = BTreeSet::new();
            let mut kind = |class: Class| {
                kinds.insert(class.name());
            };
            match ask.verb {
                Verb::Write if pieces > 1 => {
                    kind(Class::FuaPieces);
                    if between {
                        kind(Class::SyncBetweenPieces);
                    }
                }
                Verb::Trim => kind(Class::FuaTrim),
                Verb::Zero => kind(Class::FuaZeroes),
                Verb::Flush if !self.connections[who].wrote => kind(Class::AWritesBFlushes),
                _ => {}
            }
            if during_sync {
                kind(Class::FlushDuringSync);
            }
            if behind {
                kind(Class::FlushBehindFlush);
            }
            self.durable = (kinds, self.disk.writes());
        }
        if ask.verb == Verb::Flush {
            self.oracle.flushed(began);
        }
        let races = self.open.values().any(|other| {
            let apart = other.ask.offset >= ask.offset + ask.length
                || ask.offset >= other.ask.offset + other.ask.length;
            other.op.is_some() && other.ask.verb != Verb::Write && !apart
        });
        let mut at = ask.offset;
        for (from, part) in &reply.parts {
            match part {
                Part::Data(data) => self.oracle.read(*from, data, began, now)?,
                Part::Hole(length) => {
                    self.note(Class::HoleInRead);
                    if !ask.offset.is_multiple_of(512) && self.partial_trims {
                        self.note(Class::OddHole);
                    }
                    self.oracle.read(*from, &vec![0; *length], began, now)?;
                }
            }
            if races {
                self.note(Class::TrimRacesRead);
            }
        }
        for (length, hole) in &reply.extents {
            if *hole {
                self.note(Class::HoleInStatus);
                let told = self.oracle.read(at, &vec![0; *length as usize], began, now);
                told.map_err(|why| format!("a hole that is none: {why}"))?;
            }
            at += length;
        }
        Ok(())
    }

    /// Reads everything through a connection.
    fn check(&mut self, who: usize) -> Result<(), String> {
        let step = 128 << 10;
        for at in (0..self.plan.size).step_by(step) {
            self.send(
                who,
                Ask::new(Verb::Read, at, (self.plan.size - at).min(step as u64)),
            );
            self.turn(who, usize::MAX, usize::MAX)?;
        }
        Ok(())
    }

    /// Answers everything. A stop ends the sessions, too.
    fn drain(&mut self) -> Result<(), String> {
        self.gate.hold(false);
        let until = Instant::now() + UNANSWERED;
        loop {
            for who in 0..self.connections.len() {
                self.turn(who, usize::MAX, usize::MAX)?;
            }
            let done = match self.stopping {
                true => self.connections.iter().all(|each| each.session.is_none()),
                false => self.open.is_empty(),
            };
            if done || Instant::now() > until {
                break;
            }
        }
        match self.open.values().next() {
            Some(open) if !self.stopping => Err(format!("{} is never answered", open.ask)),
            _ => Ok(()),
        }
    }

    /// A connection ends with whatever it has in flight, and another takes its place.
    fn leave(&mut self, who: usize, hang_up: Option<usize>) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(who) else {
            return Ok(());
        };
        let in_flight = !connection.client.open.is_empty();
        connection.left = true;
        connection.client.leave(hang_up);
        self.turn(who, usize::MAX, usize::MAX)?;
        let until = Instant::now() + UNANSWERED;
        while self.connections[who].session.is_some() {
            if Instant::now() > until {
                return Err(format!("connection {who} outlives its client"));
            }
            // What it waits for may wait for the runner.
            self.gate.hold(false);
            self.turn(who, usize::MAX, usize::MAX)?;
        }
        let inside = self.end_of_connection(who)?;
        let end = self.connections[who].ended.as_ref().expect("it has ended");
        if end.is_ok() == inside && !self.is_broken(who) {
            return Err(format!(
                "connection {who} ended inside a message: {inside}, {end:?}"
            ));
        }
        if in_flight {
            self.note(Class::Left);
        }
        if inside {
            self.note(Class::HungUp);
        }
        self.reconnect(who)?;
        let connected = self.stats.snapshot().connected;
        if connected != self.plan.wires.len() as u64 {
            return Err(format!(
                "{connected} sessions counted after connection {who} was replaced"
            ));
        }
        Ok(())
    }

    fn is_broken(&self, who: usize) -> bool {
        self.connections[who].is_broken() && self.volume.is_powerless()
    }

    /// Power failed within a read of several pieces: the session ends, and its requests have no
    /// replies.
    fn replace_broken(&mut self, who: usize) -> Result<(), String> {
        self.forget_requests(who)?;
        self.note(Class::Broken);
        self.reconnect(who)
    }

    fn reconnect(&mut self, who: usize) -> Result<(), String> {
        let seen = self.connections[who].seen;
        self.connections[who] = connect(self.plan, who, &self.volume, &self.gate, &self.stats)?;
        self.connections[who].seen = seen;
        Ok(())
    }

    /// Requests without a reply when their connection ended took effect by then or never. What was
    /// taken whole has a reply. Returns whether the last message broke off.
    fn end_of_connection(&mut self, who: usize) -> Result<bool, String> {
        let (whole, inside) = self.connections[who].client.unanswered();
        if let Some(ask) = whole.filter(|_| !self.is_broken(who)) {
            return Err(format!(
                "connection {who} ended, and {ask} was not answered"
            ));
        }
        self.forget_requests(who)?;
        Ok(inside)
    }

    fn forget_requests(&mut self, who: usize) -> Result<(), String> {
        let gone: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| open.who == who)
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in gone {
            let open = self.open.remove(&cookie).expect("listed");
            self.traffic.errors += 1;
            if let Some(op) = open.op {
                let now = self.now();
                self.oracle.answered(op, now, false, false)?;
            }
        }
        Ok(())
    }

    fn race(&mut self, asks: &[(usize, Ask)], pauses: u32) -> Result<(), String> {
        self.drain()?;
        let racers = self.connections.len();
        let mut work: Vec<Vec<Job>> = vec![Vec::new(); racers];
        for (who, ask) in asks {
            if *who >= racers || !self.is_inside(ask) {
                continue;
            }
            self.cookies += 1;
            self.versions += 1;
            let mut payload = Vec::new();
            if ask.verb == Verb::Write {
                payload.resize(ask.length as usize, 0);
                fill(self.plan.seed, self.versions, ask.offset, &mut payload);
            }
            work[*who].push((self.cookies, payload, *ask, self.versions));
        }
        self.racing = true;
        let (clock, volume, done) = (
            self.clock.clone(),
            self.volume.clone(),
            AtomicBool::new(false),
        );
        let running = work.iter().filter(|each| !each.is_empty()).count();
        let barrier = Barrier::new(running + 1);
        let handle = Handle::current();
        let mut logs: Vec<Vec<Answer>> = Vec::new();
        let mut idle_worked = false;
        std::thread::scope(|scope| {
            let racers = self
                .connections
                .iter_mut()
                .zip(&work)
                .filter(|(_, work)| !work.is_empty());
            let threads: Vec<_> = racers
                .map(|(connection, work)| {
                    let (clock, barrier, handle) = (&clock, &barrier, &handle);
                    scope.spawn(move || {
                        let _context = handle.enter();
                        connection.client.pipe.allow(usize::MAX, usize::MAX);
                        barrier.wait();
                        race_alone(connection, work, clock)
                    })
                })
                .collect();
            let background = scope.spawn(|| work_behind(&volume, &done));
            barrier.wait();
            let paused = (0..pauses).try_for_each(|round| pause(&volume, round));
            volume.resume();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Ordering::SeqCst);
            idle_worked = background.join().map_err(|_| "background work panicked")?;
            for log in ended {
                logs.push(log.unwrap_or_else(|_| Err("a racer panicked".into()))?);
            }
            paused
        })?;
        if idle_worked {
            self.note(Class::IdleRaces);
        }
        if pauses > 0 {
            self.note(Class::Paused);
        }
        self.look_at_faults()?;
        let replayed = self.replay(logs);
        self.racing = false;
        replayed?;
        (0..self.connections.len()).try_for_each(|who| self.take(who))
    }

    /// Tells the oracle of a race, in the order in which it happened.
    fn replay(&mut self, logs: Vec<Vec<Answer>>) -> Result<(), String> {
        let all: Vec<(usize, Answer)> = logs
            .into_iter()
            .enumerate()
            .flat_map(|(who, log)| log.into_iter().map(move |each| (who, each)))
            .collect();
        let overlap = |one: &(u64, u64, Ask, u32, Reply), other: &(u64, u64, Ask, u32, Reply)| {
            let pages = |ask: &Ask| {
                let page = u64::from(self.plan.page);
                ask.offset / page..(ask.offset + ask.length).div_ceil(page)
            };
            let (a, b) = (pages(&one.2), pages(&other.2));
            one.0 < other.1 && other.0 < one.1 && a.start < b.end && b.start < a.end
        };
        let mut met = BTreeSet::new();
        for (place, (who, one)) in all.iter().enumerate() {
            for (_, other) in all[..place]
                .iter()
                .filter(|(other, each)| other != who && overlap(one, each))
            {
                match (one.2.verb, other.2.verb) {
                    (Verb::Write, Verb::Write) => met.insert(Class::TwoWriters.name()),
                    (Verb::Read, Verb::Trim | Verb::Zero)
                    | (Verb::Trim | Verb::Zero, Verb::Read) => {
                        met.insert(Class::TrimRacesRead.name())
                    }
                    _ => false,
                };
            }
        }
        met.into_iter().for_each(|class| self.classes.note(class));
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (place, (_, each)) in all.iter().enumerate() {
            events.extend([(each.0, true, place), (each.1, false, place)]);
        }
        events.sort_unstable();
        let mut ops = vec![None; all.len()];
        self.oracle.horizon = events.first().map_or(0, |event| event.0);
        for (when, begins, place) in events {
            let (who, (began, _, ask, version, reply)) = &all[place];
            if begins {
                let range = ask.offset..ask.offset + ask.length;
                let change = if ask.verb == Verb::Write {
                    Change::Version(*version)
                } else {
                    Change::Zeros
                };
                ops[place] = ask.changes().then(|| self.oracle.submit(change, range));
                continue;
            }
            let who = self.plan.wires.len().min(*who);
            let open = Open {
                ask: *ask,
                who,
                op: ops[place],
                began: *began,
                during_sync: false,
                behind: false,
            };
            self.replied(&open, reply, when)
                .map_err(|why| format!("racing {ask}: {why}"))?;
        }
        Ok(())
    }

    fn die(&mut self, death: Death, look: bool) -> Result<(), String> {
        let (disk, rollback) = match death {
            Death::Sudden(end) => {
                let (disk, rollback) = (self.disk.ended(end), self.may_lose(end));
                if look {
                    self.judged(end);
                }
                self.note_end(end);
                self.after_kill = end == End::Kill;
                (disk, rollback)
            }
            Death::Stop => {
                let lossy = self.stop()?;
                (self.disk.ended(End::Kill), lossy)
            }
        };
        self.abandon();
        self.restart(disk, rollback, look)
    }

    /// Stops in order. Returns whether what was not durable may be gone.
    fn stop(&mut self) -> Result<bool, String> {
        let amid = !self.open.is_empty();
        self.stopping = true;
        for connection in &mut self.connections {
            drop(connection.stop.take());
        }
        for who in 0..self.connections.len() {
            self.turn(who, usize::MAX, usize::MAX)?;
        }
        if amid {
            // A sync may be held still.
            let end = End::Crash(Crash::Nothing);
            let disk = self.disk.ended(end);
            self.look(&disk, end)
                .map_err(|why| format!("amid a stop: {why}"))?;
            self.note(Class::StopAmid);
        }
        self.drain()?;
        for who in 0..self.connections.len() {
            if self.connections[who].session.is_some() {
                return Err(format!("connection {who} outlives the stop"));
            }
            self.end_of_connection(who)?;
        }
        let nbd = self.stats.snapshot();
        if nbd.connected + nbd.in_flight > 0 {
            return Err(format!(
                "after a stop: {} sessions, {} requests in flight",
                nbd.connected, nbd.in_flight
            ));
        }
        self.count()?;
        let excused =
            self.is_lossy() || self.fuse.is_some() || self.disk.bad_syncs() > 0 || self.cut;
        let closed = self.volume.close().map_err(|error| error.to_string());
        let closed = closed.and_then(|store| store.close().map_err(|error| error.to_string()));
        self.after_kill = false;
        match closed {
            Err(why) if !excused => Err(format!("stop: {why}")),
            Err(_) => {
                self.look_at_faults()?;
                Ok(self.is_lossy())
            }
            Ok(()) => {
                self.note(Class::Stop);
                Ok(self.is_lossy())
            }
        }
    }

    /// Compares the volume's counters and the server's with the traffic, if all of it went well.
    fn count(&mut self) -> Result<(), String> {
        if self.traffic.errors > 0 {
            return Ok(());
        }
        let (host, nbd) = (self.volume.host(), self.stats.snapshot());
        let Traffic {
            written,
            trimmed,
            zeroed,
            read,
            flushes,
            ..
        } = self.traffic;
        let same = [
            ("bytes written", host.of(Op::Write).bytes, written),
            ("bytes trimmed", host.of(Op::Trim).bytes, trimmed),
            ("bytes zeroed", host.of(Op::WriteZeroes).bytes, zeroed),
            ("flushes", host.of(Op::Flush).completed, flushes),
            ("bytes that NBD read", nbd.read, read),
            ("bytes that NBD wrote", nbd.written, written),
            ("errors of NBD", nbd.errors, 0),
            (
                "requests in flight",
                host.ops.iter().map(|op| op.in_flight).sum(),
                0,
            ),
        ];
        if let Some((name, counted, known)) = same
            .into_iter()
            .find(|(_, counted, known)| counted != known)
        {
            return Err(format!("{name}: {counted} counted, {known} known"));
        }
        // Holes are answered without a read; a look after a restart reads everything.
        let most = read + self.looked;
        if host.of(Op::Read).bytes > most {
            return Err(format!(
                "bytes read: {} counted, at most {most} known",
                host.of(Op::Read).bytes
            ));
        }
        self.note(Class::Counters);
        Ok(())
    }

    /// Lets go of what is left of a daemon.
    fn abandon(&mut self) {
        self.gate.hold(false);
        self.connections.clear();
        self.gate.idle();
        self.open.clear();
        self.trap = None;
    }

    fn die_twice(&mut self, first: End, writes: u64, second: End) -> Result<(), String> {
        let disk = self.disk.ended(first);
        let mut rollback = self.may_lose(first);
        self.judged(first);
        self.note_end(first);
        self.after_kill = false;
        disk.freeze_at(Freeze::Write(writes));
        let opened = open(&disk, None);
        let kept = disk.take_frozen().map(|frozen| frozen.ended(second));
        if kept.is_some() {
            rollback |= matches!(second, End::Crash(_));
            self.judged(second);
            self.note(Class::EndInOpen);
        } else {
            opened?;
        }
        self.abandon();
        self.restart(
            kept.unwrap_or_else(|| disk.ended(End::Kill)),
            rollback,
            true,
        )
    }

    fn restart(&mut self, disk: SimDisk, rollback: bool, look: bool) -> Result<(), String> {
        self.after_failed_sync = self.sync_failed;
        if self.after_failed_sync {
            self.note(Class::RestartAfterFailedSync);
        }
        self.gate = Arc::new(Gate::default());
        self.volume = Arc::new(open(&disk, Some(&self.gate))?);
        self.disk = disk;
        self.looked = if look { self.plan.size } else { 0 };
        if look {
            let bytes = contents(&self.volume)?;
            self.oracle.judge(&bytes, rollback)?;
            self.oracle.restarted(&bytes);
        } else {
            self.oracle.restarted_unseen(rollback);
        }
        (self.fuse, self.blown, self.bad_syncs, self.sync_failed) = (None, None, 0, false);
        (self.cut, self.stopping, self.failing) = (false, false, false);
        (self.traffic, self.durable) = (Traffic::default(), (BTreeSet::new(), 0));
        self.serve()
    }

    fn finish(mut self) -> Result<Report, String> {
        self.drain()?;
        if !self.is_lossy() {
            self.disk.mend();
            self.volume.keep_power();
            (self.fuse, self.cut) = (None, false);
            self.check(0)?;
        }
        self.die(Death::Stop, true)?;
        self.abandon();
        Ok(self.report)
    }
}

/// Requests of one connection, one after the other; when each began and ended by the clock.
fn race_alone(
    connection: &mut Connection,
    work: &[(u64, Vec<u8>, Ask, u32)],
    clock: &AtomicU64,
) -> Result<Vec<Answer>, String> {
    let mut log = Vec::new();
    for (cookie, payload, ask, op) in work {
        let began = clock.fetch_add(1, Ordering::SeqCst);
        connection.client.send(*cookie, ask, payload);
        let reply = loop {
            connection.poll();
            if let Some(reply) = connection.client.receive()?.pop() {
                break reply;
            }
            if connection.is_broken() {
                return Ok(log);
            }
            if let Some(end) = &connection.ended {
                return Err(format!("a racing connection ended: {end:?}"));
            }
            std::thread::yield_now();
        };
        log.push((
            began,
            clock.fetch_add(1, Ordering::SeqCst),
            *ask,
            *op,
            reply,
        ));
    }
    Ok(log)
}

/// Background work until the racers are done. Returns whether there was any.
fn work_behind(volume: &Volume<FileStore>, done: &AtomicBool) -> bool {
    let mut worked = false;
    while !done.load(Ordering::SeqCst) {
        worked |= volume.idle(8) == Idle::More;
        volume.publish(false);
        volume.tidy();
        volume.reclaim_when_short(Duration::ZERO);
        std::thread::yield_now();
    }
    worked
}

/// Pauses the device and lets it on again, now and then by a step. While it is paused no flash
/// operation begins.
fn pause(volume: &Volume<FileStore>, round: u32) -> Result<(), String> {
    if volume.pause(Duration::from_secs(20)).is_err() {
        return Ok(());
    }
    let operations = || {
        volume.publish(true);
        volume.flash().counters.total()
    };
    let before = operations();
    for _ in 0..3 {
        volume.idle(8);
        std::thread::yield_now();
    }
    let after = operations();
    if before != after {
        return Err(format!("a paused device went from {before:?} to {after:?}"));
    }
    if round % 2 == 1 {
        volume
            .step(Step::Requests(1))
            .map_err(|failure| failure.to_string())?;
        std::thread::yield_now();
    }
    volume.resume();
    Ok(())
}
