//! Blocks of a chip that fail at their next program or erase.
//!
//! Invariant: a fault is planned only for a good block that has none. The plan is not stored: it
//! ends with the daemon.

use super::chance::{fresh_seed, sample};
use super::injected::{drawn_by, list};
use super::{BadBlock, Injected, Kind};
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use nand_model::{BlockFault, Chip, Fault, Pbn};
use serde_json::json;

impl BadBlock {
    /// Returns the named blocks, which can still go bad.
    pub(super) fn named(&self, chip: &Chip, before: u32) -> Result<Vec<Pbn>, Failure> {
        let doomed = doomed(chip);
        let blocks = self.block.iter();
        blocks
            .map(|&block| good_block(chip, &doomed, block, before))
            .collect()
    }

    /// Injects the fault into a chip.
    ///
    /// # Errors
    /// The chip has no such block or page.
    pub fn apply(&self, chip: &mut Chip, before: u32) -> Result<Injected, Failure> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        let blocks = match self.count {
            Some(count) => {
                let doomed = doomed(chip);
                let good = chip
                    .geometry()
                    .all_blocks()
                    .filter(|b| chip.bad(*b).is_none() && !doomed.contains(b));
                sample(good.collect(), count, seed, "good blocks")?
            }
            None => self.named(chip, before)?,
        };
        chip.update_faults(|plan| {
            for block in &blocks {
                plan.block_faults.extend(
                    [Fault::ProgramFail, Fault::EraseFail]
                        .map(|fault| BlockFault::next(*block, fault)),
                );
            }
        });
        assert!(
            blocks.iter().all(|block| chip.bad(*block).is_none()),
            "a fault is planned for a bad block"
        );
        let numbers: Vec<_> = blocks.iter().map(|block| before + block.raw()).collect();
        let list = list(numbers.iter().map(u32::to_string));
        let drawn = drawn_by(self.count.map(|_| seed));
        Ok(Injected {
            kind: Kind::BadBlock,
            count: to_u64(numbers.len()),
            text: format!("at the next program or erase these blocks go bad: {list}{drawn}"),
            facts: json!({"blocks": numbers, "seed": self.count.map(|_| seed)}),
            cut_seed: None,
        })
    }
}

/// Returns the blocks that fail at their next program or erase.
fn doomed(chip: &Chip) -> Vec<Pbn> {
    let faults = chip.faults().map_or(&[][..], |plan| &plan.block_faults);
    faults.iter().map(|fault| fault.block).collect()
}

/// Returns the block with this number, if it can still go bad.
fn good_block(chip: &Chip, doomed: &[Pbn], number: u32, before: u32) -> Result<Pbn, Failure> {
    let block = a_block(chip, number, before)?;
    if chip.bad(block).is_some() {
        return Err(Failure::failed(format!("block {number} is bad already")));
    }
    if doomed.contains(&block) {
        return Err(Failure::failed(format!(
            "block {number} fails at its next program or erase already"
        )));
    }
    Ok(block)
}

pub(super) fn a_block(chip: &Chip, number: u32, before: u32) -> Result<Pbn, Failure> {
    let blocks = chip.geometry().blocks;
    match number.checked_sub(before) {
        Some(own) if own < blocks => Ok(Pbn::new(own)),
        _ => Err(Failure::usage(format!(
            "no block {number}; the flash has {before} to {}",
            before + blocks - 1
        ))),
    }
}
