//! Draws the plan of a seed.

use super::{ALL, Action, Ask, DaemonEnd, Plan, Verb, WIRES};
use ftl_core::schemes::SCHEMES;
use ftld_battery::rig::{Cells, has_param};
use ftld_device::volume::write_cache::{CacheOptions, Model};
use ftld_host_disk::{Crash, End, Freeze};
use nand_model::{SplitMix, Striping};

/// Device sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Few pages.
    Small,
    /// More than two slices of the volume, with requests that cross a slice boundary.
    Slices,
    /// More pages than one slice of a trim.
    Long,
}

/// Generator of plans.
pub(super) struct Draw {
    pub(super) rng: SplitMix,
    pub(super) plan: Plan,
    pub(super) shape: Shape,
    pub(super) hot: u64,
    /// Kinds of faults in this run.
    pub(super) writes_fail: bool,
    pub(super) syncs_fail: bool,
    pub(super) cuts: bool,
    pub(super) races: bool,
    pub(super) holds: bool,
    pub(super) ends: bool,
    pub(super) leaves: bool,
    pub(super) write_checks: bool,
}

/// Draws the plan of a seed.
pub fn draw(seed: u64) -> Plan {
    let mut rng = SplitMix::new(seed ^ 0x5EED_0DAE);
    let shape = match rng.below(60) {
        0 | 1 => Shape::Long,
        2..6 => Shape::Slices,
        _ => Shape::Small,
    };
    let pick = |rng: &mut SplitMix, from: &[u32]| from[rng.below(from.len() as u64) as usize];
    let page = match shape {
        Shape::Small => pick(&mut rng, &[512, 1024, 1024, 2048, 4096]),
        Shape::Slices => pick(&mut rng, &[2048, 4096]),
        Shape::Long => 512,
    };
    let pages = match shape {
        Shape::Small => 40 + rng.below(90),
        Shape::Slices => (1 << 20) / u64::from(page) + 30 + rng.below(60),
        Shape::Long => 16_500 + rng.below(400),
    };
    let odd = if rng.one_in(3) {
        0
    } else {
        rng.below(u64::from(page / 512)) * 512
    };
    let wires = (0..1 + rng.below(4))
        .map(|_| WIRES[rng.below(4) as usize])
        .collect();
    let scheme = &SCHEMES[rng.below(SCHEMES.len() as u64) as usize];
    let acks = ["mlam.ack", "leaftl.ack"];
    let ack = acks.into_iter().find(|key| has_param(scheme, key));
    let ack = ack.filter(|_| rng.one_in(2));
    // From 64 KiB on the server searches a read for holes.
    let pieces = if rng.one_in(5) {
        64 << 10
    } else {
        page * pick(&mut rng, &[1, 2, 3, 8])
    };
    let striping = striping(seed, page);
    let plan = Plan {
        seed,
        scheme: scheme.name.to_owned(),
        cells: Cells::ALL[rng.below(2) as usize],
        page,
        block: pick(&mut rng, &[8, 16, 16, 32]),
        size: pages * u64::from(page) - odd,
        op: pick(&mut rng, &[7, 7, 15, 30]),
        spare: pick(&mut rng, &[4, 6, 12, 40]),
        checkpoint: pick(&mut rng, &[60, 150, 1000]),
        piece: if shape == Shape::Small {
            pieces
        } else {
            1 << 20
        },
        striping,
        cache: cache(seed).map(|cache| match striping {
            None => cache,
            Some(striping) => CacheOptions {
                // Each shard has an equal part, which holds at least what a trim needs.
                bytes: cache.bytes * u64::from(striping.count),
                // Several caches keep no common order.
                model: match cache.model {
                    Model::Ordered => Model::Any,
                    model => model,
                },
                ..cache
            },
        }),
        params: ack
            .map(|key| (key.into(), "buffer".into()))
            .into_iter()
            .collect(),
        wires,
        actions: Vec::new(),
    };
    let hot = rng.below(plan.size / 2);
    let mut draw = Draw {
        writes_fail: rng.one_in(2),
        syncs_fail: rng.one_in(4),
        cuts: rng.one_in(3),
        races: rng.one_in(3),
        holds: rng.one_in(2),
        ends: !rng.one_in(4),
        leaves: rng.one_in(2),
        write_checks: rng.one_in(2),
        rng,
        plan,
        shape,
        hot,
    };
    draw.fill();
    let steps = 20 + draw.rng.below(if shape == Shape::Small { 60 } else { 15 });
    for _ in 0..steps {
        draw.step();
    }
    draw.plan
}

