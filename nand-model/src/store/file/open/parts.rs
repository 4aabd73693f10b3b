//! The parts of an image: one per shard, each laid out as an image of one chip. All of them are in
//! one file, one after the other; an image of one chip is its only part.
//!
//! Invariants: the headers of all parts are read and compared before any part is changed. Parts are
//! opened one after the other: if the host fails between two of them, the next open finds the first
//! one as a stopped daemon leaves it, and the others unchanged. A sync that failed counts for all
//! parts; part 0, which names the cache area, is the first to forget it. But a part is cut at its
//! synced number only if its own header records the failure: otherwise that number may be older
//! than the last FLUSH.

use super::header::{layout_of, new_header, read_header};
use super::opener::{damaged, io_error};
use super::report::{Access, OpenReport};
use crate::convert::{index, to_u64};
use crate::image::{Header, ImageError, ImageInfo, ImageSpec, Layout, ShardSection, Striping};
use crate::invalid::{Invalid, ensure};
use crate::store::file::disk::Disk;
use crate::store::file::file_store::FileStore;
use crate::store::file::overlay::Overlay;
use crate::store::file::slice::Slice;
use crate::store::file::sync::SyncHandle;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A part, before it is opened.
pub(super) struct Part {
    pub(super) header: Header,
    /// The newest copy of the header.
    pub(super) copy: usize,
    pub(super) layout: Layout,
    /// Whether its own header records a failed sync, so that its synced number includes everything
    /// that was acknowledged.
    pub(super) records_failure: bool,
}

/// Returns the headers of a new image, one per part.
pub(super) fn new_headers(
    path: &Path,
    spec: &ImageSpec,
    striping: Option<Striping>,
    spare_slots: u32,
) -> Result<Vec<Header>, ImageError> {
    let of = |index| striping.map(|striping| ShardSection { index, striping });
    let first = new_header(path, spec, of(0), spare_slots)?;
    let count = striping.map_or(1, |striping| striping.count);
    let mut headers = vec![first; index(count)];
    for (index, header) in (0..).zip(&mut headers) {
        header.info.shard = of(index);
    }
    Ok(headers)
}

/// Reads the headers of all parts and checks that they are parts of one image, in their order.
pub(super) fn read_parts(
    path: &Path,
    disk: &dyn Disk,
    length: u64,
) -> Result<Vec<Part>, ImageError> {
    let first = read_part(path, disk, 0, length)?;
    check_length(path, &first, length)?;
    let (count, bytes) = (first.header.info.shards(), first.layout.file_bytes);
    let mut parts = vec![first];
    for index in 1..count {
        let at = u64::from(index) * bytes;
        let why =
            |reason: &dyn Display| damaged(path, format!("part {index} of {count}: {reason}"));
        let part = read_part(path, disk, at, length - at).map_err(|error| match error {
            ImageError::NotAnImage(_) => why(&"it has no header"),
            ImageError::HeaderDamaged(_) => why(&"both header copies are damaged"),
            ImageError::Contradiction { reason, .. } => why(&reason),
            other => other,
        })?;
        check_part(&parts[0], &part, index).map_err(|error| why(&error))?;
        parts.push(part);
    }
    if let Some(shard) = parts[0].header.info.shard.filter(|shard| shard.index > 0) {
        let reason = format!("part 0 of {count}: part {} is in its place", shard.index);
        return Err(damaged(path, reason));
    }
    // A sync that failed was one of the whole file. The disk may lack the headers that record it in
    // some parts; these are as after a host crash without such a record.
    let has_failed = parts.iter().any(|part| part.header.info.sync_failed);
    for part in &mut parts {
        part.header.info.sync_failed = has_failed;
    }
    Ok(parts)
}

fn read_part(path: &Path, disk: &dyn Disk, at: u64, length: u64) -> Result<Part, ImageError> {
    let (header, copy) = read_header(path, disk, at, length)?;
    let layout = layout_of(path, &header)?;
    Ok(Part {
        records_failure: header.info.sync_failed,
        header,
        copy,
        layout,
    })
}

/// Checks that the file is as long as the header of its first part says.
fn check_length(path: &Path, first: &Part, length: u64) -> Result<(), ImageError> {
    let info = &first.header.info;
    let cache_area = info.cache_area.map_or(0, |area| area.bytes);
    let wanted_bytes = first.layout.file_bytes * u64::from(info.shards()) + cache_area;
    if length >= wanted_bytes {
        return Ok(());
    }
    Err(ImageError::TooShort {
        path: path.into(),
        allocated_bytes: length,
        wanted_bytes,
    })
}

