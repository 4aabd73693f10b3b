//! The steps of a plan: rounds of requests, and the events between them.

use super::draw::pick;
use super::{CHUNK, DiskFault, Down, EIO, ENOSPC, FILL, Inside, LARGE, Plan, Restart, Step};
use crate::rig::Cells;
use crate::workload::{HostOp, Kind, Workload};
use ftld_host_disk::{Crash, Freeze, SyncFault, WriteFault};
use nand_model::{Cut, EraseCut, Fault, PartnerCut, ProgramCut, SplitMix};

/// Draws the steps of a plan.
pub(super) struct Steps<'a> {
    plan: &'a Plan,
    rng: &'a mut SplitMix,
    steps: Vec<Step>,
    /// Whether the host neither sends FLUSH nor FUA.
    never_flushes: bool,
    /// Weights of the kinds of event in this run, in the order of [`EVENTS`].
    weights: [u64; EVENTS.len()],
}

/// Kinds of event between requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Cut,
    Down,
    Decay,
    /// A fault of the host's disk.
    Disk,
    /// A sync, or space released to the host.
    Image,
    Crash,
    /// A part of the chip fails.
    Part,
    PowerOff,
    Kill,
}

const EVENTS: [Event; 9] = [
    Event::Cut,
    Event::Down,
    Event::Decay,
    Event::Disk,
    Event::Image,
    Event::Crash,
    Event::Part,
    Event::PowerOff,
    Event::Kill,
];

impl Event {
    fn needs_disk(self) -> bool {
        matches!(self, Event::Disk | Event::Image | Event::Crash)
    }
}

impl<'a> Steps<'a> {
    pub(super) fn new(plan: &'a Plan, rng: &'a mut SplitMix) -> Self {
        // A random subset of kinds per run: a kind that is rare among all is frequent among a few.
        let on_disk = plan.device.on_disk;
        let never_flushes = rng.one_in(6);
        let mut weights = [0; EVENTS.len()];
        loop {
            for (event, weight) in EVENTS.iter().zip(&mut weights) {
                let possible = on_disk || !event.needs_disk();
                *weight = if possible && rng.below(5) < 2 {
                    1 + rng.below(4)
                } else {
                    0
                };
            }
            if weights.iter().filter(|weight| **weight > 0).count() >= 2 {
                return Steps {
                    plan,
                    rng,
                    steps: Vec::new(),
                    never_flushes,
                    weights,
                };
            }
        }
    }

    pub(super) fn draw(mut self) -> Vec<Step> {
        let device = &self.plan.device;
        let large = device.is_large();
        let first = pick(self.rng, &Kind::ALL);
        if !large {
            let seed = self.rng.next_u64();
            let fill = Workload::new(first, device.pages, seed).take(2 * device.pages as usize);
            let fill = fill.take_while(|op| matches!(op, HostOp::Write { .. } | HostOp::Flush));
            self.steps
                .extend(fill.take(device.pages as usize / 2).map(Step::Do));
        } else {
            let filled = device.pages / 8 * (5 + self.rng.below(4) as u32);
            // On a simulated disk every erase waits for a sync: minutes for one run.
            let extents = match !device.on_disk && self.rng.one_in(3) {
                true => self.in_random_order(filled),
                false => in_order(filled, FILL).collect(),
            };
            self.steps.extend(extents.into_iter().map(|(lpn, count)| {
                Step::Do(HostOp::Write {
                    lpn,
                    count,
                    fua: false,
                })
            }));
        }
        let rounds = 2 + self.rng.below(if large { 3 } else { 5 });
        for _ in 0..rounds {
            let kind = if self.rng.one_in(3) {
                pick(self.rng, &Kind::ALL)
            } else {
                first
            };
            let length = 8 + self.rng.below(if large { 120 } else { 90 });
            self.requests(kind, length);
            self.event();
            // Sometimes events follow each other directly.
            while self.rng.one_in(3) {
                let few = self.rng.below(6);
                self.requests(kind, few);
                self.event();
            }
        }
        if !large && self.rng.one_in(6) {
            self.cuts_at_one_page();
        }
        if !large && self.plan.has_mild_bit_errors() && self.rng.one_in(3) {
            self.short_sessions();
        }
        if !large && device.on_disk && self.rng.one_in(4) {
            self.refused_in_short_sessions();
        }
        let length = self.rng.below(30);
        self.requests(first, length);
        let last = self.down();
        self.steps.push(last);
        self.steps
    }

