//! Mounts: tables of them, and a mount namespace for a daemon that holds only what it needs.
//!
//! A mount namespace begins as a copy of its creator's. A copied mount keeps its file system alive
//! after everybody else unmounted it: `umount` succeeds, and the disk stays in use. On a daemon's
//! own device it is worse. A killed daemon that is the last to hold a file system cannot end: the
//! kernel writes the file system back first, to a device that nobody serves any more. So a daemon
//! for a block device has a mount namespace that nobody else mounts into, without the file systems
//! it does not need.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;

const OWN_TABLE: &str = "/proc/self/mountinfo";

/// Folders that every daemon needs, with the file systems they are in.
const SYSTEM: [&str; 7] = ["/", "/dev", "/etc", "/proc", "/run", "/sys", "/usr"];

/// One line of a mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the file system. Some file systems (btrfs) have one of their own.
    pub device: String,
    /// Mount point.
    pub path: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// Source of the mount: for a disk, the device's node.
    pub(crate) source: String,
    /// Whether it is unmounted with an original elsewhere.
    pub(crate) follows: bool,
    /// Whether mounts on it propagate to others.
    pub(crate) shared: bool,
}

/// Reads a `mountinfo` file. A mount point's name that is no UTF-8 is garbled.
///
/// # Errors
/// The file cannot be read.
pub fn read(table: &Path) -> io::Result<Vec<Mount>> {
    let table = fs::read(table)?;
    let lines = String::from_utf8_lossy(&table);
    Ok(lines.lines().filter_map(parse).collect())
}

/// Moves the process into a mount namespace of its own that holds the system's folders and the file
/// systems of `paths`, and nothing else: mounts of others neither reach it nor stay in it. Returns
/// what keeps the file systems of `paths` in use outside, too, so that their unmounting is refused
/// there; drop it when the files are closed. The working folder stays in use until it is left.
///
/// Needs `CAP_SYS_ADMIN`, and no other thread yet. A service manager may have created a namespace
/// for this process, and forbidden further ones. In that one, mounts that follow their originals
/// stay.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, or where unmounting is forbidden.
pub(crate) fn own_namespace(paths: &[PathBuf]) -> io::Result<Vec<File>> {
    let kept = with_targets(paths);
    let in_use_outside = kept.iter().filter_map(|path| pin(path)).collect();
    match nix::sched::unshare(CloneFlags::CLONE_NEWNS) {
        Err(Errno::EPERM) if is_alone()? => {}
        unshared => {
            unshared?;
            propagate(MsFlags::MS_PRIVATE)?;
        }
    }
    release_all_but(&kept)?;
    Ok(in_use_outside)
}

/// Moves this thread into a copy of its mount namespace: mounts in it end with its last process,
/// and unmounts in the original reach it. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn own_copy() -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    propagate(MsFlags::MS_SLAVE)
}

fn propagate(how: MsFlags) -> io::Result<()> {
    let how = MsFlags::MS_REC | how;
    Ok(nix::mount::mount(
        None::<&str>,
        "/",
        None::<&str>,
        how,
        None::<&str>,
    )?)
}

/// Returns the paths, what they and the running program are links to, and the system's folders.
fn with_targets(paths: &[PathBuf]) -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let absolute = paths.iter().filter_map(|p| std::path::absolute(p).ok());
    let named: Vec<_> = absolute
        .chain(program)
        .chain(SYSTEM.map(PathBuf::from))
        .collect();
    let targets: Vec<_> = named.iter().filter_map(|path| existing(path)).collect();
    [named, targets].concat()
}

/// Returns the real path of the file, or of the nearest folder above it that exists.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find_map(|path| fs::canonicalize(path).ok())
}

/// Keeps the file system of this path in use, without opening the file.
fn pin(path: &Path) -> Option<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH);
    options.open(existing(path)?).ok()
}

