//! The fault plan of a chip, and its power.

use super::device::Chip;
use crate::addr::Ppn;
use crate::error::NandError;
use crate::fault::{FaultPlan, FaultState, WrongBits};
use crate::store::{Health, Store};

impl<S: Store> Chip<S> {
    /// Installs a fault plan; its operation count starts at the next operation.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        let checked = self.store.tag(Ppn::new(0)).is_some();
        assert!(
            checked || !plan.is_silent(),
            "silent faults need a store that checks what it reads"
        );
        let state = FaultState::new(plan);
        (self.program_faults, self.read_faults) = (state.touches_programs(), state.touches_reads());
        self.faults = Some(Box::new(state));
    }

    /// The plan in use; its operations are counted from its installation.
    pub fn faults(&self) -> Option<&FaultPlan> {
        self.faults.as_ref().map(|state| state.plan())
    }

    /// Changes the plan in use, or an empty one. Counts of the old plan are kept; random faults are
    /// drawn again from the seed.
    pub fn update_faults(&mut self, amend: impl FnOnce(&mut FaultPlan)) {
        let mut plan = self
            .faults
            .take()
            .map(|state| state.into_rest())
            .unwrap_or_default();
        amend(&mut plan);
        self.set_faults(plan);
    }

    /// Makes `bits` bits of one data codeword of a programmed page wrong until its block is erased.
    /// Returns whether the ECC can correct them: then the fault plan lists them
    /// ([`FaultPlan::wrong_bits`]). Otherwise the page's data is lost, also after the store is
    /// opened again.
    ///
    /// # Errors
    ///
    /// - [`NandError::PowerLost`] while power is off.
    /// - [`NandError::Host`] or [`NandError::HostFull`] if the store cannot read the page or record
    ///   that it is lost.
    ///
    /// # Panics
    ///
    /// If the chip has no such page, or the page is erased.
    pub fn flip_bits(&mut self, ppn: Ppn, bits: u32) -> Result<bool, NandError> {
        self.check_page(ppn)?;
        assert!(
            self.is_programmed(ppn),
            "NAND rule: wrong bits in the erased page {ppn}"
        );
        if !self.profile.ecc.correct_bits(bits).data_lost {
            self.update_faults(|plan| plan.wrong_bits.push(WrongBits { page: ppn, bits }));
            return Ok(true);
        }
        let mut health = [Health::Good];
        self.store.read(ppn, &mut [], &mut [], &mut health)?;
        let [before] = health;
        self.store.set_health(
            ppn,
            if before.oob_ok() {
                Health::DataLost
            } else {
                Health::Lost
            },
        )?;
        Ok(false)
    }

    /// Makes the OOB area of a programmed page unreadable until its block is erased, also after the
    /// store is opened again.
    ///
    /// # Errors
    ///
    /// As [`Chip::flip_bits`].
    ///
    /// # Panics
    ///
    /// If the chip has no such page, or the page is erased.
    pub fn lose_oob(&mut self, ppn: Ppn) -> Result<(), NandError> {
        self.check_page(ppn)?;
        assert!(
            self.is_programmed(ppn),
            "NAND rule: a lost OOB area of the erased page {ppn}"
        );
        let mut health = [Health::Good];
        self.store.read(ppn, &mut [], &mut [], &mut health)?;
        let [before] = health;
        let after = if before.data_ok() {
            Health::OobLost
        } else {
            Health::Lost
        };
        self.store.set_health(ppn, after)?;
        Ok(())
    }

    /// Ends a power cut and removes the fault plan. The scheme must mount again.
    pub fn power_on(&mut self) {
        self.powered = true;
        self.faults = None;
        (self.program_faults, self.read_faults) = (false, false);
        self.to_refresh.clear();
        // Without stray programs the cells contain the programmed pages. If the store cannot be
        // read now, the next operation returns the error.
        if self.strays && self.scan_store().is_ok() {
            self.strays = false;
        }
    }

    /// Whether the fault plan makes bits go wrong with wear, age and reads.
    pub fn has_bit_errors(&self) -> bool {
        self.faults
            .as_ref()
            .is_some_and(|faults| faults.plan().bit_errors > 0.0)
    }

    /// Whether every programmed page can be read: the store keeps no data that could be lost, and
    /// no fault plan affects reads.
    #[inline]
    pub fn reads_are_sure(&self) -> bool {
        !self.read_faults && !self.store.keeps_data()
    }

    /// Whether a cut has happened.
    pub fn powered(&self) -> bool {
        self.powered
    }

    /// Cuts power between two operations.
    pub fn power_off(&mut self) {
        self.powered = false;
    }
}
