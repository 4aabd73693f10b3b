//! A page had torn data and a readable record, at a position before pages that were programmed
//! earlier. The mount skipped it, relocated the others and erased the block. A cut interrupted that
//! erase and left only the torn page's record. Without later pages, the record no longer looked
//! like the last program of its block. The next mount took it without reading the data, and
//! discarded the version that it would replace. Found by the 937th of a thousand cuts in a row, on
//! NFTL-N.

use ftld_battery::cuts::{self, Moment, Recording};
use ftld_battery::host::Host;
use ftld_battery::rig::{Cells, Rig};
use ftld_battery::verdicts::Verdicts;
use ftld_battery::workload::{Kind, Workload};
use ftld_tests::suite;
use nand_model::store::{Change, MemStore};
use nand_model::{Cut, EraseCut, Health, PartnerCut, Ppn, ProgramCut, Store};

const TORN: Cut = Cut {
    at_op: 0,
    program: ProgramCut::DataTorn,
    partner: PartnerCut::Intact,
    erase: EraseCut::Complete,
    seed: 1,
};

const PAGES: u32 = 128;
/// Requests between the first cut and the second.
const REQUESTS: usize = 60;
/// First version of the requests after the mount.
const AFTER_MOUNT: u64 = 1 << 20;

#[test]
fn mount_rejects_torn_page_alone_in_block() {
    let mut struck = 0;
    for (scheme, cells) in suite::matrix().filter(|(_, cells)| *cells == Cells::Slc) {
        let rig = Rig::new(scheme, cells, PAGES, suite::seed()).set("ckpt.interval", "250");
        let mut verdicts = suite::verdicts("regressions", scheme);
        for kind in [Kind::FullDisk, Kind::HotCold, Kind::Uniform] {
            cuts::record(&rig, kind).visit(|moment| {
                let here = format!(
                    "{}/torn_page_left_alone/{}/{}",
                    rig.path(),
                    kind.name(),
                    moment.index
                );
                if goes_before_others(&rig, moment) && verdicts.draws(&here) {
                    cut_twice(&rig, moment, kind, &here, &mut verdicts);
                }
            });
        }
        println!(
            "{}: {} erases that left a torn page; {}",
            rig.path(),
            verdicts.cases,
            verdicts.sample()
        );
        struck += verdicts.cases;
        verdicts.assert_none_failed();
    }
    // Only schemes with a fixed position for every page in its block program out of order.
    assert!(
        struck >= 20 || std::env::var_os("FTLD_CASE").is_some(),
        "{struck} erases left a torn page"
    );
}

/// Returns whether the next operation programs a page before an already programmed one.
fn goes_before_others(rig: &Rig, moment: &Moment) -> bool {
    let Change::Program { ppn, .. } = moment.next else {
        return false;
    };
    let geometry = rig.profile.geometry;
    let chip = rig.open(moment.store.clone());
    geometry.offset_of(*ppn) + 1 < chip.frontier(geometry.block_of(*ppn))
}

/// Tears the page, mounts the device and writes to it. Then power fails in an erase of the page's
/// block, after which no other page of the block is readable.
fn cut_twice(rig: &Rig, moment: &Moment, kind: Kind, here: &str, verdicts: &mut Verdicts) {
    let Change::Program { ppn: torn, .. } = moment.next else {
        unreachable!("a program was looked for")
    };
    let mounted = || {
        let store = cuts::cut_during(rig, moment.store, moment.next, TORN);
        let ftl = rig
            .mount(rig.open(store))
            .map_err(|error| format!("mount: {error}"))?;
        let mut host = Host::over(rig, ftl, moment.model.clone());
        host.settle_all()?;
        host.set_step(AFTER_MOUNT);
        Ok::<_, String>(host)
    };
    let host = match mounted() {
        Ok(host) => host,
        Err(why) => return verdicts.case(here, || Err(why)),
    };
    let requests = Workload::new(kind, PAGES, rig.seed + 1).take(REQUESTS);
    let mut erased = false;
    Recording::of(host, requests, |_| false).visit(|later| {
        let its_block = rig.profile.geometry.block_of(*torn);
        if !erased && matches!(later.next, Change::Erase { block, .. } if *block == its_block) {
            // After the erase the page is reused.
            erased = true;
            verdicts.case(&format!("{here}/{}", later.index), || {
                cuts::survive(rig, alone(rig, later.store, *torn), later.model.clone(), 1).map(drop)
            });
        }
    });
}

/// Returns the flash with no other readable page in the block of this one.
fn alone(rig: &Rig, store: &MemStore, page: Ppn) -> MemStore {
    let geometry = rig.profile.geometry;
    let chip = rig.open(store.clone());
    let mut left = store.clone();
    for offset in 0..geometry.pages_per_block {
        let other = geometry.page(geometry.block_of(page), offset);
        if other != page && chip.is_programmed(other) {
            left.set_health(other, Health::Lost)
                .expect("memory does not fail");
        }
    }
    left
}
