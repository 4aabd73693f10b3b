//! The folder of all temporary files. Mounts below it are unmounted first; if a mount stays, so
//! does the folder.

use super::CrashesArgs;
use super::timeline::Timeline;
use ftld_device::sys;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::size::show_size;
use nix::mount::{MntFlags, umount2};
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prefix of the folders' names.
const PREFIX: &str = "ftld-crashes-";

/// Folder of temporary files, removed when it is dropped.
pub struct Scratch {
    path: PathBuf,
    /// Locked as long as its maker lives.
    _lock: File,
}

impl Scratch {
    /// Creates the folder of an exploration.
    ///
    /// # Errors
    /// The place cannot be written.
    pub(super) fn create(args: &CrashesArgs) -> Result<Scratch, Failure> {
        let place = args.scratch.clone().unwrap_or_else(place);
        Scratch::create_in(&place)
    }

    /// Creates a folder, and removes those of processes that were killed.
    ///
    /// # Errors
    /// The place cannot be written.
    pub fn create_in(place: &Path) -> Result<Scratch, Failure> {
        Scratch::of(place).map_err(|error| {
            Failure::failed(format!(
                "{}: {error}; choose another folder for temporary files by --scratch or TMPDIR",
                place.display()
            ))
        })
    }

    /// As [`Scratch::create_in`].
    pub(super) fn of(place: &Path) -> io::Result<Scratch> {
        remove_orphans(place);
        locked_folder(place)
    }

    /// Returns the real path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a folder without room for the images, and for copies of their files if checks get
    /// them.
    pub(super) fn has_room(
        &self,
        timeline: &Timeline,
        jobs: u32,
        with_files: bool,
    ) -> Result<(), Failure> {
        let Ok(fs) = statvfs(&self.path) else {
            return Ok(());
        };
        let free = fs.blocks_available() * fs.fragment_size();
        // No state has more units with data than were ever written.
        let image = to_u64(timeline.written.len()) * u64::from(timeline.unit_bytes);
        let copies = u64::from(jobs) * if with_files { 2 } else { 1 };
        let wanted = image.saturating_mul(copies);
        if wanted <= free {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Failed,
            format!(
                "{}: {} free, {jobs} images need up to {}; free some, choose another folder by --scratch, or fewer --jobs",
                self.path.display(),
                show_size(free),
                show_size(wanted)
            ),
        ))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(what) = unmount(&self.path).and_then(|()| remove(&self.path)) {
            tracing::warn!("the exploration left {what}");
        }
    }
}

/// Returns the folder that a user has not named another for.
pub(super) fn place() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    match std::env::var_os("TMPDIR") {
        Some(folder) => folder.into(),
        None if tempfile::tempfile_in(&shm).is_ok() => shm,
        None => std::env::temp_dir(),
    }
}

/// Creates a locked folder. Its path is the real one, as in the mount table.
fn locked_folder(place: &Path) -> io::Result<Scratch> {
    let place = place.canonicalize()?;
    loop {
        let path = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&place)?
            .keep();
        // Another exploration may take it for an orphan before it is locked.
        let lock = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        flock(&lock, FlockOperation::LockExclusive)?;
        if path.exists() {
            return Ok(Scratch { path, _lock: lock });
        }
    }
}

/// Removes the folders of this user's processes that were killed: nobody has locked them.
pub fn remove_orphans(place: &Path) {
    let Ok(entries) = std::fs::read_dir(place) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = |of: &Metadata| of.is_dir() && of.uid() == geteuid().as_raw();
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
            || !entry.path().symlink_metadata().is_ok_and(|of| is_ours(&of))
        {
            continue;
        }
        let (Ok(path), Ok(folder)) = (entry.path().canonicalize(), File::open(entry.path())) else {
            continue;
        };
        let lock = flock(&folder, FlockOperation::NonBlockingLockExclusive);
        if lock.is_ok() {
            let _ = unmount(&path).and_then(|()| remove(&path));
        }
    }
}

/// Unmounts everything below a folder, the last mount first.
///
/// # Errors
/// A mount stays; the text names it.
pub(super) fn unmount(folder: &Path) -> Result<(), Failure> {
    for mount in mounts_below(folder)?.iter().rev() {
        let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
        if umount2(mount, flags).is_err() {
            unmount_as_user(mount);
        }
    }
    match mounts_below(folder)?.first() {
        None => Ok(()),
        Some(mount) => Err(Failure::failed(format!("a mount at {}", mount.display()))),
    }
}

/// Unmounts what a user may mount by a program with more rights: FUSE, and what fstab permits.
fn unmount_as_user(mount: &Path) {
    for (program, options) in [
        ("fusermount3", "-uz"),
        ("fusermount", "-uz"),
        ("umount", "-l"),
    ] {
        let mut command = Command::new(program);
        command.arg(options).arg(mount).stdin(Stdio::null());
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if ended.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::io(format!("{}: mounts", folder.display()), &error);
    let mounts = sys::mounts::read(Path::new("/proc/self/mountinfo")).map_err(failed)?;
    let paths = mounts.into_iter().map(|mount| mount.path);
    Ok(paths.filter(|path| path.starts_with(folder)).collect())
}

/// Removes a folder with everything in it. The caller has unmounted what was mounted there.
///
/// # Errors
/// Something stays; the text names it.
pub(super) fn remove(folder: &Path) -> Result<(), Failure> {
    let removed = match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(folder);
            std::fs::remove_dir_all(folder)
        }
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::io(folder.display(), &error))
        }
        _ => Ok(()),
    }
}

/// Lets its owner remove what is in a folder.
fn make_writable(folder: &Path) {
    let _ = std::fs::set_permissions(folder, Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}
