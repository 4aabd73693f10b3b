//! A mount opened its own blocks to rewrite suspects and for GC, and an interrupted mount left them
//! partly filled. A few hundred cuts in a row, each inside the mount after the last, left no erased
//! block. The device became read-only, and a suspect page that could not be rewritten was lost.
//! Here every cut occurs where it costs most.

use ftld_battery::cuts;
use ftld_battery::host::Host;
use ftld_battery::rig::{Rig, into_memory};
use ftld_battery::workload::{HostOp, Kind, Workload};
use ftld_tests::suite;
use nand_model::store::{Change, MemStore};
use nand_model::{Cut, FaultPlan, SplitMix};

const PAGES: u32 = 256;

#[test]
fn cuts_inside_mounts_at_the_costliest_operations_leave_the_device_writable() {
    let interval = |of: &'static str| move |(scheme, cells)| (scheme, cells, of);
    for (scheme, cells, interval) in suite::matrix()
        .map(interval("250"))
        .chain(suite::matrix().map(interval("0")))
    {
        let name = format!("ckpt.interval={interval}");
        let rig = Rig::new(scheme, cells, PAGES, suite::seed())
            .set("ckpt.interval", interval)
            .variant(&name, |_| {});
        let mut verdicts = suite::verdicts("regressions", scheme);
        let (rounds, mounts) = if suite::long() { (20, 200) } else { (3, 30) };
        let mut fewest = u32::MAX;
        for round in 0..rounds {
            verdicts.case(
                &format!("{}/mounts_cut_in_a_row/{round}", rig.path()),
                || {
                    let (mut host, mut store) = cut_when_full(&rig, round)?;
                    let mut rng = SplitMix::new(rig.seed ^ round);
                    for _ in 0..mounts {
                        let Some((free, worst)) = worst_cut(&rig, &store, &mut rng)? else {
                            break;
                        };
                        fewest = fewest.min(free);
                        store = worst;
                    }
                    host = Host::over(
                        &rig,
                        rig.mount(rig.open(store)).map_err(|e| e.to_string())?,
                        host.model,
                    );
                    host.check()?;
                    host.settle_all()?;
                    host.set_step(1 << 20);
                    host.run(&HostOp::Write {
                        lpn: 5,
                        count: 1,
                        fua: true,
                    })?;
                    host.check()
                },
            );
        }
        println!(
            "{}: {mounts} mounts cut in a row, never fewer than {fewest} free blocks found",
            rig.path()
        );
        verdicts.assert_none_failed();
    }
}

/// Creates a full device with the largest number of bad blocks, cut during writes. The host keeps
/// the oracle.
fn cut_when_full(rig: &Rig, round: u64) -> Result<(Host<'_>, MemStore), String> {
    let mut host = Host::format_at_end_of_life(rig);
    let fill = (0..PAGES).map(|lpn| HostOp::Write {
        lpn,
        count: 1,
        fua: false,
    });
    let workload = Workload::new(Kind::FullDisk, PAGES, rig.seed + round);
    fill.chain(workload.take(500))
        .try_for_each(|op| host.run(&op).map_err(String::from))?;
    let cut = Cut::menu(7 + round, round)[round as usize % 14];
    host.set_faults(FaultPlan {
        cut: Some(cut),
        ..FaultPlan::default()
    });
    while host
        .run(&HostOp::Write {
            lpn: round as u32,
            count: 1,
            fua: false,
        })
        .is_ok()
    {}
    let step = host.step();
    let (chip, model) = host.cut_power();
    let store = into_memory(chip);
    let mut host = Host::over(
        rig,
        rig.mount(rig.open(store.clone()))
            .map_err(|e| e.to_string())?,
        model,
    );
    host.set_step(step);
    Ok((host, store))
}

/// Returns, of some cuts in this flash's mount, the one after which the next mount finds the fewest
/// free blocks.
fn worst_cut(
    rig: &Rig,
    store: &MemStore,
    rng: &mut SplitMix,
) -> Result<Option<(u32, MemStore)>, String> {
    let changes = cuts::record_mount(rig, store)?;
    let operations = changes
        .iter()
        .filter(|c| matches!(c, Change::Program { .. } | Change::Erase { .. }))
        .count();
    let every = if suite::long() { 1 } else { 1 + operations / 6 };
    let mut worst: Option<(u32, MemStore)> = None;
    let mut failed = None;
    cuts::visit_mount(store, &changes, |index, store, next| {
        if (index + operations) % every > 0 && index + 1 < operations {
            return;
        }
        let menu = cuts::outcomes(rig, next, rng.next_u64());
        let struck = cuts::cut_during(
            rig,
            store,
            next,
            menu[rng.below(menu.len() as u64) as usize],
        );
        match rig.mount(rig.open(struck.clone())) {
            Ok(ftl) => {
                let free = ftl.stats().mount.free_blocks;
                let worse = |(fewest, _): &(u32, MemStore)| {
                    free < *fewest || (free == *fewest && rng.one_in(2))
                };
                if worst.as_ref().is_none_or(worse) {
                    worst = Some((free, struck));
                }
            }
            Err(error) => failed = Some(format!("mount: {error}")),
        }
    });
    failed.map_or(Ok(worst), Err)
}
