//! Changes of files, each made durable as a typical program does.

use super::WORKERS;
use super::markers::{ABSENT, Markers};
use super::objects::{Kind, Object};
use super::{LOG_RECORDS, NAMES, Result, SLOT_BYTES, SLOTS};
use nand_model::SplitMix;
use nix::libc::{EIO, EROFS};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{fs, io};

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes name changes in a worker's folder durable. The fsync of a folder alone is unreliable on a
/// failing device. If the journal was just aborted on behalf of another process, jbd2 finds nothing
/// to commit and ext4 reports success. The fsync of a file sends a FLUSH, which fails if the device
/// is gone.
fn sync_names(folder: &Path) -> io::Result<()> {
    sync_folder(folder)?;
    match File::open(folder.join("slots"))?.sync_all() {
        Err(error) if device_is_gone(&error) => Err(io::Error::other(Unconfirmed)),
        synced => synced,
    }
}

/// Error: the fsync of a folder succeeded, then the device was gone.
#[derive(Debug)]
struct Unconfirmed;

impl std::fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the device failed after the fsync of the folder")
    }
}

impl std::error::Error for Unconfirmed {}

/// Performs a change; it is durable when the function returns.
pub(super) fn perform(folder: &Path, kind: Kind, object: Object, version: u64) -> io::Result<()> {
    let path = object.path(folder);
    let parent = path.parent().expect("every file is in a worker's folder");
    let data = object.content(version);
    match kind {
        Kind::Replace => {
            let new = path.with_extension("new");
            let file = File::create(&new)?;
            file.write_all_at(&data, 0)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_names(parent)
        }
        Kind::Create => {
            let file = File::create(&path)?;
            file.write_all_at(&data, 0)?;
            file.sync_all()?;
            sync_names(parent)
        }
        Kind::Unlink => {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            sync_names(parent)
        }
        Kind::Overwrite => {
            let Object::Slot { slot, .. } = object else {
                unreachable!("only slots are overwritten")
            };
            let file = OpenOptions::new().write(true).open(&path)?;
            file.write_all_at(&data, u64::from(slot) * SLOT_BYTES as u64)?;
            file.sync_data()
        }
        Kind::Append => {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.write_all_at(&data, file.metadata()?.len())?;
            file.sync_all()
        }
        Kind::Truncate => File::create(&path)?.sync_all(),
    }
}

/// Creates the folders, slots and logs on an empty device, durably.
fn furnish(folder: &Path) -> io::Result<()> {
    for worker in 0..WORKERS {
        let own = folder.join(worker.to_string());
        if own.join("log").exists() {
            continue;
        }
        fs::create_dir_all(&own)?;
        let slots = File::create(own.join("slots"))?;
        slots.write_all_at(&vec![0; SLOTS as usize * SLOT_BYTES], 0)?;
        slots.sync_all()?;
        File::create(own.join("log"))?.sync_all()?;
        sync_folder(&own)?;
    }
    sync_folder(folder)
}

/// Returns the next change, and the version it creates.
fn next_step(worker: u32, markers: &Markers, rng: &mut SplitMix) -> (Kind, Object, u64) {
    let (name, slot) = (
        rng.below(NAMES.into()) as u32,
        rng.below(SLOTS.into()) as u32,
    );
    let object = match rng.below(4) {
        0 => Object::File { worker, name },
        1 => Object::Guest { worker, name },
        2 => Object::Slot { worker, slot },
        _ => Object::Log { worker },
    };
    let state = markers.of(object);
    let next = state.newest + 1;
    match object {
        Object::File { .. } => (Kind::Replace, object, next),
        Object::Guest { .. } if state.durable == ABSENT => (Kind::Create, object, next),
        Object::Guest { .. } => (Kind::Unlink, object, ABSENT),
        Object::Slot { .. } => (Kind::Overwrite, object, next),
        // Versions of a log have no gaps.
        Object::Log { .. } if state.durable - state.log_base >= LOG_RECORDS => {
            (Kind::Truncate, object, state.durable + 1)
        }
        Object::Log { .. } => (Kind::Append, object, state.durable + 1),
    }
}

pub(super) fn work(folder: &Path, markers: Markers, seed: u64) -> Result<String> {
    furnish(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (markers, mut done, wrong) = (Mutex::new(markers), AtomicU64::new(0), Mutex::new(None));
    let note = |word, kind, object, version| {
        let noted = markers
            .lock()
            .expect("no worker panics")
            .note(word, kind, object, version);
        noted.map_err(|error| format!("markers: {error}"))
    };
    let count = &done;
    let run = |worker: u32| -> Result<()> {
        let mut rng = SplitMix::new(seed << 8 | u64::from(worker));
        loop {
            let (kind, object, version) =
                next_step(worker, &markers.lock().expect("no worker panics"), &mut rng);
            note("begin", kind, object, version)?;
            match perform(folder, kind, object, version) {
                Ok(()) => note("done", kind, object, version)?,
                Err(error) if device_is_gone(&error) => return Ok(()),
                Err(error)
                    if error
                        .get_ref()
                        .is_some_and(|inner| inner.is::<Unconfirmed>()) =>
                {
                    return note("claimed", kind, object, version);
                }
                Err(error) => return Err(format!("{} {}: {error}", kind.name(), object.name())),
            }
            if count.fetch_add(1, Relaxed) == 0 {
                println!("durable: {} {} {version}", kind.name(), object.name());
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (run, wrong) = (&run, &wrong);
            scope.spawn(move || {
                if let Err(why) = run(worker) {
                    *wrong.lock().expect("no worker panics") = Some(why);
                }
            });
        }
    });
    match wrong.into_inner().expect("no worker panics") {
        Some(why) => Err(why),
        None if *done.get_mut() == 0 => Err("the device failed before anything was durable".into()),
        None => Ok(format!(
            "work: {} markers until the device failed",
            done.into_inner()
        )),
    }
}

/// Returns whether the error is a file system's response to a missing device: EIO, or read-only.
fn device_is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EIO | EROFS))
}
