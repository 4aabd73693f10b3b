//! Plans: everything one run does, drawn from a seed or read from text.
//!
//! A plan is a device (scheme, chip, parameters), the faults of its parts, and steps.
//! [`Plan::draw`] takes a random subset of everything that can vary, so that faults meet each other
//! and the workloads they matter for. A plan has a text form of one line per step; a failure that
//! was shrunk is kept in that form.

use crate::rig::{Cells, Rig, has_param};
use crate::workload::{HostOp, Kind, Workload};
use ftl_core::format::trim::TrimBitmap;
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Params, Start};
use nand_model::store::{Crash, Freeze, SyncFault, WriteFault};
use nand_model::{
    Cut, EraseCut, Fault, Geometry, PairTable, Pairing, PartnerCut, Profile, ProgramCut, SplitMix,
};

/// Everything one run does.
#[derive(Clone)]
pub struct Plan {
    /// Seed of payloads and chances.
    pub seed: u64,
    /// The device.
    pub device: Device,
    /// What is wrong with its parts.
    pub parts: Parts,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// A scheme on a chip.
#[derive(Clone)]
pub struct Device {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// The rules of the chip.
    pub chip: ChipKind,
    /// Pages per block.
    pub pages_per_block: u32,
    /// Buses, and dies on each.
    pub dies: (u32, u32),
    /// Logical pages.
    pub pages: u32,
    /// Over-provisioning in percent.
    pub op_percent: u32,
    /// Parameters other than their defaults.
    pub params: Vec<(String, String)>,
    /// Whether the chip has as many bad blocks as its data sheet allows.
    pub worn: bool,
    /// Whether the bytes are kept in an image on a simulated disk; else in memory.
    pub on_disk: bool,
}

/// Rules of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChipKind {
    /// Those of `slc-2k`.
    Slc,
    /// Those of `torture`.
    Mlc,
    /// MLC with another pairing.
    Paired(Pairing),
}

impl ChipKind {
    fn cells(self) -> Cells {
        if self == ChipKind::Slc {
            Cells::Slc
        } else {
            Cells::Mlc
        }
    }
}

/// Faults of the chip's parts, from the first request on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Chances in parts per billion.
    pub chances: Vec<(Fault, u32)>,
    /// Failures by wear, as a multiple of the part's.
    pub wear_out: u32,
    /// Bit errors, as a multiple of the part's.
    pub bit_errors: u32,
    /// Whether cuts also hit operations in flight on other dies.
    pub in_flight: bool,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request.
    Do(HostOp),
    /// Power fails at an operation after this step; then the device restarts.
    Cut(Cut, Restart),
    /// The device goes down between two requests, and restarts.
    Down(Down, Restart),
    /// This many hours pass.
    Age(u32),
    /// A page is read this many times.
    Hammer(u32, u32),
    /// A programmed page gets this many wrong bits; the number chooses the page, perhaps among
    /// those of the map.
    WrongBits(u32, u32, bool),
    /// A die stops working.
    DieFails(u32),
    /// The next program, erase or read of its kind on a block fails; the number chooses the block.
    BlockFails(u32, Fault),
    /// The host's disk misbehaves.
    Disk(DiskFault),
    /// It works again.
    Mend,
    /// The host syncs the image on its own.
    Sync,
    /// The image gives room back, for at most this many slots.
    GiveBack(u32),
}

/// How a device goes down between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// A clean stop.
    Stop,
    /// The process is killed.
    Kill,
    /// The emulated flash loses power.
    PowerOff,
    /// The host crashes.
    Crash(Crash),
}

/// A restart: what goes wrong in the mounts before one succeeds, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// A host crash after the device went down, before it is opened again.
    pub crash: Option<Crash>,
    /// What strikes inside the following mounts.
    pub inside: Vec<Inside>,
}

/// What strikes inside a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// A power cut; the host may crash after it.
    Cut(Cut, Option<Crash>),
    /// The host crashes before this write or sync of the image.
    Crash(Freeze, Crash),
    /// The process is killed when the mount is complete.
    Kill,
}

/// How the host's disk misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Writes fail.
    Writes(WriteFault),
    /// Syncs fail.
    Syncs(SyncFault),
    /// So many reads of a part of the image fail; the part begins at this permille of it.
    Reads(u32, u64),
}

