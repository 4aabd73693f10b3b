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
use crate::format::{Flags, Oob, PageTag, Role};
use crate::gc::Collect;
use crate::hash::FastMap;
use crate::recovery::{Head, Suspects, scan_block, scan_heads};
use nand_model::{Cause, Pbn, Ppn, Store};
use std::collections::HashSet;

/// A page whose record was read.
#[derive(Clone, Copy)]
struct Version {
    oob: Oob,
    ppn: Ppn,
}

/// A trim record found.
struct FoundTrim {
    seq: u64,
    at: Version,
    range: TrimRange,
    shaky: bool,
}

/// A page to program again.
struct Rescue {
    tag: PageTag,
    from: Ppn,
    data: Vec<u8>,
}

fn is_data(oob: &Oob) -> bool {
    matches!(oob.tag.role, Role::Update | Role::Cold | Role::Data)
}

/// Pages to program again, and the blocks that hold what would rule should they be lost before
/// that.
#[derive(Default)]
struct Rescues {
    pages: Vec<Rescue>,
    pinned: HashSet<Pbn>,
}

impl Rescues {
    fn add(&mut self, version: &Version, data: Vec<u8>) {
        self.pages.push(Rescue {
            tag: version.oob.tag,
            from: version.ppn,
            data,
        });
    }
}

