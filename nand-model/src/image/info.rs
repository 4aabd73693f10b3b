//! The description of an image.

use crate::profile::Profile;

/// The version this build reads and writes.
pub const FORMAT_VERSION: u32 = 5;

/// Maximum number of shards of a device.
pub const SHARDS_MAX: u32 = 16;

/// Maximum length of the scheme parameters in an image, in bytes.
pub(crate) const PARAMS_BYTES_MAX: usize = 2048;

/// Maximum length of a scheme or profile name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 63;

/// Parameters of a new image.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    /// The flash, with its number of blocks filled in.
    pub profile: Profile,
    /// Size of the block device in bytes.
    pub size: u64,
    /// Name of the translation layer.
    pub scheme: String,
    /// Its parameters, opaque here: at most 2,048 bytes.
    pub params: String,
}

/// Description of an image, from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Identity, generated at creation.
    pub uuid: [u8; 16],
    /// The flash.
    pub profile: Profile,
    /// Size of the block device in bytes.
    pub size: u64,
    /// Name of the translation layer.
    pub scheme: String,
    /// Its parameters, opaque here.
    pub params: String,
    /// Format version.
    pub version: u32,
    /// Whether it was closed cleanly (as found; an image in use is never clean).
    pub clean: bool,
    /// Whether a sync failed during its last use (as found).
    pub sync_failed: bool,
    /// Whether its last use ended with a cut of the emulated power (as found). False also after one
    /// that the daemon did not survive.
    pub power_cut: bool,
    /// The area of a write cache behind the slots, if one is attached (as found).
    pub cache_area: Option<CacheSection>,
    /// The shard that this part of the file is; `None` if the device has one chip.
    pub shard: Option<ShardSection>,
}

impl ImageInfo {
    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        self.shard.map_or(1, |shard| shard.striping.count)
    }

    /// Returns the upper bound of the device's bytes that a shard maps.
    pub fn shard_bytes(&self) -> u64 {
        self.shard
            .map_or(self.size, |shard| shard.striping.shard_bytes(self.size))
    }
}

/// The stripes of a device over its shards: stripe `n` is in shard `n % count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(deny_unknown_fields)
)]
pub struct Striping {
    /// Number of shards, from 2 on.
    pub count: u32,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
}

impl Striping {
    /// Returns the upper bound of the bytes that a shard maps of a device of `size` bytes.
    pub fn shard_bytes(&self, size: u64) -> u64 {
        let stripes = size.div_ceil(self.stripe_bytes);
        stripes.div_ceil(u64::from(self.count)) * self.stripe_bytes
    }
}

/// One part of the file of a device with several chips: section 5 of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSection {
    /// Number of the part, from 0 on.
    pub index: u32,
    /// The stripes over all parts.
    pub striping: Striping,
}

/// The area of a write cache at the end of an image file: section 6 of the header. This crate does
/// not interpret its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSection {
    /// First byte of the area in the file.
    pub at: u64,
    /// Bytes of the area.
    pub bytes: u64,
}
