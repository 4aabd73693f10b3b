//! Sweeps of power cuts: over whole workloads, inside mounts, in short rows of requests, one after
//! another, with checkpoints destroyed. The suites choose rigs and how many; each sweep hands its
//! cases to [`Verdicts`].

use crate::cuts::{self, Moment, Recording};
use crate::host::Host;
use crate::model::Model;
use crate::rig::{Cells, Rig};
use crate::verdicts::{Budget, Verdicts};
use crate::workload::{HostOp, Kind, Workload};
use ftl_core::format::{Oob, Role};
use ftl_core::schemes::Scheme;
use nand_model::store::{Change, MemStore};
use nand_model::{Bomb, Cause, Cut, EraseCut, Fault, FaultPlan, Health, Pbn, Ppn, SplitMix, Store};
use std::iter;
use std::ops::Range;

/// Pages of the devices here: a few blocks of map, enough for collections to have a choice.
pub const PAGES: u32 = 256;

/// A small device that writes checkpoints and levels wear all the time.
pub fn rig_of(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let params = budget.params(&[
        ("ckpt.interval", "250"),
        ("wear.gap", "2"),
        ("log.blocks", "3"),
    ]);
    Rig::with_params(scheme, cells, PAGES, params, budget.seed)
}

/// The outcomes that are tried at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcomes {
    /// Every one.
    All,
    /// Three; the next operation takes the next ones.
    Three,
}

impl Outcomes {
    /// All in the long form, else three.
    pub fn by_form(budget: &Budget) -> Self {
        if budget.is_long() {
            Outcomes::All
        } else {
            Outcomes::Three
        }
    }

    /// The outcomes of this operation, each with its number in the menu.
    pub fn of(self, rig: &Rig, next: &Change, index: usize) -> Vec<(usize, Cut)> {
        let menu: Vec<_> = cuts::outcomes(rig, next, index as u64 ^ rig.seed << 32)
            .into_iter()
            .enumerate()
            .collect();
        if self == Outcomes::All {
            return menu;
        }
        let spread = menu.len().div_ceil(3).max(1);
        (0..3)
            .map(|i| menu[(index + i * spread) % menu.len()])
            .collect()
    }
}

/// Cuts a recorded run at every `every`-th operation. `name` stands for it in a case's path.
pub fn cut_run(
    rig: &Rig,
    name: &str,
    recording: &Recording,
    every: usize,
    outcomes: Outcomes,
    verdicts: &mut Verdicts,
) {
    recording.visit(|moment| {
        if moment.index % every == 0 {
            cut_here(rig, name, moment, outcomes, verdicts);
        }
    });
}

fn cut_here(rig: &Rig, name: &str, moment: &Moment, outcomes: Outcomes, verdicts: &mut Verdicts) {
    let here = format!("{}/{name}/{}", rig.path(), moment.index);
    if !verdicts.draws(&here) {
        return;
    }
    for (number, cut) in outcomes.of(rig, moment.next, moment.index) {
        verdicts.case(&format!("{here}/{number}"), || {
            let store = cuts::strike(rig, moment.store, moment.next, cut);
            cuts::survive(rig, store, moment.model.clone(), moment.index as u64)
                .map(drop)
                .map_err(|why| format!("{}: {why}", describe(rig, moment.next, &cut)))
        });
    }
}

fn describe(rig: &Rig, next: &Change, cut: &Cut) -> String {
    match next {
        Change::Program { ppn, oob, .. } => {
            let (block, offset) = (
                rig.profile.geometry.block_of(*ppn),
                rig.profile.geometry.offset_of(*ppn),
            );
            let role = Oob::decode(oob).map(|oob| oob.tag);
            format!(
                "program of block {block} page {offset} ({role:?}) cut as {:?}, partner {:?}",
                cut.program, cut.partner
            )
        }
        Change::Erase { block, .. } => format!("erase of block {block} cut as {:?}", cut.erase),
        other => format!("{other:?}"),
    }
}

