//! Text form of plans.

use super::{Action, Ask, DaemonEnd, Plan, VERBS, WIRES};
use ftld_battery::rig::Cells;
use ftld_device::volume::write_cache::CacheOptions;
use ftld_host_disk::{Crash, End, Freeze};
use nand_model::Striping;
use std::fmt;
use std::fmt::Display;
use std::fmt::Write;

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

fn freeze_text(at: Freeze) -> String {
    match at {
        Freeze::Write(writes) => format!("write:{writes}"),
        Freeze::Sync(syncs) => format!("sync:{syncs}"),
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
            Action::CheckState(end, None) => write!(f, "check-state {}", end_text(*end)),
            Action::CheckState(end, Some(again)) => {
                write!(f, "check-state {} {}", end_text(*end), crash_text(*again))
            }
            Action::End(how, look) => {
                let how = match how {
                    DaemonEnd::Stop => "stop".into(),
                    DaemonEnd::Sudden(end) => end_text(*end),
                };
                write!(f, "end {how} {}", if *look { "look" } else { "blind" })
            }
            Action::EndTwice(first, at, second) => {
                write!(
                    f,
                    "end-twice {} {} {}",
                    end_text(*first),
                    freeze_text(*at),
                    end_text(*second)
                )
            }
            Action::EndInStop(at, end) => {
                write!(f, "end-in-stop {} {}", freeze_text(*at), end_text(*end))
            }
            Action::CheckBeforeWrite(writes, end) => {
                write!(f, "check-before-write {writes} {}", end_text(*end))
            }
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
        if let Some(striping) = &self.striping {
            writeln!(f, "shards {} {}", striping.count, striping.stripe_bytes)?;
        }
        if let Some(cache) = &self.cache {
            let (model, tear) = (cache.model.name(), cache.tear.unwrap_or(0));
            let plp = if cache.protected { " plp" } else { "" };
            writeln!(f, "cache {} {model} {tear}{plp}", cache.bytes)?;
        }
        self.params
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "set {key} {value}"))?;
        self.actions
            .iter()
            .try_for_each(|action| writeln!(f, "{action}"))
    }
}

/// Words of a line, read one by one.
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

    pub(super) fn end(&mut self) -> Result<End, String> {
        let word = self.word()?;
        if word == "kill" {
            Ok(End::Kill)
        } else {
            crash(word).map(End::Crash)
        }
    }

    pub(super) fn freeze(&mut self) -> Result<Freeze, String> {
        let word = self.word()?;
        let at = word.split_once(':').and_then(|(kind, number)| {
            let number = number.parse().ok()?;
            match kind {
                "write" => Some(Freeze::Write(number)),
                "sync" => Some(Freeze::Sync(number)),
                _ => None,
            }
        });
        at.ok_or_else(|| format!("no write or sync {word:?}"))
    }

    pub(super) fn ask(&mut self) -> Result<Ask, String> {
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

pub(super) fn crash(word: &str) -> Result<Crash, String> {
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

pub(super) fn action(line: &str) -> Result<Action, String> {
    let words = |text| Words(str::split_whitespace(text));
    let mut line_words = words(line);
    let w = &mut line_words;
    Ok(match w.word()? {
        "send" => Action::Send(w.number()?, w.ask()?),
        "turn" => Action::Turn(w.number()?, w.number()?, w.number()?),
        "hold" => Action::Hold(w.word()? == "on"),
        "sync" => Action::Sync,
        "check-state" => Action::CheckState(w.end()?, w.word().ok().map(crash).transpose()?),
        "end" => {
            let how = w.word()?;
            let how = match how {
                "stop" => DaemonEnd::Stop,
                "kill" => DaemonEnd::Sudden(End::Kill),
                how => DaemonEnd::Sudden(End::Crash(crash(how)?)),
            };
            Action::End(how, w.word()? == "look")
        }
        "end-twice" => Action::EndTwice(w.end()?, w.freeze()?, w.end()?),
        "end-in-stop" => Action::EndInStop(w.freeze()?, w.end()?),
        "check-before-write" => Action::CheckBeforeWrite(w.number()?, w.end()?),
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

/// Parses a plan; lines that begin with `#` are comments.
///
/// # Errors
/// A line is not an action; the message contains it.
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
    let (mut cache, mut striping) = (None, None);
    for line in lines {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["set", key, value] => params.push((key.to_owned(), value.to_owned())),
            ["shards", count, stripe] => {
                let wrong = || format!("{line:?} are no shards");
                striping = Some(Striping {
                    count: count.parse().map_err(|_| wrong())?,
                    stripe_bytes: stripe.parse().map_err(|_| wrong())?,
                });
            }
            ["cache", bytes, model, tear, ref plp @ ..] => {
                let wrong = || format!("{line:?} is no write cache");
                cache = Some(CacheOptions {
                    bytes: bytes.parse().map_err(|_| wrong())?,
                    model: model.parse().map_err(|_| wrong())?,
                    tear: tear.parse().ok().filter(|tear| *tear > 0),
                    protected: *plp == ["plp"],
                });
            }
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
        striping,
        cache,
        params,
        wires,
        actions,
    })
}