/// Checks that a part belongs to the image of the first one, at place `index`.
fn check_part(first: &Part, part: &Part, index: u32) -> Result<(), Invalid> {
    let ImageInfo { uuid, shard, .. } = &part.header.info;
    ensure(*uuid == first.header.info.uuid, Invalid::Image, || {
        "it belongs to another image".into()
    })?;
    if shard.map(|shard| shard.index) != Some(index) {
        let found = shard.map_or("an image of one chip".into(), |shard| {
            format!("part {}", shard.index)
        });
        return Err(Invalid::Image(format!("{found} is in its place")));
    }
    // The other values that creation made equal in all parts.
    let common = |part: &Part| {
        let ImageInfo {
            profile,
            size,
            scheme,
            params,
            shard,
            ..
        } = part.header.info.clone();
        let striping = shard.map(|shard| shard.striping);
        (profile, size, scheme, params, striping, part.layout)
    };
    ensure(common(first) == common(part), Invalid::Image, || {
        "its header contradicts that of part 0".into()
    })
}

/// Returns the store of an image of one chip.
pub(super) fn only(path: &Path, mut stores: Vec<FileStore>) -> Result<FileStore, ImageError> {
    if stores.len() > 1 {
        return Err(ImageError::Contradiction {
            path: path.into(),
            reason: Invalid::Image(format!(
                "a device of {} shards is used as one chip",
                stores.len()
            )),
        });
    }
    Ok(stores.pop().expect("an image has a part"))
}

/// Returns the disk of each part.
fn disks(disk: &Arc<dyn Disk>, count: usize, bytes: u64) -> Vec<Arc<dyn Disk>> {
    if count == 1 {
        return vec![disk.clone()];
    }
    let slices = Slice::split(disk, count, bytes).into_iter();
    slices
        .map(|slice| Arc::new(slice) as Arc<dyn Disk>)
        .collect()
}

/// Lets one sync serve all stores of the disk.
fn share_syncs(disk: &Arc<dyn Disk>, mut stores: Vec<FileStore>) -> Vec<FileStore> {
    if stores.len() > 1 {
        SyncHandle::join(disk, stores.iter_mut().map(|store| &mut store.sync));
    }
    stores
}

impl FileStore {
    /// Writes a new image to an empty disk.
    pub(super) fn create_parts(
        path: &Path,
        disk: Arc<dyn Disk>,
        headers: Vec<Header>,
    ) -> Result<Vec<FileStore>, ImageError> {
        let bytes = layout_of(path, &headers[0])?.file_bytes;
        let all_bytes = bytes * to_u64(headers.len());
        disk.set_len(all_bytes)
            .map_err(|e| io_error(path, "give it its size", e))?;
        let parts = disks(&disk, headers.len(), bytes).into_iter().zip(headers);
        let stores = parts.map(|(part, header)| FileStore::create_part(path, part, header));
        Ok(share_syncs(&disk, stores.collect::<Result<_, _>>()?))
    }

    /// Opens an image with all its shards, in their order, on a disk of `length` bytes. Messages
    /// name the image `path`.
    ///
    /// # Errors
    ///
    /// As [`FileStore::open_shards`], except for those of the path and the lock.
    pub fn open_on(
        path: &Path,
        disk: Arc<dyn Disk>,
        length: u64,
        access: Access,
    ) -> Result<(Vec<FileStore>, OpenReport), ImageError> {
        let begun = Instant::now();
        let read_only = access == Access::ReadOnly;
        let disk: Arc<dyn Disk> = if read_only {
            Arc::new(Overlay::new(disk))
        } else {
            disk
        };
        let parts = read_parts(path, &*disk, length)?;
        let places = disks(&disk, parts.len(), parts[0].layout.file_bytes);
        let mut stores = Vec::with_capacity(parts.len());
        let mut report = OpenReport {
            was_clean: true,
            ..OpenReport::default()
        };
        for (place, part) in places.into_iter().zip(parts) {
            let (store, found) = FileStore::open_part(path, place, part, read_only)?;
            report.was_clean &= found.was_clean;
            report.sync_failed |= found.sync_failed;
            report.power_cut |= found.power_cut;
            report.ops_kept += found.ops_kept;
            report.ops_dropped += found.ops_dropped;
            report.slots_sealed += found.slots_sealed;
            stores.push(store);
        }
        let stores = share_syncs(&disk, stores);
        report.took = begun.elapsed();
        Ok((stores, report))
    }
}
