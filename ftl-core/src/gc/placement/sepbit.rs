//! `sepbit`: separates host writes by the lifespan of the replaced version. Copies of short-lived
//! pages go to one stream, the others to streams by their age.
//!
//! Wang, Li, Lee, et al.: *Separating Data via Block Invalidation Time Inference for Write
//! Amplification Reduction in Log-Structured Storage*, FAST 2022. Classes 1 and 2 are streams 0 and
//! 1 here, class 3 is 2, classes 4 to 6 are 3 to 5. The threshold is the mean lifetime of the last
//! 16 blocks of class 1 that GC took. The lifespan of a replaced version is counted from the
//! opening of its block, whereas the authors look it up in a queue of recent writes.

use crate::gc::policy::{DataBlock, HostWrite, PageCopy, Policy};

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

impl Policy for SepBit {
    fn streams(&self) -> (u32, u32) {
        (2, 4)
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        let is_long = |lifespan: u64| lifespan as f64 >= self.mean;
        u32::from(write.lifespan.is_none_or(is_long))
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        match copy.age as f64 / self.mean {
            _ if copy.stream == 0 => 2,
            age if age < 4.0 => 3,
            age if age < 16.0 => 4,
            _ => 5,
        }
    }

    fn on_collect(&mut self, block: &DataBlock) {
        if block.stream != 0 {
            return;
        }
        debug_assert!(
            self.sampled < SAMPLE,
            "{} lifetimes are sampled, the mean is of {SAMPLE}",
            self.sampled
        );
        (self.sum, self.sampled) = (self.sum + block.lifetime, self.sampled + 1);
        if self.sampled == SAMPLE {
            self.mean = self.sum as f64 / SAMPLE as f64;
            (self.sum, self.sampled) = (0, 0);
        }
    }
}
