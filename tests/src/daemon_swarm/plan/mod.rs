//! A run as a list of actions: drawn from a seed, written as text, read back.

mod draw;
mod scenes;
mod text;

use ftl_core::schemes::Scheme;
use ftld_battery::rig::Cells;
use nand_model::store::{Crash, End};

pub use draw::draw;
pub use text::parse;

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

/// Bytes enough for everything.
pub const ALL: u32 = u32::MAX;

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
