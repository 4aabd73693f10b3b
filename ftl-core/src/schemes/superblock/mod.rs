//! Superblock FTL: adjacent logical blocks share their physical blocks, with page-level placement
//! inside.
//!
//! Kang, Jo, Kim, Lee: *A Superblock-Based Flash Translation Layer for NAND Flash Memory*, EMSOFT
//! 2006 (TECS 2010); not available. This follows the MNFTL, LazyFTL and ROSE papers, which compare
//! with it. A superblock of N logical blocks has up to N + K physical ones. Its page map has three
//! levels. Page tables of 16 entries and middle directories of 16 entries are stored in the OOB
//! areas of the programmed pages. The global directory in RAM points to the page with the newest
//! copy of each middle directory. A read costs two reads of OOB areas and one of a page (one less
//! if one page has both), a write two and a program. [`crate::families::units`] implements all
//! that, with superblocks as units and a directory per group of tables. This module contains the
//! shape and the choice of victims.
//!
//! GC runs on a superblock with N + K full blocks: it erases a block without valid pages, or else
//! empties the one with the fewest. It shrinks the superblock that was not written for longest if
//! free blocks are short, or if all superblocks have more than a limit of blocks beyond N, in sum.
//!
//! RAM: 4 bytes per middle directory, and per superblock the list of its blocks.
//!
//! Deviations, and choices where the sources are silent: trims, common blocks and recovery are
//! those of [`crate::families::units`]. An entry has three bits for the block in the list, and the
//! bits of a page number. Page tables have 8 entries if 16 do not fit into the OOB area (blocks of
//! 128 pages with 64 bytes). The charge is the same, the global directory twice as large. Parts
//! with still smaller OOB areas are rejected.
//!
//! Invariants and power failure: [`crate::families::units`].

#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::units::{self, Lists, Policy, Shape, UnitFtl};
use crate::format::OOB_BYTES;
use crate::ftl::{Ftl, Start};
use crate::gc::docs;
use crate::int::index;
use crate::ram::vec_bytes;
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Superblock::NAME,
    title: "Superblock FTL: a page map per group of logical blocks, two of its levels in spare bytes",
    about: "Some adjacent logical blocks share their physical blocks, and a page may be stored anywhere in them. The map has three \
            levels: two are stored in the OOB areas of the programmed pages, the third is in RAM. GC stays inside a superblock.",
    paper: "Kang, Jo, Kim, Lee: Superblock FTL, EMSOFT 2006",
    mapping: "page inside a superblock of N + K physical blocks; three levels, two of them in spare bytes",
    ram: "4 B per 256 pages + 6 B per physical block",
    fidelity: 'B',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "sftl.n",
            help: "logical blocks of a superblock, 1 to 4 (default 4)",
        },
        ParamDoc {
            key: "sftl.k",
            help: "maximum number of additional physical blocks of a superblock, 1 to 6 - n (default 2)",
        },
        ParamDoc {
            key: "sftl.entries",
            help: "entries of a page table, 4 to 64 (default 16, or 8 if the spare bytes are too few)",
        },
        ParamDoc {
            key: "sftl.total",
            help: "maximum number of additional physical blocks of all superblocks (default 256)",
        },
    ],
    shared_params: docs::SHARED,
    ram_params: &[],
    overhead_blocks,
    constructor: start,
};

/// Entries of a middle directory, and of a page table if there is room.
const ENTRIES: u32 = 16;

/// Bits of a block's number in the list of its unit. The last number belongs to the block that GC
/// opens.
const NODE_BITS: u32 = 3;

fn logical_blocks(params: &Params) -> Result<u32, FtlError> {
    params.within("sftl.n", 4, 1..=4)
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    units::overhead_blocks(
        profile,
        logical_pages,
        logical_blocks(params)? * profile.geometry.pages_per_block,
        params,
    )
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(create(chip, config, start)?))
}

fn create(chip: Chip, config: &FtlConfig, start: Start) -> Result<UnitFtl<Superblock>, FtlError> {
    let params = &config.params;
    let n = logical_blocks(params)?;
    let k = params.within("sftl.k", 2, 1..=6 - n)?;
    let geometry = *chip.geometry();
    let superblocks = config.logical_pages.div_ceil(n * geometry.pages_per_block);
    let policy = Superblock {
        n,
        k,
        total: params.get("sftl.total", 256)?,
        written: vec![0; index(superblocks)],
        now: 0,
    };
    let bits = geometry.page_shift() + NODE_BITS;
    let shape = |entries| {
        Shape::new(
            &geometry,
            n * geometry.pages_per_block,
            entries,
            ENTRIES,
            bits,
        )
    };
    let fits = OOB_BYTES + shape(ENTRIES).spare_bytes() <= geometry.oob_len();
    let default = if fits { ENTRIES } else { ENTRIES / 2 };
    let entries = params.within("sftl.entries", default, 4..=64)?;
    UnitFtl::create(chip, config, start, shape(entries), policy)
}

/// Superblock FTL's policy.
struct Superblock {
    n: u32,
    k: u32,
    total: u32,
    /// Last write of each superblock, in writes.
    written: Vec<u64>,
    now: u64,
}

impl Policy for Superblock {
    const NAME: &'static str = "superblock";

    fn max_length(&self, _: &Shape) -> u32 {
        self.n + self.k
    }

    fn choose(&self, lists: &Lists, can_shrink: &dyn Fn(u32) -> bool) -> Option<u32> {
        lists
            .longest_first()
            .filter(|unit| can_shrink(*unit))
            .min_by_key(|unit| self.written[index(*unit)])
    }

    fn has_too_many(&self, lists: &Lists) -> bool {
        let beyond = lists.longest_first().map(|unit| lists.length(unit));
        beyond
            .take_while(|length| *length > self.n)
            .map(|length| length - self.n)
            .sum::<u32>()
            > self.total
    }

    fn choose_idle(&self, _: &Lists) -> Option<u32> {
        None
    }

    fn reads_all_tables(&self) -> bool {
        false
    }

    fn on_write(&mut self, unit: u32) {
        self.now += 1;
        debug_assert!(
            self.written[index(unit)] < self.now,
            "superblock {unit}: time of its last write, {}, is not before {}",
            self.written[index(unit)],
            self.now
        );
        self.written[index(unit)] = self.now;
    }

    fn paper_bytes(&self, shape: &Shape, lists: &Lists, superblocks: u64) -> u64 {
        4 * superblocks * u64::from(shape.groups()) + 6 * lists.total()
    }

    fn bytes(&self) -> u64 {
        vec_bytes::<u64>(self.written.capacity())
    }
}
