//! The only randomness of the emulator.

use crate::convert::to_u64;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough to choose faults and
/// workloads.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Creates a generator whose output depends on `seed` alone.
    pub const fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (> 0), by multiply-shift; the bias is below 2⁻³² for the bounds used
    /// here.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "no number is below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound` (> 0): [`SplitMix::below`] in 32 bits.
    #[inline]
    pub fn number(&mut self, bound: u32) -> u32 {
        self.below(u64::from(bound)) as u32
    }

    /// An index into something of this length (> 0): [`SplitMix::below`] in memory.
    #[inline]
    pub fn index(&mut self, length: usize) -> usize {
        self.below(to_u64(length)) as usize
    }

    /// Eight random bits.
    #[inline]
    pub fn byte(&mut self) -> u8 {
        self.next_u64() as u8
    }

    /// True once in `n` on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number in `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}
