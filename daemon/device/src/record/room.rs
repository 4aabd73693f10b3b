//! Bound on the bytes of entries between requests and the file.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Bytes that may be taken, and bytes taken.
pub(super) struct Room {
    most: u64,
    taken: AtomicU64,
    /// Requests that wait; they sleep at `freed`.
    waiting: AtomicU64,
    waits: AtomicU64,
    /// Whether there is no bound any more.
    is_open: AtomicBool,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Room {
    pub(super) fn new(most: u64) -> Room {
        Room {
            most,
            taken: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// Takes room for an entry, and waits until there is some. Returns what [`Room::free`] gives
    /// back. A longer entry than all room takes all of it.
    pub(super) fn take(&self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.most);
        if self.try_take(bytes) {
            return bytes;
        }
        self.waits.fetch_add(1, SeqCst);
        self.waiting.fetch_add(1, SeqCst);
        let mut guard = self.lock.lock();
        while !self.try_take(bytes) {
            self.freed.wait(&mut guard);
        }
        self.waiting.fetch_sub(1, SeqCst);
        bytes
    }

    fn try_take(&self, bytes: u64) -> bool {
        let is_open = self.is_open.load(SeqCst);
        let fits = |taken: u64| (is_open || taken + bytes <= self.most).then_some(taken + bytes);
        self.taken.fetch_update(SeqCst, SeqCst, fits).is_ok()
    }

    /// Gives room back.
    pub(super) fn free(&self, bytes: u64) {
        let before = self.taken.fetch_sub(bytes, SeqCst);
        assert!(before >= bytes, "{bytes} bytes of {before} are freed");
        if self.waiting.load(SeqCst) > 0 {
            drop(self.lock.lock());
            self.freed.notify_all();
        }
    }

    /// Lets everyone take any room from now on.
    pub(super) fn open(&self) {
        self.is_open.store(true, SeqCst);
        drop(self.lock.lock());
        self.freed.notify_all();
    }

    /// Returns how many had to wait.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(SeqCst)
    }
}
