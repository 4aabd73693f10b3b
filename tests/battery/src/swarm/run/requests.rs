//! Requests with the oracle, allowed refusals, and comparison of reads with the allowed values.

use super::{Runner, Verdict, spare_blocks};
use crate::host::{is_barrier, values};
use crate::payload;
use crate::payload::Seen;
use crate::swarm::oracle::{Cost, Oracle};
use crate::swarm::world::World;
use crate::workload::HostOp;
use ftl_core::{Ftl, FtlError, Lpn};
use nand_model::{Nanos, SyncHandle};

impl<'p, W: World> Runner<'p, W> {
    /// The earliest start of the next request: the end of one of those in flight.
    pub(super) fn start(&mut self) -> Nanos {
        let depth = [1, 1, 4, 32][self.plan.seed as usize % 4];
        if self.done.len() < depth {
            0
        } else {
            self.done[self.done.len() - depth]
        }
    }

    fn finished(&mut self, at: Nanos) {
        self.latest = self.latest.max(at);
        self.done.push_back(at);
        if self.done.len() > 32 {
            self.done.pop_front();
        }
    }

    pub(super) fn request(&mut self, op: &HostOp) -> Verdict {
        let written: Vec<(u32, u64)> = values(op, self.requests).collect();
        written
            .iter()
            .for_each(|(lpn, value)| self.oracle.submit(*lpn, *value));
        let excused = self.host_fails();
        self.note_what_left_ram();
        let before = self.reads_before(op);
        let outcome = self.perform(op, &written);
        self.requests += 1;
        if outcome.is_ok() {
            self.note_background_reads(before)?;
        }
        match outcome {
            Ok(()) if self.batch.is_some() => self.executed_in_batch(written),
            Ok(()) => {
                written
                    .iter()
                    .for_each(|(lpn, value)| self.oracle.acknowledge(*lpn, *value));
                if is_barrier(op) {
                    self.oracle.flushed();
                    self.cut_page = None;
                    self.flushed_at = self.merges_and_erases();
                }
                Ok(())
            }
            Err(Trouble::Wrong(what)) => Err(what),
            Err(Trouble::Refused(FtlError::PowerLost)) => {
                self.note_cut_page(op);
                self.cut_in_batch();
                self.power_lost_in_request()
            }
            Err(Trouble::Refused(error)) => {
                // A volume ends the batch here: it acknowledges the requests before this one.
                self.end_batch()?;
                self.refused_writes(&written);
                self.refused(error)
            }
            Err(Trouble::Unsynced(why)) => {
                // The request itself was executed.
                written
                    .iter()
                    .for_each(|(lpn, value)| self.oracle.acknowledge(*lpn, *value));
                self.classes.note("FLUSH failed");
                if excused {
                    return Ok(());
                }
                Err(format!("FLUSH failed on a disk without faults: {why}"))
            }
        }
    }

    fn perform(&mut self, op: &HostOp, written: &[(u32, u64)]) -> Result<(), Trouble> {
        let start = self.start();
        let done = match *op {
            HostOp::Write { lpn, .. } | HostOp::WriteZeroData { lpn, .. } => {
                let bytes = self.bytes(written);
                self.ftl().write(start, Lpn::new(lpn), &bytes)?
            }
            HostOp::WriteZeroes { lpn, count, .. } | HostOp::Trim { lpn, count } => {
                self.ftl().trim(start, Lpn::new(lpn), count)?
            }
            HostOp::Read { lpn, count } => return self.compare(lpn, count),
            HostOp::Idle(budget) => {
                let now = self.latest;
                let more = self.ftl().idle(now, budget)?;
                self.exposure.is_idle = !more;
                self.latest = self.latest.max(self.chip().busy_until());
                return Ok(());
            }
            HostOp::Flush => start,
        };
        self.finished(done);
        if is_barrier(op) {
            let now = self.latest;
            let done = self.ftl().flush(now)?;
            self.finished(done);
            // The host continues after the FLUSH, and so do all later requests.
            self.done.clear();
            self.done.extend([done; 32]);
            if let Some(sync) = &self.sync {
                let synced = sync.sync_through(sync.last_seq());
                if synced.is_ok() && sync.synced_seq() < sync.last_seq() {
                    return Err(Trouble::Wrong(
                        "a FLUSH was acknowledged that reached no disk".into(),
                    ));
                }
                synced.map_err(|error| Trouble::Unsynced(error.to_string()))?;
            }
        }
        Ok(())
    }

