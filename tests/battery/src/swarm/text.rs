//! The text form of a plan, one line per step, so that a shrunk failure can be kept and read.
//!
//! Lines: `seed N`, `device KEY=VALUE...`, `param KEY=VALUE`, `chance FAULT PPB`, `wear N`, `bits
//! N`, `in_flight`, then the steps. What strikes a restart follows its step behind `;`. Empty lines
//! and lines that begin with `#` say nothing. docs/TESTING.md has a table of them.

use super::plan::{ChipKind, Device, DiskFault, Down, Inside, Parts, Plan, Restart, Step};
use crate::workload::HostOp;
use ftl_core::schemes::Scheme;
use nand_model::store::{Crash, Freeze, SyncFault, WriteFault};
use nand_model::{Cut, EraseCut, Fault, Pairing, PartnerCut, ProgramCut};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Device {
            scheme,
            chip,
            pages_per_block,
            dies,
            pages,
            op_percent,
            params,
            worn,
            on_disk,
        } = &self.device;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(
            f,
            "device scheme={} chip={} pages_per_block={pages_per_block} channels={} ways={} pages={pages} \
             op={op_percent} worn={worn} disk={on_disk}",
            scheme.name,
            chip.name(),
            dies.0,
            dies.1
        )?;
        params
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "param {key}={value}"))?;
        self.parts
            .chances
            .iter()
            .try_for_each(|(fault, ppb)| writeln!(f, "chance {} {ppb}", fault.name()))?;
        let Parts {
            wear_out,
            bit_errors,
            ..
        } = self.parts;
        if wear_out > 0 {
            writeln!(f, "wear {wear_out}")?;
        }
        if bit_errors > 0 {
            writeln!(f, "bits {bit_errors}")?;
        }
        if self.parts.in_flight {
            writeln!(f, "in_flight")?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Step::Do(op) => write_request(f, op),
            Step::Cut(cut, restart) => write!(f, "cut {}{restart}", Words(cut)),
            Step::Down(Down::Stop, restart) => write!(f, "down stop{restart}"),
            Step::Down(Down::Kill, restart) => write!(f, "down kill{restart}"),
            Step::Down(Down::PowerOff, restart) => write!(f, "down power_off{restart}"),
            Step::Down(Down::Crash(how), restart) => {
                write!(f, "down crash {}{restart}", Words(how))
            }
            Step::Age(hours) => write!(f, "age {hours}"),
            Step::Hammer(lpn, times) => write!(f, "hammer {lpn} {times}"),
            Step::WrongBits(page, bits, of_map) => {
                write!(
                    f,
                    "wrong_bits {page} {bits}{}",
                    if *of_map { " map" } else { "" }
                )
            }
            Step::DieFails(die) => write!(f, "die_fails {die}"),
            Step::BlockFails(block, fault) => write!(f, "block_fails {block} {}", fault.name()),
            Step::Disk(DiskFault::Writes(WriteFault {
                after,
                count,
                arrives,
                errno,
                needs_room,
            })) => {
                let room = if *needs_room { " room" } else { "" };
                write!(
                    f,
                    "disk writes_fail {after} {} {arrives} {errno}{room}",
                    Count(*count)
                )
            }
            Step::Disk(DiskFault::Syncs(SyncFault { after, count, seed })) => {
                write!(f, "disk syncs_fail {after} {}", Count(*count))?;
                seed.map_or(Ok(()), |seed| write!(f, " {seed}"))
            }
            Step::Disk(DiskFault::Reads(permille, count)) => {
                write!(f, "disk reads_fail {permille} {}", Count(*count))
            }
            Step::Mend => write!(f, "mend"),
            Step::Sync => write!(f, "sync"),
            Step::GiveBack(slots) => write!(f, "give_back {slots}"),
        }
    }
}

fn write_request(f: &mut Formatter, op: &HostOp) -> fmt::Result {
    let fua = |fua: bool| if fua { " fua" } else { "" };
    match *op {
        HostOp::Write {
            lpn,
            count,
            fua: durable,
        } => write!(f, "write {lpn} {count}{}", fua(durable)),
        HostOp::WriteZeroData { lpn, count } => write!(f, "write_zero_data {lpn} {count}"),
        HostOp::WriteZeroes {
            lpn,
            count,
            fua: durable,
        } => write!(f, "write_zeroes {lpn} {count}{}", fua(durable)),
        HostOp::Trim { lpn, count } => write!(f, "trim {lpn} {count}"),
        HostOp::Flush => write!(f, "flush"),
        HostOp::Read { lpn, count } => write!(f, "read {lpn} {count}"),
        HostOp::Idle(budget) => write!(f, "idle {budget}"),
    }
}

