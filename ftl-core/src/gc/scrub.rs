//! Scrub, and the choice of blocks to refresh. Bit errors grow with time and with reads of
//! neighbouring pages, even in blocks that no request reads. So every block is read once per
//! `scrub.hours` of emulated time. The chip then reports the blocks near its ECC limit, and these
//! are rewritten while they are still readable.

use crate::block_table::State;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::space::Space;
use nand_model::{Pbn, Store};

/// The parameter, for the tables of schemes.
pub(crate) const PARAM: ParamDoc = ParamDoc {
    key: "scrub.hours",
    help: "hours of emulated time in which every block is read once, 0 = never (default 168)",
};

/// Hours before data is rewritten: fresh data with many wrong bits is in worn cells, and a rewrite
/// costs an erase without helping.
const SETTLED_HOURS: u32 = 1;
/// Reads of a block after which fresh data is rewritten, too.
const MANY_READS: u32 = 10_000;

/// Progress of the scrub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scrub {
    hours: u32,
    /// Start of the round: the hour and the first block.
    round: Option<(u32, u32)>,
    /// Blocks of the round that were checked.
    done: u32,
}

impl Scrub {
    pub(crate) fn new(params: &Params) -> Result<Self, FtlError> {
        Ok(Scrub {
            hours: params.get(PARAM.key, 168)?,
            round: None,
            done: 0,
        })
    }

    /// Returns the next block to read, if one is due. Chips without bit errors need no scrub.
    #[inline]
    pub(crate) fn next<S: Store>(&mut self, space: &Space<S>) -> Option<Pbn> {
        if self.hours == 0 || !space.flash.chip().has_bit_errors() {
            None
        } else {
            self.next_due(space)
        }
    }

    #[cold]
    fn next_due<S: Store>(&mut self, space: &Space<S>) -> Option<Pbn> {
        let blocks = space.geometry().blocks;
        let now = space.flash.chip().hour(space.flash.now());
        // The first block differs after every start: otherwise some blocks would never be read.
        let (began, first) = *self
            .round
            .get_or_insert((now, (space.flash.pseq() % blocks as u64) as u32));
        let due = (now - began) as u64 * blocks as u64 / self.hours as u64;
        while (self.done as u64) < due.min(blocks as u64) {
            let block = Pbn::new((first + self.done) % blocks);
            self.done += 1;
            if space.table.state(block) == State::Full || space.is_open_for_unit(block) {
                return Some(block);
            }
        }
        assert!(
            self.done <= blocks,
            "{} blocks of {blocks} were read in a round",
            self.done
        );
        if self.done == blocks {
            // One round is enough, however long the device was off.
            (self.round, self.done) = (Some((now, first)), 0);
        }
        None
    }
}

/// Returns the blocks that need a refresh, without those whose data is too fresh to benefit.
pub(crate) fn due<S: Store>(space: &Space<S>) -> Vec<Pbn> {
    let (chip, now) = (space.flash.chip(), space.flash.now());
    let settled = |block: &Pbn| {
        let (hours, reads) = chip.exposure(now, *block);
        hours >= SETTLED_HOURS || reads >= MANY_READS
    };
    chip.blocks_to_refresh()
        .iter()
        .copied()
        .filter(settled)
        .collect()
}