/// Returns whether no other process is in this process's mount namespace; false if a process may
/// not be inspected.
fn is_alone() -> io::Result<bool> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt"));
    let own = namespace(Path::new("/proc/self"))?;
    let pid = std::process::id();
    if pid != 1 && !Path::new("/proc/1").exists() {
        // The processes of others are hidden.
        return Ok(false);
    }
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let other = name.to_str().and_then(|name| name.parse().ok());
        if other.is_none_or(|other: u32| other == pid) {
            continue;
        }
        match namespace(&entry.path()) {
            Ok(other) if other != own => {}
            Err(error) if has_ended(&error) => {}
            Ok(_) | Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Unmounts file systems on which none of `paths` depends, in this namespace only. Mounts below
/// such a one go with it, so no request is sent to a server that is gone.
fn release_all_but(paths: &[PathBuf]) -> io::Result<()> {
    let lazily = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
    loop {
        let all = read(Path::new(OWN_TABLE))?;
        let (mut is_released, mut refused) = (false, None);
        for mount in surplus(&all, paths) {
            match nix::mount::umount2(&mount.path, lazily) {
                Ok(()) => is_released = true,
                // Gone with the mount above it, or hidden until another one is.
                Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(error) => refused = Some(error),
            }
        }
        // A mount that was under another one at the same path may be visible now.
        if !is_released {
            return refused.map_or(Ok(()), |error| Err(error.into()));
        }
    }
}

/// Returns the mounts of file systems on which none of `paths` depends. A second mount of a needed
/// file system stays: it keeps nothing more in use, and may restrict this process. So do shared
/// mounts, whose unmounting would reach others, and mounts that are unmounted with their original.
fn surplus<'a>(all: &'a [Mount], paths: &[PathBuf]) -> Vec<&'a Mount> {
    let on_the_way = |mount: &&Mount| paths.iter().any(|path| path.starts_with(&mount.path));
    let needed: BTreeSet<_> = all
        .iter()
        .filter(on_the_way)
        .map(|mount| &mount.device)
        .collect();
    all.iter()
        .filter(|mount| !needed.contains(&mount.device) && !mount.follows && !mount.shared)
        .collect()
}

fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(2);
    let device = words.next()?.to_owned();
    let path = PathBuf::from(unescape(words.nth(1)?));
    let tags: Vec<_> = words.skip(1).collect();
    let has = |tag| tags.iter().any(|word| word.starts_with(tag));
    Some(Mount {
        device,
        path,
        kind: file_system.split(' ').next()?.to_owned(),
        source: unescape(file_system.split(' ').nth(1)?),
        follows: has("master:"),
        shared: has("shared:"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_gives_device_path_and_source() {
        let line = r"36 35 259:3 / /mnt/my\040disk rw,noatime shared:1 - ext4 /dev/ublkb0 rw";
        let mount = parse(line).unwrap();
        assert_eq!(
            mount,
            Mount {
                device: "259:3".into(),
                path: "/mnt/my disk".into(),
                kind: "ext4".into(),
                source: "/dev/ublkb0".into(),
                follows: false,
                shared: true,
            }
        );
        let slave = parse(&line.replace("shared:1", "master:1")).unwrap();
        assert!(slave.follows && !slave.shared);
        assert!(parse("36 35").is_none());
    }

    #[test]
    fn a_name_that_is_no_utf_8_hides_no_other_mount() {
        let table = tempfile::NamedTempFile::new().unwrap();
        let lines = b"1 0 8:1 / /a\xff rw - ext4 /dev/a rw\n2 0 8:2 / /b rw - ext4 /dev/b rw\n";
        fs::write(table.path(), lines).unwrap();
        assert_eq!(read(table.path()).unwrap()[1].path, Path::new("/b"));
    }

    #[test]
    fn escapes_are_three_octal_digits() {
        assert_eq!(unescape(r"a\011b\134c"), "a\tb\\c");
        assert_eq!(unescape(r"end\04"), r"end\04");
    }

    #[test]
    fn only_file_systems_on_the_way_to_a_needed_path_stay() {
        let table = "\
            1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 0:5 / /proc rw - proc proc rw\n\
            3 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n\
            4 3 8:3 / /srv/images rw - ext4 /dev/sda3 rw\n\
            5 3 8:4 / /srv/im rw - ext4 /dev/sda4 rw\n\
            6 1 259:0 / /mnt rw - ext4 /dev/ublkb0 rw\n\
            7 1 8:1 /bind /bind ro - ext4 /dev/sda1 rw\n\
            8 1 8:5 / /follows rw master:4 - ext4 /dev/sda5 rw\n\
            9 1 8:6 / /shared rw shared:7 - ext4 /dev/sda6 rw\n";
        let all: Vec<_> = table.lines().filter_map(parse).collect();
        let paths = ["/proc".into(), "/srv/images/a.ftld".into()];
        let gone: Vec<_> = surplus(&all, &paths).iter().map(|m| &*m.path).collect();
        assert_eq!(gone, [Path::new("/srv/im"), Path::new("/mnt")]);
    }

    #[test]
    fn a_missing_file_stands_for_the_nearest_folder_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        let missing = folder.path().join("link/none/image.ftld");
        assert_eq!(existing(&missing), Some(real.canonicalize().unwrap()));
        assert!(pin(&missing).is_some());
        assert!(with_targets(&[missing]).contains(&real.canonicalize().unwrap()));
    }
}
