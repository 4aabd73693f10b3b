//! Maps that predict the location of a page, with a bound on the miss.
//!
//! The page is one of the valid pages within the bound around the prediction. If there is only one,
//! it is this one. Otherwise their records decide: one of them names the logical page, as every
//! logical page has one valid page. The nearest page is tried first. If records of several of them
//! are lost, the old page is not found: it stays valid until GC, which finds no owner for it. From
//! then on, until the next mount, a page may have no owner and a logical page no valid page: only
//! records decide.
//!
//! A host's read takes whole pages until a record fits; all after the first count as `translation`.
//! A write or trim, which makes the old page invalid, takes records alone, as `translation` or
//! `trim`. A lookup is a hit if it reads nothing but the page itself.
//!
//! A mount knows every location (`recovery.rs`), so the map must not miss before
//! [`PageMap::begin_service`]. A checkpoint marks predicted pages instead of naming a location,
//! and a mount from it reads all records.

use super::map::PageMap;
use super::state::PageMapFtl;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{Flags, Oob, Role, UNMAPPED};
use crate::int::{index, to_u32, to_u64};
use crate::space::Space;
use nand_model::{Cause, Ppn};

/// Returns the valid pages within `bound` of a prediction, the nearest first.
fn candidates(space: &Space, at: Ppn, bound: u32) -> impl Iterator<Item = Ppn> {
    let near = (1..=bound).flat_map(move |far| {
        let (before, after) = (at.raw().checked_sub(far), at.raw().checked_add(far));
        [after, before].into_iter().flatten()
    });
    let near = std::iter::once(at.raw()).chain(near).map(Ppn::new);
    near.filter(|ppn| space.geometry().contains(*ppn) && space.table.is_valid(*ppn))
}

fn is_of(oob: &Oob, lpn: Lpn) -> bool {
    oob.tag.role == Role::Data && oob.tag.lpn == lpn.raw()
}

impl<M: PageMap> PageMapFtl<M> {
    /// Returns the location of a page that is about to be replaced.
    #[inline(always)]
    pub(super) fn locate(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        if !M::PREDICTS {
            return Ok(self.map.pages.get(lpn));
        }
        let (found, is_hit) = self.look_up(lpn, Cause::Translation)?;
        self.stats.lookups_write.note(is_hit);
        Ok(found)
    }

    /// Returns the location of a page, and whether no record was read for it.
    fn look_up(&mut self, lpn: Lpn, cause: Cause) -> Result<(Option<Ppn>, bool), FtlError> {
        match self.map.pages.predict(lpn) {
            None => Ok((None, true)),
            Some((at, 0)) => Ok((Some(at), true)),
            Some((at, bound)) => Ok(match self.search(lpn, at, bound, cause)? {
                Some((ppn, by_record)) => (Some(ppn), !by_record),
                None => {
                    self.map.lost += 1;
                    (None, false)
                }
            }),
        }
    }

    /// Looks up each page of a run that is about to be replaced.
    pub(super) fn locate_run(
        &mut self,
        count: usize,
        lpn_of: impl Fn(usize) -> Lpn,
    ) -> Result<(), FtlError> {
        self.map.replaced.clear();
        for i in 0..count {
            let found = self.look_up(lpn_of(i), Cause::Translation)?;
            self.map.replaced.push(found);
        }
        Ok(())
    }

    /// Returns the location of a page; records are read for this cause.
    pub(super) fn locate_for(&mut self, lpn: Lpn, cause: Cause) -> Result<Option<Ppn>, FtlError> {
        self.look_up(lpn, cause).map(|(found, _)| found)
    }

    /// Returns the location of a page within `bound` of a prediction, and whether a record names
    /// it. If only one page is valid there, no record is read. If no record names the page, it is
    /// the only one with a lost record; of several, none is taken. Once an owner is lost, only a
    /// record tells.
    fn search(
        &mut self,
        lpn: Lpn,
        at: Ppn,
        bound: u32,
        cause: Cause,
    ) -> Result<Option<(Ppn, bool)>, FtlError> {
        let mut valid = candidates(&self.space, at, bound);
        let first = valid.next();
        let is_only = valid.next().is_none();
        drop(valid);
        let is_certain = self.map.lost == 0;
        if is_only && is_certain {
            return Ok(first.map(|ppn| (ppn, false)));
        }
        let mut lost = Vec::new();
        // Each is found again: reading needs the space. There are few.
        for i in 0.. {
            let Some(ppn) = candidates(&self.space, at, bound).nth(i) else {
                break;
            };
            match self.space.flash.read_oob(ppn, cause)? {
                Some(oob) if is_of(&oob, lpn) => return Ok(Some((ppn, true))),
                Some(_) => {}
                None if self.map.trims.contains(ppn) => {}
                None => lost.push(ppn),
            }
        }
        Ok(match lost[..] {
            [only] if is_certain => Some((only, false)),
            _ => None,
        })
    }

