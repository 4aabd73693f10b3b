//! What can happen to a simulated disk: calls that fail, and ends of the process or the host.

use std::ops::Range;

/// An event that ends everything above a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process dies; the host and its page cache live on.
    Kill,
    /// The host dies.
    Crash(Crash),
}

/// Writes and punches that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFault {
    /// Writes that still succeed.
    pub after: u64,
    /// How many fail then; `u64::MAX` until [`SimDisk::mend`](super::SimDisk::mend).
    pub count: u64,
    /// Bytes of each that arrive. Of a write that is followed by others that fail, whole sectors
    /// only: a host tears a sector only at a limit of the file's size (RLIMIT_FSIZE), and what
    /// arrived below a limit can be written again.
    pub arrives: usize,
    /// The host's error.
    pub errno: i32,
    /// Only writes that need new room fail, as on a full disk: into a page that was never written
    /// or was punched. Others are not counted.
    pub needs_room: bool,
}

/// Reads of a range that fail with EIO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFault {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Reads that touch the range and still succeed.
    pub after: u64,
    /// How many fail then; `u64::MAX` until [`SimDisk::mend`](super::SimDisk::mend).
    pub count: u64,
}

/// Syncs that fail with EIO. As kernels do, the host counts what they should have written as clean:
/// a random part of it reached the disk, and the rest never will, although reads still return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFault {
    /// Syncs that still succeed.
    pub after: u64,
    /// How many fail then; `u64::MAX` until [`SimDisk::mend`](super::SimDisk::mend).
    pub count: u64,
    /// Which sectors reached the disk; `None`: none of them.
    pub seed: Option<u64>,
}

/// A call before which the disk is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// After so many more writes and punches.
    Write(u64),
    /// After so many more syncs.
    Sync(u64),
}

/// How a crash picks among the contents of the sectors written since the last sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing unsynced survives.
    Nothing,
    /// The first writes survive, as many as the seed says.
    Prefix(u64),
    /// All but one write, and what covers it later.
    AllBut(u64),
    /// Each write survives or not, by chance.
    Writes(u64),
    /// Each sector stops at any of its writes, by chance.
    Sectors(u64),
    /// Of the last 64 writes those survive whose bit is set, the newest being bit 0; all before
    /// them do.
    Mask(u64),
}

impl Crash {
    /// One of each kind that goes by chance, and losing everything.
    pub fn kinds(seed: u64) -> [Crash; 6] {
        [
            Crash::Nothing,
            Crash::Prefix(seed),
            Crash::AllBut(seed),
            Crash::Writes(seed),
            Crash::Sectors(seed),
            Crash::Sectors(!seed),
        ]
    }
}

/// Counts a call of a kind of which some are to fail; returns whether this one does.
pub(super) fn is_due(after: &mut u64, count: &mut u64) -> bool {
    if *after > 0 {
        *after -= 1;
        return false;
    }
    *count = if *count == u64::MAX {
        *count
    } else {
        count.saturating_sub(1)
    };
    true
}
