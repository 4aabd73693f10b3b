//! Requests on their own threads, replayed to the oracle in the order of their timestamps.

use super::connection::Connection;
use super::{Open, Run};
use crate::daemon_swarm::Class;
use crate::daemon_swarm::client::Reply;
use crate::daemon_swarm::oracle::{Change, fill};
use crate::daemon_swarm::plan::{Ask, Verb};
use ftld_device::volume::{Idle, Step, UNSYNCED_AGE_MAX, UnsyncedAge, Volume};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Request of a racer: cookie, payload, request, version.
type Job = (u64, Vec<u8>, Ask, u32);

/// Answer to a job: submission time, reply time, request, version, reply.
type Answer = (u64, u64, Ask, u32, Reply);

impl<'a> Run<'a> {
    pub(super) fn race(&mut self, asks: &[(usize, Ask)], pauses: u32) -> Result<(), String> {
        self.drain()?;
        let racers = self.connections.len();
        let mut work: Vec<Vec<Job>> = vec![Vec::new(); racers];
        for (who, ask) in asks {
            if *who >= racers || !self.is_inside(ask) {
                continue;
            }
            self.cookies += 1;
            self.versions += 1;
            let mut payload = Vec::new();
            if ask.verb == Verb::Write {
                payload.resize(ask.length as usize, 0);
                fill(self.plan.seed, self.versions, ask.offset, &mut payload);
            }
            work[*who].push((self.cookies, payload, *ask, self.versions));
        }
        self.racing = true;
        let (clock, volume, done) = (
            self.clock.clone(),
            self.volume.clone(),
            AtomicBool::new(false),
        );
        let running = work.iter().filter(|each| !each.is_empty()).count();
        let barrier = Barrier::new(running + 1);
        let handle = Handle::current();
        let mut logs: Vec<Vec<Answer>> = Vec::new();
        let mut idle_worked = false;
        std::thread::scope(|scope| {
            let racers = self
                .connections
                .iter_mut()
                .zip(&work)
                .filter(|(_, work)| !work.is_empty());
            let threads: Vec<_> = racers
                .map(|(connection, work)| {
                    let (clock, barrier, handle) = (&clock, &barrier, &handle);
                    scope.spawn(move || {
                        let _context = handle.enter();
                        connection.client.pipe.allow(usize::MAX, usize::MAX);
                        barrier.wait();
                        race_alone(connection, work, clock)
                    })
                })
                .collect();
            let background = scope.spawn(|| work_behind(&volume, &done));
            barrier.wait();
            let paused = (0..pauses).try_for_each(|round| pause(&volume, round));
            volume.resume();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Ordering::SeqCst);
            idle_worked = background.join().map_err(|_| "background work panicked")?;
            for log in ended {
                logs.push(log.unwrap_or_else(|_| Err("a racer panicked".into()))?);
            }
            paused
        })?;
        if idle_worked {
            self.note(Class::IdleRaces);
        }
        if pauses > 0 {
            self.note(Class::Paused);
        }
        self.look_at_faults()?;
        let replayed = self.replay(logs);
        self.racing = false;
        replayed?;
        (0..self.connections.len()).try_for_each(|who| self.take(who))
    }

    /// Replays a race to the oracle, in the order of occurrence.
    fn replay(&mut self, logs: Vec<Vec<Answer>>) -> Result<(), String> {
        let all: Vec<(usize, Answer)> = logs
            .into_iter()
            .enumerate()
            .flat_map(|(who, log)| log.into_iter().map(move |each| (who, each)))
            .collect();
        let overlap = |one: &(u64, u64, Ask, u32, Reply), other: &(u64, u64, Ask, u32, Reply)| {
            let pages = |ask: &Ask| {
                let page = u64::from(self.plan.page);
                ask.offset / page..(ask.offset + ask.length).div_ceil(page)
            };
            let (a, b) = (pages(&one.2), pages(&other.2));
            one.0 < other.1 && other.0 < one.1 && a.start < b.end && b.start < a.end
        };
        let mut met = BTreeSet::new();
        for (place, (who, one)) in all.iter().enumerate() {
            for (_, other) in all[..place]
                .iter()
                .filter(|(other, each)| other != who && overlap(one, each))
            {
                match (one.2.verb, other.2.verb) {
                    (Verb::Write, Verb::Write) => met.insert(Class::TwoWriters.name()),
                    (Verb::Read, Verb::Trim | Verb::Zero)
                    | (Verb::Trim | Verb::Zero, Verb::Read) => {
                        met.insert(Class::TrimRacesRead.name())
                    }
                    _ => false,
                };
            }
        }
        met.into_iter().for_each(|class| self.classes.note(class));
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (place, (_, each)) in all.iter().enumerate() {
            events.extend([(each.0, true, place), (each.1, false, place)]);
        }
        events.sort_unstable();
        let mut ops = vec![None; all.len()];
        self.oracle.horizon = events.first().map_or(0, |event| event.0);
        for (when, begins, place) in events {
            let (who, (began, _, ask, version, reply)) = &all[place];
            if begins {
                let range = ask.offset..ask.offset + ask.length;
                let change = if ask.verb == Verb::Write {
                    Change::Version(*version)
                } else {
                    Change::Zeros
                };
                ops[place] = ask.changes().then(|| self.oracle.submit(change, range));
                continue;
            }
            let who = self.plan.wires.len().min(*who);
            let open = Open {
                ask: *ask,
                who,
                op: ops[place],
                began: *began,
                during_sync: false,
                behind: false,
            };
            self.replied(&open, reply, when)
                .map_err(|why| format!("racing {ask}: {why}"))?;
        }
        Ok(())
    }
}

