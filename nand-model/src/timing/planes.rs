//! Dies with multi-plane or cache commands: operations of several planes share the array time, and
//! transfers overlap with it.
//!
//! Definitions. A *joint operation* is one command to several planes of a die (multi-plane
//! operations of ONFI; the command set of a Hynix H27U4G8_6F2D has 80h-11h-80h-10h for programs and
//! 60h-60h-D0h for erases). Its operations are of one kind, on different planes, and arrive
//! together: they have the same earliest start, and no other operation of the die was issued
//! between them. Pages of programs and reads have the same number in their blocks, if the device
//! needs that. The array time is that of the longest operation.
//!
//! Transfers stay one after another: a joint program begins when its last page is loaded, and the
//! pages of a joint read leave the die in their order. The next operation of the die waits until
//! the page registers are free: until a program ends, and until the pages that were read have left.
//!
//! With *cache commands* a die has one more register per plane. In one sequence, of joint
//! operations of one kind that arrive together, the next pages are loaded while the array programs
//! those before (80h-15h, in one block), or it senses them while those before leave the die (31h).
//! The register takes the next page when the array begins with the page before, or when the page
//! before that has left. A page is done when the array is, not when it is loaded: that is the
//! instant returned, so a wait for a program includes the array time.
//!
//! Invariants: the array of a die does one joint operation at a time; an instant that was returned
//! stays, so operations that joined early return an earlier end than the last one. The end of a
//! request is the latest of its ends.

use super::schedule::{Nanos, Timeline};
use crate::addr::{Pbn, Ppn};
use crate::convert::index;
use crate::geometry::{Geometry, MultiPlane};
use crate::profile::Cache;

/// Kinds of operations that share the array time with their own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Program,
    Erase,
}

/// The last joint operation of a die. More operations may join it.
#[derive(Clone, Copy, Debug)]
struct Joint {
    kind: Kind,
    at: Nanos,
    /// Page number of its first operation.
    offset: u32,
    /// Bit set of the planes.
    planes: u64,
    /// The array was busy until here.
    free: Nanos,
    /// Time at which the array begins.
    begin: Nanos,
    /// Array time.
    cell_ns: Nanos,
    /// End of its last transfer.
    moved: Nanos,
    /// For a cached read: time at which the pages before have left the die.
    sent_before: Nanos,
    /// Block of its first operation.
    block: Pbn,
}

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// End of the array's last operation.
    array: Nanos,
    /// From this time on the page registers are free.
    registers: Nanos,
    last: Option<Joint>,
}

/// Busy-until instants of arrays and page registers, and the work of the buses.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    geometry: Geometry,
    dies: Vec<Die>,
    buses: Vec<Timeline>,
    cache: Cache,
    /// Array time that operations since the last call of [`Planes::take_shared`] shared.
    shared_ns: Nanos,
}

impl Planes {
    pub(super) fn new(geometry: &Geometry, cache: Cache) -> Planes {
        Planes {
            geometry: *geometry,
            dies: vec![Die::default(); index(geometry.dies())],
            buses: vec![Timeline::default(); index(geometry.channels)],
            cache,
            shared_ns: 0,
        }
    }

    pub(super) fn busy_until(&self) -> Nanos {
        let dies = self.dies.iter().map(|die| die.array.max(die.registers));
        let buses = self.buses.iter().map(Timeline::end);
        dies.chain(buses).max().unwrap_or(0)
    }

    /// Returns the array time that operations since the last call shared with earlier ones.
    pub(super) fn take_shared(&mut self) -> Nanos {
        std::mem::take(&mut self.shared_ns)
    }

    /// The last joint operation of a die: the bit set of its planes, and when its array begins and
    /// ends as far as is known. An operation that joins later may move both.
    pub(super) fn last_joint(&self, die: u32) -> Option<(u64, (Nanos, Nanos))> {
        let last = self.dies[index(die)].last?;
        Some((last.planes, (last.begin, last.begin + last.cell_ns)))
    }

    /// Programs pages in sequence, each after its transfer; returns the end of the last one.
    pub(super) fn program_run(
        &mut self,
        at: Nanos,
        (die, bus): (u32, u32),
        pages: impl Iterator<Item = (Ppn, Nanos)>,
        bus_ns: Nanos,
    ) -> Nanos {
        pages.fold(at, |_, (ppn, cell_ns)| {
            self.program(at, (die, bus), ppn, cell_ns, bus_ns)
        })
    }