/// Draws the shards of a run, with short stripes: a request has parts in several of them.
fn striping(seed: u64, page: u32) -> Option<Striping> {
    let mut rng = SplitMix::new(seed ^ 0x05A2_D500);
    rng.one_in(3).then(|| Striping {
        count: [2, 2, 3, 4][rng.index(4)],
        stripe_bytes: u64::from(page) * [1, 2, 4, 8][rng.index(4)],
    })
}

/// Draws the write cache of a run. Its own generator leaves the rest of the plan as it is.
fn cache(seed: u64) -> Option<CacheOptions> {
    let mut rng = SplitMix::new(seed ^ 0x00CA_C4E0);
    rng.one_in(2).then(|| CacheOptions {
        bytes: [64 << 10, 256 << 10, 2 << 20][rng.index(3)],
        model: [Model::Any, Model::Ordered, Model::Lost][rng.index(3)],
        tear: rng.one_in(3).then_some(512),
        protected: rng.one_in(5),
    })
}

impl Draw {
    pub(super) fn act(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    pub(super) fn who(&mut self) -> usize {
        self.rng.below(self.plan.wires.len() as u64) as usize
    }

    pub(super) fn turn(&mut self, who: usize) {
        self.act(Action::Turn(who, ALL, ALL));
    }

    /// Writes initial content, on most devices.
    fn fill(&mut self) {
        if self.shape == Shape::Long || self.rng.one_in(4) {
            return;
        }
        let (size, step) = (self.plan.size, u64::from(self.plan.piece).max(16 << 10));
        let mut at = 0;
        while at < size {
            let length = step.min(size - at);
            self.act(Action::Send(0, Ask::new(Verb::Write, at, length)));
            self.turn(0);
            at += length;
        }
    }

    /// Draws the offset and length of a request.
    pub(super) fn extent(&mut self) -> (u64, u64) {
        let (size, page, piece) = (
            self.plan.size,
            u64::from(self.plan.page),
            u64::from(self.plan.piece),
        );
        let window = (page * 6).min(size);
        let near = self.rng.below(10) < 7;
        let mut at = if near {
            (self.hot + self.rng.below(window)).min(size - 1)
        } else {
            self.rng.below(size)
        };
        let length = match self.rng.below(12) {
            0 => 1 + self.rng.below(8),
            1..5 => 1 + self.rng.below(page),
            5 | 6 => page,
            7 | 8 => page * (1 + self.rng.below(4)),
            9 => piece + self.rng.below(piece * 3),
            10 => piece * (1 + self.rng.below(4)),
            _ => 1 + self.rng.below(page * 12),
        };
        if self.rng.one_in(2) {
            at -= at % page;
        } else if self.rng.one_in(2) {
            at -= at % 512;
        }
        let length = match self.shape {
            Shape::Slices if self.rng.one_in(6) => (512 << 10) + self.rng.below(500 << 10),
            _ => length.min(256 << 10),
        };
        (at, length.min(size - at))
    }

    pub(super) fn ask(&mut self) -> Ask {
        let (offset, length) = self.extent();
        let verb = match self.rng.below(24) {
            0..11 => Verb::Write,
            11..14 => Verb::Trim,
            14 | 15 => Verb::Zero,
            16..19 => Verb::Read,
            19 => Verb::Status,
            20 => Verb::Cache,
            _ => return Ask::new(Verb::Flush, 0, 0),
        };
        let mut ask = Ask::new(verb, offset, length);
        match verb {
            Verb::Read => {
                ask.df = self.rng.one_in(3);
                // The server searches long reads for holes.
                if self.rng.one_in(3) {
                    let at = self.rng.below(self.plan.size / 4 + 1);
                    (ask.offset, ask.length) = (at, (self.plan.size - at).min(300 << 10));
                }
            }
            Verb::Status => {
                ask.df = self.rng.one_in(4);
                (ask.offset, ask.length) = (offset / 2, self.plan.size - offset / 2);
            }
            Verb::Zero => {
                (ask.no_hole, ask.fast) = (self.rng.one_in(3), self.rng.one_in(3));
                ask.fua = self.rng.one_in(3);
            }
            Verb::Write | Verb::Trim => ask.fua = self.rng.one_in(4),
            Verb::Cache | Verb::Flush => {}
        }
        if self.shape == Shape::Long && ask.verb == Verb::Trim && self.rng.one_in(2) {
            let at = self.rng.below(200 * 512);
            (ask.offset, ask.length) = (
                at,
                (self.plan.size - at).min(16_384 * 512 + self.rng.below(99_999)),
            );
        }
        if self.rng.one_in(60) {
            ask.offset =
                self.plan.size - ask.length.min(self.plan.size) + 1 + self.rng.below(9_999);
        }
        ask
    }

    pub(super) fn crash(&mut self) -> Crash {
        let seed = self.rng.below(1 << 32);
        match self.rng.below(12) {
            0..3 => Crash::Nothing,
            3..5 => Crash::Prefix(seed),
            5..7 => Crash::AllBut(seed),
            7..9 => Crash::Writes(seed),
            9..11 => Crash::Sectors(seed),
            _ => Crash::Mask(seed),
        }
    }

    pub(super) fn end(&mut self) -> End {
        if self.rng.one_in(5) {
            End::Kill
        } else {
            End::Crash(self.crash())
        }
    }

    pub(super) fn check_state(&mut self) {
        let again = if self.rng.one_in(4) {
            Some(self.crash())
        } else {
            None
        };
        let end = self.end();
        self.act(Action::CheckState(end, again));
    }

    pub(super) fn request(&mut self) {
        let (who, ask) = (self.who(), self.ask());
        self.act(Action::Send(who, ask));
        self.turn(who);
    }

    fn step(&mut self) {
        match self.rng.below(36) {
            30 => self.fua_in_pieces(),
            31 | 32 if self.holds => self.behind_a_sync(),
            33 | 34 if self.leaves => self.leave(),
            35 if self.ends => self.stop_amid(),
            35 => {
                let end = self.end();
                self.act(Action::ReadOnly(end));
            }
            0..7 => self.request(),
            7..12 => self.durable(),
            12..15 => self.overlap(),
            15..18 if self.holds => self.held_sync(),
            18..20 if self.writes_fail => self.failing_write(),
            20 if self.syncs_fail => self.failing_sync(),
            21 if self.cuts => self.cut(),
            22 if self.cuts => self.cut_amid_a_read(),
            23..26 if self.races => self.race(),
            26..28 if self.ends => self.end_daemon(),
            28 => {
                let (who, budget) = (self.who(), 1 + self.rng.below(40) as u32);
                self.act(Action::Idle(budget));
                self.act(Action::Check(who));
            }
            _ if self.write_checks => {
                let (writes, end) = (self.rng.below(12), self.end());
                self.act(Action::CheckBeforeWrite(writes, end));
                self.request();
            }
            _ => self.check_state(),
        }
    }

    pub(super) fn cut(&mut self) {
        let after = if self.rng.one_in(4) {
            None
        } else {
            Some(self.rng.below(12))
        };
        let seed = self.rng.below(1 << 32);
        self.act(Action::Cut(after, seed));
        for _ in 0..1 + self.rng.below(3) {
            self.request();
        }
        if self.rng.one_in(3) {
            self.check_state();
        }
        self.power_off();
    }

    fn power_off(&mut self) {
        let (end, look) = (self.end(), !self.rng.one_in(4));
        let how = if self.rng.one_in(3) {
            DaemonEnd::Stop
        } else {
            DaemonEnd::Sudden(end)
        };
        self.act(Action::End(how, look));
    }

    /// Cuts power after the reply to a read of several pieces has begun.
    fn cut_amid_a_read(&mut self) {
        let (who, size) = (self.who(), self.plan.size);
        let pieces = u64::from(self.plan.piece) * (2 + self.rng.below(4));
        let at = self.rng.below(size - pieces.min(size) + 1);
        let mut ask = Ask::new(Verb::Read, at, pieces.min(size));
        ask.df = self.rng.one_in(2);
        self.act(Action::Send(who, ask));
        let outward = 1 + self.rng.below(u64::from(self.plan.piece)) as u32;
        self.act(Action::Turn(who, ALL, outward));
        let seed = self.rng.below(1 << 32);
        self.act(Action::Cut(None, seed));
        self.turn(who);
        self.power_off();
    }

    pub(super) fn race(&mut self) {
        let (page, size) = (u64::from(self.plan.page), self.plan.size);
        let first = self.rng.below(size.div_ceil(page)) * page;
        let racers = self
            .plan
            .wires
            .len()
            .min(2 + self.rng.below(2) as usize)
            .max(1);
        let mut asks = Vec::new();
        for _ in 0..2 + self.rng.below(4) {
            for who in 0..racers {
                let from = first + self.rng.below(page.min(size - first));
                let length = 1 + self.rng.below(page.min(size - from).min(200));
                let verb = match self.rng.below(12) {
                    0 => Verb::Read,
                    1 => Verb::Trim,
                    2 => Verb::Zero,
                    _ => Verb::Write,
                };
                let mut ask = Ask::new(verb, from, length);
                if self.rng.one_in(6) {
                    let length = self.extent().1.min(size - first);
                    ask = Ask::new(
                        if self.rng.one_in(2) {
                            Verb::Trim
                        } else {
                            Verb::Read
                        },
                        first,
                        length,
                    );
                }
                ask.fua = ask.changes() && self.rng.one_in(10);
                asks.push((who, ask));
            }
        }
        let pauses = if self.rng.one_in(2) {
            0
        } else {
            1 + self.rng.below(6) as u32
        };
        self.act(Action::Race(asks, pauses));
        let who = self.who();
        let check = self.rng.one_in(2);
        self.act(if check {
            Action::Check(who)
        } else {
            Action::Turn(who, ALL, ALL)
        });
    }

    /// Draws the write or sync at which a start or a stop freezes.
    fn freeze(&mut self, writes: u64) -> Freeze {
        if self.rng.one_in(2) {
            Freeze::Sync(self.rng.below(6))
        } else {
            Freeze::Write(self.rng.below(writes))
        }
    }

    pub(super) fn end_daemon(&mut self) {
        let look = !self.rng.one_in(3);
        match self.rng.below(6) {
            0 if self.rng.one_in(2) => {
                let (at, end) = (self.freeze(24), self.end());
                self.act(Action::EndInStop(at, end));
            }
            0 => self.act(Action::End(DaemonEnd::Stop, look)),
            1 => {
                let (first, at, second) = (self.end(), self.freeze(14), self.end());
                self.act(Action::EndTwice(first, at, second));
            }
            2 | 3 => self.act(Action::End(DaemonEnd::Sudden(End::Kill), look)),
            _ => {
                let how = self.crash();
                self.act(Action::End(DaemonEnd::Sudden(End::Crash(how)), look));
            }
        }
        if self.rng.one_in(2) {
            self.check_state();
        }
    }
}