    /// Short writes in random order over these pages, some of them twice: every part of the device
    /// is written in part for long.
    fn in_random_order(&mut self, pages: u32) -> Vec<(u32, u32)> {
        let mut extents: Vec<_> = in_order(pages, FILL / 16).collect();
        for at in (1..extents.len()).rev() {
            extents.swap(at, self.rng.below(at as u64 + 1) as usize);
        }
        let written = (0..extents.len()).flat_map(|at| {
            let again = self.rng.one_in(3).then(|| self.rng.below(at as u64 + 1));
            [Some(at), again.map(|earlier| earlier as usize)]
        });
        let written: Vec<_> = written.flatten().collect();
        written.into_iter().map(|at| extents[at]).collect()
    }

    fn requests(&mut self, kind: Kind, count: u64) {
        let pages = self.plan.device.pages;
        let seed = self.rng.next_u64();
        let never_flushes = self.never_flushes;
        let mut requests: Vec<_> = Workload::continued(kind, pages, seed)
            .map(|op| if never_flushes { unflushed(op) } else { op })
            .filter(|op| !never_flushes || *op != HostOp::Flush)
            .take(count as usize)
            .map(Step::Do)
            .collect();
        if pages >= LARGE {
            // Trims and writes in every chunk and on many mapping pages, which workloads of the
            // whole device rarely hit.
            for _ in 0..count / 6 {
                let lpn = self.rng.below(u64::from(pages)) as u32;
                let longest = if self.rng.one_in(8) { 6_000 } else { 12 };
                let count = (1 + self.rng.below(longest) as u32).min(pages - lpn);
                requests.push(Step::Do(HostOp::Trim { lpn, count }));
            }
        }
        let batched = self.plan.device.on_disk && self.rng.one_in(2);
        for request in requests {
            if batched && self.rng.one_in(8) {
                self.steps.push(Step::Batch(2 + self.rng.below(30) as u32));
            }
            self.steps.push(request);
        }
        if self.rng.one_in(4) {
            self.whole_blocks();
        }
        if pages >= LARGE && self.rng.one_in(8) {
            self.trims_across_chunks();
        }
    }

    /// Writes of whole logical blocks, then perhaps a trim of the last pages or a FLUSH.
    fn whole_blocks(&mut self) {
        let (pages, block) = (self.plan.device.pages, self.plan.device.pages_per_block);
        for _ in 0..1 + self.rng.below(3) {
            let lpn = block * self.rng.below(u64::from(pages / block)) as u32;
            let count = (block * (1 + self.rng.below(2) as u32)).min(pages - lpn);
            self.steps.push(Step::Do(HostOp::Write {
                lpn,
                count,
                fua: false,
            }));
            match self.rng.below(4) {
                0 => {
                    let first = lpn + self.rng.below(u64::from(count)) as u32;
                    let end = (lpn + count + self.rng.below(8) as u32).min(pages);
                    self.steps.push(Step::Do(HostOp::Trim {
                        lpn: first,
                        count: end - first,
                    }));
                }
                1 if !self.never_flushes => self.steps.push(Step::Do(HostOp::Flush)),
                _ => {}
            }
        }
    }

    /// A flushed page, or all pages of a block, and cuts at its later versions and trims, and
    /// inside the mounts after them.
    fn cuts_at_one_page(&mut self) {
        let device = &self.plan.device;
        let page = self.rng.below(u64::from(device.pages)) as u32;
        let (lpn, count) = if self.rng.one_in(3) {
            let lpn = page - page % device.pages_per_block;
            (lpn, device.pages_per_block.min(device.pages - lpn))
        } else {
            (page, 1)
        };
        let fua = false;
        let write = Step::Do(HostOp::Write { lpn, count, fua });
        let trim = Step::Do(HostOp::Trim { lpn, count });
        self.steps.extend([write.clone(), Step::Do(HostOp::Flush)]);
        for _ in 0..2 + self.rng.below(3) {
            let mut restart = Restart::default();
            while self.rng.one_in(2) && restart.inside.len() < 3 {
                restart.inside.push(self.cut_in_mount());
            }
            if self.rng.one_in(3) {
                // The record of the trim is in flight, and what it removes was flushed.
                self.steps.extend([write.clone(), Step::Do(HostOp::Flush)]);
                let cut = draw_cut(self.rng, 2);
                self.steps.extend([Step::Cut(cut, restart), trim.clone()]);
            } else {
                let cut = draw_cut(self.rng, u64::from(1 + count));
                self.steps.extend([Step::Cut(cut, restart), write.clone()]);
            }
            if self.rng.one_in(2) {
                self.steps.push(write.clone());
            }
        }
        self.steps
            .push(Step::Down(Down::PowerOff, Restart::default()));
    }

