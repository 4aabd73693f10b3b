//! The recovery window: records of the blocks that may contain pages missing from the map on flash.
//!
//! Scanned blocks: with a checkpoint, the blocks that it names and those opened since. Without a
//! checkpoint, every mapping block, and the youngest `age_window` blocks (LazyFTL's second and
//! third method). In both cases, every block with a lost first page.
//!
//! This module programs nothing. If power fails, the next mount reads the same records.

use super::checkpoint::Content;
use super::convert::WINDOW_SLACK;
use super::policy::Policy;
use super::state::{PagedFtl, PagedMap};
use crate::error::FtlError;
use crate::format::UNMAPPED;
use crate::format::trim::TrimRange;
use crate::format::{Oob, Role};
use crate::recovery::{Evidence, FoundTrim, Rewrites, Version};
use crate::scan::{Head, scan_block};
use crate::space::Space;
use nand_model::{Cause, Pbn, Ppn};
use rustc_hash::FxHashMap;
use std::collections::HashSet;

/// A trim record that a scan found; its `ver` is the number of the trim's program.
pub(super) type Trim = FoundTrim<TrimRange>;

/// Content of the scanned blocks.
#[derive(Default)]
pub(super) struct Window {
    /// Versions of each mapping page.
    pub(super) maps: FxHashMap<u32, Vec<Version>>,
    pub(super) trims: Vec<Version>,
    pub(super) roles: FxHashMap<u32, Role>,
    pub(super) evidence: Evidence,
    /// Whether any block except checkpoints was used after the checkpoint began.
    pub(super) touched: bool,
    /// By block, the first readable program since its erase.
    pub(super) begun: Vec<u64>,
    /// Versions of mapping pages programmed before this program may have lost their record: an
    /// older version may not be the newest. 0 if no record is lost.
    pub(super) lost_map: u64,
    /// Mapping blocks with a lost record.
    pub(super) with_lost_records: Vec<Pbn>,
}

impl Window {
    pub(super) fn sort(&mut self) {
        self.evidence.sort();
        self.maps
            .values_mut()
            .for_each(|versions| versions.sort_unstable_by_key(|v| v.oob.pseq));
    }

    /// Returns the page of a trim record that this mount read, and its copies if an earlier cut may
    /// have torn that page.
    pub(super) fn pages_of_trim<'a>(&self, trim: &'a Trim) -> impl Iterator<Item = Ppn> + 'a {
        let torn = self.evidence.suspects.contains(trim.at.ppn);
        let copies = trim.copies.iter().filter(move |_| torn).copied();
        copies.chain([trim.at.ppn])
    }
}

pub(super) fn is_data(oob: &Oob) -> bool {
    matches!(oob.tag.role, Role::Update | Role::Cold | Role::Data)
}

