//! A host's disk in memory that loses what a crash may lose: between two syncs every 512-byte sector keeps any of the contents it
//! had. For tests of whatever lies above an image.
//!
//! What always holds: a crash state never misses what was written before the last completed sync, and never has a sector that no
//! row of the writes since would have left.

use super::disk::{Disk, WriteError};
use super::open::{Access, OpenReport, new_header};
use super::{FileStore, Layout};
use crate::image::{ImageError, ImageSpec, PAGE, is_zero};
use crate::rng::SplitMix;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR: usize = 512;
const EIO: i32 = 5;

/// What images on such a disk are called in messages.
const NAME: &str = "simulated disk";

/// The disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<Sim>>);

#[derive(Default)]
struct Sim {
    cache: Vec<u8>,
    /// As of the last completed sync.
    disk: Vec<u8>,
    /// Per page of the host: whether it was written since the disk was made or the page punched.
    roomy: Vec<bool>,
    /// Writes since then.
    log: Vec<(usize, Vec<u8>)>,
    /// All writes there ever were.
    writes: u64,
    fuse: Option<Fuse>,
    /// Syncs that will fail.
    bad_syncs: u64,
}

/// A write that will fail.
struct Fuse {
    /// Writes that still succeed.
    left: u64,
    /// Bytes of it that arrive.
    arrives: usize,
    errno: i32,
}

/// How a crash picks among the contents of the sectors written since the last sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing unsynced survives.
    Nothing,
    /// The first writes survive, as many as the seed says.
    Prefix(u64),
    /// All but one write, and what covers it later.
    AllBut(u64),
    /// Each write survives or not, by chance.
    Writes(u64),
    /// Each sector stops at any of its writes, by chance.
    Sectors(u64),
    /// Of the last 64 writes those survive whose bit is set, the newest being bit 0; all before them do.
    Mask(u64),
}

impl Crash {
    /// One of each kind that goes by chance, and losing everything.
    pub fn kinds(seed: u64) -> [Crash; 6] {
        [
            Crash::Nothing,
            Crash::Prefix(seed),
            Crash::AllBut(seed),
            Crash::Writes(seed),
            Crash::Sectors(seed),
            Crash::Sectors(!seed),
        ]
    }
}

impl SimDisk {
    /// A new image on a new disk, with so few spare slots that tests come to reuse them.
    pub fn create(spec: &ImageSpec, spare_slots: u32) -> Result<(SimDisk, FileStore), ImageError> {
        let path = Path::new(NAME);
        let mut header = new_header(path, spec)?;
        header.spare_slots = spare_slots;
        let profile = &spec.profile;
        let layout = Layout::new(profile.geometry, profile.nop, spare_slots)
            .map_err(|reason| ImageError::BadSpec { path: path.into(), reason })?;
        let disk = SimDisk::holding(vec![0; layout.file_bytes as usize]);
        let store = FileStore::create_on(path, Arc::new(disk.clone()), header)?;
        Ok((disk, store))
    }

    /// A disk that holds these bytes, synced.
    pub fn holding(bytes: Vec<u8>) -> SimDisk {
        let roomy = bytes.chunks(PAGE as usize).map(|page| !is_zero(page)).collect();
        SimDisk(Arc::new(Mutex::new(Sim { cache: bytes.clone(), disk: bytes, roomy, ..Sim::default() })))
    }

    /// Opens the image on it.
    pub fn open(&self, access: Access) -> Result<(FileStore, OpenReport), ImageError> {
        let length = self.lock().cache.len() as u64;
        FileStore::open_on(Path::new(NAME), Arc::new(self.clone()), length, access)
    }

