//! The two maps: the UMT in RAM over the update and cold blocks, the GMT on flash behind its directory and cache.
//!
//! An entry is *dirty* while its update flag is set: the GMT does not contain it yet. Dirty entries are also kept per mapping page, so
//! that a conversion finds what it can write in passing without a search; and counted per block and mapping page, so that
//! every block knows its convert cost.

use super::Lazy;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::hash::FastMap;
use nand_model::{Cause, Geometry, Pbn, Ppn, Store};

/// What the UMT says of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    ppn: u32,
    /// The GMT has still to be told.
    pub(super) update: bool,
    /// The page that the GMT names is still counted as live.
    pub(super) invalidate: bool,
}

impl Entry {
    /// Where the page is; `None` for a tombstone.
    #[inline]
    pub(super) fn ppn(&self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }
}

/// An update or cold block, open or filled, that is not converted yet.
#[derive(Clone, Debug)]
pub(super) struct BufferBlock {
    pub(super) epoch: u64,
    /// Logical page per programmed page.
    lpns: Vec<u32>,
    /// Distinct mapping pages of its dirty entries: what converting it would write.
    pub(super) cost: u32,
}

/// The dirty entries of one mapping page.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    pub(super) lpns: Vec<u32>,
    /// No change before this program is missing from the mapping page on flash.
    pub(super) since: u64,
}

/// The update mapping table with its reverse indexes.
pub(super) struct Umt {
    geometry: Geometry,
    /// Entries per mapping page.
    per_page: u32,
    entries: FastMap<u32, Entry>,
    dirty: FastMap<u32, Dirty>,
    /// Dirty entries by block and mapping page.
    counts: FastMap<(u32, u32), u32>,
    blocks: FastMap<u32, BufferBlock>,
    tombstones: u32,
}

impl Umt {
    pub(super) fn new(geometry: Geometry) -> Self {
        Umt {
            geometry,
            per_page: geometry.page_bytes / 4,
            entries: FastMap::default(),
            dirty: FastMap::default(),
            counts: FastMap::default(),
            blocks: FastMap::default(),
            tombstones: 0,
        }
    }

    #[inline]
    pub(super) fn get(&self, lpn: u32) -> Option<Entry> {
        self.entries.get(&lpn).copied()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, Entry)> {
        self.entries.iter().map(|(lpn, entry)| (*lpn, *entry))
    }

    pub(super) fn tombstones(&self) -> u32 {
        self.tombstones
    }

    pub(super) fn dirty(&self, vtpn: u32) -> Option<&Dirty> {
        self.dirty.get(&vtpn)
    }

    /// Mapping pages with dirty entries, ascending.
    pub(super) fn dirty_pages(&self) -> Vec<u32> {
        let mut pages: Vec<u32> = self.dirty.keys().copied().collect();
        pages.sort_unstable();
        pages
    }

