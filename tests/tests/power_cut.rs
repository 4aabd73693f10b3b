//! Power cuts: at every program and erase of every workload, inside mounts, a thousand in a row, and with checkpoints destroyed.
//! What may be lost is the oracle's business (`ftld_tests::model`); docs/DURABILITY.md says it in prose.

use ftl_core::Params;
use ftl_core::format::{Oob, Role};
use ftl_core::schemes::SCHEMES;
use ftld_tests::cuts::{self, Moment, Recording};
use ftld_tests::host::Host;
use ftld_tests::rig::{self, Cells, Rig, Verdicts};
use ftld_tests::workload::{HostOp, Kind, Workload};
use nand_model::store::{Change, MemStore};
use nand_model::{Bomb, Cut, Fault, FaultPlan, Health, Pairing, Pbn, Ppn, SplitMix};

/// Pages of the devices here: a few blocks of map, enough for collections to have a choice.
const PAGES: u32 = 256;

/// Outcomes per operation in the short form; the next operation takes the next ones.
const SHORT_OUTCOMES: usize = 3;

fn rig_of(scheme: &'static ftl_core::schemes::Scheme, cells: Cells) -> Rig {
    let mut params = Params::default();
    params.set("ckpt.interval", "250");
    params.set("wear.gap", "2");
    Rig::with_params(scheme, cells, PAGES, params)
}

/// The outcomes to try at an operation: all of them, or some that change from one operation to the next.
fn chosen(rig: &Rig, next: &Change, index: usize, all: bool) -> Vec<(usize, Cut)> {
    let menu: Vec<_> = cuts::outcomes(rig, next, index as u64 ^ rig.seed << 32).into_iter().enumerate().collect();
    if all {
        return menu;
    }
    let spread = menu.len().div_ceil(SHORT_OUTCOMES).max(1);
    (0..SHORT_OUTCOMES).map(|i| menu[(index + i * spread) % menu.len()]).collect()
}

/// Cuts one workload everywhere.
fn cut_everywhere(rig: &Rig, kind: Kind, verdicts: &mut Verdicts) -> Recording {
    let recording = cuts::record(rig, kind);
    recording.visit(|moment| cut_here(rig, kind, moment, verdicts));
    recording
}

