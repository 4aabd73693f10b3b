//! What a program may rely on after fsync, while the device below is cut off at any moment.
//!
//! usage: fsync_markers work FOLDER MARKERS SEED     until the device fails
//!        fsync_markers check FOLDER MARKERS         after it was mounted again
//!
//! Workers change files in FOLDER and note in MARKERS, which lies outside the device, what they are
//! about to do and what fsync or fdatasync made durable. `check` wants of every file what was
//! durable last, or what was under way when the device failed, whole; it notes what it saw, which
//! has to stay. MARKERS is a file, or a raw disk of zeros: every marker is one sector.
//!
//! `work` prints `durable: ...` when its first operation is durable. Both print a last line; exit
//! code 1 and the reason if anything is not as it should be. A run without evidence fails as well:
//! `work` that made nothing durable, `check` without markers.

use nand_model::SplitMix;
use nix::libc::{EIO, EROFS, O_DIRECT};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORKERS: u32 = 4;
/// Names of each kind that a worker has.
const NAMES: u32 = 6;
/// Records that are overwritten in place, of one page each.
const SLOTS: u32 = 32;
const SLOT_BYTES: usize = 4096;
/// Records after which a log is begun anew.
const LOG_RECORDS: u64 = 64;
const SECTOR: usize = 512;

type Result<T> = std::result::Result<T, String>;

/// What a worker does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Another file is written, fsynced and renamed over it; then the folder is fsynced.
    Replace,
    /// The file is made, written and fsynced; then the folder is.
    Create,
    /// The file is unlinked and the folder fsynced.
    Unlink,
    /// A page of a file is overwritten where it is, and fdatasynced.
    Overwrite,
    /// A record is added at the end of a file, which is fsynced.
    Append,
    /// A log is made empty and fsynced.
    Truncate,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Replace,
        Kind::Create,
        Kind::Unlink,
        Kind::Overwrite,
        Kind::Append,
        Kind::Truncate,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Replace => "replace",
            Kind::Create => "create",
            Kind::Unlink => "unlink",
            Kind::Overwrite => "overwrite",
            Kind::Append => "append",
            Kind::Truncate => "truncate",
        }
    }
}

/// A file, or a page of one, that has one version at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    /// Replaced as a whole.
    File { worker: u32, name: u32 },
    /// Comes and goes.
    Guest { worker: u32, name: u32 },
    /// A page of a file.
    Slot { worker: u32, slot: u32 },
    /// Grows; its version counts its records, and those that were in it before.
    Log { worker: u32 },
}

impl Object {
    fn name(self) -> String {
        match self {
            Object::File { worker, name } => format!("{worker}/file{name}"),
            Object::Guest { worker, name } => format!("{worker}/guest{name}"),
            Object::Slot { worker, slot } => format!("{worker}/slots@{slot}"),
            Object::Log { worker } => format!("{worker}/log"),
        }
    }

    fn path(self, folder: &Path) -> PathBuf {
        let name = self.name();
        folder.join(name.split('@').next().unwrap_or(&name))
    }

    fn of(worker: u32) -> impl Iterator<Item = Object> {
        let files = (0..NAMES).map(move |name| Object::File { worker, name });
        let guests = (0..NAMES).map(move |name| Object::Guest { worker, name });
        let slots = (0..SLOTS).map(move |slot| Object::Slot { worker, slot });
        files
            .chain(guests)
            .chain(slots)
            .chain([Object::Log { worker }])
    }

    fn all() -> impl Iterator<Item = Object> {
        (0..WORKERS).flat_map(Object::of)
    }

    /// Its bytes in this version, its name and version among them; nobody else's look alike.
    fn content(self, version: u64) -> Vec<u8> {
        let mut text = format!("{} {version}\n", self.name()).into_bytes();
        let seed = text.iter().fold(version, |seed, byte| {
            seed.wrapping_mul(1099511628211) ^ u64::from(*byte)
        });
        let mut rng = SplitMix::new(seed);
        let len = match self {
            Object::Slot { .. } => SLOT_BYTES,
            Object::Log { .. } => 64 + rng.below(6000) as usize,
            // Mostly small, some over several pages of the page cache's idea of a big write.
            _ if rng.one_in(8) => 1 + rng.below(200 << 10) as usize,
            _ => 1 + rng.below(16 << 10) as usize,
        };
        while text.len() < len {
            text.extend(rng.next_u64().to_le_bytes());
        }
        text.truncate(len.max(40));
        text
    }
}

/// Version of what is not there.
const ABSENT: u64 = 0;

/// What the markers say of an object.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    durable: u64,
    /// What was begun and not completed.
    under_way: Option<(Kind, u64)>,
    /// The fsync of its folder claimed that this is durable, when the device failed.
    claimed: bool,
    /// Versions are given once.
    newest: u64,
    /// A log's version when it was made empty.
    log_base: u64,
}

