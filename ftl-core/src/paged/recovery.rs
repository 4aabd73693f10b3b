//! Mount.
//!
//! Steps: read the head of every block; load the newest checkpoint; read every record of the blocks
//! that may hold what the map on flash does not know; read the newest version of every mapping
//! page, and give each of its logical pages the newest readable version; rebuild counts; make safe
//! again what the cut may have left unstable.
//!
//! Blocks looked into: with a checkpoint, those it names and those opened since; without, every
//! mapping block, and the youngest `age_window` blocks (LazyFTL's second and third method). And
//! every block whose first page is lost.
//!
//! Of one mapping page the last program rules. A data page in the window competes if its mapping
//! page does not contain it (`pseq > upto`); it is compared with the page that the map names by
//! version. That page's record is read for it, because the entry may point into a block that was
//! erased and used again (LazyFTL's state F). Newest `ver` wins; of equal ones the later copy. A
//! trim wins over older versions unless its mapping page contains it.
//!
//! A version is never larger than the number of the program that wrote it, so new versions continue
//! above the last program.
//!
//! A mapping page that rotted is rebuilt from the records of all blocks, on top of its newest
//! readable version, and written at once: what rotted stays until then, since it alone tells the
//! next mount. Trims that only it knew, their records expired, are undone.
//!
//! If power fails during a mount, the next one does the same: a mount only adds copies of pages it
//! keeps, and erases only blocks without live pages.

use super::checkpoint::Content;
use super::convert::WINDOW_SLACK;
use super::map::entry_at;
use super::trims::{Record, covers};
use super::{COLD, MAP, Paged, Policy, UNMAPPED};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{Oob, Role};
use crate::gc::Collect;
use crate::hash::FastMap;
use crate::recovery::{
    Claim, Evidence, FoundTrim, Head, Rescue, Rescuer, Rescues, Version, read_page, read_trims,
    resolve, scan_block, scan_heads,
};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn, Store};
use std::collections::HashSet;

/// A trim record found; its `ver` is the number of the trim's program.
type Trim = FoundTrim<TrimRange>;

fn is_data(oob: &Oob) -> bool {
    matches!(oob.tag.role, Role::Update | Role::Cold | Role::Data)
}

fn holds(range: &TrimRange, logical_pages: u32) -> bool {
    let end = range.lpn.checked_add(range.count);
    range.count > 0 && end.is_some_and(|end| end <= logical_pages)
}

/// What the scanned blocks hold.
#[derive(Default)]
struct Window {
    /// Versions of each mapping page.
    maps: FastMap<u32, Vec<Version>>,
    trims: Vec<Version>,
    roles: FastMap<u32, Role>,
    evidence: Evidence,
    /// Whether any block but checkpoints was used after the checkpoint began.
    touched: bool,
    /// Whether every block was scanned.
    whole: bool,
}

/// A mapping page, of which the newest readable version was looked for.
struct FoundMap {
    vtpn: u32,
    newest: Option<(Version, Vec<u8>)>,
    /// Newer versions, which cannot be read.
    lost: Vec<Ppn>,
}

impl Window {
    fn sort(&mut self) {
        self.evidence.sort();
        self.maps
            .values_mut()
            .for_each(|versions| versions.sort_unstable_by_key(|v| v.oob.pseq));
    }

    /// One copy of every trim record that no cut can have hit.
    fn stable_trims(&self) -> impl Iterator<Item = Ppn> {
        let mut first: FastMap<u64, Version> = FastMap::default();
        let suspects = &self.evidence.suspects;
        for version in self.trims.iter().filter(|v| !suspects.contains(v.ppn)) {
            let known = first.entry(version.oob.tag.ver).or_insert(*version);
            if version.oob.pseq < known.oob.pseq {
                *known = *version;
            }
        }
        first.into_values().map(|version| version.ppn)
    }
}

