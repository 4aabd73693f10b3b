//! Crashes of the host below an image: the subsets of unsynced writes that survive, and the checks
//! for each of them; writes and syncs that the host refuses.

use crate::host::{Host, Trouble, is_barrier};
use crate::model::Model;
use crate::rig::{Cells, Rig};
use crate::verdicts::{Budget, Verdicts};
use crate::workload::{HostOp, Kind, Workload};
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Start};
use ftld_host_disk::{Crash, SimDisk};
use nand_model::{Access, Cut, FaultPlan, ImageSpec, SplitMix};

/// Pages of the devices here.
pub const PAGES: u32 = 128;
/// Few, so that slots are reused often.
const SPARE_SLOTS: u32 = 6;
/// First version after a crash.
const AFTER_CRASH: u64 = 1 << 30;

/// The host's errno of a failing disk.
pub const EIO: i32 = 5;
/// Errno of a full host disk.
pub const ENOSPC: i32 = 28;

/// A small device that writes checkpoints and levels wear all the time.
pub fn rig_of(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let params = budget.params(&[("ckpt.interval", "150"), ("wear.gap", "2")]);
    Rig::with_params(scheme, cells, PAGES, params, budget.seed)
}

fn spec(rig: &Rig) -> ImageSpec {
    let size = rig.config.logical_pages as u64 * rig.profile.geometry.page_bytes as u64;
    ImageSpec {
        profile: rig.profile,
        size,
        scheme: rig.scheme.name.into(),
        params: String::new(),
    }
}

/// A new device on a new disk. As with the daemon, it serves only after the first sync.
///
/// # Panics
/// The scheme refuses a new device.
pub fn device(rig: &Rig) -> (SimDisk, Host<'_>) {
    let (disk, store) = SimDisk::create(&spec(rig), SPARE_SLOTS).expect("a new image");
    let sync = store.sync_handle();
    let ftl = rig
        .scheme
        .start(rig.open(store), &rig.config, Start::Format)
        .expect("a new device starts");
    sync.sync_through(sync.last_seq())
        .expect("the disk is well");
    (
        disk,
        Host::over(rig, ftl, Model::new(rig.config.logical_pages, rig.seed)).syncing(sync),
    )
}

/// Opens the image on the disk and mounts it; nothing is synced yet.
fn mount<'a>(rig: &'a Rig, disk: &SimDisk, model: Model) -> Result<Host<'a>, String> {
    let (store, _) = disk
        .open(Access::ReadWrite)
        .map_err(|error| format!("open: {error}"))?;
    let sync = store.sync_handle();
    let ftl = rig
        .mount(rig.open(store))
        .map_err(|error| format!("mount: {error}"))?;
    Ok(Host::over(rig, ftl, model).syncing(sync))
}

/// Mounts and starts to serve: contents read from here on must stay.
fn serve<'a>(rig: &'a Rig, disk: &SimDisk, model: Model) -> Result<Host<'a>, String> {
    let mut host = mount(rig, disk, model)?;
    let sync = host.sync_handle().expect("an image");
    sync.sync_through(sync.last_seq())
        .map_err(|error| format!("sync after the mount: {error}"))?;
    host.check()?;
    host.settle_all()?;
    Ok(host)
}

/// Checks a disk after a crash. `further` adds two checks: a crash inside the mount, and one after
/// more writes.
fn survive(rig: &Rig, disk: &SimDisk, model: &Model, further: Option<u64>) -> Result<(), String> {
    if let Some(seed) = further {
        let inside = disk.crashed(Crash::Nothing);
        drop(mount(rig, &inside, model.clone())?);
        serve(rig, &inside.crashed(Crash::Sectors(seed)), model.clone())
            .map_err(|why| format!("after a crash inside the mount: {why}"))?;
    }
    let mut host = serve(rig, disk, model.clone())?;
    let Some(seed) = further else { return Ok(()) };
    host.set_step(AFTER_CRASH);
    for op in Workload::new(Kind::Mixed, PAGES, seed).skip(40).take(24) {
        host.run(&op).map_err(String::from)?;
    }
    let again = disk.crashed(Crash::Sectors(!seed));
    serve(rig, &again, host.model.clone())
        .map(drop)
        .map_err(|why| format!("after a second crash: {why}"))
}

/// Crashes now in every way; every eighth state gets the additional checks. If few writes are
/// unsynced, each subset of them is kept in turn.
fn crash_now(
    rig: &Rig,
    here: &str,
    disk: &SimDisk,
    model: &Model,
    rng: &mut SplitMix,
    verdicts: &mut Verdicts,
) {
    let subsets = if disk.unsynced() <= 5 {
        1 << disk.unsynced()
    } else {
        0
    };
    let kinds = Crash::kinds(rng.next_u64())
        .into_iter()
        .chain((0..subsets).map(Crash::Mask));
    for (number, how) in kinds.enumerate() {
        let further = (rng.one_in(8)).then(|| rng.next_u64());
        let here = format!("{here}/{number}");
        if !verdicts.draws(&here) {
            continue;
        }
        verdicts.case(&here, || {
            survive(rig, &disk.crashed(how), model, further)
                .map_err(|why| format!("{how:?}: {why}"))
        });
    }
}

