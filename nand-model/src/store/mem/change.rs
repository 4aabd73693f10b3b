//! What a journal of a store has.

use crate::addr::{Pbn, Ppn};
use crate::store::{BlockFacts, Cells, Health};

/// One change of a store, in the order of [`Store`]'s verbs; a run of programs is one change per
/// page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A page was programmed.
    Program {
        /// The page.
        ppn: Ppn,
        /// The page's data.
        data: Vec<u8>,
        /// The OOB bytes of the program; the rest stays erased.
        oob: Vec<u8>,
    },
    /// OOB bits were cleared.
    AndOob {
        /// The page.
        ppn: Ppn,
        /// The bytes that were programmed over the OOB.
        oob: Vec<u8>,
    },
    /// The health of a page changed.
    Health {
        /// The page.
        ppn: Ppn,
        /// The new health.
        health: Health,
    },
    /// A block was erased.
    Erase {
        /// The block.
        block: Pbn,
        /// Its new facts.
        facts: BlockFacts,
    },
    /// Cells were programmed as a fault left them.
    Cells {
        /// The page.
        ppn: Ppn,
        /// The programmed cells.
        cells: Cells,
    },
    /// A block's facts changed without an erase.
    Facts {
        /// The block.
        block: Pbn,
        /// Its new facts.
        facts: BlockFacts,
    },
}

impl Change {
    /// Whether the change is a program or an erase, in which power can fail.
    pub fn is_operation(&self) -> bool {
        matches!(self, Change::Program { .. } | Change::Erase { .. })
    }
}
