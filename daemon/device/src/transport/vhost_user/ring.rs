//! A split virtqueue in the guest's memory.
//!
//! Invariants: a chain has at most as many descriptors as the queue, so one with a cycle ends.
//! Indirect descriptors and the event index are not offered. An entry of the available ring, and
//! the table of descriptors, are read after the index that covers them; a used index is written
//! after its entries. Each access is a system call, which a compiler does not reorder; the fences
//! are for the processor. So requests are taken and returned in batches, with one call for all
//! entries.

use super::CloseReason;
use super::memory::{Memory, Space};
use super::messages::le_bytes;
use ftld_kit::convert::{index, to_u64};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{Ordering, fence};

/// Maximum size of a queue; front-ends use up to 1024.
const SIZE_MAX: u16 = 1024;
const DESCRIPTOR: usize = 16;
/// Bytes of an entry of the available and of the used ring.
const AVAILABLE: usize = 2;
const USED: usize = 8;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flag of the available ring: the driver polls, and wants no interrupt.
const NO_INTERRUPT: u16 = 1;

/// Addresses of the rings, in the front-end's space.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
}

/// A queue, whether it runs or not.
#[derive(Default)]
pub(super) struct Ring {
    size: u16,
    pub(super) addresses: Option<Addresses>,
    /// Index of the next entry of the available ring.
    pub(super) next: u16,
    /// Index of the next entry of the used ring; `None` before the first.
    next_used: Option<u16>,
    /// Entries that the used ring does not have yet.
    finished: Vec<[u8; USED]>,
    pub(super) kick: Option<File>,
    pub(super) call: Option<File>,
}

/// A part of the guest's memory that a request reads or writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    address: u64,
    len: u32,
}

/// Successive entries of a ring: the place of the first, and their number.
struct Part {
    at: usize,
    len: usize,
}

/// The requests that were available at one moment, and all descriptors.
#[derive(Default)]
pub(super) struct Batch {
    heads: Vec<[u8; AVAILABLE]>,
    table: Vec<[u8; DESCRIPTOR]>,
}

/// The descriptors of a request.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) readable: Vec<Segment>,
    pub(super) writable: Vec<Segment>,
}

impl Ring {
    /// Sets the number of entries.
    pub(super) fn set_size(&mut self, size: u32) -> Result<(), CloseReason> {
        let size = u16::try_from(size)
            .ok()
            .filter(|size| size.is_power_of_two());
        let size = size.filter(|size| *size <= SIZE_MAX);
        self.size = size.ok_or(CloseReason::Ring("its size is no power of two up to 1024"))?;
        Ok(())
    }

    /// Returns the number of entries.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Forgets where the used ring ends, and reads it again before the next entry.
    pub(super) fn forget_used(&mut self) {
        self.next_used = None;
    }

    fn addresses(&self) -> Result<Addresses, CloseReason> {
        let is_set = self.size > 0;
        let addresses = self.addresses.filter(|_| is_set);
        addresses.ok_or(CloseReason::Ring(
            "it is kicked before its size and addresses",
        ))
    }

    /// Reads the requests in the available ring, at most as many as it has entries. They stay in it
    /// until [`Ring::take`].
    pub(super) fn look(&self, memory: &Memory, into: &mut Batch) -> Result<(), CloseReason> {
        let Addresses {
            descriptors,
            available,
            ..
        } = self.addresses()?;
        let end = read_u16(memory, offset(available, 2)?)?;
        let count = end.wrapping_sub(self.next);
        into.heads.clear();
        if count == 0 {
            return Ok(());
        }
        if count > self.size {
            return Err(CloseReason::Ring("it has more requests than entries"));
        }
        fence(Ordering::Acquire);
        into.heads.resize(usize::from(count), [0; AVAILABLE]);
        let mut rest = &mut into.heads[..];
        for part in self.parts(self.next, rest.len()) {
            let (now, later) = rest.split_at_mut(part.len);
            let at = entry(available, part.at, AVAILABLE)?;
            memory.read(Space::FrontEnd, at, now.as_flattened_mut())?;
            rest = later;
        }
        into.table.resize(usize::from(self.size), [0; DESCRIPTOR]);
        let table = into.table.as_flattened_mut();
        memory.read(Space::FrontEnd, descriptors, table)
    }

    /// Takes the next request from the available ring.
    pub(super) fn take(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Notes a finished request, of which the first `written` writable bytes are written.
    pub(super) fn finish(&mut self, head: u16, written: u32) {
        let mut entry = [0; USED];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&written.to_le_bytes());
        self.finished.push(entry);
    }

    /// Returns all finished requests to the driver, and interrupts it unless it polls.
    pub(super) fn publish(&mut self, memory: &Memory) -> Result<(), CloseReason> {
        if self.finished.is_empty() {
            return Ok(());
        }
        let Addresses {
            used, available, ..
        } = self.addresses()?;
        let number = match self.next_used {
            Some(number) => number,
            None => read_u16(memory, offset(used, 2)?)?,
        };
        let mut rest = &self.finished[..];
        for part in self.parts(number, rest.len()) {
            let (now, later) = rest.split_at(part.len);
            let at = entry(used, part.at, USED)?;
            memory.write(Space::FrontEnd, at, now.as_flattened())?;
            rest = later;
        }
        fence(Ordering::Release);
        let next = number.wrapping_add(self.finished.len() as u16);
        memory.write(Space::FrontEnd, offset(used, 2)?, &next.to_le_bytes())?;
        self.next_used = Some(next);
        self.finished.clear();
        // Before the flag is read: the driver clears it, then looks at the index once more.
        fence(Ordering::SeqCst);
        match &self.call {
            Some(call) if read_u16(memory, available)? & NO_INTERRUPT == 0 => interrupt(call),
            _ => Ok(()),
        }
    }