/// No space left on the host.
pub const ENOSPC: i32 = 28;
/// The host's disk fails.
pub const EIO: i32 = 5;

/// Parameters, and values within their bounds. A parameter that is not listed here is listed in
/// [`FIXED`].
pub const PARAMETERS: &[(&str, &[&str])] = &[
    ("asast.adapt", &["on", "off"]),
    ("asast.group", &["1", "2", "4"]),
    ("asast.logs", &["0", "1", "4"]),
    ("asast.victim", &["lru", "least_valid"]),
    ("bast.victim", &["lru", "least_valid"]),
    ("ckpt.interval", &["0", "40", "150", "400", "2000"]),
    ("dftl.cache", &["1024", "2048", "8192"]),
    ("dop.cache", &["1024", "2048", "8192"]),
    ("dop.ctpa", &["on", "off"]),
    ("dop.max_ext", &["2", "8", "30"]),
    ("dop.max_pending", &["4", "32", "500"]),
    ("dop.original_share", &["auto", "0.25", "0.5"]),
    ("dop.ratio", &["2", "4", "8"]),
    ("fast.predict", &["fp", "lp", "cp", "np", "ebw"]),
    ("fast.sw_break", &["merge_then_rw", "keep_sw_then_rw"]),
    ("gc.free_threshold", &["3", "5", "9", "14"]),
    ("gftl.extra", &["2", "16", "60"]),
    ("gftl.slice_always", &["true", "false"]),
    ("gftl.subtables", &["1", "2", "8"]),
    ("last.large_request", &["1024", "4096", "8192"]),
    ("last.sequential", &["1", "3", "8"]),
    ("lazy.age_window", &["4", "20", "100"]),
    ("lazy.buffer_blocks", &["4", "6", "12"]),
    ("lazy.cache_pages", &["1", "2", "14"]),
    ("log.blocks", &["0", "4", "12"]),
    ("map.age_window", &["32", "60", "512"]),
    ("map.max_tombstones", &["8", "64", "1024"]),
    ("maro.age_weight", &["0", "1", "inf"]),
    ("maro.alpha", &["0", "0.5", "1"]),
    ("maro.cost_unit", &["us", "page_copy"]),
    ("mlam.alpha", &["0", "0.5", "1"]),
    ("mlam.buffer", &["4096", "16384", "65536"]),
    ("mlam.candidates", &["1", "4", "8"]),
    ("mlam.chips", &["1", "2", "4"]),
    ("mlam.flush", &["journal", "vsb"]),
    ("mlam.high", &["0.3", "0.5", "0.9"]),
    ("mlam.k_empty", &["0", "2", "auto"]),
    ("mlam.low", &["0.05", "0.1", "0.25"]),
    (
        "mlam.policy",
        &["mlam", "flush_all", "lru", "size", "lru_size"],
    ),
    ("mlam.smax", &["1", "1.25", "2"]),
    ("mnftl.idle_min_chain", &["0", "2", "3"]),
    ("mnftl.subtables", &["1", "2", "8"]),
    ("mnftl.victim", &["max_chain", "global_min"]),
    ("nftln.max_length", &["2", "4", "16"]),
    ("page.gc_stream", &["same", "separate"]),
    ("rose.cheap_merge", &["on", "off"]),
    ("rose.ebw", &["on", "off"]),
    ("rose.fpr", &["on", "off"]),
    ("rose.victim", &["maro", "rr", "cat", "last"]),
    ("scrub.hours", &["0", "1", "168"]),
    ("sftl.entries", &["4", "8", "16"]),
    ("sftl.k", &["1", "2"]),
    ("sftl.n", &["1", "2", "4"]),
    ("sftl.total", &["8", "40", "256"]),
    ("tpftl.cache", &["1024", "2048", "8192"]),
    ("tpftl.prefetch_threshold", &["0", "1", "3"]),
    ("valid_tracking", &["oob_mark", "ram_bitmap"]),
    ("wear.gap", &["1", "2", "6"]),
    ("wear.policy", &["none", "cold_to_worn"]),
];

/// Parameters that keep their defaults, because other values waive a promise.
const FIXED: &[&str] = &["nand.pair_policy", "mlam.ack"];

/// Parameters of a scheme that the generator does not know: runs keep their defaults.
pub fn unknown_parameters(scheme: &Scheme) -> Vec<&'static str> {
    let known =
        |key: &str| FIXED.contains(&key) || PARAMETERS.iter().any(|(listed, _)| *listed == key);
    let keys = scheme.all_params().map(|param| param.key);
    keys.filter(|key| !known(key)).collect()
}

