//! GFTL: no request waits for a whole GC run.
//!
//! Choudhuri, Givargis: *Deterministic Service Guarantees for NAND Flash using Partial Block
//! Cleaning*, CODES+ISSS 2008 (Journal of Software 2009); not available. This is a reconstruction
//! from the outline in the MNFTL paper: its numbers are not the authors'. A logical block has a
//! physical one and appends its pages to it. A full block enters the GC queue at once. Every
//! request first does one slice of GC work (*partial block cleaning*). A slice is one erase, or as
//! many copies as fit into the time of an erase, at least one. The rest of the time is the
//! request's. Writes to a logical block whose block is full or being cleaned go to a *write buffer*
//! of 16 % extra blocks. These are page-mapped in RAM. Cleaning a buffer block moves its pages back
//! to their logical blocks. [`crate::families::units`] implements all that, with logical blocks as
//! units and the common blocks as write buffer. This module contains the shape and the length of a
//! slice.
//!
//! A slice lasts at most max(erase, alpha copies), alpha = erase / (read of OOB area + read +
//! program), rounded down, at least 1. A read takes its slice, a read of an OOB area and one of a
//! page. A write takes its slice, a read of an OOB area and a program. A request of several pages
//! does one slice per written page, because GC must free space for each of them. A read or trim of
//! any size does one.
//!
//! RAM: 4 bytes per logical block, 6 per physical one on its list, 4 per page of the write buffer;
//! pointers to subtables are additions.
//!
//! Deviations, and choices where the sources are silent:
//! - A subtable in the OOB area of another page locates a page, as in `mnftl`. An order table of a
//!   whole block does not fit there. So RAM has a pointer per subtable, and a write reads an OOB
//!   area before its program.
//! - A full block is queued as soon as one of its pages is invalid: before that GC gains nothing.
//!   On paired pages, the block needs more invalid pages than the padding that its GC may cost.
//!   Otherwise reads alone would clean forever.
//! - A slice frees at most as many pages as its length. A heavier load uses up the write buffer;
//!   then a request waits until GC has freed space, as in the other schemes of units. So the bound
//!   holds while there are more free blocks than `gc.free_threshold`. Wear levelling and refresh
//!   also relocate blocks in slices. The bound does not cover scrub reads (`scrub.hours=0`), blocks
//!   that fail, and the tables that a trim may write back. On paired pages a slice may be padding
//!   that an erase requires, no longer than copies.
//! - The published read time of 1488 us, without any cleaning, is a read plus the time of an erase.
//!   Every request seems to have waited for the end of its slot. `gftl.slice_always` does that.
//! - Trims, recovery and wear levelling are those of [`crate::families::units`].
//!
//! Invariants and power failure: [`crate::families::units`]; a block whose cleaning was interrupted
//! is a block with fewer valid pages.

#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::units::{self, Lists, Policy, Shape, Slicing, UnitFtl};
use crate::ftl::{Ftl, Start};
use crate::gc::docs;
use crate::int::narrow;
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Gftl::NAME,
    title: "GFTL: blocks cleaned in slices, one per request, alongside a page-mapped write buffer",
    about: "No request waits for a whole GC run: every request first does one slice of cleaning, one erase or as many copies \
            as fit into its time. Cleaning of a block begins when it is full; writes to a logical block that is being cleaned go \
            to a page-mapped write buffer on flash and are copied back to their logical block later.",
    paper: "Choudhuri, Givargis: Deterministic Service Guarantees for NAND Flash using Partial Block Cleaning, CODES+ISSS 2008",
    mapping: "page inside a logical block of one physical block, subtables in spare bytes; write buffer by page",
    ram: "4 B per logical block + 6 B per physical block + 4 B per page of the write buffer",
    fidelity: 'C',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "gftl.extra",
            help: "blocks of the write buffer, in percent of the data blocks, 1 to 200 (default 16)",
        },
        ParamDoc {
            key: "gftl.slice_always",
            help: "whether every request waits for the end of its slot: true, or false (default)",
        },
        ParamDoc {
            key: "gftl.subtables",
            help: "subtables of a logical block's page map, 1 to 64 (default 8)",
        },
    ],
    shared_params: docs::SHARED,
    ram_params: &[],
    overhead_blocks,
    constructor: start,
};

/// Bits of a slot.
const SLOT_BITS: u32 = 16;

/// Returns the number of blocks of the write buffer.
fn extra_blocks(
    logical_pages: u32,
    pages_per_block: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let percent = params.within("gftl.extra", 16u32, 1..=200)?;
    let logical_blocks = u64::from(logical_pages.div_ceil(pages_per_block));
    Ok(narrow((logical_blocks * u64::from(percent)).div_ceil(100)))
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let pages = profile.geometry.pages_per_block;
    Ok(
        units::overhead_blocks(profile, logical_pages, pages, params)?
            + extra_blocks(logical_pages, pages, params)?,
    )
}

/// Returns the length of a slice: as many copies as fit into the time of an erase, each with the
/// read of its subtable.
fn slicing(profile: &Profile, always: bool) -> Slicing {
    let times = &profile.timing;
    let moved_ns = times.read_ns_max() + times.program_ns_max() + 2 * times.bus_ns;
    let copy_ns = times.partial_read_ns + moved_ns;
    let alpha = (times.erase_ns / copy_ns).max(1);
    Slicing {
        pages: narrow(alpha),
        slot_ns: times.erase_ns.max(alpha * copy_ns),
        always,
    }
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(create(chip, config, start)?))
}

fn create(chip: Chip, config: &FtlConfig, start: Start) -> Result<UnitFtl<Gftl>, FtlError> {
    let params = &config.params;
    let subtables = params.within("gftl.subtables", 8, 1..=64)?;
    let geometry = *chip.geometry();
    let pages = geometry.pages_per_block;
    let policy = Gftl {
        slicing: slicing(chip.profile(), params.get("gftl.slice_always", false)?),
        buffer_pages: u64::from(extra_blocks(config.logical_pages, pages, params)?)
            * u64::from(pages),
    };
    let shape = Shape::new(&geometry, pages, pages.div_ceil(subtables), 1, SLOT_BITS);
    UnitFtl::create(chip, config, start, shape, policy)
}

/// GFTL's policy.
struct Gftl {
    slicing: Slicing,
    buffer_pages: u64,
}

impl Policy for Gftl {
    const NAME: &'static str = "gftl";

    fn max_length(&self, shape: &Shape) -> u32 {
        shape.max_nodes() - 1
    }

    fn slicing(&self) -> Option<Slicing> {
        Some(self.slicing)
    }

    /// When slices fall behind, the emptiest block frees the most space.
    fn victim_is_greedy(&self) -> bool {
        true
    }

    fn choose(&self, _: &Lists, _: &dyn Fn(u32) -> bool) -> Option<u32> {
        None
    }

    fn choose_idle(&self, _: &Lists) -> Option<u32> {
        None
    }

    fn reads_all_tables(&self) -> bool {
        false
    }

    fn paper_bytes(&self, _: &Shape, lists: &Lists, logical_blocks: u64) -> u64 {
        4 * logical_blocks + 6 * lists.total() + 4 * self.buffer_pages
    }
}
