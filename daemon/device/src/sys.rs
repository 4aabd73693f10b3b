//! Process settings that the daemon requests from the kernel before it opens a device.
//!
//! A process that serves a block device must not wait for that device. Memory it needs under
//! pressure may become free only after the device has written. So its memory is locked, its
//! allocations never start I/O, and [its mount namespace](mounts) holds no file system in use that
//! it does not need. Threads started later inherit all of this, threads started before do not: call
//! these functions first in `main`.

pub mod mounts;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::mman::MlockAllFlags;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::Mode;

/// Result of [`prepare_for_block_device`].
#[derive(Debug, Default)]
pub struct Prepared {
    /// The rejected settings, for a warning: the device works without them, as long as memory does
    /// not run out and nobody mounts a file system on it.
    pub refused: Vec<String>,
    /// Keeps the file systems of the needed files in use for other processes, too.
    _in_use_outside: Vec<File>,
}

/// Applies all settings, for a process that will serve `/dev/ublkbN` or `/dev/nbdN`. `paths` are
/// the files and folders that it will open, besides the system's.
pub fn prepare_for_block_device(paths: &[PathBuf]) -> Prepared {
    let mut in_use_outside = Vec::new();
    let namespace = mounts::own_namespace(paths).map(|held| in_use_outside = held);
    let steps = [
        ("a mount namespace of its own", namespace),
        ("allocations that do not wait for I/O", io_flusher()),
        ("memory locked in RAM", lock_memory()),
        ("the last place on the OOM killer's list", lower_oom_score()),
    ];
    let refused = steps
        .into_iter()
        .filter_map(|(what, result)| Some(format!("{what}: {}", result.err()?)))
        .collect();
    Prepared {
        refused,
        _in_use_outside: in_use_outside,
    }
}

/// Marks this thread, and threads it starts, as part of the block I/O path: its allocations do not
/// wait for I/O. Needs `CAP_SYS_RESOURCE`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`.
pub(crate) fn io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Locks all current and future mappings into RAM. Needs `CAP_IPC_LOCK` or a large enough `ulimit
/// -l`.
///
/// # Errors
/// `EPERM` or `ENOMEM` beyond the limit.
pub(crate) fn lock_memory() -> io::Result<()> {
    Ok(nix::sys::mman::mlockall(
        MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE,
    )?)
}

/// Makes this process the last choice of the OOM killer: if it dies, its users hang.
///
/// # Errors
/// The file under `/proc/self` cannot be written.
pub(crate) fn lower_oom_score() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-1000")
}

/// Lets a write beyond the limit of a file's size fail with `EFBIG`: by default the kernel ends the
/// process with SIGXFSZ. A program that this one starts has the default again.
///
/// # Errors
/// The kernel refuses the handler.
pub fn survive_file_size_limit() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _context = runtime.enter();
    // The handler stays when the stream and the runtime are gone.
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// Gives this thread the lowest priority.
pub fn yield_to_others() {
    let this = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(this), 19) {
        tracing::debug!("lowest priority for a thread: {error}");
    }
}

/// Restricts new files and sockets to their owner.
pub fn private_umask() {
    nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
}

/// The length of a listener's queue. nix refuses one above the C library's `SOMAXCONN`, which is
/// 128 with musl; the kernel's own limit is higher, and applies instead.
pub fn queue_length(backlog: i32) -> Backlog {
    Backlog::new(backlog).unwrap_or(Backlog::MAXALLOWABLE)
}

/// Listens on a unix socket that only its owner can open, from its creation on. Non-blocking.
///
/// # Errors
/// The path exists, is too long or cannot be created.
pub fn listen_privately(path: &Path, backlog: i32) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // Linux gives a new socket file the mode of the socket itself, so the file never has a wider
    // one.
    nix::sys::stat::fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    nix::sys::socket::listen(&socket, queue_length(backlog))?;
    Ok(socket.into())
}

/// Returns the memory available without swapping, in bytes; `None` if the kernel does not report
/// it.
pub fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Returns whether process `pid` still runs; an ended but unreaped one does not.
pub fn process_alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name may contain spaces and brackets; the state follows the last bracket.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::is_io_flusher;

    #[test]
    fn threads_of_an_io_flusher_are_io_flushers() {
        let inherited = std::thread::spawn(|| {
            io_flusher().map(|()| std::thread::spawn(is_io_flusher).join().unwrap())
        });
        match inherited.join().unwrap() {
            Ok(inherited) => assert!(inherited.unwrap()),
            // Without the privilege, `EPERM` is expected.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert!(
            !is_io_flusher().unwrap_or(false),
            "the caller was not asked to be one"
        );
    }

    #[test]
    fn a_private_socket_never_has_a_wider_mode_than_its_owners() {
        use std::collections::BTreeSet;
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let done = std::sync::atomic::AtomicBool::new(false);
        let modes = std::thread::scope(|scope| {
            let look = || {
                let mut modes = BTreeSet::new();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    modes.extend(std::fs::symlink_metadata(&path).map(|meta| meta.mode() & 0o777));
                }
                modes
            };
            let looking = scope.spawn(look);
            for _ in 0..2_000 {
                drop(listen_privately(&path, 1).unwrap());
                std::fs::remove_file(&path).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            looking.join().unwrap()
        });
        assert!(modes.is_subset(&BTreeSet::from([0o600])), "{modes:?}");
    }

    #[test]
    fn this_process_is_alive_and_a_reaped_child_is_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(process_alive(std::process::id() as i32));
        assert!(!process_alive(child.id() as i32));
    }
}