impl Display for Restart {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if let Some(how) = &self.crash {
            write!(f, " ; crash {}", Words(how))?;
        }
        self.inside.iter().try_for_each(|inside| match inside {
            Inside::Cut(cut, None) => write!(f, " ; inside cut {}", Words(cut)),
            Inside::Cut(cut, Some(how)) => {
                write!(f, " ; inside cut {} crash {}", Words(cut), Words(how))
            }
            Inside::Crash(at, how) => write!(f, " ; inside crash {} {}", name(at), Words(how)),
            Inside::Kill => write!(f, " ; inside kill"),
        })
    }
}

/// How many of something fail.
struct Count(u64);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        if self.0 == u64::MAX {
            f.write_str("all")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// A value of another crate in words.
struct Words<T>(T);

impl Display for Words<&Cut> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Cut {
            at_op,
            program,
            partner,
            erase,
            seed,
            ..
        } = self.0;
        write!(
            f,
            "{at_op} {} {} {} {seed}",
            name(program),
            name(partner),
            name(erase)
        )
    }
}

impl Display for Words<&Crash> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&name(self.0))
    }
}

/// A variant in lower case, a number in it behind a colon: `Unstable(3)` is `unstable:3`.
fn name(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let (word, number) = text.split_once('(').unwrap_or((&text, ""));
    let mut snake = String::new();
    for (i, letter) in word.char_indices() {
        if letter.is_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    match number.trim_end_matches(')') {
        "" => snake,
        number => format!("{snake}:{number}"),
    }
}

/// Reads what [`name`] wrote.
fn named<T: fmt::Debug + Copy>(
    text: &str,
    plain: &[T],
    numbered: &[fn(u64) -> T],
) -> Result<T, String> {
    let (word, number) = text.split_once(':').unwrap_or((text, ""));
    if let Some(value) = plain.iter().find(|value| name(*value) == text) {
        return Ok(*value);
    }
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no outcome"))?;
    let found = numbered
        .iter()
        .map(|make| make(number))
        .find(|value| name(value).split(':').next() == Some(word));
    found.ok_or_else(|| format!("{text:?} is no outcome"))
}

fn crash(text: &str) -> Result<Crash, String> {
    let numbered: [fn(u64) -> Crash; 5] = [
        Crash::Prefix,
        Crash::AllBut,
        Crash::Writes,
        Crash::Sectors,
        Crash::Mask,
    ];
    named(text, &[Crash::Nothing], &numbered)
}

/// Words of a line, taken one after the other.
struct Line<'a> {
    text: &'a str,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Line<'a> {
    fn new(text: &'a str) -> Self {
        Line {
            text,
            words: text.split_whitespace(),
        }
    }

    fn word(&mut self) -> Result<&'a str, String> {
        self.words
            .next()
            .ok_or_else(|| format!("{:?}: a word is missing", self.text))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse()
            .map_err(|_| format!("{:?}: {word:?} is no number", self.text))
    }

    fn count(&mut self) -> Result<u64, String> {
        if self.has("all") {
            Ok(u64::MAX)
        } else {
            self.number()
        }
    }

    fn has(&mut self, word: &str) -> bool {
        let mut ahead = self.words.clone();
        let found = ahead.next() == Some(word);
        if found {
            self.words = ahead;
        }
        found
    }

    fn fault(&mut self) -> Result<Fault, String> {
        let word = self.word()?;
        Fault::ALL
            .into_iter()
            .find(|fault| fault.name() == word)
            .ok_or_else(|| format!("{word:?} is no fault"))
    }

    fn cut(&mut self) -> Result<Cut, String> {
        let programs = [
            ProgramCut::NotStarted,
            ProgramCut::Prefix,
            ProgramCut::RandomBits,
            ProgramCut::DataTorn,
            ProgramCut::OobTorn,
            ProgramCut::Complete,
        ];
        let partners = [PartnerCut::Intact, PartnerCut::Destroyed];
        Ok(Cut {
            at_op: self.number()?,
            program: named(
                self.word()?,
                &programs,
                &[
                    |n| ProgramCut::Unstable(n as u8),
                    |n| ProgramCut::Flickering(n as u8),
                ],
            )?,
            partner: named(
                self.word()?,
                &partners,
                &[
                    |n| PartnerCut::Unstable(n as u8),
                    |n| PartnerCut::Flickering(n as u8),
                ],
            )?,
            erase: named(self.word()?, &EraseCut::ALL, &[])?,
            seed: self.number()?,
        })
    }

    fn end(mut self) -> Result<(), String> {
        self.words.next().map_or(Ok(()), |word| {
            Err(format!("{:?}: what is {word:?}?", self.text))
        })
    }
}

