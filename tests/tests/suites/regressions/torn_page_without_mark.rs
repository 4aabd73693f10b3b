//! Power failed in a program of the emulated flash, then the host crashed before the image was
//! synced. The image stored a torn page in two writes: its record, with checks of the torn bytes,
//! and its health mark. The host's disk kept the first write and lost the second. The torn page
//! read as a valid one and hid the older version, which a FLUSH had made durable. In the same way
//! the mark of its LSB page survived without the MSB program that had set it, so no mount suspected
//! that page.

use ftld_battery::crashes::{self, rig_of};
use ftld_battery::workload::Kind;
use ftld_tests::suite;
use nand_model::{Cut, ProgramCut, SplitMix};

#[test]
fn host_crash_keeps_no_torn_page_without_its_mark() {
    let cuts = if suite::long() { 400 } else { 24 };
    for (scheme, cells) in suite::matrix() {
        let rig = rig_of(scheme, cells, &suite::budget(scheme));
        let mut verdicts = suite::verdicts("regressions", scheme);
        let mut rng = SplitMix::new(rig.seed);
        for number in 0..cuts {
            let here = format!("{}/torn_page_without_mark/{number}", rig.path());
            let kind = [Kind::FullDisk, Kind::Mixed, Kind::Uniform][number / 2 % 3];
            let (requests, at_op, seed) =
                (100 + rng.below(60) as usize, rng.below(12), rng.next_u64());
            let menu = Cut::menu(at_op, seed);
            let drawn = menu[rng.below(menu.len() as u64) as usize];
            // A mount takes a torn page with a readable record for the newest version.
            let program = if number % 4 < 2 {
                ProgramCut::DataTorn
            } else {
                drawn.program
            };
            let cut = Cut { program, ..drawn };
            if verdicts.draws(&here) {
                crashes::crash_after_cut(&rig, kind, requests, cut, &here, &mut verdicts);
            }
        }
        println!(
            "{}: {} states, {} failed; {}",
            rig.path(),
            verdicts.cases,
            verdicts.failures,
            verdicts.sample()
        );
        verdicts.assert_none_failed();
    }
}
