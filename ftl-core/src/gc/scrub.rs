//! Scrub, and the choice of blocks to refresh. Bit errors grow with time and with reads of
//! neighbouring pages, even in blocks that no request reads. So every block is read once per
//! `scrub.hours` of emulated time. The chip then reports the blocks near its ECC limit, and these
//! are rewritten while they are still readable.

use crate::block_table::State;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::int::narrow;
use crate::space::Space;
use nand_model::Pbn;

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

/// Progress of the scrub. The device's clock alone determines the block that is due: so a session
/// begins where the one before it ended, and sessions of any length read all blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scrub {
    hours: u32,
    /// Blocks that were due so far, counted over all rounds.
    done: u64,
}

impl Scrub {
    pub(crate) fn new(params: &Params) -> Result<Self, FtlError> {
        Ok(Scrub {
            hours: params.get(PARAM.key, 168)?,
            done: 0,
        })
    }

    /// Begins a session: the blocks that were due before are those of earlier ones.
    pub(crate) fn begin(&mut self, space: &Space) {
        self.done = self.due(space);
    }

    /// Returns the number of blocks due by now, over all rounds.
    fn due(&self, space: &Space) -> u64 {
        let now = space.flash.chip().hour(space.flash.now());
        let rounds = u64::from(now) * u64::from(space.geometry().blocks);
        rounds.checked_div(u64::from(self.hours)).unwrap_or(0)
    }

    /// Returns the next block to read, if one is due. Chips without bit errors need no scrub.
    #[inline]
    pub(crate) fn next(&mut self, space: &Space) -> Option<Pbn> {
        if self.hours == 0 || !space.flash.chip().has_bit_errors() {
            None
        } else {
            self.next_due(space)
        }
    }

    #[cold]
    fn next_due(&mut self, space: &Space) -> Option<Pbn> {
        let (due, blocks) = (self.due(space), u64::from(space.geometry().blocks));
        // One round is enough, however much time has passed.
        self.done = self.done.max(due.saturating_sub(blocks));
        while self.done < due {
            let block = Pbn::new(narrow(self.done % blocks));
            self.done += 1;
            if space.table.state(block) == State::Full || space.is_open_for_unit(block) {
                return Some(block);
            }
        }
        None
    }
}

/// Returns the blocks that need a refresh, without those whose data is too fresh to benefit.
pub(crate) fn due(space: &Space) -> Vec<Pbn> {
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