/// The usual rig with two programs and two erases that will fail, in blocks that `salt` chooses.
pub fn with_failing_blocks(rig: Rig, salt: u64) -> Rig {
    rig.variant(&format!("failing{salt}"), |rig| {
        let mut rng = SplitMix::new(rig.seed + salt);
        let mut any = || Pbn::new(rng.below(rig.profile.geometry.blocks as u64) as u32);
        let faults = [
            Fault::ProgramFail,
            Fault::ProgramFail,
            Fault::EraseFail,
            Fault::EraseFail,
        ];
        rig.bombs = faults.map(|fault| Bomb::next(any(), fault)).to_vec();
    })
}

/// A second cut inside the mount that follows the first one: at every operation but the first of
/// the mounts after every `every`-th operation of the run.
pub fn cut_mounts(
    rig: &Rig,
    name: &str,
    recording: &Recording,
    every: usize,
    outcomes: Outcomes,
    verdicts: &mut Verdicts,
) {
    recording.visit(|moment| {
        if moment.index % every == 0 && !verdicts.are_enough() {
            cut_mounts_after(rig, name, moment, outcomes, verdicts);
        }
    });
}

fn cut_mounts_after(
    rig: &Rig,
    name: &str,
    moment: &Moment,
    outcomes: Outcomes,
    verdicts: &mut Verdicts,
) {
    for (first, cut) in outcomes.of(rig, moment.next, moment.index) {
        let here = format!("{}/{name}/{}/{first}/mount", rig.path(), moment.index);
        if !verdicts.draws(&here) {
            continue;
        }
        let store = cuts::strike(rig, moment.store, moment.next, cut);
        let changes = match cuts::record_mount(rig, &store) {
            Ok(changes) => changes,
            Err(why) => return verdicts.case(&here, || Err(why)),
        };
        cuts::visit_mount(&store, &changes, |index, store, next| {
            if index == 0 {
                // Nothing was done yet: that is a cut of the run again.
                return;
            }
            for (second, cut) in outcomes.of(rig, next, index + moment.index) {
                verdicts.case(&format!("{here}/{index}/{second}"), || {
                    let store = cuts::strike(rig, store, next, cut);
                    cuts::survive(rig, store, moment.model.clone(), index as u64).map(drop)
                });
            }
        });
    }
}

/// A third cut inside the mount that follows a second one inside a mount: `per_mount` times each
/// after every `every`-th operation of the run, at random. Both mounts had programmed or erased
/// something.
pub fn cut_mounts_of_mounts(
    rig: &Rig,
    name: &str,
    recording: &Recording,
    every: usize,
    per_mount: u64,
    verdicts: &mut Verdicts,
) {
    recording.visit(|moment| {
        let here = format!("{}/{name}/{}/mount/mount", rig.path(), moment.index);
        if moment.index % every > 0 || !verdicts.draws(&here) {
            return;
        }
        let mut rng = SplitMix::new(rig.seed ^ moment.index as u64);
        let menu = cuts::outcomes(rig, moment.next, rng.next_u64());
        let first = cuts::strike(
            rig,
            moment.store,
            moment.next,
            menu[rng.below(menu.len() as u64) as usize],
        );
        let mut cut_twice = |number: u64| -> Result<Option<MemStore>, String> {
            let mut rng = SplitMix::new(rng.next_u64() ^ number);
            let Some((second, 1..)) = cut_mount(rig, &first, &mut rng)? else {
                return Ok(None);
            };
            let Some((third, 1..)) = cut_mount(rig, &second, &mut rng)? else {
                return Ok(None);
            };
            Ok(Some(third))
        };
        for number in 0..per_mount {
            match cut_twice(number) {
                Ok(None) => {}
                outcome => verdicts.case(&format!("{here}/{number}"), || {
                    let store = outcome?.expect("as matched");
                    cuts::survive(rig, store, moment.model.clone(), number).map(drop)
                }),
            }
        }
    });
}

/// Requests on two pages of a full device: small scopes find most mistakes.
const ALPHABET: [HostOp; 7] = [
    HostOp::Write {
        lpn: 0,
        count: 1,
        fua: false,
    },
    HostOp::Write {
        lpn: 1,
        count: 1,
        fua: false,
    },
    HostOp::Write {
        lpn: 0,
        count: 2,
        fua: false,
    },
    HostOp::Write {
        lpn: 1,
        count: 1,
        fua: true,
    },
    HostOp::Trim { lpn: 0, count: 2 },
    HostOp::WriteZeroes {
        lpn: 0,
        count: 1,
        fua: true,
    },
    HostOp::Flush,
];

