//! The full check: every table against the chip.

use super::map::entry_at;
use super::policy::Policy;
use super::state::PagedMap;
use crate::error::FtlError;
use crate::format::UNMAPPED;
use crate::format::{Oob, Role};
use crate::space::Space;
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

fn is_data(oob: &Oob) -> bool {
    matches!(oob.tag.role, Role::Update | Role::Cold | Role::Data)
}

impl<P: Policy> PagedMap<P> {
    /// Compares every table with the chip. Adds one line per difference.
    pub(crate) fn audit(
        &mut self,
        space: &mut Space,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        wrong.extend(self.pending.audit());
        let mut expected = Expected::default();
        self.audit_directory(space, &mut expected, wrong)?;
        self.audit_pending(space, &mut expected, wrong);
        self.audit_trims(space, &mut expected, wrong)?;
        self.audit_counts(space, &expected, wrong);
        self.audit_pages(space, &expected, wrong)?;
        self.audit_versions(space, &expected, wrong)
    }

    /// Compares the directory with the mapping pages, and their entries with the cache and the
    /// pending entries.
    fn audit_directory(
        &mut self,
        space: &mut Space,
        expected: &mut Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        let mut page = vec![0; space.geometry().page_bytes as usize];
        for vtpn in 0..self.directory.len() as u32 {
            let ppn = Ppn::new(self.directory[vtpn as usize]);
            if ppn.raw() == UNMAPPED {
                if P::LOOKS_UP_WRITES {
                    for lpn in self.pages_of(vtpn) {
                        let newest = self.pending.get(lpn).and_then(|entry| entry.ppn());
                        self.audit_cached(lpn, newest, wrong);
                    }
                }
                continue;
            }
            let oob = space.flash.read(ppn, &mut page, Cause::Recovery)?;
            let upto = self.upto[vtpn as usize];
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
                let entry = self.pending.get(lpn);
                let newest = entry
                    .filter(|_| P::LOOKS_UP_WRITES)
                    .map_or(named, |entry| entry.ppn());
                self.audit_cached(lpn, newest, wrong);
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

    /// Compares what the cache has of a page, or predicts, with its newest location.
    fn audit_cached(&self, lpn: u32, newest: Option<Ppn>, wrong: &mut Vec<String>) {
        let cached = self.policy.peek(lpn);
        if cached.is_some_and(|cached| cached != newest) {
            wrong.push(format!(
                "logical page {lpn}: cached entry is {cached:?}, newest is {newest:?}"
            ));
        }
    }

    fn audit_pending(&self, space: &Space, expected: &mut Expected, wrong: &mut Vec<String>) {
        for (lpn, entry) in self.pending.entries() {
            let Some(ppn) = entry.ppn() else { continue };
            expected.current.insert(lpn, ppn);
            if !self.pending.holds(space.geometry().block_of(ppn)) {
                wrong.push(format!(
                    "logical page {lpn} is pending at {ppn}, which is in no buffer block"
                ));
            }
            if self.pending.lpn_at(ppn) != Some(lpn) {
                wrong.push(format!(
                    "logical page {lpn} is pending at {ppn}, which the index assigns to {:?}",
                    self.pending.lpn_at(ppn)
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
        space: &mut Space,
        expected: &mut Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        let records: Vec<(u64, Ppn)> = self
            .trims
            .iter()
            .map(|(seq, record)| (seq, record.ppn))
            .collect();
        for (seq, ppn) in records {
            expected.valid.insert(ppn);
            let oob = space.flash.read_oob(ppn, Cause::Recovery)?;
            if oob.is_none_or(|oob| oob.tag.role != Role::Trim || oob.tag.ver != seq) {
                wrong.push(format!(
                    "trim record {seq} is at {ppn}, whose record is {oob:?}"
                ));
            }
        }
        Ok(())
    }

    fn audit_counts(&self, space: &Space, expected: &Expected, wrong: &mut Vec<String>) {
        let valid = space.table.valid_pages();
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
                .filter(|ppn| !space.table.is_valid(**ppn))
                .map(|p| format!("page {p} is referenced, but not valid")),
        );
        let mapped = self.mapped.count();
        let differs = expected.current.keys().find(|lpn| !self.mapped.has(**lpn));
        if mapped != expected.current.len() as u64 || differs.is_some() {
            wrong.push(format!(
                "{} pages are mapped, {mapped} are counted; the first mapped, but not counted: {differs:?}",
                expected.current.len()
            ));
        }
        let slack = super::convert::WINDOW_SLACK + self.settings.more_streams as u64;
        let limit = self
            .settings
            .buffer_blocks
            .map_or(self.settings.age_window, u64::from);
        if self.pending.block_count() as u64 > limit + slack {
            wrong.push(format!(
                "{} blocks have pending pages, the limit is {limit}",
                self.pending.block_count()
            ));
        }
    }

    fn audit_pages(
        &mut self,
        space: &mut Space,
        expected: &Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        for (&lpn, &ppn) in &expected.current {
            let oob = space.flash.read_oob(ppn, Cause::Recovery)?;
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
        space: &mut Space,
        expected: &Expected,
        wrong: &mut Vec<String>,
    ) -> Result<(), FtlError> {
        let geometry = space.geometry();
        let mut newest: FxHashMap<u32, u64> = FxHashMap::default();
        let mut data = vec![0; geometry.page_bytes as usize];
        let blocks: Vec<_> = self.pending.blocks().map(|(block, _)| block).collect();
        for block in blocks {
            for offset in 0..space.flash.chip().frontier(block) {
                let ppn = geometry.page(block, offset);
                let Some(oob) = space.flash.read_oob(ppn, Cause::Recovery)?.filter(is_data) else {
                    continue;
                };
                let Some(&current) = expected.current.get(&oob.tag.lpn) else {
                    continue;
                };
                let ver = match newest.get(&oob.tag.lpn) {
                    Some(ver) => *ver,
                    None => space
                        .flash
                        .read_oob(current, Cause::Recovery)?
                        .map_or(0, |oob| oob.tag.ver),
                };
                newest.insert(oob.tag.lpn, ver);
                if oob.tag.ver > ver && space.flash.read(ppn, &mut data, Cause::Recovery)?.is_some()
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
