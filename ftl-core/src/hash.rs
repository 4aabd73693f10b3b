//! Hash maps keyed by small numbers, on paths where the standard library's collision-resistant hash
//! would cost more than the lookup. Keys are page and block numbers that the controller makes
//! itself, never bytes chosen by a peer.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from numbers.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// Multiplicative hashing (Knuth, TAOCP 3, 6.4) with the golden ratio.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(*b as u64));
    }
    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n as u64);
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        let hash = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The map takes its bucket from the low bits, which depend on the low bits of the key
        // alone.
        self.0 = hash ^ (hash >> 32);
    }
}