/// Bytes of a page of all chips here.
const PAGE_BYTES: u32 = 512;

/// Logical pages from which on a device has more than 100 mapping pages and several chunks of its
/// trim bitmap: a mapping page of 512 bytes has 128 entries, a chunk of the bitmap [`CHUNK`] pages.
pub const LARGE: u32 = 13_312;

/// Logical pages of a chunk of the trim bitmap.
const CHUNK: u32 = TrimBitmap::capacity(PAGE_BYTES);

/// Pages of the writes that fill a large device.
const FILL: u32 = 128;

impl Device {
    /// The device laid out for its scheme, or why it cannot be.
    ///
    /// # Errors
    /// The scheme refuses the parameters or the shape.
    pub fn rig(&self, seed: u64) -> Result<Rig, String> {
        let base = self.chip.cells().profile();
        let geometry = Geometry {
            channels: self.dies.0,
            ways: self.dies.1,
            pages_per_block: self.pages_per_block,
            page_bytes: PAGE_BYTES,
            ..base.geometry
        };
        let pairing = if let ChipKind::Paired(pairing) = self.chip {
            pairing
        } else {
            base.pairing
        };
        let profile = Profile {
            geometry,
            pairing,
            ..base
        };
        let mut params = Params::default();
        self.params
            .iter()
            .for_each(|(key, value)| params.set(key, value));
        let op = f64::from(self.op_percent) / 100.0;
        Rig::laid_out(
            self.scheme,
            self.chip.cells(),
            profile,
            self.pages,
            op,
            params,
            seed,
        )
    }

    /// Whether the scheme accepts shape and parameters.
    fn starts(&self, seed: u64) -> bool {
        let Ok(rig) = self.rig(seed) else {
            return false;
        };
        let started = rig.scheme.start(rig.blank(), &rig.config, Start::Format);
        !matches!(started, Err(FtlError::Config(_)))
    }

    /// How far the pages of a word line lie apart.
    pub fn span(&self) -> u32 {
        let pairing = if let ChipKind::Paired(pairing) = self.chip {
            pairing
        } else {
            self.cells().profile().pairing
        };
        PairTable::new(pairing, self.pages_per_block).span()
    }

    /// Kind of cells.
    pub fn cells(&self) -> Cells {
        self.chip.cells()
    }

    /// Whether its pages are paired otherwise than on the usual MLC chip.
    pub fn has_other_pairing(&self) -> bool {
        matches!(self.chip, ChipKind::Paired(_))
    }

    /// Makes sure that a step of a plan that somebody wrote fits.
    ///
    /// # Errors
    /// It names pages or dies that the device does not have.
    pub fn has_room_for(&self, step: &Step) -> Result<(), String> {
        let (lpn, count) = match *step {
            Step::Do(
                HostOp::Write { lpn, count, .. }
                | HostOp::WriteZeroData { lpn, count }
                | HostOp::WriteZeroes { lpn, count, .. }
                | HostOp::Trim { lpn, count }
                | HostOp::Read { lpn, count },
            ) => (lpn, count),
            Step::Hammer(lpn, _) => (lpn, 1),
            Step::DieFails(die) if die >= self.dies.0 * self.dies.1 => {
                return Err(format!(
                    "{step}: the device has {} dies",
                    self.dies.0 * self.dies.1
                ));
            }
            _ => return Ok(()),
        };
        if count == 0 || lpn.checked_add(count).is_none_or(|end| end > self.pages) {
            return Err(format!(
                "{step}: the device has pages 0 to {}, and a request takes one at least",
                self.pages - 1
            ));
        }
        Ok(())
    }

    /// Whether it has more than 100 mapping pages and several chunks of its trim bitmap.
    pub fn is_large(&self) -> bool {
        self.pages >= LARGE
    }
}

impl Plan {
    /// The plan of a seed, for one of these schemes. Not the same as [`Plan::of`] where there is but
    /// one: the choice of the scheme is a draw, too.
    pub fn draw(schemes: &'static [Scheme], seed: u64) -> Plan {
        let mut rng = SplitMix::new(seed);
        let scheme = &schemes[rng.below(schemes.len() as u64) as usize];
        Plan::draw_for(scheme, seed, &mut rng)
    }

