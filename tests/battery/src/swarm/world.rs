//! Storage of a device's bytes while no scheme runs: in memory, or in an image on a simulated disk.

use super::plan::DiskFault;
use crate::cuts::cut_during;
use crate::rig::{Rig, into_memory};
use ftl_core::FtlError;
use ftld_host_disk::{Crash, ReadFault, SimDisk, WriteFault};
use nand_model::store::{AnyStore, FileStore, MemStore};
use nand_model::{Access, Chip, Cut, FaultPlan, ImageSpec, SyncHandle};

/// Spare slots of an image: few, so that runs reuse them.
const SPARE_SLOTS: u32 = 6;

/// Bytes of the header of a slot (docs/FORMAT.md): an erase writes one, and programs write more.
const SLOT_HEADER_BYTES: usize = 64;

/// Storage of a device's bytes.
pub(super) trait World: Sized {
    /// A blank device.
    fn create(rig: &Rig) -> Self;

    /// The store, after the device went down.
    fn open(&mut self) -> Result<AnyStore, String>;

    /// Takes the store of a device after an unclean stop.
    fn leave(&mut self, store: AnyStore);

    /// Takes the store of a device after a clean shutdown.
    fn close(&mut self, store: AnyStore) -> Result<(), String>;

    /// Cuts power inside a mount, if the store does not survive a failed mount. The mount runs to
    /// its end, and the operation is then cut on the flash before it. Returns whether the mount had
    /// that many operations; `None` if the store survives. `arm` gives the mount's chip its faults.
    fn cut_inside_mount(
        &mut self,
        rig: &Rig,
        arm: &mut dyn FnMut(&mut Chip),
        cut: Cut,
    ) -> Option<Result<bool, FtlError>>;

    /// The handle for the host's part of a FLUSH.
    fn sync_handle(store: &AnyStore) -> Option<SyncHandle>;

    /// The simulated disk, where there is one.
    fn disk(&mut self) -> Option<&mut SimDisk>;
}

/// Bytes in memory.
pub(super) struct Memory(Option<MemStore>);

impl World for Memory {
    fn create(rig: &Rig) -> Self {
        Memory(Some(MemStore::new(rig.profile.geometry)))
    }

    fn open(&mut self) -> Result<AnyStore, String> {
        let store = self.0.take().expect("the device is down");
        Ok(AnyStore::new(store))
    }

    fn leave(&mut self, store: AnyStore) {
        self.0 = Some(store.downcast().expect("the store of this world"));
    }

    fn close(&mut self, store: AnyStore) -> Result<(), String> {
        self.leave(store);
        Ok(())
    }

    fn cut_inside_mount(
        &mut self,
        rig: &Rig,
        arm: &mut dyn FnMut(&mut Chip),
        cut: Cut,
    ) -> Option<Result<bool, FtlError>> {
        let before = self.0.take().expect("the device is down");
        let mut recorded = before.clone();
        recorded.record();
        let mut chip = rig.open(recorded);
        arm(&mut chip);
        if chip.faults().is_some_and(FaultPlan::is_silent) {
            // The journal does not contain programs and erases without effect.
            self.0 = Some(before);
            return Some(Ok(false));
        }
        let changes = match rig.mount(chip) {
            Ok(ftl) => into_memory(ftl.into_chip()).take_record(),
            Err(error) => return Some(Err(error)),
        };
        let mut store = before;
        let mut operations = 0;
        for change in &changes {
            if change.is_operation() {
                if operations == cut.at_op {
                    self.0 = Some(cut_during(rig, &store, change, cut));
                    return Some(Ok(true));
                }
                operations += 1;
            }
            store.replay(change).expect("memory does not fail");
        }
        self.0 = Some(store);
        Some(Ok(false))
    }

    fn sync_handle(_: &AnyStore) -> Option<SyncHandle> {
        None
    }

    fn disk(&mut self) -> Option<&mut SimDisk> {
        None
    }
}

/// An image on a simulated disk.
pub(super) struct OnDisk {
    disk: SimDisk,
    new: Option<FileStore>,
}

impl World for OnDisk {
    fn create(rig: &Rig) -> Self {
        let size = u64::from(rig.config.logical_pages) * u64::from(rig.profile.geometry.page_bytes);
        let scheme = rig.scheme.name.into();
        let spec = ImageSpec {
            profile: rig.profile,
            size,
            scheme,
            params: String::new(),
        };
        let (disk, new) = SimDisk::create(&spec, SPARE_SLOTS).expect("a new image");
        OnDisk {
            disk,
            new: Some(new),
        }
    }

    fn open(&mut self) -> Result<AnyStore, String> {
        if let Some(new) = self.new.take() {
            return Ok(AnyStore::new(new));
        }
        self.disk
            .open(Access::ReadWrite)
            .map(|(store, _)| AnyStore::new(store))
            .map_err(|error| error.to_string())
    }

    fn leave(&mut self, store: AnyStore) {
        drop(store);
    }

    fn close(&mut self, store: AnyStore) -> Result<(), String> {
        let store: FileStore = store.downcast().expect("the store of this world");
        store.close().map_err(|error| error.to_string())
    }

    fn cut_inside_mount(
        &mut self,
        _: &Rig,
        _: &mut dyn FnMut(&mut Chip),
        _: Cut,
    ) -> Option<Result<bool, FtlError>> {
        None
    }

    fn sync_handle(store: &AnyStore) -> Option<SyncHandle> {
        let store: &FileStore = store.downcast_ref().expect("the store of this world");
        Some(store.sync_handle())
    }

    fn disk(&mut self) -> Option<&mut SimDisk> {
        Some(&mut self.disk)
    }
}

/// Injects a fault of the disk.
pub(super) fn inject(disk: &SimDisk, fault: DiskFault) {
    match fault {
        DiskFault::Writes(fault) => disk.fail_writes(fault),
        DiskFault::Erases(count, errno) => disk.fail_writes(WriteFault {
            after: 0,
            count,
            arrives: 0,
            errno,
            needs_room: false,
            longest: SLOT_HEADER_BYTES,
        }),
        DiskFault::Syncs(fault) => disk.fail_syncs_as(fault),
        DiskFault::Reads(permille, count) => {
            let bytes = disk.length();
            let start = bytes * u64::from(permille) / 1000;
            disk.fail_reads(ReadFault {
                range: start..start + bytes / 20,
                after: 0,
                count,
            });
        }
    }
}

/// Replaces the disk by its state after a host crash.
pub(super) fn crash(disk: &mut SimDisk, how: Crash) {
    *disk = disk.crashed(how);
}