fn restart<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Restart, String> {
    let mut restart = Restart::default();
    for part in parts {
        let mut line = Line::new(part);
        match line.word()? {
            "crash" => restart.crash = Some(crash(line.word()?)?),
            "inside" => restart.inside.push(match line.word()? {
                "cut" => {
                    let cut = line.cut()?;
                    let how = if line.has("crash") {
                        Some(crash(line.word()?)?)
                    } else {
                        None
                    };
                    Inside::Cut(cut, how)
                }
                "crash" => {
                    let at = named(
                        line.word()?,
                        &[],
                        &[Freeze::Write as fn(u64) -> Freeze, Freeze::Sync],
                    )?;
                    Inside::Crash(at, crash(line.word()?)?)
                }
                "kill" => Inside::Kill,
                other => return Err(format!("{part:?}: what is {other:?}?")),
            }),
            other => return Err(format!("{part:?}: what is {other:?}?")),
        }
        line.end()?;
    }
    Ok(restart)
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let mut parts = text.split(';');
        let mut line = Line::new(parts.next().unwrap_or_default());
        let step = match line.word()? {
            "write" => Step::Do(HostOp::Write {
                lpn: line.number()?,
                count: line.number()?,
                fua: line.has("fua"),
            }),
            "write_zero_data" => Step::Do(HostOp::WriteZeroData {
                lpn: line.number()?,
                count: line.number()?,
            }),
            "write_zeroes" => Step::Do(HostOp::WriteZeroes {
                lpn: line.number()?,
                count: line.number()?,
                fua: line.has("fua"),
            }),
            "trim" => Step::Do(HostOp::Trim {
                lpn: line.number()?,
                count: line.number()?,
            }),
            "flush" => Step::Do(HostOp::Flush),
            "read" => Step::Do(HostOp::Read {
                lpn: line.number()?,
                count: line.number()?,
            }),
            "idle" => Step::Do(HostOp::Idle(line.number()?)),
            "cut" => Step::Cut(line.cut()?, restart(parts.by_ref())?),
            "down" => {
                let how = match line.word()? {
                    "stop" => Down::Stop,
                    "kill" => Down::Kill,
                    "power_off" => Down::PowerOff,
                    "crash" => Down::Crash(crash(line.word()?)?),
                    other => return Err(format!("{text:?}: what is {other:?}?")),
                };
                Step::Down(how, restart(parts.by_ref())?)
            }
            "age" => Step::Age(line.number()?),
            "hammer" => Step::Hammer(line.number()?, line.number()?),
            "wrong_bits" => Step::WrongBits(line.number()?, line.number()?, line.has("map")),
            "die_fails" => Step::DieFails(line.number()?),
            "block_fails" => Step::BlockFails(line.number()?, line.fault()?),
            "disk" => Step::Disk(match line.word()? {
                "writes_fail" => DiskFault::Writes(WriteFault {
                    after: line.number()?,
                    count: line.count()?,
                    arrives: line.number()?,
                    errno: line.number()?,
                    needs_room: line.has("room"),
                }),
                "syncs_fail" => DiskFault::Syncs(SyncFault {
                    after: line.number()?,
                    count: line.count()?,
                    seed: if line.words.clone().next().is_some() {
                        Some(line.number()?)
                    } else {
                        None
                    },
                }),
                "reads_fail" => DiskFault::Reads(line.number()?, line.count()?),
                other => return Err(format!("{text:?}: what is {other:?}?")),
            }),
            "mend" => Step::Mend,
            "sync" => Step::Sync,
            "give_back" => Step::GiveBack(line.number()?),
            other => return Err(format!("{text:?}: what is {other:?}?")),
        };
        line.end()?;
        parts
            .next()
            .map_or(Ok(step), |more| Err(format!("{text:?}: what is {more:?}?")))
    }
}

