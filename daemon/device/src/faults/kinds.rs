//! Faults of requests as commands: what they hit, for how many requests, with which effect.

use crate::inject::Kind;
use clap::{Args, ValueEnum};
use ftld_kit::duration::parse_seconds;
use ftld_kit::failure::Failure;
use ftld_kit::size::{parse_size, show_size};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// Longest delay or hang.
const LONGEST: Duration = Duration::from_secs(3600);

/// Which requests a fault hits.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Hits {
    /// First byte of the requests that it hits, such as 4KiB [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) offset: Option<u64>,
    /// Bytes from there on [default: up to the end of the device]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    /// This many requests, then the fault ends [default: until it is cleared]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// What happens to the data of a FLUSH that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// It stays, and the next FLUSH makes it durable
    #[default]
    Kept,
    /// It is gone: the device has the content of the last FLUSH that succeeded
    Lost,
}

/// FLUSHes that fail with EIO.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct FlushFails {
    /// This many FLUSHes, requests with FUA included [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// What happens to the data that they should have made durable
    #[arg(long, value_enum, default_value_t = Then::Kept)]
    pub(crate) then: Then,
}

/// Requests that take longer.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Slow {
    /// Time that is added to every request, such as 50ms
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) extra: f64,
    /// Time from now on in which requests take longer, such as 10s [default: until it is cleared]
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    pub(crate) time: Option<f64>,
    /// Which requests.
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) hits: Hits,
}

/// Requests that wait.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Hang {
    /// Time from now on in which requests wait, such as 10s
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    pub(crate) time: f64,
    /// Which requests.
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) hits: Hits,
}

/// Faults that end.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[group(skip)]
#[serde(default, deny_unknown_fields)]
pub struct Clear {
    /// Faults of this kind alone [default: all faults of requests]
    #[arg(long = "kind", value_enum, value_name = "KIND")]
    pub(crate) fault: Option<RequestKind>,
}

/// Kinds of faults of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// FLUSHes fail
    FlushFails,
    /// Writes fail
    WriteErrors,
    /// Reads fail
    ReadErrors,
    /// Requests take longer
    Slow,
    /// Requests wait
    Hang,
}

impl RequestKind {
    /// Returns the kind among all kinds of faults.
    pub(crate) fn of_all(self) -> Kind {
        match self {
            RequestKind::FlushFails => Kind::FlushFails,
            RequestKind::WriteErrors => Kind::WriteErrors,
            RequestKind::ReadErrors => Kind::ReadErrors,
            RequestKind::Slow => Kind::Slow,
            RequestKind::Hang => Kind::Hang,
        }
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        self.of_all().name().replace('_', "-")
    }
}

/// A fault of requests, checked against the device.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFault {
    pub(super) kind: RequestKind,
    pub(super) range: Range<u64>,
    /// Requests left.
    pub(super) left: Option<u64>,
    /// Added time, or the time of a hang.
    pub(super) time: Duration,
    /// Time in which the fault is in force.
    pub(super) lasts: Option<Duration>,
    pub(super) then: Then,
}

impl RequestFault {
    pub(super) fn new(kind: RequestKind, hits: &Hits, size: u64) -> Result<Self, Failure> {
        let name = kind.name();
        let begin = hits.offset.unwrap_or(0);
        if begin >= size {
            return Err(Failure::usage(format!(
                "{name} --offset {begin}: the device has {size} bytes ({})",
                show_size(size)
            )));
        }
        let length = hits.length.unwrap_or(size - begin);
        let end = begin.checked_add(length).filter(|end| *end <= size);
        let end = end.filter(|_| length > 0).ok_or_else(|| {
            Failure::usage(format!(
                "{name} --length {length}: need 1 to {} bytes from {begin} on",
                size - begin
            ))
        })?;
        if hits.count == Some(0) {
            return Err(Failure::usage(format!("{name} --count 0: need at least 1")));
        }
        Ok(RequestFault {
            kind,
            range: begin..end,
            left: hits.count,
            time: Duration::ZERO,
            lasts: None,
            then: Then::Kept,
        })
    }

    /// Returns whether the fault hits a request of this range; a FLUSH of everything has the range
    /// of the device.
    pub(super) fn hits(&self, range: &Range<u64>) -> bool {
        range.start < self.range.end && self.range.start < range.end
    }

    /// Returns the fault as text.
    pub(super) fn text(&self, size: u64) -> String {
        let count = match self.left {
            None => String::new(),
            Some(1) => ", 1 request".into(),
            Some(left) => format!(", {left} requests"),
        };
        let range = match self.range == (0..size) {
            true => String::new(),
            false => format!(", bytes {} to {}", self.range.start, self.range.end - 1),
        };
        let what = match (self.kind, self.then) {
            (RequestKind::FlushFails, Then::Kept) => "FLUSHes fail, the data stays".into(),
            (RequestKind::FlushFails, Then::Lost) => "FLUSHes fail, the data is lost".into(),
            (RequestKind::WriteErrors, _) => "writes and trims fail".into(),
            (RequestKind::ReadErrors, _) => "reads fail".into(),
            (RequestKind::Slow, _) => format!("requests take {:?} longer", self.time),
            (RequestKind::Hang, _) => format!("requests wait up to {:?}", self.time),
        };
        let lasts = match (self.kind, self.lasts) {
            (RequestKind::Slow, Some(lasts)) => format!(", for {lasts:?}"),
            _ => String::new(),
        };
        format!("{what}{lasts}{range}{count}")
    }
}

/// Parses a duration such as `50ms` into seconds. Delays are short, so a number without a unit
/// could mean milliseconds: it is refused.
fn seconds(text: &str) -> Result<f64, Failure> {
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        let text = format!("{text:?} has no unit; write 500us, 50ms, 10s or 5m");
        return Err(Failure::usage(text));
    }
    let seconds = parse_seconds(text)?;
    time(seconds).map(|_| seconds)
}

/// Checks a time in seconds.
pub(super) fn time(seconds: f64) -> Result<Duration, Failure> {
    let time = Duration::try_from_secs_f64(seconds).ok();
    time.filter(|time| *time > Duration::ZERO && *time <= LONGEST)
        .ok_or_else(|| Failure::usage(format!("{seconds} s: need more than 0, at most one hour")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_a_limit() {
        assert_eq!(
            ["500us", "50ms", "10 s", "1.5m"].map(|t| seconds(t).unwrap()),
            [5e-4, 0.05, 10.0, 90.0]
        );
        for wrong in ["", "10", "s", "-1s", "0ms", "2h", "61m", "infs"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
