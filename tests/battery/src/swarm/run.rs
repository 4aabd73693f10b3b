//! Runs a plan: requests beside the oracle, faults as they come, restarts until one succeeds.
//!
//! What always holds in here: the oracle hears of a request before the scheme does; a device that
//! went down is judged by what may have been lost since it last served (`power_lost`); every page
//! is read after every restart.

use super::oracle::{Cost, Older, Oracle};
use super::plan::{Down, Inside, Parts, Plan, Restart, Step};
use super::situations::KINDS;
use super::world::{self, Memory, OnDisk, World};
use crate::classes::Classes;
use crate::host::{blocks_add_up, is_barrier, values};
use crate::payload::{self, Seen};
use crate::rig::{Cells, Rig};
use crate::workload::HostOp;
use ftl_core::format::{Oob, Role};
use ftl_core::{Ftl, FtlError, Lpn, Start};
use nand_model::{
    Bomb, Cause, Chip, Cut, CutHits, DieFailure, EraseCut, Fault, FaultPlan, Nanos, PartnerCut,
    Pbn, Ppn, ProgramCut, SplitMix, Store, SyncHandle,
};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Runs a plan and counts what happened in it.
///
/// # Errors
/// What was lost or wrong, and at which step.
pub fn run(plan: &Plan, classes: &mut Classes) -> Result<(), String> {
    let rig = plan.device.rig(plan.seed)?;
    classes.note(plan.device.scheme.name);
    let outcome = if plan.device.on_disk {
        Runner::<OnDisk>::new(plan, &rig, classes)?.run()
    } else {
        Runner::<Memory>::new(plan, &rig, classes)?.run()
    };
    if KINDS
        .iter()
        .filter(|(_, faults)| classes.happened(faults))
        .count()
        >= 2
    {
        classes.note("two kinds of fault");
    }
    outcome
}

/// What a plan's faults may cost.
fn cost_of(plan: &Plan) -> Cost {
    let lies = |step: &Step| match step {
        Step::BlockFails(_, fault) => fault.is_silent(),
        Step::DieFails(_) => true,
        _ => false,
    };
    let rots =
        |step: &Step| matches!(step, Step::WrongBits(_, bits, _) if *bits > correctable_bits(plan));
    // Where bits go wrong by themselves, records are lost, too.
    let harsh = plan.parts.bit_errors > mild_bit_errors(plan);
    let silent = plan
        .parts
        .chances
        .iter()
        .any(|(fault, _)| fault.is_silent());
    if harsh || silent || plan.steps.iter().any(lies) {
        Cost::Service
    } else if plan.steps.iter().any(rots) {
        Cost::Pages
    } else {
        Cost::Nothing
    }
}

/// Wrong bits of a codeword that the plan's chip corrects.
pub(super) fn correctable_bits(plan: &Plan) -> u32 {
    if plan.device.cells() == Cells::Slc {
        4
    } else {
        60
    }
}

/// Multiple of the part's bit error rate up to which a run loses a page by a chance of less than
/// 1e-6.
fn mild_bit_errors(plan: &Plan) -> u32 {
    MILD_BIT_ERRORS[plan.device.cells() as usize]
}

/// The same by kind of cells.
pub(super) const MILD_BIT_ERRORS: [u32; 2] = [2_000, 30];

fn program_class(outcome: ProgramCut) -> &'static str {
    match outcome {
        ProgramCut::NotStarted => "program not started",
        ProgramCut::Prefix => "program torn: the first bytes",
        ProgramCut::RandomBits => "program torn: some bits",
        ProgramCut::Unstable(_) => "program unstable",
        ProgramCut::Flickering(_) => "program flickers",
        ProgramCut::DataTorn => "program torn: the data",
        ProgramCut::OobTorn => "program torn: the spare bytes",
        ProgramCut::Complete => "program complete, not acknowledged",
    }
}

fn partner_class(outcome: PartnerCut) -> Option<&'static str> {
    match outcome {
        PartnerCut::Intact => None,
        PartnerCut::Unstable(_) => Some("word line unstable"),
        PartnerCut::Flickering(_) => Some("word line flickers"),
        PartnerCut::Destroyed => Some("word line destroyed"),
    }
}

fn erase_class(outcome: EraseCut) -> &'static str {
    match outcome {
        EraseCut::NotStarted => "erase not started",
        EraseCut::Mixed => "erase left some pages",
        EraseCut::AllButOne => "erase left all pages but one",
        EraseCut::OnlyOne => "erase left one page",
        EraseCut::LooksBlank => "erase incomplete, all blank",
        EraseCut::Complete => "erase complete, not acknowledged",
    }
}

/// A request, a mount or a check that did not go as it must.
type Verdict = Result<(), String>;

struct Runner<'p, W: World> {
    plan: &'p Plan,
    rig: &'p Rig,
    world: W,
    ftl: Option<Box<dyn Ftl<W::Store>>>,
    sync: Option<SyncHandle>,
    oracle: Oracle,
    classes: &'p mut Classes,
    /// Requests so far; versions follow from it.
    requests: u64,
    /// Emulated instants at which the last requests were done, as many as the host keeps in flight.
    done: VecDeque<Nanos>,
    /// The latest of all.
    latest: Nanos,
    /// Restart after the cut that is armed.
    armed: Option<&'p Restart>,
    dead_die: Option<u32>,
    disk_fails: bool,
    /// Whether something may have been lost since the device last served.
    power_lost: bool,
    /// Erase counts when it began to serve; they are on the disk.
    worn: Vec<u32>,
    gave_up: bool,
    /// Bits that were made wrong, by page.
    wrong: HashMap<Ppn, u32>,
    /// Whether the device was stopped in order since it last served, and nothing struck after that.
    stopped: bool,
}

