//! The chip: geometry, NAND rules, wear, bad blocks, timing and counters by cause.
//!
//! Invariants, in release builds too: a page is programmed only when erased, in the order its
//! profile allows, at most NOP times; a bad block is never programmed or erased with success. A
//! caller that breaks a rule has a bug, and the chip panics. What hardware really does (a failed
//! program, a torn page, lost power) is a [`NandError`] with the action the caller must take.
//!
//! The chip checks the requested operation: a program that silently did nothing counts as done
//! until power fails. After that the chip reads the state of the cells again.
//!
//! If power fails (a [`Cut`](crate::Cut) of the fault plan), the operation in flight leaves the
//! state that the cut's outcome names. Every later operation returns [`NandError::PowerLost`] until
//! [`Chip::power_on`].

mod bit_errors;
mod copyback;
mod cut;
mod device;
mod erase;
mod faults;
mod in_flight;
mod oob_run;
mod program;
mod read;
mod slc;
mod word_line;

pub use device::Chip;
pub use in_flight::CutHits;
