//! Device profiles: those of the papers, and chips by data sheet. docs/NAND.md repeats the figures
//! with their sources.

use crate::decay::{Ecc, ErrorModel};
use crate::geometry::Geometry;
use crate::pairing::Pairing;

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
    pub read_ns: u64,
    /// OOB-only or other short read.
    pub partial_read_ns: u64,
    /// Program of an LSB page (and of every page of a part without pairing).
    pub program_ns: u64,
    /// Program of an MSB page.
    pub program_msb_ns: u64,
    /// OOB-only partial program.
    pub oob_program_ns: u64,
    /// Block erase.
    pub erase_ns: u64,
    /// Transfer of one page over its channel's bus; a partial read has none.
    pub bus_ns: u64,
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
}

const US: u64 = 1_000;

const fn shape(
    channels: u32,
    ways: u32,
    blocks: u32,
    pages_per_block: u32,
    page: u32,
    oob: u32,
) -> Geometry {
    Geometry {
        channels,
        ways,
        planes: 1,
        blocks,
        pages_per_block,
        page_bytes: page,
        oob_bytes: oob,
    }
}

const fn times_us(read: u64, partial: u64, program: u64, msb: u64, erase: u64, bus: u64) -> Timing {
    Timing {
        read_ns: read * US,
        partial_read_ns: partial * US,
        program_ns: program * US,
        program_msb_ns: msb * US,
        oob_program_ns: 0,
        erase_ns: erase * US,
        bus_ns: bus * US,
    }
}

/// Four bits per 512 bytes: what SLC controllers of the time did. No retries: SLC has no read
/// voltages to shift.
const ECC_SLC: Ecc = Ecc {
    codeword_bytes: 512,
    bits: 4,
    retries: 0,
};
/// Eight bits per 512 bytes, as the sheets of early MLC ask for.
const ECC_EARLY_MLC: Ecc = Ecc {
    codeword_bytes: 512,
    bits: 8,
    retries: 0,
};
/// 24 bits per KiB: required by the error rates of `ErrorModel::Mlc2ynm`. Three retries are ours.
const ECC_MLC: Ecc = Ecc {
    codeword_bytes: 1024,
    bits: 24,
    retries: 3,
};

