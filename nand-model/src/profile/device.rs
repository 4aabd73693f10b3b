//! A device: its flash, its times and its wear.

use super::slc::SlcRegion;
use crate::decay::{Ecc, ErrorModel};
use crate::energy::Energy;
use crate::geometry::Geometry;
use crate::intern;
use crate::pairing::{BITS_MAX, Pairing};
use crate::timing::Nanos;

/// A time for each page of a word line, in the order in which they are programmed. A part of fewer
/// bits per cell repeats the time of its last page.
pub type PageTimes = [Nanos; BITS_MAX];

/// Order in which the pages of a block may be programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOrder {
    /// Any order (old SLC).
    Any,
    /// Ascending, with gaps allowed.
    Ascending,
    /// Ascending without gaps (MLC).
    Consecutive,
}

/// Operation times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Full page read.
    pub read_ns: PageTimes,
    /// OOB-only or other short read.
    pub partial_read_ns: u64,
    /// Program of a page.
    pub program_ns: PageTimes,
    /// OOB-only partial program.
    pub oob_program_ns: u64,
    /// Block erase.
    pub erase_ns: u64,
    /// Transfer of one page over its channel's bus; a partial read has none.
    pub bus_ns: u64,
    /// Work of the controller for each host request, before its first flash operation.
    pub controller_ns: u64,
    /// Suspension of erases and programs for reads.
    pub suspend: Suspend,
    /// Cache commands.
    pub cache: Cache,
}

/// Cache commands: a die transfers the next page while its array works on the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Cache program (80h-15h), of pages of one block.
    pub program: bool,
    /// Cache read (31h), sequential or random.
    pub read: bool,
}

impl Cache {
    /// No cache commands.
    pub const NONE: Cache = Cache {
        program: false,
        read: false,
    };
}

/// Suspension of a die's erases and programs for reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspend {
    /// Time until a read may start on a die that erases; `None` if it waits for the end.
    pub erase_ns: Option<Nanos>,
    /// Time until a read may start on a die that programs; `None` if it waits for the end.
    pub program_ns: Option<Nanos>,
    /// Time that each suspension adds to what it suspends.
    pub resume_ns: Nanos,
}

impl Suspend {
    /// Reads wait for whatever the die does.
    pub const NONE: Suspend = Suspend {
        erase_ns: None,
        program_ns: None,
        resume_ns: 0,
    };
}

impl Timing {
    /// The longest read of a page.
    pub fn read_ns_max(&self) -> Nanos {
        self.read_ns.into_iter().fold(0, Nanos::max)
    }

    /// The longest program of a page.
    pub fn program_ns_max(&self) -> Nanos {
        self.program_ns.into_iter().fold(0, Nanos::max)
    }
}

/// Raw flash capacity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The paper fixes the number of blocks.
    Blocks(u32),
    /// As many blocks as the requested size needs.
    BySize,
}

/// A device or chip by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name on the command line and in image headers.
    pub name: &'static str,
    /// One line: the device and the source of its figures.
    pub source: &'static str,
    /// Raw capacity.
    pub capacity: Capacity,
    /// Dies of each chip: `ways` counts the dies of a channel.
    pub dies_per_chip: u32,
    /// Shape; `blocks` is that of [`Profile::capacity`] or filled in by [`Profile::with_blocks`].
    pub geometry: Geometry,
    /// Times.
    pub timing: Timing,
    /// Page order inside a block.
    pub order: PageOrder,
    /// Programs allowed per page between erases; 1 forbids OOB-only programs.
    pub nop: u8,
    /// Word-line sharing.
    pub pairing: Pairing,
    /// Blocks in SLC mode, if the device has any.
    pub slc: Option<SlcRegion>,
    /// Rated program/erase cycles.
    pub endurance: u32,
    /// Blocks bad from the factory, in thousandths.
    pub factory_bad_permille: u32,
    /// Bad blocks the data sheet allows over the device's life, in thousandths.
    pub max_bad_permille: u32,
    /// Error correction.
    pub ecc: Ecc,
    /// Raw bit error rate, for fault plans with bit errors.
    pub error_model: ErrorModel,
    /// Energy of operations, if it is known.
    pub energy: Option<Energy>,
}

impl Profile {
    /// Returns this device with another name and source, which need not be known at compile time.
    pub fn named(self, name: &str, source: &str) -> Self {
        Profile {
            name: intern::text(name),
            source: intern::text(source),
            ..self
        }
    }

    /// Bits per cell.
    pub const fn bits(&self) -> u8 {
        self.pairing.bits()
    }

    /// The kind of cells: `slc`, `mlc`, `tlc` or `qlc`.
    pub const fn cell(&self) -> &'static str {
        match self.bits() {
            1 => "slc",
            2 => "mlc",
            3 => "tlc",
            _ => "qlc",
        }
    }

    /// Returns this device with another number of blocks.
    pub fn with_blocks(mut self, blocks: u32) -> Self {
        self.geometry.blocks = blocks;
        self
    }

    /// The number of its blocks that are bad from the factory.
    pub fn factory_bad_blocks(&self) -> u32 {
        let bad = u64::from(self.geometry.blocks) * u64::from(self.factory_bad_permille) / 1000;
        u32::try_from(bad).expect("a share of the blocks")
    }

    /// The probability that the next erase of a block fails after `erases` erases. A Weibull
    /// hazard: at the rated cycles, the share of grown bad blocks equals the data sheet's limit
    /// minus the factory's share; at twice as many cycles it is up to 16 times that. `is_slc`: the
    /// block is in SLC mode, which has rated cycles of its own.
    pub(crate) fn erase_hazard(&self, erases: u32, is_slc: bool) -> f64 {
        const SHAPE: f64 = 4.0;
        let allowed = self
            .max_bad_permille
            .saturating_sub(self.factory_bad_permille);
        let share = f64::from(allowed) / 1000.0;
        let rated = f64::from(self.endurance_of(is_slc).max(1));
        share * SHAPE / rated * (f64::from(erases) / rated).powf(SHAPE - 1.0)
    }

    /// The probability that a program of a block fails after `erases` erases. Over all pages of the
    /// block it is a tenth of [`Profile::erase_hazard`]. Ours; no rates were published.
    pub(crate) fn program_hazard(&self, erases: u32, is_slc: bool) -> f64 {
        let pages = if is_slc {
            self.slc_pages()
        } else {
            self.geometry.pages_per_block
        };
        self.erase_hazard(erases, is_slc) / 10.0 / f64::from(pages)
    }

    /// Whether a page shares its cells with another (MLC and up).
    pub fn is_mlc(&self) -> bool {
        self.pairing != Pairing::None
    }
}
