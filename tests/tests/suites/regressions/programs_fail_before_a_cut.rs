//! Programs failed in a row until no block was free, and then power failed. The mount had no block
//! to rewrite the pages that the cut had left unstable: after a few reads, a flushed page could not
//! be read any more. Found by the swarm, on ASAST.

use ftl_core::FtlError;
use ftld_battery::host::{Host, Trouble};
use ftld_battery::rig::Rig;
use ftld_battery::workload::{Kind, Workload};
use ftld_tests::suite;
use nand_model::{Cut, Fault, FaultPlan};

const PAGES: u32 = 192;
/// Share of the programs that fail, in parts per billion.
const FAILING: u32 = 750_000_000;

#[test]
fn pages_that_a_cut_left_unstable_are_rewritten_though_programs_used_up_the_blocks() {
    let (mut used_up, mut rewritten) = (0, 0);
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, PAGES, suite::seed());
        let mut verdicts = suite::verdicts("regressions", scheme);
        for round in 0..if suite::long() { 400 } else { 24 } {
            let here = format!("{}/programs_fail_before_a_cut/{round}", rig.path());
            verdicts.case(&here, || {
                let (no_free_block, pages) = fail_and_cut(&rig, round)?;
                used_up += u32::from(no_free_block);
                rewritten += if no_free_block { pages } else { 0 };
                Ok(())
            });
        }
        verdicts.assert_none_failed();
    }
    println!(
        "{used_up} mounts found no free block but those kept for them, and rewrote or discarded {rewritten} pages"
    );
    assert!(
        (used_up > 20 && rewritten > 15) || std::env::var_os("FTLD_CASE").is_some(),
        "{used_up} mounts found no free block but those kept for them, and rewrote or discarded {rewritten} pages"
    );
}

/// Returns whether the mount found no free block but those kept for it, and the pages that it
/// rewrote or discarded.
fn fail_and_cut(rig: &Rig, round: u64) -> Result<(bool, u64), String> {
    let mut host = Host::format(rig);
    let workload = Workload::new(Kind::FullDisk, PAGES, rig.seed + round);
    let mut requests = workload.take(1000);
    for op in requests.by_ref().take(700 + round as usize) {
        host.run(&op).map_err(String::from)?;
    }
    let menu = Cut::menu(3 + round % 12, round);
    host.set_faults(FaultPlan {
        cut: Some(menu[round as usize % menu.len()]),
        rates: [(Fault::ProgramFail, FAILING)].into(),
        seed: round,
        ..FaultPlan::default()
    });
    for op in requests {
        match host.run(&op) {
            Ok(()) => {}
            Err(Trouble::Refused(FtlError::ReadOnly(_) | FtlError::PowerLost)) => break,
            Err(trouble) => return Err(trouble.into()),
        }
    }
    let (step, (chip, model)) = (host.step(), host.cut_power());
    let mounted = rig.mount(rig.open(chip.into_store()));
    let mounted = mounted.map_err(|error| format!("mount: {error}"))?;
    let found = mounted.stats().mount;
    let mut host = Host::over(rig, mounted, model);
    host.set_step(step);
    // Unstable pages change after some reads, unless the mount rewrote them.
    for _ in 0..10 {
        host.settle_all()?;
    }
    host.check()?;
    Ok((found.free_blocks == 0, found.pages_discarded))
}
