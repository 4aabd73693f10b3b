//! Selection of the newest version of every mapping page, and of every logical page in it.
//!
//! The last program of a mapping page is current. A data page in the window is a candidate if its
//! mapping page does not contain it (`pseq > upto`). Its version is compared with that of the page
//! that the map names. That page's record is read for it, because the entry may point into a block
//! that was erased and reused (LazyFTL's state F). A trim wins over older versions unless its
//! mapping page contains it.
//!
//! A decayed mapping page is rebuilt from the records of all blocks, on top of its newest readable
//! version, and written at once. The decayed version stays until then: without it, the next mount
//! cannot detect that the mapping page is outdated. Trims that only the decayed version contained,
//! with expired records, are undone.
//!
//! This module programs nothing. If power fails, the next mount finds the same versions.

use super::map::entry_at;
use super::policy::Policy;
use super::state::{PagedFtl, PagedMap};
use super::window::{Trim, Window, is_data};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::Role;
use crate::format::trim::{self, TrimRange};
use crate::recovery::{FoundTrim, MapCandidate, Rewrites, Version, read_page, read_trims, resolve};
use crate::space::Space;
use crate::trims::{OfMapPages, covers};
use nand_model::{Cause, Ppn};

/// A mapping page and its newest readable version.
pub(super) struct FoundMap {
    pub(super) vtpn: u32,
    pub(super) newest: Option<(Version, Vec<u8>)>,
    /// Newer, unreadable versions.
    pub(super) lost: Vec<Ppn>,
}

pub(super) fn holds(range: &TrimRange, logical_pages: u32) -> bool {
    let end = range.lpn.checked_add(range.count);
    range.count > 0 && end.is_some_and(|end| end <= logical_pages)
}

