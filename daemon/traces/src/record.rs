//! One request of a host.

/// Operations of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the bytes.
    Read,
    /// Write the bytes.
    Write,
    /// Trim the bytes. A recorded write of zeros is a trim, as on the device.
    Trim,
    /// Make everything durable; no bytes.
    Flush,
}

/// One request of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Arrival time in nanoseconds since the first record; 0 for a record logged before the first.
    pub time_ns: u64,
    /// Operation.
    pub op: Op,
    /// Disk number in the trace; 0 if the format has only one.
    pub device: u64,
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes, more than 0 except for a FLUSH.
    pub length_bytes: u64,
}

/// Largest end of a request, 1 PiB. No traced disk was larger, so a larger address is a damaged
/// line.
pub const ADDRESS_MAX: u64 = 1 << 50;

/// Largest length of a read or write, 1 GiB.
pub const LENGTH_MAX: u64 = 1 << 30;

/// Largest time after the first record, ns: 100 years. No trace is longer, and several in a row do
/// not overflow.
pub const TIME_MAX: u64 = 100 * 366 * 86_400 * 1_000_000_000;
