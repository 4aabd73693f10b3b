//! Copies the files of an ext4 image into a folder.

use super::Replayed;
use ext4_view::{DirEntry, Ext4, Ext4Error, FileType, Metadata};
use ftld_kit::convert::to_u64;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// Deepest folder; a damaged tree may have no end.
const DEPTH_MAX: u32 = 200;
/// Largest file, in sizes of the image.
const SPARSE_MAX: u64 = 64;
/// Bytes that are read at once.
const PART_BYTES: usize = 256 << 10;

/// Copies the tree below a folder of the image, `/` for all of it. Regular files are as sparse as
/// they are there; sockets, pipes and devices are left out, as are owners if this is not root.
///
/// # Errors
/// A mount would fail, the tree is damaged, or the folder cannot be written. The text says which.
pub(in crate::crashes) fn extract(image: &Path, from: &str, to: &Path) -> Result<(), String> {
    let bytes = std::fs::metadata(image).map_err(|error| error.to_string())?;
    let fs = Ext4::load(Box::new(Replayed::open(image)?)).map_err(of_image)?;
    let mut copy = Copy {
        fs,
        image_bytes: bytes.len(),
        left: bytes.len(),
        buffer: vec![0; PART_BYTES],
        is_root: nix::unistd::geteuid().is_root(),
    };
    let name = from.trim_matches('/');
    let root = Path::new("/").join(name);
    let path = ext4_view::PathBuf::try_from(root).map_err(|error| format!("{from}: {error}"))?;
    let metadata = copy
        .fs
        .symlink_metadata(path.as_path())
        .map_err(|error| format!("{from}: {}", of_image(error)))?;
    match metadata.is_dir() {
        true => copy.folder(path.as_path(), to, 0),
        false => {
            let name = Path::new(name).file_name().unwrap_or_default();
            copy.other(path.as_path(), &metadata, &to.join(name))
        }
    }
}

struct Copy {
    fs: Ext4,
    image_bytes: u64,
    /// Bytes that may still be copied: blocks of a damaged tree may be in many files.
    left: u64,
    buffer: Vec<u8>,
    is_root: bool,
}

impl Copy {
    fn folder(&mut self, from: ext4_view::Path<'_>, to: &Path, depth: u32) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("{}: the tree has no end", from.display()));
        }
        let entries = self.fs.read_dir(from).map_err(of_image)?;
        for entry in entries {
            let entry = entry.map_err(of_image)?;
            let name = entry.file_name();
            if matches!(name.as_ref(), b"." | b"..") {
                continue;
            }
            self.entry(&entry, &to.join(OsStr::from_bytes(name.as_ref())), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry, to: &Path, depth: u32) -> Result<(), String> {
        let from = entry.path();
        let metadata = entry.metadata().map_err(of_image)?;
        if !metadata.is_dir() {
            return self.other(from.as_path(), &metadata, to);
        }
        std::fs::create_dir(to).map_err(|error| of_folder(to, &error))?;
        self.folder(from.as_path(), to, depth + 1)?;
        self.keep(&metadata, to)
    }

    /// Copies what is no folder.
    fn other(
        &mut self,
        from: ext4_view::Path<'_>,
        metadata: &Metadata,
        to: &Path,
    ) -> Result<(), String> {
        match metadata.file_type() {
            FileType::Regular => {
                self.file(from, metadata, to)?;
                self.keep(metadata, to)
            }
            FileType::Symlink => {
                let target = self.fs.read_link(from).map_err(of_image)?;
                let target = OsStr::from_bytes(target.as_ref());
                symlink(target, to).map_err(|error| of_folder(to, &error))
            }
            _ => Ok(()),
        }
    }

    fn file(
        &mut self,
        from: ext4_view::Path<'_>,
        metadata: &Metadata,
        to: &Path,
    ) -> Result<(), String> {
        let failed = |error| of_folder(to, &error);
        // A damaged size would be read for hours.
        if metadata.len() / SPARSE_MAX > self.image_bytes {
            return Err(format!(
                "{}: {} bytes, too many to copy",
                from.display(),
                metadata.len()
            ));
        }
        let file = File::create_new(to).map_err(failed)?;
        file.set_len(metadata.len()).map_err(failed)?;
        let mut source = self.fs.open(from).map_err(of_image)?;
        let mut at = 0;
        loop {
            let mut filled = 0;
            while filled < self.buffer.len() {
                match source
                    .read_bytes(&mut self.buffer[filled..])
                    .map_err(of_image)?
                {
                    0 => break,
                    read => filled += read,
                }
            }
            if filled == 0 {
                return Ok(());
            }
            let part = &self.buffer[..filled];
            if part.iter().any(|byte| *byte != 0) {
                let bytes = to_u64(filled);
                let left = self.left.checked_sub(bytes);
                self.left = left.ok_or_else(|| {
                    format!("{}: the files are larger than the device", from.display())
                })?;
                file.write_all_at(part, at).map_err(failed)?;
            }
            at += to_u64(filled);
        }
    }

    /// Gives a copy its owner and its permissions.
    fn keep(&self, metadata: &Metadata, to: &Path) -> Result<(), String> {
        let failed = |error| of_folder(to, &error);
        if self.is_root {
            let (user, group) = (metadata.uid(), metadata.gid());
            std::os::unix::fs::chown(to, Some(user), Some(group)).map_err(failed)?;
        }
        let permissions = Permissions::from_mode(metadata.mode().into());
        std::fs::set_permissions(to, permissions).map_err(failed)
    }
}

fn of_image(error: Ext4Error) -> String {
    format!("ext4: {error}")
}

fn of_folder(to: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", to.display())
}
