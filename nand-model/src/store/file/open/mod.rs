//! Creating and opening images, and recovery after an unclean stop.
//!
//! Steps of an unclean open: read the slot headers; collect the numbers of all operations after the
//! last synced one whose record and data are valid; *cut* at the first missing number; undo
//! everything after the cut; assign to each block the slot whose life began last; sync; record the
//! cut as synced in the header; sync again. Nothing at or below the cut changes, and a missing
//! operation stays missing, so after an interrupted open the next one finds the same cut.
//!
//! After a failed sync the page cache may contain bytes that the disk does not have, and the header
//! that should record the failure may have failed too. So an unclean open rewrites the operations
//! that it keeps beyond the synced number: the host then has to write them to the disk. Operations
//! that an earlier open undid may still be on the disk: the header records this before anything is
//! undone. If it does, or if it records a failed sync, the open rewrites the table, all slot
//! headers and all records as the cut leaves them. For the same reason every open rewrites the
//! newest header copy, and changes the other one only after a sync has covered that.

mod ahead;
mod cut;
mod found;
mod header;
mod holes;
mod opener;
mod parts;
mod recover;
mod report;
mod rewrite;
mod table;

pub(super) use found::ERASES_MAX;
pub use report::{Access, OpenReport};

use super::batch::Batch;
use super::disk::Disk;
use super::file_disk::{FileDisk, Mode, Unsynced};
use super::file_store::FileStore;
use super::scan::Scan;
use super::seals::Seals;
use super::sync::SyncHandle;
use crate::addr::{Pbn, Ppn};
use crate::convert::to_u64;
use crate::image::{Header, ImageError, ImageInfo, ImageSpec, Layout, Striping, TableEntry};
use crate::store::contents::BlockFacts;
use crc32c::crc32c;
use found::Found;
use header::layout_of;
use opener::{Opener, damaged, io_error};
use parts::{Part, new_headers, only, read_parts};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reads an image's header without locking the file: it may be in use.
///
/// # Errors
///
/// - [`ImageError::NotFound`] or [`ImageError::NotRegular`]: there is no such file, or it is not a
///   regular file.
/// - [`ImageError::NotAnImage`], [`ImageError::UnknownVersion`], [`ImageError::HeaderDamaged`] or
///   [`ImageError::Contradiction`]: the file has no header that this build can use.
/// - [`ImageError::TooShort`]: the file was cut off.
/// - [`ImageError::Io`]: the host cannot read it.
pub fn peek(path: impl AsRef<Path>) -> Result<ImageInfo, ImageError> {
    let path = path.as_ref();
    let disk = FileDisk::open(path, Mode::Peek)?;
    let (length, _) = disk.sizes().map_err(|e| io_error(path, "look at it", e))?;
    let parts = read_parts(path, &disk, length)?;
    Ok(parts[0].header.info.clone())
}

impl FileStore {
    /// Creates a new image of one chip. The file must not exist; if creation fails, it does not
    /// exist afterwards.
    ///
    /// # Errors
    ///
    /// - [`ImageError::Exists`]: the path exists.
    /// - [`ImageError::BadSpec`]: no image can be made of `spec`; the error names the wrong part.
    /// - [`ImageError::InUse`]: another process locked the new file first.
    /// - [`ImageError::Io`]: the host refused the file, its size, a write or a sync.
    pub fn create(path: impl AsRef<Path>, spec: &ImageSpec) -> Result<FileStore, ImageError> {
        let path = path.as_ref();
        FileStore::create_shards(path, spec, None).and_then(|stores| only(path, stores))
    }