impl<P: Policy> PagedMap<P> {
    /// Reads every record of the blocks that may contain pages missing from a checkpoint, or else
    /// from the map.
    pub(super) fn scan_window(
        &mut self,
        space: &mut Space,
        heads: &[Head],
        base: Option<&Content>,
        scanned: &mut u64,
    ) -> Result<Window, FtlError> {
        for head in heads {
            if let Head::Found { epoch, pseq, .. } = *head {
                space.observe_epoch(epoch);
                space.flash.observe_pseq(pseq);
            }
        }
        if let Some(base) = base {
            space.observe_epoch(base.begin_epoch - 1);
            space.flash.observe_pseq(base.begin_pseq);
        }
        let slack = WINDOW_SLACK + self.settings.more_streams as u64;
        let horizon = space
            .next_epoch()
            .saturating_sub(self.settings.age_window + slack);
        let named: HashSet<u32> =
            base.map_or(HashSet::new(), |base| base.scan.iter().copied().collect());
        let begun = heads.iter().map(|head| match *head {
            Head::Found { pseq, .. } => pseq,
            _ => u64::MAX,
        });
        let mut window = Window {
            begun: begun.collect(),
            ..Window::default()
        };
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            let Head::Found {
                first,
                epoch,
                intact,
                ..
            } = *head
            else {
                continue;
            };
            let wanted = match (base, first) {
                (_, Role::Checkpoint) => true,
                (Some(base), _) => epoch >= base.begin_epoch || named.contains(&block.raw()),
                (None, Role::Map | Role::Trim | Role::Pad) => true,
                (None, _) => epoch >= horizon,
            };
            // A page 0 lost in an earlier cut stays lost. Its block counts as used since the
            // checkpoint only if it is wanted.
            window.touched |= wanted && first != Role::Checkpoint;
            if wanted || !intact {
                self.scan_into(space, block, &mut window, scanned)?;
            }
        }
        if base.is_some_and(|base| base.clean) && !window.touched {
            window.evidence.suspects.assume_stable();
        }
        if let Some(base) = base {
            self.add_base(space, base, heads, &mut window, scanned)?;
        }
        window.sort();
        Ok(window)
    }

    pub(super) fn scan_into(
        &mut self,
        space: &mut Space,
        block: Pbn,
        window: &mut Window,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let (logical_pages, mapping_pages) = (self.logical_pages, self.directory.len() as u32);
        let mut role = None;
        let ends = scan_block(&mut space.flash, block, scanned, |ppn, oob| {
            let version = Version { oob, ppn };
            let of_block = match oob.tag.role {
                Role::Update | Role::Cold | Role::Data => {
                    if oob.tag.lpn < logical_pages {
                        window.evidence.add(version);
                    }
                    Role::Data
                }
                Role::Map => {
                    if oob.tag.lpn < mapping_pages {
                        window.maps.entry(oob.tag.lpn).or_default().push(version);
                    }
                    Role::Map
                }
                Role::Trim => {
                    window.trims.push(version);
                    Role::Map
                }
                Role::Pad => return,
                other => other,
            };
            role.get_or_insert(of_block);
        })?;
        let role = role.unwrap_or(Role::Data);
        window.roles.insert(block.raw(), role);
        if let Some(before) = ends.lost_before.filter(|_| role == Role::Map) {
            window.lost_map = window.lost_map.max(before);
            window.with_lost_records.push(block);
        }
        let suspects = &mut window.evidence.suspects;
        suspects.note(&space.flash, block, ends);
        Ok(())
    }

    /// Adds the mapping pages and trim records of the checkpoint that are in older blocks than it
    /// names. If such a page was relocated or erased since, its record differs, and its replacement
    /// is in a younger block.
    pub(super) fn add_base(
        &mut self,
        space: &mut Space,
        base: &Content,
        heads: &[Head],
        window: &mut Window,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let geometry = space.geometry();
        let pages = (0..)
            .zip(&base.directory)
            .map(|(vtpn, ppn)| (Some(vtpn), *ppn));
        let pages = pages
            .chain(base.trims.iter().map(|ppn| (None, *ppn)))
            .filter(|(_, ppn)| *ppn != UNMAPPED);
        for (vtpn, ppn) in pages {
            let ppn = Ppn::new(ppn);
            let block = geometry.block_of(ppn);
            let unseen = !window.roles.contains_key(&block.raw());
            if !unseen || !matches!(heads[block.index()], Head::Found { .. }) {
                continue;
            }
            *scanned += 1;
            let Some(oob) = space.flash.read_oob(ppn, Cause::Recovery)? else {
                continue;
            };
            match (oob.tag.role, vtpn) {
                (Role::Map, Some(vtpn)) if oob.tag.lpn == vtpn => {
                    window
                        .maps
                        .entry(vtpn)
                        .or_default()
                        .push(Version { oob, ppn });
                }
                (Role::Trim, None) => window.trims.push(Version { oob, ppn }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the mapping pages that the checkpoint names, of which the scan found neither that
    /// version nor one programmed since the checkpoint began.
    pub(super) fn missing(&self, base: &Content, window: &Window) -> HashSet<u32> {
        let is_found = |vtpn: &u32, ppn: Ppn| {
            let mut versions = window.maps.get(vtpn).into_iter().flatten();
            versions.any(|v| v.ppn == ppn || v.oob.pseq >= base.begin_pseq)
        };
        (0..)
            .zip(&base.directory)
            .filter(|(_, ppn)| **ppn != UNMAPPED)
            .filter(|(vtpn, ppn)| !is_found(vtpn, Ppn::new(**ppn)))
            .map(|(vtpn, _)| vtpn)
            .collect()
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Reads every record of the blocks that were not scanned yet. The trim records there have
    /// expired, but outdated mapping pages may need them.
    pub(super) fn scan_rest(
        &mut self,
        heads: &[Head],
        window: &mut Window,
        trims: &mut Vec<Trim>,
        rewrites: &mut Rewrites,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let known: HashSet<u64> = window.trims.iter().map(|v| v.oob.tag.ver).collect();
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            if matches!(head, Head::Found { .. }) && !window.roles.contains_key(&block.raw()) {
                self.map
                    .scan_into(&mut self.space, block, window, scanned)?;
            }
        }
        window.sort();
        let expired: Vec<Version> = window
            .trims
            .iter()
            .filter(|v| !known.contains(&v.oob.tag.ver))
            .copied()
            .collect();
        trims.extend(self.read_trims(expired, window, rewrites)?);
        Ok(())
    }
}
