//! Choice of the victim: `gc.policy`. A policy is a file here. It reads the candidates and returns
//! one; the collector empties it. All policies have the same input: valid counts, the time since
//! these changed, the order of closing, erase counts.
//!
//! No policy's cost grows with the device. Blocks with equal valid counts are on one list, the
//! longest unchanged first. So the first block of every list is enough for a policy that weighs
//! age.

pub(crate) mod cat;
mod cost_benefit;
mod d_choices;
mod fifo;

use crate::block_table::BlockTable;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use nand_model::{Pbn, SplitMix};

/// The parameters, for the tables of schemes.
pub(crate) const POLICY_PARAM: ParamDoc = ParamDoc {
    key: "gc.policy",
    help: "victim selection: greedy (default), cost_benefit, fifo, d_choices or cat",
};
/// Parameter of `d_choices`.
pub(crate) const CHOICES_PARAM: ParamDoc = ParamDoc {
    key: "gc.choices",
    help: "number of blocks that d_choices samples, 1 to 1000 (default 10)",
};

/// A collectable full block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The block.
    pub block: Pbn,
    /// Share of valid pages.
    pub utilisation: f64,
    /// Blocks opened since its valid count last changed, plus one.
    pub age: f64,
    /// Its erase count.
    pub erases: u32,
}

/// Input of a policy.
pub struct Candidates<'a> {
    pub(crate) table: &'a BlockTable,
    pub(crate) erases: &'a dyn Fn(Pbn) -> u32,
}

impl Candidates<'_> {
    /// Returns, for every valid count that occurs, the block that has had it for longest; emptiest
    /// first.
    pub fn longest_unchanged(&self) -> impl Iterator<Item = Candidate> {
        self.table.victim_heads().map(|block| self.about(block))
    }

    /// Returns the data of a collectable block.
    pub fn about(&self, block: Pbn) -> Candidate {
        debug_assert!(
            self.table.is_collectable(block),
            "block {block} is considered and may not be collected"
        );
        Candidate {
            block,
            utilisation: self.table.utilisation(block),
            age: self.table.unchanged_for(block) as f64 + 1.0,
            erases: (self.erases)(block),
        }
    }

    /// Returns the block of [`Candidates::longest_unchanged`] with the highest score; of equal
    /// ones, the emptiest.
    pub fn best(&self, score: impl Fn(&Candidate) -> f64) -> Option<Pbn> {
        let scored = self.longest_unchanged().map(|c| (score(&c), c.block));
        let higher = |a: (f64, Pbn), b: (f64, Pbn)| if b.0 > a.0 { b } else { a };
        scored.reduce(higher).map(|(_, block)| block)
    }

    /// Returns the collectable blocks in order of closing.
    pub fn by_closing(&self) -> impl Iterator<Item = Pbn> {
        self.table.victims_by_closing()
    }

    /// Returns collectable blocks drawn at random, with repetition; none if hardly any block is
    /// collectable.
    pub fn draw(&self, rng: &mut SplitMix, count: u32) -> impl Iterator<Item = Pbn> {
        let blocks = self.table.blocks() as u64;
        let drawn = (0..16 * u64::from(count)).map(move |_| Pbn::new(rng.below(blocks) as u32));
        drawn
            .filter(|block| self.table.is_collectable(*block))
            .take(count as usize)
    }
}

/// A rule that chooses victims.
pub trait VictimPolicy: Send {
    /// Returns the victim. `None` selects the emptiest block.
    fn choose(&mut self, candidates: &Candidates) -> Option<Pbn>;

    /// Returns whether the policy needs the order of closing.
    fn wants_order(&self) -> bool {
        false
    }
}

/// Creates a policy from parameters of the scheme.
pub type NewPolicy = fn(&Params) -> Result<Box<dyn VictimPolicy>, FtlError>;

/// Returns the policy that the parameters select. `None` is greedy: the block with the fewest valid
/// pages, which the victim index finds without a search. No policy is better if every page is
/// equally likely to be written (Yang, Misra, Rubenstein: *On the Optimality of Greedy Garbage
/// Collection for SSDs*, 2015).
///
/// `own` has the policies of the scheme itself; the first of them is its default.
pub(crate) fn from_params(
    params: &Params,
    own: &[(&'static str, NewPolicy)],
) -> Result<Option<Box<dyn VictimPolicy>>, FtlError> {
    let default = own.first().map_or("greedy", |(name, _)| name);
    let name = params.get(POLICY_PARAM.key, default.to_string())?;
    if let Some((_, new)) = own.iter().find(|(known, _)| *known == name) {
        return new(params).map(Some);
    }
    let choices = params.get(CHOICES_PARAM.key, 10)?;
    if !(1..=1000).contains(&choices) {
        let text = format!("parameter gc.choices: {choices} is not within 1 to 1000");
        return Err(FtlError::Config(text));
    }
    Ok(match name.as_str() {
        "greedy" => None,
        "cost_benefit" => Some(Box::new(cost_benefit::CostBenefit)),
        "fifo" => Some(Box::new(fifo::Fifo)),
        "d_choices" => Some(Box::new(d_choices::DChoices::new(choices))),
        "cat" => Some(Box::new(cat::Cat)),
        other => {
            let own: String = own.iter().map(|(name, _)| format!("{name}, ")).collect();
            return Err(FtlError::Config(format!(
                "parameter gc.policy: {other:?} is none of {own}greedy, cost_benefit, fifo, d_choices, cat"
            )));
        }
    })
}

#[cfg(test)]
mod tests;
