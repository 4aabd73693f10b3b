//! Each session of the scrub began at a block that the number of the last program gave. Sessions
//! shorter than `scrub.hours` that wrote nothing and ended with a kill read the same blocks again
//! and again, and others never: their data decayed unseen.

use ftl_core::Ftl;
use ftl_core::schemes::SCHEMES;
use ftl_core::{BlockUse, FtlError};
use ftld_battery::host::Host;
use ftld_battery::rig::{Cells, Rig, has_param};
use ftld_battery::workload::{Kind, Workload};
use ftld_tests::suite;
use nand_model::{Chip, FaultPlan, Pbn};

const PAGES: u32 = 192;
/// Hours of a session: a twelfth of a round of the scrub.
const HOURS: u32 = 14;

#[test]
fn sessions_shorter_than_a_round_of_the_scrub_read_every_block() {
    for scheme in SCHEMES
        .iter()
        .filter(|scheme| has_param(scheme, "scrub.hours"))
    {
        let rig = Rig::new(scheme, Cells::Mlc, PAGES, suite::seed());
        let mut verdicts = suite::verdicts("regressions", scheme);
        verdicts.case(&format!("{}/scrub_of_short_sessions", rig.path()), || {
            let unread = sessions(&rig)?;
            match unread.is_empty() {
                true => Ok(()),
                false => Err(format!("a week of sessions read none of {unread:?}")),
            }
        });
        verdicts.assert_none_failed();
    }
}

fn is_full(ftl: &dyn Ftl, block: Pbn) -> bool {
    let view = ftl.block(block);
    view.valid > 0 && view.used != BlockUse::Open
}

/// Uses a device for 13 sessions. Returns the blocks with data that none of them read in idle time.
fn sessions(rig: &Rig) -> Result<Vec<Pbn>, String> {
    let told = |error: FtlError| error.to_string();
    let mut host = Host::format(rig);
    for op in Workload::new(Kind::FullDisk, PAGES, rig.seed).take(300) {
        host.run(&op).map_err(String::from)?;
    }
    host.ftl.flush(0).map_err(told)?;
    let mut chip: Chip = host.cut_power().0;
    let blocks: Vec<Pbn> = rig.profile.geometry.all_blocks().collect();
    let mut unread = blocks.clone();
    for _ in 0..13 {
        chip = rig.open(chip.into_store());
        chip.set_faults(FaultPlan {
            bit_errors: 1.0,
            seed: rig.seed,
            ..FaultPlan::default()
        });
        let mut ftl = rig.mount(chip).map_err(told)?;
        let reads = |ftl: &dyn Ftl| -> Vec<u32> {
            let chip = ftl.chip();
            blocks.iter().map(|b| chip.exposure(0, *b).1).collect()
        };
        ftl.chip_mut().age(HOURS);
        let before = reads(&*ftl);
        while ftl.idle(0, 64).map_err(told)? {}
        let after = reads(&*ftl);
        unread.retain(|b| is_full(&*ftl, *b) && after[b.index()] == before[b.index()]);
        chip = ftl.into_chip();
    }
    Ok(unread)
}
