//! `--agitate`: what other programs of a busy machine do to the files of COMMAND, at any time.
//!
//! POSIX_FADV_DONTNEED starts the write-back of a file without waiting for it and without a FLUSH.
//! An fsync of another file commits the running transaction of ext4 or XFS: names and lengths that
//! COMMAND has not synced become durable, perhaps without the data. On btrfs and f2fs it commits
//! that file alone. COMMAND must not rely on the absence of either.

use ftld_kit::convert::{to_u64, to_usize};
use ftld_kit::failure::Failure;
use nand_model::SplitMix;
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The other file, in each folder of COMMAND.
const OTHER: &str = ".ftld-agitation";
/// Longest pause between two disturbances.
const PAUSE_MAX_US: u64 = 8_000;
/// Entries of folders among which a file is chosen.
const ENTRIES_MAX: usize = 4096;

/// Files to disturb.
#[derive(Clone, Copy)]
pub(super) struct Agitation<'a> {
    /// Folders of COMMAND, one for each device.
    pub(super) folders: &'a [PathBuf],
    /// Chooses pauses, files, and what happens to them. The times are the machine's, so no two runs
    /// are equal.
    pub(super) seed: u64,
}

/// What happened to them.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Disturbed {
    pub(super) write_backs: u64,
    pub(super) fsyncs: u64,
}

/// Ends the disturbance, also if COMMAND's thread panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs COMMAND, disturbed by this thread's user if that was asked for. No file is open afterwards.
///
/// # Errors
/// Those of `run`, or the other file cannot be made: nothing is run then.
pub(super) fn during<T>(
    asked: Option<Agitation<'_>>,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Option<Disturbed>), Failure> {
    let Some(agitation) = asked else {
        return run().map(|done| (done, None));
    };
    let mut others = Vec::new();
    for folder in agitation.folders {
        let path = folder.join(OTHER);
        let other = File::create_new(&path).map_err(|error| Failure::io(path.display(), &error))?;
        others.push(other);
    }
    let is_over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let end = End(&is_over);
        let disturbed = scope.spawn(|| agitation.disturb(&others, &is_over));
        let done = run();
        drop(end);
        let disturbed = disturbed.join().expect("the thread does not panic");
        done.map(|done| (done, Some(disturbed)))
    });
    // COMMAND may have removed it.
    for folder in agitation.folders {
        let _ = std::fs::remove_file(folder.join(OTHER));
    }
    done
}

impl Agitation<'_> {
    fn disturb(&self, others: &[File], is_over: &AtomicBool) -> Disturbed {
        let (mut rng, mut disturbed) = (SplitMix::new(self.seed), Disturbed::default());
        while !is_over.load(Relaxed) {
            std::thread::sleep(Duration::from_micros(rng.below(PAUSE_MAX_US)));
            let at = to_usize(rng.below(to_u64(others.len())));
            // COMMAND may remove what was just found, and the device may be full.
            if rng.one_in(4) {
                let written = others[at].write_all_at(&rng.next_u64().to_le_bytes(), 0);
                let synced = written.and_then(|()| others[at].sync_all());
                disturbed.fsyncs += u64::from(synced.is_ok());
            } else {
                let begun = write_back(&self.folders[at], &mut rng, is_over);
                disturbed.write_backs += u64::from(begun.is_ok_and(|begun| begun));
            }
        }
        disturbed
    }
}

/// Starts the write-back of a file; returns whether there is one.
fn write_back(folder: &Path, rng: &mut SplitMix, is_over: &AtomicBool) -> io::Result<bool> {
    let (mut chosen, mut folders) = (None, vec![folder.to_path_buf()]);
    let (mut entries, mut files) = (0, 0);
    while let Some(folder) = folders.pop().filter(|_| !is_over.load(Relaxed)) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            match entry.file_type() {
                _ if entries > ENTRIES_MAX => folders.clear(),
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && entry.file_name() != OTHER => {
                    files += 1;
                    // Each file is chosen with the same probability.
                    if rng.one_in(files) {
                        chosen = Some(entry.path());
                    }
                }
                _ => {}
            }
        }
    }
    chosen.map_or(Ok(false), |path| begin(&path).map(|()| true))
}

fn begin(path: &PathBuf) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
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
        let folders = [folder.path().to_path_buf()];
        let agitation = Some(Agitation {
            folders: &folders,
            seed: 1,
        });
        let command = || {
            std::thread::sleep(Duration::from_millis(500));
            Ok(5)
        };
        let (done, disturbed) = during(agitation, command).unwrap();
        let disturbed = disturbed.unwrap();
        assert_eq!(done, 5);
        assert!(
            disturbed.fsyncs > 0 && disturbed.write_backs > 0,
            "{disturbed:?}"
        );
        let other = folder.path().join(OTHER);
        assert!(!other.exists());
        let content = std::fs::read_to_string(deep.join("file")).unwrap();
        assert_eq!(content, "content");
        // A file of that name is somebody's, whatever it is.
        for made in [
            std::fs::write(&other, "mine"),
            std::fs::remove_file(&other)
                .and_then(|()| std::os::unix::fs::symlink("/nowhere", &other)),
        ] {
            made.unwrap();
            let refused = during(agitation, || -> Result<(), _> { panic!("it ran") });
            assert!(refused.unwrap_err().message.contains(OTHER));
        }
        assert_eq!(during(None, || Ok(7)).unwrap(), (7, None));
    }
}