    /// Creates a new image with a chip as in `spec` for each shard.
    ///
    /// # Errors
    ///
    /// Those of [`FileStore::create`].
    pub fn create_shards(
        path: impl AsRef<Path>,
        spec: &ImageSpec,
        striping: Option<Striping>,
    ) -> Result<Vec<FileStore>, ImageError> {
        let path = path.as_ref();
        let spare_slots = Layout::spare_slots_for(&spec.profile.geometry);
        let headers = new_headers(path, spec, striping, spare_slots)?;
        let disk = Arc::new(FileDisk::open(path, Mode::Create)?);
        let made = FileStore::create_parts(path, disk, headers).and_then(|stores| {
            sync_folder(path).map_err(|e| io_error(path, "sync its folder", e))?;
            Ok(stores)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Creates a new image with a chip as in `spec` for each shard on an empty disk. Each chip has
    /// `spare_slots` more slots than blocks. Messages name the image `path`.
    ///
    /// # Errors
    ///
    /// - [`ImageError::BadSpec`]: no image can be made of `spec` with these slots.
    /// - [`ImageError::Io`]: the disk refused its size, a write or a sync.
    pub fn create_on(
        path: &Path,
        disk: Arc<dyn Disk>,
        spec: &ImageSpec,
        striping: Option<Striping>,
        spare_slots: u32,
    ) -> Result<Vec<FileStore>, ImageError> {
        let headers = new_headers(path, spec, striping, spare_slots)?;
        FileStore::create_parts(path, disk, headers)
    }

    /// Opens an image of one chip. A read-only open writes nothing, even after a crash: recovery
    /// happens in memory.
    ///
    /// # Errors
    ///
    /// - those of [`FileStore::open_shards`];
    /// - [`ImageError::Contradiction`]: the image has several shards.
    pub fn open(
        path: impl AsRef<Path>,
        access: Access,
    ) -> Result<(FileStore, OpenReport), ImageError> {
        let path = path.as_ref();
        let (stores, report) = FileStore::open_shards(path, access)?;
        Ok((only(path, stores)?, report))
    }

    /// Opens an image with all its shards, in their order.
    ///
    /// # Errors
    ///
    /// - those of [`peek`];
    /// - [`ImageError::InUse`]: another process has locked the image;
    /// - [`ImageError::Damaged`]: the block table, a slot header or a program count fails its
    ///   check;
    /// - [`ImageError::Io`]: the host refused a read, a write or a sync. The next open finds the
    ///   same image.
    pub fn open_shards(
        path: impl AsRef<Path>,
        access: Access,
    ) -> Result<(Vec<FileStore>, OpenReport), ImageError> {
        let path = path.as_ref();
        let mode = if access == Access::ReadOnly {
            Mode::ReadOnly
        } else {
            Mode::ReadWrite
        };
        let disk = FileDisk::open(path, mode)?;
        let (length, kept) = disk.sizes().map_err(|e| io_error(path, "look at it", e))?;
        // Creation writes the table in full. A file with much less allocated space (some file
        // systems compress) is a sparse forgery, and no reason to allocate memory.
        let parts = read_parts(path, &disk, length)?;
        let table_bytes = to_u64(parts[0].layout.table_bytes() * parts.len());
        if table_bytes > 1 << 20 && kept.saturating_mul(16) < table_bytes {
            return Err(damaged(path, "it keeps less than its block table"));
        }
        FileStore::open_on(path, Arc::new(disk), length, access)
    }

    /// Opens an image that nobody uses yet, without any sync: the caller syncs the file when the
    /// store is closed. If power fails before that, the image is lost.
    ///
    /// # Errors
    ///
    /// Those of [`FileStore::open`].
    pub fn open_unsynced(path: impl AsRef<Path>) -> Result<Vec<FileStore>, ImageError> {
        let path = path.as_ref();
        let disk = FileDisk::open(path, Mode::ReadWrite)?;
        let (length, _) = disk.sizes().map_err(|e| io_error(path, "look at it", e))?;
        let disk = Arc::new(Unsynced(disk));
        FileStore::open_on(path, disk, length, Access::ReadWrite).map(|(stores, _)| stores)
    }

    /// Writes a new image to a disk of zeros.
    fn create_part(
        path: &Path,
        disk: Arc<dyn Disk>,
        header: Header,
    ) -> Result<FileStore, ImageError> {
        let layout = layout_of(path, &header)?;
        let entry = TableEntry {
            slot: None,
            facts: BlockFacts::default(),
            erase_seq: 0,
            marked: false,
            counts_check: crc32c(&vec![0; layout.pages()]),
        };
        let blocks = layout.geometry.block_slots();
        let all: Vec<usize> = (0..blocks).collect();
        for some in all.chunks(1 << 15) {
            let bytes: Vec<u8> = some.iter().flat_map(|&block| entry.encode(block)).collect();
            disk.write_at(layout.entry_at(some[0]), &bytes)
                .map_err(|e| io_error(path, "write its block table", e.into()))?;
        }
        disk.sync().map_err(|e| io_error(path, "sync it", e))?;
        disk.write_at(layout.copy_at(0), &header.encode())
            .map_err(|e| io_error(path, "write its header", e.into()))?;
        let found = Found::new(layout, &header.info);
        FileStore::begin(path, disk, layout, header, 0, 0, found, false)
    }

    /// Opens one part of an image.
    fn open_part(
        path: &Path,
        disk: Arc<dyn Disk>,
        part: Part,
        read_only: bool,
    ) -> Result<(FileStore, OpenReport), ImageError> {
        let Part {
            mut header,
            copy,
            layout,
            records_failure,
        } = part;
        let opener = Opener {
            path,
            disk: &*disk,
            layout,
            info: &header.info.clone(),
            read_only,
        };
        opener.rewrite_header(copy)?;
        let mut report = OpenReport {
            was_clean: header.info.clean,
            sync_failed: header.info.sync_failed,
            power_cut: header.info.power_cut,
            ..OpenReport::default()
        };
        let synced_seq = header.synced_seq;
        let found = if header.info.clean {
            opener.read_table(header.synced_seq)?
        } else {
            let rewrites_all = header.info.sync_failed || header.undoing;
            let trust = (rewrites_all, records_failure);
            opener.recover(&mut header, copy, trust, &mut report)?
        };
        // The copy in the file contains a lower number than the cut.
        let last_seq = std::mem::replace(&mut header.synced_seq, synced_seq);
        let store = FileStore::begin(path, disk, layout, header, copy, last_seq, found, read_only)?;
        Ok((store, report))
    }

    /// Starts the use of the image: the header on the disk records it before the first request.
    /// `last_seq` is the last operation in the file; `header` contains the synced number.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a store, as creation and opening find them"
    )]
    fn begin(
        path: &Path,
        disk: Arc<dyn Disk>,
        layout: Layout,
        mut header: Header,
        copy: usize,
        last_seq: u64,
        found: Found,
        read_only: bool,
    ) -> Result<FileStore, ImageError> {
        assert_eq!(
            found.blocks.len(),
            layout.geometry.block_slots(),
            "a store of other blocks than its image"
        );
        let info = header.info.clone();
        if header.info.sync_failed {
            // A later open could not tell that the area's bytes are not to be trusted.
            header.info.cache_area = None;
        }
        (header.info.sync_failed, header.undoing) = (false, false);
        header.info.power_cut = false;
        // If this fails, it is unknown which header copy is on the disk, so neither may change.
        disk.sync().map_err(|e| io_error(path, "sync it", e))?;
        let marked: HashSet<Pbn> = (found.unhealthy.keys())
            .map(|&ppn| layout.geometry.block_of(Ppn::new(ppn)))
            .collect();
        let complete = layout
            .geometry
            .all_blocks()
            .filter(|block| found.counts.is_full(block.index()) && !marked.contains(block));
        let seals = Seals::new(
            &layout,
            complete.filter_map(|block| found.blocks[block.index()].slot),
        );
        let sync = SyncHandle::new(disk.clone(), layout, header, copy, last_seq, seals);
        sync.write_clean_flag(false)
            .map_err(|e| io_error(path, "sync it", e.into()))?;
        let Found {
            blocks,
            counts,
            unhealthy,
            slots,
            void_marks: _,
        } = found;
        let path = path.to_path_buf();
        let (trimmed_seq, scratch) = (0, Vec::new());
        Ok(FileStore {
            disk,
            sync,
            path,
            info,
            layout,
            read_only,
            blocks,
            counts,
            unhealthy,
            slots,
            verified: None,
            trimmed_seq,
            batch: Batch::default(),
            scratch,
            scan: Scan::default(),
            checks: Vec::new(),
            unwanted: Vec::new(),
        })
    }
}

/// Syncs the folder: a new file survives a host crash only with its name.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}
