//! Checkpoints of the map, and mount.
//!
//! Mount: read the head of every block; load the newest complete checkpoint; read every record of
//! the blocks opened since (all blocks if there is none); give each logical page its newest
//! readable version; make safe again what the cut may have left unstable; rebuild counts. If power
//! fails during a mount, the next one does the same: a mount only adds copies of pages it keeps,
//! and erases only blocks without live pages.
//!
//! A map chunk reaches up to program `upto` and to versions below `ver`: data with a larger `pseq`
//! is newer than the chunk or a copy of what it names; a trim of at least that version is newer. (A
//! trim's `pseq` says nothing: its record may be a copy.)

use super::trims::Record;
use super::{HOST, PageMapFtl, UNMAPPED};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::checkpoint::{Checkpoints, Found};
use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{COUNTER_FOUND_MAX, Role};
use crate::gc::Collect;
use crate::recovery::{
    Claim, Evidence, FoundTrim, Head, Rescue, Rescuer, Rescues, Version, read_trims, resolve,
    scan_block, scan_heads,
};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Geometry, Pbn, Ppn, Store};
use std::collections::{HashMap, HashSet};

/// A checkpoint being written: its head as composed at the beginning, then the map in chunks as it
/// is when their turn comes.
pub(super) struct MapWriter {
    head: Vec<u8>,
    clean: bool,
}

/// What a checkpoint's head says.
struct CheckpointHead {
    /// Written at shutdown, nothing programmed after it by that run.
    clean: bool,
    /// Programs before this number are contained.
    begin_pseq: u64,
    /// Blocks opened from this number on may hold newer pages.
    begin_epoch: u64,
    next_ver: u64,
    logical_pages: u32,
    /// Blocks that were being filled.
    open: Vec<u32>,
    /// Live trim records.
    trims: Vec<(Ppn, Record)>,
    /// Blocks known to be erased.
    free: Vec<u32>,
}

impl CheckpointHead {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |n: u64| out.extend(n.to_le_bytes());
        [
            self.clean as u64,
            self.begin_pseq,
            self.begin_epoch,
            self.next_ver,
            self.logical_pages as u64,
        ]
        .into_iter()
        .for_each(&mut put);
        for list in [&self.open, &self.free] {
            put(list.len() as u64);
            list.iter().for_each(|block| put(*block as u64));
        }
        put(self.trims.len() as u64);
        self.trims.iter().for_each(|(ppn, record)| {
            [ppn.raw() as u64, record.ver, record.contained_in]
                .into_iter()
                .for_each(&mut put);
        });
        out
    }

    fn decode(bytes: &[u8]) -> Option<CheckpointHead> {
        let mut words = bytes
            .chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        let available = bytes.len() / 8;
        let mut next = || words.next();
        let (clean, begin_pseq, begin_epoch, next_ver) = (next()? == 1, next()?, next()?, next()?);
        let logical_pages = u32::try_from(next()?).ok()?;
        let mut blocks = || -> Option<Vec<u32>> {
            let len = usize::try_from(next()?).ok().filter(|n| *n <= available)?;
            (0..len).map(|_| u32::try_from(next()?).ok()).collect()
        };
        let (open, free) = (blocks()?, blocks()?);
        let len = usize::try_from(next()?).ok().filter(|n| *n <= available)?;
        let mut trim = || -> Option<(Ppn, Record)> {
            Some((
                Ppn::new(u32::try_from(next()?).ok()?),
                Record {
                    ver: next()?,
                    contained_in: next()?,
                },
            ))
        };
        let trims = (0..len).map(|_| trim()).collect::<Option<_>>()?;
        Some(CheckpointHead {
            clean,
            begin_pseq,
            begin_epoch,
            next_ver,
            logical_pages,
            open,
            trims,
            free,
        })
    }
}

impl MapWriter {
    fn map_chunks(geometry: &Geometry, logical_pages: u32) -> u32 {
        logical_pages.div_ceil(Self::entries(geometry))
    }

    /// Map entries per chunk.
    fn entries(geometry: &Geometry) -> u32 {
        (Checkpoints::chunk_bytes(geometry) - CHUNK_VER) as u32 / 4
    }