impl<S: Store, P: Policy> Paged<S, P> {
    /// Finds what an earlier run left.
    pub(crate) fn mount(&mut self) -> Result<(), FtlError> {
        self.space.flash.begin(0);
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.stats
            .mount
            .end_step("scan heads", self.space.flash.now());
        let sets = self
            .checkpoints
            .load(&mut self.space, &heads, &mut scanned)?;
        let mut base = self.newest_checkpoint(&sets);
        self.stats
            .mount
            .end_step("load checkpoint", self.space.flash.now());
        let mut window = self.scan_window(&heads, base.as_ref(), &mut scanned)?;
        let missing = base
            .as_ref()
            .map_or(HashSet::new(), |base| self.missing(base, &window));
        if !missing.is_empty() {
            base = None;
            window = self.scan_window(&heads, None, &mut scanned)?;
        }
        self.stats
            .mount
            .end_step("scan window", self.space.flash.now());
        self.stats.mount.clean = base.as_ref().is_some_and(|base| base.clean) && !window.touched;
        self.adopt_blocks(&heads, base.as_ref(), &window);
        let mut rescues = Rescues::default();
        let mut trims = self.read_trims(window.trims.clone(), &window, &mut rescues)?;
        let mut outdated = Vec::new();
        for vtpn in 0..self.directory.len() as u32 {
            let (found, is_outdated) = self.find_map(vtpn, &window, &trims)?;
            if is_outdated || missing.contains(&vtpn) {
                outdated.push(found);
            } else {
                self.resolve(found, &window, &trims, &mut rescues)?;
            }
        }
        if !outdated.is_empty() {
            self.stats.mount.clean = false;
            self.scan_rest(&heads, &mut window, &mut trims, &mut rescues, &mut scanned)?;
        }
        let rebuilt: Vec<u32> = outdated.iter().map(|found| found.vtpn).collect();
        for found in outdated {
            rescues.pin(&self.space.geometry(), found.lost.iter().copied());
            self.resolve(found, &window, &trims, &mut rescues)?;
        }
        self.adopt_trims(trims)?;
        self.next_ver = self.space.flash.pseq() + 1;
        self.space.check_counters(self.next_ver)?;
        self.stats
            .mount
            .end_step("resolve versions", self.space.flash.now());
        self.space.begin_mount();
        self.settle_blocks(&rescues, true);
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        self.rewrite(&mut rescues)?;
        self.write_rebuilt(&rebuilt)?;
        self.stats
            .mount
            .end_step("rewrite suspects", self.space.flash.now());
        let unwritten = !rebuilt.is_empty() && self.gc.is_read_only();
        self.settle_blocks(&rescues, unwritten);
        self.refill_pool()?;
        self.space.end_mount()?;
        self.stats
            .mount
            .end_step("refill pool", self.space.flash.now());
        self.stats.mount.pages_scanned = scanned;
        self.last_checkpoint = self.space.flash.pseq();
        Ok(())
    }