    pub(super) fn bytes(&self, written: &[(u32, u64)]) -> Vec<u8> {
        let size = self.rig.profile.geometry.page_bytes as usize;
        let mut bytes = vec![0; size * written.len()];
        for (page, (lpn, value)) in bytes.chunks_exact_mut(size).zip(written) {
            payload::fill(page, *lpn, *value, self.oracle.seed());
        }
        bytes
    }

    /// Whether the host's disk has a fault, or a sync of the image failed.
    pub(super) fn host_fails(&self) -> bool {
        self.disk_fails
            || self
                .sync
                .as_ref()
                .is_some_and(|sync| sync.failure().is_some())
    }

    /// The host refused these writes: the store may keep them in RAM until its next operation.
    pub(super) fn refused_writes(&mut self, written: &[(u32, u64)]) {
        self.note_what_left_ram();
        for (lpn, value) in written {
            match self.sync {
                Some(_) => self.oracle.refuse(*lpn, *value),
                None => self.oracle.doubt(*lpn, *value),
            }
        }
        self.refused_at = self.last_seq();
    }

    /// An operation of the store writes everything before it.
    pub(super) fn note_what_left_ram(&mut self) {
        if self.last_seq() > self.refused_at {
            self.oracle.left_ram();
        }
    }

    fn last_seq(&self) -> u64 {
        self.sync.as_ref().map_or(0, SyncHandle::last_seq)
    }

    /// Checks a refusal.
    pub(super) fn refused(&mut self, error: FtlError) -> Verdict {
        let sync_failed = self
            .sync
            .as_ref()
            .is_some_and(|sync| sync.failure().is_some());
        match &error {
            FtlError::HostFull | FtlError::Host(_) if self.erases_fail && !sync_failed => {
                self.classes.note("erase refused by the host")
            }
            FtlError::HostFull if self.disk_fails => self.classes.note("ENOSPC"),
            FtlError::Host(_) if self.disk_fails || sync_failed => self.classes.note("EIO"),
            FtlError::ReadOnly(_) if sync_failed => {}
            FtlError::MediaLost(_) if self.oracle.cost() > Cost::Nothing => {
                self.classes.note("page unreadable")
            }
            FtlError::ReadOnly(_) | FtlError::Corrupt(_) if self.may_give_up() => {
                return self.end_with("end of life");
            }
            FtlError::ReadOnly(_) if self.blocks_used_up() => {
                return self.end_with("blocks used up by programs that fail in a row");
            }
            error if is_lost_map_page(error) && self.oracle.cost() >= Cost::Pages => {
                // The next start rebuilds the page.
                self.classes.note("mapping page lost in use");
                self.armed = None;
                self.take_down();
                return self.mount_and_serve();
            }
            _ => {
                let (bad, spare) = (self.bad_blocks(), spare_blocks(self.rig).len());
                return Err(format!(
                    "refused: {error} (bad blocks: {bad}, allowed: {spare})"
                ));
            }
        }
        Ok(())
    }

    /// Whether a device may refuse writes: more blocks are bad than its data sheet allows, or its
    /// parts have silent faults.
    pub(super) fn may_give_up(&mut self) -> bool {
        let spare = spare_blocks(self.rig).len();
        self.oracle.cost() == Cost::Service || self.bad_blocks() > spare
    }

    /// Whether programs that failed in a row, in this step or an earlier one, may have used up the
    /// blocks: 16 of one step, and more than blocks may still turn bad.
    pub(super) fn blocks_used_up(&mut self) -> bool {
        let failed = self.failed_programs().saturating_sub(self.failed_before) as usize;
        self.used_up |= failed >= 16 && self.bad_blocks() + failed > spare_blocks(self.rig).len();
        self.used_up
    }

    pub(super) fn failed_programs(&self) -> u64 {
        let of = |ftl: &dyn Ftl| ftl.chip().counters().program_fails;
        self.ftl.as_deref().map_or(0, of)
    }

    /// Whether a read may end with this error.
    fn may_be_unreadable(&self, error: &FtlError) -> bool {
        match error {
            FtlError::MediaLost(_) => self.oracle.cost() >= Cost::Pages,
            error if is_lost_map_page(error) => self.oracle.cost() >= Cost::Pages,
            FtlError::Corrupt(_) => self.oracle.cost() == Cost::Service,
            _ => false,
        }
    }

