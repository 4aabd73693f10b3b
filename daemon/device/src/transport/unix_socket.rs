//! Unix sockets on which a server listens.
//!
//! Invariants: a unix socket is accessible only to its owner from the moment it has a name. A file
//! that is not a socket is never removed; a socket with a listener is never replaced. If the
//! process dies, the socket file remains, and the next server replaces it.

use crate::sys;
use ftld_kit::private_lock::PrivateLock;
use nix::unistd::{AccessFlags, access};
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Adds the address to an error of listening there.
pub(crate) fn named(what: impl fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {what}: {error}"))
}

/// Checks whether a server could listen at this path. Does not listen, so no client connects in
/// vain.
///
/// # Errors
/// Another server listens there, something else has the path, or its folder is missing or closed.
pub(crate) fn probe(path: &Path) -> io::Result<()> {
    let free = is_stale(path).and_then(|_| enter(path));
    free.map_err(|error| named(path.display(), error))
}

/// Listens at this path, non-blocking; replaces a socket without a listener.
///
/// # Errors
/// As [`probe`], or the path is too long.
pub(crate) fn bind(path: &Path, backlog: u16) -> io::Result<(SocketFile, UnixListener)> {
    let bind = || {
        let lock = lock_name(path)?;
        let bound = remove_stale(path).and_then(|()| {
            let listener = sys::listen_privately(path, backlog.into())?;
            Ok((SocketFile::of(path)?, listener))
        });
        lock.remove();
        bound
    };
    bind().map_err(|error| named(path.display(), error))
}

/// Checks that a socket can be created in the folder of its path.
fn enter(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| {
        let error = io::Error::from(errno);
        let text = match error.kind() {
            io::ErrorKind::NotFound => "this folder does not exist; create it".to_owned(),
            _ => format!("{error}; choose another folder"),
        };
        io::Error::new(error.kind(), format!("{}: {text}", folder.display()))
    })
}

/// Locks a socket's name, so that two servers cannot replace the socket at once. The lock is a file
/// next to it that only the owner can open. It is held briefly; a longer hold is reported.
fn lock_name(path: &Path) -> io::Result<PrivateLock> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    for _ in 0..100 {
        if let Some(lock) = PrivateLock::take(Path::new(&lock))? {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = format!(
        "another process keeps {} locked",
        Path::new(&lock).display()
    );
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match is_stale(path)? {
        true => std::fs::remove_file(path),
        false => Ok(()),
    }
}

/// Returns whether a socket without a listener has this path; fails if something else has it.
fn is_stale(path: &Path) -> io::Result<bool> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !meta.file_type().is_socket() {
        let text = "the path exists and is not a socket; choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // A listener with a full queue is one, too.
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server listens there; stop it or choose another path",
        )),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::AddrInUse.into())
        }
        Err(error) => Err(error),
    }
}

/// The file of a unix socket, removed when dropped if it is still the same file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.to_owned(),
            identity: (meta.dev(), meta.ino()),
        })
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