impl<'p, W: World> Runner<'p, W> {
    fn new(plan: &'p Plan, rig: &'p Rig, classes: &'p mut Classes) -> Result<Self, String> {
        let oracle = Oracle::new(rig.config.logical_pages, plan.seed).costing(cost_of(plan));
        let world = W::create(rig);
        let mut runner = Runner {
            plan,
            rig,
            world,
            ftl: None,
            sync: None,
            oracle,
            classes,
            requests: 0,
            done: VecDeque::new(),
            latest: 0,
            armed: None,
            dead_die: None,
            disk_fails: false,
            power_lost: false,
            worn: Vec::new(),
            gave_up: false,
            wrong: HashMap::new(),
            stopped: false,
        };
        runner.format()?;
        Ok(runner)
    }

    fn format(&mut self) -> Verdict {
        let store = self.world.open()?;
        self.sync = W::sync_handle(&store);
        let mut chip = self.rig.open(store);
        if self.plan.device.worn {
            for block in spare_blocks(self.rig) {
                chip.mark_factory_bad_block(block)
                    .map_err(|error| error.to_string())?;
            }
        }
        chip.set_faults(self.environment(None));
        let started = self.rig.scheme.start(chip, &self.rig.config, Start::Format);
        self.ftl = Some(started.map_err(|error| format!("format: {error}"))?);
        self.sync_image().map_err(|why| format!("format: {why}"))?;
        self.note_environment();
        self.remember_wear();
        Ok(())
    }

    fn run(mut self) -> Verdict {
        let plan = self.plan;
        for (number, step) in plan.steps.iter().enumerate() {
            if self.gave_up {
                break;
            }
            self.step(step)
                .map_err(|why| format!("step {number} ({step}): {why}"))?;
        }
        if !self.gave_up {
            self.compare_all()
                .map_err(|why| format!("at the end: {why}"))?;
            self.tally();
        }
        Ok(())
    }

    fn step(&mut self, step: &'p Step) -> Verdict {
        match step {
            Step::Do(op) => self.request(op),
            Step::Cut(cut, restart) => {
                self.chip().amend_faults(|plan| plan.cut = Some(*cut));
                self.armed = Some(restart);
                Ok(())
            }
            Step::Down(how, restart) => self.down(*how, restart),
            Step::Age(hours) => {
                self.chip().age(*hours);
                self.note_decay("retention");
                Ok(())
            }
            Step::Hammer(lpn, times) => self.hammer(*lpn, *times),
            Step::WrongBits(page, bits, of_map) => self.wrong_bits(*page, *bits, *of_map),
            // A die that failed stays dead, and one is all that the chip can lose.
            Step::DieFails(_) if self.dead_die.is_some() => Ok(()),
            Step::DieFails(die) => {
                self.dead_die = Some(*die);
                self.chip().amend_faults(|plan| {
                    plan.die = Some(DieFailure {
                        die: *die,
                        at_op: 0,
                    })
                });
                self.classes.note("dead die");
                Ok(())
            }
            Step::BlockFails(block, fault) => {
                let block = Pbn::new(block % self.rig.profile.geometry.blocks);
                self.chip()
                    .amend_faults(|plan| plan.bombs.push(Bomb::next(block, *fault)));
                Ok(())
            }
            Step::Disk(fault) => {
                self.disk_fails = true;
                self.world
                    .disk()
                    .into_iter()
                    .for_each(|disk| world::inject(disk, *fault));
                Ok(())
            }
            Step::Mend => {
                self.mend();
                Ok(())
            }
            Step::Sync => {
                // A background sync acknowledges nothing, so its failure shows in what follows.
                if let Some(sync) = &self.sync {
                    let _ = sync.sync_through(sync.last_seq());
                    self.classes.note("background sync");
                }
                Ok(())
            }
            Step::GiveBack(slots) => {
                let ftl = self.ftl.as_mut().expect("the device serves");
                let given = W::give_back(ftl.chip_mut().store_mut(), *slots as usize);
                self.classes.note_times("room given back", given as u64);
                Ok(())
            }
        }
    }

    fn ftl(&mut self) -> &mut dyn Ftl<W::Store> {
        self.ftl.as_deref_mut().expect("the device serves")
    }

    fn chip(&mut self) -> &mut Chip<W::Store> {
        self.ftl().chip_mut()
    }

    /// What is wrong with the parts, and a cut.
    fn environment(&self, cut: Option<Cut>) -> FaultPlan {
        let Parts {
            chances,
            wear_out,
            bit_errors,
            in_flight,
        } = &self.plan.parts;
        let mut plan = FaultPlan {
            cut,
            wear_out: f64::from(*wear_out),
            bit_errors: f64::from(*bit_errors),
            die: self.dead_die.map(|die| DieFailure { die, at_op: 0 }),
            in_flight: *in_flight,
            seed: self.plan.seed,
            ..FaultPlan::default()
        };
        plan.chances = chances.iter().copied().collect();
        plan
    }

