//! Users of a block device, as `/sys` and `/proc` list them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Users;
use crate::sys::mounts::{self, Mount};
use ftld_kit::quote::shell;

/// A host, by the folder that contains its `/sys` and `/proc`.
pub(super) struct Host {
    root: PathBuf,
}

/// A mount, and a process with its mount namespace; `None` if process 1 or this process has that
/// namespace.
struct Mounted {
    mount: Mount,
    elsewhere: Option<u32>,
}

/// A walk upwards from a device, and what it found.
struct Search<'a> {
    host: &'a Host,
    mounts: Vec<Mounted>,
    /// Nodes and files.
    swaps: Vec<String>,
    /// Loop devices with their nodes or files.
    loops: Vec<(String, PathBuf)>,
    /// Processes by the number of a device they have open.
    openers: BTreeMap<String, BTreeSet<u32>>,
    seen: BTreeSet<String>,
    users: Users,
}

impl Host {
    pub(super) fn at(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into() }
    }

    /// Returns the users of `/dev/NAME` and of all devices that are stacked on it.
    pub(super) fn users_of(&self, name: &str) -> Users {
        let mut search = Search {
            host: self,
            mounts: self.mounts(),
            swaps: self.swaps(),
            loops: self.loops(),
            openers: self.openers(),
            seen: BTreeSet::new(),
            users: Users::default(),
        };
        search.visit(name, &[]);
        search.users
    }

    /// Lists mounts. Every mount namespace has its own table. Copies of known mounts are left out,
    /// and in other namespaces those that are unmounted with their original.
    fn mounts(&self) -> Vec<Mounted> {
        let mut namespaces = BTreeSet::new();
        let mut found: Vec<Mounted> = Vec::new();
        let own = [1, std::process::id()];
        for pid in own.into_iter().chain(self.processes()) {
            let process = self.process(pid);
            let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else {
                continue;
            };
            if !namespaces.insert(namespace) {
                continue;
            }
            let elsewhere = (!own.contains(&pid)).then_some(pid);
            let table = mounts::read(&process.join("mountinfo")).unwrap_or_default();
            for mount in table {
                let is_copy = |known: &Mounted| {
                    (&known.mount.device, &known.mount.path) == (&mount.device, &mount.path)
                };
                let follows = elsewhere.is_some() && mount.follows;
                if !follows && !found.iter().any(is_copy) {
                    found.push(Mounted { mount, elsewhere });
                }
            }
        }
        found
    }

    fn swaps(&self) -> Vec<String> {
        let table = self.text("proc/swaps").unwrap_or_default();
        let lines = table.lines().skip(1);
        lines
            .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
            .collect()
    }

    fn loops(&self) -> Vec<(String, PathBuf)> {
        let devices = names(&self.root.join("sys/class/block"));
        let with_file = devices.into_iter().filter_map(|name| {
            let backing = self.text(self.device(&name).join("loop/backing_file"))?;
            Some((name, backing.into()))
        });
        with_file.collect()
    }

    fn openers(&self) -> BTreeMap<String, BTreeSet<u32>> {
        let mut openers = BTreeMap::<String, BTreeSet<u32>>::new();
        for pid in self.processes().filter(|pid| *pid != std::process::id()) {
            let files = fs::read_dir(self.process(pid).join("fd"));
            for file in files.into_iter().flatten().flatten() {
                let Ok(opened) = fs::metadata(file.path()) else {
                    continue;
                };
                if opened.file_type().is_block_device() {
                    let number = opened.rdev();
                    let number = format!("{}:{}", libc::major(number), libc::minor(number));
                    openers.entry(number).or_default().insert(pid);
                }
            }
        }
        openers
    }

    fn processes(&self) -> impl Iterator<Item = u32> + use<> {
        let numbers = names(&self.root.join("proc")).into_iter();
        let sorted: BTreeSet<_> = numbers.filter_map(|name| name.parse().ok()).collect();
        sorted.into_iter()
    }

    fn process(&self, pid: u32) -> PathBuf {
        self.root.join(format!("proc/{pid}"))
    }

    /// Returns a process with its name.
    fn named(&self, pid: u32) -> String {
        let name = self.text(self.process(pid).join("comm"));
        format!("process {pid} ({})", name.unwrap_or_default())
    }

    /// Returns the folder of a disk or a partition.
    fn device(&self, name: &str) -> PathBuf {
        self.root.join("sys/class/block").join(name)
    }

    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns the name of a device of the device mapper.
    fn mapped(&self, name: &str) -> Option<String> {
        self.text(self.device(name).join("dm/name"))
    }

    /// Returns the nodes under which the kernel's tables list a device.
    fn nodes(&self, name: &str) -> Vec<String> {
        let mapped = self.mapped(name);
        std::iter::once(format!("/dev/{name}"))
            .chain(mapped.map(|mapped| format!("/dev/mapper/{mapped}")))
            .collect()
    }

    /// Returns the name of a stacked device for people.
    fn label(&self, name: &str) -> String {
        let file = || self.text(self.device(name).join("loop/backing_file"));
        match self.mapped(name) {
            Some(mapped) => format!("{mapped} ({name})"),
            None => match file().filter(|file| !file.starts_with("/dev/")) {
                Some(file) => format!("{name} ({file})"),
                None => name.to_owned(),
            },
        }
    }

    /// Returns the command that removes a stacked device, if its kind is known.
    fn removal(&self, name: &str) -> Option<String> {
        if let Some(mapped) = self.mapped(name) {
            let uuid = self.text(self.device(name).join("dm/uuid"));
            return Some(match uuid.unwrap_or_default().split('-').next() {
                Some("LVM") => command(["vgchange", "-an", &volume_group(&mapped)]),
                Some("CRYPT") => command(["cryptsetup", "close", &mapped]),
                _ => command(["dmsetup", "remove", &mapped]),
            });
        }
        let node = format!("/dev/{name}");
        let stop = format!("echo 1 > /sys/block/{name}/bcache/stop");
        let kinds = [
            ("loop", command(["losetup", "-d", &node])),
            ("md", command(["mdadm", "--stop", &node])),
            ("bcache", stop),
        ];
        let folder = self.device(name);
        let kind = kinds
            .into_iter()
            .find(|(kind, _)| folder.join(kind).exists());
        kind.map(|(_, removal)| removal)
    }
}

