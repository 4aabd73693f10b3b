//! The built-in profiles.

use super::device::{Cache, Capacity, PageOrder, Profile, Suspend, Timing};
use crate::decay::{Ecc, ErrorModel};
use crate::geometry::Geometry;
use crate::pairing::Pairing;

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
        multi_plane: crate::geometry::MultiPlane::Off,
        blocks,
        pages_per_block,
        page_bytes: page,
        oob_bytes: oob,
    }
}

const fn times_us(read: u64, partial: u64, program: u64, msb: u64, erase: u64, bus: u64) -> Timing {
    Timing {
        read_ns: [read * US; 4],
        partial_read_ns: partial * US,
        program_ns: [program * US, msb * US, msb * US, msb * US],
        oob_program_ns: 0,
        erase_ns: erase * US,
        bus_ns: bus * US,
        controller_ns: 0,
        suspend: Suspend::NONE,
        cache: Cache::NONE,
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

/// 72 bits per KiB, as an LDPC code gives: fits the rates of `ErrorModel::Tlc72l`. Ours.
const ECC_TLC: Ecc = Ecc {
    codeword_bytes: 1024,
    bits: 72,
    retries: 3,
};

/// Every profile, the default first.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "mlc-4k",
        source: "Micron MT29F16G08MAA class MLC (ONFI 1.0 sheet: 4096+218, 128 pages, 3.9 % bad); LSB/MSB times of SimpleSSD's MLC",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 128, 4096, 218),
        timing: times_us(50, 25, 500, 1300, 3500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        slc: None,
        endurance: 3_000,
        factory_bad_permille: 15,
        max_bad_permille: 39,
        ecc: ECC_MLC,
        error_model: ErrorModel::Mlc2ynm,
        energy: None,
    },
    Profile {
        name: "slc-2k",
        source: "Micron MT29F2G08 class SLC: 2048+64, 64 pages, 25/300/2000 us, 100 k cycles",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 64, 2048, 64),
        timing: times_us(25, 20, 300, 300, 2000, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        slc: None,
        endurance: 100_000,
        factory_bad_permille: 10,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
        energy: None,
    },
    Profile {
        name: "tlc-16k",
        source: "TLC: times of SimpleSSD's paper by page of a word line, as coded in FEMU; shape, spare bytes and cycles typical, not of one sheet",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 384, 16_384, 1_872),
        timing: Timing {
            read_ns: [56_500, 77_500, 106_000, 106_000],
            partial_read_ns: 56_500,
            program_ns: [820_500, 2_225_000, 5_734_000, 5_734_000],
            oob_program_ns: 0,
            erase_ns: 3_000 * US,
            bus_ns: 52_433,
            controller_ns: 0,
            suspend: Suspend::NONE,
            cache: Cache::NONE,
        },
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Staggered { bits: 3 },
        slc: None,
        endurance: 3_000,
        factory_bad_permille: 15,
        max_bad_permille: 39,
        ecc: ECC_TLC,
        error_model: ErrorModel::Tlc72l,
        energy: None,
    },
    Profile {
        name: "qlc-16k",
        source: "QLC: reads measured by FEMU's authors at 16 KiB, programs extrapolated there from TLC; cycles as announced for 3D QLC; shape typical",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 512, 16_384, 1_872),
        timing: Timing {
            read_ns: [47_900, 76_200, 134_600, 228_100],
            partial_read_ns: 47_900,
            program_ns: [861_525, 2_447_500, 6_880_800, 9_174_400],
            oob_program_ns: 0,
            erase_ns: 3_000 * US,
            bus_ns: 52_433,
            controller_ns: 0,
            suspend: Suspend::NONE,
            cache: Cache::NONE,
        },
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Staggered { bits: 4 },
        slc: None,
        endurance: 1_000,
        factory_bad_permille: 15,
        max_bad_permille: 39,
        ecc: ECC_TLC,
        error_model: ErrorModel::Tlc72l,
        energy: None,
    },
    Profile {
        name: "mnftl",
        source: "MNFTL (DAC'11) 5.1: 8 GB MLC, 2 KB pages, 128 per block, OOB read 20, read 60, program 800, erase 1500 us",
        capacity: Capacity::Blocks(32_768),
        dies_per_chip: 1,
        geometry: shape(1, 1, 32_768, 128, 2048, 64),
        timing: times_us(60, 20, 800, 800, 1500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        slc: None,
        endurance: 10_000,
        factory_bad_permille: 0,
        max_bad_permille: 39,
        ecc: ECC_EARLY_MLC,
        error_model: ErrorModel::Mlc3xnm,
        energy: None,
    },
    Profile {
        name: "mnftl-region",
        source: "profile mnftl, reduced to the 4,352 blocks of its Table 2 (blocks written and copied, less those erased, in the page-level rows)",
        capacity: Capacity::Blocks(4_352),
        dies_per_chip: 1,
        geometry: shape(1, 1, 4_352, 128, 2048, 64),
        timing: times_us(60, 20, 800, 800, 1500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        slc: None,
        endurance: 10_000,
        factory_bad_permille: 0,
        max_bad_permille: 39,
        ecc: ECC_EARLY_MLC,
        error_model: ErrorModel::Mlc3xnm,
        energy: None,
    },
    Profile {
        name: "lazyftl",
        source: "LazyFTL (SIGMOD'11) 5.1: 1 GB large-block SLC, 80/200/1500 us; OOB read 20 us is ours",
        capacity: Capacity::Blocks(8_192),
        dies_per_chip: 1,
        geometry: shape(1, 1, 8_192, 64, 2048, 64),
        timing: times_us(80, 20, 200, 200, 1500, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        slc: None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
        energy: None,
    },
    Profile {
        name: "rose",
        source: "ROSE (IEEE TC'11) 5.1: 80 GB of Samsung K9K4G08U0M SLC, 88/263/2000 us; OOB read 25 us is ours",
        capacity: Capacity::Blocks(655_360),
        dies_per_chip: 1,
        geometry: shape(1, 1, 655_360, 64, 2048, 64),
        timing: times_us(88, 25, 263, 263, 2000, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        slc: None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
        energy: None,
    },
    Profile {
        name: "rose-part",
        source: "the same part, of any size: 80 GB take more RAM and time than most runs are worth",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 64, 2048, 64),
        timing: times_us(88, 25, 263, 263, 2000, 0),
        order: PageOrder::Any,
        nop: 4,
        pairing: Pairing::None,
        slc: None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
        energy: None,
    },
    Profile {
        name: "rose-m",
        source: "ours: the same times and blocks with MLC's page order and pairs, for ROSE-M next to ROSE",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 64, 2048, 64),
        timing: times_us(88, 25, 263, 263, 2000, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        slc: None,
        endurance: 100_000,
        factory_bad_permille: 0,
        max_bad_permille: 20,
        ecc: ECC_SLC,
        error_model: ErrorModel::Slc,
        energy: None,
    },
    Profile {
        name: "mlam",
        source: "MLAM (JSA'10) 3, 5.1: 32 x 1 GB MLC chips on 4 channels, 4 KB pages, 128 per block, 60/800/1500 us, bus 100 us",
        capacity: Capacity::Blocks(65_536),
        dies_per_chip: 1,
        geometry: shape(4, 8, 65_536, 128, 4096, 128),
        timing: times_us(60, 60, 800, 800, 1500, 100),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        slc: None,
        endurance: 10_000,
        factory_bad_permille: 0,
        max_bad_permille: 39,
        ecc: ECC_EARLY_MLC,
        error_model: ErrorModel::Mlc3xnm,
        energy: None,
    },
    Profile {
        name: "torture",
        source: "ours: 16 pages of 1 KiB per block, 20 cycles, so that exhaustive tests reach every corner",
        capacity: Capacity::BySize,
        dies_per_chip: 1,
        geometry: shape(1, 1, 0, 16, 1024, 64),
        timing: times_us(50, 25, 500, 1300, 3500, 0),
        order: PageOrder::Consecutive,
        nop: 1,
        pairing: Pairing::Dist3,
        slc: None,
        endurance: 20,
        factory_bad_permille: 30,
        max_bad_permille: 200,
        ecc: ECC_MLC,
        error_model: ErrorModel::Mlc2ynm,
        energy: None,
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
}
