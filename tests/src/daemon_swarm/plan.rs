//! A run as a list of actions: drawn from a seed, written as text, read back.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_battery::rig::{Cells, has_param};
use nand_model::SplitMix;
use nand_model::store::{Crash, End};
use std::fmt::{self, Display, Write};

/// The framing that a connection asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Simple replies.
    Simple,
    /// Structured replies.
    Structured,
    /// Extended headers.
    Extended,
    /// Simple replies on a stream that is in transmission from the start, as the kernel's client.
    Attached,
}

const WIRES: [(&str, Wire); 4] = [
    ("simple", Wire::Simple),
    ("structured", Wire::Structured),
    ("extended", Wire::Extended),
    ("attached", Wire::Attached),
];

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// TRIM.
    Trim,
    /// WRITE_ZEROES.
    Zero,
    /// CACHE.
    Cache,
    /// BLOCK_STATUS.
    Status,
    /// FLUSH.
    Flush,
}

const VERBS: [(&str, Verb); 7] = [
    ("read", Verb::Read),
    ("write", Verb::Write),
    ("trim", Verb::Trim),
    ("zero", Verb::Zero),
    ("cache", Verb::Cache),
    ("status", Verb::Status),
    ("flush", Verb::Flush),
];

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Command.
    pub verb: Verb,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Durable before the reply.
    pub fua: bool,
    /// One chunk, or one extent.
    pub df: bool,
    /// NO_HOLE.
    pub no_hole: bool,
    /// FAST_ZERO.
    pub fast: bool,
}

impl Ask {
    /// A plain request.
    pub fn new(verb: Verb, offset: u64, length: u64) -> Ask {
        Ask {
            verb,
            offset,
            length,
            fua: false,
            df: false,
            no_hole: false,
            fast: false,
        }
    }

    /// Whether it changes bytes.
    pub fn changes(&self) -> bool {
        matches!(self.verb, Verb::Write | Verb::Trim | Verb::Zero)
    }

    /// Whether its reply waits for the host's storage.
    pub fn waits_for_a_sync(&self) -> bool {
        self.fua || self.verb == Verb::Flush
    }
}

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It is told to stop.
    Stop,
    /// It is killed, or its host dies.
    Sudden(End),
}

/// What the runner does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A connection submits a request.
    Send(usize, Ask),
    /// A connection is served; so many bytes may pass in and out.
    Turn(usize, u32, u32),
    /// From now on syncs wait before they complete, or do not.
    Hold(bool),
    /// Lets the sync in progress complete.
    Sync,
    /// Looks at what the end at this moment would leave; `again` crashes that once more after it
    /// was opened.
    Fork(End, Option<Crash>),
    /// The daemon ends and starts again; `look` reads everything afterwards.
    Die(Death, bool),
    /// The same, but the first start dies right before its n-th write.
    DieTwice(End, u64, End),
    /// Looks at what the end right before a later write of the host would leave.
    Trap(u64, End),
    /// A later write of the host fails: after so many, when so many bytes arrived, with this errno.
    FailWrite(u64, usize, i32),
    /// The next syncs of the host fail.
    FailSyncs(u64),
    /// The flash loses power after so many programs and erases, at once without.
    Cut(Option<u64>, u64),
    /// Requests on real threads, in each connection one after the other; meanwhile the device is
    /// paused so often.
    Race(Vec<(usize, Ask)>, u32),
    /// Reads everything through a connection.
    Check(usize),
    /// Background work: collection, and space given back.
    Idle(u32),
    /// A connection ends and another takes its place: with a good-bye, or after so many more bytes.
    Leave(usize, Option<u32>),
    /// Looks, through a session, at what the end at this moment would leave, opened read-only.
    ReadOnly(End),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What payloads name.
    pub seed: u64,
    /// The scheme.
    pub scheme: String,
    /// The chip's rules.
    pub cells: Cells,
    /// Bytes of a flash page.
    pub page: u32,
    /// Pages of a block.
    pub block: u32,
    /// Bytes of the device.
    pub size: u64,
    /// Over-provisioning in percent.
    pub op: u32,
    /// Slots of the image beyond its blocks.
    pub spare: u32,
    /// Pages between two checkpoints.
    pub checkpoint: u32,
    /// Bytes of a piece of a request.
    pub piece: u32,
    /// Parameters of the scheme beyond the usual.
    pub params: Vec<(String, String)>,
    /// The connections.
    pub wires: Vec<Wire>,
    /// What happens.
    pub actions: Vec<Action>,
}

