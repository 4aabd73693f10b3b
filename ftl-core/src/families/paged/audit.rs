//! The full check: every table against the chip.

use super::map::entry_at;
use super::policy::Policy;
use super::state::PagedFtl;
use crate::error::FtlError;
use crate::format::UNMAPPED;
use crate::format::{Oob, Role};
use nand_model::{Cause, Ppn};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Expected state, gathered from the tables.
#[derive(Default)]
struct Expected {
    /// Location by logical page.
    current: BTreeMap<u32, Ppn>,
    /// Pages that have to be valid.
    valid: BTreeSet<Ppn>,
}

impl<P: Policy> PagedFtl<P> {
    /// Compares every table with the chip. Adds one line per difference.
    pub(crate) fn audit(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        wrong.extend(self.map.pending.audit());
        let mut expected = Expected::default();
        self.audit_directory(&mut expected, wrong)?;
        self.audit_pending(&mut expected, wrong);
        self.audit_trims(&mut expected, wrong)?;
        self.audit_counts(&expected, wrong);
        self.audit_pages(&expected, wrong)?;
        self.audit_versions(&expected, wrong)
    }

    /// Compares the directory with the mapping pages, and their entries with the cache and the
    /// pending entries.
    fn audit_directory(
        &mut self,
        expected: &mut Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        let mut page = vec![0; self.space.geometry().page_bytes as usize];
        for vtpn in 0..self.map.directory.len() as u32 {
            let ppn = Ppn::new(self.map.directory[vtpn as usize]);
            if ppn.raw() == UNMAPPED {
                continue;
            }
            let oob = self.space.flash.read(ppn, &mut page, Cause::Recovery)?;
            let upto = self.map.upto[vtpn as usize];
            if oob.is_none_or(|o| o.tag.role != Role::Map || o.tag.lpn != vtpn || o.tag.ver != upto)
            {
                wrong.push(format!(
                    "mapping page {vtpn} (upto {upto}) is at {ppn}, whose record is {oob:?}"
                ));
                continue;
            }
            if !expected.valid.insert(ppn) {
                wrong.push(format!(
                    "mapping page {vtpn} is at {ppn}, which has another owner"
                ));
            }
            for lpn in self.pages_of(vtpn) {
                let named = entry_at(&page, lpn % self.per_page());
                let entry = self.map.pending.get(lpn);
                let newest = entry
                    .filter(|_| P::LOOKS_UP_WRITES)
                    .map_or(named, |entry| entry.ppn());
                if self
                    .map
                    .policy
                    .peek(lpn)
                    .is_some_and(|cached| cached != newest)
                {
                    wrong.push(format!(
                        "logical page {lpn}: cached entry is {:?}, newest is {newest:?}",
                        self.map.policy.peek(lpn)
                    ));
                }
                let Some(named) = named else { continue };
                if entry.is_none() {
                    expected.current.insert(lpn, named);
                }
                // A superseded page that the flags still count as valid.
                if entry.is_none_or(|entry| entry.invalidate) && !expected.valid.insert(named) {
                    wrong.push(format!(
                        "logical page {lpn} is mapped to {named}, which has another owner"
                    ));
                }
                if let Some(entry) = entry.filter(|e| !e.update && e.ppn() != Some(named)) {
                    wrong.push(format!(
                        "logical page {lpn}: mapping page has {named}, clean pending entry has {:?}",
                        entry.ppn()
                    ));
                }
            }
        }
        Ok(())
    }

    fn audit_pending(&self, expected: &mut Expected, wrong: &mut Vec<String>) {
        for (lpn, entry) in self.map.pending.entries() {
            let Some(ppn) = entry.ppn() else { continue };
            expected.current.insert(lpn, ppn);
            if !self.map.pending.holds(self.space.geometry().block_of(ppn)) {
                wrong.push(format!(
                    "logical page {lpn} is pending at {ppn}, which is in no buffer block"
                ));
            }
            if self.map.pending.lpn_at(ppn) != Some(lpn) {
                wrong.push(format!(
                    "logical page {lpn} is pending at {ppn}, which the index assigns to {:?}",
                    self.map.pending.lpn_at(ppn)
                ));
            }
            if !expected.valid.insert(ppn) {
                wrong.push(format!(
                    "logical page {lpn} is pending at {ppn}, which has another owner"
                ));
            }
        }
    }

