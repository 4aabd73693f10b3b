//! Syncs of the image, shared by all waiters, and the headers that record the last synced
//! operation of each store in the file.
//!
//! Terms: an operation is *synced* when an fdatasync that started after it has completed. A synced
//! number is *durable* when a header with that number is on the disk itself, which takes one more
//! sync. The stores of one file form a *group*: one fdatasync serves all of them.
//!
//! Invariants: a header contains number S only after everything of its store up to S was synced,
//! and is written after the changed seals of that store. The overwritten header copy is never the
//! newest one known to be on the disk, except by an open, which writes the same bytes. After a
//! failed sync no operation of any store becomes synced. fdatasync runs without any lock that a
//! program or erase needs. A closed store writes no header.
//!
//! If the host fails here, one header copy of each store may be torn; the other one is durable and
//! contains at least [`SyncHandle::durable_seq`].

mod group;
mod header_copies;

use super::disk::{Disk, EIO};
use super::seals::Seals;
use crate::image::{CacheSection, Header, Layout};
use group::{Group, Member, State, StoreFile, nanos};
use header_copies::HeaderCopies;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// Waits for operations of one store to become durable, from any thread, while the store continues.
#[derive(Clone)]
pub struct SyncHandle {
    own: Arc<Member>,
    group: Arc<Group>,
}

