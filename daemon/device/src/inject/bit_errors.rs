//! Bit errors in some pages, or another bit error rate everywhere.
//!
//! A page with more than the ECC corrects is lost, also after a restart; all other bit errors end
//! with the daemon.

use super::bad_block::a_block;
use super::chance::{fresh_seed, sample};
use super::injected::{drawn_by, list};
use super::{BitErrors, Injected, Kind};
use ftld_kit::convert::to_u64;
use ftld_kit::failure::{Exit, Failure};
use nand_model::{Chip, NandError, Ppn};
use serde_json::json;

impl BitErrors {
    /// Injects the fault into a chip.
    ///
    /// # Errors
    /// The chip has no such block or page.
    pub fn apply(&self, chip: &mut Chip, before: u32) -> Result<Injected, Failure> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        if let Some(factor) = self.factor {
            return everywhere(chip, factor, seed);
        }
        let pages = match (self.count, self.block, self.page) {
            (Some(count), ..) => sample(programmed_pages(chip), count, seed, "programmed pages")?,
            (None, Some(block), Some(page)) => vec![programmed_page(chip, block, page, before)?],
            _ => {
                return Err(Failure::usage(
                    "bit errors need a page (--block, --page), --count or --factor",
                ));
            }
        };
        let bits = self.bits.unwrap_or(u32::MAX);
        if bits == 0 {
            return Err(Failure::usage("--bits 0 would change nothing"));
        }
        assert!(!pages.is_empty(), "bit errors in no page");
        let mut corrected = true;
        for page in &pages {
            corrected = chip
                .flip_bits(*page, bits)
                .map_err(|error| nand_failure(&error))?;
        }
        let geometry = chip.geometry();
        let named: Vec<_> = pages
            .iter()
            .map(|ppn| {
                let block = before + geometry.block_of(*ppn).raw();
                [block, geometry.offset_of(*ppn)]
            })
            .collect();
        let list = list(named.iter().map(|[block, page]| format!("{block}:{page}")));
        let drawn = drawn_by(self.count.map(|_| seed));
        let fate = if corrected {
            "corrected when they are read"
        } else {
            "lost, reading them is an error"
        };
        Ok(Injected {
            kind: Kind::BitErrors,
            count: to_u64(pages.len()),
            text: format!(
                "these pages (BLOCK:PAGE) are {fate} until their blocks are erased: {list}{drawn}"
            ),
            facts: json!({"pages": named, "corrected": corrected, "seed": self.count.map(|_| seed)}),
            cut_seed: None,
        })
    }
}

fn everywhere(chip: &mut Chip, factor: f64, seed: u64) -> Result<Injected, Failure> {
    if !(0.0..=1e9).contains(&factor) {
        return Err(Failure::usage(format!(
            "--factor {factor} is not a number from 0 to 1e9"
        )));
    }
    chip.update_faults(|plan| (plan.bit_errors, plan.seed) = (factor, seed));
    Ok(Injected {
        kind: Kind::BitErrors,
        count: 1,
        text: format!(
            "raw bit errors are {factor} times those of the profile's part (seed {seed})"
        ),
        facts: json!({"factor": factor, "seed": seed}),
        cut_seed: None,
    })
}

fn programmed_pages(chip: &Chip) -> Vec<Ppn> {
    let geometry = *chip.geometry();
    let pages = |block| (0..geometry.pages_per_block).map(move |page| geometry.page(block, page));
    geometry
        .all_blocks()
        .flat_map(pages)
        .filter(|ppn| chip.is_programmed(*ppn))
        .collect()
}

fn programmed_page(chip: &Chip, number: u32, page: u32, before: u32) -> Result<Ppn, Failure> {
    let (block, pages) = (
        a_block(chip, number, before)?,
        chip.geometry().pages_per_block,
    );
    if page >= pages {
        return Err(Failure::usage(format!(
            "no page {page}; a block has 0 to {}",
            pages - 1
        )));
    }
    let ppn = chip.geometry().page(block, page);
    if chip.is_programmed(ppn) {
        Ok(ppn)
    } else {
        Err(Failure::failed(format!(
            "page {page} of block {number} is erased and has no bits to corrupt"
        )))
    }
}

fn nand_failure(error: &NandError) -> Failure {
    Failure::new(Exit::Failed, error.to_string())
}
