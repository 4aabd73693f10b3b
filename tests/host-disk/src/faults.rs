//! Faults of a simulated disk: failing calls, and the end of the process or the host.

use std::ops::Range;

/// An event that ends the process, or the host with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The process dies; the host and its page cache continue.
    Kill,
    /// The host dies.
    Crash(Crash),
}

/// Failing writes and punches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFault {
    /// Writes that still succeed before the first failure.
    pub after: u64,
    /// The number of failures; `u64::MAX` until
    /// [`SimDisk::clear_faults`](crate::SimDisk::clear_faults).
    pub count: u64,
    /// Bytes of each failing write that reach the file. If other failures follow, whole sectors
    /// only: a host tears a sector only at a limit of the file's size (RLIMIT_FSIZE), and bytes
    /// below a limit can be written again.
    pub arrives: usize,
    /// The host's error.
    pub errno: i32,
    /// Only writes that allocate space fail, as on a full disk: into a page that was never written
    /// or was punched. Others are not counted.
    pub needs_room: bool,
    /// Longest write that fails, in bytes. Longer ones are not counted.
    pub longest: usize,
}

/// Reads of a range that fail with EIO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFault {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Reads of the range that still succeed.
    pub after: u64,
    /// The number of failures; `u64::MAX` until
    /// [`SimDisk::clear_faults`](crate::SimDisk::clear_faults).
    pub count: u64,
}

/// Syncs that fail with EIO. As kernels do, the host then treats the pages as clean: a random part
/// of them reached the disk, and the rest never will, although reads still return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct SyncFault {
    /// Syncs that still succeed before the first failure.
    pub after: u64,
    /// The number of failures; `u64::MAX` until
    /// [`SimDisk::clear_faults`](crate::SimDisk::clear_faults).
    pub count: u64,
    /// Chooses the sectors that reached the disk; `None`: none of them.
    pub seed: Option<u64>,
}

/// The call before which the disk is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freeze {
    /// After this many more writes and punches.
    Write(u64),
    /// After this many more syncs.
    Sync(u64),
}

/// The contents that a crash leaves in the sectors written since the last sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Crash {
    /// Nothing unsynced survives.
    Nothing,
    /// The first writes survive; the seed gives their number.
    Prefix(u64),
    /// All but one write survive; later writes over it are lost too.
    AllBut(u64),
    /// Each write survives or is lost at random.
    Writes(u64),
    /// Each sector keeps the content of a random one of its writes.
    Sectors(u64),
    /// Bit `n` decides whether the n-th newest of the last 64 writes survives, the newest being bit
    /// 0; all earlier ones do.
    Mask(u64),
}

impl Crash {
    /// One crash of each random kind, and one that loses everything.
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

/// Counts a call of a kind with pending failures; returns whether this one fails.
pub(crate) fn is_due(after: &mut u64, count: &mut u64) -> bool {
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