impl SyncHandle {
    /// Creates the state of a file with `header` in copy `copy` and one store. The header and
    /// everything up to `last_seq` are synced.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        layout: Layout,
        header: Header,
        copy: usize,
        last_seq: u64,
        seals: Seals,
    ) -> Self {
        let seq = header.synced_seq;
        assert!(
            seq <= last_seq,
            "operation {seq} is synced, the last one is {last_seq}"
        );
        let own = Arc::new(Member {
            index: 0,
            last: AtomicU64::new(last_seq),
            synced: AtomicU64::new(last_seq),
            durable: AtomicU64::new(seq),
            seals: Mutex::new(seals),
        });
        let file = StoreFile {
            disk: disk.clone(),
            layout,
            closed: false,
            copies: HeaderCopies::new(header, copy),
            target: last_seq,
        };
        let group = Arc::new(Group::new(disk, vec![own.clone()], vec![file]));
        SyncHandle { own, group }
    }

    /// Makes one group of stores that were opened one by one from parts of `disk`, in their order.
    /// Nobody else has a handle to one of them yet.
    pub(super) fn join<'a>(
        disk: &Arc<dyn Disk>,
        handles: impl Iterator<Item = &'a mut SyncHandle>,
    ) {
        let mut handles: Vec<_> = handles.collect();
        let (mut members, mut files) = (Vec::new(), Vec::new());
        for (index, handle) in handles.iter().enumerate() {
            let own = &handle.own;
            let load = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Acquire));
            members.push(Arc::new(Member {
                index,
                last: load(&own.last),
                synced: load(&own.synced),
                durable: load(&own.durable),
                seals: Mutex::new(std::mem::take(&mut *own.seals())),
            }));
            let alone = std::mem::take(&mut handle.lock().files);
            assert_eq!(alone.len(), 1, "a store of another group");
            files.extend(alone);
        }
        let group = Arc::new(Group::new(disk.clone(), members, files));
        for (handle, own) in handles.iter_mut().zip(&group.members) {
            **handle = SyncHandle {
                own: own.clone(),
                group: group.clone(),
            };
        }
    }

    /// Number of the last complete program or erase.
    #[inline]
    pub fn last_seq(&self) -> u64 {
        self.own.last.load(Ordering::Acquire)
    }

    /// The last operation that survives a host crash, with all before it.
    pub fn synced_seq(&self) -> u64 {
        self.own.synced.load(Ordering::Acquire)
    }

    /// The synced number of a header on the disk: erases up to it have freed their space.
    #[inline]
    pub fn durable_seq(&self) -> u64 {
        self.own.durable.load(Ordering::Acquire)
    }

    /// Number and duration of syncs of the file.
    pub fn stats(&self) -> SyncStats {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        SyncStats {
            count: get(&self.group.count),
            total_ns: get(&self.group.total_ns),
            last_ns: get(&self.group.last_ns),
        }
    }

    /// The failure that ended all syncs, if any.
    #[inline]
    pub fn failure(&self) -> Option<SyncError> {
        match self.group.failed.load(Ordering::Acquire) {
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
        self.wait(|handle| handle.synced_seq() >= seq)
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
                let errno = self.own_file(&mut self.lock()).copies.errno;
                return Err(SyncError::Header(errno.unwrap_or(EIO)));
            }
            rounds += 1;
            let begun = self.count();
            self.wait(|handle| handle.durable_seq() >= seq || handle.count() > begun)?;
        }
        Ok(())
    }

    /// Test hook: makes every later sync take this much longer.
    pub fn set_sync_delay(&self, delay: Duration) {
        self.group.delay_ns.store(nanos(delay), Ordering::Release);
    }

    /// Test hook: makes the next sync fail like one of the host's disk.
    pub fn fail_next_sync(&self) {
        self.group.fail_next.store(true, Ordering::Release);
    }

    /// Records that all writes of operation `seq` are complete.
    #[inline]
    pub(super) fn publish(&self, seq: u64) {
        debug_assert!(
            seq > self.last_seq(),
            "operation {seq} after operation {}",
            self.last_seq()
        );
        self.own.last.store(seq, Ordering::Release);
    }

    /// Hours of emulated time since the device was created, as last recorded.
    pub(super) fn hour(&self) -> u32 {
        self.own_file(&mut self.lock()).copies.header.hour
    }

    /// Records the device's hour, also in the file: now, or after the sync in progress.
    pub(super) fn set_hour(&self, hour: u32) {
        let mut state = self.lock();
        let writes = !state.running && self.failure().is_none();
        let file = self.own_file(&mut state);
        file.copies.header.hour = hour;
        file.copies.is_unwritten = true;
        if writes && !file.closed {
            self.own.write_header(file, self.synced_seq(), true);
        }
    }

    /// Refuses every later change and sync of the file, because it and a store's state differ.
    pub(super) fn fail(&self, error: &io::Error) {
        let mut state = self.lock();
        self.group
            .fail(&mut state, error.raw_os_error().unwrap_or(EIO));
        self.group.wake.notify_all();
    }

    /// Ends all syncing of this store: waits for a sync in progress, then refuses new ones.
    pub(super) fn stop(&self) {
        let mut state = self.lock_idle();
        self.own_file(&mut state).closed = true;
        self.group.wake.notify_all();
    }

    /// Seals a slot as soon as operation `seq`, which completed it, is synced.
    pub(super) fn seal_when_synced(&self, slot: u32, seq: u64) {
        self.own.seals().seal_when_synced(slot, seq);
    }

    /// Clears the seal of a slot that an erase frees. The caller publishes that erase afterwards,
    /// so a durable erase implies that the seal is cleared.
    pub(super) fn clear_seal(&self, slot: u32) {
        self.own.seals().clear(slot);
    }

    /// Clears a slot's seal before a record of it changes. If the file may contain the seal, waits
    /// until the cleared one is synced.
    pub(super) fn unseal(&self, slot: u32) -> Result<(), SyncError> {
        if !self.own.seals().holds(slot) {
            return Ok(());
        }
        let mut state = self.lock_idle();
        if !self.own.seals().clear(slot) {
            return Ok(());
        }
        let file = self.own_file(&mut state);
        self.own.write_header(file, self.synced_seq(), true);
        if let Some(errno) = file.copies.errno {
            self.own.seals().restore(slot);
            return Err(SyncError::Header(errno));
        }
        drop(state);
        self.force()
    }

    /// Syncs everything and then a header with this `clean` flag.
    pub(super) fn write_clean(&self, clean: bool) -> Result<(), SyncError> {
        self.force()?;
        self.write_clean_flag(clean)
    }

    /// Writes a header with this `clean` flag and syncs it. The caller has synced everything else.
    pub(super) fn write_clean_flag(&self, clean: bool) -> Result<(), SyncError> {
        let mut state = self.lock_idle();
        let file = self.own_file(&mut state);
        file.copies.header.info.clean = clean;
        self.own.write_header(file, self.synced_seq(), true);
        if let Some(errno) = file.copies.errno {
            return Err(SyncError::Header(errno));
        }
        drop(state);
        self.force()
    }

    /// Syncs everything and then a header that says that the emulated power was cut.
    pub(super) fn write_power_cut(&self) -> Result<(), SyncError> {
        self.force()?;
        self.own_file(&mut self.lock_idle())
            .copies
            .header
            .info
            .power_cut = true;
        self.write_clean_flag(false)
    }

    /// Returns the area of a write cache, as the header in memory has it.
    pub(super) fn cache_area(&self) -> Option<CacheSection> {
        self.own_file(&mut self.lock())
            .copies
            .header
            .info
            .cache_area
    }

    /// Writes a header with this area of a write cache and syncs it.
    pub(super) fn write_cache_area(&self, area: Option<CacheSection>) -> Result<(), SyncError> {
        let mut state = self.lock_idle();
        let file = self.own_file(&mut state);
        let before = std::mem::replace(&mut file.copies.header.info.cache_area, area);
        self.own.write_header(file, self.synced_seq(), true);
        if let Some(errno) = file.copies.errno {
            file.copies.header.info.cache_area = before;
            return Err(SyncError::Header(errno));
        }
        drop(state);
        self.force()
    }

    /// The whole file, and the bytes of it that have a place in the layout of a store.
    pub(super) fn file(&self) -> (&dyn Disk, u64) {
        let state = self.lock();
        let bytes = state.files.iter().map(|file| file.layout.file_bytes).sum();
        (&*self.group.disk, bytes)
    }

    /// Waits for a sync that starts after this call.
    pub(super) fn force(&self) -> Result<(), SyncError> {
        let state = self.lock();
        let wanted = self.count() + 1 + u64::from(state.running);
        drop(state);
        self.wait(|handle| handle.count() >= wanted)
    }

    /// Completed syncs.
    fn count(&self) -> u64 {
        self.group.count.load(Ordering::Acquire)
    }

    /// Returns once `enough` is true; runs syncs or waits for those of other threads.
    fn wait(&self, enough: impl Fn(&SyncHandle) -> bool) -> Result<(), SyncError> {
        let group = &*self.group;
        let mut state = self.lock();
        loop {
            // A failure after the awaited sync does not undo it.
            if enough(self) {
                return Ok(());
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if self.own_file(&mut state).closed {
                return Err(SyncError::Closed);
            }
            if state.running {
                state = group
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            for (file, member) in state.files.iter_mut().zip(&group.members) {
                file.target = member.last.load(Ordering::Acquire);
            }
            drop(state);
            let begun = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| group.run()));
            state = self.lock();
            let noted = outcome.and_then(|outcome| {
                catch_unwind(AssertUnwindSafe(|| match outcome {
                    Ok(()) => group.note_synced(&mut state, begun.elapsed()),
                    Err(error) => group.fail(&mut state, error.raw_os_error().unwrap_or(EIO)),
                }))
            });
            state.running = false;
            group.wake.notify_all();
            if let Err(panic) = noted {
                // Nobody may trust this sync, and nobody waits for it for ever.
                group.fail(&mut state, EIO);
                resume_unwind(panic);
            }
        }
    }

    fn own_file<'a>(&self, state: &'a mut State) -> &'a mut StoreFile {
        &mut state.files[self.own.index]
    }

    /// Waits for the state without a running sync: a header written during a sync could not be
    /// distinguished from one written before it.
    fn lock_idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.running {
            state = self
                .group
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.group
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
