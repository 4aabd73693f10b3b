//! Requests and their replies, alongside the oracle.

use super::{Open, Run};
use crate::daemon_swarm::Class;
use crate::daemon_swarm::client::{Part, Reply};
use crate::daemon_swarm::oracle::{Change, fill};
use crate::daemon_swarm::plan::{Ask, Verb, Wire};
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

/// Largest number of unanswered requests that change data: more lead to too many orders.
const UNANSWERED_MAX: usize = 5;

/// Longest time without a reply when nothing delays the request.
pub(super) const UNANSWERED: Duration = Duration::from_secs(60);

/// Pages per step of a long trim or block status.
const LONG_PAGES: u64 = 16_384;

/// Bytes per slice of the volume.
const SLICE: u64 = 512 << 10;

pub(super) const EPERM: u32 = 1;

const EINVAL: u32 = 22;

const ENOSPC: u32 = 28;

const ESHUTDOWN: u32 = 108;

impl<'a> Run<'a> {
    pub(super) fn send(&mut self, who: usize, ask: Ask) {
        let unanswered = self.open.values().filter(|open| open.op.is_some()).count();
        let busy = self
            .connections
            .get(who)
            .is_none_or(|each| each.client.open.len() > 6 || each.session.is_none());
        // Simple replies cannot carry extents.
        let simple = matches!(
            self.plan.wires.get(who),
            Some(Wire::Simple | Wire::Attached)
        );
        let mute = ask.verb == Verb::Status && simple;
        if busy || mute || ask.changes() && unanswered >= UNANSWERED_MAX {
            return;
        }
        let (cookie, payload, open) = self.prepare(who, ask);
        self.open.insert(cookie, open);
        self.connections[who].client.send(cookie, &ask, &payload);
    }

    pub(super) fn is_inside(&self, ask: &Ask) -> bool {
        ask.offset
            .checked_add(ask.length)
            .is_some_and(|end| end <= self.plan.size)
    }

    /// Submits a request to the oracle.
    fn prepare(&mut self, who: usize, ask: Ask) -> (u64, Vec<u8>, Open) {
        let began = self.now();
        self.versions += 1;
        let (version, range) = (self.versions, ask.offset..ask.offset + ask.length);
        let mut payload = Vec::new();
        if ask.verb == Verb::Write {
            payload.resize(ask.length as usize, 0);
            fill(self.plan.seed, version, ask.offset, &mut payload);
        }
        let change = if ask.verb == Verb::Write {
            Change::Version(version)
        } else {
            Change::Zeros
        };
        let op = (ask.changes() && self.is_inside(&ask)).then(|| self.oracle.submit(change, range));
        self.cookies += 1;
        self.connections[who].wrote |= op.is_some();
        let behind = self
            .open
            .values()
            .any(|open| open.who == who && open.ask.waits_for_a_sync());
        (
            self.cookies,
            payload,
            Open {
                ask,
                who,
                op,
                began,
                during_sync: self.gate.is_held(),
                behind,
            },
        )
    }