    /// Reads pages for the host. Those with a known location are read in runs; all in parallel.
    pub(super) fn read_predicted(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let begin = self.space.flash.now();
        let (mut lpn, mut rest, mut done) = (first, out, begin);
        while !rest.is_empty() {
            self.space.flash.begin(begin);
            let left = to_u32(rest.len() / page);
            let pages = &self.map.pages;
            let known = lpn.run(left).take_while(|lpn| {
                let at = pages.predict(*lpn);
                at.is_none_or(|(_, bound)| bound == 0)
            });
            let run = to_u32(known.count());
            let (bytes, behind) = rest.split_at_mut(index(run.max(1)) * page);
            if let (0, Some((at, bound))) = (run, pages.predict(lpn)) {
                self.read_near(lpn, at, bound, bytes)?;
            } else {
                let ppn_of = |i: usize| {
                    let at = pages.predict(lpn.plus(to_u32(i)));
                    at.map_or(UNMAPPED, |(ppn, _)| ppn.raw())
                };
                let flash = &mut self.space.flash;
                flash.read_logical_pages(lpn.raw(), index(run), ppn_of, bytes)?;
                (0..run).for_each(|_| self.stats.lookups_read.note(true));
            }
            done = done.max(self.space.flash.now());
            (lpn, rest) = (lpn.plus(run.max(1)), behind);
        }
        self.space.flash.begin(done);
        Ok(())
    }

    /// Reads a page within `bound` of a prediction.
    fn read_near(&mut self, lpn: Lpn, at: Ppn, bound: u32, out: &mut [u8]) -> Result<(), FtlError> {
        let mut cause = Cause::Host;
        for i in 0.. {
            let mut valid = candidates(&self.space, at, bound).skip(i);
            let Some(ppn) = valid.next() else { break };
            let is_only = i == 0 && valid.next().is_none();
            drop(valid);
            if is_only && self.map.lost == 0 {
                self.stats.lookups_read.note(true);
                return self.space.flash.read_host(lpn.raw(), ppn, out);
            }
            if let Some(oob) = self.space.flash.read(ppn, out, cause)?
                && is_of(&oob, lpn)
            {
                self.stats.lookups_read.note(i == 0);
                return match oob.tag.flags.has(Flags::LOST) {
                    true => Err(FtlError::MediaLost(lpn.raw())),
                    false => Ok(()),
                };
            }
            cause = Cause::Translation;
        }
        // Its data or its record is lost.
        Err(FtlError::MediaLost(lpn.raw()))
    }

    /// Finds the owners of valid pages with a lost record. It searches the map, because such pages
    /// are very rare. An owner with a known location gets its page. The others are matched in the
    /// order of the flash; both are lost, so that a wrong match among them loses nothing more. A
    /// page without an owner is dropped.
    #[cold]
    pub(super) fn find_predicted_owners(
        &mut self,
        unknown: &[(usize, Ppn)],
    ) -> Result<(), FtlError> {
        let (trims, mut pages): (Vec<(usize, Ppn)>, Vec<_>) = unknown
            .iter()
            .partition(|(_, ppn)| self.map.trims.contains(*ppn));
        pages.sort_unstable_by_key(|(_, ppn)| *ppn);
        let mut owners: Vec<(Ppn, u32, Lpn)> = Vec::new();
        for lpn in (0..self.logical_pages).map(Lpn::new) {
            let Some((at, bound)) = self.map.pages.predict(lpn) else {
                continue;
            };
            let near = |ppn: Ppn| ppn.raw().abs_diff(at.raw()) <= bound;
            if !pages.iter().any(|(_, ppn)| near(*ppn)) {
                continue;
            }
            let is_lost = match bound {
                0 => true,
                _ => match self.search(lpn, at, bound, Cause::Gc)? {
                    Some((ppn, by_record)) => {
                        !by_record && pages.iter().any(|(_, lost)| *lost == ppn)
                    }
                    None => true,
                },
            };
            if is_lost {
                owners.push((at, bound, lpn));
            }
        }
        owners.sort_unstable_by_key(|(at, bound, _)| (*bound > 0, at.raw().saturating_add(*bound)));
        let mut dropped = Vec::new();
        for (i, ppn) in pages {
            let near = |of: &(Ppn, u32, Lpn)| ppn.raw().abs_diff(of.0.raw()) <= of.1;
            match owners.iter().position(near) {
                Some(own) => {
                    let (_, _, lpn) = owners.remove(own);
                    let ver = self.new_version();
                    self.gc.pages.name(i, Role::Data, lpn.raw(), ver);
                }
                None => dropped.push(i),
            }
        }
        for (i, _) in trims {
            let ver = self.new_version();
            self.gc.pages.name(i, Role::Trim, UNMAPPED, ver);
        }
        self.map.lost += to_u64(owners.len() + dropped.len());
        dropped.sort_unstable();
        for i in dropped.into_iter().rev() {
            let page = self.space.geometry().page_len();
            let ppn = self.gc.pages.remove(i, page);
            self.space.table.set_invalid(ppn);
        }
        Ok(())
    }
}