/// Every `every`-th row of `length` requests, cut everywhere.
pub fn cut_short_rows(rig: &Rig, length: u32, every: usize, verdicts: &mut Verdicts) {
    let (store, model) = aged(rig, Kind::FullDisk, false);
    for number in (0..ALPHABET.len().pow(length)).step_by(every) {
        let here = format!("{}/row/{number}", rig.path());
        if !verdicts.draws(&here) {
            continue;
        }
        let row = (0..length).map(|i| ALPHABET[number / ALPHABET.len().pow(i) % ALPHABET.len()]);
        let mut host = Host::over(
            rig,
            rig.mount(rig.open(store.clone())).expect("it mounts"),
            model.clone(),
        );
        host.settle_all().expect("nothing is lost before the row");
        host.set_step(1 << 20);
        Recording::of(host, row, |_| false).visit(|moment| {
            for (outcome, cut) in Outcomes::Three.of(rig, moment.next, moment.index + number) {
                verdicts.case(&format!("{here}/{}/{outcome}", moment.index), || {
                    let store = cuts::strike(rig, moment.store, moment.next, cut);
                    cuts::survive(rig, store, moment.model.clone(), 7).map(drop)
                });
            }
        });
    }
}

/// The fewest free blocks that the mounts of a row found, and left.
#[derive(Clone, Copy, Debug)]
pub struct FewestFree {
    /// Before a mount collected.
    pub found: u32,
    /// After it.
    pub left: u32,
}

/// Cut after cut on a device whose every page is mapped and that has all the bad blocks its data
/// sheet allows, with no clean stop between: it always mounts and always takes writes.
pub fn cut_in_a_row(rig: &Rig, cuts: u32, verdicts: &mut Verdicts) -> FewestFree {
    let mut fewest = FewestFree {
        found: u32::MAX,
        left: u32::MAX,
    };
    let pages = rig.config.logical_pages;
    verdicts.case(&format!("{}/in_a_row", rig.path()), || {
        let mut host = Host::format_at_end_of_life(rig);
        for lpn in 0..pages {
            host.run(&HostOp::Write {
                lpn,
                count: 1,
                fua: false,
            })?;
        }
        host.run(&HostOp::Flush)?;
        let mut rng = SplitMix::new(rig.seed);
        let mut workload = Workload::new(Kind::FullDisk, pages, rig.seed);
        for number in 0..cuts {
            host = one_of_many(rig, host, &mut workload, &mut rng)
                .map_err(|why| format!("cut {number}: {why}"))?;
            let stats = host.ftl.stats();
            fewest.left = fewest.left.min(stats.blocks.free);
            fewest.found = fewest.found.min(stats.mount.free_blocks);
        }
        Ok(())
    });
    fewest
}

/// Runs requests until a cut strikes, soon; mounts, sometimes with another cut inside the mount.
fn one_of_many<'a>(
    rig: &'a Rig,
    mut host: Host<'a>,
    workload: &mut Workload,
    rng: &mut SplitMix,
) -> Result<Host<'a>, String> {
    // A mount needs a few programs itself; many cuts come so soon that nothing but mounts happened
    // since the last.
    let distance = [3, 12, 60, 400][rng.below(4) as usize];
    let menu = Cut::menu(rng.below(distance), rng.next_u64());
    let cut = menu[rng.below(menu.len() as u64) as usize];
    host.set_faults(FaultPlan {
        cut: Some(cut),
        ..FaultPlan::default()
    });
    loop {
        let op = workload.next().expect("workloads are endless");
        match host.run(&op) {
            Ok(()) => {}
            Err(_) if !host.ftl.chip().powered() => break,
            Err(trouble) => return Err(format!("{op:?}: {}", String::from(trouble))),
        }
    }
    let step = host.step();
    let (chip, model) = host.cut_power();
    let mut store = chip.into_store();
    while rng.one_in(4)
        && let Some((struck, _)) = cut_mount(rig, &store, rng)?
    {
        store = struck;
    }
    let ftl = rig
        .mount(rig.open(store))
        .map_err(|error| format!("mount: {error}"))?;
    let mut host = Host::over(rig, ftl, model);
    host.set_step(step);
    host.check()?;
    host.settle_all()?;
    Ok(host)
}