/// The markers: all objects as they say, and where the next one goes.
struct Markers {
    file: File,
    next: u64,
    /// Operations that were completed.
    done: u64,
    states: BTreeMap<String, State>,
}

impl Markers {
    /// Opens markers that exist, or creates the file for the first run.
    fn open_or_create(path: &Path) -> Result<Markers> {
        if !path.exists() {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Markers::open(path)
    }

    fn open(path: &Path) -> Result<Markers> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let is_disk = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let reader = options.open(path).map_err(failed)?;
        let file = options
            .custom_flags(if is_disk { O_DIRECT } else { 0 })
            .open(path)
            .map_err(failed)?;
        let mut markers = Markers {
            file,
            next: 0,
            done: 0,
            states: BTreeMap::new(),
        };
        let mut sector = [0; SECTOR];
        while reader
            .read_exact_at(&mut sector, markers.next * SECTOR as u64)
            .is_ok()
            && sector[0] != 0
        {
            let text = String::from_utf8_lossy(&sector);
            markers
                .apply(text.trim_end())
                .ok_or_else(|| format!("{}: not a marker: {text}", path.display()))?;
            markers.next += 1;
        }
        Ok(markers)
    }

    /// `WORD KIND OBJECT VERSION`.
    fn apply(&mut self, text: &str) -> Option<()> {
        let [word, kind, object, version] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let version: u64 = version.parse().ok()?;
        let state = self.states.entry(object.into()).or_default();
        state.newest = state.newest.max(version);
        match word {
            "begin" => state.under_way = Some((kind, version)),
            "claimed" => state.claimed = true,
            _ => {
                self.done += u64::from(word == "done");
                (state.under_way, state.claimed, state.durable) = (None, false, version);
                if kind == Kind::Truncate {
                    state.log_base = version;
                }
            }
        }
        Some(())
    }

    fn note(&mut self, word: &str, kind: Kind, object: Object, version: u64) -> io::Result<()> {
        // A raw disk takes aligned sectors only.
        let mut room = [b' '; 2 * SECTOR];
        let skip = room.as_ptr().align_offset(SECTOR);
        let text = format!("{word} {} {} {version}", kind.name(), object.name());
        let sector = &mut room[skip..][..SECTOR];
        sector[..text.len()].copy_from_slice(text.as_bytes());
        sector[SECTOR - 1] = b'\n';
        self.file.write_all_at(sector, self.next * SECTOR as u64)?;
        self.next += 1;
        self.apply(&text).expect("a marker of ours");
        Ok(())
    }

    fn of(&self, object: Object) -> State {
        self.states.get(&object.name()).copied().unwrap_or_default()
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes what was done to names in a worker's folder durable. The fsync of a folder alone is not to
/// be trusted where devices fail: jbd2 finds nothing to commit, and ext4 reports success, when the
/// journal was just aborted on behalf of another process. That of a file sends a FLUSH, which fails
/// if the device is gone.
fn sync_names(folder: &Path) -> io::Result<()> {
    sync_folder(folder)?;
    match File::open(folder.join("slots"))?.sync_all() {
        Err(error) if device_is_gone(&error) => Err(io::Error::other(Unconfirmed)),
        synced => synced,
    }
}

/// The fsync of a folder succeeded; then the device was gone.
#[derive(Debug)]
struct Unconfirmed;

impl std::fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the device failed after the fsync of the folder")
    }
}

impl std::error::Error for Unconfirmed {}

/// Makes it so; what it was asked is durable when it returns.
fn perform(folder: &Path, kind: Kind, object: Object, version: u64) -> io::Result<()> {
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

/// Folders, slots and logs of an empty device, durable.
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

/// What to do next, and the version it gives.
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
        // A log's versions have no gaps.
        Object::Log { .. } if state.durable - state.log_base >= LOG_RECORDS => {
            (Kind::Truncate, object, state.durable + 1)
        }
        Object::Log { .. } => (Kind::Append, object, state.durable + 1),
    }
}

fn work(folder: &Path, markers: Markers, seed: u64) -> Result<String> {
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

/// What a file system answers when its device is gone: EIO, or that it is read-only now.
fn device_is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EIO | EROFS))
}