    /// The plan of a seed, for this scheme.
    pub fn of(scheme: &'static Scheme, seed: u64) -> Plan {
        Plan::draw_for(scheme, seed, &mut SplitMix::new(seed))
    }

    fn draw_for(scheme: &'static Scheme, seed: u64, rng: &mut SplitMix) -> Plan {
        let mut device = draw_device(scheme, rng);
        // A block holds twice the filler of a mount (docs/DURABILITY.md), which grows with this
        // span.
        device.pages_per_block = device.pages_per_block.max(2 * device.span());
        let parts = draw_parts(device.cells() == Cells::Slc, rng);
        let mut plan = Plan {
            seed,
            device,
            parts,
            steps: Vec::new(),
        };
        // Where the scheme refuses its parameters on this shape, it gets its defaults.
        if !plan.device.starts(seed) {
            plan.device.params.clear();
        }
        plan.steps = Steps::new(&plan, rng).draw();
        plan
    }
}

fn pick<T: Copy>(rng: &mut SplitMix, list: &[T]) -> T {
    list[rng.below(list.len() as u64) as usize]
}

fn draw_device(scheme: &'static Scheme, rng: &mut SplitMix) -> Device {
    let on_disk = rng.one_in(2);
    let others = [
        Pairing::Adjacent,
        Pairing::Dist3,
        Pairing::Dist6,
        Pairing::Shared4,
        Pairing::Group4,
    ];
    let chip = match rng.below(6) {
        0 | 1 => ChipKind::Slc,
        2 | 3 => ChipKind::Mlc,
        4 => ChipKind::Paired(Pairing::Random {
            seed: rng.next_u64() as u16,
            span: 1 + rng.below(7) as u8,
        }),
        _ if on_disk => ChipKind::Mlc,
        _ => ChipKind::Paired(pick(rng, &others)),
    };
    let large = rng.one_in(7);
    let dies = pick(rng, &[(1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (4, 2)]);
    let pages = if large {
        LARGE + 512 * rng.below(3) as u32
    } else {
        8 * (8 + rng.below(40) as u32)
    };
    let op_percent = pick(rng, &[7, 7, 4, 12, 28]);
    let mut params = Vec::new();
    let some = rng.below(4);
    for (key, values) in PARAMETERS {
        if has_param(scheme, key) && rng.below(4) < some {
            params.push(((*key).to_owned(), pick(rng, values).to_owned()));
        }
    }
    Device {
        scheme,
        chip,
        pages_per_block: pick(rng, &[16, 16, 16, 8, 32, 24]),
        dies,
        pages,
        op_percent,
        params,
        worn: rng.one_in(5),
        on_disk,
    }
}

fn draw_parts(slc: bool, rng: &mut SplitMix) -> Parts {
    let mut parts = Parts {
        in_flight: rng.one_in(2),
        ..Parts::default()
    };
    match rng.below(8) {
        0 => {
            // Faults that the part reports.
            parts
                .chances
                .push((Fault::ProgramFail, 200_000 << rng.below(5)));
            parts
                .chances
                .push((Fault::EraseFail, 200_000 << rng.below(5)));
        }
        1 => parts
            .chances
            .push((Fault::ProgramFail, 500_000 << rng.below(4))),
        2 => parts
            .chances
            .push((Fault::EraseFail, 2_000_000 << rng.below(3))),
        // Faults that it keeps to itself.
        3 => {
            let silent = pick(
                rng,
                &[
                    Fault::LostProgram,
                    Fault::MisdirectedProgram,
                    Fault::LostErase,
                    Fault::StaleRead,
                ],
            );
            let ppb = if silent == Fault::LostErase {
                8_000_000
            } else {
                800_000
            };
            parts.chances.push((silent, ppb << rng.below(3)));
            if rng.one_in(2) {
                parts
                    .chances
                    .push((Fault::ProgramFail, 500_000 << rng.below(4)));
            }
        }
        _ => {}
    }
    if rng.one_in(6) {
        // Within what the ECC corrects, or beyond it now and then.
        parts.bit_errors = pick(
            rng,
            if slc {
                &[2_000, 2_000, 400_000]
            } else {
                &[30, 30, 100]
            },
        );
    }
    if rng.one_in(10) {
        parts.wear_out = pick(rng, &[1, 3]);
    }
    parts
}

/// Draws the steps of a plan.
struct Steps<'a> {
    plan: &'a Plan,
    rng: &'a mut SplitMix,
    steps: Vec<Step>,
    /// Which kinds of event this run has, as weights in the order of [`EVENTS`].
    weights: [u64; EVENTS.len()],
}