    /// Pages of a checkpoint, with room for a typical head.
    pub(super) fn chunks(geometry: &Geometry, logical_pages: u32) -> u32 {
        Self::map_chunks(geometry, logical_pages) + 1
    }
}

/// Bytes in front of a map chunk's entries: the version from which on it knows nothing.
const CHUNK_VER: usize = 8;

/// Chunks written per host program while a checkpoint is under way.
const CHUNKS_PER_PROGRAM: u32 = 1;

impl<S: Store> PageMapFtl<S> {
    /// Called after `programs` host programs: begins a checkpoint when one is due, and writes its
    /// chunks a few at a time.
    #[inline]
    pub(super) fn advance_checkpoint(&mut self, programs: u32) -> Result<(), FtlError> {
        if self.map.map_writer.is_some() || self.checkpoint_due() {
            self.write_chunks(programs)
        } else {
            Ok(())
        }
    }

    #[inline]
    fn checkpoint_due(&self) -> bool {
        let interval = self.map.settings.checkpoint_interval;
        let aged = interval > 0 && self.space.flash.pseq() - self.map.last_checkpoint >= interval;
        // Trim records live until checkpoints contain them: without any, they would fill the flash.
        aged || self.gc.wants_checkpoint
            || self.map.trims.checkpoint_due(self.checkpoints.next_id())
    }

    #[cold]
    fn write_chunks(&mut self, programs: u32) -> Result<(), FtlError> {
        if self.map.map_writer.is_none() {
            self.gc.wants_checkpoint = false;
            self.begin_checkpoint(false)?;
        }
        for _ in 0..programs * CHUNKS_PER_PROGRAM {
            if self.map.map_writer.is_some() {
                self.write_chunk()?;
            }
        }
        Ok(())
    }

    /// Writes a checkpoint at once; the device is idle and stays so.
    pub(super) fn write_whole_checkpoint(&mut self) -> Result<(), FtlError> {
        if self.map.settings.checkpoint_interval == 0 {
            return Ok(());
        }
        while self.map.map_writer.is_some() {
            self.write_chunk()?;
        }
        // Room for all of it first: what collection programs after the beginning would make the
        // next mount scan.
        let geometry = self.space.geometry();
        let pages = MapWriter::chunks(&geometry, self.map.entries.len() as u32);
        self.collect_until(self.gc.threshold + 2 + pages.div_ceil(geometry.pages_per_block))?;
        self.level_wear()?;
        self.begin_checkpoint(true)?;
        while self.map.map_writer.is_some() {
            self.write_chunk()?;
        }
        Ok(())
    }

