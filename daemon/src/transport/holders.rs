//! Users of a block device, which must not be removed under them.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys;

/// Lists the users of `/dev/NAME` or a partition of it, one phrase each: mounts, swap, stacked
/// devices, and other processes that have it open.
pub fn of(name: &str) -> Vec<String> {
    let numbers = device_numbers(name);
    let mut found = mounts_of(&numbers);
    found.extend(swaps_of(name));
    found.extend(
        names(&folder(name).join("holders"))
            .into_iter()
            .map(|name| format!("device {name}")),
    );
    found.extend(openers_of(&numbers));
    found
}

/// Lists the users of a device that is being served: it can be opened, which also detects claims of
/// the kernel.
pub fn of_live(name: &str) -> Vec<String> {
    match exclude(name) {
        Ok(excluded) => excluded.err().unwrap_or_default(),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)
            ) =>
        {
            Vec::new()
        }
        Err(error) => vec![format!("unknown users ({error})")],
    }
}

/// Opens `/dev/NAME` exclusively, so that it cannot be mounted while the file is open; otherwise
/// returns its users. Processes that only have it open are users, too.
///
/// # Errors
/// The device file cannot be opened, for another reason than being in use.
pub fn exclude(name: &str) -> io::Result<Result<File, Vec<String>>> {
    let holders = of(name);
    if !holders.is_empty() {
        return Ok(Err(holders));
    }
    match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(Path::new("/dev").join(name))
    {
        Ok(file) => Ok(Ok(file)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Ok(Err(vec!["claimed by the kernel".into()]))
        }
        Err(error) => Err(error),
    }
}

/// Detaches inherited copies of mounts on `/dev/NAME`; see [`sys::detach_mount_copies`].
///
/// # Errors
/// As [`sys::detach_mount_copies`].
pub fn detach_mount_copies(name: &str) -> io::Result<()> {
    sys::detach_mount_copies(&device_numbers(name))
}

/// Returns `major:minor` of the device and its partitions.
fn device_numbers(name: &str) -> BTreeSet<String> {
    let folder = folder(name);
    let parts = names(&folder)
        .into_iter()
        .filter(|part| part.starts_with(name))
        .map(|part| folder.join(part));
    let all = std::iter::once(folder.clone()).chain(parts);
    all.filter_map(|folder| fs::read_to_string(folder.join("dev")).ok())
        .map(|dev| dev.trim().to_owned())
        .collect()
}

/// Lists mounts. Every mount namespace has its own table; that of this process contains at most
/// copies.
fn mounts_of(numbers: &BTreeSet<String>) -> Vec<String> {
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let mut seen = BTreeSet::new();
    let mut found = BTreeSet::new();
    for pid in processes() {
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else {
            continue;
        };
        if (pid != 1 && Some(&namespace) == own.as_ref()) || !seen.insert(namespace) {
            continue;
        }
        let table = sys::mounts(Path::new(&format!("/proc/{pid}/mountinfo"))).unwrap_or_default();
        let ours = table
            .into_iter()
            .filter(|mount| numbers.contains(&mount.device));
        found.extend(ours.map(|mount| format!("mounted on {}", mount.path.display())));
    }
    found.into_iter().collect()
}

fn swaps_of(name: &str) -> Vec<String> {
    let node = format!("/dev/{name}");
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths = table
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let used = paths.filter(|path| {
        path.strip_prefix(&node)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('p'))
    });
    used.map(|path| format!("swap on {path}")).collect()
}

fn openers_of(numbers: &BTreeSet<String>) -> Vec<String> {
    let others = processes().filter(|pid| *pid != std::process::id());
    let opens = others.filter(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| fs::metadata(file.path()).ok())
            .any(|file| {
                file.file_type().is_block_device()
                    && numbers.contains(&format!(
                        "{}:{}",
                        libc::major(file.rdev()),
                        libc::minor(file.rdev())
                    ))
            })
    });
    opens
        .map(|pid| format!("open in process {pid} ({})", name_of(pid)))
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    names(Path::new("/proc"))
        .into_iter()
        .filter_map(|name| name.parse().ok())
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn folder(name: &str) -> PathBuf {
    Path::new("/sys/block").join(name)
}
