//! Every policy on one worked example.

use super::*;
use crate::block_table::BlockTable;
use nand_model::{Geometry, Pbn, Ppn};

/// By block of ten pages: valid pages, blocks opened since these changed, erases.
const BLOCKS: [(u32, u64, u32); 4] = [(2, 1, 9), (5, 30, 9), (5, 6, 0), (8, 90, 2)];

fn table() -> BlockTable {
    table_of(&BLOCKS)
}

fn table_of(blocks: &[(u32, u64, u32); 4]) -> BlockTable {
    let mut table = BlockTable::new(Geometry {
        channels: 1,
        ways: 1,
        planes: 1,
        multi_plane: nand_model::MultiPlane::Off,
        blocks: 8,
        pages_per_block: 10,
        page_bytes: 512,
        oob_bytes: 64,
    });
    table.keep_order_of_closing();
    let geometry = table.geometry();
    let mut changes: Vec<(u64, u32)> = (0..)
        .zip(*blocks)
        .map(|(block, (_, age, _))| (100 - age, block))
        .collect();
    // Blocks are closed in order of their numbers, and changed in order of their ages.
    for block in geometry.all_blocks().take(blocks.len()) {
        table.set_open(block, crate::format::Role::Data, 1 + block.raw() as u64);
        table.set_valid_run(geometry.page(block, 0), 10);
        table.set_state(block, crate::block_table::State::Full);
        table.set_collectable(block);
    }
    changes.sort_unstable();
    for (epoch, block) in changes {
        table.set_open(Pbn::new(7), crate::format::Role::Data, epoch);
        let first = geometry.page(Pbn::new(block), 0).raw();
        let valid = blocks[block as usize].0;
        (valid..10).for_each(|offset| table.set_invalid(Ppn::new(first + offset)));
    }
    table.set_open(Pbn::new(7), crate::format::Role::Data, 100);
    table
}

fn choice(name: &str) -> Option<u32> {
    choice_of(name, |block| BLOCKS[block.index()].2)
}

fn choice_of(name: &str, erases: impl Fn(Pbn) -> u32) -> Option<u32> {
    let table = table();
    let candidates = Candidates {
        table: &table,
        erases: &erases,
    };
    let own = Own::none(&table.geometry());
    let mut policy = of_ftld(name, &Params::default(), &own).unwrap()?;
    policy.choose_victim(&candidates).map(Pbn::raw)
}

#[test]
fn each_policy_chooses_as_its_source_says() {
    // (1 - u) / 2u x age: 0.8 / 0.4 x 2 = 4; 0.5 / 1 x 31 = 15.5; 0.5 x 7 = 3.5;
    // 0.2 / 1.6 x 91 = 11.4.
    assert_eq!(choice("cost_benefit"), Some(1));
    // u / (1 - u) / age x erases: 0.25 / 2 x 10 = 1.25; 1 / 31 x 10 = 0.32; 4 / 91 x 3 = 0.13.
    // Block 2 is on one list with block 1, which has not changed for longer.
    assert_eq!(choice("cat"), Some(3));
    assert_eq!(choice("fifo"), Some(0));
    // Ten draws from four blocks: all of them, with this seed.
    assert_eq!(choice("d_choices"), Some(0));
    assert_eq!(choice("greedy"), None);
}

/// Blocks 0 and 2 have the scores 0.8 / 0.4 x 2 = 4 and 0.5 / 1 x 8 = 4.
#[test]
fn of_equal_scores_the_emptiest_block_is_taken() {
    const EQUAL: [(u32, u64, u32); 4] = [(2, 1, 0), (8, 3, 0), (5, 7, 0), (9, 2, 0)];
    let table = table_of(&EQUAL);
    let candidates = Candidates {
        table: &table,
        erases: &|_| 0,
    };
    let score = |c: &Candidate| c.age * (1.0 - c.utilisation) / (2.0 * c.utilisation);
    let scores = candidates
        .longest_unchanged()
        .map(|c| (c.block.raw(), score(&c)));
    let best: Vec<u32> = scores
        .filter(|(_, score)| *score == 4.0)
        .map(|(block, _)| block)
        .collect();
    assert_eq!(best, [0, 2]);
    assert_eq!(candidates.best(score), Some(Pbn::new(0)));
}

/// On a new device, u / (1 - u) / age x (0 + 1): 0.25 / 2 = 0.125; 1 / 31 = 0.032; 4 / 91 = 0.044.
/// The plain count would make all of them 0, and the search would take block 0; age alone would
/// take block 3.
#[test]
fn cat_has_an_order_before_the_first_erase() {
    assert_eq!(choice_of("cat", |_| 0), Some(1));
    // With one more erase, which block 1 then has, 0.065 against 0.044.
    assert_eq!(
        choice_of("cat", |block| u32::from(block.raw() == 1)),
        Some(3)
    );
}

#[test]
fn a_policy_that_there_is_not_is_named() {
    let own = Own::none(&table().geometry());
    let mut params = Params::default();
    let error = of_ftld("gredy", &params, &own).err().unwrap().to_string();
    assert!(
        error.contains("gredy") && error.contains("cost_benefit"),
        "{error}"
    );
    params.set("gc.choices", "0");
    assert!(of_ftld("d_choices", &params, &own).is_err());
}
