//! Syncs of the image, shared by all waiters, and the header that records the last synced
//! operation.
//!
//! Terms: an operation is *synced* when an fdatasync that started after it has completed. A synced
//! number is *durable* when a header with that number is on the disk itself, which takes one more
//! sync.
//!
//! Invariants: the header contains number S only after everything up to S was synced. The
//! overwritten header copy is never the newest one known to be on the disk, except by an open,
//! which writes the same bytes. After a failed sync no operation becomes synced. fdatasync runs
//! without any lock that a program or erase needs.
//!
//! If the host fails here, one header copy may be torn; the other one is durable and contains at
//! least [`SyncHandle::durable_seq`].

use super::disk::Disk;
use super::seals::Seals;
use crate::image::{CacheSection, Header, Layout};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const EIO: i32 = 5;

/// Failure of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// An fdatasync failed, now or earlier: the image accepts no more changes; earlier synced
    /// operations stay durable.
    #[error("a sync of the image failed: {}", std::io::Error::from_raw_os_error(*.0))]
    Failed(i32),
    /// The data is synced, but the header cannot be written: space of erased blocks is not reusable
    /// until it can.
    #[error("the image's header cannot be written: {}", std::io::Error::from_raw_os_error(*.0))]
    Header(i32),
    /// The store was closed or dropped before this operation was synced.
    #[error("the image is closed")]
    Closed,
}

impl From<SyncError> for io::Error {
    fn from(error: SyncError) -> Self {
        io::Error::from_raw_os_error(match error {
            SyncError::Failed(_) | SyncError::Closed => EIO,
            SyncError::Header(errno) => errno,
        })
    }
}

/// Number and duration of syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncStats {
    /// Completed syncs.
    pub count: u64,
    /// Time in all of them.
    pub total_ns: u64,
    /// Time in the last one.
    pub last_ns: u64,
}

/// Waits for operations to become durable, from any thread, while the store continues.
#[derive(Clone)]
pub struct SyncHandle(Arc<Shared>);

struct Shared {
    disk: Arc<dyn Disk>,
    layout: Layout,
    /// The last operation whose writes are complete.
    last: AtomicU64,
    synced: AtomicU64,
    durable: AtomicU64,
    /// 0, or the errno of the sync that failed.
    failed: AtomicI32,
    count: AtomicU64,
    total_ns: AtomicU64,
    last_ns: AtomicU64,
    delay_ns: AtomicU64,
    fail_next: AtomicBool,
    seals: Mutex<Seals>,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// A thread is in fdatasync; all others wait for its result.
    running: bool,
    closed: bool,
    /// The last header written.
    header: Header,
    /// Synced numbers of the two copies in the file.
    copies: [u64; 2],
    /// The newest copy known to be on the disk.
    durable_copy: usize,
    written_copy: usize,
    /// The header differs from both copies in the file.
    unwritten: bool,
    header_errno: Option<i32>,
}

