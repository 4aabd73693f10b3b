//! A cut in one recorded program or erase.

use super::device::Chip;
use crate::cause::Cause;
use crate::error::NandError;
use crate::fault::{Cut, FaultPlan};
use crate::store::{Change, Store};

impl<S: Store> Chip<S> {
    /// Cuts power in this program or erase, the chip's next one. Returns the flash after power-on.
    ///
    /// # Panics
    ///
    /// The change is neither a program nor an erase, the chip does not allow it, or the store
    /// fails.
    pub fn cut_during(mut self, next: &Change, cut: Cut) -> S {
        self.set_faults(FaultPlan {
            cut: Some(Cut { at_op: 0, ..cut }),
            ..FaultPlan::default()
        });
        let outcome = match next {
            Change::Program { ppn, data, oob } => self.program(0, *ppn, data, oob, Cause::Host),
            Change::Erase { block, .. } => self.erase(0, *block, Cause::Host),
            other => panic!("{other:?} cannot be cut"),
        };
        assert_eq!(
            outcome,
            Err(NandError::PowerLost),
            "power fails in the operation"
        );
        self.power_on();
        self.into_store()
    }
}
