//! The interface of a victim policy, and its input.

use crate::block_table::BlockTable;
use crate::config::Params;
use crate::error::FtlError;
use nand_model::{Pbn, SplitMix};

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
