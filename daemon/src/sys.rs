//! What the daemon asks of the kernel about itself, before it touches a device.
//!
//! A process that serves a block device must not wait for that device: memory it needs under
//! pressure may only come free once the device has written. So its memory is locked, its
//! allocations never start I/O, and its mount namespace is its own. All of it is inherited by
//! threads started later and by none started before: call these first thing in `main`.

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

/// All of this, for a process that is about to serve `/dev/ublkbN` or `/dev/nbdN`. What is refused
/// is returned, to be warned of: the device works without, as long as memory does not run out.
pub fn prepare_for_block_device() -> Vec<String> {
    let steps = [
        ("a mount namespace of its own", own_mount_namespace()),
        ("allocations that do not wait for I/O", io_flusher()),
        ("memory locked in RAM", lock_memory()),
        (
            "the last place on the OOM killer's list",
            last_for_the_oom_killer(),
        ),
    ];
    steps
        .into_iter()
        .filter_map(|(what, result)| Some(format!("{what}: {}", result.err()?)))
        .collect()
}

/// Marks this thread, and those it starts, as one that block I/O depends on: its allocations do not
/// wait for I/O. Needs `CAP_SYS_RESOURCE`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`.
pub fn io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Whether [`io_flusher`] holds for this thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`.
pub fn is_io_flusher() -> io::Result<bool> {
    Ok(rustix::process::is_io_flusher()?)
}

/// Locks everything mapped now and later into RAM. Needs `CAP_IPC_LOCK` or a large enough `ulimit
/// -l`.
///
/// # Errors
/// `EPERM` or `ENOMEM` beyond the limit.
pub fn lock_memory() -> io::Result<()> {
    Ok(nix::sys::mman::mlockall(
        MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE,
    )?)
}

/// Asks the kernel to kill everything else first when memory runs out: with this process gone, its
/// users hang.
///
/// # Errors
/// The file under `/proc/self` cannot be written.
pub fn last_for_the_oom_killer() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-1000")
}

/// Files and sockets made from now on are for their owner alone.
pub fn private_umask() {
    nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
}

/// Listens on a unix socket that only its owner can reach, from the moment it has a name.
/// Non-blocking.
///
/// # Errors
/// The path exists, is too long or cannot be made.
pub fn listen_privately(path: &Path, backlog: i32) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // Linux gives a new socket file the mode of the socket itself, so that it never exists with a
    // wider one.
    nix::sys::stat::fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    nix::sys::socket::listen(&socket, Backlog::new(backlog)?)?;
    Ok(socket.into())
}

/// Moves the process into a mount namespace of its own. In a shared one it could be the last to
/// hold a file system on its own device: exiting, it would wait for a write that only it can serve.
/// Mounts and unmounts of others still reach it. Needs `CAP_SYS_ADMIN`, and no other thread yet. A
/// service manager may have done it, and forbidden it from then on.
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

/// Detaches this namespace's copies of mounts that sit on the block devices `devices`
/// (`major:minor`). A daemon restarted under a mounted device inherits such copies, and would hold
/// the file system open after its users unmounted it. Copies that go with their original are left
/// alone, and so is everything in a namespace shared with process 1, where the mount is no copy.
///
/// # Errors
/// The table of mounts cannot be read, or a copy cannot be detached.
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
    /// `major:minor` of what is mounted.
    pub device: String,
    /// Where.
    pub path: PathBuf,
    /// Whether it is unmounted when its original is.
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

/// The kernel writes space, tab, newline and backslash as three octal digits.
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

/// Whether process `pid` still runs; one that has ended but is not yet reaped does not.
pub fn process_alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name may hold spaces and brackets; the state follows the last bracket.
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
            // Not for everybody; what it needs is known.
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
