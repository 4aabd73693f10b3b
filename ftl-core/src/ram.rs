//! RAM of a scheme, by one rule for all.
//!
//! - *Paper bytes*: the tables, caches and buffers that a scheme's paper counts, by the paper's
//!   formula. No paper counts the bitmap of valid pages, the blocks' counters, lists of erased
//!   blocks or copy buffers, so they have no paper bytes under any scheme.
//! - *Real bytes*: the heap that the tables, caches, pending changes, bitmaps, counters and buffers
//!   take now. A vector counts with its capacity, a hash table with its buckets, a B-tree with
//!   nodes as full as they are on average.
//! - *Most bytes*: the maximum that they may take under the scheme's parameters, on this device.
//!
//! The ring of events is not counted: it belongs to ftld, not to the scheme, and has one size. Over
//! a store that keeps no data, copies of mapping pages stand for the flash and are not counted.

use crate::config::Params;
use crate::error::FtlError;
use crate::int::to_u64;
use crate::layout::Layout;

/// Returns the smallest value of a parameter on a device, and the largest that is of use.
pub type RamRange = fn(&Layout, &Params) -> Result<(u64, u64), FtlError>;

/// A parameter that takes RAM.
#[derive(Clone, Copy)]
pub struct RamParam {
    /// Key of the parameter.
    pub key: &'static str,
    /// Its range of values.
    pub range: RamRange,
    /// Percent of the remaining RAM that it may take; parameters take theirs in order.
    pub share_percent: u64,
}

/// Bytes of the longest extent that a caller reads or writes at once.
const RUN_BYTES: u32 = 1 << 20;

/// Returns the pages of the longest extent that a caller reads or writes at once. A cache may load
/// that many entries before it evicts.
pub(crate) const fn run_pages(page_bytes: u32) -> u64 {
    (RUN_BYTES / page_bytes) as u64
}

/// Logical pages of the longest trim that a caller passes at once.
pub(crate) const TRIM_PAGES: u64 = 16_384;

/// Entries of a B-tree's node in Rust's library.
const NODE_ENTRIES: u64 = 11;
/// Bytes of a node besides its entries.
const NODE_HEAD: u64 = 16;
/// Bytes of the pointers of an inner node.
const NODE_EDGES: u64 = 96;

/// Bytes of a vector of this capacity.
pub(crate) const fn vec_bytes<T>(capacity: usize) -> u64 {
    to_u64(capacity) * to_u64(size_of::<T>())
}

/// Bytes at most of a vector that grows to this length by itself.
pub(crate) const fn vec_most<T>(length: u64) -> u64 {
    2 * length * to_u64(size_of::<T>()) + 4 * to_u64(size_of::<T>())
}

/// Bytes of a hash table of this capacity. The table has a power of two of buckets, at most 7/8 of
/// them full, and a control byte per bucket. Marks of removed entries lower the capacity that a
/// table reports, so that after many removals this is too little.
pub(crate) const fn hash_bytes<K, V>(capacity: usize) -> u64 {
    if capacity == 0 {
        return 0;
    }
    let buckets = match capacity {
        1..4 => 4,
        4..8 => 8,
        _ => (capacity * 8 / 7).next_power_of_two(),
    };
    to_u64(buckets) * (to_u64(size_of::<(K, V)>()) + 1) + 16
}

/// Bytes at most of a hash table of this many entries. Removed entries leave marks, which may
/// double it once.
pub(crate) const fn hash_most<K, V>(entries: u64) -> u64 {
    2 * hash_bytes::<K, V>(entries as usize + 1)
}

/// Bytes of a B-tree of this many entries, at the average fill of two thirds.
pub(crate) const fn tree_bytes<K, V>(entries: usize) -> u64 {
    tree::<K, V>(to_u64(entries), 2 * NODE_ENTRIES, 3)
}

/// Bytes at most of a B-tree of this many entries: every node but the root has at least 5.
pub(crate) const fn tree_most<K, V>(entries: u64) -> u64 {
    tree::<K, V>(entries, 5, 1)
}

/// Bytes of a B-tree whose nodes have `full / of` entries.
const fn tree<K, V>(entries: u64, full: u64, of: u64) -> u64 {
    if entries == 0 {
        return 0;
    }
    let leaf = NODE_ENTRIES * (to_u64(size_of::<K>()) + to_u64(size_of::<V>())) + NODE_HEAD;
    let leaves = (entries * of).div_ceil(full);
    let inner = if leaves > 1 {
        (leaves * of).div_ceil(full)
    } else {
        0
    };
    leaves * leaf + inner * (leaf + NODE_EDGES)
}
