//! Names of places on the device in words of the file system on it, by its own tools: the file and
//! the offset in it, a folder, the journal.
//!
//! A place is looked up in the device as the software saw it at the cut, journal replayed, in a
//! copy. A tool that is missing or finds nothing leaves the place without a name.

use ftld_kit::failure::Failure;
use ftld_kit::sparse;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Place and value of the magic number of ext4.
const EXT4_MAGIC: (u64, [u8; 2]) = (0x438, [0x53, 0xEF]);
/// Place of the logarithm of the block size.
const EXT4_LOG_BLOCK: u64 = 0x418;
/// Inode of the journal.
const JOURNAL: u64 = 8;
/// Largest number of places that are looked up.
const PLACES_MAX: usize = 64;
/// Longest run of a tool.
const TOOL_MAX: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// An entry, and a device of a group.
type At = (u64, usize);

/// Names of byte offsets at the points of some entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<(At, u64), String>);

impl Places {
    /// Looks up offsets in the image of the point after an entry, which is copied to `copy`.
    pub(super) fn add(&mut self, at: At, image: &Path, copy: &Path, offsets: &[u64]) {
        if offsets.is_empty() {
            return;
        }
        let found = Places::found(image, copy, offsets).unwrap_or_default();
        let named = found.into_iter().map(|(offset, name)| ((at, offset), name));
        self.0.extend(named);
    }

    /// Returns the name of an offset at the point after an entry.
    pub(super) fn name(&self, at: At, offset: u64) -> Option<&str> {
        self.0.get(&(at, offset)).map(String::as_str)
    }

    fn found(image: &Path, copy: &Path, offsets: &[u64]) -> io::Result<BTreeMap<u64, String>> {
        let from = File::open(image)?;
        let (mut magic, mut log) = ([0; 2], [0; 4]);
        from.read_exact_at(&mut magic, EXT4_MAGIC.0)?;
        from.read_exact_at(&mut log, EXT4_LOG_BLOCK)?;
        let log = u32::from_le_bytes(log);
        if magic != EXT4_MAGIC.1 || log > 6 {
            return Ok(BTreeMap::new());
        }
        let to = File::create(copy)?;
        let length = from.metadata()?.len();
        to.set_len(length)?;
        let failed = |error: io::Error| Failure::failed(error);
        let copied = sparse::copy(&from, &to, 0..length, &mut || Ok(()), &failed);
        copied.map_err(|failure| io::Error::other(failure.message))?;
        drop(to);
        let found = Ext4 {
            image: copy,
            block_bytes: 1024 << log,
        }
        .names(offsets);
        std::fs::remove_file(copy)?;
        found
    }
}

/// An ext4 in an image that may be changed.
struct Ext4<'a> {
    image: &'a Path,
    block_bytes: u64,
}

impl Ext4<'_> {
    fn names(&self, offsets: &[u64]) -> io::Result<BTreeMap<u64, String>> {
        self.run("e2fsck", &["-y", "-E", "journal_only"])?;
        let offsets = &offsets[..offsets.len().min(PLACES_MAX)];
        let blocks = offsets.iter().map(|at| (at / self.block_bytes).to_string());
        let request = format!("icheck {}", blocks.collect::<Vec<_>>().join(" "));
        let inodes: BTreeMap<u64, u64> = pairs(&self.ask(&request)?)
            .filter_map(|(block, inode)| Some((block, inode.parse().ok()?)))
            .collect();
        let mut names = BTreeMap::new();
        for offset in offsets {
            let block = offset / self.block_bytes;
            let name = match inodes.get(&block) {
                None => Some("metadata of the file system".to_owned()),
                Some(&JOURNAL) => Some("the journal of the file system".to_owned()),
                Some(inode) => self.in_file(*inode, block, offset % self.block_bytes)?,
            };
            names.extend(name.map(|name| (*offset, name)));
        }
        Ok(names)
    }

    /// Returns the name of a byte of a file or folder.
    fn in_file(&self, inode: u64, block: u64, rest: u64) -> io::Result<Option<String>> {
        let paths = self.ask(&format!("ncheck {inode}"))?;
        let Some((_, path)) = pairs(&paths).next() else {
            return Ok(None);
        };
        let stat = self.ask(&format!("stat <{inode}>"))?;
        if stat.contains("Type: directory") {
            return Ok(Some(format!("the folder {path}")));
        }
        let extents = self.ask(&format!("ex <{inode}>"))?;
        let at = extents.lines().find_map(|line| logical(line, block));
        let offset = at.map(|at| format!(" +{}", at * self.block_bytes + rest));
        Ok(Some(path.to_owned() + &offset.unwrap_or_default()))
    }

    fn ask(&self, request: &str) -> io::Result<String> {
        self.run("debugfs", &["-R", request])
    }

    /// Runs a tool on the image; returns what it printed.
    ///
    /// # Errors
    /// No such tool, or it did not end within [`TOOL_MAX`], on an image that a cut has left.
    fn run(&self, tool: &str, options: &[&str]) -> io::Result<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let printed = self.image.with_extension("printed");
        let mut child = Command::new(tool)
            .args(options)
            .arg(self.image)
            // Users often have no system programs on their path.
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("DEBUGFS_PAGER", "cat")
            .stdin(Stdio::null())
            .stdout(File::create(&printed)?)
            .stderr(Stdio::null())
            .spawn()?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        let has_ended = retry_on_intr(|| poll(&mut ends, Some(&TOOL_MAX)))? > 0;
        if !has_ended {
            child.kill()?;
        }
        child.wait()?;
        let text = std::fs::read(&printed)?;
        std::fs::remove_file(&printed)?;
        match has_ended {
            true => Ok(String::from_utf8_lossy(&text).into_owned()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Returns the lines `NUMBER<tab>TEXT` of a table.
fn pairs(table: &str) -> impl Iterator<Item = (u64, &str)> {
    table.lines().filter_map(|line| {
        let (number, text) = line.split_once('\t')?;
        Some((number.trim().parse().ok()?, text.trim()))
    })
}

/// Returns the logical block of a physical one in a line of `ex`:
/// `level/ depth  entry/ entries  logical - last  physical - last  length`.
fn logical(line: &str, block: u64) -> Option<u64> {
    let plain = line.replace(['/', '-'], " ");
    let numbers: Vec<u64> = plain
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let [level, depth, _, _, first, _, physical, last, ..] = numbers[..] else {
        return None;
    };
    (level == depth && (physical..=last).contains(&block)).then(|| first + block - physical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_extents_is_read() {
        let line = " 1/ 1   2/  3    16 -    31    4097 -   4112     16";
        assert_eq!(logical(line, 4100), Some(19));
        assert_eq!(logical(line, 4113), None);
        // An index block covers extents of the level below.
        assert_eq!(
            logical(" 0/ 1   1/  1     0 -    63    4096              64", 4096),
            None
        );
        assert_eq!(
            logical(
                "Level Entries       Logical          Physical Length Flags",
                1
            ),
            None
        );
    }

    #[test]
    fn what_has_no_file_system_has_no_names() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, vec![0; 8192]).unwrap();
        let mut places = Places::default();
        places.add((1, 0), &image, &folder.path().join("copy"), &[0, 4096]);
        assert_eq!(places.name((1, 0), 0), None);
    }
}
