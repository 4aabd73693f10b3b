//! A mount opens a block to rewrite pages that the cut may have damaged, and never continues the
//! open blocks. It ran no GC, so five cuts soon after five mounts used up the free blocks and the
//! device rejected writes.

use ftld_battery::host::Host;
use ftld_battery::rig::Rig;
use ftld_battery::workload::HostOp;
use ftld_tests::suite;
use nand_model::{Cut, FaultPlan};

#[test]
fn cuts_soon_after_mounts_leave_free_blocks() {
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, 128, suite::seed());
        let mut verdicts = suite::verdicts("regressions", scheme);
        verdicts.case(&format!("{}/mounts_in_a_row", rig.path()), || {
            let mut host = Host::format(&rig);
            for lpn in 0..128 {
                host.run(&HostOp::Write {
                    lpn,
                    count: 1,
                    fua: false,
                })?;
            }
            for number in 0..40 {
                let cut = Cut::menu(2, number)[number as usize % 14];
                host.set_faults(FaultPlan {
                    cut: Some(cut),
                    ..FaultPlan::default()
                });
                while host
                    .run(&HostOp::Write {
                        lpn: number as u32,
                        count: 1,
                        fua: false,
                    })
                    .is_ok()
                {}
                host = host
                    .remount()
                    .map_err(|why| format!("cut {number}: {why}"))?;
                host.settle_all()?;
            }
            host.run(&HostOp::Write {
                lpn: 5,
                count: 1,
                fua: true,
            })?;
            host.check()
        });
        verdicts.assert_none_failed();
    }
}
