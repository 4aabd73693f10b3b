//! OOB areas of programmed pages, read from the store: without time and counters of the chip.

use super::places::FlashPage;
use ftl_core::FtlError;
use ftl_core::format::{OOB_BYTES, Oob, Role};
use nand_model::store::Health;
use nand_model::{Chip, NandError, Pbn, Ppn, Store};
use std::ops::Range;

/// A copy of a wanted page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Number of the logical page in its shard.
    pub(super) own: u32,
    pub(super) ver: u64,
    pub(super) pseq: u64,
    pub(super) at: Ppn,
}

/// OOB areas of a run of pages.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The pages of the run that are programmed.
    pages: Vec<Ppn>,
    oobs: Vec<u8>,
    health: Vec<Health>,
}

impl Buffers {
    /// Reads the OOB areas of those pages of a run that are programmed.
    pub(super) fn read(
        &mut self,
        chip: &mut Chip,
        block: Pbn,
        pages: Range<u32>,
    ) -> Result<(), FtlError> {
        let geometry = *chip.geometry();
        let pages = pages.map(|page| geometry.page(block, page));
        self.read_pages(chip, pages)
    }

    fn read_pages(
        &mut self,
        chip: &mut Chip,
        pages: impl Iterator<Item = Ppn>,
    ) -> Result<(), FtlError> {
        self.pages.clear();
        self.pages
            .extend(pages.filter(|at| chip.is_programmed(*at)));
        self.oobs.clear();
        self.oobs.resize(self.pages.len() * OOB_BYTES, 0);
        self.health.clear();
        self.health.resize(self.pages.len(), Health::Good);
        if self.pages.is_empty() {
            return Ok(());
        }
        let store = chip.store_mut();
        let read = store.read_pages(&self.pages, &mut [], &mut self.oobs, &mut self.health);
        Ok(read.map_err(NandError::from)?)
    }

    /// Returns the readable records with their pages.
    pub(super) fn records(&self) -> impl Iterator<Item = (Ppn, Oob)> {
        let all = self.pages.iter().enumerate();
        all.filter_map(|(i, at)| Some((*at, self.record(i)?)))
    }

    fn record(&self, i: usize) -> Option<Oob> {
        let oob = self.oobs[i * OOB_BYTES..].get(..OOB_BYTES)?;
        Oob::decode(oob).filter(|_| self.health[i].oob_ok())
    }

    /// Returns whether a copy is still where it was found.
    pub(super) fn has(&mut self, chip: &mut Chip, copy: &Found) -> Result<bool, FtlError> {
        self.read_pages(chip, std::iter::once(copy.at))?;
        let mut records = self.records();
        Ok(records.any(|(_, oob)| {
            (oob.tag.lpn, oob.tag.ver, oob.pseq) == (copy.own, copy.ver, copy.pseq)
        }))
    }

    /// Returns the page of a block, one of the last run.
    pub(super) fn page(
        &self,
        page: u32,
        at: Ppn,
        is_valid: bool,
        lpn: impl Fn(u32) -> u64,
    ) -> FlashPage {
        let read = self.pages.binary_search(&at).ok();
        let oob = read.and_then(|i| self.record(i));
        let state = match (read, oob) {
            (None, _) => "free",
            (Some(i), Some(_)) if self.health[i].data_ok() && is_valid => "valid",
            (Some(i), Some(_)) if self.health[i].data_ok() => "invalid",
            _ => "unreadable",
        };
        let host = |oob: &Oob| oob.tag.role.is_host_data();
        FlashPage {
            page,
            state: state.into(),
            kind: oob.map(|oob| kind(oob.tag.role)),
            lpn: oob.filter(host).map(|oob| lpn(oob.tag.lpn)),
            version: oob.map(|oob| oob.tag.ver),
        }
    }
}

/// Returns the name of a role, as `ftld inspect` has it.
fn kind(role: Role) -> String {
    format!("{role:?}").to_lowercase()
}
