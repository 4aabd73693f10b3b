//! A host with its oracle: runs requests on a scheme, updates the model, compares the data read.

use crate::model::{Model, ZEROS};
use crate::payload::{self, Seen};
use crate::rig::Rig;
use crate::workload::HostOp;
use ftl_core::{Ftl, FtlError, Lpn, SchemeStats, Start};
use nand_model::store::MemStore;
use nand_model::{Chip, FaultPlan, SyncHandle};

/// A scheme in service, and its allowed contents.
pub struct Host<'a> {
    rig: &'a Rig,
    /// The scheme.
    pub ftl: Box<dyn Ftl>,
    /// The allowed contents.
    pub model: Model,
    /// Requests so far; versions are derived from it.
    step: u64,
    /// The handle that a FLUSH waits for besides the scheme, if the store is an image.
    sync: Option<SyncHandle>,
}

/// Failure of a request.
#[derive(Debug)]
pub enum Trouble {
    /// The scheme refused or failed it.
    Refused(FtlError),
    /// The host could not make the data durable.
    Unsynced(String),
    /// A read returned the wrong bytes.
    Wrong(String),
}

impl From<FtlError> for Trouble {
    fn from(error: FtlError) -> Self {
        Trouble::Refused(error)
    }
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> String {
        match trouble {
            Trouble::Refused(error) => format!("request failed: {error}"),
            Trouble::Unsynced(why) => format!("not durable: {why}"),
            Trouble::Wrong(what) => what,
        }
    }
}

/// Values that a request writes to pages, in order; `step` counts requests.
pub fn values(op: &HostOp, step: u64) -> impl Iterator<Item = (u32, u64)> + use<> {
    let (lpn, count, zeros) = match *op {
        HostOp::Write { lpn, count, .. } => (lpn, count, false),
        HostOp::WriteZeroData { lpn, count }
        | HostOp::WriteZeroes { lpn, count, .. }
        | HostOp::Trim { lpn, count } => (lpn, count, true),
        HostOp::Flush | HostOp::Read { .. } | HostOp::Idle(_) => (0, 0, true),
    };
    (0..count).map(move |i| {
        (
            lpn + i,
            if zeros {
                ZEROS
            } else {
                (step + 1) << 16 | i as u64
            },
        )
    })
}

/// Whether everything acknowledged so far is durable when the request returned.
pub fn is_barrier(op: &HostOp) -> bool {
    matches!(
        op,
        HostOp::Flush | HostOp::Write { fua: true, .. } | HostOp::WriteZeroes { fua: true, .. }
    )
}