impl Search<'_> {
    /// Adds the users of a device, and what is stacked on it. `below` are the stacked devices on
    /// the way to it. Each device is visited once; returns whether this is its visit.
    fn visit(&mut self, name: &str, below: &[String]) -> bool {
        if !self.seen.insert(name.to_owned()) {
            return false;
        }
        let folder = self.host.device(name);
        let number = self.host.text(folder.join("dev")).unwrap_or_default();
        let nodes = self.host.nodes(name);
        for at in 0..self.mounts.len() {
            let mount = &self.mounts[at].mount;
            if mount.device == number || nodes.contains(&mount.source) {
                self.mounted(at, below);
            }
        }
        for swap in self.swaps.clone() {
            if nodes.contains(&swap) {
                self.swapped(&swap, below);
            }
        }
        for pid in self.openers.remove(&number).unwrap_or_default() {
            let opener = format!("open in {}", self.host.named(pid));
            self.used(below, &opener);
        }
        for part in names(&folder) {
            if folder.join(&part).join("partition").exists() {
                self.visit(&part, below);
            }
        }
        for holder in names(&folder.join("holders")) {
            self.stacked(&holder, below);
        }
        for (name, backing) in self.loops.clone() {
            if nodes.iter().any(|node| backing == Path::new(node)) {
                self.stacked(&name, below);
            }
        }
        true
    }

    /// Adds a device that is stacked on the last one.
    fn stacked(&mut self, name: &str, below: &[String]) {
        let way = [below, &[self.host.label(name)]].concat();
        let users = self.users.waiting_for.len();
        if !self.visit(name, &way) {
            return;
        }
        if self.users.waiting_for.len() == users {
            self.users
                .waiting_for
                .push(format!("held by {}", way.join(", ")));
        }
        if let Some(command) = self.host.removal(name) {
            self.release(command);
        }
    }

    /// Adds a mount, and the devices and the swap in its files.
    fn mounted(&mut self, at: usize, below: &[String]) {
        let Mounted { mount, elsewhere } = &self.mounts[at];
        let (path, elsewhere) = (mount.path.clone(), *elsewhere);
        let mut how = format!("mounted on {}", path.display());
        if let Some(pid) = elsewhere {
            how += &format!(" in the mount namespace of {}", self.host.named(pid));
        }
        self.used(below, &how);
        for (name, file) in self.loops.clone() {
            if self.holds(at, &file) {
                self.stacked(&name, below);
            }
        }
        for file in self.swaps.clone() {
            if self.holds(at, Path::new(&file)) {
                self.swapped(&file, below);
            }
        }
        let is_below = |other: &Mounted| {
            other.elsewhere == elsewhere
                && other.mount.path != path
                && other.mount.path.starts_with(&path)
        };
        let all = self.mounts.iter().any(is_below);
        let inside = elsewhere
            .map(|pid| format!("nsenter -t {pid} -m "))
            .unwrap_or_default();
        let path = command([&*path.to_string_lossy()]);
        let recursively = if all { "-R " } else { "" };
        self.release(format!("{inside}umount {recursively}{path}"));
    }

    /// Whether a file is on this mount.
    fn holds(&self, at: usize, file: &Path) -> bool {
        let mounts = self.mounts.iter().enumerate();
        let above =
            mounts.filter(|(_, m)| m.elsewhere.is_none() && file.starts_with(&m.mount.path));
        let nearest = above.max_by_key(|(_, m)| m.mount.path.as_os_str().len());
        nearest.is_some_and(|(nearest, _)| nearest == at)
    }

    fn swapped(&mut self, path: &str, below: &[String]) {
        self.used(below, &format!("swap on {path}"));
        self.release(command(["swapoff", path]));
    }

    fn used(&mut self, below: &[String], how: &str) {
        let held = match below.is_empty() {
            true => String::new(),
            false => format!("held by {}, ", below.join(", ")),
        };
        self.users.waiting_for.push(held + how);
    }

    /// Adds a command at the end, also if it is in the list: it has to run after those added since.
    fn release(&mut self, command: String) {
        self.users.release.retain(|other| *other != command);
        self.users.release.push(command);
    }
}