    fn audit_trims(
        &mut self,
        expected: &mut Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        let records: Vec<(u64, Ppn)> = self
            .map
            .trims
            .iter()
            .map(|(seq, record)| (seq, record.ppn))
            .collect();
        for (seq, ppn) in records {
            expected.valid.insert(ppn);
            let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
            if oob.is_none_or(|oob| oob.tag.role != Role::Trim || oob.tag.ver != seq) {
                wrong.push(format!(
                    "trim record {seq} is at {ppn}, whose record is {oob:?}"
                ));
            }
        }
        Ok(())
    }

    fn audit_counts(&self, expected: &Expected, wrong: &mut Vec<String>) {
        let valid = self.space.table.valid_pages();
        if valid != expected.valid.len() as u64 {
            wrong.push(format!(
                "{valid} pages are valid, but {} are referenced",
                expected.valid.len()
            ));
        }
        wrong.extend(
            expected
                .valid
                .iter()
                .filter(|ppn| !self.space.table.is_valid(**ppn))
                .map(|p| format!("page {p} is referenced, but not valid")),
        );
        let mapped = self.map.mapped.count();
        let differs = expected
            .current
            .keys()
            .find(|lpn| !self.map.mapped.has(**lpn));
        if mapped != expected.current.len() as u64 || differs.is_some() {
            wrong.push(format!(
                "{} pages are mapped, {mapped} are counted; the first mapped, but not counted: {differs:?}",
                expected.current.len()
            ));
        }
        let slack = super::convert::WINDOW_SLACK + self.map.settings.more_streams as u64;
        let limit = self
            .map
            .settings
            .buffer_blocks
            .map_or(self.map.settings.age_window, u64::from);
        if self.map.pending.block_count() as u64 > limit + slack {
            wrong.push(format!(
                "{} blocks have pending pages, the limit is {limit}",
                self.map.pending.block_count()
            ));
        }
    }

    fn audit_pages(
        &mut self,
        expected: &Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        for (&lpn, &ppn) in &expected.current {
            let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
            if oob.is_none_or(|oob| oob.tag.lpn != lpn || !is_data(&oob)) {
                wrong.push(format!(
                    "logical page {lpn} is at {ppn}, whose record is {oob:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that no page of an unconverted block is newer than the current one, unless its data
    /// is lost.
    fn audit_versions(
        &mut self,
        expected: &Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let mut newest: FxHashMap<u32, u64> = FxHashMap::default();
        let mut data = vec![0; geometry.page_bytes as usize];
        let blocks: Vec<_> = self.map.pending.blocks().map(|(block, _)| block).collect();
        for block in blocks {
            for offset in 0..self.space.flash.chip().frontier(block) {
                let ppn = geometry.page(block, offset);
                let Some(oob) = self
                    .space
                    .flash
                    .read_oob(ppn, Cause::Recovery)?
                    .filter(is_data)
                else {
                    continue;
                };
                let Some(&current) = expected.current.get(&oob.tag.lpn) else {
                    continue;
                };
                let ver = match newest.get(&oob.tag.lpn) {
                    Some(ver) => *ver,
                    None => self
                        .space
                        .flash
                        .read_oob(current, Cause::Recovery)?
                        .map_or(0, |oob| oob.tag.ver),
                };
                newest.insert(oob.tag.lpn, ver);
                if oob.tag.ver > ver
                    && self
                        .space
                        .flash
                        .read(ppn, &mut data, Cause::Recovery)?
                        .is_some()
                {
                    wrong.push(format!(
                        "logical page {} is at {current}, but {ppn} is newer",
                        oob.tag.lpn
                    ));
                }
            }
        }
        Ok(())
    }
}

fn is_data(oob: &Oob) -> bool {
    matches!(oob.tag.role, Role::Update | Role::Cold | Role::Data)
}
