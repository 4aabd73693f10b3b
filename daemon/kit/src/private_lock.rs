//! Lock files that only their owner can open.
//!
//! Invariants: the locked file has mode 0600 and belongs to this user. Otherwise any user able to
//! open it could lock it, or wait for its lock. The lock belongs to the open file description:
//! [`is_held`] tests it without taking it.
//!
//! If the process dies, the file stays and the lock is released.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A lock, held until it is dropped.
#[derive(Debug)]
pub struct PrivateLock {
    path: PathBuf,
    file: File,
}

/// Outcome of an attempt to lock an open file.
enum Attempt {
    Taken(PrivateLock),
    /// Another process holds the lock.
    Held,
    /// The previous holder has removed the file since it was opened.
    Removed,
}

impl PrivateLock {
    /// Takes the lock, creating its file if missing; `None` if another process holds it.
    ///
    /// # Errors
    /// The file cannot be created or belongs to another user.
    pub fn take(path: &Path) -> io::Result<Option<PrivateLock>> {
        loop {
            match PrivateLock::lock(path, open(path)?)? {
                Attempt::Taken(lock) => return Ok(Some(lock)),
                Attempt::Held => return Ok(None),
                Attempt::Removed => {}
            }
        }
    }

    /// Locks a file that was opened under this path.
    fn lock(path: &Path, file: File) -> io::Result<Attempt> {
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(Attempt::Held),
            Err(errno) => return Err(errno.into()),
        }
        let now = fs::symlink_metadata(path);
        let is_same = now.is_ok_and(|now| {
            file.metadata()
                .is_ok_and(|ours| (ours.dev(), ours.ino()) == (now.dev(), now.ino()))
        });
        let path = path.to_owned();
        Ok(match is_same {
            true => Attempt::Taken(PrivateLock { path, file }),
            false => Attempt::Removed,
        })
    }

    /// Returns whether the previous holder died without removing the file.
    pub fn was_left(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.len() > 0)
    }

    /// Writes this process's id into the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sign(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        writeln!(self.file, "{}", std::process::id())
    }

    /// Removes the file, then releases the lock.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns whether a process holds the lock on this file.
pub fn is_held(file: &File) -> bool {
    let mut lock = whole_file();
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Returns whether this mode allows other users to open the file.
pub fn is_open_to_others(meta: &fs::Metadata) -> bool {
    meta.mode() & 0o077 != 0
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file = options
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != nix::unistd::geteuid().as_raw() {
        let text = format!(
            "{} is not a file of this user; choose another folder with FTLD_RUNTIME_DIR",
            path.display()
        );
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    if is_open_to_others(&meta) {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_looking_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = PrivateLock::take(&path).unwrap().unwrap();
        assert!(!lock.was_left());
        assert!(PrivateLock::take(&path).unwrap().is_none());
        let looking = File::open(&path).unwrap();
        assert!(is_held(&looking));
        drop(lock);
        assert!(!is_held(&looking));
        let mut again = PrivateLock::take(&path).unwrap().unwrap();
        again.sign().unwrap();
        drop(again);
        assert!(PrivateLock::take(&path).unwrap().unwrap().was_left());
    }

    /// The first holder removes the file. The second had opened that file before, so it does not
    /// get the lock; the third comes later and gets it.
    #[test]
    fn of_three_takers_around_a_removal_one_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let first = PrivateLock::take(&path).unwrap().unwrap();
        let (second, early) = (open(&path).unwrap(), open(&path).unwrap());
        let held = PrivateLock::lock(&path, early).unwrap();
        assert!(matches!(held, Attempt::Held));
        first.remove();
        let third = PrivateLock::take(&path).unwrap();
        assert!(third.is_some());
        let late = PrivateLock::lock(&path, second).unwrap();
        assert!(matches!(late, Attempt::Removed), "two have the lock");
        assert!(PrivateLock::take(&path).unwrap().is_none());
        drop(third);
        // The file outlives its holder: the next process gets the lock, alone.
        let fourth = PrivateLock::take(&path).unwrap();
        assert!(fourth.is_some() && PrivateLock::take(&path).unwrap().is_none());
    }

    #[test]
    fn its_file_is_for_its_owner_alone_and_goes_when_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let lock = PrivateLock::take(&path).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        lock.remove();
        assert!(!path.exists());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(PrivateLock::take(&link).is_err());
    }
}
