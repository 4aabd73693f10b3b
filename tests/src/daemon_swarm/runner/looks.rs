//! Checks of the state that an end would leave, and of faults that occurred.

use super::Run;
use super::connection::connect;
use super::device::{NAME, contents, open};
use super::races::race_alone;
use super::requests::EPERM;
use crate::daemon_swarm::Class;
use crate::daemon_swarm::plan::{Ask, Verb};
use ftld_device::config::Latency;
use ftld_device::stack::{CacheUse, volume_on};
use ftld_host_disk::{End, SimDisk};
use nand_model::store::Access;
use std::path::Path;
use std::sync::Arc;

impl<'a> Run<'a> {
    /// Returns whether data that was not durable may be lost although the host lives.
    pub(super) fn is_lossy(&self) -> bool {
        self.volume.failure().is_some() || self.sync_failed
    }

    /// Records faults that occurred. A failure without an injected fault fails the run.
    pub(super) fn look_at_faults(&mut self) -> Result<(), String> {
        if let Some(errno) = self.fuse.take_if(|_| !self.disk.has_write_faults()) {
            self.blown = Some((self.now(), errno));
        }
        // The volume detects a sync that failed inside the scheme at its next wait for one.
        if self.disk.bad_syncs() < self.bad_syncs && !self.sync_failed {
            self.sync_failed = true;
            self.note(Class::SyncFailed);
        }
        match self.volume.failure() {
            Some(why) if why.contains("sync of the image failed") && self.sync_failed => {}
            Some(_) if self.cut && self.volume.is_powerless() => self.note(Class::PowerCut),
            Some(why) => return Err(format!("the device failed: {why}")),
            None => {}
        }
        if self.gate.reclaimed() {
            self.note(Class::ErasesShort);
        }
        Ok(())
    }

    /// Opens a disk, checks its content and returns it.
    pub(super) fn look(&mut self, disk: &SimDisk, end: End) -> Result<Vec<u8>, String> {
        self.judged(end);
        let bytes = contents(&open(self.plan, disk, None)?)?;
        self.oracle.judge(&bytes, self.may_lose(end))?;
        Ok(bytes)
    }

    /// Does the same without changing the disk, with a session that requests changes.
    pub(super) fn look_read_only(&mut self, end: End) -> Result<(), String> {
        let disk = self.disk.ended(end);
        let writes = disk.writes();
        let (stores, _) = disk
            .open_shards(Access::ReadOnly)
            .map_err(|error| format!("read-only open: {error}"))?;
        let boot_id = disk.boot_id();
        let cache = CacheUse {
            options: None,
            boot_id: &boot_id,
        };
        let path = Path::new(NAME);
        let stack = volume_on(path, stores, true, Latency::None, cache, |inner| inner);
        let volume = Arc::new(
            stack
                .map_err(|failure| format!("read-only mount: {failure}"))?
                .volume,
        );
        let bytes = contents(&volume)?;
        self.judged(end);
        self.oracle
            .judge(&bytes, self.may_lose(end))
            .map_err(|why| format!("read-only: {why}"))?;
        let mut connection = connect(self.plan, 0, &volume, &Arc::default(), &Arc::default())?;
        let length = self.plan.size.min(3000);
        for (verb, errno) in [
            (Verb::Write, EPERM),
            (Verb::Trim, EPERM),
            (Verb::Zero, EPERM),
            (Verb::Flush, 0),
            (Verb::Read, 0),
        ] {
            let flush = verb == Verb::Flush;
            let ask = Ask::new(
                verb,
                if flush { 0 } else { 100.min(length - 1) },
                if flush {
                    0
                } else {
                    length - 100.min(length - 1)
                },
            );
            let payload = vec![
                7;
                if verb == Verb::Write {
                    ask.length as usize
                } else {
                    0
                }
            ];
            let (_, _, _, _, reply) =
                race_alone(&mut connection, &[(1, payload, ask, 0)], &self.clock)?.remove(0);
            if reply.errno != errno {
                return Err(format!("read-only: errno {} for {ask}", reply.errno));
            }
            if verb == Verb::Read && !reply.holds(&bytes) {
                return Err("read-only: a session reads other bytes than the volume".into());
            }
        }
        if contents(&volume)? != bytes || disk.writes() != writes {
            return Err("a read-only device changed".into());
        }
        self.note(Class::ReadOnly);
        Ok(())
    }

    /// Returns whether the write cache has data that is not on the flash.
    pub(super) fn is_dirty(&self) -> bool {
        self.volume.publish(true);
        self.volume.flash().cache.dirty_bytes > 0
    }

    /// Records the properties of this checked end.
    pub(super) fn note_end(&mut self, end: End) {
        if self.plan.cache.is_some() && self.volume.failure().is_none() && self.is_dirty() {
            self.note(match end {
                End::Kill => Class::KillCache,
                End::Crash(_) => Class::CrashCache,
            });
        }
        let End::Crash(_) = end else {
            self.note(Class::Kill);
            return;
        };
        self.note(Class::Crash);
        if self.disk.writes() == self.durable.1 {
            self.note(Class::CrashAfterReply);
        }
        for class in std::mem::take(&mut self.durable.0) {
            self.classes.note(class);
        }
        if self.plan.ram_acknowledges()
            && self.connections.iter().any(|connection| connection.wrote)
        {
            self.note(Class::RamAcknowledged);
        }
        if self.after_kill {
            self.note(Class::CrashAfterKill);
        }
        if self.after_failed_sync {
            self.note(Class::CrashAfterFailedSync);
        }
        if self.gate.is_held() {
            self.note(Class::CrashDuringSync);
        }
    }
}