impl Plan {
    /// The scheme under test.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn scheme(&self) -> Result<&'static Scheme, String> {
        Scheme::find(&self.scheme).ok_or_else(|| format!("no scheme {}", self.scheme))
    }

    /// Whether RAM acknowledges writes, so that a kill may lose them.
    pub fn ram_acknowledges(&self) -> bool {
        self.params
            .iter()
            .any(|(key, value)| key == "mlam.ack" && value == "buffer")
    }
}

fn crash_text(how: Crash) -> String {
    match how {
        Crash::Nothing => "nothing".into(),
        Crash::Prefix(seed) => format!("prefix:{seed}"),
        Crash::AllBut(seed) => format!("allbut:{seed}"),
        Crash::Writes(seed) => format!("writes:{seed}"),
        Crash::Sectors(seed) => format!("sectors:{seed}"),
        Crash::Mask(bits) => format!("mask:{bits}"),
    }
}

fn end_text(end: End) -> String {
    match end {
        End::Kill => "kill".into(),
        End::Crash(how) => crash_text(how),
    }
}

impl Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = VERBS
            .iter()
            .find(|(_, verb)| *verb == self.verb)
            .map_or("", |(name, _)| name);
        write!(f, "{verb} {} {}", self.offset, self.length)?;
        let flags = [
            ("fua", self.fua),
            ("df", self.df),
            ("no-hole", self.no_hole),
            ("fast", self.fast),
        ];
        flags
            .iter()
            .filter(|(_, set)| *set)
            .try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Send(who, ask) => write!(f, "send {who} {ask}"),
            Action::Turn(who, inward, outward) => write!(f, "turn {who} {inward} {outward}"),
            Action::Hold(on) => write!(f, "hold {}", if *on { "on" } else { "off" }),
            Action::Sync => write!(f, "sync"),
            Action::Fork(end, None) => write!(f, "fork {}", end_text(*end)),
            Action::Fork(end, Some(again)) => {
                write!(f, "fork {} {}", end_text(*end), crash_text(*again))
            }
            Action::Die(death, look) => {
                let how = match death {
                    Death::Stop => "stop".into(),
                    Death::Sudden(end) => end_text(*end),
                };
                write!(f, "die {how} {}", if *look { "look" } else { "blind" })
            }
            Action::DieTwice(first, writes, second) => {
                write!(
                    f,
                    "die-twice {} {writes} {}",
                    end_text(*first),
                    end_text(*second)
                )
            }
            Action::Trap(writes, end) => write!(f, "trap {writes} {}", end_text(*end)),
            Action::FailWrite(left, arrives, errno) => {
                write!(f, "fail-write {left} {arrives} {errno}")
            }
            Action::FailSyncs(count) => write!(f, "fail-syncs {count}"),
            Action::Cut(None, seed) => write!(f, "cut now {seed}"),
            Action::Cut(Some(after), seed) => write!(f, "cut {after} {seed}"),
            Action::Race(asks, pauses) => {
                write!(f, "race {pauses}")?;
                asks.iter()
                    .try_for_each(|(who, ask)| write!(f, " ; {who} {ask}"))
            }
            Action::Check(who) => write!(f, "check {who}"),
            Action::Idle(budget) => write!(f, "idle {budget}"),
            Action::Leave(who, None) => write!(f, "leave {who} bye"),
            Action::Leave(who, Some(after)) => write!(f, "leave {who} {after}"),
            Action::ReadOnly(end) => write!(f, "read-only {}", end_text(*end)),
        }
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            seed,
            scheme,
            page,
            block,
            size,
            op,
            spare,
            checkpoint,
            piece,
            ..
        } = self;
        let mut wires = String::new();
        for wire in &self.wires {
            let name = WIRES
                .iter()
                .find(|(_, each)| each == wire)
                .map_or("", |(name, _)| name);
            write!(wires, " {name}")?;
        }
        writeln!(
            f,
            "plan {seed} {scheme} {} {page} {block} {size} {op} {spare} {checkpoint} {piece}{wires}",
            self.cells.name()
        )?;
        self.params
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "set {key} {value}"))?;
        self.actions
            .iter()
            .try_for_each(|action| writeln!(f, "{action}"))
    }
}