    /// Every mount after a cut gives up the rest of the blocks that were open. Were they collected
    /// only when the host writes, cuts in a row would use the free blocks up.
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean || self.gc.is_read_only() {
            return Ok(());
        }
        match self.make_blocks(0).and_then(|()| self.limit_pending()) {
            // Reading goes on.
            Err(FtlError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    /// Reads every record of the blocks that may hold what a checkpoint, or else the map, does not
    /// know.
    fn scan_window(
        &mut self,
        heads: &[Head],
        base: Option<&Content>,
        scanned: &mut u64,
    ) -> Result<Window, FtlError> {
        for head in heads {
            if let Head::Found { epoch, pseq, .. } = *head {
                self.space.saw_epoch(epoch);
                self.space.flash.saw_pseq(pseq);
            }
        }
        if let Some(base) = base {
            self.space.saw_epoch(base.begin_epoch - 1);
            self.space.flash.saw_pseq(base.begin_pseq);
        }
        let horizon = self
            .space
            .next_epoch()
            .saturating_sub(self.settings.age_window + WINDOW_SLACK);
        let named: HashSet<u32> =
            base.map_or(HashSet::new(), |base| base.scan.iter().copied().collect());
        let mut window = Window::default();
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
            // A page 0 that an earlier cut took stays lost: only where a block is wanted for itself
            // was it used since.
            window.touched |= wanted && first != Role::Checkpoint;
            if wanted || !intact {
                self.scan_into(block, &mut window, scanned)?;
            }
        }
        if base.is_some_and(|base| base.clean) && !window.touched {
            window.evidence.suspects.assume_stable();
        }
        if let Some(base) = base {
            self.add_base(base, heads, &mut window, scanned)?;
        }
        window.sort();
        Ok(window)
    }

    /// Reads every record of the blocks that were not scanned yet. The trim records there had
    /// expired: outdated mapping pages may need them.
    fn scan_rest(
        &mut self,
        heads: &[Head],
        window: &mut Window,
        trims: &mut Vec<Trim>,
        rescues: &mut Rescues,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let known: HashSet<u64> = window.trims.iter().map(|v| v.oob.tag.ver).collect();
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            if matches!(head, Head::Found { .. }) && !window.roles.contains_key(&block.raw()) {
                self.scan_into(block, window, scanned)?;
            }
        }
        window.whole = true;
        window.sort();
        let expired: Vec<Version> = window
            .trims
            .iter()
            .filter(|v| !known.contains(&v.oob.tag.ver))
            .copied()
            .collect();
        trims.extend(self.read_trims(expired, window, rescues)?);
        Ok(())
    }

    fn scan_into(
        &mut self,
        block: Pbn,
        window: &mut Window,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let (logical_pages, mapping_pages) = (self.logical_pages, self.directory.len() as u32);
        let mut role = None;
        let ends = scan_block(&mut self.space.flash, block, scanned, |ppn, oob| {
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
        window.roles.insert(block.raw(), role.unwrap_or(Role::Data));
        let suspects = &mut window.evidence.suspects;
        suspects.note(&self.space.flash, block, ends);
        Ok(())
    }

    /// What the checkpoint knows beside the blocks it names: mapping pages and trim records in
    /// older blocks. A page that was moved or erased since shows as something else; what replaced
    /// it is in a younger block.
    fn add_base(
        &mut self,
        base: &Content,
        heads: &[Head],
        window: &mut Window,
        scanned: &mut u64,
    ) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
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
            let Some(oob) = self.space.flash.read_oob(ppn, Cause::Recovery)? else {
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

    /// Mapping pages of the checkpoint of which no version was found.
    fn missing(&self, base: &Content, window: &Window) -> HashSet<u32> {
        let named = (0..)
            .zip(&base.directory)
            .filter(|(_, ppn)| **ppn != UNMAPPED);
        named
            .map(|(vtpn, _)| vtpn)
            .filter(|vtpn| !window.maps.contains_key(vtpn))
            .collect()
    }

    /// Gives every block its state and role; live pages come later.
    fn adopt_blocks(&mut self, heads: &[Head], base: Option<&Content>, window: &Window) {
        let free: HashSet<u32> = match base {
            Some(base) if self.stats.mount.clean => base.free.iter().copied().collect(),
            _ => HashSet::new(),
        };
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            match *head {
                Head::Factory => {}
                Head::Nothing => self.space.add_free(block, free.contains(&block.raw())),
                Head::Found { first, epoch, .. } => {
                    let role = match (window.roles.get(&block.raw()), first) {
                        // Even if the scan cannot read the checkpoint any more, which its loading
                        // could.
                        (_, Role::Checkpoint) => Role::Checkpoint,
                        (Some(role), _) => *role,
                        (None, Role::Map | Role::Trim) => Role::Map,
                        (None, _) => Role::Data,
                    };
                    self.space.adopt_full(block, role, epoch);
                }
            }
        }
    }

    /// Reads trim records. One that may yet be lost is programmed again, and its copies stay until
    /// then.
    fn read_trims(
        &mut self,
        records: Vec<Version>,
        window: &Window,
        rescues: &mut Rescues,
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
            if let Some(data) = &trim.shaky {
                rescues.add(&trim.at, data.clone());
                let ver = trim.at.oob.tag.ver;
                let copies = window.trims.iter().filter(|v| v.oob.tag.ver == ver);
                rescues.pin(&geometry, copies.map(|v| v.ppn));
            }
        }
        Ok(found)
    }

    /// A page's data, or `None` (counted) if it is lost.
    fn read_trusted(&mut self, version: &Version) -> Result<Option<Vec<u8>>, FtlError> {
        let discarded = &mut self.stats.mount.pages_discarded;
        read_page(&mut self.space, version.ppn, discarded)
    }

    /// Reads the newest readable version of a mapping page. It is outdated if a newer one rotted;
    /// of one that a cut may have torn that shows where entries point to pages that are gone.
    fn find_map(
        &mut self,
        vtpn: u32,
        window: &Window,
        trims: &[Trim],
    ) -> Result<(FoundMap, bool), FtlError> {
        let (mut newest, mut lost, mut rotten) = (None, Vec::new(), false);
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
            rotten |= !window.evidence.suspects.contains(version.ppn);
        }
        let outdated = rotten
            || !lost.is_empty()
                && match &newest {
                    Some((version, data)) => {
                        self.points_astray(vtpn, version.oob.tag.ver, data, window, trims)?
                    }
                    None => true,
                };
        Ok((FoundMap { vtpn, newest, lost }, outdated))
    }

