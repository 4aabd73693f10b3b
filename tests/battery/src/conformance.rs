//! A scheme against the oracle with bad blocks as the only faults: thousands of requests, checks,
//! clean and unclean remounts, a full device overwritten, factory-bad blocks, failing programs and
//! erases, and the end of life.

use crate::host::{self, Host, Trouble};
use crate::rig::{Cells, Rig};
use crate::verdicts::{Budget, Verdicts};
use crate::workload::{HostOp, Kind, Workload};
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Lpn};
use nand_model::{BlockFault, Fault, FaultPlan, Pbn, SplitMix};
use std::cell::Cell;

/// Pages of the devices here.
const PAGES: u32 = 512;

/// Requests of a workload.
fn requests(budget: &Budget) -> usize {
    budget.pick(4_000, 4_000, 40_000)
}

/// A device of 512 pages that writes checkpoints regularly.
pub fn rig_of(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let params = budget.params(&[("ckpt.interval", "700")]);
    Rig::with_params(scheme, cells, PAGES, params, budget.seed)
}

/// A part of this battery: the cases of one question.
pub type Part = fn(&Rig, &mut Verdicts);

/// All parts, by name.
pub const PARTS: [(&str, Part); 8] = [
    ("collections and mounts", collections_and_mounts),
    ("overwrites", overwrites),
    ("mapped pages", mapped_pages),
    ("trims without checkpoints", trims_without_checkpoints),
    ("factory bad blocks", factory_bad_blocks),
    ("failing blocks", failing_blocks),
    ("full host", full_host),
    ("worn out", worn_out),
];

/// Runs every workload with checks, clean shutdowns and power cuts between two operations.
pub fn collections_and_mounts(rig: &Rig, verdicts: &mut Verdicts) {
    let requests = requests(verdicts.budget());
    for kind in Kind::ALL {
        verdicts.case(&format!("{}/{}", rig.path(), kind.name()), || {
            let mut host = Host::format(rig);
            for (number, op) in Workload::new(kind, PAGES, rig.seed)
                .take(requests)
                .enumerate()
            {
                host.run(&op)?;
                if number % 500 == 499 {
                    host = restart(host, number / 500)?;
                }
            }
            if host.ftl.chip().counters().total().erases == 0 {
                return Err("nothing was ever erased".into());
            }
            Ok(())
        });
    }
}

/// Checks everything. Then sometimes shuts down cleanly, sometimes cuts power between two
/// operations, else continues.
fn restart<'a>(mut host: Host<'a>, number: usize) -> Result<Host<'a>, String> {
    host.check()?;
    host.compare_all()?;
    match number % 3 {
        0 => {
            host.ftl
                .shutdown(0)
                .map_err(|error| format!("shutdown: {error}"))?;
            host.model.flushed();
            let before = programs_and_erases(&host);
            host = host.remount()?;
            if !host.ftl.stats().mount.clean {
                return Err("the mount after a clean stop was not clean".into());
            }
            if programs_and_erases(&host) != before {
                return Err("a clean mount wrote to the flash".into());
            }
            host.compare_all()?;
        }
        1 => {
            host = host.remount()?;
            host.settle_all()?;
        }
        _ => return Ok(host),
    }
    host.check()?;
    Ok(host)
}

fn programs_and_erases(host: &Host) -> u64 {
    let total = host.ftl.chip().counters().total();
    total.programs + total.erases
}

/// Overwrites a device whose every page is mapped, on a chip with every bad block that its data
/// sheet allows.
pub fn overwrites(rig: &Rig, verdicts: &mut Verdicts) {
    verdicts.case(&format!("{}/overwritten", rig.path()), || {
        let mut host = Host::format_at_end_of_life(rig);
        let mut rng = SplitMix::new(rig.seed);
        for lpn in 0..PAGES {
            host.run(&HostOp::Write {
                lpn,
                count: 1,
                fua: false,
            })?;
        }
        for _ in 0..3 * PAGES {
            host.run(&HostOp::Write {
                lpn: rng.below(PAGES as u64) as u32,
                count: 1,
                fua: false,
            })?;
        }
        for lpn in (0..PAGES).step_by(16) {
            host.run(&HostOp::Write {
                lpn,
                count: 16,
                fua: lpn % 64 == 0,
            })?;
        }
        host.check()?;
        host.compare_all()?;
        let mapped = host.ftl.stats().mapped_pages;
        if mapped != PAGES as u64 {
            Err(format!("{mapped} pages of {PAGES} are mapped"))
        } else {
            Ok(())
        }
    });
}