/// Words of a line, taken one by one.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self) -> Result<&str, String> {
        self.0
            .next()
            .ok_or_else(|| "the line ends early".to_owned())
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("{word:?} is no number"))
    }

    fn end(&mut self) -> Result<End, String> {
        let word = self.word()?;
        if word == "kill" {
            Ok(End::Kill)
        } else {
            crash(word).map(End::Crash)
        }
    }

    fn ask(&mut self) -> Result<Ask, String> {
        let word = self.word()?;
        let verb = VERBS
            .iter()
            .find(|(name, _)| *name == word)
            .ok_or_else(|| format!("no verb {word:?}"))?
            .1;
        let mut ask = Ask::new(verb, self.number()?, self.number()?);
        while let Ok(flag) = self.word() {
            match flag {
                "fua" => ask.fua = true,
                "df" => ask.df = true,
                "no-hole" => ask.no_hole = true,
                "fast" => ask.fast = true,
                other => return Err(format!("no flag {other:?}")),
            }
        }
        Ok(ask)
    }
}

fn crash(word: &str) -> Result<Crash, String> {
    let (kind, number) = word.split_once(':').unwrap_or((word, "0"));
    let number = number
        .parse()
        .map_err(|_| format!("{word:?} has no number"))?;
    Ok(match kind {
        "nothing" => Crash::Nothing,
        "prefix" => Crash::Prefix(number),
        "allbut" => Crash::AllBut(number),
        "writes" => Crash::Writes(number),
        "sectors" => Crash::Sectors(number),
        "mask" => Crash::Mask(number),
        _ => return Err(format!("no crash {word:?}")),
    })
}

fn action(line: &str) -> Result<Action, String> {
    let words = |text| Words(str::split_whitespace(text));
    let mut line_words = words(line);
    let w = &mut line_words;
    Ok(match w.word()? {
        "send" => Action::Send(w.number()?, w.ask()?),
        "turn" => Action::Turn(w.number()?, w.number()?, w.number()?),
        "hold" => Action::Hold(w.word()? == "on"),
        "sync" => Action::Sync,
        "fork" => Action::Fork(w.end()?, w.word().ok().map(crash).transpose()?),
        "die" => {
            let how = w.word()?;
            let death = match how {
                "stop" => Death::Stop,
                "kill" => Death::Sudden(End::Kill),
                how => Death::Sudden(End::Crash(crash(how)?)),
            };
            Action::Die(death, w.word()? == "look")
        }
        "die-twice" => Action::DieTwice(w.end()?, w.number()?, w.end()?),
        "trap" => Action::Trap(w.number()?, w.end()?),
        "fail-write" => Action::FailWrite(w.number()?, w.number()?, w.number()?),
        "fail-syncs" => Action::FailSyncs(w.number()?),
        "cut" => {
            let after = w.word()?.parse().ok();
            Action::Cut(after, w.number()?)
        }
        "race" => {
            let mut parts = line.split(';');
            let pauses = words(parts.next().unwrap_or_default())
                .0
                .nth(1)
                .and_then(|text| text.parse().ok());
            let asks = parts.map(|part| {
                let mut part = words(part);
                Ok((part.number()?, part.ask()?))
            });
            Action::Race(
                asks.collect::<Result<_, String>>()?,
                pauses.ok_or("no number of pauses")?,
            )
        }
        "check" => Action::Check(w.number()?),
        "idle" => Action::Idle(w.number()?),
        "leave" => Action::Leave(w.number()?, w.word()?.parse().ok()),
        "read-only" => Action::ReadOnly(w.end()?),
        other => return Err(format!("no action {other:?}")),
    })
}