    fn begin_checkpoint(&mut self, clean: bool) -> Result<(), FtlError> {
        self.make_room(super::CHECKPOINT)?;
        if clean {
            // Mount never continues a block, so it need not look into these again.
            (0..=super::GC).try_for_each(|stream| self.space.seal(stream))?;
        }
        let open = (0..=super::GC)
            .filter_map(|stream| self.space.open_block(stream))
            .map(|(block, _)| block.raw());
        let head = CheckpointHead {
            clean,
            begin_pseq: self.space.flash.pseq(),
            begin_epoch: self.space.next_epoch(),
            next_ver: self.next_ver,
            logical_pages: self.map.entries.len() as u32,
            open: open.collect(),
            trims: self.map.trims.iter().collect(),
            free: if clean {
                self.space.confirmed_free()
            } else {
                Vec::new()
            },
        }
        .encode();
        let geometry = self.space.geometry();
        let head_chunks = head.len().div_ceil(Checkpoints::chunk_bytes(&geometry)) as u32;
        let total = head_chunks + MapWriter::map_chunks(&geometry, self.map.entries.len() as u32);
        self.checkpoints.begin(&mut self.space, total)?;
        self.map.last_checkpoint = self.space.flash.pseq();
        self.map.map_writer = Some(MapWriter { head, clean });
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<(), FtlError> {
        // Room for a clean checkpoint was made before it began: what is moved now would be newer
        // than it.
        if self
            .map
            .map_writer
            .as_ref()
            .is_some_and(|writer| !writer.clean)
        {
            self.make_room(super::CHECKPOINT)?;
        }
        let geometry = self.space.geometry();
        let size = Checkpoints::chunk_bytes(&geometry);
        let writer = self
            .map
            .map_writer
            .as_ref()
            .expect("a checkpoint is under way");
        let number = self.checkpoints.next_chunk().expect("a set is under way") as usize;
        let head_chunks = writer.head.len().div_ceil(size);
        let payload: Vec<u8> = if number < head_chunks {
            writer
                .head
                .chunks(size)
                .nth(number)
                .expect("counted above")
                .to_vec()
        } else {
            let entries = MapWriter::entries(&geometry) as usize;
            let part = self
                .map
                .entries
                .chunks(entries)
                .nth(number - head_chunks)
                .expect("counted at the beginning");
            let entries = part.iter().flat_map(|ppn| ppn.to_le_bytes());
            self.next_ver
                .to_le_bytes()
                .into_iter()
                .chain(entries)
                .collect()
        };
        let upto = self.space.flash.pseq();
        if self
            .checkpoints
            .write(&mut self.space, &payload, upto)?
            .is_some()
        {
            self.map.map_writer = None;
            self.stats.checkpoints += 1;
            let kept = &self.checkpoints;
            for ppn in self.map.trims.expire(|set| kept.both_since(set)) {
                self.space.table.clear_live(ppn);
            }
        }
        Ok(())
    }

    /// Finds what an earlier run left.
    pub(super) fn mount(&mut self) -> Result<(), FtlError> {
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let base = self.load_checkpoint(&heads, &mut scanned)?;
        self.end_step("load checkpoint");
        let window = self.scan_window(&heads, &base, &mut scanned)?;
        self.end_step("scan window");
        self.adopt_blocks(&heads, &base, &window);
        let mut rescues = self.resolve(&base, &window)?;
        self.end_step("resolve versions");
        self.stats.mount.pages_scanned = scanned;
        self.stats.mount.clean = base.clean && !window.touched;
        self.space.check_counters(self.next_ver)?;
        self.space.begin_mount();
        self.settle_blocks(&rescues, true);
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        let rewritten = self.rewrite_suspects(&mut rescues);
        self.end_step("rewrite suspects");
        match rewritten.and_then(|()| self.refill_pool()) {
            // Reading goes on.
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            other => other?,
        }
        self.space.end_mount()?;
        self.end_step("refill pool");
        self.map.last_checkpoint = self.space.flash.pseq();
        Ok(())
    }

    /// Every mount after a cut gives up the rest of the blocks that were open. Were they collected
    /// only when the host writes, cuts in a row would use the free blocks up.
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean {
            return Ok(());
        }
        self.collect_until(self.gc.threshold + 1)
    }

    fn load_checkpoint(&mut self, heads: &[Head], scanned: &mut u64) -> Result<Base, FtlError> {
        let found = self.checkpoints.load(&mut self.space, heads, scanned)?;
        let mut base = Base::default();
        if let Some(newest) = found.last() {
            base = self.read_base(newest)?;
            base.clean &= self.checkpoints.next_id() == newest.id + 1;
        }
        Ok(base)
    }

    fn read_base(&mut self, set: &Found) -> Result<Base, FtlError> {
        let geometry = self.space.geometry();
        let entries = MapWriter::entries(&geometry) as usize;
        let map_chunks = MapWriter::map_chunks(&geometry, self.map.entries.len() as u32) as usize;
        let damaged = |what: &str| FtlError::Corrupt(format!("checkpoint {}: {what}", set.id));
        let head_chunks = set
            .chunks
            .len()
            .checked_sub(map_chunks)
            .ok_or_else(|| damaged("too few chunks"))?;
        let head: Vec<u8> = set.chunks[..head_chunks]
            .iter()
            .flat_map(|(payload, _)| payload.clone())
            .collect();
        let head = CheckpointHead::decode(&head).ok_or_else(|| damaged("unreadable head"))?;
        if head.logical_pages as usize != self.map.entries.len() {
            return Err(damaged("made for another size"));
        }
        let counters = [head.begin_pseq, head.begin_epoch, head.next_ver];
        if head.begin_epoch == 0
            || counters
                .into_iter()
                .any(|counter| counter > COUNTER_FOUND_MAX)
        {
            return Err(damaged("it counts as no device does"));
        }
        let mut reach = Vec::with_capacity(map_chunks);
        for (part, (payload, upto)) in self
            .map
            .entries
            .chunks_mut(entries)
            .zip(&set.chunks[head_chunks..])
        {
            let Some((ver, payload)) = payload
                .split_first_chunk()
                .filter(|(_, rest)| rest.len() == part.len() * 4)
            else {
                return Err(damaged("a chunk has the wrong length"));
            };
            for (entry, bytes) in part.iter_mut().zip(payload.chunks_exact(4)) {
                *entry = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
                if *entry != UNMAPPED && !geometry.contains(Ppn::new(*entry)) {
                    return Err(damaged("it names a page that does not exist"));
                }
            }
            reach.push(Reach {
                upto: *upto,
                ver: u64::from_le_bytes(*ver),
            });
        }
        self.next_ver = head.next_ver;
        self.space.flash.saw_pseq(head.begin_pseq);
        self.space.saw_epoch(head.begin_epoch - 1);
        Ok(Base {
            clean: head.clean,
            begin_epoch: head.begin_epoch,
            open: head.open.into_iter().collect(),
            free: head.free.into_iter().collect(),
            trims: head.trims,
            reach,
            entries,
        })
    }