/// What the scanned blocks hold.
#[derive(Default)]
struct Window {
    /// Pages of host data, by logical page, then version, then program.
    data: Vec<Version>,
    /// Versions of each mapping page.
    maps: FastMap<u32, Vec<Version>>,
    trims: Vec<Version>,
    roles: FastMap<u32, Role>,
    suspects: Suspects,
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
        self.data
            .sort_unstable_by_key(|v| (v.oob.tag.lpn, v.oob.tag.ver, v.oob.pseq));
        self.maps
            .values_mut()
            .for_each(|versions| versions.sort_unstable_by_key(|v| v.oob.pseq));
    }

    fn versions(&self, lpns: std::ops::Range<u32>) -> &[Version] {
        let from = self.data.partition_point(|v| v.oob.tag.lpn < lpns.start);
        let to = self.data.partition_point(|v| v.oob.tag.lpn < lpns.end);
        &self.data[from..to]
    }

    /// The pages that may rule if the newest one does not, of versions in rising order: down to the
    /// first that no cut can have hit. The suspects among them may be good, and flushed.
    fn fallbacks<'a>(&'a self, versions: &'a [Version]) -> impl Iterator<Item = Ppn> + 'a {
        let falling = versions.iter().rev().map(|v| v.ppn);
        let stable = versions
            .iter()
            .rposition(|v| !self.suspects.contains(v.ppn))
            .unwrap_or(0);
        falling.take(versions.len() - stable)
    }

    /// One copy of every trim record that no cut can have hit.
    fn stable_trims(&self) -> impl Iterator<Item = Ppn> {
        let mut first: FastMap<u64, Version> = FastMap::default();
        for version in self.trims.iter().filter(|v| !self.suspects.contains(v.ppn)) {
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
        let mut trims = self.read_trims(&window.trims, &window, &mut rescues)?;
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
            rescues.pinned.extend(
                found
                    .lost
                    .iter()
                    .map(|ppn| self.space.geometry().block_of(*ppn)),
            );
            self.resolve(found, &window, &trims, &mut rescues)?;
        }
        self.adopt_trims(trims)?;
        self.next_ver = self.space.flash.pseq() + 1;
        self.space.check_counters(self.next_ver)?;
        self.stats
            .mount
            .end_step("resolve versions", self.space.flash.now());
        self.space.begin_mount();
        self.settle_blocks(|block| rescues.pinned.contains(&block));
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        self.rewrite(&rescues.pages)?;
        self.write_rebuilt(&rebuilt)?;
        self.stats
            .mount
            .end_step("rewrite suspects", self.space.flash.now());
        let unwritten = !rebuilt.is_empty() && self.gc.is_read_only();
        self.settle_blocks(|block| unwritten && rescues.pinned.contains(&block));
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
            window.suspects.assume_stable();
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
        trims: &mut Vec<FoundTrim>,
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
        trims.extend(self.read_trims(&expired, window, rescues)?);
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
                        window.data.push(version);
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
        window.suspects.note(&self.space.flash, block, ends);
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

    /// Reads trim records; of copies of one the latest readable stays.
    fn read_trims(
        &mut self,
        records: &[Version],
        window: &Window,
        rescues: &mut Rescues,
    ) -> Result<Vec<FoundTrim>, FtlError> {
        let geometry = self.space.geometry();
        let mut pages = records.to_vec();
        pages.sort_unstable_by_key(|v| std::cmp::Reverse((v.oob.tag.ver, v.oob.pseq)));
        let mut found: Vec<FoundTrim> = Vec::new();
        for at in pages {
            let seq = at.oob.tag.ver;
            if found.last().is_some_and(|known| known.seq == seq) {
                continue;
            }
            let Some(data) = self.read_trusted(&at)? else {
                continue;
            };
            let ranges = trim::decode(&data).unwrap_or_default();
            let Some(range) = ranges.first().copied().filter(|range| self.holds(range)) else {
                self.stats.mount.pages_discarded += 1;
                continue;
            };
            let shaky = window.suspects.is_shaky(at.ppn);
            if shaky {
                rescues.add(&at, data);
                // Should it be lost before it is programmed again, another copy has to be there.
                let copies = window.trims.iter().filter(|v| v.oob.tag.ver == seq);
                rescues
                    .pinned
                    .extend(copies.map(|v| geometry.block_of(v.ppn)));
            }
            found.push(FoundTrim {
                seq,
                at,
                range,
                shaky,
            });
        }
        Ok(found)
    }

    fn holds(&self, range: &TrimRange) -> bool {
        range.count > 0
            && range
                .lpn
                .checked_add(range.count)
                .is_some_and(|end| end <= self.logical_pages)
    }

    /// A page's data, or `None` (counted) if it is lost.
    fn read_trusted(&mut self, version: &Version) -> Result<Option<Vec<u8>>, FtlError> {
        let mut data = vec![0; self.space.geometry().page_bytes as usize];
        let read = self
            .space
            .flash
            .read(version.ppn, &mut data, Cause::Recovery)?;
        self.stats.mount.pages_discarded += read.is_none() as u64;
        Ok(read.map(|_| data))
    }

    /// Reads the newest readable version of a mapping page. It is outdated if a newer one rotted;
    /// of one that a cut may have torn that shows where entries point to pages that are gone.
    fn find_map(
        &mut self,
        vtpn: u32,
        window: &Window,
        trims: &[FoundTrim],
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
            rotten |= !window.suspects.contains(version.ppn);
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
        trims: &[FoundTrim],
    ) -> Result<bool, FtlError> {
        for (index, lpn) in (0..).zip(self.pages_of(vtpn)) {
            let Some(named) = entry_at(page, index) else {
                continue;
            };
            let rewritten = window
                .versions(lpn..lpn + 1)
                .iter()
                .any(|v| v.oob.pseq > upto);
            let trimmed = trims
                .iter()
                .any(|t| t.seq > upto && t.range.lpn <= lpn && lpn - t.range.lpn < t.range.count);
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
        trims: &[FoundTrim],
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
            |t: &&FoundTrim| t.range.lpn < pages.end && pages.start < t.range.lpn + t.range.count;
        let trims: Vec<&FoundTrim> = trims
            .iter()
            .filter(|t| t.seq > upto)
            .filter(overlaps)
            .collect();
        if trims.iter().any(|t| t.shaky) {
            self.pin_untrimmed(vtpn, window, rescues)?;
        }
        // A mapping page trimmed as a whole is gone, unless it was written after the trim.
        newest = newest.filter(|(v, _)| {
            !trims
                .iter()
                .any(|t| v.oob.pseq < t.seq && covers(&t.range, &pages))
        });
        let versions = window.versions(pages.clone());
        match newest {
            Some((version, data)) => {
                self.map_page.copy_from_slice(&data);
                self.directory[vtpn as usize] = version.ppn.raw();
                self.adopt_live(version.ppn)?;
                if window.suspects.is_shaky(version.ppn) {
                    rescues.add(&version, data);
                    let older = window
                        .fallbacks(&window.maps[&vtpn])
                        .chain(window.stable_trims());
                    rescues
                        .pinned
                        .extend(older.map(|ppn| geometry.block_of(ppn)));
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
            .versions(self.pages_of(vtpn))
            .iter()
            .map(|v| v.ppn)
            .collect();
        for ppn in window
            .maps
            .get(&vtpn)
            .into_iter()
            .flat_map(|versions| window.fallbacks(versions))
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
        rescues.pinned.extend(
            needed
                .into_iter()
                .filter(|p| geometry.contains(*p))
                .map(|p| geometry.block_of(p)),
        );
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
        trims: &[&FoundTrim],
        rescues: &mut Rescues,
    ) -> Result<(), FtlError> {
        let mut rest = versions;
        for lpn in pages.clone() {
            let (group, others) = rest.split_at(rest.partition_point(|v| v.oob.tag.lpn == lpn));
            rest = others;
            let named = entry_at(&self.map_page, lpn - pages.start);
            let trim = trims
                .iter()
                .filter(|t| t.range.lpn <= lpn && lpn - t.range.lpn < t.range.count);
            let trim = trim.max_by_key(|t| t.range.ver);
            let news = group.iter().any(|v| v.oob.pseq > upto);
            if !news && trim.is_none() && !group.iter().any(|v| window.suspects.contains(v.ppn)) {
                // The common case: the map knows, and nothing speaks against it.
                let Some(named) = named else { continue };
                // But an outdated mapping page may not know of a trim.
                if !window.whole || self.may_hold(lpn, named)? {
                    self.adopt_live(named)?;
                    self.mapped.set(lpn, true);
                    continue;
                }
            }
            let trimmed = trim.map_or(0, |t| t.range.ver);
            let mut contenders: Vec<Version> = group
                .iter()
                .filter(|v| v.oob.pseq > upto || Some(v.ppn) == named)
                .copied()
                .collect();
            let known = contenders.iter().any(|v| Some(v.ppn) == named);
            // A mapping page older than the trim names nothing newer than the trim.
            let too_old = trim.is_some_and(|t| map_pseq < t.seq);
            // A block that was scanned has shown all it holds.
            let scanned = |ppn: Ppn| {
                window
                    .roles
                    .contains_key(&self.space.geometry().block_of(ppn).raw())
            };
            if let Some(named) = named.filter(|named| !known && !too_old && !scanned(*named)) {
                contenders.extend(self.read_named(lpn, named)?);
            }
            contenders.retain(|v| v.oob.tag.ver > trimmed);
            contenders.sort_unstable_by_key(|v| (v.oob.tag.ver, v.oob.pseq));
            self.adopt_newest(lpn, named, &contenders, window, rescues)?;
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

    /// Takes the newest readable contender, in rising order, for the logical page.
    fn adopt_newest(
        &mut self,
        lpn: u32,
        named: Option<Ppn>,
        contenders: &[Version],
        window: &Window,
        rescues: &mut Rescues,
    ) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        for version in contenders.iter().rev() {
            if window.suspects.contains(version.ppn) {
                // The cut may have torn this page, or left it unstable: read it once, and keep what
                // was read.
                let Some(data) = self.read_trusted(version)? else {
                    continue;
                };
                if window.suspects.is_shaky(version.ppn) {
                    rescues.add(version, data);
                    rescues.pinned.extend(
                        window
                            .fallbacks(contenders)
                            .map(|ppn| geometry.block_of(ppn)),
                    );
                }
            }
            self.adopt_live(version.ppn)?;
            self.mapped.set(lpn, true);
            if Some(version.ppn) != named {
                self.enlist_found(version.ppn);
                self.pending
                    .point(lpn, Some(version.ppn), false, self.first_missing(lpn));
            }
            return Ok(());
        }
        if named.is_some() {
            self.pending
                .point(lpn, None, false, self.first_missing(lpn));
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
    fn adopt_trims(&mut self, trims: Vec<FoundTrim>) -> Result<(), FtlError> {
        for FoundTrim { seq, at, range, .. } in trims {
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

    /// Full blocks become collectable, or are released if nothing in them lives and they are not
    /// pinned; blocks that have to be converted first stay.
    fn settle_blocks(&mut self, pinned: impl Fn(Pbn) -> bool) {
        for block in self.space.geometry().all_blocks() {
            if self.space.table.state(block) != State::Full {
                continue;
            }
            if self.pending.holds(block) && self.settings.buffer_blocks.is_some() {
                continue;
            }
            if self.checkpoints.owns(block) {
                continue;
            }
            if self.space.table.valid(block) > 0 {
                self.space.table.set_collectable(block);
            } else if !pinned(block) {
                self.give_up(block);
            }
        }
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen.
    fn rewrite(&mut self, rescues: &[Rescue]) -> Result<(), FtlError> {
        for rescue in rescues {
            if !self.space.table.is_live(rescue.from) {
                continue;
            }
            self.stats.mount.pages_discarded += 1;
            match self.rewrite_one(rescue) {
                Err(FtlError::ReadOnly(reason)) => {
                    self.gc.set_read_only(reason);
                    return Ok(());
                }
                other => other?,
            }
        }
        self.space.make_safe()
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

    fn rewrite_one(&mut self, rescue: &Rescue) -> Result<(), FtlError> {
        let tag = PageTag {
            flags: rescue.tag.flags.with(Flags::COPY),
            ..rescue.tag
        };
        let stream = if matches!(tag.role, Role::Map | Role::Trim) {
            MAP
        } else {
            COLD
        };
        if self.space.room(stream) == 0 {
            self.space.reclaim(Cause::Recovery)?;
        }
        let seq = self.space.flash.pseq() + 1;
        match tag.role {
            Role::Map => {
                let (to, _) = self
                    .space
                    .append(MAP, &[tag], &rescue.data, Cause::Recovery)?;
                self.set_directory(tag.lpn, Some(to));
            }
            Role::Trim => {
                let (to, _) = self
                    .space
                    .append(MAP, &[tag], &rescue.data, Cause::Recovery)?;
                self.trims.moved(tag.ver, to);
                self.space.table.clear_live(rescue.from);
            }
            _ => {
                let tag = PageTag {
                    role: self.settings.copy_role,
                    ..tag
                };
                let (to, _) = self
                    .space
                    .append(COLD, &[tag], &rescue.data, Cause::Recovery)?;
                self.enlist_block_of(to);
                self.pending.point(tag.lpn, Some(to), false, seq);
                self.space.table.clear_live(rescue.from);
            }
        }
        Ok(())
    }
}
