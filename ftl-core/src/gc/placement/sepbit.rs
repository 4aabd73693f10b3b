//! `sepbit`: separates host writes by the lifespan of the replaced version. Copies of short-lived
//! pages go to one stream, the others to streams by their age.
//!
//! Wang, Li, Lee, et al.: *Separating Data via Block Invalidation Time Inference for Write
//! Amplification Reduction in Log-Structured Storage*, FAST 2022. Classes 1 and 2 are streams 0 and
//! 1 here, class 3 is 2, classes 4 to 6 are 3 to 5. The threshold is the mean lifetime of the last
//! 16 blocks of class 1 that GC took. The lifespan of a replaced version is counted from the
//! opening of its block, whereas the authors look it up in a queue of recent writes.

use super::rule::Placement;
use crate::addr::Lpn;

/// Blocks of class 1 in the mean.
const SAMPLE: u64 = 16;

pub(super) struct SepBit {
    /// Mean lifetime of the blocks of class 1 that GC took, in pages written.
    mean: f64,
    sum: u64,
    sampled: u64,
}

impl Default for SepBit {
    fn default() -> Self {
        SepBit {
            mean: f64::INFINITY,
            sum: 0,
            sampled: 0,
        }
    }
}

impl Placement for SepBit {
    fn streams(&self) -> (u32, u32) {
        (2, 4)
    }

    fn of_write(&mut self, _: Lpn, lifespan: Option<u64>) -> u32 {
        lifespan.is_none_or(|lifespan| lifespan as f64 >= self.mean) as u32
    }

    fn of_copy(&mut self, age: u64, from: u32) -> u32 {
        match age as f64 / self.mean {
            _ if from == 0 => 2,
            age if age < 4.0 => 3,
            age if age < 16.0 => 4,
            _ => 5,
        }
    }

    fn collected(&mut self, from: u32, lifetime: u64) {
        if from != 0 {
            return;
        }
        debug_assert!(
            self.sampled < SAMPLE,
            "{} lifetimes are sampled, the mean is of {SAMPLE}",
            self.sampled
        );
        (self.sum, self.sampled) = (self.sum + lifetime, self.sampled + 1);
        if self.sampled == SAMPLE {
            self.mean = self.sum as f64 / SAMPLE as f64;
            (self.sum, self.sampled) = (0, 0);
        }
    }
}
