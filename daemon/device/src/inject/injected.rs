//! Kinds of faults, and the answer to an injection.
//!
//! Invariant: an answer contains the random choices that were made.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::{EnumCount, IntoStaticStr, VariantArray, VariantNames};

/// Kinds of faults.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    EnumCount,
    IntoStaticStr,
    VariantArray,
    VariantNames,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum Kind {
    /// The flash loses power.
    PowerCut,
    /// A block fails.
    BadBlock,
    /// Bit errors.
    BitErrors,
    /// A FLUSH fails.
    FlushFails,
    /// A write fails.
    WriteErrors,
    /// A read fails.
    ReadErrors,
    /// A request takes longer.
    Slow,
    /// A request waits.
    Hang,
}

crate::by_name::named!(Kind);

impl Kind {
    /// Returns the index in a table with one entry per kind.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the lower-case name, as in metric labels.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// Result of an injection, and the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injected {
    /// Kind of fault.
    pub(crate) kind: Kind,
    /// Number of affected blocks or pages; otherwise 1.
    pub(crate) count: u64,
    /// Human-readable text.
    pub text: String,
    /// Machine-readable result, with the random choices made.
    #[serde(flatten)]
    pub(crate) facts: Value,
    /// Seed of a power cut; among the facts of the answer.
    #[serde(skip)]
    pub(crate) cut_seed: Option<u64>,
}

/// Choices of one shard.
#[derive(Serialize)]
struct OfShard<'a> {
    shard: usize,
    #[serde(flatten)]
    facts: &'a Value,
}

/// Returns the end of a text with random choices: the seed that they follow from, if any was drawn.
pub(super) fn drawn_by(seed: Option<u64>) -> String {
    seed.map_or(String::new(), |seed| format!(" (seed {seed})"))
}

impl Injected {
    /// Merges `all`, the injections into the shards `shards`, into one for the device. The device
    /// has `count` shards.
    pub(crate) fn of_shards(mut all: Vec<Injected>, shards: &[usize], count: usize) -> Injected {
        assert_eq!(all.len(), shards.len(), "a fault for each shard");
        if count == 1 {
            return all.remove(0);
        }
        let is_cut = all.iter().any(|injected| injected.kind == Kind::PowerCut);
        let of =
            |(shard, injected): (&usize, &Injected)| format!("shard {shard}: {}", injected.text);
        let texts: Vec<_> = shards.iter().zip(&all).map(of).collect();
        let facts = all.iter().map(|injected| &injected.facts);
        let facts = shards.iter().zip(facts);
        let facts: Vec<_> = facts
            .map(|(&shard, facts)| OfShard { shard, facts })
            .collect();
        let facts = json!({"shards": facts});
        Injected {
            kind: all[0].kind,
            count: if is_cut {
                1
            } else {
                all.iter().map(|injected| injected.count).sum()
            },
            text: texts.join("; "),
            facts,
            cut_seed: all[0].cut_seed,
        }
    }
}

/// Lists the first items, human-readable.
pub(super) fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 8;
    let more = items.len().saturating_sub(SHOWN);
    let shown = items.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}