impl<P: Policy> PagedMap<P> {
    /// Returns whether an entry points to a page that is gone, and no newer version or trim
    /// replaces it.
    pub(super) fn has_dangling_entry(
        &mut self,
        space: &mut Space,
        vtpn: u32,
        upto: u64,
        page: &[u8],
        window: &Window,
        trims: &[Trim],
    ) -> Result<bool, FtlError> {
        for (index, lpn) in (0..).zip(self.pages_of(vtpn)) {
            let Some(named) = entry_at(page, index) else {
                continue;
            };
            let rewritten = window
                .evidence
                .versions(lpn..lpn + 1)
                .iter()
                .any(|v| v.oob.pseq > upto);
            let trimmed = trims.iter().any(|t| {
                t.at.oob.tag.ver > upto
                    && t.content.lpn <= lpn
                    && lpn - t.content.lpn < t.content.count
            });
            if !rewritten
                && !trimmed
                && !self.entry_may_be_valid(space, lpn, named, upto, window)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a mapping page's entry may be valid: its block is full. If the block was
    /// begun after `upto`, it may contain another page there, so the page's record must name the
    /// logical page. The record of the version or trim that replaced the entry can be lost.
    pub(super) fn entry_may_be_valid(
        &mut self,
        space: &mut Space,
        lpn: u32,
        named: Ppn,
        upto: u64,
        window: &Window,
    ) -> Result<bool, FtlError> {
        let geometry = space.geometry();
        let is_there =
            geometry.contains(named) && space.table.state(geometry.block_of(named)) == State::Full;
        // Reads of a blank page here fail: its program reported success without an effect.
        if !is_there || window.begun[geometry.block_of(named).index()] <= upto {
            return Ok(is_there);
        }
        let oob = space.flash.read_oob(named, Cause::Recovery)?;
        Ok(oob.is_some_and(|oob| is_data(&oob) && oob.tag.lpn == lpn))
    }

    /// Keeps everything that a trim discarded while the trim may still be lost.
    pub(super) fn pin_untrimmed(
        &mut self,
        space: &mut Space,
        vtpn: u32,
        window: &Window,
        rewrites: &mut Rewrites,
    ) -> Result<(), FtlError> {
        let geometry = space.geometry();
        let mut needed: Vec<Ppn> = window
            .evidence
            .versions(self.pages_of(vtpn))
            .iter()
            .map(|v| v.ppn)
            .collect();
        for ppn in window
            .maps
            .get(&vtpn)
            .into_iter()
            .flat_map(|versions| window.evidence.fallbacks(versions))
        {
            needed.push(ppn);
            let mut page = vec![0; geometry.page_bytes as usize];
            if space.flash.read(ppn, &mut page, Cause::Recovery)?.is_some() {
                needed.extend((0..self.per_page()).filter_map(|index| entry_at(&page, index)));
            }
        }
        rewrites.pin(&geometry, needed);
        Ok(())
    }

    /// Returns the record of the page that the map names, if the page still belongs to `lpn`.
    pub(super) fn read_named(
        &mut self,
        space: &mut Space,
        lpn: u32,
        named: Ppn,
    ) -> Result<Option<Version>, FtlError> {
        if !space.geometry().contains(named) {
            return Err(FtlError::Corrupt(format!(
                "logical page {lpn} is mapped to {named}, which does not exist"
            )));
        }
        if space.table.state(space.geometry().block_of(named)) != State::Full {
            return Ok(None);
        }
        let oob = space.flash.read_oob(named, Cause::Recovery)?;
        Ok(oob
            .filter(|oob| oob.tag.lpn == lpn && is_data(oob))
            .map(|oob| Version { oob, ppn: named }))
    }

    /// Adopts the newest version of a logical page. It is pending unless the mapping page contains
    /// it.
    pub(super) fn adopt_newest(
        &mut self,
        space: &mut Space,
        lpn: u32,
        newest: Option<Ppn>,
        is_contained: bool,
    ) -> Result<(), FtlError> {
        if let Some(ppn) = newest {
            self.adopt_valid(space, ppn)?;
            self.mapped.set(lpn, true);
        }
        if !is_contained {
            newest
                .into_iter()
                .for_each(|ppn| self.restore_buffer_block(space, ppn));
            self.pending
                .update_entry(lpn, newest, false, self.first_missing(lpn));
        }
        Ok(())
    }

    /// Returns the first program that the mapping page may not contain.
    pub(super) fn first_missing(&self, lpn: u32) -> u64 {
        self.upto[(lpn / self.per_page()) as usize] + 1
    }

    pub(super) fn adopt_valid(&mut self, space: &mut Space, ppn: Ppn) -> Result<(), FtlError> {
        if !space.geometry().contains(ppn) || space.table.is_valid(ppn) {
            return Err(FtlError::Corrupt(format!(
                "page {ppn} of the map does not exist, or is already valid"
            )));
        }
        let block = space.geometry().block_of(ppn);
        let table = &mut space.table;
        if table.state(block) == State::Full && table.role(block) != Role::Checkpoint {
            table.set_valid(ppn);
            return Ok(());
        }
        Err(FtlError::Corrupt(format!(
            "page {ppn} of the map is in a block that contains no data"
        )))
    }

    /// Lists the block of a page that the map does not contain as a buffer block again.
    pub(super) fn restore_buffer_block(&mut self, space: &mut Space, ppn: Ppn) {
        let block = space.geometry().block_of(ppn);
        if !self.pending.holds(block) {
            self.pending.add_block(block, space.table.epoch(block));
            space.table.set_role(block, self.settings.host_role);
        }
    }

    /// Adopts the records that some mapping page does not contain.
    pub(super) fn adopt_trims(
        &mut self,
        space: &mut Space,
        trims: Vec<Trim>,
    ) -> Result<(), FtlError> {
        for FoundTrim {
            at, content: range, ..
        } in trims
        {
            let seq = at.oob.tag.ver;
            let end = (range.lpn + range.count).div_ceil(self.per_page());
            let touched: Vec<u32> = (range.lpn / self.per_page()..end)
                .filter(|vtpn| self.upto[*vtpn as usize] < seq)
                .collect();
            if !touched.is_empty() {
                self.trims.add(
                    seq,
                    OfMapPages {
                        ppn: at.ppn,
                        range,
                        touched,
                    },
                );
                self.adopt_valid(space, at.ppn)?;
            }
        }
        self.expire_records(space);
        Ok(())
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Reads trim records. A record that may still be lost is rewritten, and its copies stay until
    /// then.
    pub(super) fn read_trims(
        &mut self,
        records: Vec<Version>,
        window: &mut Window,
        rewrites: &mut Rewrites,
    ) -> Result<Vec<Trim>, FtlError> {
        let geometry = self.space.geometry();
        let logical_pages = self.logical_pages;
        let decode = |_: &Version, data: &[u8]| {
            let range = trim::decode(data)?.first().copied()?;
            holds(&range, logical_pages).then_some(range)
        };
        let (space, discarded) = (&mut self.space, &mut self.stats.mount.pages_discarded);
        let suspects = &window.evidence.suspects;
        let found = read_trims(space, records, suspects, discarded, decode)?;
        for trim in &found {
            if let Some(data) = &trim.unstable {
                rewrites.add(&trim.at, data.clone());
                let ver = trim.at.oob.tag.ver;
                let copies = window.trims.iter().filter(|v| v.oob.tag.ver == ver);
                rewrites.pin(&geometry, copies.map(|v| v.ppn));
            }
        }
        Ok(found)
    }

    /// Returns a page's data, or `None` (counted) if the page is lost.
    pub(super) fn read_trusted(&mut self, version: &Version) -> Result<Option<Vec<u8>>, FtlError> {
        let discarded = &mut self.stats.mount.pages_discarded;
        read_page(&mut self.space, version.ppn, discarded)
    }

    /// Reads the newest readable version of a mapping page, and returns whether it is outdated. It
    /// is outdated if a newer version decayed or may have lost its record. If a cut may have torn
    /// the newer version, it is outdated only if entries point to pages that are gone.
    pub(super) fn find_map(
        &mut self,
        vtpn: u32,
        window: &Window,
        trims: &[Trim],
    ) -> Result<(FoundMap, bool), FtlError> {
        let (mut newest, mut lost, mut decayed) = (None, Vec::new(), false);
        for version in window
            .maps
            .get(&vtpn)
            .map_or(&[][..], |versions| versions)
            .iter()
            .rev()
        {
            if let Some(data) = self.read_trusted(version)? {
                newest = Some((*version, data));
                break;
            }
            lost.push(version.ppn);
            decayed |= !window.evidence.suspects.contains(version.ppn);
        }
        let found = newest.as_ref().map_or(0, |(version, _)| version.oob.pseq);
        decayed |= found < window.lost_map;
        let outdated = decayed
            || !lost.is_empty()
                && match &newest {
                    Some((version, data)) => self.map.has_dangling_entry(
                        &mut self.space,
                        vtpn,
                        version.oob.tag.ver,
                        data,
                        window,
                        trims,
                    )?,
                    None => true,
                };
        Ok((FoundMap { vtpn, newest, lost }, outdated))
    }

    /// Adopts a mapping page, and the newest version of every logical page in it.
    pub(super) fn resolve(
        &mut self,
        FoundMap {
            vtpn, mut newest, ..
        }: FoundMap,
        window: &Window,
        trims: &[Trim],
        rewrites: &mut Rewrites,
    ) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let upto = newest
            .as_ref()
            .map_or(0, |(version, _)| version.oob.tag.ver);
        if newest
            .as_ref()
            .is_some_and(|(version, _)| upto > version.oob.pseq)
        {
            return Err(FtlError::Corrupt(format!(
                "mapping page {vtpn}: upto {upto} is larger than its own sequence number"
            )));
        }
        self.map.upto[vtpn as usize] = upto;
        let pages = self.map.pages_of(vtpn);
        let overlaps =
            |t: &&Trim| t.content.lpn < pages.end && pages.start < t.content.lpn + t.content.count;
        let of_page = trims.iter().filter(overlaps);
        let trims: Vec<&Trim> = of_page
            .clone()
            .filter(|t| t.at.oob.tag.ver > upto)
            .collect();
        if trims.iter().any(|t| t.unstable.is_some()) {
            self.map
                .pin_untrimmed(&mut self.space, vtpn, window, rewrites)?;
        }
        // A mapping page trimmed as a whole is dropped, unless it was written after the trim.
        newest = newest.filter(|(v, _)| {
            !trims
                .iter()
                .any(|t| v.oob.pseq < t.at.oob.tag.ver && covers(&t.content, &pages))
        });
        let versions = window.evidence.versions(pages.clone());
        match newest {
            Some((version, data)) => {
                self.map.map_page.renew().copy_from_slice(&data);
                self.map.directory[vtpn as usize] = version.ppn.raw();
                self.map.adopt_valid(&mut self.space, version.ppn)?;
                if window.evidence.suspects.needs_rewrite(version.ppn) {
                    rewrites.add(&version, data);
                    let older = window.evidence.fallbacks(&window.maps[&vtpn]);
                    // An older mapping page needs the trims that this one contains.
                    let records = of_page.flat_map(|t| window.pages_of_trim(t));
                    rewrites.pin(&geometry, older.chain(records));
                }
                self.resolve_pages(
                    pages,
                    upto,
                    version.oob.pseq,
                    window,
                    versions,
                    &trims,
                    rewrites,
                )
            }
            None => {
                self.map.map_page.renew().fill(0xFF);
                self.resolve_pages(pages, upto, 0, window, versions, &trims, rewrites)
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one mapping page's facts, passed on once"
    )]
    pub(super) fn resolve_pages(
        &mut self,
        pages: std::ops::Range<u32>,
        upto: u64,
        map_pseq: u64,
        window: &Window,
        versions: &[Version],
        trims: &[&Trim],
        rewrites: &mut Rewrites,
    ) -> Result<(), FtlError> {
        let mut rest = versions;
        for lpn in pages.clone() {
            let (group, others) = rest.split_at(rest.partition_point(|v| v.oob.tag.lpn == lpn));
            rest = others;
            let named = self.map.loaded_entry(&self.space, lpn - pages.start);
            let trim = trims
                .iter()
                .filter(|t| t.content.lpn <= lpn && lpn - t.content.lpn < t.content.count);
            let trim = trim.max_by_key(|t| t.content.ver);
            let news = group.iter().any(|v| v.oob.pseq > upto);
            if !news
                && trim.is_none()
                && !group
                    .iter()
                    .any(|v| window.evidence.suspects.contains(v.ppn))
            {
                // The common case: the map contains the newest version, and no record contradicts
                // it.
                let Some(named) = named else { continue };
                if self
                    .map
                    .entry_may_be_valid(&mut self.space, lpn, named, upto, window)?
                {
                    self.map.adopt_valid(&mut self.space, named)?;
                    self.map.mapped.set(lpn, true);
                    continue;
                }
            }
            let known = group.iter().any(|v| Some(v.ppn) == named);
            // A mapping page older than the trim names no version newer than the trim.
            let too_old = trim.is_some_and(|t| map_pseq < t.at.oob.tag.ver);
            // The scan of a block has returned all its records.
            let scanned = |ppn: Ppn| {
                let block = self.space.geometry().block_of(ppn);
                window.roles.contains_key(&block.raw())
            };
            let record = match named {
                Some(named) if !known && !too_old && !scanned(named) => {
                    self.map.read_named(&mut self.space, lpn, named)?
                }
                _ => None,
            };
            let candidate = MapCandidate {
                upto,
                named,
                record,
                trimmed_at: trim.map_or(0, |t| t.content.ver + 1),
            };
            let (space, discarded) = (&mut self.space, &mut self.stats.mount.pages_discarded);
            let evidence = &window.evidence;
            let newest = resolve(space, evidence, &candidate, group, rewrites, discarded)?;
            // A mapping page from before the trim may name the newest version by coincidence: its
            // block was erased and reused. The next mount would treat that version as trimmed.
            let is_contained = newest == named && (newest.is_none() || trim.is_none());
            self.map
                .adopt_newest(&mut self.space, lpn, newest, is_contained)?;
        }
        Ok(())
    }
}