fn cut_here(rig: &Rig, kind: Kind, moment: &Moment, verdicts: &mut Verdicts) {
    let here = format!("{}/{}/{}", rig.path(), kind.name(), moment.index);
    if !rig::wanted(&here) {
        return;
    }
    for (number, cut) in chosen(rig, moment.next, moment.index, rig::long()) {
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
            let (block, offset) = (rig.profile.geometry.block_of(*ppn), rig.profile.geometry.offset_of(*ppn));
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

fn every_operation(cells: Cells) {
    for scheme in SCHEMES {
        let rig = rig_of(scheme, cells);
        let mut verdicts = Verdicts::new("power_cut");
        let began = std::time::Instant::now();
        let (mut operations, mut workloads) = (0, 0);
        for kind in Kind::ALL {
            if !rig::wanted(&format!("{}/{}", rig.path(), kind.name())) {
                continue;
            }
            let recording = cut_everywhere(&rig, kind, &mut verdicts);
            let missing = recording.coverage.missing(recording.coverage.converts > 0);
            assert_eq!(missing, None, "{}/{}: the workload proves too little", rig.path(), kind.name());
            operations += recording.operations();
            workloads += 1;
        }
        println!(
            "{}: {} cuts at {operations} operations of {workloads} workloads, {} failed, {:.1} s",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            began.elapsed().as_secs_f64()
        );
        verdicts.assert_none_failed();
    }
}

#[test]
fn a_cut_at_every_operation_loses_nothing_flushed_on_slc() {
    every_operation(Cells::Slc);
}

#[test]
fn a_cut_at_every_operation_loses_nothing_flushed_on_mlc() {
    every_operation(Cells::Mlc);
}

/// The canary: without protection of paired pages the very same suite must find losses, or it would not find them with it.
#[test]
fn without_pair_protection_the_same_cuts_lose_flushed_data() {
    let mut tried = 0;
    for scheme in SCHEMES.iter().filter(|scheme| rig::has_param(scheme, "nand.pair_policy")) {
        let rig = rig_of(scheme, Cells::Mlc).set("nand.pair_policy", "none");
        let mut verdicts = Verdicts::new("power_cut");
        cut_everywhere(&rig, Kind::Uniform, &mut verdicts);
        println!("{}: {} of {} cuts lose data without protection", rig.path(), verdicts.failures, verdicts.cases);
        assert!(verdicts.failures > 10, "{}: only {} cuts were found out", rig.path(), verdicts.failures);
        tried += 1;
    }
    assert!(tried > 0, "no scheme can have its protection switched off");
}

/// Some of the outcomes at every operation of variants of the usual rig: programs and erases that fail on their own, other
/// word-line pairings, marks in the OOB that were lost.
#[test]
fn cuts_among_failing_blocks_other_pairings_and_lost_marks() {
    for (scheme, cells) in rig::matrix() {
        let mut verdicts = Verdicts::new("power_cut");
        for salt in 0..if rig::long() { 8 } else { 2 } {
            let failing = rig_of(scheme, cells).variant(&format!("failing{salt}"), |rig| {
                let mut rng = SplitMix::new(rig.seed + salt);
                let mut any = || Pbn::new(rng.below(rig.profile.geometry.blocks as u64) as u32);
                let faults = [Fault::ProgramFail, Fault::ProgramFail, Fault::EraseFail, Fault::EraseFail];
                rig.bombs = faults.map(|fault| Bomb::next(any(), fault)).to_vec();
            });
            cut_sampled(&failing, cuts::record(&failing, Kind::HotCold), &mut verdicts);
        }
        if cells == Cells::Mlc {
            for pairing in [Pairing::Adjacent, Pairing::Dist6, Pairing::Shared4, Pairing::Group4] {
                let paired = rig_of(scheme, cells).variant(pairing.name(), |rig| rig.profile.pairing = pairing);
                cut_sampled(&paired, cuts::record(&paired, Kind::HotCold), &mut verdicts);
            }
        }
        for (key, value) in [("page.gc_stream", "same"), ("ckpt.interval", "0"), ("valid_tracking", "ram_bitmap")] {
            if rig::has_param(scheme, key) {
                let other = rig_of(scheme, cells).variant(&format!("{key}={value}"), |_| {}).set(key, value);
                cut_sampled(&other, after_filling(&other), &mut verdicts);
            }
        }
        let unmarked = rig_of(scheme, cells).variant("unmarked", |_| {});
        if let Some(recording) = cuts::record(&unmarked, Kind::HotCold).without_marks() {
            cut_sampled(&unmarked, recording, &mut verdicts);
        }
        println!("{}/{}: {} cuts in variants, {} failed", scheme.name, cells.name(), verdicts.cases, verdicts.failures);
        verdicts.assert_none_failed();
    }
}

/// A run on a device that is full already, with what it may lack.
fn after_filling(rig: &Rig) -> Recording {
    let mut host = Host::format(rig);
    for op in Workload::new(Kind::HotCold, PAGES, rig.seed).take(400) {
        host.run(&op).unwrap_or_else(|trouble| panic!("{}: {op:?}: {}", rig.path(), String::from(trouble)));
    }
    let workload = Workload::new(Kind::HotCold, PAGES, rig.seed + 1).skip(60).take(400);
    Recording::of(host, workload, |_| false)
}

fn cut_sampled(rig: &Rig, recording: Recording, verdicts: &mut Verdicts) {
    let every = if rig::long() { 1 } else { 5 };
    recording.visit(|moment| {
        if moment.index % every == 0 {
            cut_here(rig, Kind::HotCold, moment, verdicts);
        }
    });
}

/// A second cut inside the mount that follows the first one: samples in the short form; in the long form every pair of
/// operations and outcomes on a tiny device, and samples of all workloads on the usual one.
#[test]
fn a_cut_inside_a_mount_loses_nothing_either() {
    for (scheme, cells) in rig::matrix() {
        let rig = rig_of(scheme, cells);
        let mut verdicts = Verdicts::new("power_cut");
        let (every, kinds) = if rig::long() { (7, &Kind::ALL[..]) } else { (29, &[Kind::FullDisk, Kind::Mixed][..]) };
        for kind in kinds {
            cut_mounts(&rig, *kind, every, false, &mut verdicts);
        }
        if rig::long() {
            let tiny = Rig::with_params(scheme, cells, 64, rig.config.params.clone()).variant("tiny", |_| {});
            cut_mounts(&tiny, Kind::Mixed, 1, true, &mut verdicts);
        }
        println!("{}: {} cuts inside mounts, {} failed", rig.path(), verdicts.cases, verdicts.failures);
        verdicts.assert_none_failed();
    }
}

fn cut_mounts(rig: &Rig, kind: Kind, every: usize, all: bool, verdicts: &mut Verdicts) {
    if !rig::wanted(&format!("{}/{}", rig.path(), kind.name())) {
        return;
    }
    cuts::record(rig, kind).visit(|moment| {
        if moment.index % every == 0 {
            cut_mounts_after(rig, kind, moment, all, verdicts);
        }
    });
}

fn cut_mounts_after(rig: &Rig, kind: Kind, moment: &Moment, all: bool, verdicts: &mut Verdicts) {
    for (first, cut) in chosen(rig, moment.next, moment.index, all) {
        let here = format!("{}/{}/{}/{first}/mount", rig.path(), kind.name(), moment.index);
        if !rig::wanted(&here) {
            continue;
        }
        let store = cuts::strike(rig, moment.store, moment.next, cut);
        let changes = match cuts::record_mount(rig, &store) {
            Ok(changes) => changes,
            Err(why) => return verdicts.case(&here, || Err(why)),
        };
        cuts::visit_mount(&store, &changes, |index, store, next| {
            for (second, cut) in chosen(rig, next, index + moment.index, all) {
                verdicts.case(&format!("{here}/{index}/{second}"), || {
                    let store = cuts::strike(rig, store, next, cut);
                    cuts::survive(rig, store, moment.model.clone(), index as u64).map(drop)
                });
            }
        });
    }
}

/// Every row of four requests on two pages of a full device, cut everywhere: small scopes find most mistakes. The short form
/// takes every second row of three.
#[test]
fn every_short_row_of_requests_may_be_cut() {
    const ALPHABET: [HostOp; 7] = [
        HostOp::Write { lpn: 0, count: 1, fua: false },
        HostOp::Write { lpn: 1, count: 1, fua: false },
        HostOp::Write { lpn: 0, count: 2, fua: false },
        HostOp::Write { lpn: 1, count: 1, fua: true },
        HostOp::Trim { lpn: 0, count: 2 },
        HostOp::WriteZeroes { lpn: 0, count: 1, fua: true },
        HostOp::Flush,
    ];
    let length = if rig::long() { 4 } else { 3 };
    for (scheme, cells) in rig::matrix() {
        let rig = rig_of(scheme, cells);
        let mut verdicts = Verdicts::new("power_cut");
        let (store, model) = aged(&rig, Kind::FullDisk, false);
        let every = if rig::long() { 1 } else { 2 };
        for number in (0..ALPHABET.len().pow(length)).step_by(every) {
            let here = format!("{}/row/{number}", rig.path());
            if !rig::wanted(&here) {
                continue;
            }
            let row = (0..length).map(|i| ALPHABET[number / ALPHABET.len().pow(i) % ALPHABET.len()]);
            let mut host = Host::over(&rig, rig.mount(rig.open(store.clone())).expect("it mounts"), model.clone());
            host.settle_all().expect("nothing is lost before the row");
            host.set_step(1 << 20);
            Recording::of(host, row, |_| false).visit(|moment| {
                for (outcome, cut) in chosen(&rig, moment.next, moment.index + number, false) {
                    verdicts.case(&format!("{here}/{}/{outcome}", moment.index), || {
                        let store = cuts::strike(&rig, moment.store, moment.next, cut);
                        cuts::survive(&rig, store, moment.model.clone(), 7).map(drop)
                    });
                }
            });
        }
        println!("{}: {} cuts in short rows, {} failed", rig.path(), verdicts.cases, verdicts.failures);
        verdicts.assert_none_failed();
    }
}

/// Cut after cut on a device whose every page is mapped and that has all the bad blocks its data sheet allows, with no clean stop between: it always mounts and always takes writes.
#[test]
fn a_full_device_stays_writable_through_cuts_in_a_row() {
    let cuts = if rig::long() { 1_000 } else { 100 };
    for (scheme, cells) in rig::matrix() {
        in_a_row(&rig_of(scheme, cells), cuts);
    }
}

/// The same on chips as they are sold: large blocks, where a cut leaves much of a block unused.
#[test]
fn a_real_chip_stays_writable_through_cuts_in_a_row() {
    let cuts = if rig::long() { 1_000 } else { 40 };
    for (scheme, cells) in rig::matrix() {
        let name = if cells == Cells::Mlc { "mlc-4k" } else { "slc-2k" };
        let profile = *nand_model::Profile::find(name).expect("a built-in profile");
        let mut params = Params::default();
        params.set("ckpt.interval", "700");
        in_a_row(&Rig::on_profile(scheme, cells, profile, 1024, params).variant(name, |_| {}), cuts);
    }
}

fn in_a_row(rig: &Rig, cuts: u32) {
    let mut verdicts = Verdicts::new("power_cut");
    let (mut least_free, mut least_found) = (u32::MAX, u32::MAX);
    let pages = rig.config.logical_pages;
    verdicts.case(&format!("{}/in_a_row", rig.path()), || {
        let mut host = Host::format_at_end_of_life(rig);
        for lpn in 0..pages {
            host.run(&HostOp::Write { lpn, count: 1, fua: false })?;
        }
        host.run(&HostOp::Flush)?;
        let mut rng = SplitMix::new(rig.seed);
        let mut workload = Workload::new(Kind::FullDisk, pages, rig.seed);
        for number in 0..cuts {
            host = one_of_many(rig, host, &mut workload, &mut rng).map_err(|why| format!("cut {number}: {why}"))?;
            let stats = host.ftl.stats();
            least_free = least_free.min(stats.blocks.free);
            least_found = least_found.min(stats.mount.free_blocks);
        }
        Ok(())
    });
    if verdicts.cases > 0 {
        println!("{}: {cuts} cuts in a row; mounts found {least_found} free blocks and left {least_free}", rig.path());
    }
    verdicts.assert_none_failed();
}

/// Runs requests until a cut strikes, soon; mounts, sometimes with another cut inside the mount.
fn one_of_many<'a>(
    rig: &'a Rig,
    mut host: Host<'a>,
    workload: &mut Workload,
    rng: &mut SplitMix,
) -> Result<Host<'a>, String> {
    // A mount needs a few programs itself; many cuts come so soon that nothing but mounts happened since the last.
    let distance = [3, 12, 60, 400][rng.below(4) as usize];
    let menu = Cut::menu(rng.below(distance), rng.next_u64());
    let cut = menu[rng.below(menu.len() as u64) as usize];
    host.set_faults(FaultPlan { cut: Some(cut), ..FaultPlan::default() });
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
    while rng.one_in(4) {
        let changes = cuts::record_mount(rig, &store)?;
        let operations = changes.iter().filter(|c| matches!(c, Change::Program { .. } | Change::Erase { .. })).count();
        if operations == 0 {
            break;
        }
        let target = rng.below(operations as u64) as usize;
        let mut struck = None;
        cuts::visit_mount(&store, &changes, |index, store, next| {
            if index == target {
                let menu = cuts::outcomes(rig, next, rng.next_u64());
                struck = Some(cuts::strike(rig, store, next, menu[rng.below(menu.len() as u64) as usize]));
            }
        });
        store = struck.expect("the operation exists");
    }
    let ftl = rig.mount(rig.open(store)).map_err(|error| format!("mount: {error}"))?;
    let mut host = Host::over(rig, ftl, model);
    host.set_step(step);
    host.check()?;
    host.settle_all()?;
    Ok(host)
}

