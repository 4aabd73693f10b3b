//! Plans: the complete input of one run, drawn from a seed or read from text.
//!
//! A plan is a device (scheme, chip, parameters), the faults of its parts, and steps.
//! [`Plan::draw`] takes a random subset of everything that can vary, so that faults and workloads
//! are combined. A shrunk failure is kept as text ([`crate::plan_text`]), whose words are the names
//! of the types here.

mod draw;
mod parameters;
mod steps;
mod text;

use crate::plan_text::is_default;
use crate::rig::{Cells, Rig, has_param};
use crate::workload::HostOp;
use ftl_core::format::trim::TrimBitmap;
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Params, Start};
use ftld_host_disk::{Crash, Freeze, SyncFault, WriteFault};
use nand_model::{Cut, Fault, Geometry, MultiPlane, PairTable, Pairing, Profile};
use serde::{Deserialize, Serialize};

pub use parameters::{PARAMETERS, unknown_parameters};

/// The complete input of one run.
#[derive(Clone)]
pub struct Plan {
    /// Seed of payloads and faults.
    pub seed: u64,
    /// The scheme.
    pub scheme: &'static Scheme,
    /// The chip below it, and its parameters.
    pub device: Device,
    /// Faults of the chip's parts.
    pub parts: Parts,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A chip, and the parameters of the scheme on it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The rules of the chip.
    pub chip: ChipKind,
    /// Pages per block.
    pub pages_per_block: u32,
    /// Buses, and dies on each.
    pub dies: (u32, u32),
    /// Planes of a die that operate together; 0 if none do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub planes: u32,
    /// Logical pages.
    pub pages: u32,
    /// Over-provisioning in percent.
    pub op_percent: u32,
    /// Parameters other than their defaults.
    #[serde(default, skip_serializing_if = "is_default")]
    pub params: Vec<(String, String)>,
    /// Whether the chip has as many bad blocks as its data sheet allows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub worn: bool,
    /// Whether the bytes are kept in an image on a simulated disk; else in memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_disk: bool,
}

/// Rules of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChipKind {
    /// Rules of `slc-2k`.
    Slc,
    /// Rules of `torture`.
    Mlc,
    /// Word lines of three pages.
    Tlc,
    /// Word lines of four pages.
    Qlc,
    /// MLC with [`Pairing::Adjacent`].
    Adjacent,
    /// MLC with [`Pairing::Dist3`].
    Dist3,
    /// MLC with [`Pairing::Dist6`].
    Dist6,
    /// MLC with [`Pairing::Shared4`].
    Shared4,
    /// MLC with [`Pairing::Group4`].
    Group4,
    /// MLC with [`Pairing::Random`].
    Random {
        /// Chooses the table.
        seed: u16,
        /// Most pages between an LSB page and its MSB page.
        span: u8,
    },
}

impl ChipKind {
    fn cells(self) -> Cells {
        match self {
            ChipKind::Slc => Cells::Slc,
            ChipKind::Tlc => Cells::Tlc,
            ChipKind::Qlc => Cells::Qlc,
            _ => Cells::Mlc,
        }
    }

    /// The pairing, if it is not the cells' usual one.
    fn pairing(self) -> Option<Pairing> {
        match self {
            ChipKind::Slc | ChipKind::Mlc | ChipKind::Tlc | ChipKind::Qlc => None,
            ChipKind::Adjacent => Some(Pairing::Adjacent),
            ChipKind::Dist3 => Some(Pairing::Dist3),
            ChipKind::Dist6 => Some(Pairing::Dist6),
            ChipKind::Shared4 => Some(Pairing::Shared4),
            ChipKind::Group4 => Some(Pairing::Group4),
            ChipKind::Random { seed, span } => Some(Pairing::Random { seed, span }),
        }
    }
}

/// Faults of the chip's parts, from the first request on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parts {
    /// Rates in parts per billion.
    #[serde(skip_serializing_if = "is_default")]
    pub rates: Vec<(Fault, u32)>,
    /// Factor on the chip's failure rate by wear.
    #[serde(skip_serializing_if = "is_default")]
    pub wear_out: u32,
    /// Factor on the chip's bit error rate.
    #[serde(skip_serializing_if = "is_default")]
    pub bit_errors: u32,
    /// Whether cuts also hit operations in flight on other dies.
    #[serde(skip_serializing_if = "is_default")]
    pub in_flight: bool,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A request.
    Do(HostOp),
    /// The next writes and trims, at most this many, are one batch: acknowledged together.
    Batch(u32),
    /// Power fails at an operation after this step; then the device restarts.
    Cut(Cut, Restart),
    /// The device goes down between two requests, and restarts.
    Down(Down, Restart),
    /// This many hours pass.
    Age(u32),
    /// Pages from this one on are read this many times; the last number is that of the pages.
    Hammer(u32, u32, u32),
    /// A programmed page gets this many wrong bits; the number chooses the page, optionally among
    /// mapping pages.
    WrongBits(u32, u32, bool),
    /// The OOB area of a programmed page becomes unreadable; the number chooses the page,
    /// optionally among mapping pages.
    LostOob(u32, bool),
    /// A die stops working.
    DieFails(u32),
    /// The next program, erase or read of its kind on a block fails; the number chooses the block.
    BlockFails(u32, Fault),
    /// The host's disk gets a fault.
    Disk(DiskFault),
    /// The faults of the host's disk end.
    Mend,
    /// The host syncs the image on its own.
    Sync,
    /// The image releases space of at most this many slots.
    GiveBack(u32),
}

