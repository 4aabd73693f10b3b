//! Power cuts at every flash operation of a run, without repeating the operations before it.
//!
//! A cut clears all RAM, so only the flash matters. A run is recorded once: its requests and the
//! journal of its store. Replaying the journal rebuilds, step by step, the flash before each
//! operation; there a clone of it is cut and checked. A mount is recorded and cut in the same way,
//! so cuts nest.

use crate::coverage::Coverage;
use crate::host::{Host, is_barrier, values};
use crate::model::Model;
use crate::rig::{Rig, has_param, into_memory};
use crate::workload::{HostOp, Kind, Workload};
use nand_model::store::{Change, MemStore};
use nand_model::{Chip, Cut, FaultPlan, Pbn, Profile};

/// A run with a journal, so that it can be cut at every operation.
pub struct Recording {
    start: MemStore,
    model: Model,
    first_step: u64,
    changes: Vec<Change>,
    /// Each request and the number of changes when it returned.
    steps: Vec<(HostOp, usize)>,
    /// Content of the run.
    pub coverage: Coverage,
}

/// Maximum number of requests of a workload with missing content.
const MAX_STEPS: usize = 5_000;

/// Runs a workload on a new device until it has the content that [`Coverage`] requires.
pub fn record(rig: &Rig, kind: Kind) -> Recording {
    record_operations(rig, kind, 0)
}

/// Runs the workload until it has also done `operations` programs and erases.
pub fn record_operations(rig: &Rig, kind: Kind, operations: u64) -> Recording {
    let mut host = Host::format(rig);
    host.set_faults(FaultPlan {
        block_faults: rig.block_faults.clone(),
        ..FaultPlan::default()
    });
    let workload = Workload::new(kind, rig.config.logical_pages, rig.seed).take(MAX_STEPS);
    Recording::of(host, workload, |coverage| {
        coverage.operations >= operations && missing(rig, coverage).is_none()
    })
}

/// The required content that the scheme's run lacks.
pub fn missing(rig: &Rig, coverage: &Coverage) -> Option<String> {
    coverage.missing(
        coverage.converts > 0,
        has_param(rig.scheme, "ckpt.interval"),
    )
}

/// The instant before a program or erase.
pub struct Moment<'a> {
    /// Number of the program or erase in the run.
    pub index: usize,
    /// The program or erase.
    pub next: &'a Change,
    /// The flash before it.
    pub store: &'a MemStore,
    /// The allowed contents of the flash; the request in flight counts as submitted.
    pub model: &'a Model,
}

impl Recording {
    /// Number of erases of blocks in SLC mode.
    pub fn folds(&self, profile: &Profile) -> usize {
        let is_fold = |change: &&Change| matches!(change, Change::Erase { block, .. } if profile.is_slc(*block));
        self.changes.iter().filter(is_fold).count()
    }

    /// Runs requests to their end, or until there are enough; each must succeed.
    ///
    /// # Panics
    /// A request, the comparison after it or the scheme's own check fails.
    pub fn of(
        mut host: Host,
        requests: impl Iterator<Item = HostOp>,
        enough: impl Fn(&Coverage) -> bool,
    ) -> Recording {
        let start = host.memory().clone();
        let (model, first_step) = (host.model.clone(), host.step());
        host.memory().record();
        let geometry = *host.ftl.chip().geometry();
        let mut coverage = Coverage::default();
        let mut steps: Vec<(HostOp, usize)> = Vec::new();
        for op in requests {
            let before = steps.last().map_or(0, |(_, end)| *end);
            host.run(&op)
                .unwrap_or_else(|trouble| panic!("{op:?}: {}", String::from(trouble)));
            let changes = host.memory().recorded();
            coverage.note(&geometry, &op, &changes[before..]);
            let end = changes.len();
            coverage.note_stats(&host.ftl.stats());
            steps.push((op, end));
            if enough(&coverage) {
                break;
            }
        }
        host.compare_all()
            .unwrap_or_else(|trouble| panic!("uncut run: {}", String::from(trouble)));
        host.check()
            .unwrap_or_else(|why| panic!("uncut run: {why}"));
        let mut changes = into_memory(host.cut_power().0).take_record();
        // A read may have programmed, too.
        changes.truncate(steps.last().map_or(0, |(_, end)| *end));
        Recording {
            start,
            model,
            first_step,
            changes,
            steps,
            coverage,
        }
    }

    /// Programs and erases.
    pub fn operations(&self) -> usize {
        self.changes
            .iter()
            .filter(|change| change.is_operation())
            .count()
    }

    /// Returns this run on a flash that lost every OOB mark programmed later: marks are hints and
    /// may be missing (a host crash may drop them). `None` if the scheme makes none.
    pub fn without_marks(mut self) -> Option<Recording> {
        let is_mark = |change: &Change| matches!(change, Change::AndOob { .. });
        let mut kept_before = vec![0];
        for change in &self.changes {
            kept_before.push(kept_before.last().expect("not empty") + !is_mark(change) as usize);
        }
        self.steps
            .iter_mut()
            .for_each(|(_, end)| *end = kept_before[*end]);
        let all = self.changes.len();
        self.changes.retain(|change| !is_mark(change));
        (self.changes.len() < all).then_some(self)
    }

