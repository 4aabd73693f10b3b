//! `ftld clone`: a copy of an image.
//!
//! Invariants: the source is only read. Requests of a running instance wait while its image is
//! copied, so the copy is what a power cut at that moment leaves. The header is copied last: it
//! never names an operation as synced that the copy lacks. A copy gets its name only when it is
//! complete and synced; if power fails before that, `.COPY.new-...` is left.

use crate::control::{self, Request};
use ftld_device::instance::{Dirs, check_name};
use ftld_device::pause::{CacheOutcome, PauseCommand, PauseState};
use ftld_device::stack::{self, Unfinished};
use ftld_device::status::{Pause as PauseStatus, Status};
use ftld_device::volume::PAUSE_MAX;
use ftld_device::volume::write_cache::{self, CutCounts, Outcome};
use ftld_kit::failure::Failure;
use ftld_kit::interrupt;
use ftld_kit::output::{print, print_json};
use ftld_kit::path_json;
use ftld_kit::size::show_size;
use ftld_kit::sparse;
use nand_model::ImageError;
use nand_model::store::peek;
use nix::sys::statvfs::statvfs;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes from the start that are copied last; at least the header.
const HEAD: u64 = 4 << 20;
/// Length of a pause. It is renewed during the copy, and expires if this process dies.
const PAUSE: Duration = Duration::from_secs(30);
/// Time between two renewals.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// `ftld clone`. `seed` decides what the write cache of a running instance loses.
///
/// # Errors
/// There is no such image, it is in use by something else than a running instance, the copy exists
/// or has no room, or the host refuses to read or write.
pub(crate) fn clone(
    dirs: &Dirs,
    source: &OsStr,
    copy: &OsStr,
    seed: Option<u64>,
    as_json: bool,
) -> Result<(), Failure> {
    let copy = copy_path(dirs, copy)?;
    if copy.exists() {
        return Err(stack::image_failure(&ImageError::Exists(copy)));
    }
    stack::remove_unfinished(&copy);
    let source = Source::find(dirs, source)?;
    peek(&source.image).map_err(|error| stack::image_failure(&error))?;
    let made = source.copy_to(&copy, seed)?;
    if as_json {
        return print_json("clone", made.json(&source, &copy));
    }
    print(&made.text(&source, &copy))
}

/// Returns the path of the copy: a path, or the default image of an instance by name.
fn copy_path(dirs: &Dirs, copy: &OsStr) -> Result<PathBuf, Failure> {
    match path_json::name_in(copy).filter(|name| !name.ends_with(".ftld")) {
        None => Ok(copy.into()),
        Some(name) => check_name(name).map(|()| dirs.image(name)),
    }
}

/// The image to copy, open and locked, or that of a running instance.
struct Source<'a> {
    image: PathBuf,
    file: File,
    /// Name of the instance that serves it.
    running: Option<(&'a Dirs, String)>,
}