    /// The mapping page with the most dirty entries.
    pub(super) fn dirtiest(&self) -> Option<u32> {
        self.dirty.iter().max_by_key(|(vtpn, dirty)| (dirty.lpns.len(), **vtpn)).map(|(vtpn, _)| *vtpn)
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (Pbn, &BufferBlock)> {
        self.blocks.iter().map(|(block, buffer)| (Pbn::new(*block), buffer))
    }

    pub(super) fn holds(&self, block: Pbn) -> bool {
        self.blocks.contains_key(&block.raw())
    }

    pub(super) fn block_count(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// A block joins the update or cold area.
    pub(super) fn enlist(&mut self, block: Pbn, epoch: u64) {
        let lpns = Vec::with_capacity(self.geometry.pages_per_block as usize);
        let known = self.blocks.insert(block.raw(), BufferBlock { epoch, lpns, cost: 0 });
        assert!(known.is_none(), "block {block} is enlisted twice");
    }

    /// Points a logical page at its new place, or nowhere, and returns what was said before. The update flag is set; the
    /// invalidate flag is inherited, or else `fresh`. `seq` is not larger than the number of the program behind the change.
    pub(super) fn point(&mut self, lpn: u32, to: Option<Ppn>, fresh: bool, seq: u64) -> Option<Entry> {
        let vtpn = lpn / self.per_page;
        let old = self.get(lpn);
        let entry = Entry {
            ppn: to.map_or(UNMAPPED, Ppn::raw),
            update: true,
            invalidate: old.map_or(fresh, |old| old.invalidate),
        };
        self.entries.insert(lpn, entry);
        if let Some(old) = old {
            self.uncount(old, vtpn);
        }
        if !old.is_some_and(|old| old.update) {
            self.dirty.entry(vtpn).or_insert(Dirty { lpns: Vec::new(), since: seq }).lpns.push(lpn);
        }
        match to {
            Some(ppn) => self.count(ppn, lpn, vtpn),
            None => self.tombstones += 1,
        }
        old
    }

    fn count(&mut self, ppn: Ppn, lpn: u32, vtpn: u32) {
        let (block, offset) = (self.geometry.block_of(ppn).raw(), self.geometry.offset_of(ppn) as usize);
        let buffer = self.blocks.get_mut(&block).expect("a new page lies in an enlisted block");
        if buffer.lpns.len() <= offset {
            buffer.lpns.resize(offset + 1, UNMAPPED);
        }
        buffer.lpns[offset] = lpn;
        let count = self.counts.entry((block, vtpn)).or_insert(0);
        *count += 1;
        buffer.cost += (*count == 1) as u32;
    }

    /// An entry is no longer dirty, or no longer there.
    fn uncount(&mut self, old: Entry, vtpn: u32) {
        let Some(ppn) = old.ppn() else {
            self.tombstones -= 1;
            return;
        };
        if !old.update {
            return;
        }
        let block = self.geometry.block_of(ppn).raw();
        let count = self.counts.get_mut(&(block, vtpn)).expect("dirty entries are counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&(block, vtpn));
            self.blocks.get_mut(&block).expect("dirty pages lie in enlisted blocks").cost -= 1;
        }
    }

    /// The page that the GMT names for this logical page is gone: do not invalidate it again.
    pub(super) fn clear_invalidate(&mut self, lpn: u32) {
        self.entries.get_mut(&lpn).expect("an overwritten page is in the UMT").invalidate = false;
    }

    /// The GMT contains these changes now; `left` are still missing.
    pub(super) fn clean(&mut self, vtpn: u32, written: &[u32], left: Vec<u32>) {
        for &lpn in written {
            let old = self.get(lpn).expect("dirty entries are in the UMT");
            self.uncount(old, vtpn);
            match old.ppn() {
                Some(_) => self.entries.insert(lpn, Entry { update: false, invalidate: false, ..old }),
                None => self.entries.remove(&lpn),
            };
        }
        if left.is_empty() {
            self.dirty.remove(&vtpn);
        } else {
            self.dirty.get_mut(&vtpn).expect("some entries are left").lpns = left;
        }
    }

    /// A whole mapping page was trimmed: nothing in it is dirty any more. The entries follow one by one.
    pub(super) fn forget(&mut self, lpn: u32) -> Option<Entry> {
        let old = self.entries.remove(&lpn)?;
        self.uncount(old, lpn / self.per_page);
        Some(old)
    }

    /// See [`Umt::forget`].
    pub(super) fn forget_dirty(&mut self, vtpn: u32) {
        self.dirty.remove(&vtpn);
    }

    /// Mapping pages to be written before this block can be converted, ascending.
    pub(super) fn pages_to_write(&self, block: Pbn) -> Vec<u32> {
        let mut pages: Vec<u32> =
            self.tracked(block).filter(|(_, entry)| entry.update).map(|(lpn, _)| lpn / self.per_page).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Entries that point into a block.
    fn tracked(&self, block: Pbn) -> impl Iterator<Item = (u32, Entry)> {
        let lpns = self.blocks.get(&block.raw()).map_or(&[][..], |buffer| &buffer.lpns);
        lpns.iter().enumerate().filter_map(move |(offset, &lpn)| {
            let here = self.geometry.page(block, offset as u32).raw();
            self.get(lpn).filter(|entry| entry.ppn == here).map(|entry| (lpn, entry))
        })
    }

    /// The block leaves the update and cold area; every entry of it is in the GMT.
    pub(super) fn retire(&mut self, block: Pbn) {
        let gone: Vec<(u32, Entry)> = self.tracked(block).collect();
        for (lpn, entry) in gone {
            assert!(!entry.update, "logical page {lpn} would be lost");
            self.entries.remove(&lpn);
        }
        let buffer = self.blocks.remove(&block.raw()).expect("only enlisted blocks are converted");
        assert_eq!(buffer.cost, 0, "block {block} has uncounted dirty entries");
    }

    /// The logical page that was written here, if the block is not converted yet.
    pub(super) fn lpn_at(&self, ppn: Ppn) -> Option<u32> {
        let buffer = self.blocks.get(&self.geometry.block_of(ppn).raw())?;
        buffer.lpns.get(self.geometry.offset_of(ppn) as usize).copied().filter(|lpn| *lpn != UNMAPPED)
    }

    /// Compares the indexes with the entries; one line per difference.
    pub(super) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut counts: FastMap<(u32, u32), u32> = FastMap::default();
        let mut dirty: FastMap<u32, Vec<u32>> = FastMap::default();
        let mut tombstones = 0;
        for (lpn, entry) in self.entries() {
            let vtpn = lpn / self.per_page;
            tombstones += entry.ppn().is_none() as u32;
            if entry.update {
                dirty.entry(vtpn).or_default().push(lpn);
                if let Some(ppn) = entry.ppn() {
                    *counts.entry((self.geometry.block_of(ppn).raw(), vtpn)).or_default() += 1;
                }
            }
            if entry.ppn().is_none() && !entry.update {
                wrong.push(format!("the tombstone of logical page {lpn} is not dirty"));
            }
        }
        if counts != self.counts || tombstones != self.tombstones {
            wrong.push(format!("convert costs differ, or {tombstones} tombstones are not {}", self.tombstones));
        }
        for (block, buffer) in self.blocks() {
            let cost = counts.keys().filter(|(b, _)| *b == block.raw()).count() as u32;
            if cost != buffer.cost {
                wrong.push(format!("converting block {block} costs {cost}, not {}", buffer.cost));
            }
        }
        if dirty.len() != self.dirty.len() {
            wrong.push(format!("{} mapping pages are dirty, {} are listed", dirty.len(), self.dirty.len()));
        }
        for (vtpn, mut lpns) in dirty {
            let mut listed = self.dirty.get(&vtpn).map_or(Vec::new(), |d| d.lpns.clone());
            lpns.sort_unstable();
            listed.sort_unstable();
            if lpns != listed {
                wrong.push(format!("mapping page {vtpn}: dirty entries and their list differ"));
            }
        }
        wrong
    }

    /// Entries, and bytes really allocated: table, and the indexes beside it.
    pub(super) fn bytes(&self) -> (u64, u64, u64) {
        let map = |capacity: usize, entry: usize| (capacity * 8 / 7 * (entry + 1)) as u64;
        let lists: usize = self.dirty.values().map(|dirty| 4 * dirty.lpns.capacity()).sum();
        let reverse: usize = self.blocks.values().map(|buffer| 4 * buffer.lpns.capacity()).sum();
        let indexes = map(self.dirty.capacity(), 4 + std::mem::size_of::<Dirty>())
            + map(self.counts.capacity(), 12)
            + map(self.blocks.capacity(), 4 + std::mem::size_of::<BufferBlock>());
        let table = map(self.entries.capacity(), 4 + std::mem::size_of::<Entry>());
        (self.entries.len() as u64, table, indexes + (lists + reverse) as u64)
    }
}

/// One bit per logical page: whether it holds data.
pub(super) struct Mapped {
    bits: Vec<u64>,
    count: u64,
}

impl Mapped {
    pub(super) fn new(logical_pages: u32) -> Self {
        Mapped { bits: vec![0; (logical_pages as usize).div_ceil(64)], count: 0 }
    }

    #[inline]
    pub(super) fn has(&self, lpn: u32) -> bool {
        self.bits[lpn as usize / 64] >> (lpn % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn set(&mut self, lpn: u32, mapped: bool) {
        if self.has(lpn) != mapped {
            self.bits[lpn as usize / 64] ^= 1 << (lpn % 64);
            self.count = if mapped { self.count + 1 } else { self.count - 1 };
        }
    }

    /// Whether any of the pages holds data.
    pub(super) fn any(&self, mut pages: std::ops::Range<u32>) -> bool {
        pages.any(|lpn| self.has(lpn))
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn bytes(&self) -> u64 {
        8 * self.bits.len() as u64
    }
}

/// The entry at `index` of a mapping page.
#[inline]
pub(super) fn entry_at(page: &[u8], index: u32) -> Option<Ppn> {
    let bytes = page[4 * index as usize..][..4].try_into().expect("four bytes");
    Some(u32::from_le_bytes(bytes)).filter(|raw| *raw != UNMAPPED).map(Ppn::new)
}

pub(super) fn set_entry(page: &mut [u8], index: u32, to: Option<Ppn>) {
    page[4 * index as usize..][..4].copy_from_slice(&to.map_or(UNMAPPED, Ppn::raw).to_le_bytes());
}

impl<S: Store> Lazy<S> {
    /// Entries per mapping page.
    #[inline]
    pub(super) fn per_page(&self) -> u32 {
        self.space.flash.geometry().page_bytes / 4
    }

    /// Logical pages of one mapping page.
    pub(super) fn pages_of(&self, vtpn: u32) -> std::ops::Range<u32> {
        let first = vtpn * self.per_page();
        first..(first + self.per_page()).min(self.logical_pages)
    }

    /// Where a logical page is, by UMT, cache, or a mapping page read for it.
    #[inline]
    pub(super) fn locate(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        if let Some(entry) = self.umt.get(lpn.raw()) {
            self.stats.map_cache_hits += 1;
            return Ok(entry.ppn());
        }
        let (vtpn, index) = (lpn.raw() / self.per_page(), lpn.raw() % self.per_page());
        if self.gmd[vtpn as usize] == UNMAPPED {
            self.stats.map_cache_hits += 1;
            return Ok(None);
        }
        if let Some(page) = self.cache.get(vtpn) {
            self.stats.map_cache_hits += 1;
            return Ok(entry_at(page, index));
        }
        self.stats.map_cache_misses += 1;
        self.read_map_page(vtpn, Cause::Translation)?;
        self.cache.put(vtpn, &self.map_page);
        Ok(entry_at(&self.map_page, index))
    }

    /// Leaves the mapping page's content in `map_page`: from the cache, else from flash and into the cache; all unmapped if
    /// there is none.
    pub(super) fn load_map_page(&mut self, vtpn: u32, cause: Cause) -> Result<(), FtlError> {
        if self.gmd[vtpn as usize] == UNMAPPED {
            self.map_page.fill(0xFF);
            return Ok(());
        }
        if let Some(page) = self.cache.get(vtpn) {
            self.map_page.copy_from_slice(page);
            return Ok(());
        }
        self.read_map_page(vtpn, cause)?;
        self.cache.put(vtpn, &self.map_page);
        Ok(())
    }

    fn read_map_page(&mut self, vtpn: u32, cause: Cause) -> Result<(), FtlError> {
        let ppn = Ppn::new(self.gmd[vtpn as usize]);
        let oob = self.space.flash.read(ppn, &mut self.map_page, cause)?;
        match oob {
            Some(oob) if oob.tag.role == Role::Map && oob.tag.lpn == vtpn => Ok(()),
            Some(oob) => Err(FtlError::Corrupt(format!("page {ppn} is not mapping page {vtpn} but {:?}", oob.tag))),
            None => Err(FtlError::MediaLost(vtpn * self.per_page())),
        }
    }

    /// A new mapping page was programmed: the directory follows, the old one dies.
    pub(super) fn set_gmd(&mut self, vtpn: u32, to: Option<Ppn>) {
        let old = std::mem::replace(&mut self.gmd[vtpn as usize], to.map_or(UNMAPPED, Ppn::raw));
        if old != UNMAPPED {
            self.space.table.clear_live(Ppn::new(old));
        }
    }

    /// A page was superseded. On parts that can, its spare area is marked too, as the paper does; nothing relies on the mark.
    #[inline]
    pub(super) fn invalidate(&mut self, ppn: Ppn, cause: Cause) -> Result<(), FtlError> {
        self.space.table.clear_live(ppn);
        if self.settings.oob_mark {
            use nand_model::NandError::{Host, HostFull, ProgramFailed};
            match self.space.flash.mark(ppn, &crate::format::Oob::invalid_mark(), cause) {
                Ok(()) | Err(ProgramFailed(_) | HostFull | Host(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }
}