/// Cuts a mount of this flash at one of its operations, in any way. Returns what is left and how
/// many operations the mount had done, or nothing if it does none.
fn cut_mount(
    rig: &Rig,
    store: &MemStore,
    rng: &mut SplitMix,
) -> Result<Option<(MemStore, usize)>, String> {
    let changes = cuts::record_mount(rig, store)?;
    let operations = changes
        .iter()
        .filter(|change| cuts::is_operation(change))
        .count();
    if operations == 0 {
        return Ok(None);
    }
    let target = rng.below(operations as u64) as usize;
    let mut struck = None;
    cuts::visit_mount(store, &changes, |index, store, next| {
        if index == target {
            let menu = cuts::outcomes(rig, next, rng.next_u64());
            struck = Some(cuts::strike(
                rig,
                store,
                next,
                menu[rng.below(menu.len() as u64) as usize],
            ));
        }
    });
    Ok(struck.map(|store| (store, target)))
}

/// What a row of random cuts saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomCuts {
    /// Cuts that struck.
    pub cuts: u64,
    /// Of them inside a mount that had programmed or erased something.
    pub in_mounts: u64,
    /// Programs and erases.
    pub operations: u64,
    /// Pages read and compared.
    pub compared: u64,
}

/// Between two looks at every page of the device.
const CUTS_PER_AUDIT: u64 = 500;

/// Cut after cut with any outcome on one device, each some random requests after the last, or
/// inside the mount. A page is compared before it is overwritten, after each cut whatever was not
/// flushed and some others, and now and then everything: so nothing that is lost can go unseen.
pub fn cut_at_random(rig: &Rig, kind: Kind, cuts: u64) -> Result<RandomCuts, String> {
    let mut seen = RandomCuts::default();
    let mut rng = SplitMix::new(rig.seed ^ 0xC075);
    let mut host = Host::format(rig);
    let mut workload = Workload::new(kind, rig.config.logical_pages, rig.seed);
    while seen.cuts < cuts {
        let at = format!("cut {}", seen.cuts);
        let distance = [4, 30, 200][rng.below(3) as usize];
        host.set_faults(plan_cut(&mut rng, distance));
        run_until_cut(&mut host, &mut workload, &mut seen).map_err(|why| format!("{at}: {why}"))?;
        seen.cuts += 1;
        host = remount_at_random(rig, host, &mut rng, &mut seen)
            .map_err(|why| format!("{at}: {why}"))?;
        let audit = seen.cuts % CUTS_PER_AUDIT < 2;
        compare_after_cut(&mut host, audit, &mut rng, &mut seen)
            .map_err(|why| format!("{at}: {why}"))?;
    }
    host.check()?;
    host.settle_all()?;
    Ok(seen)
}

/// Power fails in any way within the next `distance` programs and erases.
fn plan_cut(rng: &mut SplitMix, distance: u64) -> FaultPlan {
    let menu = Cut::menu(rng.below(distance), rng.next_u64());
    let cut = menu[rng.below(menu.len() as u64) as usize];
    let cut = Cut {
        erase: EraseCut::ALL[rng.below(EraseCut::ALL.len() as u64) as usize],
        ..cut
    };
    FaultPlan {
        cut: Some(cut),
        ..FaultPlan::default()
    }
}

fn run_until_cut(
    host: &mut Host,
    workload: &mut Workload,
    seen: &mut RandomCuts,
) -> Result<(), String> {
    loop {
        let op = workload.next().expect("workloads are endless");
        if let Some((lpn, count)) = op.replaces() {
            match host.compare(lpn, count) {
                Ok(()) => seen.compared += count as u64,
                // Reading may program, too.
                Err(_) if !host.ftl.chip().powered() => return Ok(()),
                Err(trouble) => return Err(trouble.into()),
            }
        }
        match host.run(&op) {
            Ok(()) => {}
            Err(_) if !host.ftl.chip().powered() => return Ok(()),
            Err(trouble) => return Err(format!("{op:?}: {}", String::from(trouble))),
        }
    }
}

