//! Ends of the daemon: kills, crashes, clean shutdowns, and the restarts after them.

use super::device::{contents, open};
use super::{Report, Run, Traffic};
use crate::daemon_swarm::Class;
use crate::daemon_swarm::gate::Gate;
use crate::daemon_swarm::plan::DaemonEnd;
use ftld_device::stack::close_stores;
use ftld_device::volume::Op;
use ftld_host_disk::{Crash, End, Freeze, SimDisk};
use std::collections::BTreeSet;
use std::sync::Arc;

impl<'a> Run<'a> {
    pub(super) fn end_daemon(&mut self, how: DaemonEnd, look: bool) -> Result<(), String> {
        let (disk, rollback) = match how {
            DaemonEnd::Sudden(end) => {
                let (disk, rollback) = (self.disk.ended(end), self.may_lose(end));
                if look {
                    self.judged(end);
                }
                self.note_end(end);
                self.after_kill = end == End::Kill;
                (disk, rollback)
            }
            DaemonEnd::Stop => {
                let lossy = self.stop()?;
                (self.disk.ended(End::Kill), lossy)
            }
        };
        self.abandon();
        self.restart(disk, rollback, look)
    }

    /// Stops; an end follows right before this write or sync of the stop, or after it.
    pub(super) fn end_in_stop(&mut self, at: Freeze, end: End) -> Result<(), String> {
        self.end_sessions()?;
        let dirty = self.plan.cache.is_some() && self.is_dirty();
        self.before_write = None;
        self.disk.freeze_at(at);
        let may_lose = self.may_lose(end);
        let lossy = self.close()?;
        let (disk, rollback) = match self.disk.take_frozen() {
            Some(frozen) => {
                self.judged(end);
                self.note(Class::EndInStop);
                if dirty {
                    self.note(Class::EndInDetach);
                }
                (frozen.ended(end), lossy || may_lose)
            }
            None => (self.disk.ended(End::Kill), lossy),
        };
        self.after_kill = end == End::Kill;
        self.abandon();
        self.restart(disk, rollback, true)
    }

    /// Shuts down cleanly. Returns whether data that was not durable may be lost.
    pub(super) fn stop(&mut self) -> Result<bool, String> {
        self.end_sessions()?;
        self.close()
    }

    /// Completes all requests and ends all sessions.
    fn end_sessions(&mut self) -> Result<(), String> {
        let amid = !self.open.is_empty();
        self.stopping = true;
        for connection in &mut self.connections {
            drop(connection.stop.take());
        }
        for who in 0..self.connections.len() {
            self.turn(who, usize::MAX, usize::MAX)?;
        }
        if amid {
            // A sync may still be delayed.
            let end = End::Crash(Crash::Nothing);
            let disk = self.disk.ended(end);
            self.look(&disk, end)
                .map_err(|why| format!("amid a stop: {why}"))?;
            self.note(Class::StopAmid);
        }
        self.drain()?;
        for who in 0..self.connections.len() {
            if self.connections[who].session.is_some() {
                return Err(format!("connection {who} outlives the stop"));
            }
            self.end_of_connection(who)?;
        }
        let nbd = self.stats.snapshot();
        if nbd.connected + nbd.in_flight > 0 {
            return Err(format!(
                "after a stop: {} sessions, {} requests in flight",
                nbd.connected, nbd.in_flight
            ));
        }
        self.count()
    }

    /// Closes volume and image. Returns whether data that was not durable may be lost.
    fn close(&mut self) -> Result<bool, String> {
        let excused =
            self.is_lossy() || self.fuse.is_some() || self.disk.bad_syncs() > 0 || self.cut;
        let closed = self.volume.close().map_err(|error| error.to_string());
        let closed =
            closed.and_then(|stores| close_stores(stores).map_err(|error| error.to_string()));
        self.after_kill = false;
        match closed {
            Err(why) if !excused => Err(format!("stop: {why}")),
            Err(_) => {
                self.look_at_faults()?;
                // A stop that fails writes no more than a kill does.
                Ok(self.may_lose(End::Kill))
            }
            Ok(()) => {
                self.note(Class::Stop);
                Ok(self.is_lossy())
            }
        }
    }

