//! Sweeps of power cuts: over whole workloads, inside mounts, in short sequences of requests, one
//! after another, with destroyed checkpoints. The suites choose rigs and numbers; each sweep passes
//! its cases to [`Verdicts`].

mod checkpoints;
mod mounts;
mod random;
mod rows;
mod runs;

use crate::cuts;
use crate::host::Host;
use crate::model::Model;
use crate::rig::{Cells, Rig, into_memory};
use crate::verdicts::Budget;
use crate::workload::{Kind, Workload};
use ftl_core::schemes::Scheme;
use nand_model::Cut;
use nand_model::store::{Change, MemStore};

pub use checkpoints::lose_checkpoints;
pub use mounts::{cut_mounts, cut_mounts_of_mounts};
pub use random::{RandomCuts, cut_at_random};
pub use rows::{FewestFree, cut_in_a_row, cut_short_rows};
pub use runs::{cut_run, with_failing_blocks};

/// Pages of the devices here: a few blocks of map, enough for GC to have a choice of victims.
pub const PAGES: u32 = 256;

/// A small device that writes checkpoints and levels wear all the time.
pub fn rig_of(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let params = budget.params(&[
        ("ckpt.interval", "250"),
        ("wear.gap", "2"),
        ("log.blocks", "3"),
    ]);
    Rig::with_params(scheme, cells, PAGES, params, budget.seed)
}

/// The outcomes tested at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcomes {
    /// Every one.
    All,
    /// Three; the next operation tests the next three.
    Three,
}

impl Outcomes {
    /// All outcomes with a long budget, three otherwise.
    pub fn by_form(budget: &Budget) -> Self {
        if budget.is_long() {
            Outcomes::All
        } else {
            Outcomes::Three
        }
    }

    /// The outcomes of this operation, each with its number in the menu.
    pub fn of(self, rig: &Rig, next: &Change, index: usize) -> Vec<(usize, Cut)> {
        let menu: Vec<_> = cuts::outcomes(rig, next, index as u64 ^ rig.seed << 32)
            .into_iter()
            .enumerate()
            .collect();
        if self == Outcomes::All {
            return menu;
        }
        let spread = menu.len().div_ceil(3).max(1);
        (0..3)
            .map(|i| menu[(index + i * spread) % menu.len()])
            .collect()
    }
}

/// The flash after 600 requests, and its allowed contents.
fn aged(rig: &Rig, kind: Kind, clean: bool) -> (MemStore, Model) {
    let mut host = Host::format(rig);
    for op in Workload::new(kind, PAGES, rig.seed).take(600) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{op:?}: {}", String::from(trouble)));
    }
    if clean {
        host.ftl.shutdown(0).expect("a clean stop");
        host.model.flushed();
    }
    let (chip, model) = host.cut_power();
    (into_memory(chip), model)
}