    /// Sessions shorter than a round of the scrub, and reads of several pages at a time.
    fn short_sessions(&mut self) {
        let device = &self.plan.device;
        let hours = self.plan.scrub_hours().max(1);
        for number in 0..14 {
            let count = (1 + self.rng.below(7) as u32).min(device.pages);
            let lpn = self.rng.below(u64::from(device.pages - count + 1)) as u32;
            let times = pick(self.rng, &[1, 60, 400]);
            let how = pick(self.rng, &[Down::Stop, Down::Kill, Down::Kill]);
            if number % 4 == 0 {
                self.steps.push(Step::Hammer(lpn, times, count));
            }
            self.steps.extend([
                Step::Age(hours.div_ceil(8)),
                Step::Do(HostOp::Idle(1 << 20)),
                Step::Down(how, Restart::default()),
            ]);
        }
    }

    /// Short sessions that write and trim the same few pages, in which the host refuses erases.
    fn refused_in_short_sessions(&mut self) {
        let pages = self.plan.device.pages;
        let few = 1 + self.rng.below(u64::from(pages.min(12)));
        let from = self.rng.below(u64::from(pages) - few + 1) as u32;
        for _ in 0..8 {
            let times = 1 + self.rng.below(4);
            self.steps
                .push(Step::Disk(DiskFault::Erases(times, ENOSPC)));
            for _ in 0..1 + self.rng.below(6) {
                let at = self.rng.below(few);
                let (lpn, count) = (from + at as u32, 1 + self.rng.below(few - at) as u32);
                self.steps.push(Step::Do(match self.rng.one_in(2) {
                    true => HostOp::Trim { lpn, count },
                    false => HostOp::Write {
                        lpn,
                        count,
                        fua: false,
                    },
                }));
            }
            let how = pick(self.rng, &[Down::Stop, Down::Kill, Down::Kill]);
            self.steps
                .extend([Step::Mend, Step::Down(how, Restart::default())]);
        }
    }

    /// Enough trims that bitmaps replace records, one across chunks, and GC runs while some of its
    /// chunks have a newer bitmap; then power fails.
    fn trims_across_chunks(&mut self) {
        let pages = self.plan.device.pages;
        let small = |rng: &mut SplitMix| {
            let count = 1 + rng.below(4) as u32;
            Step::Do(HostOp::Trim {
                lpn: rng.below(u64::from(pages - count)) as u32,
                count,
            })
        };
        for _ in 0..20 + self.rng.below(40) {
            self.steps.push(small(self.rng));
        }
        let chunk = 1 + self.rng.below(u64::from((pages - 1) / CHUNK)) as u32;
        let count = 2 + self.rng.below(12) as u32;
        let lpn = chunk * CHUNK - 1 - self.rng.below(u64::from(count - 1)) as u32;
        self.steps.push(Step::Do(HostOp::Trim {
            lpn,
            count: count.min(pages - lpn),
        }));
        for _ in 0..self.rng.below(5) {
            self.steps.push(small(self.rng));
        }
        for _ in 0..20 + self.rng.below(100) {
            let lpn = self.rng.below(u64::from(pages)) as u32;
            self.steps.push(Step::Do(HostOp::Write {
                lpn,
                count: 1,
                fua: false,
            }));
        }
        self.steps.push(Step::Do(HostOp::Flush));
        let restart = self.restart(3);
        self.steps.push(Step::Down(Down::PowerOff, restart));
    }