    fn bad_blocks(&mut self) -> usize {
        super::bad_blocks(self.chip())
    }

    /// The device cannot continue: its content is read once more.
    fn end_with(&mut self, class: &'static str) -> Verdict {
        self.classes.note(class);
        self.gave_up = true;
        self.compare_all()?;
        self.tally();
        Ok(())
    }

    pub(super) fn compare(&mut self, lpn: u32, count: u32) -> Result<(), Trouble> {
        let seen = match self.read(lpn, count) {
            Ok(seen) => seen,
            Err(error) if self.may_be_unreadable(&error) => {
                return self.compare_singly(lpn, count);
            }
            Err(error) => return Err(error.into()),
        };
        (lpn..)
            .zip(seen)
            .try_for_each(|(lpn, seen)| self.oracle.judge(lpn, seen))
            .map_err(Trouble::Wrong)
    }

    fn compare_singly(&mut self, lpn: u32, count: u32) -> Result<(), Trouble> {
        for lpn in lpn..lpn + count {
            match self.read(lpn, 1) {
                Ok(seen) => self.oracle.judge(lpn, seen[0]).map_err(Trouble::Wrong)?,
                Err(error) if self.may_be_unreadable(&error) => {
                    self.classes.note("page unreadable")
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn compare_all(&mut self) -> Verdict {
        self.each_page(|oracle, lpn, seen| match seen {
            Some(seen) => oracle.judge(lpn, seen),
            None => Ok(()),
        })
    }

    /// Reads every page, one by one if some may be lost; `None` cannot be read.
    pub(super) fn each_page(
        &mut self,
        mut judge: impl FnMut(&mut Oracle, u32, Option<Seen>) -> Verdict,
    ) -> Verdict {
        const AT_ONCE: u32 = 64;
        let pages = self.oracle.pages();
        let mut lpn = 0;
        while lpn < pages {
            let count = AT_ONCE.min(pages - lpn);
            match self.read(lpn, count) {
                Ok(seen) => (lpn..)
                    .zip(seen)
                    .try_for_each(|(lpn, seen)| judge(&mut self.oracle, lpn, Some(seen)))?,
                Err(FtlError::PowerLost) => return self.power_lost_in_request(),
                // A read that first has to write back a mapping page fails with it.
                Err(FtlError::Host(_) | FtlError::HostFull) if self.host_fails() => {
                    self.classes.note("read failed");
                    (lpn..lpn + count).try_for_each(|lpn| judge(&mut self.oracle, lpn, None))?;
                }
                Err(error) if self.may_be_unreadable(&error) => {
                    for lpn in lpn..lpn + count {
                        match self.read(lpn, 1) {
                            Ok(seen) => judge(&mut self.oracle, lpn, Some(seen[0]))?,
                            Err(error) if self.may_be_unreadable(&error) => {
                                self.classes.note("page unreadable");
                                judge(&mut self.oracle, lpn, None)?;
                            }
                            Err(FtlError::PowerLost) => return self.power_lost_in_request(),
                            Err(FtlError::Host(_) | FtlError::HostFull) if self.host_fails() => {
                                self.classes.note("read failed");
                                judge(&mut self.oracle, lpn, None)?;
                            }
                            Err(error) => return Err(format!("read of page {lpn}: {error}")),
                        }
                    }
                }
                Err(error) => return Err(format!("read of pages from {lpn}: {error}")),
            }
            lpn += count;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, lpn: u32, count: u32) -> Result<Vec<Seen>, FtlError> {
        let size = self.rig.profile.geometry.page_bytes as usize;
        let mut bytes = vec![0xA5; size * count as usize];
        let start = self.start();
        self.ftl().read(start, Lpn::new(lpn), &mut bytes)?;
        Ok(bytes.chunks_exact(size).map(payload::identify).collect())
    }
}

/// A decayed mapping page is not rebuilt while the device is in use: docs/DURABILITY.md.
fn is_lost_map_page(error: &FtlError) -> bool {
    matches!(error, FtlError::Corrupt(what) if what.contains("of the map cannot be read"))
}

/// Reason of a failed request.
pub(super) enum Trouble {
    Refused(FtlError),
    Unsynced(String),
    Wrong(String),
}

impl From<FtlError> for Trouble {
    fn from(error: FtlError) -> Self {
        Trouble::Refused(error)
    }
}
