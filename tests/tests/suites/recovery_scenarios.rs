//! Named recovery scenarios, a few lines each. `ftld_battery` contains the common code; the name of
//! a test describes its event.

use ftl_core::format::{Oob, Role};
use ftl_core::schemes::Scheme;
use ftld_battery::host::Host;
use ftld_battery::rig::{Cells, Rig};
use ftld_battery::workload::{HostOp, Kind, Workload};
use ftld_tests::suite;
use nand_model::{Cause, Cut, EraseCut, FaultPlan, PartnerCut, ProgramCut};

const PAGES: u32 = 192;

fn scenarios(cells: &[Cells], name: &str, scenario: impl Fn(&Rig) -> Result<(), String>) {
    let mut verdicts = suite::verdicts_of_all("recovery_scenarios");
    for (scheme, kind) in suite::matrix() {
        if cells.contains(&kind) {
            let rig = rig_of(scheme, kind);
            verdicts.case(&format!("{}/{name}", rig.path()), || scenario(&rig));
        }
    }
    assert!(
        verdicts.cases > 0 || std::env::var_os("FTLD_CASE").is_some(),
        "no scheme was tried"
    );
    verdicts.assert_none_failed();
}

fn rig_of(scheme: &'static Scheme, cells: Cells) -> Rig {
    Rig::new(scheme, cells, PAGES, suite::seed()).set("ckpt.interval", "300")
}

fn write(lpn: u32) -> HostOp {
    HostOp::Write {
        lpn,
        count: 1,
        fua: false,
    }
}

fn at(at_op: u64, program: ProgramCut, partner: PartnerCut, erase: EraseCut) -> FaultPlan {
    FaultPlan {
        cut: Some(Cut {
            at_op,
            program,
            partner,
            erase,
            seed: at_op,
        }),
        ..FaultPlan::default()
    }
}

/// Runs requests in sequence until the power cut.
fn until_dark(host: &mut Host, mut next: impl FnMut() -> HostOp) -> Result<(), String> {
    loop {
        let op = next();
        match host.run(&op) {
            Err(_) if !host.ftl.chip().powered() => return Ok(()),
            other => other?,
        }
    }
}

fn filled(rig: &Rig) -> Result<Host<'_>, String> {
    let mut host = Host::format(rig);
    (0..PAGES).try_for_each(|lpn| host.run(&write(lpn)))?;
    host.run(&HostOp::Flush)?;
    Ok(host)
}

#[test]
fn a_cut_before_the_first_write_leaves_a_writable_device() {
    scenarios(&Cells::ALL, "empty", |rig| {
        let mut host = Host::format(rig).remount()?;
        host.settle_all()?;
        host.run(&write(0))?;
        host.check()
    });
}

#[test]
fn flushed_page_survives_a_cut_in_a_program_of_its_word_line() {
    scenarios(&[Cells::Mlc], "word_line", |rig| {
        for later in 0..12 {
            let mut host = filled(rig)?;
            host.run(&write(3))?;
            host.run(&HostOp::Flush)?;
            host.set_faults(at(
                later,
                ProgramCut::RandomBits,
                PartnerCut::Destroyed,
                EraseCut::Complete,
            ));
            let mut lpn = 10;
            until_dark(&mut host, || {
                lpn += 1;
                write(lpn)
            })?;
            host = host.remount()?;
            host.settle_all()
                .map_err(|why| format!("cut {later} programs later: {why}"))?;
        }
        Ok(())
    });
}

#[test]
fn a_cut_after_every_flush_loses_nothing_flushed() {
    scenarios(&Cells::ALL, "flush_then_cut", |rig| {
        let mut host = filled(rig)?;
        for round in 0..60 {
            host.run(&write(round % PAGES))?;
            host.run(&HostOp::Flush)?;
            host.set_faults(at(
                0,
                ProgramCut::DataTorn,
                PartnerCut::Destroyed,
                EraseCut::Mixed,
            ));
            until_dark(&mut host, || write(round % PAGES + 1))?;
            host = host
                .remount()
                .map_err(|why| format!("round {round}: {why}"))?;
            host.settle_all()
                .map_err(|why| format!("round {round}: {why}"))?;
        }
        host.check()
    });
}

#[test]
fn erase_that_only_looks_complete_loses_nothing_flushed_later() {
    scenarios(&Cells::ALL, "looks_blank", |rig| {
        let mut host = filled(rig)?;
        for round in 0..12 {
            let mut workload = Workload::new(Kind::FullDisk, PAGES, round);
            // Wait for an erase: programs before it succeed.
            let before = host.ftl.chip().counters().total().erases;
            while host.ftl.chip().counters().total().erases == before {
                host.run(&workload.next().expect("endless"))?;
            }
            host.set_faults(at(
                20,
                ProgramCut::Unstable(2),
                PartnerCut::Intact,
                EraseCut::LooksBlank,
            ));
            until_dark(&mut host, || workload.next().expect("endless"))?;
            host = host.remount()?;
            host.settle_all()?;
        }
        host.check()
    });
}

#[test]
fn flushed_trims_read_as_zeros_after_collections_and_cuts() {
    scenarios(&Cells::ALL, "trimmed", |rig| {
        let mut host = filled(rig)?;
        host.run(&HostOp::Trim { lpn: 40, count: 30 })?;
        host.run(&HostOp::Flush)?;
        for round in 0..25u32 {
            for i in 0..40 {
                host.run(&write((round * 7 + i * 3) % 40))?;
            }
            host = host.remount()?;
            host.settle_all()
                .map_err(|why| format!("round {round}: {why}"))?;
        }
        host.check()
    });
}

