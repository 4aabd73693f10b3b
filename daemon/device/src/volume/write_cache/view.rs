//! Names and counters of a write cache, for options, metrics and the status.

use super::CacheOptions;
use crate::by_name::ByName;
use serde::{Deserialize, Serialize};
use strum::{EnumCount, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// What a power cut leaves of the dirty units.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Each unit has its newest content, an older one, or that of the flash.
    #[default]
    Any,
    /// A prefix of the acknowledged writes; the last one may be torn.
    Ordered,
    /// The content of the flash.
    Lost,
}

impl Model {
    /// Returns the name used on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Reason of a write-back.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum Reason {
    /// The unit has been dirty for a while.
    Age,
    /// The cache is full.
    Pressure,
    /// FLUSH or FUA.
    Flush,
    /// A trim that must not overtake a write.
    Trim,
    /// Clean shutdown.
    Shutdown,
    /// Entries of an earlier daemon.
    Mount,
}

crate::by_name::named!(Reason);

/// What a power cut would leave of a cache, as changes of its area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Dirty units by outcome.
    pub counts: CutCounts,
    /// Bytes to write, in this order, with their place in the area.
    pub(crate) changes: Vec<(u64, Vec<u8>)>,
}

/// Dirty units at a power cut, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutCounts {
    /// Newest content; all of the write survived as far as its units were dirty.
    pub new: u64,
    /// Newest content; the write survived in part.
    pub torn: u64,
    /// Older content that was in the cache.
    pub old: u64,
    /// Content of the flash.
    pub lost: u64,
}

impl CutCounts {
    /// Names of the outcomes, as in metric labels.
    pub const NAMES: [&'static str; 4] = ["new", "torn", "old", "lost"];

    /// Returns the counts in the order of [`CutCounts::NAMES`].
    pub fn by_name(&self) -> [u64; 4] {
        [self.new, self.torn, self.old, self.lost]
    }

    /// Returns the dirty units at the cut.
    pub fn units(&self) -> u64 {
        self.by_name().iter().sum()
    }

    /// Returns the counts as text.
    pub fn text(&self) -> String {
        let parts = Self::NAMES.iter().zip(self.by_name());
        let parts: Vec<_> = parts
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        parts.join(", ")
    }
}

/// Counters of a write cache at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheView {
    /// Bytes of the ring; 0 without a cache.
    pub capacity_bytes: u64,
    /// Bytes that are not on the flash yet.
    pub dirty_bytes: u64,
    /// Bytes that reads took from the cache.
    pub read_hit_bytes: u64,
    /// Bytes written back, in the order of [`Reason`].
    #[serde(with = "ByName::<Reason>")]
    pub written_back_bytes: [u64; Reason::COUNT],
    /// Writes that failed to reach the flash.
    pub failed_write_backs: u64,
    /// What a power cut leaves.
    pub model: Model,
    /// Whether a power cut loses nothing of the cache.
    #[serde(rename = "power_loss_protection")]
    pub protected: bool,
    /// Whether writes are acknowledged only when they are on the flash.
    pub write_through: bool,
    /// Outcome of the last power cut or host crash that this daemon found at its start.
    #[serde(rename = "last_cut_units")]
    pub last_cut: CutCounts,
}

impl CacheView {
    pub(super) fn of(options: &CacheOptions) -> CacheView {
        CacheView {
            capacity_bytes: options.bytes,
            model: options.model,
            protected: options.protected,
            ..CacheView::default()
        }
    }
}