    /// Reads every record of the blocks that may hold pages newer than the checkpoint.
    fn scan_window(
        &mut self,
        heads: &[Head],
        base: &Base,
        scanned: &mut u64,
    ) -> Result<Window, FtlError> {
        let mut window = Window::default();
        let mut trim_pages: Vec<Version> = Vec::new();
        let mut unseen: HashSet<Pbn> = HashSet::new();
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            let Head::Found {
                role,
                epoch,
                pseq,
                intact,
                ..
            } = *head
            else {
                continue;
            };
            self.space.saw_epoch(epoch);
            self.space.flash.saw_pseq(pseq);
            let newer = epoch >= base.begin_epoch || base.open.contains(&block.raw());
            let is_checkpoint = role == Role::Checkpoint;
            // A page 0 that an earlier cut took stays lost: such a block is looked into, and may be
            // old all the same.
            window.touched |= newer && !is_checkpoint;
            if !newer && intact {
                unseen.insert(block);
                continue;
            }
            let ends = scan_block(&mut self.space.flash, block, scanned, |ppn, oob| match oob
                .tag
                .role
            {
                Role::Data if !is_checkpoint => window.evidence.add(Version { oob, ppn }),
                Role::Trim if !is_checkpoint => trim_pages.push(Version { oob, ppn }),
                _ => {}
            })?;
            let suspects = &mut window.evidence.suspects;
            suspects.note(&self.space.flash, block, ends);
        }
        if base.clean && !window.touched {
            window.evidence.suspects.assume_stable();
        }
        window.evidence.sort();
        let older = base.trims.iter().map(|(ppn, _)| *ppn);
        for ppn in older {
            let geometry = self.space.geometry();
            if !geometry.contains(ppn) || !unseen.contains(&geometry.block_of(ppn)) {
                continue;
            }
            // A record that was moved or erased since shows as something else, and its copy was
            // found above.
            if let Some(oob) = self
                .space
                .flash
                .read_oob(ppn, Cause::Recovery)?
                .filter(|o| o.tag.role == Role::Trim)
            {
                trim_pages.push(Version { oob, ppn });
            }
        }
        let suspects = &window.evidence.suspects;
        let discarded = &mut self.stats.mount.pages_discarded;
        let decode = |_: &Version, data: &[u8]| trim::decode(data);
        window.trims = read_trims(&mut self.space, trim_pages, suspects, discarded, decode)?;
        for trim in &window.trims {
            self.next_ver = self.next_ver.max(trim.at.oob.tag.ver + 1);
        }
        Ok(window)
    }

    /// Gives every block its state and role; live pages come later.
    fn adopt_blocks(&mut self, heads: &[Head], base: &Base, window: &Window) {
        let clean = base.clean && !window.touched;
        for (block, head) in (0..).map(Pbn::new).zip(heads) {
            match *head {
                Head::Factory => {}
                Head::Nothing => self
                    .space
                    .add_free(block, clean && base.free.contains(&block.raw())),
                Head::Found { role, epoch, .. } => self.space.adopt_full(block, role, epoch),
            }
        }
    }

    /// Gives each logical page its newest readable version. Returns the pages to be written again.
    fn resolve(&mut self, base: &Base, window: &Window) -> Result<Rescues, FtlError> {
        let mut rescues = Rescues::default();
        for trim in &window.trims {
            self.pin_trimmed(trim, window, &mut rescues);
        }
        self.apply_trims_to_base(base, window);
        let groups = window.evidence.all();
        for group in groups.chunk_by(|a, b| a.oob.tag.lpn == b.oob.tag.lpn) {
            let lpn = group[0].oob.tag.lpn;
            if lpn as usize >= self.map.entries.len() {
                break;
            }
            self.next_ver = self.next_ver.max(group[group.len() - 1].oob.tag.ver + 1);
            let named = Some(self.map.entries[lpn as usize]).filter(|ppn| *ppn != UNMAPPED);
            let claim = Claim {
                reach: base.reach(lpn as usize).upto,
                named: named.map(Ppn::new),
                record: None,
                trimmed_at: window.trimmed_at(lpn).unwrap_or(0),
            };
            let (space, discarded) = (&mut self.space, &mut self.stats.mount.pages_discarded);
            let evidence = &window.evidence;
            if let Some(ppn) = resolve(space, evidence, &claim, group, &mut rescues, discarded)? {
                self.map.entries[lpn as usize] = ppn.raw();
            }
        }
        self.drop_dangling(base, window);
        for index in 0..self.map.entries.len() {
            if self.map.entries[index] != UNMAPPED {
                self.map.mapped += 1;
                self.adopt_live(Ppn::new(self.map.entries[index]))?;
            }
        }
        self.adopt_trims(base, window, &mut rescues)?;
        Ok(rescues)
    }

    /// A trim may yet be lost: keeps everything that it gave up, and its other copies.
    fn pin_trimmed(
        &self,
        trim: &FoundTrim<Vec<TrimRange>>,
        window: &Window,
        rescues: &mut Rescues,
    ) {
        if trim.shaky.is_none() {
            return;
        }
        let covered = |lpn: u32| {
            let ranges = trim.content.iter();
            ranges
                .clone()
                .any(|r| r.lpn <= lpn && lpn - r.lpn < r.count)
        };
        let newer = window.evidence.all().iter();
        let newer = newer.filter(|v| covered(v.oob.tag.lpn)).map(|v| v.ppn);
        let older = (0..)
            .zip(&self.map.entries)
            .filter(|(lpn, ppn)| covered(*lpn) && **ppn != UNMAPPED)
            .map(|(_, ppn)| Ppn::new(*ppn));
        let geometry = self.space.geometry();
        let copies = trim.copies.iter().copied();
        rescues.pin(&geometry, newer.chain(older).chain(copies));
    }

    /// A page has one owner, in a block that holds something.
    fn adopt_live(&mut self, ppn: Ppn) -> Result<(), FtlError> {
        let block = self.space.geometry().block_of(ppn);
        let table = &self.space.table;
        if table.is_live(ppn)
            || table.state(block) != State::Full
            || table.role(block) == Role::Checkpoint
        {
            return Err(FtlError::Corrupt(format!(
                "page {ppn} has two owners, or its block holds no data"
            )));
        }
        self.space.table.set_live(ppn);
        Ok(())
    }

    fn apply_trims_to_base(&mut self, base: &Base, window: &Window) {
        for range in window.trim_ranges() {
            for lpn in range.lpn
                ..range
                    .lpn
                    .saturating_add(range.count)
                    .min(self.map.entries.len() as u32)
            {
                if range.ver >= base.reach(lpn as usize).ver {
                    self.map.entries[lpn as usize] = UNMAPPED;
                }
            }
        }
    }

    /// The checkpoint's entries that point into blocks used again since: their page was rewritten,
    /// and that version is torn or was never acknowledged as safe. Such entries cannot be; if one
    /// is, reading it must fail rather than tell another's data.
    fn drop_dangling(&mut self, base: &Base, window: &Window) {
        if base.reach.is_empty() {
            return;
        }
        let seen: HashMap<u32, u32> = window
            .evidence
            .all()
            .iter()
            .map(|v| (v.ppn.raw(), v.oob.tag.lpn))
            .collect();
        for lpn in 0..self.map.entries.len() {
            let entry = self.map.entries[lpn];
            if entry == UNMAPPED {
                continue;
            }
            let block = self.space.geometry().block_of(Ppn::new(entry));
            let in_window = self.space.table.epoch(block) >= base.begin_epoch;
            let blank = self.space.table.state(block) != State::Full;
            if blank || (in_window && seen.get(&entry) != Some(&(lpn as u32))) {
                self.map.entries[lpn] = UNMAPPED;
                self.stats.mount.pages_discarded += 1;
            }
        }
    }

    fn adopt_trims(
        &mut self,
        base: &Base,
        window: &Window,
        rescues: &mut Rescues,
    ) -> Result<(), FtlError> {
        let known: HashMap<u64, Record> = base
            .trims
            .iter()
            .map(|(_, record)| (record.ver, *record))
            .collect();
        for FoundTrim { at, shaky, .. } in &window.trims {
            let unknown = Record {
                ver: at.oob.tag.ver,
                contained_in: self.checkpoints.next_id(),
            };
            let record = known.get(&at.oob.tag.ver).copied().unwrap_or(unknown);
            if self.checkpoints.both_since(record.contained_in) {
                continue;
            }
            self.map.trims.add(at.ppn, record);
            self.adopt_live(at.ppn)?;
            if let Some(data) = shaky {
                rescues.add(at, data.clone());
            }
        }
        Ok(())
    }

    fn settle_blocks(&mut self, rescues: &Rescues, pinned_wait: bool) {
        let dead =
            rescues.settle_blocks(&mut self.space, &self.checkpoints, pinned_wait, |_| false);
        dead.into_iter().for_each(|block| self.space.release(block));
    }

    /// Programs again what the cut may have left unstable, so that it stays what this mount has
    /// seen; then gives up what had to wait for that.
    fn rewrite_suspects(&mut self, rescues: &mut Rescues) -> Result<(), FtlError> {
        self.stats.mount.pages_discarded += rescues.program(self)?;
        self.settle_blocks(rescues, false);
        Ok(())
    }
}

