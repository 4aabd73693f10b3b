//! Maps that predict the location of a page, with a bound on the miss.
//!
//! The page is one of the valid pages within the bound around the prediction. If there is only one,
//! it is this one. Otherwise their records decide: one of them names the logical page, as every
//! logical page has one valid page. The nearest page is tried first.
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
use crate::int::{index, to_u32};
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

#[cold]
fn nowhere(lpn: Lpn, at: Ppn, bound: u32) -> FtlError {
    FtlError::Corrupt(format!(
        "logical page {lpn} is at none of the valid pages within {bound} of {at}"
    ))
}

impl<M: PageMap> PageMapFtl<M> {
    /// Returns the location of a page that is about to be replaced.
    #[inline(always)]
    pub(super) fn locate(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        if !M::PREDICTS {
            return Ok(self.map.pages.get(lpn));
        }
        let (found, is_hit) = self.look_up(lpn)?;
        self.stats.lookups_write.note(is_hit);
        Ok(found)
    }

    /// Returns the location of a page, and whether no record was read for it.
    fn look_up(&mut self, lpn: Lpn) -> Result<(Option<Ppn>, bool), FtlError> {
        match self.map.pages.predict(lpn) {
            None => Ok((None, true)),
            Some((at, 0)) => Ok((Some(at), true)),
            Some((at, bound)) => {
                let (ppn, by_record) = self.search(lpn, at, bound, Cause::Translation)?;
                Ok((Some(ppn), !by_record))
            }
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
            let found = self.look_up(lpn_of(i))?;
            self.map.replaced.push(found);
        }
        Ok(())
    }

    /// Returns the location of a page; records are read for this cause.
    pub(super) fn locate_for(&mut self, lpn: Lpn, cause: Cause) -> Result<Option<Ppn>, FtlError> {
        match self.map.pages.predict(lpn) {
            None => Ok(None),
            Some((at, 0)) => Ok(Some(at)),
            Some((at, bound)) => self.search(lpn, at, bound, cause).map(|(ppn, _)| Some(ppn)),
        }
    }

    /// Returns the location of a page within `bound` of a prediction, and whether a record names
    /// it: none is read if one page is valid there. Of pages with a lost record, the nearest one is
    /// taken.
    fn search(
        &mut self,
        lpn: Lpn,
        at: Ppn,
        bound: u32,
        cause: Cause,
    ) -> Result<(Ppn, bool), FtlError> {
        let mut valid = candidates(&self.space, at, bound);
        let first = valid.next().ok_or_else(|| nowhere(lpn, at, bound))?;
        if valid.next().is_none() {
            return Ok((first, false));
        }
        drop(valid);
        let mut lost = None;
        // Each is found again: reading needs the space. There are few.
        for i in 0.. {
            let Some(ppn) = candidates(&self.space, at, bound).nth(i) else {
                break;
            };
            match self.space.flash.read_oob(ppn, cause)? {
                Some(oob) if is_of(&oob, lpn) => return Ok((ppn, true)),
                Some(_) => {}
                None => lost = lost.or(Some(ppn)),
            }
        }
        let lost = lost.ok_or_else(|| nowhere(lpn, at, bound))?;
        Ok((lost, false))
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
            let is_last = i == 0 && valid.next().is_none();
            drop(valid);
            if is_last {
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
    /// are very rare.
    #[cold]
    pub(super) fn find_predicted_owners(
        &mut self,
        unknown: &[(usize, Ppn)],
    ) -> Result<(), FtlError> {
        let mut owners: Vec<Option<Lpn>> = vec![None; unknown.len()];
        for lpn in (0..self.logical_pages).map(Lpn::new) {
            let Some((at, bound)) = self.map.pages.predict(lpn) else {
                continue;
            };
            let near = |ppn: Ppn| ppn.raw().abs_diff(at.raw()) <= bound;
            if !unknown.iter().any(|(_, ppn)| near(*ppn)) {
                continue;
            }
            let (nearest, is_readable) = match bound {
                0 => (at, false),
                _ => self.search(lpn, at, bound, Cause::Gc)?,
            };
            if is_readable {
                continue;
            }
            let free = |(i, _): &(usize, &(usize, Ppn))| owners[*i].is_none();
            let mut free = unknown.iter().enumerate().filter(free);
            let own = (free.clone().find(|(_, (_, ppn))| *ppn == nearest))
                .or_else(|| free.find(|(_, (_, ppn))| near(*ppn)));
            if let Some(i) = own.map(|(i, _)| i) {
                owners[i] = Some(lpn);
            }
        }
        for ((i, _), owner) in unknown.iter().zip(owners) {
            let (role, lpn) = match owner {
                Some(lpn) => (Role::Data, lpn.raw()),
                None => (Role::Trim, UNMAPPED),
            };
            self.gc.pages.name(*i, role, lpn, self.next_ver);
            self.next_ver += 1;
        }
        Ok(())
    }
}
