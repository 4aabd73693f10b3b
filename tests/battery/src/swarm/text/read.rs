//! Reads plans and steps from text. An error names the line, the wrong word, and the valid ones.

use super::write::name;
use crate::swarm::plan::{ChipKind, Device, DiskFault, Down, Inside, Parts, Plan, Restart, Step};
use crate::workload::HostOp;
use ftl_core::schemes::Scheme;
use ftld_host_disk::{Crash, Freeze, SyncFault, WriteFault};
use nand_model::{Cut, EraseCut, Fault, Pairing, PartnerCut, ProgramCut};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Reads the output of [`name`].
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

pub(super) fn crash(text: &str) -> Result<Crash, String> {
    let numbered: [fn(u64) -> Crash; 5] = [
        Crash::Prefix,
        Crash::AllBut,
        Crash::Writes,
        Crash::Sectors,
        Crash::Mask,
    ];
    named(text, &[Crash::Nothing], &numbered)
}

/// Words of a line, read in order.
struct Line<'a> {
    text: &'a str,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Line<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Line {
            text,
            words: text.split_whitespace(),
        }
    }

    pub(super) fn word(&mut self) -> Result<&'a str, String> {
        self.words
            .next()
            .ok_or_else(|| format!("{:?}: a word is missing", self.text))
    }

    pub(super) fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse()
            .map_err(|_| format!("{:?}: {word:?} is no number", self.text))
    }

    /// The last number, if there is one.
    fn rest<T: FromStr>(&mut self) -> Result<Option<T>, String> {
        match self.words.clone().next() {
            Some(_) => self.number().map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn count(&mut self) -> Result<u64, String> {
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

    pub(super) fn fault(&mut self) -> Result<Fault, String> {
        let word = self.word()?;
        Fault::ALL
            .into_iter()
            .find(|fault| fault.name() == word)
            .ok_or_else(|| format!("{word:?} is no fault"))
    }

    fn freeze(&mut self) -> Result<Freeze, String> {
        let numbered = [Freeze::Write as fn(u64) -> Freeze, Freeze::Sync];
        named(self.word()?, &[], &numbered)
    }

    pub(super) fn cut(&mut self) -> Result<Cut, String> {
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
                    |n| PartnerCut::DestroyedOne(n as u8),
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

pub(super) fn restart<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Restart, String> {
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
                "crash" => Inside::Crash(line.freeze()?, crash(line.word()?)?),
                "fails" => Inside::Fails(line.number()?, line.number()?, line.cut()?),
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
                    "stop_cut" => Down::StopCut(line.cut()?),
                    "stop_crash" => Down::StopCrash(line.freeze()?, crash(line.word()?)?),
                    "kill" => Down::Kill,
                    "power_off" => Down::PowerOff,
                    "crash" => Down::Crash(crash(line.word()?)?),
                    other => return Err(format!("{text:?}: what is {other:?}?")),
                };
                Step::Down(how, restart(parts.by_ref())?)
            }
            "age" => Step::Age(line.number()?),
            "hammer" => Step::Hammer(line.number()?, line.number()?, line.rest()?.unwrap_or(1)),
            "wrong_bits" => Step::WrongBits(line.number()?, line.number()?, line.has("map")),
            "lost_oob" => Step::LostOob(line.number()?, line.has("map")),
            "die_fails" => Step::DieFails(line.number()?),
            "block_fails" => Step::BlockFails(line.number()?, line.fault()?),
            "disk" => Step::Disk(match line.word()? {
                "writes_fail" => DiskFault::Writes(WriteFault {
                    after: line.number()?,
                    count: line.count()?,
                    arrives: line.number()?,
                    errno: line.number()?,
                    needs_room: line.has("room"),
                    longest: usize::MAX,
                }),
                "erases_fail" => DiskFault::Erases(line.count()?, line.number()?),
                "syncs_fail" => DiskFault::Syncs(SyncFault {
                    after: line.number()?,
                    count: line.count()?,
                    seed: line.rest()?,
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
    /// Reads the text form of a plan for one of `schemes`.
    ///
    /// # Errors
    /// They name the line, the wrong word, and the valid ones.
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

/// The parsed lines of a plan.
#[derive(Default)]
struct Draft<'a> {
    schemes: &'static [Scheme],
    seed: Option<u64>,
    device: Option<Device>,
    params: Vec<(String, String)>,
    parts: Parts,
    steps: Vec<(usize, Step)>,
    /// Keys that are allowed once and occurred.
    said: BTreeSet<&'a str>,
}

impl<'a> Draft<'a> {
    pub(super) fn read(&mut self, text: &'a str) -> Result<(), String> {
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
                self.parts.rates.push((fault, line.number()?));
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

/// Maximum pages of a handwritten device: such a run takes minutes.
const MOST_PAGES: u32 = 1 << 20;

/// The scheme of this name.
pub(super) fn scheme(name: &str, schemes: &'static [Scheme]) -> Result<&'static Scheme, String> {
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
            "tlc" => Ok(ChipKind::Tlc),
            "qlc" => Ok(ChipKind::Qlc),
            _ => plain
                .into_iter()
                .find(|kind| kind.name() == text)
                .ok_or(format!("no chip {text:?}")),
        }
    }
}