    fn program(
        &mut self,
        at: Nanos,
        (die, bus): (u32, u32),
        ppn: Ppn,
        cell_ns: Nanos,
        bus_ns: Nanos,
    ) -> Nanos {
        let joint = self.joint(die, Kind::Program, at, ppn, cell_ns);
        let cached = self.cache.program;
        let of = &mut self.dies[index(die)];
        let (mut joint, from) = match joint {
            Some(joint) => (joint, at.max(joint.moved)),
            None => {
                let new = self
                    .geometry
                    .joint_of(Kind::Program, at, ppn, of.array, cell_ns);
                let continues = |last: &Joint| {
                    cached && (last.kind, last.at, last.block) == (new.kind, at, new.block)
                };
                let from = of
                    .last
                    .filter(continues)
                    .map_or(of.registers, |last| last.begin);
                (new, at.max(from))
            }
        };
        joint.moved = transfer(&mut self.buses[index(bus)], from, bus_ns);
        joint.begin = joint.moved.max(joint.free);
        of.array = joint.begin + joint.cell_ns;
        of.registers = of.array;
        of.last = Some(joint);
        of.array
    }

    /// Reads pages in sequence, each with its transfer; returns the end of the last one.
    pub(super) fn read_run(
        &mut self,
        at: Nanos,
        (die, bus): (u32, u32),
        pages: impl Iterator<Item = (Ppn, Nanos)>,
        bus_ns: Nanos,
    ) -> Nanos {
        pages.fold(at, |_, (ppn, cell_ns)| {
            self.read(at, (die, bus), ppn, cell_ns, bus_ns)
        })
    }

    fn read(
        &mut self,
        at: Nanos,
        (die, bus): (u32, u32),
        ppn: Ppn,
        cell_ns: Nanos,
        bus_ns: Nanos,
    ) -> Nanos {
        let joint = self.joint(die, Kind::Read, at, ppn, cell_ns);
        let of = &mut self.dies[index(die)];
        let mut joint = joint.unwrap_or_else(|| {
            let continues =
                |last: &Joint| self.cache.read && (last.kind, last.at) == (Kind::Read, at);
            let (free, sent) = match of.last.filter(continues) {
                Some(last) => (of.array.max(last.sent_before), last.moved),
                None => (of.array.max(of.registers), 0),
            };
            Joint {
                moved: sent,
                sent_before: sent,
                ..self.geometry.joint_of(Kind::Read, at, ppn, free, cell_ns)
            }
        });
        of.array = joint.begin + joint.cell_ns;
        let from = of.array.max(joint.moved);
        joint.moved = transfer(&mut self.buses[index(bus)], from, bus_ns);
        of.registers = joint.moved;
        of.last = Some(joint);
        joint.moved
    }

    /// Erases the block of this page.
    pub(super) fn erase(&mut self, at: Nanos, die: u32, first: Ppn, ns: Nanos) -> Nanos {
        let joint = self.joint(die, Kind::Erase, at, first, ns);
        let of = &mut self.dies[index(die)];
        let joint = joint.unwrap_or_else(|| {
            let free = of.array.max(of.registers);
            self.geometry.joint_of(Kind::Erase, at, first, free, ns)
        });
        of.array = joint.begin + joint.cell_ns;
        of.registers = of.array;
        of.last = Some(joint);
        of.array
    }

    /// Works for `ns` on one plane alone, without a transfer: senses a page or a part of it, or
    /// programs spare bytes.
    pub(super) fn work(&mut self, at: Nanos, die: u32, ns: Nanos) -> Nanos {
        let of = &mut self.dies[index(die)];
        of.array = at.max(of.array).max(of.registers) + ns;
        of.registers = of.array;
        of.last = None;
        of.array
    }

    /// Returns the die's last joint operation with this one in it, if it may join.
    fn joint(&mut self, die: u32, kind: Kind, at: Nanos, ppn: Ppn, ns: Nanos) -> Option<Joint> {
        let geometry = &self.geometry;
        let last = self.dies[index(die)].last.filter(|last| {
            let plane = geometry.plane_bit(ppn);
            let joins = geometry.multi_plane != MultiPlane::Off;
            let same_page = geometry.multi_plane == MultiPlane::AnyPage
                || kind == Kind::Erase
                || last.offset == geometry.offset_of(ppn);
            joins && (last.kind, last.at) == (kind, at) && last.planes & plane == 0 && same_page
        })?;
        self.shared_ns += ns.min(last.cell_ns);
        Some(Joint {
            planes: last.planes | geometry.plane_bit(ppn),
            cell_ns: last.cell_ns.max(ns),
            ..last
        })
    }
}

impl Geometry {
    fn plane_bit(&self, ppn: Ppn) -> u64 {
        1 << self.plane_of(self.block_of(ppn))
    }

    /// A new joint operation of one page, on an array that is free from this instant on.
    fn joint_of(&self, kind: Kind, at: Nanos, ppn: Ppn, free: Nanos, cell_ns: Nanos) -> Joint {
        Joint {
            kind,
            at,
            offset: self.offset_of(ppn),
            planes: self.plane_bit(ppn),
            free,
            begin: at.max(free),
            cell_ns,
            moved: 0,
            sent_before: 0,
            block: self.block_of(ppn),
        }
    }
}

fn transfer(bus: &mut Timeline, from: Nanos, bus_ns: Nanos) -> Nanos {
    match bus_ns {
        0 => from,
        ns => bus.fit(from, ns),
    }
}

#[cfg(test)]
mod tests;