fn command<const N: usize>(words: [&str; N]) -> String {
    shell(&words.map(str::to_owned))
}

/// Returns the volume group of a logical volume from its name in the device mapper, in which a
/// hyphen of a name is written twice.
fn volume_group(mapped: &str) -> String {
    let name = mapped.replace("--", "\0");
    let group = name.split_once('-').map_or(&*name, |(group, _)| group);
    group.replace('\0', "-")
}

/// Returns the sorted names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A host with the device ublkb0; each text is a path and its content.
    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().unwrap();
        let first = [
            ("sys/class/block/ublkb0/dev", "259:0"),
            ("proc/1/comm", "init"),
        ];
        for (path, text) in first.iter().chain(files) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if path.ends_with("mnt") {
                symlink(text, path).unwrap();
            } else {
                fs::write(path, text).unwrap();
            }
        }
        let host = Host::at(folder.path());
        (folder, host)
    }

    fn users(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let (_folder, host) = host(files);
        let found = host.users_of("ublkb0");
        (found.waiting_for, found.release)
    }

    const NAMESPACE: (&str, &str) = ("proc/1/ns/mnt", "mnt:[1]");

    #[test]
    fn a_device_without_users_has_none() {
        assert_eq!(
            users(&[NAMESPACE, ("proc/1/mountinfo", "")]),
            Default::default()
        );
    }

    #[test]
    fn lvm_on_a_partition_is_named_with_its_mount() {
        let found = users(&[
            NAMESPACE,
            ("sys/class/block/ublkb0/ublkb0p1/partition", "1"),
            ("sys/class/block/ublkb0p1/dev", "259:1"),
            ("sys/class/block/ublkb0p1/holders/dm-4", ""),
            ("sys/class/block/ublkb0p1/holders/dm-5", ""),
            ("sys/class/block/dm-4/dev", "254:4"),
            ("sys/class/block/dm-4/dm/name", "my--vg-t"),
            ("sys/class/block/dm-4/dm/uuid", "LVM-abc"),
            ("sys/class/block/dm-5/dev", "254:5"),
            ("sys/class/block/dm-5/dm/name", "my--vg-u"),
            ("sys/class/block/dm-5/dm/uuid", "LVM-def"),
            (
                "proc/1/mountinfo",
                "36 1 254:4 / /mnt rw - ext4 /dev/mapper/my--vg-t rw\n\
                 37 1 254:5 / /my\\040disk rw - ext4 /dev/mapper/my--vg-u rw\n\
                 38 1 259:7 / /other rw - ext4 /dev/other rw\n",
            ),
        ]);
        let phrases = [
            "held by my--vg-t (dm-4), mounted on /mnt",
            "held by my--vg-u (dm-5), mounted on /my disk",
        ];
        let commands = ["umount /mnt", "umount '/my disk'", "vgchange -an my-vg"];
        assert_eq!(
            found,
            (
                phrases.map(str::to_owned).into(),
                commands.map(str::to_owned).into()
            )
        );
    }

    #[test]
    fn devices_in_files_are_released_before_the_file_system() {
        let found = users(&[
            NAMESPACE,
            ("sys/class/block/ublkb0/holders/md0", ""),
            ("sys/class/block/md0/dev", "9:0"),
            ("sys/class/block/md0/md/level", "raid1"),
            ("sys/class/block/loop3/dev", "7:3"),
            (
                "sys/class/block/loop3/loop/backing_file",
                "/mnt/sub/disk.img",
            ),
            ("sys/class/block/loop3/holders/dm-0", ""),
            (
                "sys/class/block/loop4/loop/backing_file",
                "/mnt/tmpfs/disk.img",
            ),
            ("sys/class/block/dm-0/dev", "254:0"),
            ("sys/class/block/dm-0/dm/name", "locked"),
            ("sys/class/block/dm-0/dm/uuid", "CRYPT-LUKS2-1"),
            (
                "proc/1/mountinfo",
                "36 1 0:40 / /mnt rw - btrfs /dev/md0 rw\n\
                 37 1 0:41 / /mnt/tmpfs rw - tmpfs tmpfs rw\n",
            ),
            (
                "proc/swaps",
                "Filename Type\n/mnt/swapfile file\n/dev/mapper/locked partition",
            ),
        ]);
        let phrases = [
            "held by md0, mounted on /mnt",
            "held by md0, loop3 (/mnt/sub/disk.img), locked (dm-0), swap on /dev/mapper/locked",
            "held by md0, swap on /mnt/swapfile",
        ];
        let commands = [
            "swapoff /dev/mapper/locked",
            "cryptsetup close locked",
            "losetup -d /dev/loop3",
            "swapoff /mnt/swapfile",
            "umount -R /mnt",
            "mdadm --stop /dev/md0",
        ];
        assert_eq!(
            found,
            (
                phrases.map(str::to_owned).into(),
                commands.map(str::to_owned).into()
            )
        );
    }

    #[test]
    fn an_unused_stacked_device_is_a_user() {
        let found = users(&[
            NAMESPACE,
            ("sys/class/block/ublkb0/holders/bcache0", ""),
            ("sys/class/block/ublkb0/holders/drbd0", ""),
            ("sys/class/block/bcache0/bcache/stop", ""),
            ("sys/class/block/bcache0/holders/drbd0", ""),
            ("sys/class/block/loop0/loop/backing_file", "/dev/ublkb0"),
        ]);
        let phrases = ["held by bcache0, drbd0", "held by loop0"];
        let commands = [
            "echo 1 > /sys/block/bcache0/bcache/stop",
            "losetup -d /dev/loop0",
        ];
        assert_eq!(
            found,
            (
                phrases.map(str::to_owned).into(),
                commands.map(str::to_owned).into()
            )
        );
    }

    #[test]
    fn mounts_of_other_namespaces_are_named_unless_they_are_copies() {
        let found = users(&[
            NAMESPACE,
            (
                "proc/1/mountinfo",
                "36 1 259:0 / /a rw shared:1 - ext4 /dev/ublkb0 rw\n",
            ),
            ("proc/20/comm", "service"),
            ("proc/20/ns/mnt", "mnt:[2]"),
            (
                "proc/20/mountinfo",
                "50 1 259:0 / /a rw - ext4 /dev/ublkb0 rw\n\
                 51 1 259:0 / /b rw master:1 - ext4 /dev/ublkb0 rw\n\
                 52 1 259:0 / /c rw - ext4 /dev/ublkb0 rw\n",
            ),
        ]);
        let phrases = [
            "mounted on /a",
            "mounted on /c in the mount namespace of process 20 (service)",
        ];
        let commands = ["umount /a", "nsenter -t 20 -m umount /c"];
        assert_eq!(
            found,
            (
                phrases.map(str::to_owned).into(),
                commands.map(str::to_owned).into()
            )
        );
    }

    #[test]
    fn a_hyphen_of_a_volume_group_is_written_twice() {
        assert_eq!(volume_group("vg-t"), "vg");
        assert_eq!(volume_group("my--vg-a--b"), "my-vg");
    }
}
