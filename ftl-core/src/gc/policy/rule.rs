//! The interface of a policy, and its inputs.

use crate::addr::Lpn;
use crate::block_table::BlockTable;
use crate::config::Params;
use crate::error::FtlError;
use nand_model::{Geometry, Pbn, SplitMix};

/// Chooses the stream of each page and the victims of GC, with one state for both.
///
/// The streams of the host have the numbers from 0, those of copies follow. Each stream fills
/// blocks of its own. The parameters `gc.placement` and `gc.policy` select a policy for the streams
/// and one for the victims. If both select one policy of a scheme, it is one object.
///
/// Times (`now`) and the ages of copies count pages that the host wrote, and trims. Ages of blocks
/// count all pages written, in whole blocks. The state of a policy is lost when the device stops:
/// after a mount there are blocks and pages that it does not know.
///
/// Every function has a default: a policy implements what it decides or observes. The functions
/// `on_...` decide nothing. Policies are deterministic: random numbers come from a seed of their
/// own.
pub trait Policy: Send {
    /// Returns the numbers of streams of the host (1 to 16) and of copies (0 to 16; with 0, copies
    /// go to the streams of the host). Always the same numbers.
    fn streams(&self) -> (u32, u32) {
        (1, 1)
    }

    /// Returns the stream of a page that the host writes, one of the host's. A policy that chooses
    /// only victims gets the call too; its answer has no effect.
    fn stream_of_write(&mut self, _write: &HostWrite) -> u32 {
        0
    }

    /// Returns the stream of a page that GC, wear levelling or a refresh relocates, one of those of
    /// copies. A policy that chooses only victims gets the call too; its answer has no effect.
    fn stream_of_copy(&mut self, _copy: &PageCopy) -> u32 {
        match self.streams() {
            (_, 0) => 0,
            (first, _) => first,
        }
    }

    /// Returns the victim, one of the candidates. `None` selects the block with the fewest valid
    /// pages. GC does not ask if a block has no valid page, or the device is short of blocks.
    fn choose_victim(&mut self, _candidates: &Candidates) -> Option<Pbn> {
        None
    }

    /// Records that an overwrite or a trim has just made a page invalid.
    fn on_invalidate(&mut self, _page: &InvalidPage) {}

    /// Records that a block of data is full, or abandoned after a failed program.
    fn on_seal(&mut self, _block: &DataBlock) {}

    /// Records that the valid pages of a block are about to be relocated.
    fn on_collect(&mut self, _block: &DataBlock) {}

    /// Records that a block was erased.
    fn on_erase(&mut self, _block: Pbn) {}

    /// Returns the bytes of the policy's state: as a paper would count them, and as allocated.
    fn bytes(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Returns whether the policy needs a call for every page: `stream_of_write` with a single
    /// stream too, exactly one `stream_of_copy` per page, and `on_invalidate`, `on_seal` and
    /// `on_erase`. Simulations without these calls are faster. Of ftld's policies only those that
    /// choose both streams and victims have them.
    fn needs_every_page(&self) -> bool {
        true
    }

    /// Returns whether the policy reads [`DataBlock::age`]. If not, it is the largest number.
    fn needs_age(&self) -> bool {
        true
    }

    /// Returns whether the policy reads [`HostWrite::replaces`] and [`HostWrite::lifespan`].
    /// If not, both are `None`, and no write is looked up.
    fn needs_replaced(&self) -> bool {
        true
    }

    /// Returns whether the policy calls [`Candidates::by_closing`].
    fn wants_order(&self) -> bool {
        false
    }
}

/// A page that the host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostWrite {
    /// The logical page.
    pub lpn: Lpn,
    /// Hint of the host, such as the number of a write stream: in simulations the disk of the
    /// trace. 0 for a device in service, as ublk and NBD carry no hint.
    pub hint: u64,
    /// Block of the version that it replaces, if RAM has its location.
    pub replaces: Option<Pbn>,
    /// Pages written since the block of the replaced version was opened. `None` if there is no such
    /// version, the largest number if RAM does not have its location.
    pub lifespan: Option<u64>,
    /// The time.
    pub now: u64,
}

/// A valid page that is relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// The logical page. `None` for a trim record, and for a query about the cold pages of a whole
    /// block.
    pub lpn: Option<Lpn>,
    /// The block that it leaves.
    pub block: Pbn,
    /// The stream that filled this block.
    pub stream: u32,
    /// Time since the host wrote the page.
    pub age: u64,
    /// The time.
    pub now: u64,
}

/// A page that has just become invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPage {
    /// The logical page.
    pub lpn: Lpn,
    /// Block of the invalid version.
    pub block: Pbn,
    /// The stream that filled this block.
    pub stream: u32,
    /// Pages written since this block was opened.
    pub age: u64,
    /// Whether a trim caused it, not an overwrite.
    pub is_trim: bool,
    /// The time.
    pub now: u64,
}

/// A block of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBlock {
    /// The block.
    pub block: Pbn,
    /// The stream that filled it.
    pub stream: u32,
    /// Pages written since it was opened.
    pub lifetime: u64,
    /// Time since it was opened. The largest number if that was before the mount.
    pub age: u64,
    /// The time.
    pub now: u64,
}

/// The device that a policy is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its flash. While the size of a new image is computed, the number of blocks is an estimate.
    pub geometry: Geometry,
    /// Pages visible to the host.
    pub logical_pages: u32,
}

/// Creates a policy from the parameters of the scheme.
pub type NewPolicy = fn(&Device, &Params) -> Result<Box<dyn Policy>, FtlError>;

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

/// Blocks that GC may collect.
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

    /// Returns every candidate. A search of them all takes longer on a larger device.
    pub fn all(&self) -> impl Iterator<Item = Candidate> {
        let blocks = (0..self.table.blocks()).map(Pbn::new);
        let candidates = blocks.filter(|block| self.table.is_collectable(*block));
        candidates.map(|block| self.about(block))
    }

    /// Returns whether this block is a candidate.
    pub fn contains(&self, block: Pbn) -> bool {
        block.raw() < self.table.blocks() && self.table.is_collectable(block)
    }

    /// Returns the data of a candidate.
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
        highest(self.longest_unchanged(), score)
    }

    /// Returns the block of [`Candidates::all`] with the highest score; of equal ones, the lowest
    /// number. For a score of the policy's own state.
    pub fn best_of_all(&self, score: impl Fn(&Candidate) -> f64) -> Option<Pbn> {
        highest(self.all(), score)
    }

    /// Returns the candidates in order of closing. The policy must
    /// [want the order](Policy::wants_order).
    pub fn by_closing(&self) -> impl Iterator<Item = Pbn> {
        self.table.victims_by_closing()
    }

    /// Returns candidates drawn at random, with repetition; none if there is hardly any.
    pub fn draw(&self, rng: &mut SplitMix, count: u32) -> impl Iterator<Item = Pbn> {
        let blocks = self.table.blocks() as u64;
        let drawn = (0..16 * u64::from(count)).map(move |_| Pbn::new(rng.below(blocks) as u32));
        drawn
            .filter(|block| self.table.is_collectable(*block))
            .take(count as usize)
    }
}

/// Returns the block with the highest score; of equal ones, the first.
fn highest(
    candidates: impl Iterator<Item = Candidate>,
    score: impl Fn(&Candidate) -> f64,
) -> Option<Pbn> {
    let scored = candidates.map(|c| (score(&c), c.block));
    let higher = |a: (f64, Pbn), b: (f64, Pbn)| if b.0 > a.0 { b } else { a };
    scored.reduce(higher).map(|(_, block)| block)
}
