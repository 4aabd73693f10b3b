//! The write cache of an image: what it has for the next start, or why that is lost.
//!
//! Invariant: the area is only read, and may be in use by a daemon.

use ftld_device::stack;
use ftld_device::volume::shard_text;
use ftld_device::volume::write_cache::{self, Loaded, Opening};
use ftld_kit::convert::{index, to_usize};
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use nand_model::{CacheSection, ImageInfo};
use serde::Serialize;
use std::path::Path;

/// The write cache of an image: what all shards together have.
#[derive(Default, Serialize)]
pub(super) struct CacheArea {
    area_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_units: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_units: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_because: Option<&'static str>,
}

/// Returns the write cache of an image, if it has one: a daemon left it, or uses it now.
pub(super) fn cache_of(path: &Path, info: &ImageInfo) -> Result<Option<CacheArea>, Failure> {
    let Some(section) = info.cache_area else {
        return Ok(None);
    };
    let page_bytes = info.profile.geometry.page_bytes;
    let opening = Opening {
        uuid: info.uuid,
        boot_id: &stack::boot_id()?,
        sync_failed: info.sync_failed,
        page_bytes,
        logical_bytes: u64::from(stack::logical_pages(info)) * u64::from(page_bytes),
    };
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut cache = CacheArea {
        area_bytes: section.bytes,
        ..CacheArea::default()
    };
    let add = |sum: &mut Option<u64>, count: u64| *sum = Some(sum.unwrap_or(0) + count);
    // Each shard has an equal part of the area.
    let bytes = section.bytes / u64::from(info.shards());
    for shard in 0..u64::from(info.shards()) {
        let at = section.at + shard * bytes;
        match write_cache::peek(path, CacheSection { at, bytes }, &opening).map_err(failed)? {
            Loaded::Pending(pending) => {
                add(&mut cache.pending_entries, pending.entries);
                add(&mut cache.pending_units, pending.units);
                cache.unit_bytes = Some(pending.cache.unit());
            }
            Loaded::Damaged(why) => {
                let named = shard_text(to_usize(shard), index(info.shards()));
                return Err(stack::damaged_cache(path, &named, &why));
            }
            Loaded::Lost(lost) => {
                add(&mut cache.lost_units, lost.units);
                cache.lost_because = Some(lost.why);
            }
        }
    }
    Ok(Some(cache))
}

impl CacheArea {
    /// Returns its state in words.
    pub(super) fn text(&self) -> String {
        let area = show_size(self.area_bytes);
        let lost = || {
            let (why, units) = (self.lost_because.unwrap_or("-"), self.lost_units);
            let units = units.unwrap_or_default();
            format!("write cache of {area}: lost, because {why} ({units} units)")
        };
        let pending = self.pending_entries.zip(self.pending_units);
        pending.map_or_else(lost, |(entries, units)| {
            format!(
                "write cache of {area}: {entries} entries pending, {units} units; the next start \
                 writes them to the flash"
            )
        })
    }
}