/// Queries the mapping of every page before and after a mount.
pub fn mapped_pages(rig: &Rig, verdicts: &mut Verdicts) {
    verdicts.case(&format!("{}/mapped", rig.path()), || {
        let mut host = Host::format(rig);
        host.run(&HostOp::Write {
            lpn: 10,
            count: 20,
            fua: false,
        })?;
        host.run(&HostOp::Trim { lpn: 15, count: 5 })?;
        host.run(&HostOp::WriteZeroes {
            lpn: 20,
            count: 2,
            fua: false,
        })?;
        for again in 0..2 {
            for lpn in 0..PAGES {
                let mapped = host
                    .ftl
                    .is_mapped(Lpn::new(lpn))
                    .map_err(|error| error.to_string())?;
                if mapped != ((10..15).contains(&lpn) || (22..30).contains(&lpn)) {
                    return Err(format!("page {lpn}: is_mapped is {mapped}, mount {again}"));
                }
            }
            host.run(&HostOp::Flush)?;
            host = host.remount()?;
        }
        Ok(())
    });
}

/// A device without checkpoints accepts an unlimited number of trims.
pub fn trims_without_checkpoints(rig: &Rig, verdicts: &mut Verdicts) {
    let requests = requests(verdicts.budget());
    let rig = rig.clone().set("ckpt.interval", "0");
    verdicts.case(&format!("{}/trims_without_checkpoints", rig.path()), || {
        let mut host = Host::format(&rig);
        for (number, op) in Workload::new(Kind::TrimHeavy, PAGES, rig.seed)
            .take(4 * requests)
            .enumerate()
        {
            host.run(&op)
                .map_err(|trouble| format!("request {number}: {}", String::from(trouble)))?;
        }
        host.check()?;
        host = host.remount()?;
        host.settle_all()
    });
}

/// As many factory-bad blocks as the data sheet allows, at positions chosen by the seed.
pub fn factory_bad_blocks(rig: &Rig, verdicts: &mut Verdicts) {
    let requests = requests(verdicts.budget());
    for salt in 0..4 {
        let rig = Rig {
            seed: rig.seed + salt,
            ..rig.clone()
        };
        verdicts.case(&format!("{}/factory_bad/{salt}", rig.path()), || {
            let mut host = Host::format_at_end_of_life(&rig);
            for op in Workload::new(Kind::Mixed, PAGES, rig.seed).take(requests / 4) {
                host.run(&op)?;
            }
            host.check()?;
            host = host.remount()?;
            host.settle_all()?;
            host.check()
        });
    }
}

/// Programs and erases that fail, each in a block chosen by the seed, as many as the data sheet
/// allows.
///
/// # Panics
/// Fewer programs or erases failed than there were cases.
pub fn failing_blocks(rig: &Rig, verdicts: &mut Verdicts) {
    let requests = requests(verdicts.budget());
    let fails = Cell::new((0, 0));
    for salt in 0..6 {
        for kind in [Kind::FullDisk, Kind::HotCold, Kind::TrimHeavy] {
            verdicts.case(
                &format!("{}/failing/{}/{salt}", rig.path(), kind.name()),
                || {
                    let seed = rig.seed + 100 * salt;
                    let mut host = Host::format(rig);
                    host.set_faults(faults_of_blocks(rig, seed));
                    for (number, op) in Workload::new(kind, PAGES, seed)
                        .take(requests / 2)
                        .enumerate()
                    {
                        host.run(&op)?;
                        if number % 250 == 249 {
                            host.check()?;
                            host.compare_all()?;
                        }
                    }
                    let counters = host.ftl.chip().counters();
                    fails.set((
                        fails.get().0 + counters.program_fails,
                        fails.get().1 + counters.erase_fails,
                    ));
                    host = host.remount()?;
                    host.settle_all()?;
                    host.check()
                },
            );
        }
    }
    let (programs, erases) = fails.get();
    let few = programs < verdicts.cases || erases < verdicts.cases;
    assert!(
        !few || verdicts.cases < 18,
        "{}: only {programs} programs and {erases} erases failed",
        rig.path()
    );
}

