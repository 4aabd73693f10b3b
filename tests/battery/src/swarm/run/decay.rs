//! Bit errors, and the older values that they may expose.

use super::cost::correctable_bits;
use super::requests::Trouble;
use super::{Runner, Verdict};
use crate::swarm::oracle::{Cost, Older};
use crate::swarm::world::World;
use ftl_core::FtlError;
use ftl_core::format::{Oob, Role};
use nand_model::{Cause, Chip, Pbn, Ppn, SplitMix};

impl<'p, W: World> Runner<'p, W> {
    pub(super) fn hammer(&mut self, lpn: u32, times: u32, count: u32) -> Verdict {
        for _ in 0..times {
            match self.compare(lpn, count) {
                Ok(()) => {}
                Err(Trouble::Wrong(what)) => return Err(what),
                Err(Trouble::Refused(FtlError::PowerLost)) => return self.power_lost_in_request(),
                Err(Trouble::Refused(error)) => return self.refused(error),
                Err(Trouble::Unsynced(why)) => return Err(why),
            }
        }
        self.note_decay("read disturb");
        Ok(())
    }

    /// Counts an event that causes bit errors, if this plan's chip has them.
    pub(super) fn note_decay(&mut self, class: &'static str) {
        self.classes
            .note_times(class, u64::from(self.plan.parts.bit_errors > 0));
    }

    /// The pages that may read as older values if this one's data is lost.
    fn what_comes_back(&mut self, page: Ppn) -> Older {
        let pages_per_block = self.plan.device.pages_per_block;
        let span = self.plan.device.span();
        if self.world.disk().is_some_and(|disk| disk.unsynced() > 0) {
            // A crash of the host may remove its difference from a torn page.
            return Older::Any;
        }
        let chip = self.chip();
        let geometry = *chip.geometry();
        let (block, offset) = (geometry.block_of(page), geometry.offset_of(page));
        let mut oob = vec![0; geometry.oob_bytes as usize];
        let Some(record) = read_record(chip, page, &mut oob) else {
            return Older::Any;
        };
        let behind = chip.frontier(block) - 1 - offset;
        let later = (0..pages_per_block)
            .filter(|other| *other != offset)
            .filter_map(|other| read_record(chip, geometry.page(block, other), &mut oob))
            .filter(|other| record.pseq < other.pseq)
            .count();
        // Its position or number makes it indistinguishable from a torn page, or from one of the
        // same word line.
        let like_torn = behind.min(later as u32) <= span;
        match (record.tag.role.is_host_data(), like_torn) {
            (true, true) => Older::Page(record.tag.lpn),
            (true, false) => Older::Never,
            (false, true) => Older::Any,
            (false, false) => Older::Trimmed,
        }
    }

    /// The pages that may read as older values if this one's OOB area is lost.
    fn what_comes_back_without_oob(&mut self, page: Ppn) -> Older {
        let mut oob = vec![0; self.chip().geometry().oob_bytes as usize];
        match read_record(self.chip(), page, &mut oob) {
            Some(record) if record.tag.role.is_host_data() => {
                self.what_comes_back(page).max(Older::Page(record.tag.lpn))
            }
            _ => self.what_comes_back(page),
        }
    }

    /// Chooses a programmed page, optionally among mapping pages.
    fn choose_page(&mut self, choice: u32, of_map: bool) -> Option<Ppn> {
        let mut rng = SplitMix::new(u64::from(choice));
        let chip = self.chip();
        let geometry = *chip.geometry();
        let mut oob = vec![0; geometry.oob_bytes as usize];
        for _ in 0..if of_map { 512 } else { 64 } {
            let block = Pbn::new(rng.below(u64::from(geometry.blocks)) as u32);
            let frontier = chip.frontier(block);
            if frontier == 0 {
                continue;
            }
            let page = geometry.page(block, rng.below(u64::from(frontier)) as u32);
            if !chip.is_programmed(page) {
                continue;
            }
            if !of_map || matches!(read_role(chip, page, &mut oob), Some((Role::Map, _))) {
                return Some(page);
            }
        }
        None
    }

    pub(super) fn wrong_bits(&mut self, choice: u32, bits: u32, of_map: bool) -> Verdict {
        let Some(page) = self.choose_page(choice, of_map) else {
            return Ok(());
        };
        // Wrong bits of a page add up until it is erased; the oracle considers each of these steps
        // alone.
        let sum = self.wrong.get(&page).copied().unwrap_or(0) + bits;
        if sum > correctable_bits(self.plan) && self.oracle.cost() == Cost::Nothing {
            return Ok(());
        }
        self.wrong.insert(page, sum);
        let older = self.what_comes_back(page);
        match self.chip().flip_bits(page, bits) {
            Ok(true) => {
                self.classes.note("wrong bits");
                Ok(())
            }
            Ok(false) => {
                self.classes.note("wrong bits beyond the ECC");
                self.oracle.may_read_as_older(older);
                Ok(())
            }
            // The image's disk fails; the bits may have reached it all the same.
            Err(_) if self.host_fails() => {
                self.oracle.may_read_as_older(older);
                Ok(())
            }
            Err(error) => Err(format!("wrong bits: {error}")),
        }
    }

    pub(super) fn lost_oob(&mut self, choice: u32, of_map: bool) -> Verdict {
        let Some(page) = self.choose_page(choice, of_map) else {
            return Ok(());
        };
        let older = self.what_comes_back_without_oob(page);
        match self.chip().lose_oob(page) {
            Ok(()) => {
                self.classes.note("lost OOB area");
                self.oracle.may_read_as_older(older);
                Ok(())
            }
            Err(_) if self.host_fails() => {
                self.oracle.may_read_as_older(older);
                Ok(())
            }
            Err(error) => Err(format!("lost OOB area: {error}")),
        }
    }
}

pub(super) fn read_role(chip: &mut Chip, page: Ppn, oob: &mut [u8]) -> Option<(Role, u32)> {
    read_record(chip, page, oob).map(|record| (record.tag.role, record.tag.lpn))
}

fn read_record(chip: &mut Chip, page: Ppn, oob: &mut [u8]) -> Option<Oob> {
    chip.read_oob(0, page, oob, Cause::Host).ok()?;
    Oob::decode(oob)
}