/// Runs a workload and crashes at this many moments of it, in every way.
///
/// # Panics
/// A request fails before the crash.
pub fn crash_all_along(rig: &Rig, kind: Kind, moments: u32, verdicts: &mut Verdicts) {
    let (disk, mut host) = device(rig);
    let mut rng = SplitMix::new(rig.seed ^ 0xC5A5);
    let mut left = moments;
    for (step, op) in Workload::new(kind, PAGES, rig.seed).enumerate() {
        if verdicts.are_enough() {
            return;
        }
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{op:?}: {}", String::from(trouble)));
        // The host's disk also writes back by itself.
        if rng.one_in(40) {
            let sync = host.sync_handle().expect("an image");
            sync.sync_through(sync.last_seq())
                .expect("the disk is well");
        }
        if disk.unsynced() > 0 && rng.one_in(3) {
            let here = format!("{}/{}/{step}", rig.path(), kind.name());
            crash_now(rig, &here, &disk, &host.model, &mut rng, verdicts);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// The `index`-th write of the host's file fails, with this errno and after this many bytes: only
/// its request fails. `reached` becomes true if there was such a write.
///
/// # Errors
/// The request after the refused write, a comparison or a later mount failed.
pub fn refuse_write(
    rig: &Rig,
    requests: usize,
    index: u64,
    how: (i32, usize),
    reached: &mut bool,
) -> Result<(), String> {
    let (disk, mut host) = device(rig);
    let mut ops = Workload::new(Kind::FullDisk, PAGES, rig.seed);
    for op in ops.by_ref().take(110) {
        host.run(&op)?;
    }
    disk.fail_write(index, how.1, how.0);
    for op in ops.take(requests) {
        match host.run(&op) {
            Ok(()) => {}
            Err(Trouble::Refused(FtlError::HostFull)) if how.0 == ENOSPC => host.settle_all()?,
            Err(Trouble::Refused(FtlError::Host(EIO))) if how.0 == EIO => host.settle_all()?,
            // A failed header write fails the FLUSH, which may be repeated.
            Err(Trouble::Unsynced(_)) => host.run(&HostOp::Flush)?,
            Err(other) => return Err(other.into()),
        }
    }
    *reached = !disk.has_write_faults();
    disk.clear_faults();
    host.compare_all()?;
    host.check()?;
    let model = host.model.clone();
    drop(host);
    // The process dies; its file is unchanged.
    let mut host = mount(rig, &disk.clone(), model)?;
    host.check()?;
    host.compare_all()?;
    host.run(&HostOp::Flush)?;
    let model = host.model.clone();
    drop(host);
    serve(rig, &disk.crashed(Crash::Nothing), model).map(drop)
}

/// A sync fails once: nothing is acknowledged after it, and earlier flushed data is there.
///
/// # Errors
/// No sync failed, a request was acknowledged after the failure, or flushed data is lost.
pub fn fail_sync(rig: &Rig, round: u64) -> Result<(), String> {
    let (disk, mut host) = device(rig);
    let mut ops = Workload::new(Kind::Mixed, PAGES, rig.seed + round);
    for op in ops.by_ref().take(90 + round as usize) {
        host.run(&op)?;
    }
    disk.fail_syncs(1);
    let trouble = ops
        .by_ref()
        .take(500)
        .find_map(|op| host.run(&op).err())
        .ok_or("no sync failed in 500 requests")?;
    if !matches!(
        trouble,
        Trouble::Unsynced(_) | Trouble::Refused(FtlError::Host(EIO))
    ) {
        return Err(trouble.into());
    }
    let begun = host.step();
    for op in ops.take(50).filter(is_barrier) {
        if host.run(&op).is_ok() {
            return Err(format!("{op:?} was acknowledged"));
        }
    }
    host.set_step(begun);
    let model = host.model.clone();
    drop(host);
    for how in Crash::kinds(round) {
        survive(rig, &disk.crashed(how), &model, Some(round))
            .map_err(|why| format!("{how:?}: {why}"))?;
    }
    survive(rig, &disk, &model, None)
        .map_err(|why| format!("after the death of the process: {why}"))
}

/// The last writes before a crash after a cut, of which each subset is kept; all earlier ones
/// survive.
const SUBSET_WRITES: usize = 6;

/// The flash loses power in the middle of a workload, then the host crashes before the image is
/// synced. The host's disk keeps every subset of the last unsynced writes in turn.
///
/// # Panics
/// A request fails before the cut.
pub fn crash_after_cut(
    rig: &Rig,
    kind: Kind,
    requests: usize,
    cut: Cut,
    here: &str,
    verdicts: &mut Verdicts,
) {
    let (disk, mut host) = device(rig);
    let mut ops = Workload::new(kind, PAGES, rig.seed);
    for op in ops.by_ref().take(requests) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{op:?}: {}", String::from(trouble)));
    }
    host.set_faults(FaultPlan {
        cut: Some(cut),
        ..FaultPlan::default()
    });
    while host.ftl.chip().powered() {
        let op = ops.next().expect("workloads are endless");
        if let Err(trouble) = host.run(&op) {
            assert!(
                !host.ftl.chip().powered(),
                "{op:?}: {}",
                String::from(trouble)
            );
        }
    }
    let model = host.model.clone();
    drop(host);
    let writes = disk.unsynced().min(SUBSET_WRITES);
    for kept in 0..1 << writes {
        let crashed = disk.crashed(Crash::Mask(!0 << writes | kept));
        verdicts.case(&format!("{here}/{kept}"), || {
            serve(rig, &crashed, model.clone())
                .map(drop)
                .map_err(|why| format!("{cut:?}, writes {kept:b} kept: {why}"))
        });
    }
}