    /// Another disk: what a crash of the host at this moment leaves.
    pub fn crashed(&self, how: Crash) -> SimDisk {
        let sim = self.lock();
        let writes = sim.log.len() as u64;
        let mut rng = SplitMix::new(match how {
            Crash::Nothing => return SimDisk::holding(sim.disk.clone()),
            Crash::Mask(seed)
            | Crash::Prefix(seed)
            | Crash::AllBut(seed)
            | Crash::Writes(seed)
            | Crash::Sectors(seed) => seed,
        });
        let chosen = rng.below(writes + 1);
        let mut bytes = sim.disk.clone();
        // A sector that missed one write cannot hold a later one's neighbourhood, so it stops there.
        let mut stopped = HashSet::new();
        for (i, (at, data)) in (0u64..).zip(&sim.log) {
            let whole = match how {
                Crash::Prefix(_) => i < chosen,
                Crash::AllBut(_) => i != chosen,
                Crash::Writes(_) => !rng.one_in(3),
                Crash::Mask(bits) => writes - 1 - i >= 64 || bits >> (writes - 1 - i) & 1 == 1,
                Crash::Nothing | Crash::Sectors(_) => true,
            };
            for sector in at / SECTOR..(at + data.len()).div_ceil(SECTOR) {
                if !whole || matches!(how, Crash::Sectors(_)) && rng.one_in(20) {
                    stopped.insert(sector);
                }
                if !stopped.contains(&sector) {
                    let from = (sector * SECTOR).max(*at);
                    let upto = ((sector + 1) * SECTOR).min(at + data.len());
                    bytes[from..upto].copy_from_slice(&data[from - at..upto - at]);
                }
            }
        }
        SimDisk::holding(bytes)
    }

    /// Writes since the last sync.
    pub fn unsynced(&self) -> usize {
        self.lock().log.len()
    }

    /// All writes there ever were, those that failed included.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Everything as the host sees it while it runs.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().cache.clone()
    }

    /// After `left` more writes one fails with `errno` when `arrives` bytes of it have arrived; the next one succeeds again: taking back
    /// what arrived needs no new room.
    pub fn fail_write(&self, left: u64, arrives: usize, errno: i32) {
        self.lock().fuse = Some(Fuse { left, arrives, errno });
    }

    /// Whether the write that was to fail has not come yet.
    pub fn fuse_is_whole(&self) -> bool {
        self.lock().fuse.is_some()
    }

    /// So many syncs from now on fail. What they should have made durable is in doubt, although the next ones succeed.
    pub fn fail_syncs(&self, count: u64) {
        self.lock().bad_syncs = count;
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        let mut sim = self.lock();
        (sim.fuse, sim.bad_syncs) = (None, 0);
    }

    fn lock(&self) -> MutexGuard<'_, Sim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.lock().cache[at as usize..][..buf.len()]);
        Ok(())
    }

    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError> {
        let mut sim = self.lock();
        sim.writes += 1;
        let failing = match &mut sim.fuse {
            Some(Fuse { left: 0, .. }) => sim.fuse.take(),
            Some(fuse) => {
                fuse.left -= 1;
                None
            }
            None => None,
        };
        let at = at as usize;
        let done = failing.as_ref().map_or(buf.len(), |fuse| fuse.arrives.min(buf.len()));
        sim.cache[at..at + done].copy_from_slice(&buf[..done]);
        sim.roomy[at / PAGE as usize..(at + done).div_ceil(PAGE as usize)].fill(true);
        sim.log.push((at, buf[..done].to_vec()));
        failing.map_or(Ok(()), |fuse| Err(WriteError { done, error: io::Error::from_raw_os_error(fuse.errno) }))
    }

    /// Only what was written before the call counts, as with a real one.
    fn sync(&self) -> io::Result<()> {
        let before = self.unsynced();
        std::thread::yield_now();
        let mut sim = self.lock();
        if sim.bad_syncs > 0 {
            sim.bad_syncs -= 1;
            // As kernels do: the pages count as clean from now on and never reach the disk.
            sim.log.drain(..before);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let synced: Vec<_> = sim.log.drain(..before).collect();
        for (at, data) in synced {
            sim.disk[at..at + data.len()].copy_from_slice(&data);
        }
        Ok(())
    }

    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.write_at(at, &vec![0; bytes as usize])?;
        self.lock().roomy[at.div_ceil(PAGE) as usize..((at + bytes) / PAGE) as usize].fill(false);
        Ok(())
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        let sim = self.lock();
        let page = (at / PAGE) as usize;
        let found = sim.roomy[page..].iter().position(|roomy| *roomy)?;
        Some(at.max((page + found) as u64 * PAGE))
    }
}
