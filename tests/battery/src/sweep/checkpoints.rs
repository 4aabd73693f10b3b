//! Unreadable checkpoints.

use super::aged;
use crate::cuts;
use crate::rig::Rig;
use crate::verdicts::Verdicts;
use crate::workload::Kind;
use ftl_core::format::{Oob, Role};
use nand_model::store::MemStore;
use nand_model::{Cause, Health, Pbn, Ppn, Store};
use std::iter;
use std::ops::Range;

/// Makes each checkpoint block in turn unreadable, and each of its pages alone: no data may be
/// lost.
pub fn lose_checkpoints(rig: &Rig, kind: Kind, clean: bool, verdicts: &mut Verdicts) {
    let here = format!(
        "{}/{}/checkpoint_{}",
        rig.path(),
        kind.name(),
        if clean { "clean" } else { "cut" }
    );
    if !verdicts.want(&here) {
        return;
    }
    let (store, model) = aged(rig, kind, clean);
    for block in checkpoint_blocks(rig, &store) {
        let programmed = rig.open(store.clone()).frontier(block);
        let pages = (0..programmed).map(|page| (format!("{here}/{block}/{page}"), page..page + 1));
        for (here, lost) in iter::once((format!("{here}/{block}"), 0..programmed)).chain(pages) {
            if !verdicts.draws(&here) {
                continue;
            }
            verdicts.case(&here, || {
                let store = unreadable(rig, store.clone(), block, lost);
                cuts::survive(rig, store, model.clone(), block.raw() as u64).map(drop)
            });
        }
    }
}

fn checkpoint_blocks(rig: &Rig, store: &MemStore) -> Vec<Pbn> {
    let mut chip = rig.open(store.clone());
    let geometry = rig.profile.geometry;
    let mut oob = [0; 26];
    let mut is_checkpoint = |block: &Pbn| {
        let head = chip.read_oob(0, geometry.page(*block, 0), &mut oob, Cause::Recovery);
        head.is_ok() && Oob::decode(&oob).is_some_and(|oob| oob.tag.role == Role::Checkpoint)
    };
    geometry
        .all_blocks()
        .filter(|block| is_checkpoint(block))
        .collect()
}

fn unreadable(rig: &Rig, mut store: MemStore, block: Pbn, pages: Range<u32>) -> MemStore {
    let first = rig.profile.geometry.page(block, 0);
    for page in pages {
        store
            .set_health(Ppn::new(first.raw() + page), Health::Lost)
            .expect("memory does not fail");
    }
    store
}
