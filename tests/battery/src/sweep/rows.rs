//! Short sequences of requests cut everywhere, and cuts one after another on a full device.

use super::mounts::cut_mount;
use super::{Outcomes, aged};
use crate::cuts;
use crate::cuts::Recording;
use crate::host::Host;
use crate::rig::{Rig, into_memory};
use crate::verdicts::Verdicts;
use crate::workload::{HostOp, Kind, Workload};
use nand_model::{Cut, FaultPlan, SplitMix};

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

/// Runs every `every`-th sequence of `length` requests, cut everywhere.
///
/// # Panics
/// A mount or a request fails before the cut.
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
                    let store = cuts::cut_during(rig, moment.store, moment.next, cut);
                    cuts::survive(rig, store, moment.model.clone(), 7).map(drop)
                });
            }
        });
    }
}

/// The fewest free blocks before and after the mounts of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct FewestFree {
    /// Free blocks before a mount's GC.
    pub found: u32,
    /// Free blocks after it.
    pub left: u32,
}

/// Cuts power repeatedly on a device whose every page is mapped and that has all the bad blocks
/// that its data sheet allows, without a clean shutdown: it always mounts and always accepts
/// writes.
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

/// Runs requests until a cut happens, soon; mounts, sometimes with another cut inside the mount.
fn one_of_many<'a>(
    rig: &'a Rig,
    mut host: Host<'a>,
    workload: &mut Workload,
    rng: &mut SplitMix,
) -> Result<Host<'a>, String> {
    // A mount needs a few programs itself; many cuts come so early that only mounts ran since the
    // last.
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
    let mut store = into_memory(chip);
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