/// The version an object has, if it is whole.
fn version_of(folder: &Path, object: Object, state: &State) -> Result<u64> {
    let path = object.path(folder);
    let data = match fs::read(&path) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ABSENT),
        Err(error) => return Err(format!("{}: {error}", object.name())),
    };
    let data = match object {
        Object::Slot { slot, .. } => data
            .get(slot as usize * SLOT_BYTES..)
            .and_then(|rest| rest.get(..SLOT_BYTES)),
        _ => Some(&data[..]),
    };
    let data = data.ok_or_else(|| format!("{}: the file is too short", object.name()))?;
    if matches!(object, Object::Log { .. }) {
        return log_version(object, state, data);
    }
    if matches!(object, Object::Slot { .. }) && data.iter().all(|byte| *byte == 0) {
        return Ok(ABSENT);
    }
    let head = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let named = String::from_utf8_lossy(head);
    let version = named
        .strip_prefix(&format!("{} ", object.name()))
        .and_then(|version| version.parse().ok());
    match version {
        Some(version) if object.content(version) == data => Ok(version),
        Some(version) => Err(format!("{}: version {version} is torn", object.name())),
        None => Err(format!(
            "{}: {} bytes that are not its own: {:?}",
            object.name(),
            data.len(),
            &named.get(..40)
        )),
    }
}

/// Counts the whole records of a log.
fn log_version(object: Object, state: &State, mut data: &[u8]) -> Result<u64> {
    let mut version = state.log_base;
    if data.is_empty()
        && let Some((Kind::Truncate, emptied)) = state.under_way
    {
        return Ok(emptied);
    }
    while let Some(rest) = data.strip_prefix(&object.content(version + 1)[..]) {
        (data, version) = (rest, version + 1);
    }
    let torn = !data.is_empty() && state.under_way.is_none();
    if torn {
        Err(format!(
            "{}: {} bytes behind record {version}",
            object.name(),
            data.len()
        ))
    } else {
        Ok(version)
    }
}

fn check(folder: &Path, mut markers: Markers) -> Result<String> {
    let (known, done) = (markers.states.len(), markers.done);
    if done == 0 {
        return Err("no operation was noted as durable: there is nothing to check".into());
    }
    let mut struck = BTreeMap::<Kind, u64>::new();
    let (mut undone, mut untrue) = (0, 0);
    for object in Object::all() {
        let state = markers.of(object);
        let seen = version_of(folder, object, &state);
        let Some((kind, wanted)) = state.under_way else {
            match seen? {
                seen if seen == state.durable => continue,
                seen => {
                    return Err(format!(
                        "{} is version {seen}, durable was {}",
                        object.name(),
                        state.durable
                    ));
                }
            }
        };
        *struck.entry(kind).or_default() += 1;
        let seen = match (kind, seen) {
            // Until its first fsync a new file may be anything.
            (Kind::Create, Err(_)) => ABSENT,
            (_, seen) => seen?,
        };
        if seen != wanted && seen != state.durable {
            let durable = state.durable;
            return Err(format!(
                "{} is version {seen}; durable was {durable}, {wanted} under way",
                object.name()
            ));
        }
        undone += u64::from(seen != wanted);
        untrue += u64::from(seen != wanted && state.claimed);
        // A log that was not emptied is as long as before.
        let kind = if kind == Kind::Truncate && seen != wanted {
            Kind::Append
        } else {
            kind
        };
        settle(folder, &mut markers, object, kind, seen)
            .map_err(|error| format!("{}: {error}", object.name()))?;
    }
    let kinds = struck
        .iter()
        .fold(String::new(), |mut text, (kind, count)| {
            let _ = write!(text, " {}={count}", kind.name());
            text
        });
    Ok(format!(
        "check: durable={done} objects={known} undone={undone} untrue={untrue}{kinds}"
    ))
}

/// Notes what was seen, and clears away what an interrupted change may have left beside it.
fn settle(
    folder: &Path,
    markers: &mut Markers,
    object: Object,
    kind: Kind,
    seen: u64,
) -> io::Result<()> {
    let path = object.path(folder);
    if kind == Kind::Create && seen == ABSENT {
        perform(folder, Kind::Unlink, object, ABSENT)?;
    }
    if let Object::Log { .. } = object {
        let base = if kind == Kind::Truncate {
            seen
        } else {
            markers.of(object).log_base
        };
        let len: usize = (base..seen)
            .map(|version| object.content(version + 1).len())
            .sum();
        let file = OpenOptions::new().write(true).open(&path)?;
        file.set_len(len as u64)?;
        file.sync_all()?;
    }
    markers.note("saw", kind, object, seen)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["work", folder, markers, seed] => seed
            .parse()
            .map_err(|_| format!("{seed} is not a seed"))
            .and_then(|seed| {
                work(
                    Path::new(folder),
                    Markers::open_or_create(Path::new(markers))?,
                    seed,
                )
            }),
        ["check", folder, markers] => {
            Markers::open(Path::new(markers)).and_then(|m| check(Path::new(folder), m))
        }
        _ => Err("usage: fsync_markers work FOLDER MARKERS SEED | check FOLDER MARKERS".into()),
    };
    match outcome {
        Ok(line) => println!("{line}"),
        Err(why) => {
            println!("fsync_markers: {why}");
            std::process::exit(1);
        }
    }
}
