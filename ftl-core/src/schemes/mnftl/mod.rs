//! MNFTL: a page map inside every logical block, with any number of physical blocks.
//!
//! Qin, Wang, Liu, Shao, Guan: *MNFTL: An Efficient Flash Translation Layer for MLC NAND Flash
//! Memory Storage Systems*, DAC 2011. Made for MLC: pages are programmed upwards and once. A
//! logical block appends to its own open block; when that is full it takes another. GC runs only
//! when no free block is left (*postponed reclamation*). Valid pages stay inside their logical
//! block (*concentrated mapping*). So a logical block with many blocks has blocks with few valid
//! pages; GC takes its victim there. The page map of a logical block is cut into N subtables. Each
//! programmed page carries in its OOB area its own subtable, as it is from then on. RAM holds a
//! pointer to the newest copy of each. A read costs one read of an OOB area and one of a page, a
//! write one of an OOB area and a program. [`crate::families::units`] implements all that, with
//! logical blocks as units and a pointer per table. This module contains the shape and the choice
//! of victims.
//!
//! RAM: 4 + 3 N + 6 M bytes per logical block with M physical ones in the paper; the report lists
//! the allocated RAM alongside. One bit per physical and one per logical page are additions.
//!
//! Deviations, and choices where the paper is silent:
//! - Slots have two bytes (number of a block in the list, page) instead of three. So 16 of them and
//!   the record fit into an OOB area of 64 bytes. The charge is the same. A part with a smaller one
//!   is rejected.
//! - Subtables that one request uses twice are read once. Validity is in RAM, so a block without a
//!   valid page is erased without reading subtables.
//! - Trims leave records (`crate::trims`) and subtables in RAM until a page of theirs is
//!   programmed; above a limit one of their pages is copied. The paper has no trims. A page with
//!   nothing but a subtable would be an alternative, but GC would have to relocate it like data.
//! - Common blocks, mount by scan, wear levelling, refresh and scrub are additions.
//!
//! Invariants and power failure: [`crate::families::units`].

#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::units::{self, Lists, Policy, Shape, UnitFtl};
use crate::ftl::{Ftl, Start};
use crate::gc::docs;
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Mnftl::NAME,
    title: "MNFTL: a page map per logical block, its parts in the spare bytes of its pages",
    about: "A logical block has as many physical blocks as it needs and appends to its newest one; its page map is cut into small \
            tables, which are stored in the OOB areas of the programmed pages. GC runs only when no free block is left; it \
            collects a block of the logical block with the most physical blocks, which has few valid pages.",
    paper: "Qin, Wang, Liu, Shao, Guan: MNFTL, DAC 2011",
    mapping: "page inside a logical block of any number of physical ones; subtables in spare bytes",
    ram: "4 B + 3 B per subtable + 6 B per physical block, for each logical block",
    fidelity: 'A',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "mnftl.subtables",
            help: "subtables of a logical block's page map, 1 to 64 (default 8)",
        },
        ParamDoc {
            key: "mnftl.victim",
            help: "max_chain (default): a block of the logical block with the most blocks; global_min: the one with the fewest valid pages",
        },
        ParamDoc {
            key: "mnftl.idle_min_chain",
            help: "number of physical blocks from which idle-time GC selects a logical block, 0 = never (default 3)",
        },
    ],
    shared_params: docs::SHARED,
    ram_params: &[],
    overhead_blocks,
    constructor: start,
};

/// Bits of a slot.
const SLOT_BITS: u32 = 16;

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    units::overhead_blocks(
        profile,
        logical_pages,
        profile.geometry.pages_per_block,
        params,
    )
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(create(chip, config, start)?))
}

fn create(chip: Chip, config: &FtlConfig, start: Start) -> Result<UnitFtl<Mnftl>, FtlError> {
    let params = &config.params;
    let subtables = params.within("mnftl.subtables", 8, 1..=64)?;
    let policy = Mnftl {
        by_chain: params.choice("mnftl.victim", "max_chain", "global_min")?,
        idle_min_chain: params.get("mnftl.idle_min_chain", 3)?,
    };
    let geometry = *chip.geometry();
    let pages = geometry.pages_per_block;
    let shape = Shape::new(&geometry, pages, pages.div_ceil(subtables), 1, SLOT_BITS);
    UnitFtl::create(chip, config, start, shape, policy)
}

/// MNFTL's policy.
struct Mnftl {
    by_chain: bool,
    idle_min_chain: u32,
}

impl Policy for Mnftl {
    const NAME: &'static str = "mnftl";

    fn max_length(&self, shape: &Shape) -> u32 {
        shape.max_nodes() - 1
    }

    fn choose(&self, lists: &Lists, can_shrink: &dyn Fn(u32) -> bool) -> Option<u32> {
        lists.longest_first().find(|lbn| can_shrink(*lbn))
    }

    fn victim_is_greedy(&self) -> bool {
        !self.by_chain
    }

    fn choose_idle(&self, lists: &Lists) -> Option<u32> {
        let min = self.idle_min_chain;
        lists
            .longest_first()
            .next()
            .filter(|lbn| min > 0 && lists.length(*lbn) >= min)
    }

    fn reads_all_tables(&self) -> bool {
        true
    }

    fn paper_bytes(&self, shape: &Shape, lists: &Lists, logical_blocks: u64) -> u64 {
        logical_blocks * (4 + 3 * u64::from(shape.tables())) + 6 * lists.total()
    }
}