    /// Whether an entry that nothing newer replaces points to a page that is gone.
    fn points_astray(
        &mut self,
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
            if !rewritten && !trimmed && !self.may_hold(lpn, named)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an entry may be right: its page is there, and its record, if it can be read, says
    /// the same.
    fn may_hold(&mut self, lpn: u32, named: Ppn) -> Result<bool, FtlError> {
        let geometry = self.space.geometry();
        if !geometry.contains(named)
            || self.space.table.state(geometry.block_of(named)) != State::Full
            || !self.space.flash.chip().is_programmed(named)
        {
            return Ok(false);
        }
        let oob = self.space.flash.read_oob(named, Cause::Recovery)?;
        Ok(oob.is_none_or(|oob| is_data(&oob) && oob.tag.lpn == lpn))
    }

    /// Takes a mapping page, and the newest version of every logical page in it.
    fn resolve(
        &mut self,
        FoundMap {
            vtpn, mut newest, ..
        }: FoundMap,
        window: &Window,
        trims: &[Trim],
        rescues: &mut Rescues,
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
                "mapping page {vtpn} knows of programs that came after it"
            )));
        }
        self.upto[vtpn as usize] = upto;
        let pages = self.pages_of(vtpn);
        let overlaps =
            |t: &&Trim| t.content.lpn < pages.end && pages.start < t.content.lpn + t.content.count;
        let trims: Vec<&Trim> = trims
            .iter()
            .filter(|t| t.at.oob.tag.ver > upto)
            .filter(overlaps)
            .collect();
        if trims.iter().any(|t| t.shaky.is_some()) {
            self.pin_untrimmed(vtpn, window, rescues)?;
        }
        // A mapping page trimmed as a whole is gone, unless it was written after the trim.
        newest = newest.filter(|(v, _)| {
            !trims
                .iter()
                .any(|t| v.oob.pseq < t.at.oob.tag.ver && covers(&t.content, &pages))
        });
        let versions = window.evidence.versions(pages.clone());
        match newest {
            Some((version, data)) => {
                self.map_page.copy_from_slice(&data);
                self.directory[vtpn as usize] = version.ppn.raw();
                self.adopt_live(version.ppn)?;
                if window.evidence.suspects.is_shaky(version.ppn) {
                    rescues.add(&version, data);
                    let older = window.evidence.fallbacks(&window.maps[&vtpn]);
                    rescues.pin(&geometry, older.chain(window.stable_trims()));
                }
                self.resolve_pages(
                    pages,
                    upto,
                    version.oob.pseq,
                    window,
                    versions,
                    &trims,
                    rescues,
                )
            }
            None => {
                self.map_page.fill(0xFF);
                self.resolve_pages(pages, upto, 0, window, versions, &trims, rescues)
            }
        }
    }

    /// A trim may yet be lost: keeps everything that it gave up.
    fn pin_untrimmed(
        &mut self,
        vtpn: u32,
        window: &Window,
        rescues: &mut Rescues,
    ) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
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
            if self
                .space
                .flash
                .read(ppn, &mut page, Cause::Recovery)?
                .is_some()
            {
                needed.extend((0..self.per_page()).filter_map(|index| entry_at(&page, index)));
            }
        }
        rescues.pin(&geometry, needed);
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one mapping page's facts, passed on once"
    )]
    fn resolve_pages(
        &mut self,
        pages: std::ops::Range<u32>,
        upto: u64,
        map_pseq: u64,
        window: &Window,
        versions: &[Version],
        trims: &[&Trim],
        rescues: &mut Rescues,
    ) -> Result<(), FtlError> {
        let mut rest = versions;
        for lpn in pages.clone() {
            let (group, others) = rest.split_at(rest.partition_point(|v| v.oob.tag.lpn == lpn));
            rest = others;
            let named = entry_at(&self.map_page, lpn - pages.start);
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
                // The common case: the map knows, and nothing speaks against it.
                let Some(named) = named else { continue };
                // But an outdated mapping page may not know of a trim.
                if !window.whole || self.may_hold(lpn, named)? {
                    self.adopt_live(named)?;
                    self.mapped.set(lpn, true);
                    continue;
                }
            }
            let known = group.iter().any(|v| Some(v.ppn) == named);
            // A mapping page older than the trim names nothing newer than the trim.
            let too_old = trim.is_some_and(|t| map_pseq < t.at.oob.tag.ver);
            // A block that was scanned has shown all it holds.
            let scanned = |ppn: Ppn| {
                let block = self.space.geometry().block_of(ppn);
                window.roles.contains_key(&block.raw())
            };
            let record = match named {
                Some(named) if !known && !too_old && !scanned(named) => {
                    self.read_named(lpn, named)?
                }
                _ => None,
            };
            let claim = Claim {
                reach: upto,
                named,
                record,
                trimmed_at: trim.map_or(0, |t| t.content.ver + 1),
            };
            let (space, discarded) = (&mut self.space, &mut self.stats.mount.pages_discarded);
            let evidence = &window.evidence;
            let newest = resolve(space, evidence, &claim, group, rescues, discarded)?;
            self.adopt_newest(lpn, named, newest)?;
        }
        Ok(())
    }

    /// The record of the page that the map names, if it still is what the map says.
    fn read_named(&mut self, lpn: u32, named: Ppn) -> Result<Option<Version>, FtlError> {
        if !self.space.geometry().contains(named) {
            return Err(FtlError::Corrupt(format!(
                "logical page {lpn} is mapped to {named}, which does not exist"
            )));
        }
        if self
            .space
            .table
            .state(self.space.geometry().block_of(named))
            != State::Full
        {
            return Ok(None);
        }
        let oob = self.space.flash.read_oob(named, Cause::Recovery)?;
        Ok(oob
            .filter(|oob| oob.tag.lpn == lpn && is_data(oob))
            .map(|oob| Version { oob, ppn: named }))
    }

    /// Takes the newest version of a logical page; what the mapping page does not say is pending.
    fn adopt_newest(
        &mut self,
        lpn: u32,
        named: Option<Ppn>,
        newest: Option<Ppn>,
    ) -> Result<(), FtlError> {
        if let Some(ppn) = newest {
            self.adopt_live(ppn)?;
            self.mapped.set(lpn, true);
        }
        if newest != named {
            newest.into_iter().for_each(|ppn| self.enlist_found(ppn));
            self.pending
                .point(lpn, newest, false, self.first_missing(lpn));
        }
        Ok(())
    }

    /// The first program that the mapping page may not contain.
    fn first_missing(&self, lpn: u32) -> u64 {
        self.upto[(lpn / self.per_page()) as usize] + 1
    }

    fn adopt_live(&mut self, ppn: Ppn) -> Result<(), FtlError> {
        if !self.space.geometry().contains(ppn) || self.space.table.is_live(ppn) {
            return Err(FtlError::Corrupt(format!(
                "page {ppn} does not exist, or has two owners"
            )));
        }
        let block = self.space.geometry().block_of(ppn);
        let table = &mut self.space.table;
        if table.state(block) == State::Full && table.role(block) != Role::Checkpoint {
            table.set_live(ppn);
            return Ok(());
        }
        Err(FtlError::Corrupt(format!(
            "page {ppn} is in use, but its block holds no data"
        )))
    }

    /// A block with pages that the map does not know is a buffer block again.
    fn enlist_found(&mut self, ppn: Ppn) {
        let block = self.space.geometry().block_of(ppn);
        if !self.pending.holds(block) {
            self.pending.enlist(block, self.space.table.epoch(block));
            self.space.table.set_role(block, self.settings.host_role);
        }
    }

    /// Keeps the records that some mapping page does not contain.
    fn adopt_trims(&mut self, trims: Vec<Trim>) -> Result<(), FtlError> {
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
                    Record {
                        ppn: at.ppn,
                        range,
                        touched,
                    },
                );
                self.adopt_live(at.ppn)?;
            }
        }
        self.expire_records();
        Ok(())
    }

    /// Blocks that have to be converted first stay as they are.
    fn settle_blocks(&mut self, rescues: &Rescues, pinned_wait: bool) {
        let of_scheme = |block| self.pending.holds(block) && self.settings.buffer_blocks.is_some();
        let (space, checkpoints) = (&mut self.space, &self.checkpoints);
        let dead = rescues.settle_blocks(space, checkpoints, pinned_wait, of_scheme);
        dead.into_iter().for_each(|block| self.give_up(block));
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen.
    fn rewrite(&mut self, rescues: &mut Rescues) -> Result<(), FtlError> {
        match rescues.program(self) {
            Ok(programmed) => self.stats.mount.pages_discarded += programmed,
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Writes the mapping pages that were rebuilt.
    fn write_rebuilt(&mut self, rebuilt: &[u32]) -> Result<(), FtlError> {
        for vtpn in rebuilt {
            if self.gc.is_read_only() {
                return Ok(());
            }
            if self.space.room(MAP) == 0 {
                self.space.reclaim(Cause::Recovery)?;
            }
            match self.write_back(*vtpn, Cause::Recovery) {
                Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
                other => other?,
            }
        }
        if rebuilt.is_empty() {
            Ok(())
        } else {
            self.space.make_safe()
        }
    }
}

impl<S: Store, P: Policy> Rescuer<S> for Paged<S, P> {
    fn space(&mut self) -> &mut Space<S> {
        &mut self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        match role {
            Role::Map | Role::Trim => (MAP, role),
            _ => (COLD, self.settings.copy_role),
        }
    }

    fn copied(&mut self, rescue: &Rescue, to: Ppn, seq: u64) {
        let tag = rescue.tag;
        if tag.role == Role::Map {
            self.set_directory(tag.lpn, Some(to));
            return;
        }
        if tag.role == Role::Trim {
            self.trims.moved(tag.ver, to);
        } else {
            self.enlist_block_of(to);
            self.pending.point(tag.lpn, Some(to), false, seq);
        }
        self.space.table.clear_live(rescue.from);
    }
}