/// A duration on the host's clock, in ns.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl SyncHandle {
    /// Creates the state of a file with `header` in copy `copy`. The header and everything up to
    /// `last_seq` are synced.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        layout: Layout,
        header: Header,
        copy: usize,
        last_seq: u64,
        seals: Seals,
    ) -> Self {
        let seq = header.synced_seq;
        assert!(copy < 2, "a header has two copies");
        assert!(
            seq <= last_seq,
            "operation {seq} is synced, the last one is {last_seq}"
        );
        let mut copies = [0; 2];
        copies[copy] = seq;
        let state = State {
            running: false,
            closed: false,
            header,
            copies,
            durable_copy: copy,
            written_copy: copy,
            unwritten: false,
            header_errno: None,
        };
        SyncHandle(Arc::new(Shared {
            disk,
            layout,
            last: AtomicU64::new(last_seq),
            synced: AtomicU64::new(last_seq),
            durable: AtomicU64::new(seq),
            failed: AtomicI32::new(0),
            count: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            fail_next: AtomicBool::new(false),
            seals: Mutex::new(seals),
            state: Mutex::new(state),
            wake: Condvar::new(),
        }))
    }

    /// Number of the last complete program or erase.
    #[inline]
    pub fn last_seq(&self) -> u64 {
        self.0.last.load(Ordering::Acquire)
    }

    /// The last operation that survives a host crash, with all before it.
    pub fn synced_seq(&self) -> u64 {
        self.0.synced.load(Ordering::Acquire)
    }

    /// The synced number of a header on the disk: erases up to it have freed their space.
    #[inline]
    pub fn durable_seq(&self) -> u64 {
        self.0.durable.load(Ordering::Acquire)
    }

    /// Number and duration of syncs.
    pub fn stats(&self) -> SyncStats {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        SyncStats {
            count: get(&self.0.count),
            total_ns: get(&self.0.total_ns),
            last_ns: get(&self.0.last_ns),
        }
    }

    /// The failure that ended all syncs, if any.
    #[inline]
    pub fn failure(&self) -> Option<SyncError> {
        match self.0.failed.load(Ordering::Acquire) {
            0 => None,
            errno => Some(SyncError::Failed(errno)),
        }
    }

    /// Waits for a sync that started after operation `seq` was issued. Waiters share one.
    ///
    /// # Errors
    ///
    /// - [`SyncError::Failed`]: a sync failed, now or earlier. Operation `seq` may be lost, and the
    ///   image accepts no more changes.
    /// - [`SyncError::Closed`]: the store was closed or dropped before the operation was synced.
    pub fn sync_through(&self, seq: u64) -> Result<(), SyncError> {
        self.wait(|shared| shared.synced.load(Ordering::Acquire) >= seq)
    }

    /// Waits until the space freed by erases up to `seq` is reusable: at most two syncs.
    ///
    /// # Errors
    ///
    /// - [`SyncError::Header`]: the data is synced, but the host cannot write the header. The call
    ///   may be repeated.
    /// - [`SyncError::Failed`] and [`SyncError::Closed`] as for [`SyncHandle::sync_through`].
    pub fn settle(&self, seq: u64) -> Result<(), SyncError> {
        let mut rounds = 0;
        while self.durable_seq() < seq {
            if rounds == 4 {
                // Two complete rounds would have advanced it if the header had been written.
                return Err(SyncError::Header(self.lock().header_errno.unwrap_or(EIO)));
            }
            rounds += 1;
            let begun = self.0.count.load(Ordering::Acquire);
            self.wait(|shared| {
                shared.durable.load(Ordering::Acquire) >= seq
                    || shared.count.load(Ordering::Acquire) > begun
            })?;
        }
        Ok(())
    }

    /// Test hook: makes every later sync take this much longer.
    pub fn set_sync_delay(&self, delay: Duration) {
        self.0.delay_ns.store(nanos(delay), Ordering::Release);
    }

    /// Test hook: makes the next sync fail like one of the host's disk.
    pub fn fail_next_sync(&self) {
        self.0.fail_next.store(true, Ordering::Release);
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.lock().running
    }

    /// Records that all writes of operation `seq` are complete.
    #[inline]
    pub(super) fn publish(&self, seq: u64) {
        debug_assert!(
            seq > self.last_seq(),
            "operation {seq} after operation {}",
            self.last_seq()
        );
        self.0.last.store(seq, Ordering::Release);
    }

    /// Hours of emulated time since the device was created, as last recorded.
    pub(super) fn hour(&self) -> u32 {
        self.lock().header.hour
    }

    /// Records the device's hour, also in the file: now, or after the sync in progress.
    pub(super) fn set_hour(&self, hour: u32) {
        let mut state = self.lock();
        state.header.hour = hour;
        state.unwritten = true;
        if !state.running && !state.closed && self.failure().is_none() {
            self.write_header(&mut state, self.synced_seq(), true);
        }
    }

    /// Refuses every later change and sync, because the file and the store's state differ.
    pub(super) fn fail(&self, error: &io::Error) {
        let mut state = self.lock();
        self.fail_locked(&mut state, error.raw_os_error().unwrap_or(EIO));
        self.0.wake.notify_all();
    }

    /// Ends all syncing: waits for one in progress, then refuses new ones.
    pub(super) fn stop(&self) {
        let mut state = self.lock_idle();
        state.closed = true;
        self.0.wake.notify_all();
    }

    /// Seals a slot as soon as operation `seq`, which completed it, is synced.
    pub(super) fn seal_when_synced(&self, slot: u32, seq: u64) {
        self.seals().seal_when_synced(slot, seq);
    }

    /// Clears the seal of a slot that an erase frees. The caller publishes that erase afterwards:
    /// when it is durable, so is this.
    pub(super) fn clear_seal(&self, slot: u32) {
        self.seals().clear(slot);
    }

    /// Clears a slot's seal before a record of it changes. If the file may contain the seal, waits
    /// until the cleared one is synced.
    pub(super) fn unseal(&self, slot: u32) -> Result<(), SyncError> {
        if !self.seals().holds(slot) {
            return Ok(());
        }
        let mut state = self.lock_idle();
        if !self.seals().clear(slot) {
            return Ok(());
        }
        self.write_header(&mut state, self.synced_seq(), true);
        if let Some(errno) = state.header_errno {
            self.seals().restore(slot);
            return Err(SyncError::Header(errno));
        }
        drop(state);
        self.force()
    }

    fn seals(&self) -> MutexGuard<'_, Seals> {
        self.0.seals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs everything and then a header with this `clean` flag.
    pub(super) fn write_clean(&self, clean: bool) -> Result<(), SyncError> {
        self.force()?;
        self.write_clean_flag(clean)
    }

    /// Writes a header with this `clean` flag and syncs it. The caller has synced everything else.
    pub(super) fn write_clean_flag(&self, clean: bool) -> Result<(), SyncError> {
        let mut state = self.lock_idle();
        state.header.info.clean = clean;
        self.write_header(&mut state, self.synced_seq(), true);
        if let Some(errno) = state.header_errno {
            return Err(SyncError::Header(errno));
        }
        drop(state);
        self.force()
    }

    /// Returns the area of a write cache, as the header in memory has it.
    pub(super) fn cache_area(&self) -> Option<CacheSection> {
        self.lock().header.info.cache_area
    }

    /// Writes a header with this area of a write cache and syncs it.
    pub(super) fn write_cache_area(&self, area: Option<CacheSection>) -> Result<(), SyncError> {
        let mut state = self.lock_idle();
        let before = std::mem::replace(&mut state.header.info.cache_area, area);
        self.write_header(&mut state, self.synced_seq(), true);
        if let Some(errno) = state.header_errno {
            state.header.info.cache_area = before;
            return Err(SyncError::Header(errno));
        }
        drop(state);
        self.force()
    }

    /// The file, and the bytes of it that have a place in the layout.
    pub(super) fn file(&self) -> (&dyn Disk, u64) {
        (&*self.0.disk, self.0.layout.file_bytes)
    }

    /// Waits for a sync that starts after this call.
    pub(super) fn force(&self) -> Result<(), SyncError> {
        let state = self.lock();
        let wanted = self.0.count.load(Ordering::Acquire) + 1 + u64::from(state.running);
        drop(state);
        self.wait(|shared| shared.count.load(Ordering::Acquire) >= wanted)
    }

    /// Returns once `enough` is true; runs syncs or waits for those of other threads.
    fn wait(&self, enough: impl Fn(&Shared) -> bool) -> Result<(), SyncError> {
        let mut state = self.lock();
        loop {
            // A failure after the awaited sync does not undo it.
            if enough(&self.0) {
                return Ok(());
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if state.closed {
                return Err(SyncError::Closed);
            }
            if state.running {
                state = self
                    .0
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            drop(state);
            let target = self.last_seq();
            let begun = Instant::now();
            let outcome = self.run();
            state = self.lock();
            match outcome {
                Ok(()) => self.note_synced(&mut state, target, begun.elapsed()),
                Err(error) => self.fail_locked(&mut state, error.raw_os_error().unwrap_or(EIO)),
            }
            state.running = false;
            self.0.wake.notify_all();
        }
    }

    fn run(&self) -> io::Result<()> {
        let delay = self.0.delay_ns.load(Ordering::Acquire);
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        if self.0.fail_next.swap(false, Ordering::AcqRel) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.0.disk.sync()
    }

    fn note_synced(&self, state: &mut State, target: u64, took: Duration) {
        if self.failure().is_some() {
            return;
        }
        let shared = &self.0;
        debug_assert!(
            self.synced_seq() <= target && target <= self.last_seq(),
            "a sync up to operation {target}, one up to {} was before",
            self.synced_seq()
        );
        // Both copies in the file were written before this sync began.
        state.durable_copy = state.written_copy;
        shared
            .durable
            .store(state.copies[state.durable_copy], Ordering::Release);
        shared.synced.store(target, Ordering::Release);
        debug_assert!(
            self.durable_seq() <= target,
            "a header on the disk is ahead of the sync"
        );
        self.write_header(state, target, false);
        let took_ns = nanos(took);
        shared.last_ns.store(took_ns, Ordering::Relaxed);
        shared.total_ns.fetch_add(took_ns, Ordering::Relaxed);
        shared.count.fetch_add(1, Ordering::Release);
    }

    /// Writes `synced_seq` into the copy that is not durable, unless the header is unchanged.
    fn write_header(&self, state: &mut State, synced_seq: u64, always: bool) {
        if !always && !state.unwritten && state.copies.iter().all(|&said| said == synced_seq) {
            return;
        }
        assert!(
            synced_seq >= state.header.synced_seq,
            "the header takes operation {} back to {synced_seq}",
            state.header.synced_seq
        );
        // A header ahead of the seals would permit writes to slots that are sealed on the disk.
        // After a failed sync no slot is written, and the header has to record that failure.
        if let Err(error) = self.write_seals(synced_seq)
            && !state.header.info.sync_failed
        {
            state.header_errno = Some(error.raw_os_error().unwrap_or(EIO));
            return;
        }
        let copy = 1 - state.durable_copy;
        state.header.generation += 1;
        state.header.synced_seq = synced_seq;
        match self
            .0
            .disk
            .write_at(self.0.layout.copy_at(copy), &state.header.encode())
        {
            Ok(()) => {
                state.copies[copy] = synced_seq;
                state.written_copy = copy;
                state.unwritten = false;
                state.header_errno = None;
            }
            Err(failed) => {
                // Its old content may be torn, even if no sync has covered that yet.
                (state.copies[copy], state.written_copy) = (0, state.durable_copy);
                state.header_errno = Some(failed.error.raw_os_error().unwrap_or(EIO));
            }
        }
    }

    /// Writes the changed sectors of the seal map; everything up to `synced_seq` is synced.
    fn write_seals(&self, synced_seq: u64) -> io::Result<()> {
        let Some((numbers, bytes)) = self.seals().take_dirty(synced_seq) else {
            return Ok(());
        };
        let at = self.0.layout.seal_sector_at(numbers.start);
        let written = self.0.disk.write_at(at, &bytes);
        if written.is_err() {
            self.seals().add_dirty(numbers);
        }
        Ok(written?)
    }

    fn fail_locked(&self, state: &mut State, errno: i32) {
        if self.failure().is_some() {
            return;
        }
        self.0.failed.store(errno.max(1), Ordering::Release);
        // The page cache may now contain bytes that the disk does not have, so the next open must
        // not trust it.
        state.header.info.sync_failed = true;
        let synced = self.synced_seq();
        self.write_header(state, synced, true);
        if state.header_errno.is_some() {
            // The copy to be replaced may have been the only one with this number; a torn copy has
            // none.
            self.write_header(state, synced, true);
        }
        let _ = self.0.disk.sync();
    }

    /// Waits for the state without a running sync: a header written during a sync could not be
    /// distinguished from one written before it.
    fn lock_idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.running {
            state = self
                .0
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SyncHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncHandle")
            .field("last", &self.last_seq())
            .field("synced", &self.synced_seq())
            .finish()
    }
}
