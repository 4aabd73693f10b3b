//! The plots' history in a small file beside the image, so that it survives its daemon: `IMAGE` has
//! `IMAGE.history`.
//!
//! Invariants: a thread of its own writes the file, so that neither a request nor the runtime waits
//! for it, and a stop at most [`LAST_PATIENCE`]. The file is replaced as a whole, without a sync: a
//! crash of the host may leave a broken one, which its check shows. A file that is not this
//! image's, or not whole, is ignored.
//!
//! Numbers are little-endian: magic (8 bytes), version (u32), CRC-32C of what follows (u32), then
//! the image's uuid (16), and variable-length numbers: those of [`SHAPE`], the wall clock of the
//! time 0 in ms, the number of the next sample, restarts (count; time and cause of each), samples
//! (count; [`WORDS`] of each, with a run of zeros as 0 and its length).

use super::history::{BUCKETS, History, KEPT, LookupSample, OPS, OpSample, Restart, Sample};
use ftld_device::status::InstanceInfo;
use ftld_kit::convert::{to_u64, to_usize};
use nand_model::{Cause, crc32c_append};
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC: &[u8; 8] = b"FTLDHIS\0";
/// Why a file that is not ours is left alone.
const FOREIGN: &str = "no history of ftld, so it stays as it is";
const VERSION: u32 = 1;
/// Where the checked part begins.
const CHECKED_AT: usize = 16;
/// Longest file that is read: all samples with the largest numbers are shorter.
const BYTES_MAX: u64 = 4 << 20;
/// Largest time and number of a sample: a page calculates with them.
const COUNT_MAX: u64 = 1 << 53;
/// Counts of which the length of a sample follows. Another build may have others.
const SHAPE: [u64; 3] = [Cause::COUNT as u64, BUCKETS as u64, OPS.len() as u64];
/// Numbers of a sample.
const WORDS: usize = 7 + Cause::COUNT + 1 + 4 + OPS.len() * (2 + 2 * BUCKETS);
/// Longest wait of a daemon that ends for the last file.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Returns the files that belong to an image's history: itself, and an unfinished one.
pub(crate) fn files_of(image: &Path) -> [PathBuf; 2] {
    [".history", ".history.new"].map(|ending| {
        let mut name = OsString::from(image);
        name.push(ending);
        name.into()
    })
}

/// The file of a running instance.
#[derive(Debug)]
pub(crate) struct Keeper {
    image: PathBuf,
    uuid: [u8; 16],
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A thread is writing.
    is_busy: AtomicBool,
    /// The file could not be written, and that was said.
    has_warned: AtomicBool,
}

impl Keeper {
    /// Returns the history that an earlier daemon of this image left, and the file for this one's:
    /// `None` if it is read-only or has no page.
    pub(crate) fn start(facts: &InstanceInfo) -> (History, Option<Keeper>) {
        let mut history = History::new(SystemTime::now());
        if facts.metrics.is_none() {
            return (history, None);
        }
        let [file, _] = files_of(&facts.image);
        let mut is_ours = true;
        match load(&file, facts.uuid) {
            Ok(None) => {}
            Ok(Some(left)) => history.resume(left, facts.ended()),
            Err(why) => {
                is_ours = why != FOREIGN;
                tracing::warn!(
                    "{}: {why}; the plots of the page begin anew",
                    file.display()
                );
            }
        }
        let keeper = Keeper {
            image: facts.image.clone(),
            uuid: facts.uuid,
            state: Arc::default(),
        };
        (history, (is_ours && !facts.read_only).then_some(keeper))
    }

    /// Begins to write a history. Returns what says that this has ended; `None` if the last one has
    /// not, or there is no thread.
    pub(super) fn keep(&self, history: Kept) -> Option<Receiver<()>> {
        if self.state.is_busy.swap(true, AcqRel) {
            return None;
        }
        let (image, uuid, state) = (self.image.clone(), self.uuid, self.state.clone());
        let (done, ended) = channel();
        let write = move || {
            if let Err(error) = store(&image, &history.encode(uuid))
                && !state.has_warned.swap(true, Relaxed)
            {
                let [file, _] = files_of(&image);
                tracing::warn!(
                    "{}: {error}; the plots of the page do not survive this daemon",
                    file.display()
                );
            }
            state.is_busy.store(false, Release);
            let _ = done.send(());
        };
        let started = std::thread::Builder::new()
            .name("ftld-history".into())
            .spawn(write);
        if started.is_err() {
            self.state.is_busy.store(false, Release);
        }
        started.is_ok().then_some(ended)
    }

