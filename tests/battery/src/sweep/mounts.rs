//! Cuts inside mounts, and inside the mounts after those.

use super::Outcomes;
use crate::cuts;
use crate::cuts::{Moment, Recording};
use crate::rig::Rig;
use crate::verdicts::Verdicts;
use nand_model::SplitMix;
use nand_model::store::MemStore;

/// A second cut inside the mount that follows the first one: at every operation but the first of
/// the mounts after every `every`-th operation of the run.
pub fn cut_mounts(
    rig: &Rig,
    name: &str,
    recording: &Recording,
    every: usize,
    outcomes: Outcomes,
    verdicts: &mut Verdicts,
) {
    recording.visit(|moment| {
        if moment.index % every == 0 && !verdicts.are_enough() {
            cut_mounts_after(rig, name, moment, outcomes, verdicts);
        }
    });
}

fn cut_mounts_after(
    rig: &Rig,
    name: &str,
    moment: &Moment,
    outcomes: Outcomes,
    verdicts: &mut Verdicts,
) {
    for (first, cut) in outcomes.of(rig, moment.next, moment.index) {
        let here = format!("{}/{name}/{}/{first}/mount", rig.path(), moment.index);
        if !verdicts.draws(&here) {
            continue;
        }
        let store = cuts::cut_during(rig, moment.store, moment.next, cut);
        let changes = match cuts::record_mount(rig, &store) {
            Ok(changes) => changes,
            Err(why) => return verdicts.case(&here, || Err(why)),
        };
        cuts::visit_mount(&store, &changes, |index, store, next| {
            if index == 0 {
                // The mount changed nothing: that equals a cut of the run.
                return;
            }
            for (second, cut) in outcomes.of(rig, next, index + moment.index) {
                verdicts.case(&format!("{here}/{index}/{second}"), || {
                    let store = cuts::cut_during(rig, store, next, cut);
                    cuts::survive(rig, store, moment.model.clone(), index as u64).map(drop)
                });
            }
        });
    }
}

/// A third cut inside the mount that follows a second one inside a mount: `per_mount` times each
/// after every `every`-th operation of the run, at random. Both mounts had programmed or erased
/// something.
pub fn cut_mounts_of_mounts(
    rig: &Rig,
    name: &str,
    recording: &Recording,
    every: usize,
    per_mount: u64,
    verdicts: &mut Verdicts,
) {
    recording.visit(|moment| {
        let here = format!("{}/{name}/{}/mount/mount", rig.path(), moment.index);
        if moment.index % every > 0 || !verdicts.draws(&here) {
            return;
        }
        let mut rng = SplitMix::new(rig.seed ^ moment.index as u64);
        let menu = cuts::outcomes(rig, moment.next, rng.next_u64());
        let first = cuts::cut_during(
            rig,
            moment.store,
            moment.next,
            menu[rng.below(menu.len() as u64) as usize],
        );
        let mut cut_twice = |number: u64| -> Result<Option<MemStore>, String> {
            let mut rng = SplitMix::new(rng.next_u64() ^ number);
            let Some((second, 1..)) = cut_mount(rig, &first, &mut rng)? else {
                return Ok(None);
            };
            let Some((third, 1..)) = cut_mount(rig, &second, &mut rng)? else {
                return Ok(None);
            };
            Ok(Some(third))
        };
        for number in 0..per_mount {
            match cut_twice(number) {
                Ok(None) => {}
                outcome => verdicts.case(&format!("{here}/{number}"), || {
                    let store = outcome?.expect("as matched");
                    cuts::survive(rig, store, moment.model.clone(), number).map(drop)
                }),
            }
        }
    });
}

/// Cuts a mount of this flash at one of its operations, in any way. Returns the flash and the
/// number of operations before the cut, or nothing if the mount has none.
pub(super) fn cut_mount(
    rig: &Rig,
    store: &MemStore,
    rng: &mut SplitMix,
) -> Result<Option<(MemStore, usize)>, String> {
    let changes = cuts::record_mount(rig, store)?;
    let operations = changes
        .iter()
        .filter(|change| change.is_operation())
        .count();
    if operations == 0 {
        return Ok(None);
    }
    let target = rng.below(operations as u64) as usize;
    let mut struck = None;
    cuts::visit_mount(store, &changes, |index, store, next| {
        if index == target {
            let menu = cuts::outcomes(rig, next, rng.next_u64());
            struck = Some(cuts::cut_during(
                rig,
                store,
                next,
                menu[rng.below(menu.len() as u64) as usize],
            ));
        }
    });
    Ok(struck.map(|store| (store, target)))
}