    fn event(&mut self) {
        let total: u64 = self.weights.iter().sum();
        let mut at = self.rng.below(total);
        let chosen = EVENTS.iter().zip(&self.weights).find(|(_, weight)| {
            let here = at < **weight;
            at = at.saturating_sub(**weight);
            here
        });
        let step = match chosen.expect("weights add up").0 {
            Event::Cut => self.cut(),
            Event::Down => self.down(),
            Event::Decay => self.decay(),
            Event::Disk => self.disk(),
            Event::Image => pick_step(
                self.rng,
                &[Step::Sync, Step::GiveBack(4), Step::GiveBack(64)],
            ),
            Event::Crash => self.crash_with_restart(),
            Event::Part => self.part(),
            Event::PowerOff => {
                let restart = self.restart(2);
                Step::Down(Down::PowerOff, restart)
            }
            Event::Kill => {
                let restart = self.restart(3);
                Step::Down(Down::Kill, restart)
            }
        };
        self.steps.push(step);
    }

    fn cut(&mut self) -> Step {
        // Soon, or later in the following steps.
        let reach = pick(self.rng, &[4, 20, 80, 300]);
        let cut = draw_cut(self.rng, reach);
        Step::Cut(cut, self.restart(3))
    }

    fn down(&mut self) -> Step {
        let how = match self.rng.below(4) {
            0 => self.stop(),
            1 => Down::Kill,
            2 if self.plan.device.on_disk => Down::Crash(draw_crash(self.rng)),
            _ => Down::PowerOff,
        };
        let restart = self.restart(3);
        Step::Down(how, restart)
    }

    /// A clean stop, interrupted or not.
    fn stop(&mut self) -> Down {
        match self.rng.below(4) {
            0 => {
                let reach = pick(self.rng, &[2, 8, 30]);
                Down::StopCut(draw_cut(self.rng, reach))
            }
            1 if self.plan.device.on_disk => {
                let at = if self.rng.one_in(2) {
                    Freeze::Sync(self.rng.below(4))
                } else {
                    Freeze::Write(self.rng.below(30))
                };
                Down::StopCrash(at, draw_crash(self.rng))
            }
            _ => Down::Stop,
        }
    }

    /// A cut at one of the first operations of a mount, whose programs may fail before it.
    fn cut_in_mount(&mut self) -> Inside {
        let reach = pick(self.rng, &[2, 10, 40]);
        let cut = draw_cut(self.rng, reach);
        // A device with every bad block has no room for more.
        if !self.plan.device.worn && self.rng.one_in(3) {
            // The least threshold has room for one failing program.
            return Inside::Fails(1, self.rng.below(5) as u32, cut);
        }
        let crash = (self.plan.device.on_disk && self.rng.one_in(3)).then(|| draw_crash(self.rng));
        Inside::Cut(cut, crash)
    }

    fn crash_with_restart(&mut self) -> Step {
        let how = draw_crash(self.rng);
        let restart = self.restart(3);
        Step::Down(Down::Crash(how), restart)
    }

    /// One in `rarity` restarts has a fault inside its mounts.
    fn restart(&mut self, rarity: u64) -> Restart {
        let on_disk = self.plan.device.on_disk;
        let mut restart = Restart::default();
        if on_disk && self.rng.one_in(4) {
            restart.crash = Some(draw_crash(self.rng));
        }
        while self.rng.one_in(rarity) && restart.inside.len() < 4 {
            let inside = match self.rng.below(if on_disk { 5 } else { 2 }) {
                0 | 1 => self.cut_in_mount(),
                2 | 3 => {
                    let at = if self.rng.one_in(3) {
                        Freeze::Sync(self.rng.below(4))
                    } else {
                        let reach = pick(self.rng, &[6, 40, 150]);
                        Freeze::Write(self.rng.below(reach))
                    };
                    Inside::Crash(at, draw_crash(self.rng))
                }
                _ => Inside::Kill,
            };
            restart.inside.push(inside);
        }
        restart
    }

    fn decay(&mut self) -> Step {
        match self.rng.below(4) {
            0 => Step::Age(pick(self.rng, &[1, 24, 200, 1_000])),
            1 => {
                let lpn = self.rng.below(u64::from(self.plan.device.pages)) as u32;
                Step::Hammer(lpn, pick(self.rng, &[10, 200, 1_500]), 1)
            }
            _ => {
                let corrected = if self.plan.device.cells() == Cells::Slc {
                    4
                } else {
                    60
                };
                let of_map = self.rng.one_in(3);
                if self.rng.one_in(4) {
                    return Step::LostOob(self.rng.next_u64() as u32, of_map);
                }
                let most = if self.rng.one_in(if of_map { 2 } else { 3 }) {
                    2 * corrected
                } else {
                    corrected
                };
                Step::WrongBits(
                    self.rng.next_u64() as u32,
                    1 + self.rng.below(most) as u32,
                    of_map,
                )
            }
        }
    }