impl<'a> Host<'a> {
    /// A host of a new device.
    pub fn format(rig: &'a Rig) -> Host<'a> {
        Host::over(
            rig,
            rig.format(),
            Model::new(rig.config.logical_pages, rig.seed),
        )
    }

    /// A host of a new device on a chip with every bad block that its data sheet allows.
    ///
    /// # Panics
    /// The scheme refuses a new device.
    pub fn format_at_end_of_life(rig: &'a Rig) -> Host<'a> {
        let chip = rig.blank_at_end_of_life();
        let ftl = rig
            .scheme
            .start(chip, &rig.config, Start::Format)
            .expect("a new device starts");
        Host::over(rig, ftl, Model::new(rig.config.logical_pages, rig.seed))
    }

    /// Cuts power between two operations.
    pub fn cut_power(self) -> (Chip, Model) {
        let mut chip = self.ftl.into_chip();
        chip.power_on();
        (chip, self.model)
    }

    /// Cuts power between two operations and mounts.
    ///
    /// # Errors
    /// The mount fails.
    pub fn remount(self) -> Result<Host<'a>, String> {
        let (rig, step) = (self.rig, self.step);
        let (chip, model) = self.cut_power();
        let ftl = rig.mount(chip).map_err(|error| format!("mount: {error}"))?;
        Ok(Host {
            step,
            ..Host::over(rig, ftl, model)
        })
    }

    /// The bytes of its flash in memory.
    ///
    /// # Panics
    /// They are elsewhere.
    pub fn memory(&mut self) -> &mut MemStore {
        let store = self.ftl.chip_mut().store_mut();
        store.downcast_mut().expect("a store in memory")
    }

    /// A host of a running scheme.
    pub fn over(rig: &'a Rig, ftl: Box<dyn Ftl>, model: Model) -> Host<'a> {
        Host {
            rig,
            ftl,
            model,
            step: 0,
            sync: None,
        }
    }

    /// Makes a FLUSH wait for a sync of the image.
    pub fn syncing(mut self, sync: SyncHandle) -> Self {
        self.sync = Some(sync);
        self
    }

    /// The handle that a FLUSH waits for, if the store is an image.
    pub fn sync_handle(&self) -> Option<SyncHandle> {
        self.sync.clone()
    }

    /// Requests so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Sets the number of requests, so that later versions are above those of this many.
    pub fn set_step(&mut self, step: u64) {
        self.step = step;
    }

    /// Runs one request.
    ///
    /// # Errors
    /// The scheme refused the request, the image could not be synced, or a read gave wrong bytes.
    pub fn run(&mut self, op: &HostOp) -> Result<(), Trouble> {
        for (lpn, value) in values(op, self.step) {
            self.model.submit(lpn, value);
        }
        let outcome = self.perform(op);
        self.step += 1;
        outcome?;
        if is_barrier(op) {
            self.model.flushed();
        }
        Ok(())
    }

    fn perform(&mut self, op: &HostOp) -> Result<(), Trouble> {
        match *op {
            HostOp::Write { lpn, .. } | HostOp::WriteZeroData { lpn, .. } => {
                let bytes = self.bytes(op);
                self.ftl.write(0, Lpn::new(lpn), &bytes)?;
            }
            HostOp::WriteZeroes { lpn, count, .. } | HostOp::Trim { lpn, count } => {
                self.ftl.trim(0, Lpn::new(lpn), count)?;
            }
            HostOp::Read { lpn, count } => self.compare(lpn, count)?,
            HostOp::Idle(budget) => drop(self.ftl.idle(0, budget)?),
            HostOp::Flush => {}
        }
        if is_barrier(op) {
            self.ftl.flush(0)?;
            if let Some(sync) = &self.sync {
                sync.sync_through(sync.last_seq())
                    .map_err(|error| Trouble::Unsynced(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn bytes(&self, op: &HostOp) -> Vec<u8> {
        let size = self.rig.profile.geometry.page_bytes as usize;
        let values: Vec<_> = values(op, self.step).collect();
        let mut bytes = vec![0; size * values.len()];
        for (page, (lpn, value)) in bytes.chunks_exact_mut(size).zip(values) {
            payload::fill(page, lpn, value, self.model.seed());
        }
        bytes
    }

    /// Reads pages and identifies each of them.
    ///
    /// # Errors
    /// The error of the scheme.
    pub fn read(&mut self, lpn: u32, count: u32) -> Result<Vec<Seen>, FtlError> {
        let size = self.rig.profile.geometry.page_bytes as usize;
        let mut bytes = vec![0xA5; size * count as usize];
        self.ftl.read(0, Lpn::new(lpn), &mut bytes)?;
        Ok(bytes.chunks_exact(size).map(payload::identify).collect())
    }

    /// Compares pages with their newest values.
    ///
    /// # Errors
    /// The scheme refused the read, or a page is not its newest value.
    pub fn compare(&mut self, lpn: u32, count: u32) -> Result<(), Trouble> {
        let seen = self.read(lpn, count)?;
        (lpn..)
            .zip(seen)
            .try_for_each(|(lpn, seen)| self.model.judge(lpn, seen))
            .map_err(Trouble::Wrong)
    }

    /// Compares every page with its newest value.
    ///
    /// # Errors
    /// The scheme refused a read, or a page is not its newest value.
    pub fn compare_all(&mut self) -> Result<(), Trouble> {
        self.compare(0, self.model.pages())
    }

    /// Compares pages with their allowed contents after a recovery; the contents read must stay.
    ///
    /// # Errors
    /// A page is unreadable, or has a content that is not allowed.
    pub fn settle(&mut self, lpn: u32, count: u32) -> Result<(), String> {
        let seen = self
            .read(lpn, count)
            .map_err(|error| format!("read after recovery: {error}"))?;
        (lpn..)
            .zip(seen)
            .try_for_each(|(lpn, seen)| self.model.settle(lpn, seen))
    }

    /// Compares every page.
    ///
    /// # Errors
    /// A page is unreadable, or has a content that is not allowed.
    pub fn settle_all(&mut self) -> Result<(), String> {
        self.settle(0, self.model.pages())
    }

    /// Runs the scheme's own consistency check, and accounts for all blocks.
    ///
    /// # Errors
    /// The findings of the scheme, or blocks that are missing in its counts.
    pub fn check(&mut self) -> Result<(), String> {
        let wrong = self
            .ftl
            .check()
            .map_err(|error| format!("check failed: {error}"))?;
        if !wrong.is_empty() {
            return Err(format!("check: {}", wrong.join("; ")));
        }
        blocks_add_up(&self.ftl.stats(), self.rig.profile.geometry.blocks)
    }

    /// Installs faults on the chip below.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.ftl.chip_mut().set_faults(plan);
    }
}

/// Checks that free, valid, bad and other blocks add up to all blocks.
///
/// # Errors
/// The sum, and the counts.
pub fn blocks_add_up(stats: &SchemeStats, blocks: u32) -> Result<(), String> {
    let b = &stats.blocks;
    let sum = b.free + b.open + b.data + b.log + b.map + b.checkpoint + b.released + b.bad;
    if sum == blocks {
        Ok(())
    } else {
        Err(format!("{sum} blocks of {blocks} are accounted for: {b:?}"))
    }
}