impl<S: Store> Rescuer<S> for PageMapFtl<S> {
    fn space(&mut self) -> &mut Space<S> {
        &mut self.space
    }

    fn copies_of(&self, role: Role) -> (StreamId, Role) {
        (HOST, role)
    }

    fn copied(&mut self, rescue: &Rescue, to: Ppn, _: u64) {
        if rescue.tag.role == Role::Trim {
            self.map.trims.moved(rescue.from, to);
            self.space.table.clear_live(rescue.from);
        } else {
            self.set_map(Lpn::new(rescue.tag.lpn), Some(to));
        }
    }
}

/// The newest complete checkpoint, beside the map that was loaded from it. Without one, everything
/// is news.
#[derive(Default)]
struct Base {
    clean: bool,
    begin_epoch: u64,
    open: HashSet<u32>,
    free: HashSet<u32>,
    trims: Vec<(Ppn, Record)>,
    /// How far each map chunk reaches.
    reach: Vec<Reach>,
    entries: usize,
}

impl Base {
    fn reach(&self, lpn: usize) -> Reach {
        if self.reach.is_empty() {
            Reach::default()
        } else {
            self.reach[lpn / self.entries]
        }
    }
}

/// What a map chunk contains: programs up to `upto`, versions below `ver`.
#[derive(Clone, Copy, Default)]
struct Reach {
    upto: u64,
    ver: u64,
}

/// What the blocks hold that are newer than the checkpoint.
#[derive(Default)]
struct Window {
    evidence: Evidence,
    trims: Vec<FoundTrim<Vec<TrimRange>>>,
    /// Whether any block but checkpoints was used after the checkpoint began.
    touched: bool,
}

impl Window {
    fn trim_ranges(&self) -> impl Iterator<Item = TrimRange> {
        self.trims
            .iter()
            .flat_map(|trim| trim.content.iter().copied())
    }

    /// The newest version from which on the page is trimmed.
    fn trimmed_at(&self, lpn: u32) -> Option<u64> {
        let covers = |range: &TrimRange| range.lpn <= lpn && lpn - range.lpn < range.count;
        self.trim_ranges()
            .filter(covers)
            .map(|range| range.ver)
            .max()
    }
}