impl<'a> Source<'a> {
    fn find(dirs: &'a Dirs, source: &OsStr) -> Result<Source<'a>, Failure> {
        if let Some(name) = path_json::name_in(source).filter(|name| dirs.holder(name).is_some()) {
            let image = served_by(dirs, name)?;
            return Source::open(image, Some((dirs, name.to_owned())));
        }
        let image = super::inspect::path_of(dirs, source)?;
        let open = Source::open(image, None)?;
        match rustix::fs::flock(&open.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(open),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(Failure::io(open.image.display(), &error.into())),
        }
        let same = |name: &String| {
            let served = served_by(dirs, name).ok();
            let served = served.and_then(|image| std::fs::metadata(image).ok());
            let ours = open.file.metadata().ok();
            let id = |of: &std::fs::Metadata| (of.dev(), of.ino());
            served.is_some() && served.as_ref().map(id) == ours.as_ref().map(id)
        };
        match dirs.names().into_iter().find(same) {
            Some(name) => Ok(Source {
                running: Some((dirs, name)),
                ..open
            }),
            None => Err(stack::image_failure(&ImageError::InUse(open.image))),
        }
    }

    fn open(image: PathBuf, running: Option<(&'a Dirs, String)>) -> Result<Source<'a>, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::open(&image, flags, Mode::empty()) {
            Ok(file) => Ok(Source {
                file: file.into(),
                image,
                running,
            }),
            Err(rustix::io::Errno::NOENT) => {
                Err(stack::image_failure(&ImageError::NotFound(image)))
            }
            Err(error) => Err(Failure::io(image.display(), &error.into())),
        }
    }

    fn copy_to(&self, copy: &Path, seed: Option<u64>) -> Result<Made, Failure> {
        let interrupted = interrupt::flag()?;
        let unfinished = Unfinished::named_after(copy);
        let failed = |error: io::Error| Failure::io(copy.display(), &error);
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let to = options.open(unfinished.path()).map_err(failed)?;
        let mut pause = match &self.running {
            None => None,
            Some((dirs, name)) => Some(Pause::begin(dirs, name)?),
        };
        let began = Instant::now();
        let is_reflink = rustix::fs::ioctl_ficlone(&to, &self.file).is_ok();
        let mut bytes = 0;
        if !is_reflink {
            self.has_room(copy)?;
            let mut keep_on = || match interrupted.load(Relaxed) {
                true => Err(Failure::failed("interrupted; there is no copy")),
                false => pause.as_mut().map_or(Ok(()), Pause::renew),
            };
            bytes = copy_data(&self.file, &to, &mut keep_on, &failed)?;
        }
        let (mut waited, mut outcome) = (None, None);
        if let Some(pause) = pause {
            pause.check()?;
            outcome = pause.cache_outcome(seed)?;
            pause.end()?;
            waited = Some(began.elapsed());
        }
        let info = peek(unfinished.path()).map_err(|error| stack::image_failure(&error))?;
        if let Some(outcome) = &outcome {
            let section = info.cache_area.ok_or_else(|| {
                Failure::failed("the copy has no area of the write cache; clone it again")
            })?;
            write_cache::apply(outcome, unfinished.path(), section).map_err(failed)?;
        }
        to.sync_all().map_err(failed)?;
        let cut = outcome.map(|outcome| outcome.counts);
        unfinished.finish(copy)?;
        Ok(Made {
            bytes,
            is_reflink,
            waited,
            cut,
        })
    }

    /// Refuses a copy that the file system has no room for.
    fn has_room(&self, copy: &Path) -> Result<(), Failure> {
        let (Ok(of), Ok(fs)) = (self.file.metadata(), statvfs(stack::folder_of(copy))) else {
            return Ok(());
        };
        let wanted = of.blocks() * 512;
        let free = fs.blocks_available() * fs.fragment_size();
        if wanted <= free {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{}: the copy needs {}, and its file system has {}; free some, or name another place",
            copy.display(),
            show_size(wanted),
            show_size(free)
        )))
    }
}

/// Returns the image of a running instance.
fn served_by(dirs: &Dirs, name: &str) -> Result<PathBuf, Failure> {
    let status: Status = control::ask(dirs, name, &Request::Status {})?;
    Ok(status.image.path())
}

/// Copies the data of a sparse file; the bytes before [`HEAD`] last. Returns the bytes copied.
fn copy_data(
    from: &File,
    to: &File,
    keep_on: &mut dyn FnMut() -> Result<(), Failure>,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let length = from.metadata().map_err(failed)?.len();
    to.set_len(length).map_err(failed)?;
    let mut bytes = 0;
    for part in [HEAD.min(length)..length, 0..HEAD.min(length)] {
        bytes += sparse::copy(from, to, part, keep_on, failed)?;
    }
    Ok(bytes)
}

/// A paused instance; runs again when dropped, unless it was paused before.
struct Pause<'a> {
    dirs: &'a Dirs,
    name: &'a str,
    /// End of a pause that another client began.
    other: Option<Instant>,
    renewed: Instant,
    /// Counts runs of the device; see [`ftld_device::volume::Paused`].
    runs: u64,
}

impl<'a> Pause<'a> {
    fn begin(dirs: &'a Dirs, name: &'a str) -> Result<Pause<'a>, Failure> {
        let mut pause = Pause {
            dirs,
            name,
            other: left(dirs, name)?.map(|left| Instant::now() + left),
            renewed: Instant::now(),
            runs: 0,
        };
        pause.prolong()?;
        pause.runs = pause.seen()?.unwrap_or_default();
        Ok(pause)
    }

    /// Returns the runs of the device; `None` if it is not paused.
    fn seen(&self) -> Result<Option<u64>, Failure> {
        let status: Status = control::ask(self.dirs, self.name, &Request::Status {})?;
        Ok(status.paused.map(|pause| pause.runs))
    }

    fn prolong(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let other = self
            .other
            .map(|until| until.saturating_duration_since(began));
        let length = other.unwrap_or_default().clamp(PAUSE, PAUSE_MAX);
        let action = PauseCommand::Pause(length.as_secs_f64());
        let _: PauseState = control::ask(self.dirs, self.name, &Request::Pause { action })?;
        self.renewed = began;
        Ok(())
    }

    /// Prolongs the pause from time to time.
    fn renew(&mut self) -> Result<(), Failure> {
        if self.renewed.elapsed() < RENEW_EVERY {
            return Ok(());
        }
        self.check()?;
        self.prolong()
    }

    /// Refuses a copy during which the device ran.
    fn check(&self) -> Result<(), Failure> {
        if self.renewed.elapsed() < PAUSE && self.seen()? == Some(self.runs) {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "instance {:?} was resumed or stepped before its image was copied; clone it again",
            self.name
        )))
    }

    /// Returns what a power cut leaves of the write cache, if there is one.
    fn cache_outcome(&self, seed: Option<u64>) -> Result<Option<Outcome>, Failure> {
        let action = PauseCommand::CacheOutcome(seed);
        let answer: CacheOutcome = control::ask(self.dirs, self.name, &Request::Pause { action })?;
        Ok(answer.outcome)
    }

    fn end(self) -> Result<(), Failure> {
        self.check()
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if self.other.is_none() {
            let action = PauseCommand::Resume;
            // If this fails, the device resumes when the pause ends.
            let _ = control::answer(self.dirs, self.name, &Request::Pause { action });
        }
    }
}

