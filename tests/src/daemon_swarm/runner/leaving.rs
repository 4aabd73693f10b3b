//! Ends of connections, and of their requests.

use super::Run;
use super::connection::connect;
use super::requests::UNANSWERED;
use crate::daemon_swarm::Class;
use crate::daemon_swarm::plan::{Ask, Verb};
use std::time::Instant;

impl<'a> Run<'a> {
    /// Reads the whole device through a connection.
    pub(super) fn check(&mut self, who: usize) -> Result<(), String> {
        let step = 128 << 10;
        for at in (0..self.plan.size).step_by(step) {
            self.send(
                who,
                Ask::new(Verb::Read, at, (self.plan.size - at).min(step as u64)),
            );
            self.turn(who, usize::MAX, usize::MAX)?;
        }
        Ok(())
    }

    /// Completes all requests. A stop ends the sessions, too.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.gate.hold(false);
        let until = Instant::now() + UNANSWERED;
        loop {
            for who in 0..self.connections.len() {
                self.turn(who, usize::MAX, usize::MAX)?;
            }
            let done = match self.stopping {
                true => self.connections.iter().all(|each| each.session.is_none()),
                false => self.open.is_empty(),
            };
            if done || Instant::now() > until {
                break;
            }
        }
        match self.open.values().next() {
            Some(open) if !self.stopping => Err(format!("{} is never answered", open.ask)),
            _ => Ok(()),
        }
    }

    /// Ends a connection with its requests in flight, and starts another in its place.
    pub(super) fn leave(&mut self, who: usize, hang_up: Option<usize>) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(who) else {
            return Ok(());
        };
        let in_flight = !connection.client.open.is_empty();
        connection.left = true;
        connection.client.leave(hang_up);
        self.turn(who, usize::MAX, usize::MAX)?;
        let until = Instant::now() + UNANSWERED;
        while self.connections[who].session.is_some() {
            if Instant::now() > until {
                return Err(format!("connection {who} outlives its client"));
            }
            // The session may wait for a sync that waits for the runner.
            self.gate.hold(false);
            self.turn(who, usize::MAX, usize::MAX)?;
        }
        let inside = self.end_of_connection(who)?;
        let end = self.connections[who].ended.as_ref().expect("it has ended");
        if end.is_ok() == inside && !self.is_broken(who) {
            return Err(format!(
                "connection {who} ended inside a message: {inside}, {end:?}"
            ));
        }
        if in_flight {
            self.note(Class::Left);
        }
        if inside {
            self.note(Class::HungUp);
        }
        self.reconnect(who)?;
        let connected = self.stats.snapshot().connected;
        if connected != self.plan.wires.len() as u64 {
            return Err(format!(
                "{connected} sessions counted after connection {who} was replaced"
            ));
        }
        Ok(())
    }

    pub(super) fn is_broken(&self, who: usize) -> bool {
        self.connections[who].is_broken() && self.volume.is_powerless()
    }

    /// Replaces a session that ended because power failed within a read of several pieces; its
    /// requests have no replies.
    pub(super) fn replace_broken(&mut self, who: usize) -> Result<(), String> {
        self.forget_requests(who)?;
        self.note(Class::Broken);
        self.reconnect(who)
    }

    fn reconnect(&mut self, who: usize) -> Result<(), String> {
        let seen = self.connections[who].seen;
        self.connections[who] = connect(self.plan, who, &self.volume, &self.gate, &self.stats)?;
        self.connections[who].seen = seen;
        Ok(())
    }

    /// Ends the requests of a connection: those without a reply took effect by then or never, and
    /// completely received ones have a reply. Returns whether the last message was incomplete.
    pub(super) fn end_of_connection(&mut self, who: usize) -> Result<bool, String> {
        let (whole, inside) = self.connections[who].client.unanswered();
        if let Some(ask) = whole.filter(|_| !self.is_broken(who)) {
            return Err(format!(
                "connection {who} ended, and {ask} was not answered"
            ));
        }
        self.forget_requests(who)?;
        Ok(inside)
    }

    fn forget_requests(&mut self, who: usize) -> Result<(), String> {
        let gone: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| open.who == who)
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in gone {
            let open = self.open.remove(&cookie).expect("listed");
            self.traffic.errors += 1;
            if let Some(op) = open.op {
                let now = self.now();
                self.oracle.answered(op, now, false, false)?;
            }
        }
        Ok(())
    }
}