/// Mounts; every fourth mount is cut as well.
fn remount_at_random<'a>(
    rig: &'a Rig,
    host: Host<'a>,
    rng: &mut SplitMix,
    seen: &mut RandomCuts,
) -> Result<Host<'a>, String> {
    let step = host.step();
    seen.operations += host.ftl.chip().ops();
    let (chip, model) = host.cut_power();
    let mut store = chip.into_store();
    while rng.one_in(4)
        && let Some((struck, done)) = cut_mount(rig, &store, rng)?
    {
        seen.cuts += 1;
        seen.in_mounts += (done > 0) as u64;
        store = struck;
    }
    let ftl = rig
        .mount(rig.open(store))
        .map_err(|error| format!("mount: {error}"))?;
    let mut host = Host::over(rig, ftl, model);
    host.set_step(step);
    Ok(host)
}

/// Compares after a mount; everything if this is an audit.
fn compare_after_cut(
    host: &mut Host,
    audit: bool,
    rng: &mut SplitMix,
    seen: &mut RandomCuts,
) -> Result<(), String> {
    let pages = host.model.pages();
    if audit {
        host.check()?;
        seen.compared += pages as u64;
        return host.settle_all();
    }
    let mut some = host.model.unflushed();
    some.extend((0..8).map(|_| rng.below(pages as u64) as u32));
    seen.compared += some.len() as u64;
    some.into_iter().try_for_each(|lpn| host.settle(lpn, 1))
}

/// Each checkpoint block in turn cannot be read any more, and each of its pages alone: what it said
/// is still true.
pub fn lose_checkpoints(rig: &Rig, kind: Kind, clean: bool, verdicts: &mut Verdicts) {
    let here = format!(
        "{}/{}/checkpoint_{}",
        rig.path(),
        kind.name(),
        if clean { "clean" } else { "cut" }
    );
    if !verdicts.want(&here) {
        return;
    }
    let (store, model) = aged(rig, kind, clean);
    for block in checkpoint_blocks(rig, &store) {
        let programmed = rig.open(store.clone()).frontier(block);
        let pages = (0..programmed).map(|page| (format!("{here}/{block}/{page}"), page..page + 1));
        for (here, lost) in iter::once((format!("{here}/{block}"), 0..programmed)).chain(pages) {
            if !verdicts.draws(&here) {
                continue;
            }
            verdicts.case(&here, || {
                let store = unreadable(rig, store.clone(), block, lost);
                cuts::survive(rig, store, model.clone(), block.raw() as u64).map(drop)
            });
        }
    }
}

/// The flash after 600 requests, and what it may hold.
fn aged(rig: &Rig, kind: Kind, clean: bool) -> (MemStore, Model) {
    let mut host = Host::format(rig);
    for op in Workload::new(kind, PAGES, rig.seed).take(600) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{op:?}: {}", String::from(trouble)));
    }
    if clean {
        host.ftl.shutdown(0).expect("a clean stop");
        host.model.flushed();
    }
    let (chip, model) = host.cut_power();
    (chip.into_store(), model)
}

fn checkpoint_blocks(rig: &Rig, store: &MemStore) -> Vec<Pbn> {
    let mut chip = rig.open(store.clone());
    let geometry = rig.profile.geometry;
    let mut oob = [0; 26];
    let mut is_checkpoint = |block: &Pbn| {
        let head = chip.read_oob(0, geometry.page(*block, 0), &mut oob, Cause::Recovery);
        head.is_ok() && Oob::decode(&oob).is_some_and(|oob| oob.tag.role == Role::Checkpoint)
    };
    geometry
        .all_blocks()
        .filter(|block| is_checkpoint(block))
        .collect()
}

fn unreadable(rig: &Rig, mut store: MemStore, block: Pbn, pages: Range<u32>) -> MemStore {
    let first = rig.profile.geometry.page(block, 0);
    for page in pages {
        store
            .set_health(Ppn::new(first.raw() + page), Health::Lost)
            .expect("memory does not fail");
    }
    store
}
