//! Which disk a file is on: by the number of its file system's device, as `/sys` and `/proc` list
//! it.

use ftld_device::sys::mounts;
use ftld_kit::failure::Failure;
use nix::sys::stat::{major, minor};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a sector of `/sys`, whatever those of the disk are.
const SECTOR: u64 = 512;
/// Folders that a stacked device has under its own, and what it is.
const STACKED: [(&str, &str); 4] = [
    ("dm", "a device of the device mapper (LVM, LUKS)"),
    ("loop", "a loop device"),
    ("md", "an array of md"),
    ("bcache", "a device of bcache"),
];

/// The disk below a file system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disk {
    /// Its name in `/dev`.
    pub(super) name: String,
    /// First byte of the file system's partition; 0 without partitions.
    pub(super) start: u64,
}

/// Returns the disk of a file system with this device number, in a host whose `/sys` and `/proc`
/// are below `root`.
///
/// # Errors
/// It is on no disk, or on one of which it is unknown where its bytes are.
pub(super) fn disk_of(root: &Path, device: u64) -> Result<Disk, Failure> {
    let number = format!("{}:{}", major(device), minor(device));
    let Ok(folder) = fs::canonicalize(root.join("sys/dev/block").join(&number)) else {
        return Err(Failure::failed(on_no_disk(root, &number)));
    };
    let start = match folder.join("partition").exists() {
        true => number_in(&folder.join("start")).map(|sectors| sectors * SECTOR),
        false => Some(0),
    };
    let disk = match start {
        Some(1..) => folder.parent().map(PathBuf::from),
        _ => Some(folder),
    };
    let name = |disk: &PathBuf| disk.file_name()?.to_str().map(str::to_owned);
    let (disk, start) = disk.zip(start).ok_or_else(|| unknown(&number))?;
    let name = name(&disk).ok_or_else(|| unknown(&number))?;
    match STACKED.iter().find(|(kind, _)| disk.join(kind).exists()) {
        None => Ok(Disk { name, start }),
        Some((_, what)) => Err(Failure::failed(format!(
            "its file system is on /dev/{name}, {what}: where its bytes are below that is unknown; \
             put the file system on the ftld device itself or on a partition of it"
        ))),
    }
}

fn unknown(number: &str) -> Failure {
    Failure::failed(format!("/sys does not describe block device {number}"))
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns why a file system without a block device of its own has no bytes on a disk.
fn on_no_disk(root: &Path, number: &str) -> String {
    let table = mounts::read(&root.join("proc/self/mountinfo")).unwrap_or_default();
    let mount = table.iter().rev().find(|mount| mount.device == number);
    let (kind, on) = match mount.map(|mount| &*mount.kind) {
        // It has a number of its own for each subvolume, of which the table lists few.
        Some("btrfs") => (
            "btrfs",
            "numbers its bytes across its devices, so their place on one is unknown",
        ),
        Some(kind) => (kind, "is on no block device"),
        None => (
            "a file system",
            "has no block device of its own, such as btrfs or an overlay",
        ),
    };
    let is = match mount {
        Some(_) => format!("it is on {kind}, which {on}"),
        None => format!("it is on {kind} that {on}"),
    };
    format!("{is}; ext4 or xfs on an ftld device shows where its files are")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::makedev;
    use std::os::unix::fs::symlink;

    /// A host with these files; a path under `sys/dev/block` is a link to its text.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match path.parent().unwrap().ends_with("dev/block") {
                true => symlink(text, path).unwrap(),
                false => fs::write(path, text).unwrap(),
            }
        }
        root
    }

    #[test]
    fn a_partition_begins_at_its_sector_and_stacked_devices_are_named() {
        let root = host(&[
            ("sys/devices/ublkb0/dev", "259:0"),
            ("sys/devices/ublkb0/ublkb0p1/partition", "1\n"),
            ("sys/devices/ublkb0/ublkb0p1/start", "2048\n"),
            ("sys/devices/dm-0/dm/name", "vg-t"),
            ("sys/devices/loop3/loop/backing_file", "/a"),
            ("sys/dev/block/259:0", "../../devices/ublkb0"),
            ("sys/dev/block/259:1", "../../devices/ublkb0/ublkb0p1"),
            ("sys/dev/block/254:0", "../../devices/dm-0"),
            ("sys/dev/block/7:3", "../../devices/loop3"),
            (
                "proc/self/mountinfo",
                "1 0 0:25 / /tmp rw - tmpfs tmpfs rw\n2 0 0:26 / /b rw - btrfs /dev/ublkb0 rw\n",
            ),
        ]);
        let disk = |major, minor| disk_of(root.path(), makedev(major, minor));
        let on = |start| Disk {
            name: "ublkb0".into(),
            start,
        };
        assert_eq!(disk(259, 0).unwrap(), on(0));
        assert_eq!(disk(259, 1).unwrap(), on(2048 * 512));
        for (major, minor, says) in [
            (254, 0, "/dev/dm-0, a device of the device mapper"),
            (7, 3, "/dev/loop3, a loop device"),
            (0, 25, "it is on tmpfs, which is on no block device"),
            (0, 26, "it is on btrfs, which numbers its bytes across"),
            (0, 27, "has no block device of its own"),
        ] {
            let refused = disk(major, minor).unwrap_err().message;
            assert!(refused.contains(says), "{major}:{minor}: {refused}");
        }
    }
}