impl Plan {
    /// Reads the text form of a plan, of which one of `schemes` is the scheme.
    ///
    /// # Errors
    /// They name the line, what in it is wrong, and what there is instead.
    pub fn parse(text: &str, schemes: &'static [Scheme]) -> Result<Plan, String> {
        let mut draft = Draft {
            schemes,
            ..Draft::default()
        };
        for (text, number) in text.lines().zip(1..) {
            if !text.trim().is_empty() && !text.starts_with('#') {
                draft
                    .read(text)
                    .map_err(|why| format!("line {number}: {why}"))?;
            }
        }
        let Draft {
            seed,
            device,
            params,
            parts,
            steps,
            ..
        } = draft;
        let device = Device {
            params,
            ..device.ok_or("no line says what the device is")?
        };
        for (number, step) in &steps {
            device
                .has_room_for(step)
                .map_err(|why| format!("step {number}: {why}"))?;
        }
        let steps = steps.into_iter().map(|(_, step)| step).collect();
        Ok(Plan {
            seed: seed.ok_or("no line names the seed")?,
            device,
            parts,
            steps,
        })
    }
}

/// What the lines of a plan said so far.
#[derive(Default)]
struct Draft<'a> {
    schemes: &'static [Scheme],
    seed: Option<u64>,
    device: Option<Device>,
    params: Vec<(String, String)>,
    parts: Parts,
    steps: Vec<(usize, Step)>,
    /// What may be said once, and was.
    said: BTreeSet<&'a str>,
}

impl<'a> Draft<'a> {
    fn read(&mut self, text: &'a str) -> Result<(), String> {
        let mut line = Line::new(text);
        let head = line.word()?;
        match head {
            "seed" => self.seed = Some(line.number()?),
            "device" => self.device = Some(read_device(line.words.by_ref(), self.schemes)?),
            "param" => {
                let word = line.word()?;
                let (key, value) = word
                    .split_once('=')
                    .ok_or_else(|| format!("{text:?} has no value"))?;
                self.once(key)?;
                self.params.push((key.to_owned(), value.to_owned()));
                return line.end();
            }
            "chance" => {
                let fault = line.fault()?;
                self.once(fault.name())?;
                self.parts.chances.push((fault, line.number()?));
                return line.end();
            }
            "wear" => self.parts.wear_out = line.number()?,
            "bits" => self.parts.bit_errors = line.number()?,
            "in_flight" => self.parts.in_flight = true,
            _ => {
                self.steps.push((self.steps.len() + 1, text.parse()?));
                return Ok(());
            }
        }
        self.once(head)?;
        line.end()
    }

    fn once(&mut self, what: &'a str) -> Result<(), String> {
        if self.said.insert(what) {
            Ok(())
        } else {
            Err(format!("{what} is given twice"))
        }
    }
}

/// Pages of a device that is written by hand: such a run takes minutes.
const MOST_PAGES: u32 = 1 << 20;

