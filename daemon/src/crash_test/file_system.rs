//! The file systems of a crash test.

use super::programs;
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system, with all that differs between them.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Its name on the command line and for a mount.
    pub(super) name: &'static str,
    /// Program that makes it, with its options.
    mkfs: &'static [&'static str],
    /// Debian's package of that program.
    package: &'static str,
    /// Smallest device.
    size_min: u64,
    /// Modules of a User-Mode Linux that has it as one.
    pub(super) modules: &'static [&'static str],
    /// More options with which a state is mounted beside the others.
    pub(super) mount_options: &'static str,
    /// Whether a check gets its files without a mount.
    pub(super) is_readable: bool,
}

const MIB: u64 = 1 << 20;

/// Name of a device without a file system.
pub(super) const NONE: &str = "none";

/// All of them. No program discards: the device is new.
static FILE_SYSTEMS: [FileSystem; 4] = [
    FileSystem {
        name: "ext4",
        mkfs: &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
        ],
        package: "e2fsprogs",
        size_min: 8 * MIB,
        modules: &[],
        mount_options: "",
        is_readable: true,
    },
    FileSystem {
        name: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f", "-K"],
        package: "xfsprogs",
        size_min: 300 * MIB,
        modules: &[],
        mount_options: "nouuid",
        is_readable: false,
    },
    FileSystem {
        name: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f", "-K"],
        package: "btrfs-progs",
        size_min: 109 * MIB,
        modules: &[],
        mount_options: "",
        is_readable: false,
    },
    FileSystem {
        name: "f2fs",
        mkfs: &["mkfs.f2fs", "-q", "-f", "-t", "0"],
        package: "f2fs-tools",
        size_min: 64 * MIB,
        modules: &["crc32_generic", "f2fs"],
        mount_options: "",
        is_readable: false,
    },
];

/// Returns the names on the command line.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    on_devices().chain([NONE])
}

/// Returns the names of all file systems.
pub(super) fn on_devices() -> impl Iterator<Item = &'static str> {
    FILE_SYSTEMS.iter().map(|fs| fs.name)
}

/// Returns the file system of this name; `None` without one.
pub(super) fn of(name: &str) -> Option<&'static FileSystem> {
    FILE_SYSTEMS.iter().find(|fs| fs.name == name)
}

impl FileSystem {
    /// Returns the program that makes it on a device of this size.
    ///
    /// # Errors
    /// There is none, or the device is too small.
    pub(super) fn maker(&self, size: u64) -> Result<PathBuf, Failure> {
        if size < self.size_min {
            return Err(Failure::usage(format!(
                "--size {}: {} needs {} or more",
                show_size(size),
                self.name,
                show_size(self.size_min)
            )));
        }
        programs::find(self.mkfs[0], self.package)
    }

    /// Makes it in a file.
    ///
    /// # Errors
    /// The program fails; the message has its first line.
    pub(super) fn make(&self, maker: &Path, file: &Path) -> Result<(), Failure> {
        let mut mkfs = Command::new(maker);
        mkfs.args(&self.mkfs[1..]).arg(file).stdin(Stdio::null());
        programs::run(mkfs, self.mkfs[0])
    }
}