/// Reads a plan; lines that begin with `#` are comments.
///
/// # Errors
/// A line is no action; the message names it.
pub fn parse(text: &str) -> Result<Plan, String> {
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut head = Words(lines.next().ok_or("an empty plan")?.split_whitespace());
    if head.word()? != "plan" {
        return Err("a plan begins with `plan`".into());
    }
    let (seed, scheme) = (head.number()?, head.word()?.to_owned());
    let cells = head.word()?.to_owned();
    let cells = Cells::ALL
        .into_iter()
        .find(|each| each.name() == cells)
        .ok_or("no such cells")?;
    let (page, block, size, op) = (
        head.number()?,
        head.number()?,
        head.number()?,
        head.number()?,
    );
    let (spare, checkpoint, piece) = (head.number()?, head.number()?, head.number()?);
    let wire = |word| {
        WIRES
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, wire)| *wire)
            .ok_or("no such framing")
    };
    let wires = head.0.map(wire).collect::<Result<Vec<_>, _>>()?;
    let mut params = Vec::new();
    let mut actions = Vec::new();
    for line in lines {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["set", key, value] => params.push((key.to_owned(), value.to_owned())),
            _ => actions.push(action(line).map_err(|why| format!("{line:?}: {why}"))?),
        }
    }
    Ok(Plan {
        seed,
        scheme,
        cells,
        page,
        block,
        size,
        op,
        spare,
        checkpoint,
        piece,
        params,
        wires,
        actions,
    })
}

/// Bytes enough for everything.
pub const ALL: u32 = u32::MAX;

/// What a device is like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Some tens of pages.
    Small,
    /// More than two slices of the volume, and requests that reach over one.
    Slices,
    /// More pages than one trim may cover in one go.
    Long,
}

/// Draws plans.
struct Draw {
    rng: SplitMix,
    plan: Plan,
    shape: Shape,
    hot: u64,
    /// Kinds of faults that this run has.
    writes_fail: bool,
    syncs_fail: bool,
    cuts: bool,
    races: bool,
    holds: bool,
    deaths: bool,
    leaves: bool,
    traps: bool,
}

/// The plan of a seed.
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
        rng.below(u64::from(page))
    };
    let wires = (0..1 + rng.below(4))
        .map(|_| WIRES[rng.below(4) as usize].1)
        .collect();
    let scheme = &SCHEMES[rng.below(SCHEMES.len() as u64) as usize];
    let ram = has_param(scheme, "mlam.ack") && rng.one_in(2);
    // From 64 KiB on the server looks a read through for holes.
    let pieces = if rng.one_in(5) {
        64 << 10
    } else {
        page * pick(&mut rng, &[1, 2, 3, 8])
    };
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
        params: if ram {
            vec![("mlam.ack".into(), "buffer".into())]
        } else {
            Vec::new()
        },
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
        deaths: !rng.one_in(4),
        leaves: rng.one_in(2),
        traps: rng.one_in(2),
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

impl Draw {
    fn act(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    fn who(&mut self) -> usize {
        self.rng.below(self.plan.wires.len() as u64) as usize
    }

    fn turn(&mut self, who: usize) {
        self.act(Action::Turn(who, ALL, ALL));
    }

    /// Content before anything happens, on most devices.
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

    /// Where a request goes, and how long it is.
    fn extent(&mut self) -> (u64, u64) {
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

    fn ask(&mut self) -> Ask {
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
                // Long ones are looked through for holes.
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

    fn crash(&mut self) -> Crash {
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

    fn end(&mut self) -> End {
        if self.rng.one_in(5) {
            End::Kill
        } else {
            End::Crash(self.crash())
        }
    }

    fn fork(&mut self) {
        let again = if self.rng.one_in(4) {
            Some(self.crash())
        } else {
            None
        };
        let end = self.end();
        self.act(Action::Fork(end, again));
    }

    fn request(&mut self) {
        let (who, ask) = (self.who(), self.ask());
        self.act(Action::Send(who, ask));
        self.turn(who);
    }

    fn step(&mut self) {
        match self.rng.below(36) {
            30 => self.fua_in_pieces(),
            31 | 32 if self.holds => self.behind_a_sync(),
            33 | 34 if self.leaves => self.leave(),
            35 if self.deaths => self.stop_amid(),
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
            26..28 if self.deaths => self.die(),
            28 => {
                let (who, budget) = (self.who(), 1 + self.rng.below(40) as u32);
                self.act(Action::Idle(budget));
                self.act(Action::Check(who));
            }
            _ if self.traps => {
                let (writes, end) = (self.rng.below(12), self.end());
                self.act(Action::Trap(writes, end));
                self.request();
            }
            _ => self.fork(),
        }
    }

    /// Writes of one connection, made durable by itself or by another one; then a crash.
    fn durable(&mut self) {
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
            self.fork();
        }
    }

    /// Several requests at once, served in parts.
    fn overlap(&mut self) {
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
            self.fork();
        }
        busy.into_iter().for_each(|who| self.turn(who));
        if self.rng.one_in(2) {
            self.fork();
        }
    }

    /// Requests while a sync is in progress.
    fn held_sync(&mut self) {
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
                self.fork();
            }
            if self.rng.one_in(3) {
                self.act(Action::Sync);
                self.fork();
            }
        }
        if self.deaths && self.rng.one_in(6) {
            self.die();
        }
        self.act(Action::Hold(false));
        self.fork();
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

    /// A FUA write of several pieces, between which another connection works and syncs; then a
    /// crash.
    fn fua_in_pieces(&mut self) {
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
        self.act(Action::Fork(End::Crash(crash), again));
    }

    /// A sync in progress for one connection, many requests behind it; the syncs complete one by
    /// one, with a crash after each.
    fn behind_a_sync(&mut self) {
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
            self.act(Action::Fork(End::Crash(crash), None));
        }
        self.act(Action::Hold(false));
        self.fork();
    }

