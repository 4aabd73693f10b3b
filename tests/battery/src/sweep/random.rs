//! Random cuts on one device; every page that could be lost is compared.

use super::mounts::cut_mount;
use crate::host::Host;
use crate::rig::{Rig, into_memory};
use crate::workload::{Kind, Workload};
use nand_model::{Cut, EraseCut, FaultPlan, SplitMix};

/// Counts of a sequence of random cuts.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomCuts {
    /// Cuts that happened.
    pub cuts: u64,
    /// Cuts inside a mount that had programmed or erased something.
    pub in_mounts: u64,
    /// Programs and erases.
    pub operations: u64,
    /// Pages read and compared.
    pub compared: u64,
}

/// Cuts between two comparisons of every page of the device.
const CUTS_PER_AUDIT: u64 = 500;

/// Cuts power repeatedly with any outcome on one device, after some random requests or inside the
/// mount. A page is compared before it is overwritten; unflushed pages and some others are compared
/// after each cut, and sometimes all pages. So no loss stays undetected.
///
/// # Errors
/// The cut after which something failed, and the error.
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

/// Cuts power with any outcome within the next `distance` programs and erases.
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
                // A read may program pages, too, so the power cut may hit it.
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
    let mut store = into_memory(chip);
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