/// The scheme of this name.
fn scheme(name: &str, schemes: &'static [Scheme]) -> Result<&'static Scheme, String> {
    let names = || {
        let names: Vec<_> = schemes.iter().map(|scheme| scheme.name).collect();
        names.join(", ")
    };
    let found = schemes.iter().find(|scheme| scheme.name == name);
    found.ok_or_else(|| format!("no scheme {name:?}; there are {}", names()))
}

fn read_device<'a>(
    words: impl Iterator<Item = &'a str>,
    schemes: &'static [Scheme],
) -> Result<Device, String> {
    let pair = |word: &'a str| {
        word.split_once('=')
            .ok_or(format!("device: what is {word:?}?"))
    };
    let pairs: Vec<(&str, &str)> = words.map(pair).collect::<Result<_, _>>()?;
    const KEYS: [&str; 9] = [
        "scheme",
        "chip",
        "pages_per_block",
        "channels",
        "ways",
        "pages",
        "op",
        "worn",
        "disk",
    ];
    if let Some((unknown, _)) = pairs.iter().find(|(key, _)| !KEYS.contains(key)) {
        return Err(format!(
            "device: what is {unknown:?}? It has {}",
            KEYS.join(", ")
        ));
    }
    let again =
        |(at, pair): &(usize, &(&str, &str))| pairs[..*at].iter().any(|before| before.0 == pair.0);
    if let Some((_, (twice, _))) = pairs.iter().enumerate().find(again) {
        return Err(format!("device: {twice} is given twice"));
    }
    let text = |key: &str| {
        pairs
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value)
            .ok_or(format!("the device has no {key}"))
    };
    let number = |key: &str| {
        text(key)?
            .parse::<u32>()
            .map_err(|error| format!("{key}: {error}"))
    };
    let flag = |key: &str| {
        text(key)?
            .parse::<bool>()
            .map_err(|error| format!("{key}: {error}"))
    };
    let pages = number("pages")?;
    if !(1..=MOST_PAGES).contains(&pages) {
        return Err(format!(
            "device: pages={pages} is not within 1 to {MOST_PAGES}"
        ));
    }
    Ok(Device {
        scheme: scheme(text("scheme")?, schemes)?,
        chip: text("chip")?.parse()?,
        pages_per_block: number("pages_per_block")?,
        dies: (number("channels")?, number("ways")?),
        pages,
        op_percent: number("op")?,
        params: Vec::new(),
        worn: flag("worn")?,
        on_disk: flag("disk")?,
    })
}

impl ChipKind {
    pub(super) fn name(self) -> String {
        match self {
            ChipKind::Slc => "slc".into(),
            ChipKind::Mlc => "mlc".into(),
            ChipKind::Paired(Pairing::Random { seed, span }) => format!("random:{seed}:{span}"),
            ChipKind::Paired(pairing) => name(&pairing),
        }
    }
}

impl FromStr for ChipKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ChipKind, String> {
        let plain = [
            Pairing::Adjacent,
            Pairing::Dist3,
            Pairing::Dist6,
            Pairing::Shared4,
            Pairing::Group4,
        ]
        .map(ChipKind::Paired);
        if let Some((seed, span)) = text
            .strip_prefix("random:")
            .and_then(|numbers| numbers.split_once(':'))
        {
            let (seed, span) = (seed.parse().ok(), span.parse().ok());
            return match (seed, span) {
                (Some(seed), Some(span)) => Ok(ChipKind::Paired(Pairing::Random { seed, span })),
                _ => Err(format!("no chip {text:?}")),
            };
        }
        match text {
            "slc" => Ok(ChipKind::Slc),
            "mlc" => Ok(ChipKind::Mlc),
            _ => plain
                .into_iter()
                .find(|kind| kind.name() == text)
                .ok_or(format!("no chip {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftl_core::schemes::SCHEMES;

    #[test]
    fn every_plan_reads_as_it_was_written() {
        for seed in 0..2_000 {
            let text = Plan::draw(SCHEMES, seed).to_string();
            let again = Plan::parse(&text, SCHEMES).unwrap_or_else(|why| panic!("{why}\n{text}"));
            assert_eq!(again.to_string(), text);
        }
    }

    #[test]
    fn a_plan_that_says_something_twice_is_refused_by_line() {
        let plan = Plan::draw(SCHEMES, 1).to_string();
        let device = plan
            .lines()
            .find(|line| line.starts_with("device"))
            .expect("a device");
        for twice in [
            "seed 3",
            device,
            "chance stale_read 1\nchance stale_read 2",
            "param x=1\nparam x=2",
        ] {
            let why = Plan::parse(&format!("{plan}{twice}\n"), SCHEMES)
                .err()
                .unwrap_or_default();
            assert!(
                why.starts_with("line ") && why.ends_with(" is given twice"),
                "{twice}: {why}"
            );
        }
        let again = plan.replacen(device, &format!("{device} op=7"), 1);
        let why = Plan::parse(&again, SCHEMES).err().unwrap_or_default();
        assert!(why.starts_with("line 2: device: op"), "{why}");
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for line in [
            "wrote 3 4",
            "write 3",
            "cut 1 torn intact mixed 3",
            "down kill ; inside what",
            "flush now",
        ] {
            assert!(line.parse::<Step>().is_err(), "{line}");
        }
    }
}