    /// A connection that ends with requests in flight.
    fn leave(&mut self) {
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
            self.fork();
        }
        let after = if self.rng.one_in(3) {
            None
        } else {
            Some(self.rng.below(bytes + 1) as u32)
        };
        self.act(Action::Leave(who, after));
        match self.rng.below(3) {
            0 => self.fork(),
            1 => self.act(Action::Check(who)),
            _ => self.durable(),
        }
    }

    /// A stop with requests in flight, half of them behind a sync in progress.
    fn stop_amid(&mut self) {
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
        self.act(Action::Die(Death::Stop, look));
    }

    fn failing_write(&mut self) {
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
            1 => self.fork(),
            _ => self.durable(),
        }
    }

    fn failing_sync(&mut self) {
        let count = 1 + self.rng.below(2);
        self.act(Action::FailSyncs(count));
        self.durable();
        self.request();
        if self.rng.one_in(2) {
            // Reads are served on.
            let who = self.who();
            self.act(Action::Check(who));
        }
        if self.rng.one_in(2) {
            let end = if self.rng.one_in(2) {
                End::Kill
            } else {
                self.end()
            };
            self.act(Action::Die(Death::Sudden(end), true));
            self.durable();
        } else {
            self.die();
        }
    }

    fn cut(&mut self) {
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
            self.fork();
        }
        self.power_off();
    }

    fn power_off(&mut self) {
        let (end, look) = (self.end(), !self.rng.one_in(4));
        let death = if self.rng.one_in(3) {
            Death::Stop
        } else {
            Death::Sudden(end)
        };
        self.act(Action::Die(death, look));
    }

    /// Power fails while the reply to a read of several pieces has begun.
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

    fn race(&mut self) {
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

    fn die(&mut self) {
        let look = !self.rng.one_in(3);
        match self.rng.below(6) {
            0 => self.act(Action::Die(Death::Stop, look)),
            1 => {
                let (first, writes, second) = (self.end(), self.rng.below(14), self.end());
                self.act(Action::DieTwice(first, writes, second));
            }
            2 | 3 => self.act(Action::Die(Death::Sudden(End::Kill), look)),
            _ => {
                let how = self.crash();
                self.act(Action::Die(Death::Sudden(End::Crash(how)), look));
            }
        }
        if self.rng.one_in(2) {
            self.fork();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_back_as_it_was_written_and_repeats_from_its_seed() {
        for seed in 0..300 {
            let plan = draw(seed);
            assert_eq!(parse(&plan.to_string()).unwrap(), plan, "seed {seed}");
            assert_eq!(plan, draw(seed));
        }
        assert!(parse("plan 1 lazyftl slc").is_err() && parse("hold on").is_err());
    }
}
