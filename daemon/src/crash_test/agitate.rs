//! `--agitate`: what other programs of a busy machine do to the files of COMMAND.
//!
//! POSIX_FADV_DONTNEED starts the write-back of a file without waiting for it and without a FLUSH.
//! An fsync of another file commits the journal, with the names and lengths of all files, but not
//! their data. Both may happen at any time, so COMMAND must not rely on their absence.

use nand_model::SplitMix;
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The other file, in the folder of COMMAND.
const OTHER: &str = ".ftld-agitation";
/// Longest pause between two disturbances.
const PAUSE_MAX_US: u64 = 8_000;
/// Files among which one is chosen.
const FILES_MAX: usize = 4096;

/// Files to disturb.
#[derive(Clone, Copy)]
pub(super) struct Agitation<'a> {
    pub(super) folder: &'a Path,
    /// Chooses pauses, files, and what happens to them. The times are the machine's.
    pub(super) seed: u64,
}

/// Ends the disturbance, also if COMMAND's thread panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs COMMAND, disturbed if that was asked for. None of its files is open afterwards.
pub(super) fn during<T>(asked: Option<Agitation<'_>>, run: impl FnOnce() -> T) -> T {
    let Some(agitation) = asked else {
        return run();
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = End(&is_over);
        scope.spawn(|| agitation.disturb(&is_over));
        let done = run();
        drop(end);
        done
    })
}

impl Agitation<'_> {
    fn disturb(&self, is_over: &AtomicBool) {
        let mut rng = SplitMix::new(self.seed);
        while !is_over.load(Relaxed) {
            std::thread::sleep(Duration::from_micros(rng.below(PAUSE_MAX_US)));
            // COMMAND may remove what was just found, and the device may be full.
            let _ = match rng.one_in(4) {
                true => self.sync_other(),
                false => self.write_back(&mut rng),
            };
        }
        let _ = std::fs::remove_file(self.folder.join(OTHER));
    }

    /// Commits the journal.
    fn sync_other(&self) -> io::Result<()> {
        let mut other = File::create(self.folder.join(OTHER))?;
        other.write_all(b"other")?;
        other.sync_all()
    }

    /// Starts the write-back of a file.
    fn write_back(&self, rng: &mut SplitMix) -> io::Result<()> {
        let mut files = Vec::new();
        list(self.folder, &mut files);
        if files.is_empty() {
            return Ok(());
        }
        let chosen = &files[rng.below(files.len() as u64) as usize];
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(chosen, flags, Mode::empty())?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    }
}

/// Lists the regular files below a folder, up to [`FILES_MAX`].
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            _ if files.len() >= FILES_MAX => return,
            Ok(kind) if kind.is_dir() => list(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_disturbed_until_the_command_ends_and_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "content").unwrap();
        std::os::unix::fs::symlink("/dev/zero", deep.join("link")).unwrap();
        let mut files = Vec::new();
        list(folder.path(), &mut files);
        assert_eq!(files, [deep.join("file")]);
        let other = folder.path().join(OTHER);
        let agitation = Agitation {
            folder: folder.path(),
            seed: 1,
        };
        during(Some(agitation), || {
            let seen = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                other.exists()
            });
            assert!(seen, "no other file was synced");
        });
        assert!(!other.exists());
        assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), "content");
        assert_eq!(during(None, || 7), 7);
    }
}