/// Each checkpoint block in turn cannot be read any more: what it said is still true.
#[test]
fn any_checkpoint_block_may_be_lost() {
    for (scheme, cells) in rig::matrix() {
        let rig = rig_of(scheme, cells);
        let mut verdicts = Verdicts::new("power_cut");
        for kind in Kind::ALL {
            for clean in [true, false] {
                let here = format!("{}/{}/checkpoint_{}", rig.path(), kind.name(), if clean { "clean" } else { "cut" });
                if !rig::wanted(&here) {
                    continue;
                }
                let (store, model) = aged(&rig, kind, clean);
                for block in checkpoint_blocks(&rig, &store) {
                    verdicts.case(&format!("{here}/{block}"), || {
                        let store = unreadable(&rig, store.clone(), block);
                        cuts::survive(&rig, store, model.clone(), block.raw() as u64).map(drop)
                    });
                }
            }
        }
        println!("{}: {} checkpoint blocks lost, {} failed", rig.path(), verdicts.cases, verdicts.failures);
        assert!(verdicts.cases > 0 || !rig::wanted(&rig.path()), "{}: no checkpoint block was found", rig.path());
        verdicts.assert_none_failed();
    }
}

/// The flash after 600 requests, and what it may hold.
fn aged(rig: &Rig, kind: Kind, clean: bool) -> (MemStore, ftld_tests::model::Model) {
    let mut host = Host::format(rig);
    for op in Workload::new(kind, PAGES, rig.seed).take(600) {
        host.run(&op).unwrap_or_else(|trouble| panic!("{op:?}: {}", String::from(trouble)));
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
        let head = chip.read_oob(0, geometry.page(*block, 0), &mut oob, nand_model::Cause::Recovery);
        head.is_ok() && Oob::decode(&oob).is_some_and(|oob| oob.tag.role == Role::Checkpoint)
    };
    geometry.all_blocks().filter(|block| is_checkpoint(block)).collect()
}

fn unreadable(rig: &Rig, mut store: MemStore, block: Pbn) -> MemStore {
    use nand_model::Store;
    let frontier = rig.open(store.clone()).frontier(block);
    let first = rig.profile.geometry.page(block, 0);
    for offset in 0..frontier {
        store.set_health(Ppn::new(first.raw() + offset), Health::Lost).expect("memory does not fail");
    }
    store
}
