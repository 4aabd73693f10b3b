//! The host's file system was full while padding made a checkpoint's last page safe. The checkpoint
//! counted all its pages as written but was incomplete, and the next host write requested a page
//! beyond its end: a panic.

use ftl_core::FtlError;
use ftld_battery::host::{Host, Trouble};
use ftld_battery::rig::Rig;
use ftld_battery::workload::HostOp;
use ftld_tests::suite;

const PAGES: u32 = 64;

#[test]
fn full_host_at_any_program_fails_requests_and_loses_nothing() {
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, PAGES, suite::seed()).set("ckpt.interval", "40");
        let mut verdicts = suite::verdicts("regressions", scheme);
        for room in 0..200 {
            verdicts.case(&format!("{}/host_full/{room}", rig.path()), || {
                full_after(&rig, room)
            });
        }
        verdicts.assert_none_failed();
    }
}

fn full_after(rig: &Rig, room: u64) -> Result<(), String> {
    let mut host = Host::format(rig);
    host.memory().set_room(Some(room));
    for number in 0..200 {
        let op = HostOp::Write {
            lpn: number * 7 % PAGES,
            count: 1,
            fua: number % 9 == 0,
        };
        match host.run(&op) {
            Err(Trouble::Refused(FtlError::HostFull)) => {
                host.memory().set_room(None);
                host.run(&op)?;
            }
            other => other?,
        }
    }
    host.check()?;
    host.ftl.shutdown(0).map_err(|error| error.to_string())?;
    host.model.flushed();
    let mut host = host.remount()?;
    host.check()?;
    host.settle_all()
}