/// Half of the allowed bad blocks fail a program, half an erase.
fn faults_of_blocks(rig: &Rig, seed: u64) -> FaultPlan {
    let mut rng = SplitMix::new(seed);
    let spare = 4;
    let mut blocks: Vec<Pbn> = Vec::new();
    while blocks.len() < spare {
        let block = Pbn::new(rng.below(rig.profile.geometry.blocks as u64) as u32);
        if !blocks.contains(&block) {
            blocks.push(block);
        }
    }
    let erases = blocks.split_off(spare / 2);
    let programs = blocks
        .into_iter()
        .map(|block| BlockFault::next(block, Fault::ProgramFail));
    let block_faults = programs
        .chain(
            erases
                .into_iter()
                .map(|block| BlockFault::next(block, Fault::EraseFail)),
        )
        .collect();
    FaultPlan {
        block_faults,
        ..FaultPlan::default()
    }
}

/// The host's file system is full at random times: requests fail, nothing is lost, no block goes
/// bad, and the same request succeeds when there is space again.
pub fn full_host(rig: &Rig, verdicts: &mut Verdicts) {
    let requests = requests(verdicts.budget());
    for kind in [Kind::FullDisk, Kind::Mixed, Kind::TrimHeavy] {
        verdicts.case(&format!("{}/host_full/{}", rig.path(), kind.name()), || {
            let mut host = Host::format(rig);
            let mut rng = SplitMix::new(rig.seed);
            let mut refused = 0;
            for (number, op) in Workload::new(kind, PAGES, rig.seed)
                .take(requests)
                .enumerate()
            {
                if rng.one_in(4) {
                    host.memory().set_room(Some(rng.below(40)));
                }
                let mut tries = 0;
                while let Err(trouble) = host.run(&op) {
                    if !matches!(trouble, Trouble::Refused(FtlError::HostFull)) || tries == 3 {
                        return Err(format!(
                            "request {number}, {op:?}: {}",
                            String::from(trouble)
                        ));
                    }
                    (refused, tries) = (refused + 1, tries + 1);
                    host.check()
                        .map_err(|why| format!("request {number}, {op:?}, host full: {why}"))?;
                    host.memory()
                        .set_room(if tries == 1 { Some(3) } else { None });
                }
                if number % 250 == 249 {
                    host.check()?;
                    host.compare_all()?;
                }
            }
            host.memory().set_room(None);
            host = host.remount()?;
            host.settle_all()?;
            host.check()?;
            let bad = host.ftl.stats().blocks.bad;
            if refused < 50 || bad > 0 {
                Err(format!("{refused} refusals, {bad} bad blocks"))
            } else {
                Ok(())
            }
        });
    }
}

/// Blocks fail until the device turns read-only: acknowledged data stays readable, flushes succeed,
/// and the device mounts.
pub fn worn_out(rig: &Rig, verdicts: &mut Verdicts) {
    for salt in 0..6 {
        verdicts.case(&format!("{}/worn_out/{salt}", rig.path()), || {
            let seed = rig.seed + salt;
            let mut host = Host::format(rig);
            let rates = [
                (Fault::EraseFail, 60_000_000),
                (Fault::ProgramFail, 3_000_000),
            ]
            .into();
            let plan = FaultPlan {
                rates,
                seed,
                ..FaultPlan::default()
            };
            host.set_faults(plan);
            refuse_at_last(&mut host, seed)?;
            host.settle_all()?;
            host.check()?;
            host = host.remount()?;
            host.settle_all()?;
            host.check()?;
            host.ftl
                .flush(0)
                .map(drop)
                .map_err(|error| format!("flush after the mount: {error}"))
        });
    }
}

/// Runs requests until one is refused, then flushes. The model contains the durable values, and the
/// refused request as possibly executed in part.
fn refuse_at_last(host: &mut Host, seed: u64) -> Result<(), String> {
    for op in Workload::new(Kind::FullDisk, PAGES, seed) {
        let (mut model, step) = (host.model.clone(), host.step());
        match host.run(&op) {
            Ok(()) => continue,
            Err(Trouble::Refused(FtlError::ReadOnly(_))) => {}
            Err(other) => return Err(format!("expected read-only, not {other:?}")),
        }
        host.ftl
            .flush(0)
            .map_err(|error| format!("flush of a read-only device: {error}"))?;
        model.flushed();
        host::values(&op, step).for_each(|(lpn, value)| model.submit(lpn, value));
        host.model = model;
        return Ok(());
    }
    unreachable!("workloads are endless")
}
