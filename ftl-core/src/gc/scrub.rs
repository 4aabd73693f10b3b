//! Patrol reads and the choice of what to refresh. Bits go wrong with time and with reads of their
//! neighbours, also where nobody looks: every block is read once in so many hours of emulated time,
//! so that the chip can tell which ones come near to what it can correct, and those are written
//! anew while they can still be read.

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

/// Fresh data is not written anew: cells that are bad at once would be worn out by it.
const SETTLED_HOURS: u32 = 1;
/// Reads of a block after which also fresh data is.
const MANY_READS: u32 = 10_000;

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scrub {
    hours: u32,
    /// The hour at which the round began, and the block with which it did.
    round: Option<(u32, u32)>,
    /// Blocks of the round that were looked at.
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

    /// The next block to read, if one is due. Chips whose bits do not go wrong need none.
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
        // Not with the same block after every start: some would never have their turn.
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
        if self.done == blocks {
            // However long the device lay, one round is enough.
            (self.round, self.done) = (Some((now, first)), 0);
        }
        None
    }
}

/// Blocks that should be written anew, and whose data is not so fresh that it would help little.
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