/// Every profile, the default first.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "mlc-4k",
        source: "Micron MT29F16G08MAA class MLC (ONFI 1.0 sheet: 4096+218, 128 pages, 3.9 % bad); LSB/MSB times of SimpleSSD's MLC",
        capacity: Capacity::BySize,
        geometry: shape(1, 1, 0, 128, 4096, 218),
        timing: times_us(50, 25, 500, 1300, 3500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        endurance: 3_000,
        factory_bad_permille: 15,
        max_bad_permille: 39,
        ecc: ECC_MLC,
        error_model: ErrorModel::Mlc2ynm,
    },
    Profile {
        name: "slc-2k",
        source: "Micron MT29F2G08 class SLC: 2048+64, 64 pages, 25/300/2000 us, 100 k cycles",
        capacity: Capacity::BySize,
        geometry: shape(1, 1, 0, 64, 2048, 64),
        timing: times_us(25, 20, 300, 300, 2000, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        endurance: 100_000,
        factory_bad_permille: 10,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
    },
    Profile {
        name: "mnftl",
        source: "MNFTL (DAC'11) 5.1: 8 GB MLC, 2 KB pages, 128 per block, OOB read 20, read 60, program 800, erase 1500 us",
        capacity: Capacity::Blocks(32_768),
        geometry: shape(1, 1, 32_768, 128, 2048, 64),
        timing: times_us(60, 20, 800, 800, 1500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        endurance: 10_000,
        factory_bad_permille: 0,
        max_bad_permille: 39,
        ecc: ECC_EARLY_MLC,
        error_model: ErrorModel::Mlc3xnm,
    },
    Profile {
        name: "mnftl-region",
        source: "profile mnftl, reduced to the 4,352 blocks of its Table 2 (blocks written and copied, less those erased, in the page-level rows)",
        capacity: Capacity::Blocks(4_352),
        geometry: shape(1, 1, 4_352, 128, 2048, 64),
        timing: times_us(60, 20, 800, 800, 1500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        endurance: 10_000,
        factory_bad_permille: 0,
        max_bad_permille: 39,
        ecc: ECC_EARLY_MLC,
        error_model: ErrorModel::Mlc3xnm,
    },
    Profile {
        name: "lazyftl",
        source: "LazyFTL (SIGMOD'11) 5.1: 1 GB large-block SLC, 80/200/1500 us; OOB read 20 us is ours",
        capacity: Capacity::Blocks(8_192),
        geometry: shape(1, 1, 8_192, 64, 2048, 64),
        timing: times_us(80, 20, 200, 200, 1500, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
    },
    Profile {
        name: "rose",
        source: "ROSE (IEEE TC'11) 5.1: 80 GB of Samsung K9K4G08U0M SLC, 88/263/2000 us; OOB read 25 us is ours",
        capacity: Capacity::Blocks(655_360),
        geometry: shape(1, 1, 655_360, 64, 2048, 64),
        timing: times_us(88, 25, 263, 263, 2000, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
    },
    Profile {
        name: "rose-part",
        source: "the same part, of any size: 80 GB take more RAM and time than most runs are worth",
        capacity: Capacity::BySize,
        geometry: shape(1, 1, 0, 64, 2048, 64),
        timing: times_us(88, 25, 263, 263, 2000, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
    },
    Profile {
        name: "rose-m",
        source: "ours: the same times and blocks with MLC's page order and pairs, for ROSE-M next to ROSE",
        capacity: Capacity::BySize,
        geometry: shape(1, 1, 0, 64, 2048, 64),
        timing: times_us(88, 25, 263, 263, 2000, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
    },
    Profile {
        name: "mlam",
        source: "MLAM (JSA'10) 3, 5.1: 32 x 1 GB MLC chips on 4 channels, 4 KB pages, 128 per block, 60/800/1500 us, bus 100 us",
        capacity: Capacity::Blocks(65_536),
        geometry: shape(4, 8, 65_536, 128, 4096, 128),
        timing: times_us(60, 60, 800, 800, 1500, 100),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        endurance: 10_000,
        factory_bad_permille: 0,
        max_bad_permille: 39,
        ecc: ECC_EARLY_MLC,
        error_model: ErrorModel::Mlc3xnm,
    },
    Profile {
        name: "torture",
        source: "ours: 16 pages of 1 KiB per block, 20 cycles, so that exhaustive tests reach every corner",
        capacity: Capacity::BySize,
        geometry: shape(1, 1, 0, 16, 1024, 64),
        timing: times_us(50, 25, 500, 1300, 3500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        endurance: 20,
        factory_bad_permille: 30,
        max_bad_permille: 200,
        ecc: ECC_MLC,
        error_model: ErrorModel::Mlc2ynm,
    },
];

impl Profile {
    /// The profile of this name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|p| p.name == name)
    }

    /// The profile used when none is named.
    pub fn default_profile() -> &'static Profile {
        &PROFILES[0]
    }

    /// The same device with this many blocks.
    pub fn with_blocks(mut self, blocks: u32) -> Self {
        self.geometry.blocks = blocks;
        self
    }

    /// The probability that the next erase of a block fails after `erases` erases. A Weibull
    /// hazard: at the rated cycles, the share of grown bad blocks equals the data sheet's limit
    /// minus the factory's share; at twice as many cycles it is up to 16 times that.
    pub fn erase_hazard(&self, erases: u32) -> f64 {
        const SHAPE: f64 = 4.0;
        let allowed = self
            .max_bad_permille
            .saturating_sub(self.factory_bad_permille);
        let share = f64::from(allowed) / 1000.0;
        let rated = f64::from(self.endurance.max(1));
        share * SHAPE / rated * (f64::from(erases) / rated).powf(SHAPE - 1.0)
    }

    /// The probability that a program of a block fails after `erases` erases. Over all pages of the
    /// block it is a tenth of [`Profile::erase_hazard`]. Ours; no rates were published.
    pub fn program_hazard(&self, erases: u32) -> f64 {
        self.erase_hazard(erases) / 10.0 / f64::from(self.geometry.pages_per_block)
    }

    /// Whether a page shares its cells with another (MLC and up).
    pub fn is_mlc(&self) -> bool {
        self.pairing != Pairing::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_valid_and_found_by_their_names() {
        for profile in PROFILES {
            let blocks = match profile.capacity {
                Capacity::Blocks(n) => n,
                Capacity::BySize => 1024,
            };
            profile.with_blocks(blocks).geometry.validate().unwrap();
            assert_eq!(Profile::find(profile.name), Some(profile));
            assert_eq!(
                profile.is_mlc(),
                profile.nop == 1,
                "{}: MLC pages are programmed once",
                profile.name
            );
        }
        assert!(Profile::find("nosuch").is_none());
    }

    /// Erases many blocks until each fails.
    #[test]
    fn as_many_blocks_fail_by_the_rated_cycles_as_the_sheet_allows() {
        let slc = Profile {
            endurance: 1_000,
            ..*Profile::find("slc-2k").unwrap()
        };
        let (mut rng, mut by_rated, mut by_twice) = (crate::SplitMix::new(1), 0, 0);
        const BLOCKS: u32 = 20_000;
        for _ in 0..BLOCKS {
            let life = (0..3_000)
                .find(|erases| rng.unit() < slc.erase_hazard(*erases))
                .unwrap_or(3_000);
            by_rated += (life < 1_000) as u32;
            by_twice += (life < 2_000) as u32;
        }
        // 2 % of the sheet less 1 % from the factory; 1 - exp(-0.01 * 2^4) at twice the cycles.
        assert!((150..250).contains(&by_rated), "{by_rated}");
        assert!((2_750..3_150).contains(&by_twice), "{by_twice}");
        assert_eq!(slc.erase_hazard(0), 0.0);
        let programs = slc.program_hazard(900) * slc.geometry.pages_per_block as f64;
        assert!((programs * 10.0 / slc.erase_hazard(900) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn paper_devices_have_the_papers_capacity() {
        let gib = |name| Profile::find(name).unwrap().geometry.data_bytes() >> 30;
        assert_eq!(
            [gib("mnftl"), gib("lazyftl"), gib("rose"), gib("mlam")],
            [8, 1, 80, 32]
        );
    }
}