    /// Returns the places of `count` entries of a ring from `index` on, in one or two parts: the
    /// ring's last place is followed by its first.
    fn parts(&self, index: u16, mut count: usize) -> impl Iterator<Item = Part> + use<> {
        let size = usize::from(self.size);
        let mut at = usize::from(index) % size;
        std::iter::from_fn(move || {
            let len = count.min(size - at);
            let part = Part { at, len };
            (at, count) = (0, count - len);
            (len > 0).then_some(part)
        })
    }

    /// Takes the driver's notification.
    pub(super) fn take_kick(&self) -> Result<(), CloseReason> {
        let Some(mut kick) = self.kick.as_ref() else {
            return Ok(());
        };
        match kick.read(&mut [0; 8]) {
            Ok(0) => Err(CloseReason::Ring("nobody can kick it any more")),
            Ok(_) => Ok(()),
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(CloseReason::io("read the kick")(error)),
        }
    }
}

/// Interrupts the driver. A full pipe has an interrupt already.
fn interrupt(mut call: &File) -> Result<(), CloseReason> {
    match call.write(&1u64.to_le_bytes()) {
        Ok(_) => Ok(()),
        Err(error) if is_temporary(&error) => Ok(()),
        Err(error) => Err(CloseReason::io("interrupt the driver")(error)),
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Returns the address of an entry of a ring, after its flags and index.
fn entry(ring: u64, number: usize, bytes: usize) -> Result<u64, CloseReason> {
    offset(ring, 4 + to_u64(number * bytes))
}

/// Returns the address after `bytes` bytes.
fn offset(address: u64, bytes: u64) -> Result<u64, CloseReason> {
    let outside = CloseReason::Outside {
        address,
        len: bytes,
    };
    address.checked_add(bytes).ok_or(outside)
}

fn read_u16(memory: &Memory, address: u64) -> Result<u16, CloseReason> {
    let mut bytes = [0; 2];
    memory.read(Space::FrontEnd, address, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

impl Batch {
    /// Returns the numbers of the requests' first descriptors, in the order of the ring.
    pub(super) fn heads(&self) -> impl ExactSizeIterator<Item = u16> {
        self.heads.iter().map(|head| u16::from_le_bytes(*head))
    }

    /// Returns the descriptors of a request.
    pub(super) fn chain(&self, head: u16) -> Result<Chain, CloseReason> {
        let (mut chain, mut at) = (Chain::default(), head);
        for _ in &self.table {
            let bytes = self.table.get(usize::from(at));
            let bytes = bytes.ok_or(CloseReason::Ring(
                "a descriptor's number is beyond the table",
            ))?;
            let segment = Segment {
                address: u64::from_le_bytes(le_bytes(bytes, 0)),
                len: u32::from_le_bytes(le_bytes(bytes, 8)),
            };
            let flags = u16::from_le_bytes(le_bytes(bytes, 12));
            if flags & INDIRECT != 0 {
                return Err(CloseReason::Ring("indirect descriptors are not offered"));
            }
            match flags & WRITE != 0 {
                true => chain.writable.push(segment),
                false if chain.writable.is_empty() => chain.readable.push(segment),
                false => {
                    return Err(CloseReason::Ring("a chain is read after it is written"));
                }
            }
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            at = u16::from_le_bytes(le_bytes(bytes, 14));
        }
        Err(CloseReason::Ring(
            "a chain has more descriptors than the queue",
        ))
    }
}

impl Chain {
    /// Splits the last writable byte off, for the status; returns its address.
    pub(super) fn split_status(&mut self) -> Result<u64, CloseReason> {
        let last = self
            .writable
            .iter_mut()
            .rev()
            .find(|segment| segment.len > 0);
        let last = last.ok_or(CloseReason::Ring("a request has no room for its status"))?;
        last.len -= 1;
        offset(last.address, u64::from(last.len))
    }

    /// Reads the readable bytes, at most `most` of them.
    pub(super) fn read(
        &self,
        memory: &Memory,
        most: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), CloseReason> {
        into.clear();
        for segment in &self.readable {
            let (from, len) = (into.len(), index(segment.len));
            if len > most - from {
                return Err(CloseReason::Ring("a request is too long"));
            }
            into.resize(from + len, 0);
            memory.read(Space::Guest, segment.address, &mut into[from..])?;
        }
        Ok(())
    }

    /// Returns the number of writable bytes, at most `most`.
    pub(super) fn writable(&self, most: usize) -> Result<usize, CloseReason> {
        let lens = self.writable.iter().map(|segment| index(segment.len));
        let sum: usize = lens.sum();
        match sum <= most {
            true => Ok(sum),
            false => Err(CloseReason::Ring("a request is too long")),
        }
    }

    /// Writes `bytes` into the writable segments, of which there are at least as many.
    pub(super) fn write(&self, memory: &Memory, mut bytes: &[u8]) -> Result<(), CloseReason> {
        for segment in &self.writable {
            let (part, rest) = bytes.split_at(bytes.len().min(index(segment.len)));
            if part.is_empty() {
                continue;
            }
            memory.write(Space::Guest, segment.address, part)?;
            bytes = rest;
        }
        Ok(())
    }
}
