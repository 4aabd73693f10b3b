//! Fault injection into a running device: `ftld inject`.
//!
//! An injection changes the chip or its fault plan between two extents, under the volume's lock.
//! Requests then meet the resulting chip behaviour, as with spontaneous faults. All random choices
//! come from a seed, which the answer contains, so an injection can be repeated.
//!
//! After an injected power cut the image contains the state that the chip kept. The next start
//! mounts that state.

mod bad_block;
mod bit_errors;
mod chance;
mod injected;
mod options;
mod power_cut;
mod shards;
#[cfg(test)]
mod tests;

pub use injected::{Injected, Kind};
pub use options::{BadBlock, BitErrors, PowerCut};

use crate::faults::{Clear, FaultCommand, FlushFails, Hang, Hits, Slow};
use ftld_kit::failure::Failure;
use nand_model::Chip;
use serde::{Deserialize, Serialize};

/// Injection requested over the control socket.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Injection {
    /// The flash loses power.
    PowerCut(PowerCut),
    /// Blocks fail.
    BadBlock(BadBlock),
    /// Bit errors.
    BitErrors(BitErrors),
    /// FLUSHes fail.
    FlushFails(FlushFails),
    /// Writes and trims fail.
    WriteErrors(Hits),
    /// Reads fail.
    ReadErrors(Hits),
    /// Requests take longer.
    Slow(Slow),
    /// Requests wait.
    Hang(Hang),
    /// Faults of requests end.
    Clear(Clear),
}

impl Injection {
    /// Returns the command on faults of requests, if it is one.
    pub fn of_requests(&self) -> Option<FaultCommand> {
        Some(match self.clone() {
            Injection::FlushFails(fails) => FaultCommand::FlushFails(fails),
            Injection::WriteErrors(hits) => FaultCommand::WriteErrors(hits),
            Injection::ReadErrors(hits) => FaultCommand::ReadErrors(hits),
            Injection::Slow(slow) => FaultCommand::Slow(slow),
            Injection::Hang(hang) => FaultCommand::Hang(hang),
            Injection::Clear(clear) => FaultCommand::Clear(clear),
            Injection::PowerCut(_) | Injection::BadBlock(_) | Injection::BitErrors(_) => {
                return None;
            }
        })
    }

    /// Checks, without a change, that the chip can take the injection; as [`Injection::apply`].
    /// Only named blocks may be on several shards, of which one may refuse.
    ///
    /// # Errors
    /// A block is bad, or fails already.
    pub(crate) fn check(&self, chip: &Chip, before: u32) -> Result<(), Failure> {
        match self {
            Injection::BadBlock(bad) if bad.count.is_none() => bad.named(chip, before).map(drop),
            _ => Ok(()),
        }
    }

    /// Applies the injection to the chip. Its block numbers begin at `before`, the blocks of the
    /// shards before it.
    ///
    /// # Errors
    /// It is a fault of requests, the block or page does not exist, or its state does not allow the
    /// fault.
    pub fn apply(&self, chip: &mut Chip, before: u32) -> Result<Injected, Failure> {
        match self {
            Injection::PowerCut(cut) => cut.apply(chip),
            Injection::BadBlock(bad) => bad.apply(chip, before),
            Injection::BitErrors(errors) => errors.apply(chip, before),
            _ => Err(Failure::usage(
                "a fault of requests does not reach the flash",
            )),
        }
    }
}