    pub(super) fn turn(&mut self, who: usize, inward: usize, outward: usize) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(who) else {
            return Ok(());
        };
        self.gate.expect_threads();
        connection.client.pipe.allow(inward, outward);
        connection.poll();
        self.take(who)?;
        self.settle()
    }

    /// Reads and checks the replies of a connection.
    pub(super) fn take(&mut self, who: usize) -> Result<(), String> {
        self.look_at_faults()?;
        let replies = self.connections[who].client.receive()?;
        for reply in replies {
            self.oracle.horizon = self.open.values().map(|open| open.began).min().unwrap_or(0);
            let now = self.now();
            let open = self
                .open
                .remove(&reply.cookie)
                .expect("the client knows it");
            self.replied(&open, &reply, now)
                .map_err(|why| format!("{}: {why}", open.ask))?;
        }
        let ends_anyway = self.stopping || self.connections[who].left;
        if self.is_broken(who) && !ends_anyway {
            return self.replace_broken(who);
        }
        match &self.connections[who].ended {
            Some(end) if !ends_anyway => Err(format!("connection {who} ended: {end:?}")),
            _ => Ok(()),
        }
    }

    /// Waits for threads and serves the connections with ended flushes.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        loop {
            let ended = self.gate.quiet(
                self.connections
                    .iter()
                    .map(|connection| connection.seen)
                    .sum(),
            );
            let mut progress = false;
            for who in 0..self.connections.len() {
                let ended = ended.get(who).copied().unwrap_or(0);
                let waits = self
                    .open
                    .values()
                    .any(|open| open.who == who && open.ask.waits_for_a_sync());
                let connection = &mut self.connections[who];
                if connection.seen < ended && waits {
                    connection.woken.wait();
                }
                progress |= connection.seen < ended;
                connection.seen = ended;
                if connection.woken.take() {
                    progress = true;
                    connection.poll();
                    self.take(who)?;
                }
            }
            if !progress && !self.gate.is_busy() {
                return Ok(());
            }
        }
    }

    pub(super) fn replied(&mut self, open: &Open, reply: &Reply, now: u64) -> Result<(), String> {
        self.report.replies += 1;
        let Open {
            ask,
            who,
            op,
            began,
            ..
        } = *open;
        let well = reply.errno == 0;
        let calls = std::mem::take(
            &mut *self.connections[who]
                .device
                .writes
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let pieces: Vec<_> = calls
            .iter()
            .filter(|call| (ask.offset..ask.offset + ask.length).contains(&call.offset))
            .collect();
        if !well {
            self.traffic.errors += 1;
            let struck = self.blown.filter(|(when, _)| *when > began);
            let expected = match ask.verb {
                Verb::Write | Verb::Zero => ENOSPC,
                _ => EINVAL,
            };
            let inside = self.is_inside(&ask);
            if !inside && reply.errno == expected {
                self.note(Class::BeyondTheEnd);
            } else if let Some((_, errno)) = struck {
                self.note(if errno == ENOSPC as i32 {
                    Class::Enospc
                } else {
                    Class::Eio
                });
                let failed = pieces.iter().position(|call| !call.well);
                if failed.is_some_and(|place| ask.length > pieces[place].length) {
                    self.note(Class::PieceFailed);
                }
            } else if !(self.is_lossy() && (self.volume.is_powerless() || ask.verb != Verb::Read))
                && !(self.stopping && reply.errno == ESHUTDOWN)
            {
                return Err(format!("errno {}", reply.errno));
            }
        } else if !self.is_inside(&ask) && ask.verb != Verb::Flush {
            return Err("answered well, though it reaches beyond the end".into());
        }
        if let Some(op) = op {
            self.oracle.answered(op, now, well, ask.fua)?;
        }
        self.look_at_state(&ask, well, (began, now))?;
        if well {
            let between = pieces.windows(2).any(|two| two[0].flushes < two[1].flushes);
            self.succeeded(open, reply, (pieces.len(), between), now)?;
        }
        Ok(())
    }

    /// Checks the device's state after a write: it decides whether the device reports failing
    /// writes, unless another write succeeded at the same time.
    fn look_at_state(
        &mut self,
        ask: &Ask,
        well: bool,
        (began, now): (u64, u64),
    ) -> Result<(), String> {
        let beside = self.wrote_well > began;
        if well && ask.verb == Verb::Write {
            self.wrote_well = now;
        }
        let alone = self.open.is_empty() && !self.racing && !self.is_lossy() && !self.stopping;
        let told = self.volume.writes_failing().map(|failing| failing.text());
        let struck = self.blown.is_some_and(|(when, _)| when > began);
        if ask.verb != Verb::Write || !self.is_inside(ask) || !alone {
            return Ok(());
        }
        match told {
            None if !well && struck && !beside => {
                Err("writes fail, and the device does not say so".into())
            }
            Some(why) if well && !struck && self.fuse.is_none() => Err(format!(
                "a write succeeded, and the device still says: {why}"
            )),
            Some(_) if !well => {
                self.failing = true;
                Ok(())
            }
            _ => {
                if well && std::mem::take(&mut self.failing) {
                    self.note(Class::WritesFailing);
                }
                Ok(())
            }
        }
    }

    fn succeeded(
        &mut self,
        open: &Open,
        reply: &Reply,
        (pieces, between): (usize, bool),
        now: u64,
    ) -> Result<(), String> {
        let Open {
            ask,
            who,
            began,
            during_sync,
            behind,
            ..
        } = *open;
        let page = u64::from(self.plan.page);
        let aligned = ask.offset.is_multiple_of(page) && ask.length.is_multiple_of(page);
        let flag = |traffic: &mut u64| *traffic += ask.length;
        match ask.verb {
            Verb::Read => flag(&mut self.traffic.read),
            Verb::Write => flag(&mut self.traffic.written),
            Verb::Trim => flag(&mut self.traffic.trimmed),
            Verb::Zero => flag(&mut self.traffic.zeroed),
            Verb::Flush => self.traffic.flushes += 1,
            Verb::Cache => self.note(Class::Cache),
            Verb::Status => {}
        }
        self.traffic.flushes += u64::from(ask.fua);
        if ask.changes() && !aligned {
            self.note(Class::PartOfAPage);
            self.partial_trims |= ask.verb != Verb::Write;
        }
        if ask.verb == Verb::Trim && ask.length > LONG_PAGES * page {
            self.note(Class::LongTrim);
        }
        if ask.verb == Verb::Write
            && pieces == 1
            && ask.offset / SLICE != (ask.offset + ask.length - 1) / SLICE
        {
            self.note(Class::SeveralSlices);
        }
        if self.plan.wires[who] == Wire::Attached {
            self.note(Class::Attached);
        }
        if ask.no_hole || ask.fast {
            self.note(Class::ZeroFlags);
        }
        if ask.verb == Verb::Flush || ask.fua {
            let mut kinds = BTreeSet::new();
            let mut kind = |class: Class| {
                kinds.insert(class.name());
            };
            match ask.verb {
                Verb::Write if pieces > 1 => {
                    kind(Class::FuaPieces);
                    if between {
                        kind(Class::SyncBetweenPieces);
                    }
                }
                Verb::Trim => kind(Class::FuaTrim),
                Verb::Zero => kind(Class::FuaZeroes),
                Verb::Flush if !self.connections[who].wrote => kind(Class::AWritesBFlushes),
                _ => {}
            }
            if during_sync {
                kind(Class::FlushDuringSync);
            }
            if behind {
                kind(Class::FlushBehindFlush);
            }
            self.durable = (kinds, self.disk.writes());
        }
        if ask.verb == Verb::Flush {
            self.oracle.flushed(began);
        }
        let races = self.open.values().any(|other| {
            let apart = other.ask.offset >= ask.offset + ask.length
                || ask.offset >= other.ask.offset + other.ask.length;
            other.op.is_some() && other.ask.verb != Verb::Write && !apart
        });
        let mut at = ask.offset;
        for (from, part) in &reply.parts {
            match part {
                Part::Data(data) => self.oracle.read(*from, data, began, now)?,
                Part::Hole(length) => {
                    self.note(Class::HoleInRead);
                    if !ask.offset.is_multiple_of(512) && self.partial_trims {
                        self.note(Class::OddHole);
                    }
                    self.oracle.read(*from, &vec![0; *length], began, now)?;
                }
            }
            if races {
                self.note(Class::TrimRacesRead);
            }
        }
        for (length, hole) in &reply.extents {
            if *hole {
                self.note(Class::HoleInStatus);
                let told = self.oracle.read(at, &vec![0; *length as usize], began, now);
                told.map_err(|why| format!("a hole that is none: {why}"))?;
            }
            at += length;
        }
        Ok(())
    }
}