    /// Visits the instant before every program and erase.
    pub fn visit(&self, mut each: impl FnMut(&Moment)) {
        let mut store = self.start.clone();
        let mut model = self.model.clone();
        let mut steps = self.steps.iter().zip(self.first_step..).peekable();
        let mut submitted = None;
        let mut index = 0;
        for (at, change) in self.changes.iter().enumerate() {
            while let Some(((op, _), number)) = steps.next_if(|((_, end), _)| *end <= at) {
                submit(&mut model, op, number, &mut submitted);
                if is_barrier(op) {
                    model.flushed();
                }
            }
            let ((op, _), number) = steps.peek().expect("changes belong to requests");
            submit(&mut model, op, *number, &mut submitted);
            if change.is_operation() {
                each(&Moment {
                    index,
                    next: change,
                    store: &store,
                    model: &model,
                });
                index += 1;
            }
            store.replay(change).expect("memory does not fail");
        }
    }
}

/// Submits a request to the model, once.
fn submit(model: &mut Model, op: &HostOp, number: u64, submitted: &mut Option<u64>) {
    if submitted.is_none_or(|last| last < number) {
        values(op, number).for_each(|(lpn, value)| model.submit(lpn, value));
        *submitted = Some(number);
    }
}

/// Every different outcome of a cut at this operation, from the chip's menu.
pub fn outcomes(rig: &Rig, next: &Change, seed: u64) -> Vec<Cut> {
    Cut::menu_of_operation(&rig.profile, next, seed)
}

/// Cuts power in the next operation. Returns the flash after power-on.
///
/// # Panics
/// The change is neither a program nor an erase.
pub fn cut_during(rig: &Rig, store: &MemStore, next: &Change, cut: Cut) -> MemStore {
    let chip = Chip::open(rig.profile, store.clone()).expect("memory does not fail");
    chip.cut_during(next, cut)
}

/// Records the programs and erases of a mount of this flash, to be cut in turn. Empty if it has
/// none.
///
/// # Errors
/// The mount fails.
pub fn record_mount(rig: &Rig, store: &MemStore) -> Result<Vec<Change>, String> {
    let mut store = store.clone();
    store.record();
    let ftl = rig
        .mount(rig.open(store))
        .map_err(|error| format!("mount: {error}"))?;
    Ok(into_memory(ftl.into_chip()).take_record())
}

/// Visits the instant before every program and erase of a recorded mount: number, flash, operation.
pub fn visit_mount(
    store: &MemStore,
    changes: &[Change],
    mut each: impl FnMut(usize, &MemStore, &Change),
) {
    let mut store = store.clone();
    let mut index = 0;
    for change in changes {
        if change.is_operation() {
            each(index, &store, change);
            index += 1;
        }
        store.replay(change).expect("memory does not fail");
    }
}

/// Results of a survived cut.
#[derive(Clone, Copy, Debug)]
pub struct Survival {
    /// Erased blocks after the first mount.
    pub free_blocks: u32,
}

/// First version of requests after a cut.
const AFTER_CUT: u64 = 1 << 30;

/// Checks a flash after a cut: it mounts, has the contents that the model allows, accepts 32 writes
/// with flushes, loses power again, mounts again, and has the allowed contents again.
///
/// # Errors
/// The step that failed, and a page's content with the allowed ones.
pub fn survive(rig: &Rig, store: MemStore, model: Model, salt: u64) -> Result<Survival, String> {
    let chip = rig.open(store);
    let worn: Vec<u32> = rig
        .profile
        .geometry
        .all_blocks()
        .map(|block| chip.erase_count(block))
        .collect();
    let ftl = rig
        .mount(chip)
        .map_err(|error| format!("first mount: {error}"))?;
    let mut host = Host::over(rig, ftl, model);
    host.check().map_err(|why| format!("first mount: {why}"))?;
    host.settle_all()
        .map_err(|why| format!("first mount: {why}"))?;
    let free_blocks = host.ftl.stats().blocks.free;
    host.set_step(AFTER_CUT);
    write_on(&mut host, salt).map_err(|why| format!("writing on: {why}"))?;
    host.compare_all()
        .map_err(|trouble| format!("writing on: {}", String::from(trouble)))?;
    let mut host = host.remount().map_err(|why| format!("second {why}"))?;
    host.check().map_err(|why| format!("second mount: {why}"))?;
    host.settle_all()
        .map_err(|why| format!("second mount: {why}"))?;
    let chip = host.ftl.chip();
    let younger = |(block, worn): &(Pbn, &u32)| chip.erase_count(*block) < **worn;
    match rig.profile.geometry.all_blocks().zip(&worn).find(younger) {
        Some((block, _)) => Err(format!("the erase count of block {block} went back")),
        None => Ok(Survival { free_blocks }),
    }
}

fn write_on(host: &mut Host, salt: u64) -> Result<(), String> {
    let pages = host.model.pages() as u64;
    for i in 0..32 {
        let lpn = ((i * 37 + salt * 11) % pages) as u32;
        let op = match i {
            13 => HostOp::Trim {
                lpn,
                count: 3.min(host.model.pages() - lpn),
            },
            _ => HostOp::Write {
                lpn,
                count: 1,
                fua: i % 11 == 3,
            },
        };
        host.run(&op)?;
        if i % 5 == 0 {
            host.run(&HostOp::Flush)?;
        }
    }
    Ok(())
}
