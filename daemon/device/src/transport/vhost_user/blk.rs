//! virtio-blk: features, configuration space, requests.
//!
//! Invariants: a request has at most [`REQUEST_MAX`] bytes, more than a driver sends that keeps to
//! the announced segments. An error of the device is the status of the request; only a fault of the
//! guest ends the connection.

use super::CloseReason;
use super::memory::{Memory, Space};
use super::messages::le_bytes;
use super::ring::Chain;
use crate::device::{BlockDevice, Completion, DelayedCompletion, FlushOf};
use crate::transport::errno;
use ftld_kit::convert::{to_u32, to_u64};
use std::io;

const SECTOR: u64 = 512;
/// Segments of a request: with its header and status they fill a queue of 128 entries.
const SEGMENTS: u32 = 126;
const SEGMENT_MAX: u32 = 256 << 10;
/// Maximum bytes of a request.
const REQUEST_MAX: usize = 32 << 20;
/// Bytes of the buffer that are kept between requests.
const RESTING: usize = 1 << 20;
const HEADER: usize = 16;
/// Bytes of a range of DISCARD and WRITE ZEROES.
const RANGE: usize = 16;
const SERIAL: usize = 20;
const CONFIG: usize = 60;

pub(super) const F_FLUSH: u64 = 1 << 9;
pub(super) const F_PROTOCOL: u64 = 1 << 30;
const F_SIZE_MAX: u64 = 1 << 1;
const F_SEG_MAX: u64 = 1 << 2;
const F_READ_ONLY: u64 = 1 << 5;
const F_BLK_SIZE: u64 = 1 << 6;
const F_TOPOLOGY: u64 = 1 << 10;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
const F_VERSION_1: u64 = 1 << 32;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
const UNMAP: u32 = 1;

const STATUS_OK: u8 = 0;
const STATUS_IOERR: u8 = 1;
const STATUS_UNSUPP: u8 = 2;

/// Returns the features that the device offers. Without FLUSH the driver takes it for one without a
/// volatile cache.
pub(super) fn features(device: &dyn BlockDevice) -> u64 {
    let has = |is: bool, feature: u64| if is { feature } else { 0 };
    let always = F_SIZE_MAX | F_SEG_MAX | F_BLK_SIZE | F_TOPOLOGY | F_PROTOCOL | F_VERSION_1;
    always
        | has(device.has_volatile_cache(), F_FLUSH)
        | has(device.read_only(), F_READ_ONLY)
        | has(!device.read_only(), F_DISCARD | F_WRITE_ZEROES)
}

/// Returns the configuration space.
pub(super) fn config(device: &dyn BlockDevice) -> [u8; CONFIG] {
    let logical = device.logical_block();
    let per_logical = |block: u32| block / logical;
    let physical = per_logical(device.physical_block());
    let mut config = [0; CONFIG];
    let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(device.size() / SECTOR).to_le_bytes());
    put(8, &SEGMENT_MAX.to_le_bytes());
    put(12, &SEGMENTS.to_le_bytes());
    put(20, &logical.to_le_bytes());
    put(24, &[physical.trailing_zeros() as u8, 0]);
    put(26, &u16::try_from(physical).unwrap_or(1).to_le_bytes());
    put(28, &per_logical(device.preferred_block()).to_le_bytes());
    put(34, &1u16.to_le_bytes());
    // One range a request, so that the kernel and the device count alike.
    let (sectors, granularity) = (u32::MAX >> 9, device.physical_block() / 512);
    for (at, number) in [
        (36, sectors),
        (40, 1),
        (44, granularity),
        (48, sectors),
        (52, 1),
    ] {
        put(at, &number.to_le_bytes());
    }
    put(56, &[1]);
    config
}

/// A request, whose readable bytes after the header are in the buffer.
pub(super) struct Request {
    kind: u32,
    sector: u64,
    chain: Chain,
    status_at: u64,
}

/// A finished request.
pub(super) struct Done {
    /// Bytes written into the guest's memory.
    pub(super) written: u32,
    /// When it completes.
    pub(super) hold: Completion,
}

/// Executes requests.
pub(super) struct Blk<'a> {
    device: &'a dyn BlockDevice,
    serial: [u8; SERIAL],
    buffer: Vec<u8>,
}