/// How a device goes down between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Down {
    /// A clean stop.
    Stop,
    /// A clean stop in which power fails, if it has that many operations.
    StopCut(Cut),
    /// A clean stop; the host crashes before this write or sync of it.
    StopCrash(Freeze, Crash),
    /// The process is killed.
    Kill,
    /// The emulated flash loses power.
    PowerOff,
    /// The host crashes.
    Crash(Crash),
}

/// A restart: what goes wrong in the mounts before one succeeds, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// A host crash after the device went down, before it is opened again.
    #[serde(skip_serializing_if = "is_default")]
    pub crash: Option<Crash>,
    /// Faults inside the following mounts.
    #[serde(skip_serializing_if = "is_default")]
    pub inside: Vec<Inside>,
}

/// Fault inside a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Inside {
    /// A power cut; the host may crash after it.
    Cut(Cut, Option<Crash>),
    /// The host crashes before this write or sync of the image.
    Crash(Freeze, Crash),
    /// The first number of the next blocks that the mount opens fail, each after the second number
    /// of programs; then power is cut.
    Fails(u32, u32, Cut),
    /// The process is killed when the mount is complete.
    Kill,
}

/// How the host's disk misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFault {
    /// Writes fail.
    Writes(WriteFault),
    /// This number of erases of blocks fail, with this errno.
    Erases(u64, i32),
    /// Syncs fail.
    Syncs(SyncFault),
    /// This number of reads of a part of the image fail; the part begins at this permille of it.
    Reads(u32, u64),
}

/// No space left on the host.
pub const ENOSPC: i32 = 28;

/// The host's disk fails.
pub const EIO: i32 = 5;

/// Bytes of a page of all chips here.
const PAGE_BYTES: u32 = 512;

/// Logical pages from which on a device has more than 100 mapping pages and several chunks of its
/// trim bitmap: a mapping page of 512 bytes has 128 entries, a chunk of the bitmap [`CHUNK`] pages.
pub const LARGE: u32 = 13_312;

/// Logical pages of a chunk of the trim bitmap.
const CHUNK: u32 = TrimBitmap::capacity(PAGE_BYTES);

/// Pages of the writes that fill a large device.
const FILL: u32 = 128;

impl Plan {
    /// The device laid out for its scheme, or why it cannot be.
    ///
    /// # Errors
    /// The scheme refuses the parameters or the shape.
    pub fn rig(&self) -> Result<Rig, String> {
        let device = &self.device;
        let base = device.cells().profile();
        let geometry = Geometry {
            channels: device.dies.0,
            ways: device.dies.1,
            planes: device.planes.max(1),
            multi_plane: match device.planes {
                0 => MultiPlane::Off,
                _ => MultiPlane::SamePage,
            },
            pages_per_block: device.pages_per_block,
            page_bytes: PAGE_BYTES,
            ..base.geometry
        };
        let profile = Profile {
            geometry,
            pairing: device.pairing(),
            ..base
        };
        let mut params = Params::default();
        device
            .params
            .iter()
            .for_each(|(key, value)| params.set(key, value));
        let op = f64::from(device.op_percent) / 100.0;
        Rig::laid_out(
            self.scheme,
            device.cells(),
            profile,
            device.pages,
            op,
            params,
            self.seed,
        )
    }

    /// Whether the scheme accepts shape and parameters.
    fn starts(&self) -> bool {
        let Ok(rig) = self.rig() else {
            return false;
        };
        let started = rig.scheme.start(rig.blank(), &rig.config, Start::Format);
        !matches!(started, Err(FtlError::Config(_)))
    }

    /// Hours in which the scrub reads every block; 0 if it never does.
    pub fn scrub_hours(&self) -> u32 {
        let mut given = self.device.params.iter();
        match given.find(|(key, _)| key == "scrub.hours") {
            Some((_, hours)) => hours.parse().expect("the scheme accepts it"),
            None if has_param(self.scheme, "scrub.hours") => 168,
            None => 0,
        }
    }
}

impl Device {
    /// How far the pages of a word line lie apart.
    pub fn span(&self) -> u32 {
        PairTable::new(self.pairing(), self.pages_per_block).span()
    }

    fn pairing(&self) -> Pairing {
        let usual = || self.cells().profile().pairing;
        self.chip.pairing().unwrap_or_else(usual)
    }

    /// Kind of cells.
    pub fn cells(&self) -> Cells {
        self.chip.cells()
    }

    /// Whether its pages are paired otherwise than on the usual MLC chip.
    pub fn has_other_pairing(&self) -> bool {
        self.chip.pairing().is_some()
    }

    /// Checks that a step of a hand-written plan fits the device.
    ///
    /// # Errors
    /// It names pages or dies that the device does not have.
    pub fn has_room_for(&self, step: &Step) -> Result<(), String> {
        let (lpn, count) = match *step {
            Step::Do(
                HostOp::Write { lpn, count, .. }
                | HostOp::WriteZeroData { lpn, count }
                | HostOp::WriteZeroes { lpn, count, .. }
                | HostOp::Trim { lpn, count }
                | HostOp::Read { lpn, count },
            ) => (lpn, count),
            Step::Hammer(lpn, _, count) => (lpn, count),
            Step::DieFails(die) if die >= self.dies.0 * self.dies.1 => {
                return Err(format!(
                    "{step}: the device has {} dies",
                    self.dies.0 * self.dies.1
                ));
            }
            _ => return Ok(()),
        };
        if count == 0 || lpn.checked_add(count).is_none_or(|end| end > self.pages) {
            return Err(format!(
                "{step}: the device has pages 0 to {}, and a request takes one at least",
                self.pages - 1
            ));
        }
        Ok(())
    }

    /// Whether it has more than 100 mapping pages and several chunks of its trim bitmap.
    pub fn is_large(&self) -> bool {
        self.pages >= LARGE
    }
}