/// Runs the requests of one connection in sequence; records start and end time of each.
pub(super) fn race_alone(
    connection: &mut Connection,
    work: &[(u64, Vec<u8>, Ask, u32)],
    clock: &AtomicU64,
) -> Result<Vec<Answer>, String> {
    let mut log = Vec::new();
    for (cookie, payload, ask, op) in work {
        let began = clock.fetch_add(1, Ordering::SeqCst);
        connection.client.send(*cookie, ask, payload);
        let reply = loop {
            connection.poll();
            if let Some(reply) = connection.client.receive()?.pop() {
                break reply;
            }
            if connection.is_broken() {
                return Ok(log);
            }
            if let Some(end) = &connection.ended {
                return Err(format!("a racing connection ended: {end:?}"));
            }
            std::thread::yield_now();
        };
        log.push((
            began,
            clock.fetch_add(1, Ordering::SeqCst),
            *ask,
            *op,
            reply,
        ));
    }
    Ok(log)
}

/// Lets time pass for the volume until its oldest operation has to be synced.
pub(super) fn sync_old_operations(volume: &Volume) {
    let now = Instant::now();
    let mut age = UnsyncedAge::new(now);
    volume.sync_when_due(&mut age, now);
    volume.sync_when_due(&mut age, now + UNSYNCED_AGE_MAX);
}

/// Runs background work until the racers are done. Returns whether there was any.
fn work_behind(volume: &Volume, done: &AtomicBool) -> bool {
    let mut worked = false;
    while !done.load(Ordering::SeqCst) {
        worked |= volume.idle(8) == Idle::More;
        volume.publish(false);
        volume.discard_freed_space();
        volume.reclaim_when_short(Duration::ZERO);
        sync_old_operations(volume);
        std::thread::yield_now();
    }
    worked
}

/// Pauses and resumes the device, sometimes by a step. While it is paused no flash operation
/// begins.
fn pause(volume: &Volume, round: u32) -> Result<(), String> {
    if volume.pause(Duration::from_secs(20)).is_err() {
        return Ok(());
    }
    let operations = || {
        volume.publish(true);
        volume.flash().counters.total()
    };
    let before = operations();
    for _ in 0..3 {
        volume.idle(8);
        std::thread::yield_now();
    }
    let after = operations();
    if before != after {
        return Err(format!("a paused device went from {before:?} to {after:?}"));
    }
    if round % 2 == 1 {
        volume
            .step(Step::Requests(1))
            .map_err(|failure| failure.to_string())?;
        std::thread::yield_now();
    }
    volume.resume();
    Ok(())
}