#[test]
fn fully_trimmed_device_mounts_empty() {
    scenarios(&Cells::ALL, "trim_all", |rig| {
        let mut host = filled(rig)?;
        host.run(&HostOp::Trim {
            lpn: 0,
            count: PAGES,
        })?;
        host.run(&HostOp::Flush)?;
        for _ in 0..3 {
            host = host.remount()?;
            host.settle_all()?;
            let mapped = host.ftl.stats().mapped_pages;
            if mapped != 0 {
                return Err(format!("{mapped} pages are mapped"));
            }
        }
        (0..PAGES).try_for_each(|lpn| host.run(&write(lpn)))?;
        Ok(host.compare_all()?)
    });
}

#[test]
fn loss_of_the_first_page_of_open_blocks_loses_nothing_flushed() {
    scenarios(&Cells::ALL, "heads_lost", |rig| {
        // The first readable page of a block determines its role and age.
        let mut host = filled(rig)?;
        for offset in 0..rig.profile.geometry.pages_per_block {
            host.set_faults(at(
                0,
                ProgramCut::OobTorn,
                PartnerCut::Destroyed,
                EraseCut::NotStarted,
            ));
            until_dark(&mut host, || write(offset))?;
            host = host.remount()?;
            host.settle_all()?;
            (0..offset).try_for_each(|lpn| host.run(&write(lpn)))?;
        }
        host.check()
    });
}

#[test]
fn a_cut_after_a_clean_stop_is_an_unclean_mount_and_loses_nothing_flushed() {
    scenarios(&Cells::ALL, "clean_then_not", |rig| {
        let mut host = filled(rig)?;
        host.ftl.shutdown(0).map_err(|error| error.to_string())?;
        host = host.remount()?;
        host.run(&HostOp::Write {
            lpn: 7,
            count: 1,
            fua: true,
        })?;
        host = host.remount()?;
        if host.ftl.stats().mount.clean {
            return Err("a mount after a cut calls itself clean".into());
        }
        host.settle_all()?;
        host.check()
    });
}

#[test]
fn device_used_after_shutdown_mounts_with_all_flushed_data() {
    scenarios(&Cells::ALL, "put_off", |rig| {
        let mut host = filled(rig)?;
        for round in 0..8 {
            host.ftl.shutdown(0).map_err(|error| error.to_string())?;
            host.model.flushed();
            for op in Workload::new(Kind::TrimHeavy, PAGES, round).take(round as usize * 9) {
                host.run(&op)?;
            }
            host = host.remount()?;
            host.settle_all()
                .map_err(|why| format!("round {round}: {why}"))?;
        }
        host.check()
    });
}

#[test]
fn repeated_mounts_without_writes_find_equal_content() {
    scenarios(&Cells::ALL, "idempotent", |rig| {
        let mut host = filled(rig)?;
        host.set_faults(at(
            90,
            ProgramCut::Unstable(2),
            PartnerCut::Intact,
            EraseCut::Mixed,
        ));
        let mut workload = Workload::new(Kind::Mixed, PAGES, rig.seed).skip(60);
        until_dark(&mut host, || workload.next().expect("endless"))?;
        for _ in 0..20 {
            host = host.remount()?;
            host.settle_all()?;
            host.check()?;
        }
        Ok(())
    });
}

#[test]
fn uncorrectable_data_is_an_error() {
    scenarios(&Cells::ALL, "uncorrectable", |rig| {
        use nand_model::{Health, Store};
        let mut host = filled(rig)?;
        let geometry = rig.profile.geometry;
        let (mut chip, model) = {
            host.ftl.shutdown(0).map_err(|error| error.to_string())?;
            host.cut_power()
        };
        let mut unreadable = Vec::new();
        for block in geometry.all_blocks().step_by(3) {
            let ppn = geometry.page(block, 5);
            let mut oob = [0; 26];
            let read = chip.read_oob(0, ppn, &mut oob, Cause::Host);
            let data = Oob::decode(&oob).filter(|oob| {
                read.is_ok() && matches!(oob.tag.role, Role::Data | Role::Update | Role::Log)
            });
            if let Some(oob) = data {
                chip.store_mut()
                    .set_health(ppn, Health::DataLost)
                    .expect("memory does not fail");
                unreadable.push(oob.tag.lpn);
            }
        }
        let mut host = Host::over(
            rig,
            rig.mount(chip).map_err(|error| error.to_string())?,
            model,
        );
        host.set_step(1 << 20);
        let errors = (0..PAGES)
            .filter(|lpn| host.compare(*lpn, 1).is_err())
            .collect::<Vec<_>>();
        let wrong = (0..PAGES).find_map(|lpn| match host.compare(lpn, 1) {
            Err(ftld_battery::host::Trouble::Wrong(what)) => Some(what),
            _ => None,
        });
        if let Some(what) = wrong {
            return Err(what);
        }
        if errors.is_empty() || errors.iter().any(|lpn| !unreadable.contains(lpn)) {
            return Err(format!(
                "pages {unreadable:?} are uncorrectable, {errors:?} cannot be read"
            ));
        }
        // Relocation must not turn the error into old or zero data; a rewrite repairs it.
        for round in 0..3 * PAGES {
            let lpn = round * 29 % PAGES;
            if !errors.contains(&lpn) {
                host.run(&write(lpn))?;
            }
        }
        if let Some(lpn) = errors.iter().find(|lpn| host.read(**lpn, 1).is_ok()) {
            return Err(format!("page {lpn} was lost and reads as something again"));
        }
        errors.iter().try_for_each(|lpn| host.run(&write(*lpn)))?;
        host.compare_all()?;
        host.check()
    });
}
