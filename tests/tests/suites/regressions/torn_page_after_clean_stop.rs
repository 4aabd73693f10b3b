//! A cut tore the data of a page and left its record. The mount read the page, skipped it and took
//! the version before it. A clean shutdown followed. The next mount found every block as the clean
//! shutdown had left it and trusted the record without reading the page. The logical page became
//! unreadable, flushed or not. Found by SQLite under power cuts, on NFTL-1 and ROSE.

use ftld_battery::host::Host;
use ftld_battery::rig::Rig;
use ftld_battery::workload::HostOp;
use ftld_tests::suite;
use nand_model::{Cut, EraseCut, FaultPlan, PartnerCut, ProgramCut};

const PAGES: u32 = 128;
/// Programs and erases before the cut.
const CUTS: u64 = 12;

#[test]
fn mount_rejects_torn_page_after_clean_stop() {
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, PAGES, suite::seed());
        let mut verdicts = suite::verdicts("regressions", scheme);
        for at_op in 0..CUTS {
            let here = format!("{}/torn_page_after_clean_stop/{at_op}", rig.path());
            verdicts.case(&here, || {
                let mut host = Host::format(&rig);
                for lpn in 0..PAGES {
                    host.run(&HostOp::Write {
                        lpn,
                        count: 1,
                        fua: false,
                    })?;
                }
                host.run(&HostOp::Flush)?;
                let (program, partner) = (ProgramCut::DataTorn, PartnerCut::Intact);
                let cut = Cut {
                    at_op,
                    program,
                    partner,
                    erase: EraseCut::Complete,
                    seed: 1,
                };
                host.set_faults(FaultPlan {
                    cut: Some(cut),
                    ..FaultPlan::default()
                });
                let mut pages = (0..).map(|number| number * 37 % PAGES);
                while host
                    .run(&HostOp::Write {
                        lpn: pages.next().unwrap_or(0),
                        count: 1,
                        fua: false,
                    })
                    .is_ok()
                {}
                host = host.remount()?;
                host.settle_all()?;
                host.ftl
                    .shutdown(0)
                    .map_err(|error| format!("shutdown: {error}"))?;
                host = host.remount()?;
                Ok(host.compare_all()?)
            });
        }
        verdicts.assert_none_failed();
    }
}
