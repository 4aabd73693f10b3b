//! The write cache of an image: what it has for the next start, or why that is lost.
//!
//! Invariant: the area is only read, and may be in use by a daemon.

use crate::convert::{index, to_usize};
use crate::failure::Failure;
use crate::size::show_size;
use crate::stack;
use crate::volume::shard_text;
use crate::volume::write_cache::{self, Loaded, Opening};
use nand_model::{CacheSection, ImageInfo};
use serde_json::{Value, json};
use std::path::Path;

/// Returns the write cache of an image, null without one: a daemon left it, or uses it now.
pub(super) fn cache_json(path: &Path, info: &ImageInfo) -> Result<Value, Failure> {
    let Some(section) = info.cache_area else {
        return Ok(Value::Null);
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
    let mut value = json!({"area_bytes": section.bytes});
    let mut add = |key: &str, count: u64| {
        value[key] = (value[key].as_u64().unwrap_or(0) + count).into();
    };
    let (mut unit, mut why) = (None, None);
    // Each shard has an equal part of the area.
    let bytes = section.bytes / u64::from(info.shards());
    for shard in 0..u64::from(info.shards()) {
        let at = section.at + shard * bytes;
        match write_cache::peek(path, CacheSection { at, bytes }, &opening).map_err(failed)? {
            Loaded::Pending(pending) => {
                add("pending_entries", pending.entries);
                add("pending_units", pending.units);
                unit = Some(pending.cache.unit());
            }
            Loaded::Damaged(why) => {
                let named = shard_text(to_usize(shard), index(info.shards()));
                return Err(stack::damaged_cache(path, &named, &why));
            }
            Loaded::Lost(lost) => {
                add("lost_units", lost.units);
                why = Some(lost.why);
            }
        }
    }
    if let Some(unit) = unit {
        value["unit_bytes"] = unit.into();
    }
    if let Some(why) = why {
        value["lost_because"] = why.into();
    }
    Ok(value)
}

/// Returns the state of a write cache as text; `None` without one.
pub(super) fn cache_text(cache: &Value) -> Option<String> {
    let area = show_size(cache["area_bytes"].as_u64()?);
    Some(match cache["pending_entries"].as_u64() {
        Some(entries) => format!(
            "write cache of {area}: {entries} entries pending, {} units; the next start writes them \
             to the flash",
            cache["pending_units"]
        ),
        None => format!(
            "write cache of {area}: lost, because {} ({} units)",
            cache["lost_because"].as_str().unwrap_or("-"),
            cache["lost_units"]
        ),
    })
}
