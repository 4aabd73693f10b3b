//! The stores of one file: their numbers, their headers, and the sync that serves all of them.
//!
//! Invariants: see the header of [`super`].

use super::header_copies::HeaderCopies;
use crate::image::Layout;
use crate::store::file::disk::{Disk, EIO};
use crate::store::file::seals::Seals;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Numbers and seals of one store. The next store, which another thread uses, has other cache
/// lines.
#[repr(align(128))]
pub(super) struct Member {
    /// Position in the group.
    pub(super) index: usize,
    /// The last operation whose writes are complete.
    pub(super) last: AtomicU64,
    pub(super) synced: AtomicU64,
    pub(super) durable: AtomicU64,
    /// Locked last: no thread that holds this lock waits for another.
    pub(super) seals: Mutex<Seals>,
}

/// The stores of one file.
pub(super) struct Group {
    /// The whole file.
    pub(super) disk: Arc<dyn Disk>,
    pub(super) members: Vec<Arc<Member>>,
    /// 0, or the errno of the sync that failed.
    pub(super) failed: AtomicI32,
    pub(super) count: AtomicU64,
    pub(super) total_ns: AtomicU64,
    pub(super) last_ns: AtomicU64,
    pub(super) delay_ns: AtomicU64,
    pub(super) fail_next: AtomicBool,
    pub(super) state: Mutex<State>,
    pub(super) wake: Condvar,
}

pub(super) struct State {
    /// A thread is in fdatasync; all others wait for its result.
    pub(super) running: bool,
    /// In the order of the members.
    pub(super) files: Vec<StoreFile>,
}

/// The file of one store: all of an image, or its part.
pub(super) struct StoreFile {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) layout: Layout,
    pub(super) closed: bool,
    pub(super) copies: HeaderCopies,
    /// The last operation when the running sync began.
    pub(super) target: u64,
}

/// A duration on the host's clock, in ns.
pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Group {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        members: Vec<Arc<Member>>,
        files: Vec<StoreFile>,
    ) -> Group {
        let running = false;
        Group {
            disk,
            members,
            failed: AtomicI32::new(0),
            count: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            fail_next: AtomicBool::new(false),
            state: Mutex::new(State { running, files }),
            wake: Condvar::new(),
        }
    }

    pub(super) fn run(&self) -> io::Result<()> {
        let delay = self.delay_ns.load(Ordering::Acquire);
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        if self.fail_next.swap(false, Ordering::AcqRel) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.disk.sync()
    }

    /// The open stores, with their files.
    fn open<'a>(
        &'a self,
        state: &'a mut State,
    ) -> impl Iterator<Item = (&'a Member, &'a mut StoreFile)> {
        let members = self.members.iter().map(|member| &**member);
        members
            .zip(&mut state.files)
            .filter(|(_, file)| !file.closed)
    }

    pub(super) fn note_synced(&self, state: &mut State, took: Duration) {
        if self.failed.load(Ordering::Acquire) != 0 {
            return;
        }
        for (member, file) in self.open(state) {
            member.note_synced(file);
        }
        let took_ns = nanos(took);
        self.last_ns.store(took_ns, Ordering::Relaxed);
        self.total_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Ends all syncs of the file.
    pub(super) fn fail(&self, state: &mut State, errno: i32) {
        if self.failed.load(Ordering::Acquire) != 0 {
            return;
        }
        self.failed.store(errno.max(1), Ordering::Release);
        for (member, file) in self.open(state) {
            // The page cache may now contain bytes that the disk does not have, so the next open
            // must not trust it.
            file.copies.header.info.sync_failed = true;
            let synced = member.synced.load(Ordering::Acquire);
            member.write_header(file, synced, true);
            if file.copies.errno.is_some() {
                // The copy to be replaced may have been the only one with this number; a torn copy
                // has none.
                member.write_header(file, synced, true);
            }
        }
        let _ = self.disk.sync();
    }
}

impl Member {
    /// Records a sync that began when the last operation was `file.target`.
    pub(super) fn note_synced(&self, file: &mut StoreFile) {
        let target = file.target;
        let [last, synced] = [&self.last, &self.synced].map(|n| n.load(Ordering::Acquire));
        debug_assert!(
            synced <= target && target <= last,
            "a sync up to operation {target}, one up to {synced} was before"
        );
        // Both copies in the file were written before this sync began.
        let durable = file.copies.note_synced();
        debug_assert!(
            durable <= target,
            "a header on the disk is ahead of the sync"
        );
        self.durable.store(durable, Ordering::Release);
        self.synced.store(target, Ordering::Release);
        self.write_header(file, target, false);
    }

    /// Writes the changed seals, and then a header with `synced_seq`, unless that is unchanged.
    /// Everything up to `synced_seq` is synced.
    pub(super) fn write_header(&self, file: &mut StoreFile, synced_seq: u64, always: bool) {
        if !always && file.copies.are_current(synced_seq) {
            return;
        }
        // A header ahead of the seals would permit writes to slots that are sealed on the disk.
        // After a failed sync no slot is written, and the header has to record that failure.
        if let Err(error) = self.write_seals(file, synced_seq)
            && !file.copies.header.info.sync_failed
        {
            file.copies.errno = Some(error.raw_os_error().unwrap_or(EIO));
            return;
        }
        file.copies.write(&*file.disk, &file.layout, synced_seq);
    }

    /// Writes the changed sectors of the seal map; everything up to `synced_seq` is synced.
    fn write_seals(&self, file: &StoreFile, synced_seq: u64) -> io::Result<()> {
        let Some((numbers, bytes)) = self.seals().take_dirty(synced_seq) else {
            return Ok(());
        };
        let at = file.layout.seal_sector_at(numbers.start);
        let written = file.disk.write_at(at, &bytes);
        if written.is_err() {
            self.seals().add_dirty(numbers);
        }
        Ok(written?)
    }

    pub(super) fn seals(&self) -> MutexGuard<'_, Seals> {
        self.seals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
