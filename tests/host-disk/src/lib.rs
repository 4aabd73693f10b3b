//! A host's disk in memory that loses unsynced writes in a crash: between two syncs every 512-byte
//! sector keeps any of its contents. For tests of the layers above an image.
//!
//! Invariants: a crash state contains everything written before the last completed sync, and never
//! a sector that no sequence of the writes since then would leave.

mod faults;
mod state;
#[cfg(test)]
mod tests;

use faults::is_due;
pub use faults::{Crash, End, Freeze, ReadFault, SyncFault, WriteFault};
use state::{PAGE, SECTOR, Sim};

use nand_model::convert::{to_u64, to_usize};
use nand_model::store::{Disk, WriteError};
use nand_model::{Access, FileStore, ImageError, ImageSpec, OpenReport, Striping};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const EIO: i32 = 5;

/// Name of images on such a disk in messages.
const NAME: &str = "simulated disk";

/// The disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<Sim>>);

impl SimDisk {
    /// Creates a new image on a new disk. A small number of spare slots makes tests reuse them.
    ///
    /// # Errors
    ///
    /// [`ImageError::BadSpec`] if no image can be made of `spec` with that number of spare slots.
    pub fn create(spec: &ImageSpec, spare_slots: u32) -> Result<(SimDisk, FileStore), ImageError> {
        let (disk, mut stores) = SimDisk::create_shards(spec, None, spare_slots)?;
        Ok((disk, stores.pop().expect("one chip")))
    }

    /// Creates a new image with a chip as in `spec` for each shard.
    ///
    /// # Errors
    ///
    /// As [`SimDisk::create`].
    pub fn create_shards(
        spec: &ImageSpec,
        striping: Option<Striping>,
        spare_slots: u32,
    ) -> Result<(SimDisk, Vec<FileStore>), ImageError> {
        let disk = SimDisk::default();
        let below = Arc::new(disk.clone());
        let stores = FileStore::create_on(Path::new(NAME), below, spec, striping, spare_slots)?;
        Ok((disk, stores))
    }

    /// A disk with these bytes, synced.
    pub fn holding(bytes: Vec<u8>) -> SimDisk {
        let pages = bytes.chunks(PAGE).enumerate();
        let room = pages
            .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
            .map(|(number, _)| number)
            .collect();
        SimDisk::of(Sim {
            cache: bytes.clone(),
            disk: bytes,
            room,
            ..Sim::default()
        })
    }

