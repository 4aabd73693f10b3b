//! Runs a plan: requests with the oracle, faults as planned, restarts until one succeeds.
//!
//! Invariants: the oracle gets a request before the scheme does; a restarted device is checked
//! against the losses that were possible since it last served (`power_lost`); every page is read
//! after every restart.

mod batch;
mod cost;
mod decay;
mod exposure;
mod notes;
mod requests;
mod restart;

use super::oracle::Oracle;
use super::plan::{DiskFault, Parts, Plan, Restart, Step};
use super::situations::KINDS;
use super::world;
use super::world::{Memory, OnDisk, World};
use crate::classes::Classes;
use crate::rig::Rig;
use batch::Batch;
use cost::cost_of;
use exposure::Exposure;
use ftl_core::{Ftl, Start};
use nand_model::{
    BlockFault, Chip, Cut, DieFailure, Fault, FaultPlan, Nanos, Pbn, Ppn, SplitMix, Store,
    SyncHandle,
};
use std::collections::{HashMap, VecDeque};

/// Runs a plan and counts its events.
///
/// # Errors
/// The lost or wrong data, and the step.
pub fn run(plan: &Plan, classes: &mut Classes) -> Result<(), String> {
    let rig = plan.rig()?;
    classes.note(plan.scheme.name);
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

/// An error of a request, a mount or a check.
type Verdict = Result<(), String>;

struct Runner<'p, W: World> {
    plan: &'p Plan,
    rig: &'p Rig,
    world: W,
    ftl: Option<Box<dyn Ftl>>,
    sync: Option<SyncHandle>,
    oracle: Oracle,
    classes: &'p mut Classes,
    /// Requests so far; versions are derived from it.
    requests: u64,
    /// Emulated instants at which the last requests were done, as many as the host keeps in flight.
    done: VecDeque<Nanos>,
    batch: Option<Batch>,
    /// The latest of all.
    latest: Nanos,
    /// Restart after the cut that is armed.
    armed: Option<&'p Restart>,
    dead_die: Option<u32>,
    disk_fails: bool,
    /// Whether data may have been lost since the device last served.
    power_lost: bool,
    /// Erase counts when it began to serve; they are on the disk.
    worn: Vec<u32>,
    gave_up: bool,
    /// Bits that were made wrong, by page.
    wrong: HashMap<Ppn, u32>,
    /// Reads of the blocks, and the scrub.
    exposure: Exposure,
    /// Logical page of the last interrupted write, and the cuts that followed each other at it.
    cut_page: Option<(u32, u32)>,
    /// Merges and erases up to the last FLUSH or mount.
    flushed_at: (u64, u64),
    /// The store's last operation when the host refused writes.
    refused_at: u64,
    /// Blocks of the current mount in which a program fails, and the programs before it.
    failing: Option<(u32, u32)>,
    /// Bad blocks before a mount with such blocks that power failed in.
    bad_before: Option<usize>,
    /// Bad blocks when the chip was opened last.
    bad_at_open: usize,
    /// Failed programs before the current step.
    failed_before: u64,
    /// What [`Runner::blocks_used_up`] found so far.
    used_up: bool,
    /// Whether the disk refuses erases.
    erases_fail: bool,
    /// Whether the device was shut down cleanly since it last served, without a later fault.
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
            batch: None,
            latest: 0,
            armed: None,
            dead_die: None,
            disk_fails: false,
            power_lost: false,
            worn: Vec::new(),
            gave_up: false,
            wrong: HashMap::new(),
            exposure: Exposure::default(),
            cut_page: None,
            flushed_at: (0, 0),
            refused_at: 0,
            failing: None,
            bad_before: None,
            bad_at_open: 0,
            failed_before: 0,
            used_up: false,
            erases_fail: false,
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
            self.end_batch()
                .and_then(|()| self.compare_all())
                .and_then(|()| self.check())
                .map_err(|why| format!("at the end: {why}"))?;
            self.tally();
        }
        Ok(())
    }

    fn step(&mut self, step: &'p Step) -> Verdict {
        if !batch::may_contain(step) {
            self.end_batch()?;
        }
        self.blocks_used_up();
        self.failed_before = self.failed_programs();
        match step {
            Step::Do(op) => self.request(op),
            Step::Batch(requests) => self.begin_batch(*requests),
            Step::Cut(cut, restart) => {
                self.chip().update_faults(|plan| plan.cut = Some(*cut));
                self.armed = Some(restart);
                Ok(())
            }
            Step::Down(how, restart) => self.down(*how, restart),
            Step::Age(hours) => {
                self.chip().age(*hours);
                self.note_decay("retention");
                Ok(())
            }
            Step::Hammer(lpn, times, count) => self.hammer(*lpn, *times, *count),
            Step::WrongBits(page, bits, of_map) => self.wrong_bits(*page, *bits, *of_map),
            Step::LostOob(page, of_map) => self.lost_oob(*page, *of_map),
            // A failed die stays failed, and the chip survives the loss of only one.
            Step::DieFails(_) if self.dead_die.is_some() => Ok(()),
            Step::DieFails(die) => {
                self.dead_die = Some(*die);
                self.chip().update_faults(|plan| {
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
                    .update_faults(|plan| plan.block_faults.push(BlockFault::next(block, *fault)));
                Ok(())
            }
            Step::Disk(fault) => {
                self.disk_fails = true;
                self.exposure.notes_refused = true;
                self.erases_fail = matches!(fault, DiskFault::Erases(..));
                self.world
                    .disk()
                    .into_iter()
                    .for_each(|disk| world::inject(disk, *fault));
                Ok(())
            }
            Step::Mend => {
                self.mend();
                self.check()
            }
            Step::Sync => {
                // A background sync acknowledges nothing, so its failure affects only later
                // operations.
                if let Some(sync) = &self.sync {
                    let _ = sync.sync_through(sync.last_seq());
                    self.classes.note("background sync");
                }
                Ok(())
            }
            Step::GiveBack(slots) => {
                let ftl = self.ftl.as_mut().expect("the device serves");
                let store = ftl.chip_mut().store_mut();
                let given = store.trim_free_slots(*slots as usize).unwrap_or(0);
                self.classes.note_times("room given back", given as u64);
                Ok(())
            }
        }
    }

    fn ftl(&mut self) -> &mut dyn Ftl {
        self.ftl.as_deref_mut().expect("the device serves")
    }

    fn chip(&mut self) -> &mut Chip {
        self.ftl().chip_mut()
    }

    /// Merges and erases so far.
    fn merges_and_erases(&self) -> (u64, u64) {
        let ftl = self.ftl.as_ref().expect("the device serves");
        let stats = ftl.stats();
        let merges = stats.switch_merges + stats.partial_merges + stats.full_merges;
        (merges, ftl.chip().counters().total().erases)
    }

    /// The faults of the parts, and a cut.
    fn environment(&self, cut: Option<Cut>) -> FaultPlan {
        let Parts {
            rates,
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
        plan.rates = rates.iter().copied().collect();
        plan
    }
}

/// Gives the chip of a mount its faults: in `failing.0` blocks a program fails after `failing.1`
/// others.
fn arm(chip: &mut Chip, mut plan: FaultPlan, failing: Option<(u32, u32)>) {
    if let Some((blocks, after)) = failing {
        let fault = Fault::ProgramFail;
        let of = |block| BlockFault {
            block,
            fault,
            after,
        };
        plan.block_faults = next_blocks(chip, blocks).into_iter().map(of).collect();
    }
    chip.set_faults(plan);
}

/// The blocks that a mount opens next, if its streams prefer no die: blank ones, the least worn
/// first.
fn next_blocks(chip: &Chip, count: u32) -> Vec<Pbn> {
    let is_blank = |block: &Pbn| chip.bad(*block).is_none() && chip.frontier(*block) == 0;
    let mut blank: Vec<Pbn> = chip.geometry().all_blocks().filter(is_blank).collect();
    blank.sort_by_key(|block| (chip.erase_count(*block), *block));
    blank.truncate(count as usize);
    blank
}

/// Number of bad blocks.
fn bad_blocks(chip: &Chip) -> usize {
    let mut blocks = chip.geometry().all_blocks();
    blocks
        .by_ref()
        .filter(|block| chip.bad(*block).is_some())
        .count()
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
