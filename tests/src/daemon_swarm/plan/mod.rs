//! A run as a list of actions: drawn from a seed, or read from text ([`ftld_battery::plan_text`]):
//! the first line is the [`Plan`] without its actions, each other line is an [`Action`].

mod draw;
mod scenes;

use ftl_core::schemes::Scheme;
use ftld_battery::plan_text;
use ftld_battery::plan_text::is_default;
use ftld_battery::rig::Cells;
use ftld_device::volume::write_cache::CacheOptions;
use ftld_host_disk::{Crash, End, Freeze};
use nand_model::Striping;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use draw::draw;

/// Framing requested by a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Simple replies.
    Simple,
    /// Structured replies.
    Structured,
    /// Extended headers.
    Extended,
    /// Simple replies on a stream without a handshake, as with the kernel's client.
    Attached,
}

const WIRES: [Wire; 4] = [
    Wire::Simple,
    Wire::Structured,
    Wire::Extended,
    Wire::Attached,
];

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
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

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Command.
    pub verb: Verb,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Durable before the reply.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fua: bool,
    /// One chunk, or one extent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub df: bool,
    /// NO_HOLE.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_hole: bool,
    /// FAST_ZERO.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fast: bool,
}

impl Ask {
    /// Creates a request without flags.
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

    /// Returns whether the request changes data.
    pub fn changes(&self) -> bool {
        matches!(self.verb, Verb::Write | Verb::Trim | Verb::Zero)
    }

    /// Returns whether the reply waits for the host's storage.
    pub fn waits_for_a_sync(&self) -> bool {
        self.fua || self.verb == Verb::Flush
    }
}

/// Ends of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonEnd {
    /// Requested stop.
    Stop,
    /// Kill of the daemon, or crash of its host.
    Sudden(End),
}

/// Actions of the runner.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Submits a request on a connection.
    Send(usize, Ask),
    /// Serves a connection; at most this number of bytes pass in and out.
    Turn(usize, u32, u32),
    /// Turns the delay of syncs on or off.
    Hold(bool),
    /// Lets the sync in progress complete.
    Sync,
    /// Checks the state that an end now would leave; with a crash, crashes that state again after
    /// it was opened.
    CheckState(End, Option<Crash>),
    /// Ends and restarts the daemon; with `true`, reads the whole device afterwards.
    End(DaemonEnd, bool),
    /// Ends and restarts the daemon; the first start ends right before this write or sync of it.
    EndTwice(End, Freeze, End),
    /// Stops; the daemon or its host ends right before this write or sync of the stop.
    EndInStop(Freeze, End),
    /// Checks the state that an end right before a later host write would leave.
    CheckBeforeWrite(u64, End),
    /// Makes a later host write fail: after this number of writes and of bytes, with this errno.
    FailWrite(u64, usize, i32),
    /// Makes the next host syncs fail.
    FailSyncs(u64),
    /// Cuts flash power after this number of programs and erases, or at once with `None`.
    Cut(Option<u64>, u64),
    /// Runs requests on real threads, in sequence per connection, and pauses the device this often
    /// meanwhile.
    Race(Vec<(usize, Ask)>, u32),
    /// Reads the whole device through a connection.
    Check(usize),
    /// Background work: GC, and discard of freed space.
    Idle(u32),
    /// Ends a connection and starts another in its place: by a disconnect, or after this number of
    /// bytes.
    Leave(usize, Option<u32>),
    /// Checks, through a session, the state that an end now would leave, opened read-only.
    ReadOnly(End),
}

/// Plan of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Seed in the payloads.
    pub seed: u64,
    /// Scheme name.
    pub scheme: String,
    /// Programming rules of the chip.
    pub cells: Cells,
    /// Bytes of a flash page.
    pub page: u32,
    /// Pages of a block.
    pub block: u32,
    /// Bytes of the device.
    pub size: u64,
    /// Over-provisioning in percent.
    pub op: u32,
    /// Spare slots of the image.
    pub spare: u32,
    /// Pages between two checkpoints.
    pub checkpoint: u32,
    /// Bytes per piece of a request.
    pub piece: u32,
    /// Shards and bytes of a stripe; `None` for one chip.
    #[serde(default, skip_serializing_if = "is_default")]
    pub striping: Option<Striping>,
    /// Write cache of the daemon.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache: Option<CacheOptions>,
    /// Scheme parameters besides the defaults.
    #[serde(default, skip_serializing_if = "is_default")]
    pub params: Vec<(String, String)>,
    /// The connections.
    pub wires: Vec<Wire>,
    /// Actions in order.
    #[serde(skip)]
    pub actions: Vec<Action>,
}

impl Plan {
    /// Returns the scheme under test.
    ///
    /// # Errors
    /// No scheme has this name.
    pub fn scheme(&self) -> Result<&'static Scheme, String> {
        Scheme::find(&self.scheme).ok_or_else(|| format!("no scheme {}", self.scheme))
    }

    /// Returns whether the scheme acknowledges writes in RAM, so that a kill may lose them.
    pub fn ram_acknowledges(&self) -> bool {
        self.params
            .iter()
            .any(|(key, value)| key.ends_with(".ack") && value == "buffer")
    }
}

/// Unlimited number of bytes.
pub const ALL: u32 = u32::MAX;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        plan_text::write(f, self, &self.actions)
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plan_text::line(self))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plan_text::line(self))
    }
}

/// Parses a plan.
///
/// # Errors
/// They name the line, the wrong word, and the valid ones.
pub fn parse(text: &str) -> Result<Plan, String> {
    let (plan, actions) = plan_text::read(text)?;
    Ok(Plan { actions, ..plan })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_text_parses_back_unchanged_and_plan_repeats_from_its_seed() {
        for seed in 0..300 {
            let plan = draw(seed);
            assert_eq!(parse(&plan.to_string()).unwrap(), plan, "seed {seed}");
            assert_eq!(plan, draw(seed));
        }
        let plan = draw(1).to_string();
        let why = parse(&format!("{plan}{{\"hold\":\"on\"}}\n")).unwrap_err();
        let line = format!("line {}, column ", plan.lines().count() + 1);
        assert!(
            why.starts_with(&line) && why.contains("expected a boolean"),
            "{why}"
        );
        assert!(parse(r#"{"hold":true}"#).is_err());
    }
}
