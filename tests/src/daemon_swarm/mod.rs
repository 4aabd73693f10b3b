//! Daemon swarm: volume, NBD sessions and a real image over the simulated disk, in one process,
//! checked against an oracle per unit.
//!
//! One seed is one [`plan`]: a scheme on a small chip, one to four connections, and a list of
//! actions. Actions are requests, turns of connections, faults, ends and looks. [`runner`] executes
//! them, [`oracle`] checks every reply and every restart, [`shrink`] makes a failing plan small. A
//! plan is text; `tests/daemon_swarm/` contains the kept plans.

mod client;
mod gate;
pub mod oracle;
pub mod plan;
pub mod runner;
pub mod shrink;

/// Declares the classes with their names.
macro_rules! classes {
    ($($class:ident: $name:literal,)*) => {
        /// Classes of events in a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Class {
            $(#[doc = $name] $class,)*
        }

        impl Class {
            /// Names of all classes, in the order of their numbers.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the name under which [`ftld_battery::classes::Classes`] counts the class.
            pub fn name(self) -> &'static str {
                Class::NAMES[self as usize]
            }
        }
    };
}

classes! {
    Crash: "host crash",
    CrashAfterReply: "host crash right after a durable reply",
    FuaPieces: "FUA write of several pieces, then host crash",
    SyncBetweenPieces: "sync between the pieces of a FUA write, then host crash",
    FlushBehindFlush: "FLUSH or FUA behind another on its connection, then host crash",
    RamAcknowledged: "writes that RAM acknowledged, then host crash",
    FuaTrim: "TRIM with FUA, then host crash",
    FuaZeroes: "WRITE_ZEROES with FUA, then host crash",
    AWritesBFlushes: "FLUSH by a connection that wrote nothing, then host crash",
    FlushDuringSync: "FLUSH or FUA during a sync in progress, then host crash",
    CrashDuringSync: "host crash during a sync in progress",
    CrashAfterOpen: "host crash right after an open",
    EndInOpen: "host crash or kill inside an open",
    EndBeforeAWrite: "host crash or kill right before a write of the host",
    Kill: "kill, the page cache lives on",
    CrashAfterKill: "host crash after a restart on the page cache",
    Stop: "stop and start",
    EndInStop: "host crash or kill inside a stop",
    EndInDetach: "host crash or kill inside a stop that empties the write cache",
    StopAmid: "stop with requests in flight",
    Left: "disconnect with requests in flight",
    Broken: "power cut inside a read of several pieces",
    HungUp: "hang-up inside a message",
    ReadOnly: "read-only open",
    Attached: "session attached without a handshake",
    WritesFailing: "state of failing writes begins and ends",
    SyncFailed: "failed sync",
    RestartAfterFailedSync: "restart after a failed sync",
    CrashAfterFailedSync: "host crash after a restart after a failed sync",
    PowerCut: "power cut",
    Enospc: "request failed with the host's ENOSPC",
    Eio: "request failed with the host's EIO",
    PieceFailed: "piece of a write failed",
    PartOfAPage: "write or trim of a part of a page",
    TwoWriters: "two writers in one page at once",
    TrimRacesRead: "trim at once with a read",
    BackgroundSync: "sync without a request",
    IdleRaces: "background work beside requests",
    Paused: "pause, step and resume under requests",
    HoleInRead: "hole in a structured read",
    OddHole: "hole in a structured read at an odd offset after trims of parts of pages",
    HoleInStatus: "hole in BLOCK_STATUS",
    LongTrim: "trim of more than 16,384 pages",
    SeveralSlices: "write over several slices of the volume",
    ErasesShort: "request that waits for erased space",
    ZeroFlags: "WRITE_ZEROES with NO_HOLE or FAST_ZERO",
    Cache: "CACHE",
    BeyondTheEnd: "request beyond the end",
    CutCache: "power cut with data in the write cache",
    KillCache: "kill with data in the write cache",
    CrashCache: "host crash with data in the write cache",
    Shards: "several shards",
    Counters: "counters equal to the traffic",
}

/// Pairs of classes that no run contains, each with the reason.
const CANNOT_MEET: &[(Class, Class, &str)] = &[(
    Class::LongTrim,
    Class::SeveralSlices,
    "only devices of 512-byte pages have long trims, only larger pages slices",
)];

/// Returns the reason why two classes cannot occur in one run, if they cannot.
pub fn cannot_meet(one: &str, other: &str) -> Option<&'static str> {
    let same = |(a, b, _): &&(Class, Class, &str)| {
        (a.name(), b.name()) == (one, other) || (b.name(), a.name()) == (one, other)
    };
    CANNOT_MEET.iter().find(same).map(|(_, _, why)| *why)
}
