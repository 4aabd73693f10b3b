//! One request of a host.

/// What the host asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Give me these bytes.
    Read,
    /// Keep these bytes.
    Write,
    /// I no longer need these bytes.
    Trim,
}

/// One request of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it came, in nanoseconds since the first record; 0 for one that was logged before the
    /// first.
    pub time_ns: u64,
    /// What was asked for.
    pub op: Op,
    /// Which of the disks in the trace; 0 where the format has but one.
    pub device: u64,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes, more than 0.
    pub length_bytes: u64,
}

/// No request reaches beyond this byte, 1 PiB: larger than any disk that was ever traced, so a
/// larger address is a damaged line.
pub const ADDRESS_MAX: u64 = 1 << 50;

/// No read or write is longer than this, 1 GiB.
pub const LENGTH_MAX: u64 = 1 << 30;
