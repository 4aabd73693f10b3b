//! Scenes of a plan: short sequences of actions that produce one situation.

use super::draw::Draw;
use super::{ALL, Action, Ask, DaemonEnd, Verb};
use ftld_host_disk::{Crash, End};

impl Draw {
    /// Writes of one connection, made durable by it or by another one; then a crash.
    pub(super) fn durable(&mut self) {
        for _ in 0..self.rng.below(3) {
            self.request();
        }
        let (writer, flusher) = (self.who(), self.who());
        let (offset, length) = self.extent();
        let verb = [
            Verb::Trim,
            Verb::Zero,
            Verb::Write,
            Verb::Write,
            Verb::Write,
        ][self.rng.below(5) as usize];
        let mut ask = Ask::new(verb, offset, length);
        ask.fua = self.rng.one_in(2);
        ask.no_hole = verb == Verb::Zero && self.rng.one_in(2);
        self.act(Action::Send(writer, ask));
        self.turn(writer);
        if !ask.fua {
            self.act(Action::Send(flusher, Ask::new(Verb::Flush, 0, 0)));
            self.turn(flusher);
        }
        for _ in 0..1 + self.rng.below(3) {
            self.check_state();
        }
    }

    /// Concurrent requests, served in parts.
    pub(super) fn overlap(&mut self) {
        let count = 2 + self.rng.below(3);
        let mut busy = Vec::new();
        for _ in 0..count {
            let (who, ask) = (self.who(), self.ask());
            self.act(Action::Send(who, ask));
            busy.push(who);
        }
        for _ in 0..self.rng.below(8) {
            let who = busy[self.rng.below(count) as usize];
            let room = self.plan.piece + 40;
            let (inward, outward) = (
                self.rng.below(u64::from(room)) as u32,
                self.rng.below(u64::from(room)) as u32,
            );
            self.act(Action::Turn(who, inward, outward));
        }
        if self.rng.one_in(2) {
            self.check_state();
        }
        busy.into_iter().for_each(|who| self.turn(who));
        if self.rng.one_in(2) {
            self.check_state();
        }
    }

    /// Requests while a sync is in progress.
    pub(super) fn held_sync(&mut self) {
        self.act(Action::Hold(true));
        for _ in 0..2 + self.rng.below(4) {
            let who = self.who();
            let mut ask = self.ask();
            if self.rng.one_in(2) {
                ask = Ask::new(Verb::Flush, 0, 0);
            } else if ask.changes() && self.rng.one_in(2) {
                ask.fua = true;
            }
            self.act(Action::Send(who, ask));
            self.turn(who);
            if self.rng.one_in(3) {
                self.check_state();
            }
            if self.rng.one_in(3) {
                self.act(Action::Sync);
                self.check_state();
            }
        }
        if self.ends && self.rng.one_in(6) {
            self.end_daemon();
        }
        self.act(Action::Hold(false));
        self.check_state();
    }

    fn small_write(&mut self, fua: bool) -> Ask {
        let (offset, length) = self.extent();
        let mut ask = Ask::new(
            Verb::Write,
            offset,
            length.min(u64::from(self.plan.page) * 3),
        );
        ask.fua = fua;
        ask
    }

    /// A FUA write of several pieces; another connection works and syncs between them. Then a
    /// crash.
    pub(super) fn fua_in_pieces(&mut self) {
        let (who, other) = (self.who(), self.who());
        let piece = u64::from(self.plan.piece);
        let (offset, _) = self.extent();
        let length = (piece * (2 + self.rng.below(3)))
            .min(256 << 10)
            .min(self.plan.size - offset);
        let mut ask = Ask::new(Verb::Write, offset, length);
        ask.fua = true;
        self.act(Action::Send(who, ask));
        // A head has 28 or 32 bytes.
        let first = 32 + piece - offset % piece;
        let inward = first + self.rng.below((length + 32).saturating_sub(first).max(1));
        self.act(Action::Turn(who, inward as u32, ALL));
        if other != who {
            if self.rng.one_in(2) {
                let ask = self.small_write(false);
                self.act(Action::Send(other, ask));
            }
            self.act(Action::Send(other, Ask::new(Verb::Flush, 0, 0)));
            self.turn(other);
        }
        self.turn(who);
        let (crash, again) = (
            if self.rng.one_in(2) {
                Crash::Nothing
            } else {
                self.crash()
            },
            None,
        );
        self.act(Action::CheckState(End::Crash(crash), again));
    }