/// Kinds of event between requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Cut,
    Down,
    Decay,
    /// The host's disk misbehaves.
    Disk,
    /// A sync or room given back.
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
    fn new(plan: &'a Plan, rng: &'a mut SplitMix) -> Self {
        // A random subset of kinds per run: what is rare beside everything else is common beside a
        // few.
        let on_disk = plan.device.on_disk;
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
                    weights,
                };
            }
        }
    }

    fn draw(mut self) -> Vec<Step> {
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
            let extents = (0..filled)
                .step_by(FILL as usize)
                .map(|lpn| (lpn, FILL.min(filled - lpn)));
            self.steps.extend(extents.map(|(lpn, count)| {
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
            // Sometimes one thing follows at the heels of another.
            while self.rng.one_in(3) {
                let few = self.rng.below(6);
                self.requests(kind, few);
                self.event();
            }
        }
        let length = self.rng.below(30);
        self.requests(first, length);
        let last = self.down();
        self.steps.push(last);
        self.steps
    }

    fn requests(&mut self, kind: Kind, count: u64) {
        let pages = self.plan.device.pages;
        let seed = self.rng.next_u64();
        let mut requests: Vec<_> = Workload::continued(kind, pages, seed)
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
        self.steps.append(&mut requests);
        if self.rng.one_in(4) {
            self.whole_blocks();
        }
        if pages >= LARGE && self.rng.one_in(8) {
            self.trims_across_chunks();
        }
    }

    /// Writes of whole logical blocks, and a trim of their last pages or a FLUSH at once.
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
                1 => self.steps.push(Step::Do(HostOp::Flush)),
                _ => {}
            }
        }
    }

    /// So many trims that bitmaps take the place of records, one across chunks, and collections
    /// while some of its chunks have a newer bitmap; then power fails.
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
        // Close ahead, or some way on in what follows.
        let reach = pick(self.rng, &[4, 20, 80, 300]);
        let cut = draw_cut(self.rng, reach);
        Step::Cut(cut, self.restart(3))
    }

    fn down(&mut self) -> Step {
        let how = match self.rng.below(4) {
            0 => Down::Stop,
            1 => Down::Kill,
            2 if self.plan.device.on_disk => Down::Crash(draw_crash(self.rng)),
            _ => Down::PowerOff,
        };
        let restart = self.restart(3);
        Step::Down(how, restart)
    }

    fn crash_with_restart(&mut self) -> Step {
        let how = draw_crash(self.rng);
        let restart = self.restart(3);
        Step::Down(Down::Crash(how), restart)
    }

    /// One in `rarity` restarts is struck inside its mounts.
    fn restart(&mut self, rarity: u64) -> Restart {
        let on_disk = self.plan.device.on_disk;
        let mut restart = Restart::default();
        if on_disk && self.rng.one_in(4) {
            restart.crash = Some(draw_crash(self.rng));
        }
        while self.rng.one_in(rarity) && restart.inside.len() < 4 {
            let inside = match self.rng.below(if on_disk { 5 } else { 2 }) {
                0 | 1 => {
                    let reach = pick(self.rng, &[2, 10, 40]);
                    let cut = draw_cut(self.rng, reach);
                    let crash = (on_disk && self.rng.one_in(3)).then(|| draw_crash(self.rng));
                    Inside::Cut(cut, crash)
                }
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
                Step::Hammer(lpn, pick(self.rng, &[10, 200, 1_500]))
            }
            _ => {
                let corrected = if self.plan.device.cells() == Cells::Slc {
                    4
                } else {
                    60
                };
                let of_map = self.rng.one_in(3);
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
        match self.rng.below(8) {
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
                }))
            }
        }
    }
}

fn pick_step(rng: &mut SplitMix, list: &[Step]) -> Step {
    list[rng.below(list.len() as u64) as usize].clone()
}

/// A cut at one of the next `reach` operations, with any outcome but one: a torn page that is
/// readable again after a mount found it unreadable (`Flickering`) is a known gap,
/// docs/DURABILITY.md.
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
