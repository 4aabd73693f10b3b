//! Cuts of whole runs: at every operation, in every way.

use super::Outcomes;
use crate::cuts;
use crate::cuts::{Moment, Recording};
use crate::rig::Rig;
use crate::verdicts::Verdicts;
use ftl_core::format::Oob;
use nand_model::store::Change;
use nand_model::{BlockFault, Cut, Fault, Pbn, SplitMix};

/// Cuts a recorded run at every `every`-th operation. `name` is its name in a case's path.
pub fn cut_run(
    rig: &Rig,
    name: &str,
    recording: &Recording,
    every: usize,
    outcomes: Outcomes,
    verdicts: &mut Verdicts,
) {
    recording.visit(|moment| {
        if moment.index % every == 0 {
            cut_here(rig, name, moment, outcomes, verdicts);
        }
    });
}

fn cut_here(rig: &Rig, name: &str, moment: &Moment, outcomes: Outcomes, verdicts: &mut Verdicts) {
    let here = format!("{}/{name}/{}", rig.path(), moment.index);
    if !verdicts.draws(&here) {
        return;
    }
    for (number, cut) in outcomes.of(rig, moment.next, moment.index) {
        verdicts.case(&format!("{here}/{number}"), || {
            let store = cuts::cut_during(rig, moment.store, moment.next, cut);
            cuts::survive(rig, store, moment.model.clone(), moment.index as u64)
                .map(drop)
                .map_err(|why| format!("{}: {why}", describe(rig, moment.next, &cut)))
        });
    }
}

fn describe(rig: &Rig, next: &Change, cut: &Cut) -> String {
    match next {
        Change::Program { ppn, oob, .. } => {
            let (block, offset) = (
                rig.profile.geometry.block_of(*ppn),
                rig.profile.geometry.offset_of(*ppn),
            );
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

/// The default rig with two failing programs and two failing erases, in blocks chosen by `salt`.
pub fn with_failing_blocks(rig: Rig, salt: u64) -> Rig {
    rig.variant(&format!("failing{salt}"), |rig| {
        let mut rng = SplitMix::new(rig.seed + salt);
        let mut any = || Pbn::new(rng.below(rig.profile.geometry.blocks as u64) as u32);
        let faults = [
            Fault::ProgramFail,
            Fault::ProgramFail,
            Fault::EraseFail,
            Fault::EraseFail,
        ];
        rig.block_faults = faults.map(|fault| BlockFault::next(any(), fault)).to_vec();
    })
}
