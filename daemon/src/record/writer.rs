//! The thread that writes the file.
//!
//! Invariants: entries are written in the order in which their requests ended. A chunk is written at
//! the latest [`CHUNK_EVERY`] after its first entry.

use super::Shared;
use super::order::Turn;
use ftld_traces::recording::{Entry, Head, Writer};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time from an entry to its chunk.
const CHUNK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of an entry besides its data, as the bound counts them.
pub(super) const ENTRY_BYTES: u64 = 128;

/// What the thread is told.
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
        shared,
        writer: Some(writer),
        turn: 0,
        early: HashMap::new(),
        chunk_began: None,
    };
    std::thread::Builder::new()
        .name("ftld-record".into())
        .spawn(move || thread.run(&messages))
}

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
}

impl Thread {
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match self.chunk_began {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(began) => match CHUNK_EVERY.checked_sub(began.elapsed()) {
                    Some(left) => messages.recv_timeout(left),
                    None => Err(RecvTimeoutError::Timeout),
                },
            };
            match message {
                Ok(Message::Entry {
                    turn,
                    reserved,
                    entry,
                }) => self.take(turn, reserved, entry),
                Err(RecvTimeoutError::Timeout) => {
                    self.chunk_began = None;
                    self.write(Writer::write_chunk);
                }
                Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // A request that has taken its turn and not sent its entry yet is not acknowledged either.
        let mut rest: Vec<_> = self.early.drain().map(|(_, entry)| entry).collect();
        rest.sort_by_key(|(_, entry)| entry.end.seq);
        for (reserved, entry) in rest {
            self.push(reserved, &entry);
        }
        let Some(writer) = self.writer.take() else {
            return;
        };
        // The end mark is a chunk of 24 bytes; what is before it is written with it.
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

    /// Takes an entry, and writes those whose turn has come.
    fn take(&mut self, turn: u32, reserved: u64, entry: Entry) {
        if turn != self.turn {
            self.early.insert(turn, (reserved, entry));
            return;
        }
        self.push(reserved, &entry);
        self.turn = Turn::next(self.turn);
        while let Some((reserved, entry)) = self.early.remove(&self.turn) {
            self.push(reserved, &entry);
            self.turn = Turn::next(self.turn);
        }
    }

    fn push(&mut self, reserved: u64, entry: &Entry) {
        self.write(|writer| writer.push(entry, &entry.data));
        self.shared.room.free(reserved);
        self.chunk_began.get_or_insert_with(Instant::now);
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
