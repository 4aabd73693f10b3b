//! Recording: every request of a device goes into a file, with times, flags and data.
//!
//! [`Recorded`] wraps a device. It takes two moments per request and hands the entry to the thread
//! of a [`Recorder`], which writes the file; docs/RECORDING.md has the format.
//!
//! Invariants: a request takes no lock, and waits only if [`BYTES_MAX`] are on their way into the
//! file. No entry is dropped. After a failed write of the file the device continues and the
//! recording has ended: status, log and metrics say so. If this process dies, the file has whole
//! chunks up to about a second before.

mod clock;
mod content;
mod device;
mod file;
mod order;
mod room;
#[cfg(test)]
mod tests;
mod writer;

pub use device::Recorded;
pub(crate) use file::RECORDED;
pub use file::recorded_profile;
pub use file::{NewRecording, head_of};

use crate::device::BlockDevice;
use crate::transport;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_kit::path_json;
pub(crate) use ftld_traces::recording::MARK_MAX;
use ftld_traces::recording::{DATA_MAX, Entry, Head, Kind, Moment};
use order::{Order, Turn};
use parking_lot::Mutex;
use room::Room;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use writer::Message;

/// Maximum bytes of entries on their way into the file.
pub(crate) const BYTES_MAX: u64 = 32 << 20;

/// State of a recording at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingView {
    /// The file.
    pub file: String,
    /// Entries in the file or in the next chunk.
    pub entries: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Requests that had to wait until entries before them were written.
    pub waits: u64,
    /// Why the recording ended before the device did.
    pub failure: Option<String>,
}

/// Answer to a mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// Its moment in the recording.
    pub seq: u64,
    /// The recording.
    pub file: String,
}

/// State that requests and the writing thread share.
struct Shared {
    file: PathBuf,
    /// CLOCK_MONOTONIC from which moments count, in nanoseconds.
    began_ns: u64,
    has_data: bool,
    order: Order,
    room: Room,
    entries: AtomicU64,
    bytes: AtomicU64,
    failure: OnceLock<String>,
    /// Whether requests are no longer recorded.
    ended: AtomicBool,
}

impl Shared {
    fn ns(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.began_ns)
    }

    /// Ends the recording; the device continues.
    fn fail(&self, why: &str) {
        let why = format!("{}: {why}", self.file.display());
        self.ended.store(true, Relaxed);
        if self.failure.set(why.clone()).is_ok() {
            tracing::error!("the recording has ended, the device continues: {why}");
        }
    }
}

/// A request that has begun.
struct Begun {
    moment: Moment,
    /// Bytes reserved for its entry.
    reserved: u64,
}