    fn part(&mut self) -> Step {
        let (channels, ways) = self.plan.device.dies;
        if channels * ways > 1 && self.rng.one_in(5) {
            return Step::DieFails(self.rng.below(u64::from(channels * ways)) as u32);
        }
        let fault = match self.rng.below(8) {
            0..3 => Fault::ProgramFail,
            3..6 => Fault::EraseFail,
            6 => Fault::LostProgram,
            _ => Fault::LostErase,
        };
        Step::BlockFails(self.rng.next_u64() as u32, fault)
    }

    fn disk(&mut self) -> Step {
        let count = pick(self.rng, &[1, 1, 2, u64::MAX]);
        match self.rng.below(9) {
            8 => Step::Disk(DiskFault::Erases(
                pick(self.rng, &[1, 2, 6]),
                pick(self.rng, &[EIO, ENOSPC]),
            )),
            0 => Step::Mend,
            1..4 => {
                let seed = if self.rng.one_in(2) {
                    Some(self.rng.next_u64() >> 32)
                } else {
                    None
                };
                Step::Disk(DiskFault::Syncs(SyncFault {
                    after: self.rng.below(3),
                    count,
                    seed,
                }))
            }
            4 => Step::Disk(DiskFault::Reads(self.rng.below(1000) as u32, count)),
            _ => {
                let reach = pick(self.rng, &[4, 60]);
                let (after, errno) = (
                    self.rng.below(reach),
                    pick(self.rng, &[EIO, ENOSPC, ENOSPC]),
                );
                let arrives = if self.rng.one_in(2) {
                    0
                } else {
                    self.rng.below(1_200) as usize
                };
                let needs_room = errno == ENOSPC && self.rng.one_in(2);
                Step::Disk(DiskFault::Writes(WriteFault {
                    after,
                    count,
                    arrives,
                    errno,
                    needs_room,
                    longest: usize::MAX,
                }))
            }
        }
    }
}

/// The request without FUA.
fn unflushed(op: HostOp) -> HostOp {
    match op {
        HostOp::Write { lpn, count, .. } => HostOp::Write {
            lpn,
            count,
            fua: false,
        },
        HostOp::WriteZeroes { lpn, count, .. } => HostOp::WriteZeroes {
            lpn,
            count,
            fua: false,
        },
        other => other,
    }
}

fn pick_step(rng: &mut SplitMix, list: &[Step]) -> Step {
    list[rng.below(list.len() as u64) as usize].clone()
}

/// A cut at one of the next `reach` operations, with any outcome but one: a torn page that is
/// readable again after a mount found it unreadable (`Flickering`) is a known gap
/// (docs/DURABILITY.md).
fn draw_cut(rng: &mut SplitMix, reach: u64) -> Cut {
    let at_op = rng.below(reach);
    let seed = rng.next_u64() >> 32;
    let programs = [
        ProgramCut::NotStarted,
        ProgramCut::Prefix,
        ProgramCut::RandomBits,
        ProgramCut::Unstable(1 + rng.below(9) as u8),
        ProgramCut::DataTorn,
        ProgramCut::OobTorn,
        ProgramCut::Complete,
    ];
    let partners = [
        PartnerCut::Intact,
        PartnerCut::Destroyed,
        PartnerCut::Destroyed,
        PartnerCut::DestroyedOne(rng.below(3) as u8),
        PartnerCut::Unstable(1 + rng.below(9) as u8),
    ];
    Cut {
        at_op,
        program: pick(rng, &programs),
        partner: pick(rng, &partners),
        erase: pick(rng, &EraseCut::ALL),
        seed,
    }
}

fn draw_crash(rng: &mut SplitMix) -> Crash {
    let seed = rng.next_u64() >> 32;
    match rng.below(8) {
        0 => Crash::Nothing,
        1 => Crash::Prefix(seed),
        2 => Crash::AllBut(seed),
        3 => Crash::Writes(seed),
        4 => Crash::Mask(rng.next_u64()),
        _ => Crash::Sectors(seed),
    }
}

/// Writes of at most `length` pages, one after the other, up to page `pages`.
fn in_order(pages: u32, length: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..pages)
        .step_by(length as usize)
        .map(move |lpn| (lpn, length.min(pages - lpn)))
}