    fn of(sim: Sim) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(sim)))
    }

    /// Opens the image. Opening it again without a crash equals a restart of the process: unsynced
    /// writes of the earlier process are in the cache and stay unsynced.
    ///
    /// # Errors
    ///
    /// As [`FileStore::open`], except for those of the path and the lock.
    pub fn open(&self, access: Access) -> Result<(FileStore, OpenReport), ImageError> {
        let (mut stores, report) = self.open_shards(access)?;
        assert_eq!(stores.len(), 1, "shards of a disk opened as one chip");
        Ok((stores.pop().expect("one chip"), report))
    }

    /// Opens the image with all its shards, as [`SimDisk::open`].
    ///
    /// # Errors
    ///
    /// As [`SimDisk::open`].
    pub fn open_shards(&self, access: Access) -> Result<(Vec<FileStore>, OpenReport), ImageError> {
        let length = self.length();
        FileStore::open_on(Path::new(NAME), Arc::new(self.clone()), length, access)
    }

    /// Returns a copy of the disk in its current state: cache, disk, unsynced writes and pending
    /// faults.
    pub fn copy(&self) -> SimDisk {
        SimDisk::of(self.lock().clone())
    }

    /// Returns another disk with the state after a host crash at this moment.
    pub fn crashed(&self, how: Crash) -> SimDisk {
        let sim = self.lock();
        let disk = SimDisk::holding(sim.survivors(how));
        disk.lock().boot = sim.boot + 1;
        drop(sim);
        disk
    }

    /// Returns the boot id of the host: another one after each crash.
    pub fn boot_id(&self) -> String {
        format!("simulated boot {}", self.lock().boot)
    }

    /// Copies the disk right before a later write or sync; [`SimDisk::take_frozen`] returns the
    /// copy.
    pub fn freeze_at(&self, call: Freeze) {
        let mut sim = self.lock();
        (sim.freeze, sim.frozen) = (Some(call), None);
    }

    /// The copy that [`SimDisk::freeze_at`] requested, if its call has happened: another disk with
    /// the same cache, disk and unsynced writes, without faults.
    pub fn take_frozen(&self) -> Option<SimDisk> {
        self.lock().frozen.take().map(|sim| SimDisk::of(*sim))
    }

    /// Returns another disk with the state after `end` at this moment, without faults.
    pub fn ended(&self, end: End) -> SimDisk {
        match end {
            End::Kill => {
                let mut sim = self.lock().clone();
                sim.clear_faults();
                sim.during_sync = None;
                SimDisk::of(sim)
            }
            End::Crash(how) => self.crashed(how),
        }
    }

    /// Makes every later sync call this function between its start and its completion.
    pub fn during_sync(&self, call: impl Fn() + Send + Sync + 'static) {
        self.lock().during_sync = Some(Arc::new(call));
    }

    /// Pending failures of syncs.
    pub fn bad_syncs(&self) -> u64 {
        self.lock().sync_fault.map_or(0, |fault| fault.count)
    }

    /// Writes since the last sync.
    pub fn unsynced(&self) -> usize {
        self.lock().log.len()
    }

    /// All writes, punches and changes of the length so far, including failed ones.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// All syncs so far, including failed ones.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        to_u64(self.lock().cache.len())
    }

    /// The content that the running host reads.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().cache.clone()
    }

    /// Makes the write after `left` more fail with `errno` after `arrives` bytes; the next one
    /// succeeds again: restoring the old bytes allocates no space.
    pub fn fail_write(&self, left: u64, arrives: usize, errno: i32) {
        self.fail_writes(WriteFault {
            after: left,
            count: 1,
            arrives,
            errno,
            needs_room: false,
            longest: usize::MAX,
        });
    }

    /// Makes writes fail; replaces earlier write faults.
    pub fn fail_writes(&self, fault: WriteFault) {
        self.lock().write_fault = Some(fault).filter(|fault| fault.count > 0);
    }

    /// Whether write faults are pending.
    pub fn has_write_faults(&self) -> bool {
        self.lock().write_fault.is_some()
    }

    /// Whether any faults are pending.
    pub fn has_faults(&self) -> bool {
        let sim = self.lock();
        sim.write_fault.is_some() || sim.sync_fault.is_some() || !sim.read_faults.is_empty()
    }

    /// Makes reads fail; adds to earlier read faults.
    pub fn fail_reads(&self, fault: ReadFault) {
        self.lock()
            .read_faults
            .extend(Some(fault).filter(|fault| fault.count > 0));
    }

    /// Makes this many syncs fail; none of their writes reaches the disk.
    pub fn fail_syncs(&self, count: u64) {
        self.fail_syncs_as(SyncFault {
            after: 0,
            count,
            seed: None,
        });
    }

    /// Makes syncs fail; replaces earlier sync faults.
    pub fn fail_syncs_as(&self, fault: SyncFault) {
        self.lock().sync_fault = Some(fault).filter(|fault| fault.count > 0);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.lock().clear_faults();
    }

    fn lock(&self) -> MutexGuard<'_, Sim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut sim = self.lock();
        let end = at + to_u64(buf.len());
        if let Some(fault) = sim
            .read_faults
            .iter_mut()
            .find(|fault| fault.range.start < end && at < fault.range.end)
        {
            let is_due = is_due(&mut fault.after, &mut fault.count);
            sim.read_faults.retain(|fault| fault.count > 0);
            if is_due {
                return Err(io::Error::from_raw_os_error(EIO));
            }
        }
        buf.copy_from_slice(&sim.cache[to_usize(at)..][..buf.len()]);
        Ok(())
    }

    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError> {
        let mut sim = self.lock();
        sim.freeze(false);
        sim.writes += 1;
        let at = to_usize(at);
        let failing = sim.failing_write(at, buf.len());
        let done = failing.map_or(buf.len(), |fault| {
            let done = fault.arrives.min(buf.len());
            if fault.count > 0 {
                done.saturating_sub((at + done) % SECTOR)
            } else {
                done
            }
        });
        sim.room.extend(Sim::pages(at, done));
        let whole = if failing.is_some() {
            done.saturating_sub((at + done) % SECTOR)
        } else {
            done
        };
        sim.put(at, &buf[..whole]);
        if whole < done {
            sim.tear(at + whole, &buf[whole..done]);
        }
        failing.map_or(Ok(()), |fault| {
            Err(WriteError {
                done,
                error: io::Error::from_raw_os_error(fault.errno),
            })
        })
    }

    /// Only writes before the call become durable, as on a real disk.
    fn sync(&self) -> io::Result<()> {
        let before = {
            let mut sim = self.lock();
            sim.freeze(true);
            sim.syncs += 1;
            sim.note_torn();
            sim.log.len()
        };
        let call = self.lock().during_sync.clone();
        match call {
            Some(call) => call(),
            None => std::thread::yield_now(),
        }
        let mut sim = self.lock();
        // Another sync may have covered some of it in the meantime.
        let before = before.min(sim.log.len());
        let failing = sim
            .sync_fault
            .as_mut()
            .and_then(|fault| is_due(&mut fault.after, &mut fault.count).then_some(*fault));
        sim.sync_fault = sim.sync_fault.filter(|fault| fault.count > 0);
        let newer = sim.log.split_off(before);
        if let Some(SyncFault { seed, .. }) = failing {
            if let Some(seed) = seed {
                sim.disk = sim.survivors(Crash::Sectors(seed));
            }
        } else {
            let Sim { disk, log, .. } = &mut *sim;
            log.iter()
                .for_each(|(at, data)| disk[*at..at + data.len()].copy_from_slice(data));
        }
        sim.log = newer;
        failing.map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(EIO)))
    }

    /// A write of zeros that releases space. It allocates none, and fails as a whole or not at all.
    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mut sim = self.lock();
        sim.freeze(false);
        sim.writes += 1;
        let (at, bytes) = (to_usize(at), to_usize(bytes));
        if sim.write_fault.is_some_and(|fault| !fault.needs_room)
            && let Some(fault) = sim.failing_write(at, bytes)
        {
            return Err(io::Error::from_raw_os_error(fault.errno));
        }
        let given_back = at.div_ceil(PAGE)..(at + bytes) / PAGE;
        sim.room.retain(|page| !given_back.contains(page));
        sim.put(at, &vec![0; bytes]);
        Ok(())
    }

    /// The host keeps a new length at once, unlike other writes. Unsynced writes behind a new end
    /// are gone.
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut sim = self.lock();
        sim.freeze(false);
        sim.writes += 1;
        let bytes = to_usize(bytes);
        sim.cache.resize(bytes, 0);
        sim.disk.resize(bytes, 0);
        sim.room.retain(|page| page * PAGE < bytes);
        sim.torn = sim.torn.filter(|sector| sector * SECTOR < bytes);
        sim.log.retain_mut(|(at, data)| {
            data.truncate(bytes.saturating_sub(*at));
            !data.is_empty()
        });
        Ok(())
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mut sim = self.lock();
        sim.room.extend(Sim::pages(to_usize(at), to_usize(bytes)));
        Ok(())
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        let sim = self.lock();
        let page = *sim.room.range(to_usize(at) / PAGE..).next()?;
        Some(at.max(to_u64(page * PAGE)))
    }
}