/// A recording in progress.
pub struct Recorder {
    shared: Arc<Shared>,
    entries: Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Writes the head into an empty file and starts the thread `ftld-record`. `name` is the file
    /// in messages.
    ///
    /// # Errors
    /// The file cannot be written, or the thread cannot start.
    pub fn start(file: File, name: &Path, head: &Head) -> io::Result<Arc<Recorder>> {
        let shared = Arc::new(Shared {
            file: name.to_owned(),
            began_ns: head
                .clock
                .as_ref()
                .map_or_else(clock::monotonic_ns, |clock| clock.began_ns),
            has_data: head.has_data,
            order: Order::default(),
            room: Room::new(BYTES_MAX),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failure: OnceLock::new(),
            ended: AtomicBool::new(false),
        });
        let (entries, taken) = channel();
        let thread = writer::start(file, head, shared.clone(), taken)?;
        Ok(Arc::new(Recorder {
            shared,
            entries,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Returns the state of the recording. Never waits.
    pub fn view(&self) -> RecordingView {
        RecordingView {
            file: path_json::shown(&self.shared.file),
            entries: self.shared.entries.load(Relaxed),
            bytes: self.shared.bytes.load(Relaxed),
            waits: self.shared.room.waits(),
            failure: self.shared.failure.get().cloned(),
        }
    }

    /// Records a mark, after every request that was acknowledged before this call. Returns its
    /// number.
    ///
    /// # Errors
    /// The text is empty or longer than [`MARK_MAX`], or the recording has failed.
    pub fn mark(&self, text: &str) -> Result<u64, Failure> {
        check_mark(text)?;
        if let Some(why) = self.shared.failure.get() {
            return Err(Failure::failed(format!("the recording has failed: {why}")));
        }
        // Marks are short and come from the owner of the instance: they do not wait for room.
        let begin = self.moment();
        self.end(
            Begun {
                moment: begin,
                reserved: 0,
            },
            (Kind::Mark, 0, 0),
            0,
            text.as_bytes(),
        );
        Ok(begin.seq)
    }

    /// Records what the device contains, so that the recording needs no image; for a recording
    /// without data, nothing.
    ///
    /// # Errors
    /// The device cannot list its extents.
    pub fn record_content(&self, device: &dyn BlockDevice) -> io::Result<()> {
        match self.shared.has_data {
            true => content::record(self, device),
            false => Ok(()),
        }
    }

    /// Writes the rest and the end mark, and syncs the file. Later requests are not recorded.
    ///
    /// # Errors
    /// The recording has failed, now or before.
    pub fn finish(&self) -> Result<(), Failure> {
        if let Some(thread) = self.thread.lock().take() {
            self.shared.ended.store(true, Relaxed);
            let _ = self.entries.send(Message::Finish);
            if thread.join().is_err() {
                self.shared.fail("internal error");
            }
            // Entries after the end mark are dropped, and their room is released.
            self.shared.room.open();
        }
        match self.shared.failure.get() {
            None => Ok(()),
            Some(why) => Err(Failure::failed(format!("the recording has failed: {why}"))),
        }
    }

    /// Takes the moment at which a request begins. `None` once the recording has ended.
    fn begin(&self, data: usize) -> Option<Begun> {
        if self.shared.ended.load(Relaxed) {
            return None;
        }
        let data = if self.shared.has_data { data } else { 0 };
        let reserved = self.shared.room.take(to_u64(data) + writer::ENTRY_BYTES);
        Some(Begun {
            moment: self.moment(),
            reserved,
        })
    }

    fn moment(&self) -> Moment {
        Moment {
            seq: self.shared.order.begin(),
            ns: self.shared.ns(),
        }
    }

    /// Records the end of a request, now, and sends the entry to the writer.
    fn end(&self, begun: Begun, what: (Kind, u64, u64), errno: u16, data: &[u8]) {
        self.end_as(begun, false, what, errno, data);
    }

    fn end_as(
        &self,
        begun: Begun,
        fua: bool,
        (kind, offset, length): (Kind, u64, u64),
        errno: u16,
        data: &[u8],
    ) {
        let Turn { seq, turn } = self.shared.order.end();
        let end = Moment {
            seq,
            ns: self.shared.ns(),
        };
        let data = match self.shared.has_data || kind == Kind::Mark {
            true if data.len() > DATA_MAX => {
                self.shared.fail(&format!(
                    "a request of {} bytes; recordings take at most {DATA_MAX}",
                    data.len()
                ));
                Vec::new()
            }
            true => data.to_vec(),
            false => Vec::new(),
        };
        let entry = Entry {
            kind,
            fua,
            errno,
            offset,
            length,
            begin: begun.moment,
            end,
            data,
        };
        let message = Message::Entry {
            turn,
            reserved: begun.reserved,
            entry,
        };
        // After the end mark nothing is recorded.
        if self.entries.send(message).is_err() {
            self.shared.room.free(begun.reserved);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Returns the failure for a mark without a recording.
pub fn not_recorded() -> Failure {
    Failure::failed("nothing is recorded; start the instance with --record FILE")
}

/// Checks the text of a mark.
///
/// # Errors
/// The text is empty, too long, or contains a NUL, which no environment variable can have.
pub fn check_mark(text: &str) -> Result<(), Failure> {
    let bytes = serde_json::Value::from(text).to_string().len();
    match bytes {
        _ if text.is_empty() => Err(Failure::usage(
            "a mark without text is found by nobody; give one, such as `ftld mark 'before the fsync'`",
        )),
        _ if text.contains('\0') => Err(Failure::usage(
            "a mark with a NUL: a check finds its text in FTLD_MARK, where none can be; leave it out",
        )),
        _ if bytes > MARK_MAX => Err(Failure::usage(format!(
            "a mark of {bytes} bytes as JSON; at most {MARK_MAX} fit: shorten the text"
        ))),
        _ => Ok(()),
    }
}

/// Returns the errno of an error as an entry has it.
fn errno(error: &io::Error) -> u16 {
    u16::try_from(transport::errno(error)).unwrap_or(u16::MAX)
}
