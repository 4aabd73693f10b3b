//! The last page programmed before a cut may be unstable: readable now and lost soon. A mount reads
//! it and rewrites it. It used to erase blocks without valid pages first, among them the block with
//! the page's flushed predecessor. A second cut between that erase and the rewrite lost both.

use ftld_battery::cuts::{self, Recording};
use ftld_battery::rig::Rig;
use ftld_battery::verdicts::Verdicts;
use ftld_battery::workload::Kind;
use ftld_tests::suite;
use nand_model::store::Change;
use nand_model::{Cut, EraseCut, PartnerCut, ProgramCut};

const FIRST: Cut = Cut {
    at_op: 0,
    program: ProgramCut::Unstable(2),
    partner: PartnerCut::Intact,
    erase: EraseCut::Complete,
    seed: 1,
};
const SECOND: Cut = Cut {
    program: ProgramCut::Prefix,
    ..FIRST
};

#[test]
fn unstable_page_is_rewritten_before_its_older_version_is_erased() {
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, 128, suite::seed()).set("ckpt.interval", "250");
        let mut verdicts = suite::verdicts("regressions", scheme);
        for kind in [Kind::FullDisk, Kind::HotCold, Kind::TrimHeavy] {
            let recording = cuts::record(&rig, kind);
            cut_twice(&rig, &recording, &mut verdicts, kind);
        }
        println!(
            "{}: {} cuts after an erase inside a mount; {}",
            rig.path(),
            verdicts.cases,
            verdicts.sample()
        );
        let enough = verdicts.cases > 100 * verdicts.drawn / verdicts.places.max(1);
        assert!(
            enough || !suite::wanted(&rig.path()),
            "{}: {} cases",
            rig.path(),
            verdicts.cases
        );
        verdicts.assert_none_failed();
    }
}

/// Cuts power with an unstable program, then right after an erase or in the program after it.
fn cut_twice(rig: &Rig, recording: &Recording, verdicts: &mut Verdicts, kind: Kind) {
    recording.visit(|moment| {
        let here = format!("{}/{}/{}", rig.path(), kind.name(), moment.index);
        if !matches!(moment.next, Change::Program { .. }) || !verdicts.draws(&here) {
            return;
        }
        let store = cuts::cut_during(rig, moment.store, moment.next, FIRST);
        let changes = match cuts::record_mount(rig, &store) {
            Ok(changes) => changes,
            Err(why) => return verdicts.case(&here, || Err(why)),
        };
        let mut after_erase = false;
        cuts::visit_mount(&store, &changes, |index, store, next| {
            let is_erase = matches!(next, Change::Erase { .. });
            if is_erase || after_erase {
                verdicts.case(&format!("{here}/{index}"), || {
                    let store = cuts::cut_during(rig, store, next, SECOND);
                    cuts::survive(rig, store, moment.model.clone(), 1).map(drop)
                });
            }
            after_erase = is_erase;
        });
    });
}
