//! GFTL: no request waits for a whole garbage collection.
//!
//! Choudhuri, Givargis: *Deterministic Service Guarantees for NAND Flash using Partial Block
//! Cleaning*, CODES+ISSS 2008 (Journal of Software 2009); not at hand. What is here is a
//! reconstruction from the outline that the MNFTL paper gives: its numbers are not the authors'. A
//! logical block has a physical one and appends its pages to it. A full block enters the queue of a
//! garbage collector at once, and every request first does one slice of that collector's work
//! (*partial block cleaning*): one erase, or as many copies as fit into the time of one, at least
//! one. The rest of the time is the request's. Writes to a logical block whose block is full or
//! being cleaned go to a *write buffer* of 16 % extra blocks, which are page-mapped in RAM; they
//! come home when their buffer block is cleaned in turn. All of that is [`crate::families::units`],
//! with logical blocks as units and the common blocks as write buffer; here are the shape and the
//! length of a slice.
//!
//! A slice lasts at most max(erase, alpha copies), alpha = erase / (read of spare bytes + read +
//! program), rounded down, at least 1. A read takes its slice, a read of spare bytes and one of a
//! page; a write its slice, a read of spare bytes and a program. A request of more pages does one
//! slice per page that it writes, because each is a page that cleaning has to win back, and one if
//! it reads or trims.
//!
//! RAM: 4 bytes per logical block, 6 per physical one on its list, 4 per page of the write buffer;
//! pointers to subtables are ours.
//!
//! Where we deviate, or the sources are silent:
//! - A page is found by a subtable in the spare bytes of another one, as `mnftl` does it: an order
//!   table of a whole block does not fit there. So RAM has a pointer per subtable, and a write
//!   reads spare bytes before its program.
//! - A full block is queued as soon as a page of it is not valid: before that there is nothing to
//!   win. Where pages are paired it takes more such pages than the filler that a collection may
//!   cost, or reads alone would clean for ever.
//! - Slices win back at most as much as they are long. A load that asks for more uses the write
//!   buffer up; then a request waits until collection has made room as in the other schemes of
//!   units. So the bound holds as long as there are more free blocks than `gc.free_threshold`. Wear
//!   levelling and refreshing move blocks in slices, too. It does not cover patrol reads
//!   (`scrub.hours=0`), blocks that fail, and the tables that a trim may put back on flash. On
//!   paired pages a slice may be filler that an erase waits for, no longer than copies.
//! - The published read time of 1488 us, where nothing was ever cleaned, is a read and the time of
//!   an erase: every request seems to have waited for the end of its slot. `gftl.slice_always` does
//!   that.
//! - Trims, recovery and wear levelling are those of [`crate::families::units`].
//!
//! What always holds, and what happens if power fails: [`crate::families::units`]; a block that was
//! being cleaned is one with fewer live pages.

#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::convert::narrow;
use crate::error::FtlError;
use crate::families::units::{self, Lists, Policy, Shape, Slicing, UnitFtl};
use crate::ftl::{Ftl, Start};
use crate::gc::docs;
use crate::schemes::{MlcUse, Scheme};
use nand_model::{Chip, Profile, Store};

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: Gftl::NAME,
    title: "GFTL: blocks are cleaned in slices, one per request, beside a page-mapped write buffer",
    about: "No request waits for a whole collection: every request first does one slice of cleaning, one erase or as many copies \
            as fit into its time. A full block is cleaned at once; writes to a logical block that is being cleaned go to a \
            page-mapped write buffer on flash and come home later.",
    paper: "Choudhuri, Givargis: Deterministic Service Guarantees for NAND Flash using Partial Block Cleaning, CODES+ISSS 2008",
    mapping: "page inside a logical block of one physical block, subtables in spare bytes; write buffer by page",
    ram: "4 B per logical block + 6 B per physical block + 4 B per page of the write buffer",
    fidelity: 'C',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "gftl.extra",
            help: "blocks of the write buffer, in percent of the data's, 1 to 200 (default 16)",
        },
        ParamDoc {
            key: "gftl.slice_always",
            help: "whether every request waits for the end of its slot: true, or false (default)",
        },
        ParamDoc {
            key: "gftl.subtables",
            help: "parts of a logical block's page map, 1 to 64 (default 8)",
        },
    ],
    shared_params: docs::SHARED,
    overhead_blocks,
    mem: start,
    file: start,
    oob_only: start,
};

/// Bits of a slot.
const SLOT_BITS: u32 = 16;

fn within(params: &Params, key: &str, default: u32, most: u32) -> Result<u32, FtlError> {
    let value = params.get(key, default)?;
    if (1..=most).contains(&value) {
        Ok(value)
    } else {
        Err(FtlError::Config(format!(
            "parameter {key}: {value} is not within 1 to {most}"
        )))
    }
}

/// Blocks of the write buffer.
fn extra_blocks(
    logical_pages: u32,
    pages_per_block: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let percent = within(params, "gftl.extra", 16, 200)?;
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

/// As many copies as fit into the time of an erase, each with the read of its subtable.
fn slicing(profile: &Profile, always: bool) -> Slicing {
    let times = &profile.timing;
    let program_ns = times.program_ns.max(times.program_msb_ns);
    let copy_ns = times.partial_read_ns + times.read_ns + program_ns + 2 * times.bus_ns;
    let alpha = (times.erase_ns / copy_ns).max(1);
    Slicing {
        pages: narrow(alpha),
        slot_ns: times.erase_ns.max(alpha * copy_ns),
        always,
    }
}

fn start<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl<S>>, FtlError> {
    Ok(Box::new(create(chip, config, start)?))
}

fn create<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<UnitFtl<S, Gftl>, FtlError> {
    let params = &config.params;
    let subtables = within(params, "gftl.subtables", 8, 64)?;
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

/// What GFTL decides.
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

    /// When slices could not keep up, the emptiest block helps most.
    fn takes_emptiest(&self) -> bool {
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