    /// When the next request may start: as soon as one of those in flight is done.
    fn start(&mut self) -> Nanos {
        let depth = [1, 1, 4, 32][self.plan.seed as usize % 4];
        if self.done.len() < depth {
            0
        } else {
            self.done[self.done.len() - depth]
        }
    }

    fn finished(&mut self, at: Nanos) {
        self.latest = self.latest.max(at);
        self.done.push_back(at);
        if self.done.len() > 32 {
            self.done.pop_front();
        }
    }

    fn request(&mut self, op: &HostOp) -> Verdict {
        let written: Vec<(u32, u64)> = values(op, self.requests).collect();
        written
            .iter()
            .for_each(|(lpn, value)| self.oracle.submit(*lpn, *value));
        let excused = self.host_fails();
        let outcome = self.perform(op, &written);
        self.requests += 1;
        match outcome {
            Ok(()) => {
                written
                    .iter()
                    .for_each(|(lpn, value)| self.oracle.acknowledge(*lpn, *value));
                if is_barrier(op) {
                    self.oracle.flushed();
                }
                Ok(())
            }
            Err(Trouble::Wrong(what)) => Err(what),
            Err(Trouble::Refused(FtlError::PowerLost)) => self.power_lost_in_request(),
            Err(Trouble::Refused(error)) => {
                written
                    .iter()
                    .for_each(|(lpn, value)| self.oracle.doubt(*lpn, *value));
                self.refused(error)
            }
            Err(Trouble::Unsynced(why)) => {
                // The request itself was done.
                written
                    .iter()
                    .for_each(|(lpn, value)| self.oracle.acknowledge(*lpn, *value));
                self.classes.note("FLUSH failed");
                if excused {
                    return Ok(());
                }
                Err(format!("FLUSH failed on a disk without faults: {why}"))
            }
        }
    }

