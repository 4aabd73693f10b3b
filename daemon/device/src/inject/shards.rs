//! Splits an injection among the shards that it affects.
//!
//! Invariants: blocks are numbered shard by shard. Each shard has a seed of its own, which follows
//! from that of the first.

use super::Injection;
use super::chance::fresh_seed;
use ftld_kit::convert::{index, to_u64};
use ftld_kit::failure::Failure;

impl Injection {
    /// Returns the blocks that it names, and the shard.
    fn named(&self) -> (Vec<u32>, Option<u32>) {
        match self {
            Injection::BadBlock(bad) => (bad.block.clone(), bad.shard),
            Injection::BitErrors(errors) => (errors.block.into_iter().collect(), errors.shard),
            _ => (Vec::new(), None),
        }
    }

    /// Returns the shards that the fault is for, of a device with `count`, each of `blocks` blocks.
    /// Blocks are numbered shard by shard.
    ///
    /// # Errors
    /// The shard or a block does not exist, a block is in another shard, or the fault names neither
    /// and needs one.
    pub(crate) fn shards(&self, count: usize, blocks: u32) -> Result<Vec<usize>, Failure> {
        let (named, shard) = self.named();
        let shard = shard.map(index);
        if let Some(shard) = shard.filter(|&shard| shard >= count) {
            return Err(Failure::usage(format!(
                "no shard {shard}; the device has 0 to {}",
                count - 1
            )));
        }
        let is_of_all = match self {
            Injection::BadBlock(_) => false,
            Injection::BitErrors(errors) => errors.factor.is_some(),
            _ => true,
        };
        let mut of_blocks = Vec::new();
        for block in named {
            let own = index(block / blocks);
            if own >= count {
                let last = to_u64(count) * u64::from(blocks) - 1;
                return Err(Failure::usage(format!(
                    "no block {block}; the flash has 0 to {last}"
                )));
            }
            if let Some(shard) = shard.filter(|&shard| shard != own) {
                return Err(Failure::usage(format!(
                    "block {block} is in shard {own}, not {shard}; leave --shard out"
                )));
            }
            of_blocks.push(own);
        }
        of_blocks.sort_unstable();
        of_blocks.dedup();
        match shard {
            _ if !of_blocks.is_empty() => Ok(of_blocks),
            Some(shard) => Ok(vec![shard]),
            None if is_of_all || count == 1 => Ok((0..count).collect()),
            None => Err(Failure::usage(format!(
                "the device has {count} shards; add --shard K, from 0 to {}",
                count - 1
            ))),
        }
    }

    /// Returns the seed of its random choices, on the first shard.
    pub(crate) fn seed(&self) -> u64 {
        let seed = match self {
            Injection::PowerCut(cut) => cut.seed,
            Injection::BadBlock(bad) => bad.seed,
            Injection::BitErrors(errors) => errors.seed,
            _ => None,
        };
        seed.unwrap_or_else(fresh_seed)
    }

    /// Returns the fault of one of several shards, of `blocks` blocks each: with a seed and blocks
    /// of its own.
    pub(crate) fn for_shard(&self, seed: u64, shard: usize, blocks: u32) -> Injection {
        let mut of = self.clone();
        let seed = Some(seed.wrapping_add(to_u64(shard)));
        match &mut of {
            Injection::PowerCut(cut) => cut.seed = seed,
            Injection::BadBlock(bad) => {
                bad.seed = seed;
                bad.block.retain(|block| index(block / blocks) == shard);
            }
            Injection::BitErrors(errors) => errors.seed = seed,
            _ => {}
        }
        of
    }
}
