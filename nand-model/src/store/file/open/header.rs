//! The header of an image: created for a new one, read from an existing one, and updated while an
//! open undoes operations.
//!
//! Invariants: the overwritten copy is never the newest one on the disk, except by the same bytes.
//! If the host fails in a write, the other copy is intact.

use super::opener::{Opener, io_error};
use crate::image::{
    COPY_BYTES, FORMAT_VERSION, Header, HeaderFault, ImageError, ImageInfo, ImageSpec, Layout,
    NAME_BYTES_MAX, PARAMS_BYTES_MAX, ShardSection, choose_header,
};
use crate::invalid::Invalid;
use crate::store::file::disk::Disk;
use std::path::Path;

pub(super) fn new_header(
    path: &Path,
    spec: &ImageSpec,
    shard: Option<ShardSection>,
    spare_slots: u32,
) -> Result<Header, ImageError> {
    let bad = |reason: Invalid| ImageError::BadSpec {
        path: path.into(),
        reason,
    };
    if spec.scheme.len() > NAME_BYTES_MAX || spec.profile.name.len() > NAME_BYTES_MAX {
        return Err(bad(Invalid::Image(format!(
            "a name of more than {NAME_BYTES_MAX} bytes"
        ))));
    }
    if spec.params.len() > PARAMS_BYTES_MAX {
        return Err(bad(Invalid::Image(format!(
            "{} bytes of scheme parameters, at most {PARAMS_BYTES_MAX} fit",
            spec.params.len()
        ))));
    }
    spec.profile.geometry.validate().map_err(bad)?;
    let mut uuid = [0; 16];
    // From the kernel, not from /dev/urandom: a root of this program alone has no devices. A
    // request of up to 256 bytes is filled as a whole.
    rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| io_error(path, "get random bytes for it", e.into()))?;
    let info = ImageInfo {
        uuid,
        profile: spec.profile,
        size: spec.size,
        scheme: spec.scheme.clone(),
        params: spec.params.clone(),
        version: FORMAT_VERSION,
        clean: false,
        sync_failed: false,
        power_cut: false,
        cache_area: None,
        shard,
    };
    let header = Header {
        info,
        generation: 1,
        synced_seq: 0,
        spare_slots,
        hour: 0,
        undoing: false,
        unknown: Vec::new(),
    };
    // A header that could not be read back must not be written.
    match choose_header([&header.encode(), &[0; COPY_BYTES]]) {
        Ok(_) => Ok(header),
        Err(HeaderFault::Contradiction(reason)) => Err(bad(reason)),
        Err(fault) => Err(bad(Invalid::Image(format!("{fault:?}")))),
    }
}

/// Reads the header of the part at byte `at`, of which the disk has `length` bytes.
pub(super) fn read_header(
    path: &Path,
    disk: &dyn Disk,
    at: u64,
    length: u64,
) -> Result<(Header, usize), ImageError> {
    let mut copies = vec![0; 2 * COPY_BYTES];
    let real = copies
        .len()
        .min(usize::try_from(length).unwrap_or(usize::MAX));
    disk.read_at(at, &mut copies[..real])
        .map_err(|e| io_error(path, "read its header", e))?;
    let (first, second) = copies.split_at(COPY_BYTES);
    choose_header([first, second]).map_err(|fault| match fault {
        HeaderFault::NotAnImage => ImageError::NotAnImage(path.into()),
        HeaderFault::Damaged => ImageError::HeaderDamaged(path.into()),
        HeaderFault::Version(found) => ImageError::UnknownVersion {
            path: path.into(),
            found,
            known: FORMAT_VERSION,
        },
        HeaderFault::Contradiction(reason) | HeaderFault::Unknown(reason) => {
            ImageError::Contradiction {
                path: path.into(),
                reason,
            }
        }
    })
}

pub(super) fn layout_of(path: &Path, header: &Header) -> Result<Layout, ImageError> {
    let profile = &header.info.profile;
    let layout = Layout::new(profile.geometry, profile.nop, header.spare_slots);
    layout.map_err(|reason| ImageError::Contradiction {
        path: path.into(),
        reason,
    })
}

impl Opener<'_> {
    /// Records in the header that operations are being undone; nothing beyond `synced_seq` is
    /// synced yet. `copy` is its newest copy, which must be on the disk before the other one is
    /// overwritten.
    pub(super) fn mark_undoing(
        &self,
        header: &mut Header,
        copy: usize,
        synced_seq: u64,
    ) -> Result<(), ImageError> {
        assert!(copy < 2, "a header has two copies");
        assert!(
            synced_seq <= header.synced_seq,
            "what is synced is ahead of the cut"
        );
        if self.read_only {
            return Ok(());
        }
        self.disk
            .sync()
            .map_err(|e| io_error(self.path, "sync it", e))?;
        header.undoing = true;
        header.generation += 1;
        let said = Header {
            synced_seq,
            ..header.clone()
        };
        self.write(self.layout.copy_at(1 - copy), &said.encode())
    }

    /// Writes the newest header copy again unchanged: after a failed sync the page cache may have
    /// it and the disk may not.
    pub(super) fn rewrite_header(&self, copy: usize) -> Result<(), ImageError> {
        if self.read_only {
            return Ok(());
        }
        let mut bytes = vec![0; COPY_BYTES];
        self.read(self.layout.copy_at(copy), &mut bytes)?;
        self.write_again(self.layout.copy_at(copy), &bytes)
    }
}
