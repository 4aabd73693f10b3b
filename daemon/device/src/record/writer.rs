//! The thread that writes the file.
//!
//! Invariants: entries are written in the order in which their requests ended. A chunk is written
//! at the latest [`CHUNK_EVERY`] after its first entry. Under load the thread polls every
//! [`TAKE_EVERY`], so that no request has to wake it up.

use super::Shared;
use super::order::Turn;
use ftld_kit::failure::panic_text;
use ftld_traces::recording::{Entry, Head, Writer};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time from an entry to its chunk.
const CHUNK_EVERY: Duration = Duration::from_millis(500);
/// Time between two polls while entries arrive.
const TAKE_EVERY: Duration = Duration::from_millis(1);
/// Bytes written after which the requests that wait for room get it.
const FREE_EVERY: u64 = 1 << 20;
/// Bytes of an entry besides its data, as the bound counts them.
pub(super) const ENTRY_BYTES: u64 = 128;

/// Message to the writing thread.
pub(super) enum Message {
    /// A request has ended.
    Entry {
        /// Its place in the order of ends.
        turn: u32,
        /// Bytes of the bound that it took.
        reserved: u64,
        entry: Entry,
    },
    /// Write the end mark and end.
    Finish,
}

/// Writes the head and starts the thread.
pub(super) fn start(
    file: File,
    head: &Head,
    shared: Arc<Shared>,
    messages: Receiver<Message>,
) -> io::Result<JoinHandle<()>> {
    let writer = Writer::create(file, head)?;
    shared.bytes.store(writer.bytes(), Relaxed);
    let thread = Thread {
        shared: shared.clone(),
        writer: Some(writer),
        turn: 0,
        early: HashMap::new(),
        chunk_began: None,
        written: 0,
    };
    std::thread::Builder::new()
        .name("ftld-record".into())
        .spawn(move || guarded(&shared, || thread.run(&messages)))
}

/// Runs the thread. If it panics, the recording has failed, and no request waits for room any more.
pub(super) fn guarded(shared: &Shared, run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let panic = panic_text(&*panic);
        shared.fail(&format!(
            "internal error: thread ftld-record has ended: {panic}"
        ));
        shared.room.open();
    }
}

/// Nothing more is recorded.
struct Ended;

struct Thread {
    shared: Arc<Shared>,
    /// `None` once the recording has failed.
    writer: Option<Writer<File>>,
    /// Turn of the next entry.
    turn: u32,
    /// Entries that came before one that ended earlier.
    early: HashMap<u32, (u64, Entry)>,
    /// When the first entry of the next chunk came.
    chunk_began: Option<Instant>,
    /// Bytes of the bound whose entries are written, and which are not free yet.
    written: u64,
}

impl Thread {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(taken) = self.take_all(messages) {
            let left = match self.chunk_began {
                None => None,
                Some(began) => match CHUNK_EVERY.checked_sub(began.elapsed()) {
                    Some(left) => Some(left),
                    None => {
                        self.chunk_began = None;
                        self.write(Writer::write_chunk);
                        None
                    }
                },
            };
            if taken > 0 {
                std::thread::sleep(TAKE_EVERY);
                continue;
            }
            let message = match left {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(left) => messages.recv_timeout(left),
            };
            match message {
                Ok(message) => match self.take(message) {
                    Ok(()) => {}
                    Err(Ended) => break,
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // A request that has taken its turn and not sent its entry yet is not acknowledged either.
        let mut rest: Vec<_> = self.early.drain().map(|(_, entry)| entry).collect();
        rest.sort_by_key(|(_, entry)| entry.end.seq);
        for (reserved, entry) in rest {
            self.push(reserved, &entry);
        }
        self.free();
        let Some(writer) = self.writer.take() else {
            return;
        };
        // The end mark is a chunk of 24 bytes; the entries before it are written with it.
        let ended = writer.finish().and_then(|(file, bytes)| {
            self.shared.bytes.store(bytes, Relaxed);
            match file.sync_all() {
                // A pipe has nothing to sync.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            }
        });
        if let Err(error) = ended {
            self.shared.fail(&error.to_string());
        }
    }

    /// Takes the messages that have come. Returns how many.
    fn take_all(&mut self, messages: &Receiver<Message>) -> Result<usize, Ended> {
        let mut taken = 0;
        let ended = loop {
            match messages.try_recv() {
                Ok(message) => match self.take(message) {
                    Ok(()) => taken += 1,
                    Err(Ended) => break Err(Ended),
                },
                Err(TryRecvError::Empty) => break Ok(taken),
                Err(TryRecvError::Disconnected) => break Err(Ended),
            }
        };
        self.free();
        ended
    }

    /// Takes a message, and writes the entries whose turn has come.
    fn take(&mut self, message: Message) -> Result<(), Ended> {
        let Message::Entry {
            turn,
            reserved,
            entry,
        } = message
        else {
            return Err(Ended);
        };
        if turn != self.turn {
            self.early.insert(turn, (reserved, entry));
            return Ok(());
        }
        self.push(reserved, &entry);
        self.turn = Turn::next(self.turn);
        while let Some((reserved, entry)) = self.early.remove(&self.turn) {
            self.push(reserved, &entry);
            self.turn = Turn::next(self.turn);
        }
        Ok(())
    }

    fn push(&mut self, reserved: u64, entry: &Entry) {
        self.write(|writer| writer.push(entry, &entry.data));
        self.written += reserved;
        if self.written >= FREE_EVERY {
            self.free();
        }
        self.chunk_began.get_or_insert_with(Instant::now);
    }

    /// Gives the room of written entries back.
    fn free(&mut self) {
        if self.written > 0 {
            self.shared.room.free(std::mem::take(&mut self.written));
        }
    }

    /// Writes, unless the recording has failed; if it fails now, what follows is dropped and the
    /// file keeps its whole chunks.
    fn write(&mut self, work: impl FnOnce(&mut Writer<File>) -> io::Result<()>) {
        if self.shared.failure.get().is_some() {
            self.writer = None;
        }
        let Some(writer) = &mut self.writer else {
            return;
        };
        match work(writer) {
            Ok(()) => {
                self.shared.entries.store(writer.entries(), Relaxed);
                self.shared.bytes.store(writer.bytes(), Relaxed);
            }
            Err(error) => {
                self.writer = None;
                self.shared.fail(&error.to_string());
            }
        }
    }
}