    /// Writes the last history of this daemon, if the host takes it in time.
    pub(super) fn keep_last(&self, history: &Kept) {
        let end = std::time::Instant::now() + LAST_PATIENCE;
        let left = || end.saturating_duration_since(std::time::Instant::now());
        while !left().is_zero() {
            if let Some(ended) = self.keep(history.clone()) {
                let _ = ended.recv_timeout(left());
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A history, as it is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// Wall clock of the time 0, ms since 1970.
    pub(super) origin_ms: u64,
    /// Number of the next sample.
    pub(super) next: u64,
    pub(super) restarts: Vec<Restart>,
    pub(super) samples: Vec<Sample>,
}

/// Returns the wall clock, ms since 1970.
pub(super) fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    ftld_kit::convert::millis(since)
}

impl Kept {
    fn encode(&self, uuid: [u8; 16]) -> Vec<u8> {
        let mut body = uuid.to_vec();
        for number in SHAPE.into_iter().chain([self.origin_ms, self.next]) {
            put(&mut body, number);
        }
        put(&mut body, to_u64(self.restarts.len()));
        for Restart { at_ms, cause } in &self.restarts {
            put(&mut body, *at_ms);
            put(&mut body, u64::from(*cause));
        }
        put(&mut body, to_u64(self.samples.len()));
        for sample in &self.samples {
            let mut zeros = 0;
            for word in words(sample) {
                match word {
                    0 => zeros += 1,
                    _ => {
                        put_zeros(&mut body, &mut zeros);
                        put(&mut body, word);
                    }
                }
            }
            put_zeros(&mut body, &mut zeros);
        }
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&crc32c_append(0, &body).to_le_bytes());
        file.append(&mut body);
        file
    }

    /// Returns the history in the bytes of a file.
    ///
    /// # Errors
    /// Why it is not this image's, or not whole.
    fn decode(file: &[u8], uuid: [u8; 16]) -> Result<Kept, String> {
        const NEWER: &str = "history of another version of ftld";
        const BROKEN: &str = "cut off or damaged history";
        // A host that crashed may have kept a part of it, or zeros.
        let begin = &file[..file.len().min(MAGIC.len())];
        let is_part = file.len() < MAGIC.len() && MAGIC.starts_with(begin);
        if is_part || begin.iter().all(|byte| *byte == 0) {
            return Err(BROKEN.into());
        }
        if !file.starts_with(MAGIC) {
            return Err(FOREIGN.into());
        }
        let word = |at: usize| {
            file.get(at..at + 4)?
                .try_into()
                .ok()
                .map(u32::from_le_bytes)
        };
        if word(8) != Some(VERSION) {
            let error = if word(8).is_none() { BROKEN } else { NEWER };
            return Err(error.into());
        }
        let body = file.get(CHECKED_AT..).filter(|body| body.len() >= 16);
        let body = body.filter(|body| word(12) == Some(crc32c_append(0, body)));
        let (own, rest) = body.ok_or(BROKEN)?.split_at(16);
        if own != uuid {
            return Err("history of another image".into());
        }
        let mut rest = rest;
        let mut take = || take(&mut rest).ok_or(BROKEN);
        if [take()?, take()?, take()?] != SHAPE {
            return Err(NEWER.into());
        }
        let (origin_ms, next) = (take()?, take()?);
        if origin_ms.max(next) > COUNT_MAX {
            return Err(BROKEN.into());
        }
        let mut restarts = Vec::new();
        for _ in 0..take()?.min(to_u64(KEPT)) {
            let at_ms = take()?;
            let cause = u8::try_from(take()?).map_err(|_| BROKEN)?;
            restarts.push(Restart { at_ms, cause });
        }
        let count = take()?;
        if count > to_u64(KEPT) || count > next {
            return Err(BROKEN.into());
        }
        let mut samples: Vec<Sample> = Vec::with_capacity(KEPT);
        for _ in 0..count {
            let mut all = [0; WORDS];
            let mut at = 0;
            while at < WORDS {
                match take()? {
                    0 => at = at.saturating_add(to_usize(take()?).max(1)),
                    word => {
                        all[at] = word;
                        at += 1;
                    }
                }
            }
            let sample = sample_of(&all).filter(|_| at == WORDS).ok_or(BROKEN)?;
            let before = samples.last().map_or(0, |last| last.at_ms);
            if !(before..=COUNT_MAX).contains(&sample.at_ms) {
                return Err(BROKEN.into());
            }
            samples.push(sample);
        }
        Ok(Kept {
            origin_ms,
            next,
            restarts,
            samples,
        })
    }
}

/// Appends a number, seven bits a byte, the lowest first; the last byte has the eighth bit clear.
fn put(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends a run of zeros, if there is one, and begins the next.
fn put_zeros(to: &mut Vec<u8>, zeros: &mut u64) {
    if *zeros > 0 {
        to.push(0);
        put(to, std::mem::take(zeros));
    }
}

/// Takes a number away from the front; `None` if there is none.
fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns the numbers of a sample.
fn words(of: &Sample) -> impl Iterator<Item = u64> {
    let first = [
        of.at_ms,
        of.host_ms.into(),
        of.flash_ms.into(),
        of.emulated_ns,
        of.written_bytes,
        of.written_total_bytes,
        of.programs_total,
    ];
    let programs = of.programs.iter().map(|count| u64::from(*count));
    let lookups = of.lookups.iter().flat_map(|of| [of.total, of.hits]);
    let ops = of.ops.iter().flat_map(|op| {
        let buckets = op.wall.iter().chain(&op.emulated);
        let counts = buckets.map(|count| u64::from(*count));
        [op.completed.into(), op.bytes].into_iter().chain(counts)
    });
    let gc_runs = std::iter::once(u64::from(of.gc_runs));
    let rest = programs.chain(gc_runs).chain(lookups.map(u64::from));
    first.into_iter().chain(rest).chain(ops)
}

/// Returns the sample of these numbers; `None` if one is too large.
fn sample_of(all: &[u64; WORDS]) -> Option<Sample> {
    let mut all = all.iter().copied();
    let mut next = || all.next();
    let at_ms = next()?;
    let (host_ms, flash_ms) = (next()?.try_into().ok()?, next()?.try_into().ok()?);
    let (emulated_ns, written_bytes) = (next()?, next()?);
    let (written_total_bytes, programs_total) = (next()?, next()?);
    let mut programs = [0; Cause::COUNT];
    for count in &mut programs {
        *count = next()?.try_into().ok()?;
    }
    let gc_runs = next()?.try_into().ok()?;
    let mut lookups = [LookupSample { total: 0, hits: 0 }; 2];
    for of in &mut lookups {
        (of.total, of.hits) = (next()?.try_into().ok()?, next()?.try_into().ok()?);
    }
    let nothing = OpSample {
        completed: 0,
        bytes: 0,
        wall: [0; BUCKETS],
        emulated: [0; BUCKETS],
    };
    let mut ops = [nothing; OPS.len()];
    for op in &mut ops {
        (op.completed, op.bytes) = (next()?.try_into().ok()?, next()?);
        for count in op.wall.iter_mut().chain(&mut op.emulated) {
            *count = next()?.try_into().ok()?;
        }
    }
    Some(Sample {
        at_ms,
        host_ms,
        flash_ms,
        emulated_ns,
        written_bytes,
        written_total_bytes,
        programs_total,
        programs,
        gc_runs,
        lookups,
        ops,
    })
}

/// Reads a history; `None` if there is no file.
///
/// # Errors
/// Why it cannot be used.
fn load(file: &Path, uuid: [u8; 16]) -> Result<Option<Kept>, String> {
    // Whatever bears this name, opening it neither waits nor follows a link.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(file, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(FOREIGN.into()),
        Err(error) => return Err(io::Error::from(error).to_string()),
    };
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if !meta.is_file() || meta.len() > BYTES_MAX {
        return Err(FOREIGN.into());
    }
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    Kept::decode(&bytes, uuid).map(Some)
}

/// Replaces the history of an image. It has the permissions of the image.
///
/// # Errors
/// The folder does not take it.
fn store(image: &Path, bytes: &[u8]) -> io::Result<()> {
    let [file, new] = files_of(image);
    let of_image = image.metadata()?;
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new);
    let written = made.and_then(|mut out| {
        out.write_all(bytes)?;
        let meta = out.metadata()?;
        if (meta.uid(), meta.gid()) != (of_image.uid(), of_image.gid()) {
            // Without the right to do so it stays this user's.
            let _ = fchown(&out, Some(of_image.uid()), Some(of_image.gid()));
        }
        out.set_permissions(Permissions::from_mode(of_image.mode() & 0o666))?;
        std::fs::rename(&new, &file)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests;