    /// Compares the counters of the volume and the server with the traffic, if all requests
    /// succeeded.
    pub(super) fn count(&mut self) -> Result<(), String> {
        if self.traffic.errors > 0 {
            return Ok(());
        }
        let (host, nbd) = (self.volume.host(), self.stats.snapshot());
        let Traffic {
            written,
            trimmed,
            zeroed,
            read,
            flushes,
            ..
        } = self.traffic;
        let same = [
            ("bytes written", host.of(Op::Write).bytes, written),
            ("bytes trimmed", host.of(Op::Trim).bytes, trimmed),
            ("bytes zeroed", host.of(Op::WriteZeroes).bytes, zeroed),
            ("flushes", host.of(Op::Flush).completed, flushes),
            ("bytes that NBD read", nbd.read, read),
            ("bytes that NBD wrote", nbd.written, written),
            ("errors of NBD", nbd.errors, 0),
            (
                "requests in flight",
                host.ops.iter().map(|op| op.in_flight).sum(),
                0,
            ),
        ];
        if let Some((name, counted, known)) = same
            .into_iter()
            .find(|(_, counted, known)| counted != known)
        {
            return Err(format!("{name}: {counted} counted, {known} known"));
        }
        // The server answers holes without a read; a check after a restart reads everything.
        let most = read + self.looked;
        if host.of(Op::Read).bytes > most {
            return Err(format!(
                "bytes read: {} counted, at most {most} known",
                host.of(Op::Read).bytes
            ));
        }
        self.note(Class::Counters);
        Ok(())
    }

    /// Drops the rest of a daemon.
    fn abandon(&mut self) {
        self.gate.hold(false);
        self.connections.clear();
        self.gate.idle();
        self.open.clear();
        self.before_write = None;
    }

    pub(super) fn end_twice(&mut self, first: End, at: Freeze, second: End) -> Result<(), String> {
        let disk = self.disk.ended(first);
        let mut rollback = self.may_lose(first);
        self.judged(first);
        self.note_end(first);
        self.after_kill = false;
        disk.freeze_at(at);
        let opened = open(self.plan, &disk, None);
        let kept = disk.take_frozen().map(|frozen| frozen.ended(second));
        if kept.is_some() {
            rollback |= matches!(second, End::Crash(_));
            self.judged(second);
            self.note(Class::EndInOpen);
        } else {
            opened?;
        }
        self.abandon();
        self.restart(
            kept.unwrap_or_else(|| disk.ended(End::Kill)),
            rollback,
            true,
        )
    }

    pub(super) fn restart(
        &mut self,
        disk: SimDisk,
        rollback: bool,
        look: bool,
    ) -> Result<(), String> {
        self.after_failed_sync = self.sync_failed;
        if self.after_failed_sync {
            self.note(Class::RestartAfterFailedSync);
        }
        self.gate = Arc::new(Gate::default());
        self.volume = Arc::new(open(self.plan, &disk, Some(&self.gate))?);
        self.disk = disk;
        self.looked = if look { self.plan.size } else { 0 };
        if look {
            let bytes = contents(&self.volume)?;
            self.oracle.judge(&bytes, rollback)?;
            self.oracle.restarted(&bytes);
        } else {
            self.oracle.restarted_unseen(rollback);
        }
        (self.fuse, self.blown, self.bad_syncs, self.sync_failed) = (None, None, 0, false);
        (self.cut, self.stopping, self.failing) = (false, false, false);
        (self.traffic, self.durable) = (Traffic::default(), (BTreeSet::new(), 0));
        self.serve()
    }

    pub(super) fn finish(mut self) -> Result<Report, String> {
        self.drain()?;
        if !self.is_lossy() {
            self.disk.clear_faults();
            self.volume.keep_power();
            (self.fuse, self.cut) = (None, false);
            self.check(0)?;
        }
        self.end_daemon(DaemonEnd::Stop, true)?;
        self.abandon();
        Ok(self.report)
    }
}