/// Returns how long an instance is still paused; `None` if it runs.
fn left(dirs: &Dirs, name: &str) -> Result<Option<Duration>, Failure> {
    let status: Status = control::ask(dirs, name, &Request::Status {})?;
    let left =
        |pause: PauseStatus| Duration::try_from_secs_f64(pause.seconds_left).unwrap_or_default();
    Ok(status.paused.map(left))
}

/// A finished copy.
struct Made {
    bytes: u64,
    is_reflink: bool,
    /// How long requests waited.
    waited: Option<Duration>,
    /// Units of the write cache by outcome of the power cut.
    cut: Option<CutCounts>,
}

impl Made {
    fn json(&self, source: &Source<'_>, copy: &Path) -> Value {
        let cut = self
            .cut
            .map(|cut| json!({"new": cut.new, "torn": cut.torn, "old": cut.old, "lost": cut.lost}));
        json!({
            "image": path_json::shown(&source.image), "copy": path_json::shown(copy), "instance": source.running.as_ref().map(|(_, name)| name),
            "reflink": self.is_reflink, "copied_bytes": self.bytes,
            "waited_seconds": self.waited.map(|waited| waited.as_secs_f64()), "write_cache_units": cut,
        })
    }

    fn text(&self, source: &Source<'_>, copy: &Path) -> String {
        let how = match self.is_reflink {
            true => "shared with it by the file system".to_owned(),
            false => format!("{} copied", show_size(self.bytes)),
        };
        let mut text = format!(
            "{}: a copy of {}, {how}",
            copy.display(),
            source.image.display()
        );
        if let Some(((_, name), waited)) = source.running.as_ref().zip(self.waited) {
            text += &format!(
                ", as a power cut would leave instance {name:?}; its requests waited {:.2} s",
                waited.as_secs_f64()
            );
        }
        if let Some(cut) = self.cut {
            text += &format!("; {} units of its write cache: {}", cut.units(), cut.text());
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// Paused at both ends of the copy, and not between.
    #[test]
    fn a_device_that_ran_and_is_paused_again_spoils_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let below = |part: &str| folder.path().join(part);
        let dirs = Dirs {
            config: below("etc"),
            state: below("state"),
            runtime: below("run"),
        };
        std::fs::create_dir_all(dirs.of("a")).unwrap();
        let listener = UnixListener::bind(dirs.control("a")).unwrap();
        let status = |paused| {
            let status = Status {
                paused,
                ..Status::default()
            };
            status.json()
        };
        let paused = |runs| {
            status(Some(PauseStatus {
                runs,
                seconds_left: 30.0,
                stepping: false,
            }))
        };
        let running = status(None);
        let answer = json!(PauseState::default());
        for (now, is_good) in [
            (paused(4), true),
            (paused(5), false),
            (running.clone(), false),
        ] {
            // Not paused before; the pause; its runs; those at the end; the end of the pause.
            let answers = [&running, &answer, &paused(4), &now, &answer].map(Value::to_string);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for answer in &answers {
                        let (mut client, _) = listener.accept().unwrap();
                        let mut reader = BufReader::new(client.try_clone().unwrap());
                        reader.read_line(&mut String::new()).unwrap();
                        client.write_all(format!("{answer}\n").as_bytes()).unwrap();
                    }
                });
                let pause = Pause::begin(&dirs, "a").unwrap();
                let checked = pause.check();
                assert_eq!(checked.is_ok(), is_good, "{now}");
                if let Err(failure) = checked {
                    assert!(failure.message.contains("clone it again"), "{failure}");
                }
            });
        }
    }
}
