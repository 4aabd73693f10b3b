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
/// Largest number of names of the average file.
const LINKS_MAX: u64 = 8;
/// Bytes that are read at once.
const PART_BYTES: usize = 256 << 10;
/// Bytes that are written, or left out if they are zeros.
const PIECE_BYTES: usize = 4096;

/// Why files are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::crashes) enum Stop {
    /// A mount would fail, or the tree is damaged.
    Image(String),
    /// The host cannot write the copy.
    Host(String),
    /// Nobody waits for it any more.
    Over,
}

/// Copies the tree below a folder of the image, `/` for all of it; asks `is_over` again and again.
/// Regular files are as sparse as they are there. Sockets, pipes, devices, times and extended
/// attributes are left out, as are owners if this is not root; hard links become files.
///
/// # Errors
/// See [`Stop`].
pub(in crate::crashes) fn extract(
    image: &Path,
    from: &str,
    to: &Path,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Stop> {
    let bytes = std::fs::metadata(image).map_err(|error| of_host(image, &error))?;
    let replayed = Replayed::open(image).map_err(Stop::Image)?;
    let mut copy = Copy {
        fs: Ext4::load(Box::new(replayed)).map_err(of_image)?,
        image_bytes: bytes.len(),
        left: bytes.len().saturating_mul(LINKS_MAX),
        buffer: vec![0; PART_BYTES],
        is_root: nix::unistd::geteuid().is_root(),
        is_over,
    };
    let name = from.trim_matches('/');
    let path = ext4_view::PathBuf::try_from(Path::new("/").join(name));
    let path = path.map_err(|error| Stop::Image(format!("{from}: {error}")))?;
    let metadata = copy.fs.symlink_metadata(path.as_path());
    let metadata = metadata.map_err(|error| Stop::Image(format!("{from}: {error}")))?;
    match metadata.is_dir() {
        true => copy.folder(path.as_path(), to, 0),
        false => {
            let name = Path::new(name).file_name().unwrap_or_default();
            copy.other(path.as_path(), &metadata, &to.join(name))
        }
    }
}

struct Copy<'a> {
    fs: Ext4,
    image_bytes: u64,
    /// Bytes that may still be copied: blocks of a damaged tree may be in many files.
    left: u64,
    buffer: Vec<u8>,
    is_root: bool,
    is_over: &'a dyn Fn() -> bool,
}

impl Copy<'_> {
    fn folder(&mut self, from: ext4_view::Path<'_>, to: &Path, depth: u32) -> Result<(), Stop> {
        if depth > DEPTH_MAX {
            return Err(Stop::Image(format!(
                "{}: the tree has no end",
                from.display()
            )));
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

    fn entry(&mut self, entry: &DirEntry, to: &Path, depth: u32) -> Result<(), Stop> {
        if (self.is_over)() {
            return Err(Stop::Over);
        }
        let from = entry.path();
        let metadata = entry.metadata().map_err(of_image)?;
        if !metadata.is_dir() {
            return self.other(from.as_path(), &metadata, to);
        }
        std::fs::create_dir(to).map_err(|error| of_host(to, &error))?;
        self.folder(from.as_path(), to, depth + 1)?;
        self.keep(&metadata, to)
    }

    /// Copies what is no folder.
    fn other(
        &mut self,
        from: ext4_view::Path<'_>,
        metadata: &Metadata,
        to: &Path,
    ) -> Result<(), Stop> {
        match metadata.file_type() {
            FileType::Regular => {
                self.file(from, metadata, to)?;
                self.keep(metadata, to)
            }
            FileType::Symlink => {
                let target = self.fs.read_link(from).map_err(of_image)?;
                let target = OsStr::from_bytes(target.as_ref());
                symlink(target, to).map_err(|error| of_host(to, &error))
            }
            _ => Ok(()),
        }
    }

    fn file(
        &mut self,
        from: ext4_view::Path<'_>,
        metadata: &Metadata,
        to: &Path,
    ) -> Result<(), Stop> {
        let failed = |error| of_host(to, &error);
        // A damaged size would be read for hours.
        if metadata.len() / SPARSE_MAX > self.image_bytes {
            let (name, bytes) = (from.display(), metadata.len());
            return Err(Stop::Image(format!(
                "{name}: {bytes} bytes, too many to copy"
            )));
        }
        let file = File::create_new(to).map_err(failed)?;
        file.set_len(metadata.len()).map_err(failed)?;
        let mut source = self.fs.open(from).map_err(of_image)?;
        let mut at = 0;
        loop {
            if (self.is_over)() {
                return Err(Stop::Over);
            }
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
            for piece in self.buffer[..filled].chunks(PIECE_BYTES) {
                if piece.iter().any(|byte| *byte != 0) {
                    let left = self.left.checked_sub(to_u64(piece.len()));
                    self.left = left.ok_or_else(|| {
                        let name = from.display();
                        Stop::Image(format!("{name}: the files are larger than the device"))
                    })?;
                    file.write_all_at(piece, at).map_err(failed)?;
                }
                at += to_u64(piece.len());
            }
        }
    }

    /// Gives a copy its owner and its permissions.
    fn keep(&self, metadata: &Metadata, to: &Path) -> Result<(), Stop> {
        let failed = |error| of_host(to, &error);
        if self.is_root {
            let (user, group) = (metadata.uid(), metadata.gid());
            std::os::unix::fs::chown(to, Some(user), Some(group)).map_err(failed)?;
        }
        let permissions = Permissions::from_mode(metadata.mode().into());
        std::fs::set_permissions(to, permissions).map_err(failed)
    }
}

fn of_image(error: Ext4Error) -> Stop {
    Stop::Image(format!("ext4: {error}"))
}

fn of_host(to: &Path, error: &std::io::Error) -> Stop {
    Stop::Host(format!("{}: {error}", to.display()))
}