    fn perform(&mut self, op: &HostOp, written: &[(u32, u64)]) -> Result<(), Trouble> {
        let start = self.start();
        let done = match *op {
            HostOp::Write { lpn, .. } | HostOp::WriteZeroData { lpn, .. } => {
                let bytes = self.bytes(written);
                self.ftl().write(start, Lpn::new(lpn), &bytes)?
            }
            HostOp::WriteZeroes { lpn, count, .. } | HostOp::Trim { lpn, count } => {
                self.ftl().trim(start, Lpn::new(lpn), count)?
            }
            HostOp::Read { lpn, count } => return self.compare(lpn, count),
            HostOp::Idle(budget) => {
                let now = self.latest;
                self.ftl().idle(now, budget)?;
                self.latest = self.latest.max(self.chip().busy_until());
                return Ok(());
            }
            HostOp::Flush => start,
        };
        self.finished(done);
        if is_barrier(op) {
            let now = self.latest;
            let done = self.ftl().flush(now)?;
            self.finished(done);
            // The host goes on when the FLUSH is done, and so do all later requests.
            self.done.clear();
            self.done.extend([done; 32]);
            if let Some(sync) = &self.sync {
                let synced = sync.sync_through(sync.last_seq());
                if synced.is_ok() && sync.synced_seq() < sync.last_seq() {
                    return Err(Trouble::Wrong(
                        "a FLUSH was acknowledged that reached no disk".into(),
                    ));
                }
                synced.map_err(|error| Trouble::Unsynced(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn bytes(&self, written: &[(u32, u64)]) -> Vec<u8> {
        let size = self.rig.profile.geometry.page_bytes as usize;
        let mut bytes = vec![0; size * written.len()];
        for (page, (lpn, value)) in bytes.chunks_exact_mut(size).zip(written) {
            payload::fill(page, *lpn, *value, self.oracle.seed());
        }
        bytes
    }

    /// Whether the host's disk fails, or a sync of the image did.
    fn host_fails(&self) -> bool {
        self.disk_fails
            || self
                .sync
                .as_ref()
                .is_some_and(|sync| sync.failure().is_some())
    }

    /// Judges a refusal.
    fn refused(&mut self, error: FtlError) -> Verdict {
        let sync_failed = self
            .sync
            .as_ref()
            .is_some_and(|sync| sync.failure().is_some());
        match &error {
            FtlError::HostFull if self.disk_fails => self.classes.note("ENOSPC"),
            FtlError::Host(_) if self.disk_fails || sync_failed => self.classes.note("EIO"),
            FtlError::ReadOnly(_) if sync_failed => {}
            FtlError::MediaLost(_) if self.oracle.cost() > Cost::Nothing => {
                self.classes.note("page unreadable")
            }
            FtlError::ReadOnly(_) | FtlError::Corrupt(_) if self.may_give_up() => {
                return self.end_with("end of life");
            }
            error if is_lost_map_page(error) && self.oracle.cost() >= Cost::Pages => {
                // The next start rebuilds it.
                self.classes.note("mapping page lost in use");
                self.armed = None;
                self.take_down();
                return self.mount_and_serve();
            }
            _ => {
                let (bad, spare) = (self.bad_blocks(), spare_blocks(self.rig).len());
                return Err(format!(
                    "refused: {error} (bad blocks: {bad}, allowed: {spare})"
                ));
            }
        }
        Ok(())
    }

    /// Whether a device may stop taking writes: more blocks are bad than its data sheet allows, or
    /// its parts lie.
    fn may_give_up(&mut self) -> bool {
        let spare = spare_blocks(self.rig).len();
        self.oracle.cost() == Cost::Service || self.bad_blocks() > spare
    }

    /// Whether a read may end with this error.
    fn may_be_unreadable(&self, error: &FtlError) -> bool {
        match error {
            FtlError::MediaLost(_) => self.oracle.cost() >= Cost::Pages,
            error if is_lost_map_page(error) => self.oracle.cost() >= Cost::Pages,
            FtlError::Corrupt(_) => self.oracle.cost() == Cost::Service,
            _ => false,
        }
    }

    fn bad_blocks(&mut self) -> usize {
        let chip = self.ftl().chip();
        chip.geometry()
            .all_blocks()
            .filter(|block| chip.bad(*block).is_some())
            .count()
    }

    /// The device does not go on: what it holds is read once more.
    fn end_with(&mut self, class: &'static str) -> Verdict {
        self.classes.note(class);
        self.gave_up = true;
        self.compare_all()?;
        self.tally();
        Ok(())
    }

    fn power_lost_in_request(&mut self) -> Verdict {
        let Some(restart) = self.armed.take() else {
            return Err("power was lost, and no cut was armed".into());
        };
        self.classes.note("power cut");
        self.note_in_flight();
        self.power_lost = true;
        self.take_down();
        self.restart(restart)
    }

    /// What the cut hit besides its operation.
    fn note_in_flight(&mut self) {
        let CutHits {
            program,
            erase,
            programs,
            erases,
        } = self.chip().cut_hits();
        let (all_programs, all_erases) = (
            programs + program.is_some() as u32,
            erases + erase.is_some() as u32,
        );
        // Several erases never are: each waits until the programs before it have ended, and
        // requests end with a program.
        let classes = [
            ("operations in flight on other dies", programs + erases > 0),
            ("several programs in flight", all_programs > 1),
            (
                "programs and erases in flight",
                all_programs.min(all_erases) > 0,
            ),
        ];
        let outcomes = [
            program.map(|(own, _)| program_class(own)),
            erase.map(erase_class),
        ];
        outcomes
            .into_iter()
            .flatten()
            .for_each(|class| self.classes.note(class));
        program
            .and_then(|(_, partner)| partner_class(partner))
            .into_iter()
            .for_each(|class| self.classes.note(class));
        classes
            .into_iter()
            .filter(|(_, happened)| *happened)
            .for_each(|(class, _)| self.classes.note(class));
    }

    /// Drops all that is in RAM.
    fn take_down(&mut self) {
        self.tally();
        self.scan();
        self.drop_sync();
        let Some(ftl) = self.ftl.take() else { return };
        if self.world.disk().is_some() {
            // A dead process writes nothing more.
            drop(ftl);
        } else {
            self.world.leave(ftl.into_chip().into_store());
        }
    }

    /// After a failed sync the next open trusts only what was synced before.
    fn drop_sync(&mut self) {
        if self
            .sync
            .take()
            .is_some_and(|sync| sync.failure().is_some())
        {
            self.classes.note("failed sync");
            self.power_lost = true;
        }
    }

    fn down(&mut self, how: Down, restart: &'p Restart) -> Verdict {
        self.armed = None;
        match how {
            Down::Stop => return self.stop(restart),
            Down::Kill => {
                let dirty = self.world.disk().is_some_and(|disk| disk.unsynced() > 0);
                self.classes.note(if dirty {
                    "kill on a dirty cache"
                } else {
                    "kill"
                });
            }
            Down::PowerOff => {
                self.classes.note("power off between operations");
                self.power_lost = true;
            }
            Down::Crash(how) => {
                self.take_down();
                self.crash(how, "host crash");
                return self.restart(restart);
            }
        }
        self.take_down();
        self.restart(restart)
    }

    fn stop(&mut self, restart: &'p Restart) -> Verdict {
        let now = self.latest;
        match self.ftl().shutdown(now) {
            Ok(_) => {}
            Err(FtlError::PowerLost) => {
                self.power_lost = true;
                self.take_down();
                return self.restart(restart);
            }
            Err(error) => {
                self.refused(error)?;
                if self.gave_up {
                    return Ok(());
                }
                self.take_down();
                return self.restart(restart);
            }
        }
        // A write that used up the last good blocks may have succeeded, and none came after it.
        let read_only = self.ftl().stats().read_only;
        if let Some(reason) = read_only
            && !self.host_fails()
            && !self.may_give_up()
        {
            return Err(format!("read-only at a stop: {reason}"));
        }
        self.tally();
        self.scan();
        let store = self.ftl.take().expect("it served").into_chip().into_store();
        let closed = self.world.close(store);
        self.drop_sync();
        if let Err(why) = closed
            && !self.disk_fails
            && !self.power_lost
        {
            return Err(format!("close: {why}"));
        }
        self.classes.note("clean stop");
        self.stopped = self.oracle.cost() == Cost::Nothing
            && read_only.is_none()
            && !self.disk_fails
            && !self.power_lost
            && restart.crash.is_none()
            && restart.inside.is_empty();
        self.restart(restart)
    }

    /// The host crashes; it counts if something had not reached the disk.
    fn crash(&mut self, how: nand_model::store::Crash, class: &'static str) {
        let unsynced = self.world.disk().map_or(0, |disk| disk.unsynced());
        self.classes.note_times(class, u64::from(unsynced > 0));
        self.world
            .disk()
            .into_iter()
            .for_each(|disk| world::crash(disk, how));
        // A new disk: the host replaced what failed.
        self.disk_fails = false;
        self.power_lost = true;
    }

    fn mend(&mut self) {
        self.disk_fails = false;
        self.world.disk().into_iter().for_each(|disk| disk.mend());
    }

    /// Mounts until the device serves.
    fn restart(&mut self, restart: &'p Restart) -> Verdict {
        if let Some(how) = restart.crash {
            // A clean stop leaves nothing that a crash could take.
            self.crash(
                how,
                if self.power_lost {
                    "power cut, then host crash"
                } else {
                    "kill, then host crash"
                },
            );
        }
        for inside in &restart.inside {
            match self.strike(*inside) {
                Ok(()) => {}
                Err(Failed::Refused) => return Ok(()),
                Err(failed) => return Err(failed.into()),
            }
        }
        self.mount_and_serve()
    }

    fn mount_and_serve(&mut self) -> Verdict {
        match self.mount(None) {
            Ok(()) => self.serve(),
            Err(Failed::Refused) => Ok(()),
            Err(failed) => Err(failed.into()),
        }
    }

    /// A mount that something strikes; the device is down again afterwards.
    fn strike(&mut self, inside: Inside) -> Result<(), Failed> {
        match inside {
            Inside::Cut(cut, how) => {
                if self.cut_inside_mount(cut)? {
                    self.classes.note("power cut inside a mount");
                    self.power_lost = true;
                }
                if let Some(how) = how {
                    self.crash(how, "power cut, then host crash");
                }
            }
            Inside::Crash(at, how) => {
                self.world
                    .disk()
                    .into_iter()
                    .for_each(|disk| disk.freeze_at(at));
                self.mount(None)?;
                self.take_down();
                let amid = self.thaw();
                self.crash(
                    how,
                    if amid {
                        "host crash amid a mount"
                    } else {
                        "host crash after a mount"
                    },
                );
            }
            Inside::Kill => {
                self.mount(None)?;
                self.classes.note("kill after a mount");
                self.take_down();
            }
        }
        Ok(())
    }

    /// Whether the mount came as far as the cut.
    fn cut_inside_mount(&mut self, cut: Cut) -> Result<bool, Failed> {
        let environment = self.environment(None);
        if let Some(outcome) = self.world.cut_inside_mount(self.rig, &environment, cut) {
            return outcome.map_err(|error| self.mount_failed(error));
        }
        let outcome = self.mount(Some(cut));
        self.take_down();
        match outcome {
            Ok(()) => Ok(false),
            Err(Failed::Power) => Ok(true),
            Err(failed) => Err(failed),
        }
    }

    /// Takes the disk as it was when the host crashed. False if the mount did not come so far.
    fn thaw(&mut self) -> bool {
        let Some(disk) = self.world.disk() else {
            return false;
        };
        let Some(frozen) = disk.take_frozen() else {
            return false;
        };
        *disk = frozen;
        true
    }

    /// Opens and mounts, once more after a disk that failed was mended.
    fn mount(&mut self, cut: Option<Cut>) -> Result<(), Failed> {
        let outcome = self.try_mount(cut);
        let Err(Failed::Host(why)) = outcome else {
            return outcome;
        };
        if !self.disk_fails {
            return Err(Failed::Violation(format!(
                "mount on a disk without faults: {why}"
            )));
        }
        self.classes.note("disk failed in a mount");
        // A sync may have failed: then the next open trusts only what was synced before.
        self.power_lost = true;
        self.mend();
        self.take_down();
        match self.try_mount(cut) {
            Err(Failed::Host(why)) => {
                Err(Failed::Violation(format!("mount on a mended disk: {why}")))
            }
            other => other,
        }
    }

    fn try_mount(&mut self, cut: Option<Cut>) -> Result<(), Failed> {
        let store = self.world.open().map_err(Failed::Host)?;
        self.sync = W::sync_handle(&store);
        let mut chip = self.rig.open(store);
        // The device's clock goes on: emulated instants count from the opening.
        self.done.clear();
        self.latest = 0;
        chip.set_faults(self.environment(cut));
        match self.rig.mount(chip) {
            Ok(ftl) => {
                self.ftl = Some(ftl);
                let stats = self.ftl().stats();
                let writes_checkpoints = !self
                    .plan
                    .device
                    .params
                    .contains(&("ckpt.interval".into(), "0".into()));
                if std::mem::take(&mut self.stopped) && !stats.mount.clean && writes_checkpoints {
                    return Err(Failed::Violation(
                        "an orderly stop was not followed by a clean mount".into(),
                    ));
                }
                self.classes.note(if stats.mount.clean {
                    "clean mount"
                } else {
                    "mount by scan"
                });
                if let Err(why) = self.sync_image() {
                    self.power_lost = true;
                    return Err(Failed::Host(why));
                }
                Ok(())
            }
            Err(FtlError::PowerLost) if cut.is_some() => Err(Failed::Power),
            Err(error) => Err(self.mount_failed(error)),
        }
    }

    fn mount_failed(&mut self, error: FtlError) -> Failed {
        match error {
            FtlError::HostFull | FtlError::Host(_) => Failed::Host(error.to_string()),
            FtlError::Corrupt(_) | FtlError::ReadOnly(_) | FtlError::MediaLost(_)
                if self.oracle.cost() == Cost::Service =>
            {
                self.classes.note("mount refused");
                self.gave_up = true;
                Failed::Refused
            }
            error => Failed::Violation(format!("mount: {error}")),
        }
    }

    fn sync_image(&mut self) -> Result<(), String> {
        let Some(sync) = &self.sync else {
            return Ok(());
        };
        sync.sync_through(sync.last_seq())
            .map_err(|error| error.to_string())
    }

    /// The mount is complete: everything is read, and stays.
    fn serve(&mut self) -> Verdict {
        self.note_mount();
        // The mount ended with a sync: so many erases stay. Those after it, as of reads that evict
        // mapping pages, may be undone.
        self.no_count_went_back()?;
        self.remember_wear();
        self.check()
            .map_err(|why| format!("after the mount: {why}"))?;
        let power_lost = self.power_lost;
        let settled = self.each_page(|oracle, lpn, seen| oracle.settle(lpn, seen, power_lost));
        settled.map_err(|why| format!("after the mount: {why}"))?;
        self.power_lost = false;
        Ok(())
    }

    fn check(&mut self) -> Verdict {
        let blocks = self.rig.profile.geometry.blocks;
        if self.oracle.cost() > Cost::Nothing {
            return blocks_add_up(&self.ftl().stats(), blocks);
        }
        let wrong = match self.ftl().check() {
            // It may have to write back a mapping page before it reads another.
            Err(FtlError::Host(_) | FtlError::HostFull) if self.host_fails() => return Ok(()),
            checked => checked.map_err(|error| format!("check failed: {error}"))?,
        };
        if !wrong.is_empty() {
            return Err(format!("check: {}", wrong.join("; ")));
        }
        blocks_add_up(&self.ftl().stats(), blocks)
    }

    fn no_count_went_back(&mut self) -> Verdict {
        let chip = self.ftl.as_ref().expect("the device serves").chip();
        let younger = self
            .worn
            .iter()
            .zip(chip.erase_counts())
            .position(|(before, now)| now < *before);
        younger.map_or(Ok(()), |block| {
            Err(format!("the erase count of block {block} went back"))
        })
    }

    fn remember_wear(&mut self) {
        self.worn = self
            .ftl
            .as_ref()
            .map_or_else(Vec::new, |ftl| ftl.chip().erase_counts().collect());
    }

    fn compare(&mut self, lpn: u32, count: u32) -> Result<(), Trouble> {
        let seen = match self.read(lpn, count) {
            Ok(seen) => seen,
            Err(error) if self.may_be_unreadable(&error) => {
                return self.compare_singly(lpn, count);
            }
            Err(error) => return Err(error.into()),
        };
        (lpn..)
            .zip(seen)
            .try_for_each(|(lpn, seen)| self.oracle.judge(lpn, seen))
            .map_err(Trouble::Wrong)
    }

    fn compare_singly(&mut self, lpn: u32, count: u32) -> Result<(), Trouble> {
        for lpn in lpn..lpn + count {
            match self.read(lpn, 1) {
                Ok(seen) => self.oracle.judge(lpn, seen[0]).map_err(Trouble::Wrong)?,
                Err(error) if self.may_be_unreadable(&error) => {
                    self.classes.note("page unreadable")
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn compare_all(&mut self) -> Verdict {
        self.each_page(|oracle, lpn, seen| oracle.judge(lpn, seen))
    }

    /// Reads every page, one by one where a part may have lost some.
    fn each_page(&mut self, mut judge: impl FnMut(&mut Oracle, u32, Seen) -> Verdict) -> Verdict {
        const AT_ONCE: u32 = 64;
        let pages = self.oracle.pages();
        let mut lpn = 0;
        while lpn < pages {
            let count = AT_ONCE.min(pages - lpn);
            match self.read(lpn, count) {
                Ok(seen) => (lpn..)
                    .zip(seen)
                    .try_for_each(|(lpn, seen)| judge(&mut self.oracle, lpn, seen))?,
                Err(FtlError::PowerLost) => return self.power_lost_in_request(),
                // A read that has to write back a mapping page first fails with it.
                Err(FtlError::Host(_) | FtlError::HostFull) if self.host_fails() => {
                    self.classes.note("read failed")
                }
                Err(error) if self.may_be_unreadable(&error) => {
                    for lpn in lpn..lpn + count {
                        match self.read(lpn, 1) {
                            Ok(seen) => judge(&mut self.oracle, lpn, seen[0])?,
                            Err(error) if self.may_be_unreadable(&error) => {
                                self.classes.note("page unreadable")
                            }
                            Err(FtlError::PowerLost) => return self.power_lost_in_request(),
                            Err(FtlError::Host(_) | FtlError::HostFull) if self.host_fails() => {
                                self.classes.note("read failed");
                            }
                            Err(error) => return Err(format!("read of page {lpn}: {error}")),
                        }
                    }
                }
                Err(error) => return Err(format!("read of pages from {lpn}: {error}")),
            }
            lpn += count;
        }
        Ok(())
    }

    fn read(&mut self, lpn: u32, count: u32) -> Result<Vec<Seen>, FtlError> {
        let size = self.rig.profile.geometry.page_bytes as usize;
        let mut bytes = vec![0xA5; size * count as usize];
        let start = self.start();
        self.ftl().read(start, Lpn::new(lpn), &mut bytes)?;
        Ok(bytes.chunks_exact(size).map(payload::identify).collect())
    }

    fn hammer(&mut self, lpn: u32, times: u32) -> Verdict {
        for _ in 0..times {
            match self.compare(lpn, 1) {
                Ok(()) => {}
                Err(Trouble::Wrong(what)) => return Err(what),
                Err(Trouble::Refused(FtlError::PowerLost)) => return self.power_lost_in_request(),
                Err(Trouble::Refused(error)) => return self.refused(error),
                Err(Trouble::Unsynced(why)) => return Err(why),
            }
        }
        self.note_decay("read disturb");
        Ok(())
    }

    /// What makes bits wrong happened, if bits of this plan's chip go wrong.
    fn note_decay(&mut self, class: &'static str) {
        self.classes
            .note_times(class, u64::from(self.plan.parts.bit_errors > 0));
    }

    /// Which pages may read as older values if this one's data is lost.
    fn what_comes_back(&mut self, page: Ppn) -> Older {
        let pages_per_block = self.plan.device.pages_per_block;
        let span = self.plan.device.span();
        if self.world.disk().is_some_and(|disk| disk.unsynced() > 0) {
            // A crash of the host may take what makes it differ from a torn page.
            return Older::Any;
        }
        let chip = self.chip();
        let geometry = *chip.geometry();
        let (block, offset) = (geometry.block_of(page), geometry.offset_of(page));
        let mut oob = vec![0; geometry.oob_bytes as usize];
        let record = read_record(chip, page, &mut oob);
        let newer = |other: &Oob| record.is_some_and(|own| own.pseq < other.pseq);
        let behind = chip.frontier(block) - 1 - offset;
        let later = (0..pages_per_block)
            .filter(|other| *other != offset)
            .filter_map(|other| read_record(chip, geometry.page(block, other), &mut oob))
            .filter(newer)
            .count();
        match record {
            // By its place or its number it cannot be told from a page that a cut tore, or from one
            // of the same word line.
            _ if behind.min(later as u32) <= span => Older::Any,
            Some(record) if record.tag.role.is_host_data() => Older::Never,
            Some(_) => Older::Trimmed,
            None => Older::Any,
        }
    }

    fn wrong_bits(&mut self, choice: u32, bits: u32, of_map: bool) -> Verdict {
        let mut rng = SplitMix::new(u64::from(choice));
        let chip = self.chip();
        let geometry = *chip.geometry();
        let mut oob = vec![0; geometry.oob_bytes as usize];
        for _ in 0..if of_map { 512 } else { 64 } {
            let block = Pbn::new(rng.below(u64::from(geometry.blocks)) as u32);
            let frontier = chip.frontier(block);
            if frontier == 0 {
                continue;
            }
            let page = geometry.page(block, rng.below(u64::from(frontier)) as u32);
            if !chip.is_programmed(page) {
                continue;
            }
            if of_map && !matches!(read_role(chip, page, &mut oob), Some((Role::Map, _))) {
                continue;
            }
            // What is wrong in a page adds up, until it is erased; the oracle reckons with each of
            // these steps alone.
            let sum = self.wrong.get(&page).copied().unwrap_or(0) + bits;
            if sum > correctable_bits(self.plan) && self.oracle.cost() == Cost::Nothing {
                return Ok(());
            }
            self.wrong.insert(page, sum);
            let older = self.what_comes_back(page);
            return match self.chip().flip_bits(page, bits) {
                Ok(true) => {
                    self.classes.note("wrong bits");
                    Ok(())
                }
                Ok(false) => {
                    self.classes.note("wrong bits beyond the ECC");
                    self.oracle.may_read_as_older(older);
                    Ok(())
                }
                // The image's disk fails.
                Err(_) if self.host_fails() => Ok(()),
                Err(error) => Err(format!("wrong bits: {error}")),
            };
        }
        Ok(())
    }

    fn note_environment(&mut self) {
        let device = &self.plan.device;
        let (channels, ways) = device.dies;
        let classes = &mut *self.classes;
        classes.note(if device.on_disk { "image" } else { "memory" });
        classes.note(if device.cells() == Cells::Slc {
            "SLC"
        } else {
            "MLC"
        });
        let features = [
            ("several dies", channels * ways > 1),
            ("every bad block", device.worn),
            ("other pairing", device.has_other_pairing()),
            ("large device", device.is_large()),
        ];
        features
            .into_iter()
            .filter(|(_, has)| *has)
            .for_each(|(class, _)| classes.note(class));
    }

    fn note_mount(&mut self) {
        let counters = self.ftl().chip().counters();
        let (programs, program_fails, erase_fails) = (
            counters.total().programs,
            counters.program_fails,
            counters.erase_fails,
        );
        self.classes
            .note_times("mount that programmed", u64::from(programs > 0));
        self.classes
            .note_times("program failure in a mount", program_fails);
        self.classes
            .note_times("erase failure in a mount", erase_fails);
    }

    /// Counts what the chip and the scheme counted since they were opened.
    fn tally(&mut self) {
        let Some(ftl) = &self.ftl else { return };
        let (counters, stats) = (ftl.chip().counters(), ftl.stats());
        let counts = [
            ("program failure", counters.program_fails),
            ("erase failure", counters.erase_fails),
            ("bits corrected", counters.corrected_bits),
            ("read retry", counters.read_retries),
            ("uncorrectable read", counters.uncorrectable_reads),
            ("lost program", counters.injected(Fault::LostProgram)),
            (
                "misdirected program",
                counters.injected(Fault::MisdirectedProgram),
            ),
            ("lost erase", counters.injected(Fault::LostErase)),
            ("stale read", counters.injected(Fault::StaleRead)),
            ("garbage collection", stats.gc_runs),
            ("checkpoint", stats.checkpoints),
            ("refresh", stats.refreshes),
            ("wear move", stats.wear_moves),
        ];
        counts
            .into_iter()
            .for_each(|(class, count)| self.classes.note_times(class, count));
    }

    /// Looks at what a large device keeps on flash when it goes down: chunks of the trim bitmap,
    /// mapping pages.
    fn scan(&mut self) {
        if !self.plan.device.is_large() {
            return;
        }
        let Some(ftl) = &mut self.ftl else { return };
        let chip = ftl.chip_mut();
        let geometry = *chip.geometry();
        let (mut mapping, mut chunks) = (BTreeSet::new(), BTreeSet::new());
        let mut oob = vec![0; geometry.oob_bytes as usize];
        let mut data = vec![0; geometry.page_bytes as usize];
        for block in geometry.all_blocks() {
            let frontier = chip.frontier(block);
            for offset in 0..frontier {
                let page = geometry.page(block, offset);
                match read_role(chip, page, &mut oob) {
                    Some((Role::Map, lpn)) => drop(mapping.insert(lpn)),
                    Some((Role::Trim, lpn)) if lpn > 0 => {
                        let read = chip.read(0, page, &mut data, &mut [], Cause::Host);
                        if read.is_ok() && data.starts_with(b"TRBM") {
                            chunks.insert(lpn);
                        }
                    }
                    _ => {}
                }
            }
        }
        self.classes
            .note_times("later trim bitmap chunk at mount", chunks.len() as u64);
        self.classes.note_times(
            "more than 100 mapping pages",
            u64::from(mapping.len() > 100),
        );
    }
}

/// A page of the map that rotted is not rebuilt while the device is in use: docs/DURABILITY.md.
fn is_lost_map_page(error: &FtlError) -> bool {
    matches!(error, FtlError::Corrupt(what) if what.contains("of the map cannot be read"))
}

fn read_role<S: Store>(chip: &mut Chip<S>, page: Ppn, oob: &mut [u8]) -> Option<(Role, u32)> {
    read_record(chip, page, oob).map(|record| (record.tag.role, record.tag.lpn))
}

fn read_record<S: Store>(chip: &mut Chip<S>, page: Ppn, oob: &mut [u8]) -> Option<Oob> {
    chip.read_oob(0, page, oob, Cause::Host).ok()?;
    Oob::decode(oob)
}

/// Why a mount did not serve.
enum Failed {
    /// The cut struck.
    Power,
    /// The host's disk failed.
    Host(String),
    /// The device may refuse, and did.
    Refused,
    /// It must not have failed.
    Violation(String),
}

impl From<Failed> for String {
    fn from(failed: Failed) -> String {
        match failed {
            Failed::Power => "power was lost, and no cut was armed".into(),
            Failed::Refused => "the mount was refused".into(),
            Failed::Host(why) | Failed::Violation(why) => why,
        }
    }
}

/// Why a request did not succeed.
enum Trouble {
    Refused(FtlError),
    Unsynced(String),
    Wrong(String),
}

impl From<FtlError> for Trouble {
    fn from(error: FtlError) -> Self {
        Trouble::Refused(error)
    }
}

/// The blocks that the data sheet allows to be bad, chosen by the seed.
fn spare_blocks(rig: &Rig) -> Vec<Pbn> {
    let mut rng = SplitMix::new(rig.seed);
    let mut blocks: Vec<Pbn> = rig.profile.geometry.all_blocks().collect();
    let spare = rig.spare_blocks() as usize;
    for i in 0..spare {
        let other = i + rng.below((blocks.len() - i) as u64) as usize;
        blocks.swap(i, other);
    }
    blocks.truncate(spare);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chance that of bits of which `mean` are wrong on average more than `limit` are.
    fn poisson_tail(mean: f64, limit: u32) -> f64 {
        let first = (1..=limit + 1).fold((-mean).exp(), |chance, k| chance * mean / f64::from(k));
        let chances = (limit + 2..limit + 100).scan(first, |chance, k| {
            *chance *= mean / f64::from(k);
            Some(*chance)
        });
        first + chances.sum::<f64>()
    }

    /// For 100,000 pages programmed in a run, on blocks as worn, old and often read as they become
    /// in one.
    #[test]
    fn mild_bit_errors_cost_no_page() {
        for cells in Cells::ALL {
            let profile = cells.profile();
            let (ecc, bits) = (profile.ecc, f64::from(8 * profile.geometry.page_bytes));
            let rber =
                profile.decay.rber(50, 90.0, 10_000) * f64::from(MILD_BIT_ERRORS[cells as usize]);
            // A read retry leaves three quarters of the wrong bits.
            let wrong = rber * bits * 0.75f64.powi(ecc.retries as i32);
            let chance = 1e5 * poisson_tail(wrong, ecc.bits);
            assert!(chance < 1e-6, "{}: {chance:e}", cells.name());
        }
    }
}
