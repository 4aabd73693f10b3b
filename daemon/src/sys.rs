//! Process settings that the daemon requests from the kernel before it opens a device.
//!
//! A process that serves a block device must not wait for that device. Memory it needs under
//! pressure may become free only after the device has written. So its memory is locked, its
//! allocations never start I/O, and it has its own mount namespace. Threads started later inherit
//! all of this, threads started before do not: call these functions first in `main`.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use nix::sys::mman::MlockAllFlags;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::Mode;

/// Applies all settings, for a process that will serve `/dev/ublkbN` or `/dev/nbdN`. Returns the
/// rejected settings, for a warning: the device works without them, as long as memory does not run
/// out.
pub fn prepare_for_block_device() -> Vec<String> {
    let steps = [
        ("a mount namespace of its own", own_mount_namespace()),
        ("allocations that do not wait for I/O", io_flusher()),
        ("memory locked in RAM", lock_memory()),
        ("the last place on the OOM killer's list", lower_oom_score()),
    ];
    steps
        .into_iter()
        .filter_map(|(what, result)| Some(format!("{what}: {}", result.err()?)))
        .collect()
}

/// Marks this thread, and threads it starts, as part of the block I/O path: its allocations do not
/// wait for I/O. Needs `CAP_SYS_RESOURCE`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`.
pub fn io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Returns whether [`io_flusher`] is set for this thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`.
pub fn is_io_flusher() -> io::Result<bool> {
    Ok(rustix::process::is_io_flusher()?)
}

/// Locks all current and future mappings into RAM. Needs `CAP_IPC_LOCK` or a large enough `ulimit
/// -l`.
///
/// # Errors
/// `EPERM` or `ENOMEM` beyond the limit.
pub fn lock_memory() -> io::Result<()> {
    Ok(nix::sys::mman::mlockall(
        MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE,
    )?)
}

/// Makes this process the last choice of the OOM killer: if it dies, its users hang.
///
/// # Errors
/// The file under `/proc/self` cannot be written.
pub fn lower_oom_score() -> io::Result<()> {
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

/// Restricts new files and sockets to their owner.
pub fn private_umask() {
    nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
}

/// The length of a listener's queue. nix refuses one above the C library's `SOMAXCONN`, which is 128
/// with musl; the kernel's own limit is higher, and applies instead.
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

/// Moves the process into its own mount namespace. In a shared one it could be the last holder of a
/// file system on its own device. Then its exit would wait for a write that only it can serve.
/// Mounts and unmounts of others still propagate to it. Needs `CAP_SYS_ADMIN`, and no other thread
/// yet. A service manager may have created the namespace, and forbidden further ones.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn own_mount_namespace() -> io::Result<()> {
    match nix::sched::unshare(CloneFlags::CLONE_NEWNS) {
        Err(Errno::EPERM) if !shares_first_mount_namespace()? => return Ok(()),
        unshared => unshared?,
    }
    Ok(nix::mount::mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        None::<&str>,
    )?)
}

fn shares_first_mount_namespace() -> io::Result<bool> {
    Ok(std::fs::read_link("/proc/self/ns/mnt")? == std::fs::read_link("/proc/1/ns/mnt")?)
}

/// Detaches this namespace's copies of mounts of the block devices `devices` (`major:minor`). A
/// daemon restarted under a mounted device inherits such copies. They would keep the file system
/// open after its users unmounted it. Copies that are unmounted with their original stay. So do all
/// mounts in a namespace shared with process 1, where the mount is no copy.
///
/// # Errors
/// The mount table cannot be read, or a copy cannot be detached.
pub fn detach_mount_copies(devices: &BTreeSet<String>) -> io::Result<()> {
    if shares_first_mount_namespace()? {
        return Ok(());
    }
    for mount in mounts(Path::new("/proc/self/mountinfo"))? {
        if devices.contains(&mount.device) && !mount.follows {
            nix::mount::umount2(&mount.path, MntFlags::MNT_DETACH)?;
        }
    }
    Ok(())
}

/// One line of a mount table.
pub struct Mount {
    /// `major:minor` of the mounted device.
    pub device: String,
    /// Mount point.
    pub path: PathBuf,
    /// Whether it is unmounted with its original.
    pub follows: bool,
}

/// Reads a `mountinfo` file.
///
/// # Errors
/// The file cannot be read.
pub fn mounts(table: &Path) -> io::Result<Vec<Mount>> {
    Ok(std::fs::read_to_string(table)?
        .lines()
        .filter_map(parse_mount)
        .collect())
}

fn parse_mount(line: &str) -> Option<Mount> {
    let mut words = line.split(' ').skip(2);
    let device = words.next()?.to_owned();
    let path = unescape(words.nth(1)?);
    let follows = words
        .skip(1)
        .take_while(|word| *word != "-")
        .any(|word| word.starts_with("master:"));
    Some(Mount {
        device,
        path: PathBuf::from(path),
        follows,
    })
}

/// Decodes the kernel's octal escapes of space, tab, newline and backslash (three digits).
fn unescape(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('\\') {
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let (byte, used) = code.map_or(('\\', 1), |code| (char::from(code), 4));
        out.push_str(&rest[..at]);
        out.push(byte);
        rest = &rest[at + used..];
    }
    out.push_str(rest);
    out
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

    #[test]
    fn a_mount_line_gives_device_and_path() {
        let line = r"36 35 259:3 / /mnt/my\040disk rw,noatime shared:1 - ext4 /dev/ublkb0 rw";
        let mount = parse_mount(line).unwrap();
        assert_eq!(
            (
                mount.device.as_str(),
                mount.path.to_str().unwrap(),
                mount.follows
            ),
            ("259:3", "/mnt/my disk", false)
        );
        assert!(
            parse_mount(&line.replace("shared:1", "shared:9 master:1"))
                .unwrap()
                .follows
        );
        assert!(parse_mount("36 35").is_none());
    }

    #[test]
    fn escapes_are_three_octal_digits() {
        assert_eq!(unescape(r"a\011b\134c"), "a\tb\\c");
        assert_eq!(unescape(r"end\04"), r"end\04");
    }

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