    /// A sync in progress for one connection, with many requests behind it. The syncs complete one
    /// by one, with a crash after each.
    pub(super) fn behind_a_sync(&mut self) {
        let (first, second) = (self.who(), self.who());
        self.act(Action::Hold(true));
        let ask = self.small_write(true);
        self.act(Action::Send(first, ask));
        self.turn(first);
        for _ in 0..3 + self.rng.below(5) {
            let who = if self.rng.one_in(3) {
                self.who()
            } else {
                second
            };
            let ask = match self.rng.below(8) {
                0..3 => Ask::new(Verb::Flush, 0, 0),
                3..6 => self.small_write(true),
                6 => self.small_write(false),
                _ => self.ask(),
            };
            self.act(Action::Send(who, ask));
            self.turn(who);
        }
        for _ in 0..2 + self.rng.below(3) {
            self.act(Action::Sync);
            let crash = if self.rng.one_in(2) {
                Crash::Nothing
            } else {
                self.crash()
            };
            self.act(Action::CheckState(End::Crash(crash), None));
        }
        self.act(Action::Hold(false));
        self.check_state();
    }

    /// A connection that ends with requests in flight.
    pub(super) fn leave(&mut self) {
        let who = self.who();
        let held = self.holds && self.rng.one_in(3);
        if held {
            self.act(Action::Hold(true));
        }
        let mut bytes = 0;
        for _ in 0..1 + self.rng.below(4) {
            let ask = self.ask();
            bytes += 32
                + if ask.verb == Verb::Write {
                    ask.length
                } else {
                    0
                };
            self.act(Action::Send(who, ask));
            if self.rng.one_in(3) {
                let inward = self.rng.below(bytes + 1);
                self.act(Action::Turn(who, inward as u32, ALL));
            }
        }
        if held && self.rng.one_in(2) {
            self.check_state();
        }
        let after = if self.rng.one_in(3) {
            None
        } else {
            Some(self.rng.below(bytes + 1) as u32)
        };
        self.act(Action::Leave(who, after));
        match self.rng.below(3) {
            0 => self.check_state(),
            1 => self.act(Action::Check(who)),
            _ => self.durable(),
        }
    }

    /// A stop with requests in flight, half of them behind a sync in progress.
    pub(super) fn stop_amid(&mut self) {
        if self.rng.one_in(2) {
            self.act(Action::Hold(true));
        }
        for _ in 0..2 + self.rng.below(4) {
            let (who, mut ask) = (self.who(), self.ask());
            match self.rng.below(4) {
                0 => ask = Ask::new(Verb::Flush, 0, 0),
                1 => ask = self.small_write(true),
                _ => {}
            }
            self.act(Action::Send(who, ask));
            let inward = if self.rng.one_in(2) {
                ALL
            } else {
                self.rng.below(ask.length + 40) as u32
            };
            self.act(Action::Turn(who, inward, ALL));
        }
        let look = !self.rng.one_in(4);
        self.act(Action::End(DaemonEnd::Stop, look));
    }

    pub(super) fn failing_write(&mut self) {
        let errno = if self.rng.one_in(2) { 28 } else { 5 };
        let arrives = if self.rng.one_in(2) {
            0
        } else {
            self.rng.below(2000) as usize
        };
        let left = self.rng.below(16);
        self.act(Action::FailWrite(left, arrives, errno));
        let (who, piece) = (self.who(), u64::from(self.plan.piece));
        for _ in 0..1 + self.rng.below(3) {
            let (offset, _) = self.extent();
            let length = (piece * (2 + self.rng.below(4)))
                .min(64 << 10)
                .min(self.plan.size - offset);
            let verb = [
                Verb::Trim,
                Verb::Zero,
                Verb::Write,
                Verb::Write,
                Verb::Write,
            ][self.rng.below(5) as usize];
            let mut ask = Ask::new(verb, offset, length);
            ask.fua = self.rng.one_in(3);
            self.act(Action::Send(who, ask));
            self.turn(who);
        }
        match self.rng.below(3) {
            0 => self.act(Action::Check(who)),
            1 => self.check_state(),
            _ => self.durable(),
        }
    }

    pub(super) fn failing_sync(&mut self) {
        let count = 1 + self.rng.below(2);
        self.act(Action::FailSyncs(count));
        self.durable();
        self.request();
        if self.rng.one_in(2) {
            // Reads are still served.
            let who = self.who();
            self.act(Action::Check(who));
        }
        if self.rng.one_in(2) {
            let end = if self.rng.one_in(2) {
                End::Kill
            } else {
                self.end()
            };
            self.act(Action::End(DaemonEnd::Sudden(end), true));
            self.durable();
        } else {
            self.end_daemon();
        }
    }
}
