//! Head of a recording: the device it was made on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The recorded device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Version of the program that recorded.
    pub program: String,
    /// Size in bytes as the host sees it.
    pub size: u64,
    /// Logical block in bytes.
    pub logical_block: u32,
    /// Unit of atomicity in bytes: a write is torn only at its multiples.
    pub physical_block: u32,
    /// Whether entries contain the written data.
    pub has_data: bool,
    /// Start of the recording, in seconds since 1970.
    pub started_unix_s: u64,
    /// The clock of its moments; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// The flash below; absent for a device without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<Flash>,
    /// The volatile write cache, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<WriteCache>,
}

/// The clock that recordings of the same host share: moments of two of them are in an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Identity of the clock: the host's boot and its time namespace.
    pub id: String,
    /// CLOCK_MONOTONIC when the recording began, in nanoseconds: its moments count from then.
    pub began_ns: u64,
}

/// Flash and scheme of the recorded device: enough to make the same device again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flash {
    /// Name of the scheme.
    pub scheme: String,
    /// Its parameters, as given.
    pub params: BTreeMap<String, String>,
    /// The flash device as a TOML file for `--profile`, with all its blocks.
    pub profile: String,
    /// Number of chips, if there are several: profile, pages and seed are those of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Logical pages of the scheme.
    pub logical_pages: u32,
    /// Seed of the bad blocks from the factory.
    pub seed: u64,
}

/// The volatile write cache of the recorded device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCache {
    /// Size in bytes.
    pub bytes: u64,
    /// Model of what a power cut leaves, as in `--cache-model`; `plp` if it leaves all.
    pub model: String,
}