impl<'a> Blk<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice, name: &str) -> Self {
        let mut serial = [0; SERIAL];
        let len = name.len().min(SERIAL);
        serial[..len].copy_from_slice(&name.as_bytes()[..len]);
        Blk {
            device,
            serial,
            buffer: Vec::new(),
        }
    }

    /// Reads a request.
    pub(super) fn receive(
        &mut self,
        memory: &Memory,
        mut chain: Chain,
    ) -> Result<Request, CloseReason> {
        let status_at = chain.split_status()?;
        chain.read(memory, HEADER + REQUEST_MAX, &mut self.buffer)?;
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Err(CloseReason::Ring("a request has no header"));
        };
        Ok(Request {
            kind: u32::from_le_bytes(le_bytes(header, 0)),
            sector: u64::from_le_bytes(le_bytes(header, 8)),
            chain,
            status_at,
        })
    }

    /// Returns whether a request may wait: for the host's storage, or for the end of a pause.
    pub(super) fn may_wait(&self, request: &Request, write_through: bool) -> bool {
        let syncs = match request.kind {
            READ | GET_ID => false,
            FLUSH => true,
            _ => write_through || !self.device.has_volatile_cache(),
        };
        syncs || self.device.is_paused()
    }

    /// Executes the request that was read last, and writes its data and status. With
    /// `write_through`, a change is durable before it completes.
    pub(super) fn execute(
        &mut self,
        memory: &Memory,
        request: Request,
        write_through: bool,
    ) -> Result<Done, CloseReason> {
        let (status, done) = match self.perform(memory, &request, write_through)? {
            Ok((bytes, hold)) => {
                let written = to_u32(bytes) + 1;
                (STATUS_OK, Done { written, hold })
            }
            Err(error) => {
                let status = match errno(&error) {
                    libc::EOPNOTSUPP => STATUS_UNSUPP,
                    _ => STATUS_IOERR,
                };
                // The status is not at the start of the writable bytes.
                let (written, hold) = (0, None);
                (status, Done { written, hold })
            }
        };
        memory.write(Space::Guest, request.status_at, &[status])?;
        self.buffer.clear();
        self.buffer.shrink_to(RESTING);
        Ok(done)
    }

    /// Performs a request; returns the number of bytes that the guest reads.
    fn perform(
        &mut self,
        memory: &Memory,
        request: &Request,
        write_through: bool,
    ) -> Result<io::Result<(usize, Completion)>, CloseReason> {
        let Request {
            kind,
            sector,
            chain,
            ..
        } = request;
        let (kind, sector) = (*kind, *sector);
        match kind {
            READ => {
                let len = chain.writable(REQUEST_MAX)?;
                self.buffer.clear();
                self.buffer.resize(len, 0);
                let buffer = &mut self.buffer;
                let read = start(sector, to_u64(len)).and_then(|at| self.device.read(at, buffer));
                match read {
                    Ok(hold) => chain.write(memory, &self.buffer).map(|()| Ok((len, hold))),
                    Err(error) => Ok(Err(error)),
                }
            }
            GET_ID => {
                let len = chain.writable(REQUEST_MAX)?.min(SERIAL);
                chain.write(memory, &self.serial[..len])?;
                Ok(Ok((len, None)))
            }
            _ => {
                let data = &self.buffer[HEADER..];
                let changed = change(self.device, kind, sector, data, write_through);
                Ok(changed.map(|hold| (0, hold)))
            }
        }
    }
}

/// Performs a request that transfers no data to the guest.
fn change(
    device: &dyn BlockDevice,
    kind: u32,
    sector: u64,
    data: &[u8],
    write_through: bool,
) -> io::Result<Completion> {
    let (offset, len, hold) = match kind {
        FLUSH => return device.flush(FlushOf::Everything)?.wait(),
        WRITE => {
            let len = to_u64(data.len());
            let offset = start(sector, len)?;
            (offset, len, device.write(offset, data)?)
        }
        DISCARD => {
            let (offset, len) = range(data, 0)?;
            (offset, len, device.trim(offset, len)?)
        }
        WRITE_ZEROES => {
            let (offset, len) = range(data, UNMAP)?;
            (offset, len, device.write_zeroes(offset, len)?)
        }
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    // Asked after the request: what was acknowledged before the answer changed is flushed then.
    if !write_through && device.has_volatile_cache() {
        return Ok(hold);
    }
    let flush = device.flush(FlushOf::Request { offset, len })?;
    Ok(DelayedCompletion::later(hold, flush.wait()?))
}

/// Returns the first byte of a request of whole sectors.
fn start(sector: u64, len: u64) -> io::Result<u64> {
    let start = sector.checked_mul(SECTOR);
    let start = start.filter(|_| len > 0 && len.is_multiple_of(SECTOR));
    start.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Returns the only range of a DISCARD or WRITE ZEROES, which has no flags but `allowed`.
fn range(data: &[u8], allowed: u32) -> io::Result<(u64, u64)> {
    let data: &[u8; RANGE] = data.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    if u32::from_le_bytes(le_bytes(data, 12)) & !allowed != 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let len = u64::from(u32::from_le_bytes(le_bytes(data, 8))) * SECTOR;
    Ok((start(u64::from_le_bytes(le_bytes(data, 0)), len)?, len))
}
