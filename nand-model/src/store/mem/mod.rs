//! A store in memory, for tests that branch at any operation. Clones share every block until one of
//! them changes it, and the data of its pages even then.
//!
//! A store can journal its changes. Replayed onto a clone of the initial state, they give the flash
//! before any operation of a run, without running the scheme again.

mod change;
mod page;

pub use change::Change;
pub use page::MemPage;

use super::contents::{BlockFacts, Cells, Health, TAG_NONE, tag_of};
use super::file::PlacedRun;
use super::interface::Store;
use crate::addr::{Pbn, Ppn};
use crate::convert::{index, to_u32};
use crate::geometry::Geometry;
use page::Pages;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A store in RAM that keeps data, OOB and health of every page.
#[derive(Clone, Debug)]
pub struct MemStore {
    geometry: Geometry,
    blocks: Vec<Arc<Pages>>,
    /// The pages of an erased block, shared by all of them.
    blank: Arc<Pages>,
    facts: Vec<BlockFacts>,
    /// Erases per block since the store was created.
    erase_generations: Vec<u64>,
    hour: u32,
    /// Pages that are not [`Health::Good`].
    unhealthy: HashMap<u32, Health>,
    journal: Option<Vec<Change>>,
    /// Pages that the simulated host has space for.
    room: Option<u64>,
    /// Erases that this store reports as left before a sync; it needs none.
    erase_credit: u32,
    /// Programs of this store and its clones.
    programs: Arc<AtomicU64>,
}

impl MemStore {
    /// First number of programs of stores that count apart.
    pub const APART: u64 = 1 << 63;

    /// Numbers later programs from [`MemStore::APART`] on, apart from those of its clones: they are
    /// not told from the programs of another store that does so.
    pub fn count_apart(&mut self) {
        self.programs = Arc::new(AtomicU64::new(Self::APART));
    }

    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        let blank = Arc::new(Pages::blank(geometry.block_pages()));
        MemStore {
            geometry,
            blocks: vec![blank.clone(); geometry.block_slots()],
            blank,
            facts: vec![BlockFacts::default(); geometry.block_slots()],
            erase_generations: vec![0; geometry.block_slots()],
            hour: 0,
            unhealthy: HashMap::new(),
            journal: None,
            room: None,
            erase_credit: u32::MAX,
            programs: Arc::default(),
        }
    }

    /// Limits the simulated host's space to this many more pages, as on a full file system; `None`
    /// for unlimited space.
    pub fn set_room(&mut self, pages: Option<u64>) {
        self.room = pages;
    }

    /// Sets the erases that the store reports as left before it needs a sync: `u32::MAX` at first.
    pub fn set_erase_credit(&mut self, left: u32) {
        self.erase_credit = left;
    }

    /// Starts to journal changes.
    pub fn record(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// Changes since [`MemStore::record`]; empty without a journal.
    pub fn recorded(&self) -> &[Change] {
        self.journal.as_deref().unwrap_or_default()
    }

    /// Ends the journal and returns it.
    pub fn take_record(&mut self) -> Vec<Change> {
        self.journal.take().unwrap_or_default()
    }

    /// Applies a change of another store.
    ///
    /// # Errors
    ///
    /// ENOSPC if [`MemStore::set_room`] leaves no space for a program.
    pub fn replay(&mut self, change: &Change) -> io::Result<()> {
        match change {
            Change::Program { ppn, data, oob } => self.program(*ppn, 1, data, oob),
            Change::AndOob { ppn, oob } => self.and_oob(*ppn, oob),
            Change::Health { ppn, health } => self.set_health(*ppn, *health),
            Change::Erase { block, facts } => self.erase(*block, *facts),
            Change::Facts { block, facts } => self.set_facts(*block, *facts),
            Change::Cells { ppn, cells } => self.put_cells(*ppn, cells),
        }
    }

    fn note(&mut self, change: impl FnOnce() -> Change) {
        if let Some(journal) = &mut self.journal {
            journal.push(change());
        }
    }

    /// Location of a page: its block and its offset there.
    #[inline]
    fn at(&self, ppn: Ppn) -> (usize, usize) {
        (
            self.geometry.block_of(ppn).index(),
            index(self.geometry.offset_of(ppn)),
        )
    }

    fn is_blank(&self, ppn: Ppn) -> bool {
        let (block, page) = self.at(ppn);
        self.blocks[block].programs[page] == 0
    }

    fn tag_now(&self, ppn: Ppn) -> u32 {
        tag_of(
            ppn,
            self.erase_generations[self.geometry.block_of(ppn).index()],
        )
    }

    /// Returns a page of a run that [`Store::place`] named; `None` if its block was erased since.
    #[inline]
    pub fn page(&self, run: &PlacedRun, i: u32) -> Option<MemPage<'_>> {
        let (block, page) = self.at(run.first());
        let lives = self.erase_generations[block] == run.life();
        let page = self.blocks[block].page(page + index(i));
        page.filter(|_| lives)
    }

    fn cells_at(&self, ppn: Ppn) -> Option<Cells> {
        let (block, page) = self.at(ppn);
        let cells = self.blocks[block].page(page)?;
        let mut oob = vec![0; self.geometry.oob_len()];
        cells.copy_oob(&mut oob);
        Some(Cells {
            data: cells.data.to_vec(),
            oob,
            tag: if self.unhealthy.get(&ppn.raw()) == Some(&Health::Lost) {
                TAG_NONE
            } else {
                self.blocks[block].tags[page]
            },
        })
    }

    /// Programs one page; `oob` may be shorter than the OOB. Overwrites the earlier content.
    fn fill(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], tag: u32) {
        if !self.is_blank(ppn) {
            self.unhealthy.insert(ppn.raw(), Health::Lost);
            return;
        }
        assert_eq!(
            data.len(),
            self.geometry.page_len(),
            "a program writes whole pages"
        );
        assert!(
            oob.len() <= self.geometry.oob_len(),
            "a program of {} OOB bytes, a page has {}",
            oob.len(),
            self.geometry.oob_len()
        );
        let (block, page) = self.at(ppn);
        let number = self.programs.fetch_add(1, Relaxed);
        Arc::make_mut(&mut self.blocks[block]).program(page, data, oob, tag, number);
    }
}

impl Store for MemStore {
    fn erase_credit(&self) -> u32 {
        self.erase_credit
    }

    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        for block in self.geometry.all_blocks() {
            each(
                block,
                self.facts[block.index()],
                &self.blocks[block.index()].programs,
            );
        }
        Ok(())
    }

    fn read(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        let (page_bytes, part) = (data.len() / health.len(), oobs.len() / health.len());
        debug_assert!(
            page_bytes == 0 || page_bytes == self.geometry.page_len(),
            "a read of {page_bytes} data bytes per page"
        );
        let pages = first.run(to_u32(health.len()));
        for (i, (ppn, health)) in pages.zip(health).enumerate() {
            let (block, page) = self.at(ppn);
            let pages = &self.blocks[block];
            let (data, oobs) = (
                &mut data[i * page_bytes..][..page_bytes],
                &mut oobs[i * part..][..part],
            );
            let Some(cells) = pages.page(page) else {
                data.fill(0xFF);
                oobs.fill(0xFF);
                *health = Health::Lost;
                continue;
            };
            if page_bytes > 0 {
                data.copy_from_slice(cells.data);
            }
            cells.copy_oob(oobs);
            if pages.tags[page] != self.tag_now(ppn) {
                *health = Health::Lost;
                continue;
            }
            *health = self.unhealthy.get(&ppn.raw()).copied().unwrap_or_default();
            if let Some(health) = health.after_read() {
                self.unhealthy.insert(ppn.raw(), health);
                self.note(|| Change::Health { ppn, health });
            }
        }
        Ok(())
    }

    /// Only for pages that are good.
    fn place(&self, first: Ppn, count: u32) -> Option<PlacedRun> {
        let life = self.erase_generations[self.geometry.block_of(first).index()];
        let is_good = |ppn: Ppn| {
            let (block, page) = self.at(ppn);
            self.blocks[block].tags[page] == self.tag_now(ppn)
                && !self.unhealthy.contains_key(&ppn.raw())
        };
        let is_good = first.run(count).all(is_good);
        is_good.then(|| PlacedRun::in_memory(first, count, life))
    }

    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        if let Some(room) = &mut self.room {
            const ENOSPC: i32 = 28;
            *room = room
                .checked_sub(u64::from(count))
                .ok_or(io::Error::from_raw_os_error(ENOSPC))?;
        }
        let (page, part) = (self.geometry.page_len(), oobs.len() / index(count));
        for (i, ppn) in first.run(count).enumerate() {
            let (data, oob) = (&data[i * page..][..page], &oobs[i * part..][..part]);
            self.fill(ppn, data, oob, self.tag_now(ppn));
            self.note(|| Change::Program {
                ppn,
                data: data.to_vec(),
                oob: oob.to_vec(),
            });
        }
        Ok(())
    }

    /// The journal gets two changes. No operation begins between them.
    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()> {
        let was_blank = self.is_blank(ppn);
        self.program(ppn, 1, data, oob)?;
        if was_blank && health != Health::Good {
            self.set_health(ppn, health)
        } else {
            Ok(())
        }
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        if self.is_blank(ppn) {
            return Ok(());
        }
        self.note(|| Change::AndOob {
            ppn,
            oob: oob.to_vec(),
        });
        let (block, page) = self.at(ppn);
        Arc::make_mut(&mut self.blocks[block]).and_oob(page, oob);
        Ok(())
    }

    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        if self.is_blank(ppn) {
            return Ok(());
        }
        self.unhealthy.insert(ppn.raw(), health);
        self.note(|| Change::Health { ppn, health });
        Ok(())
    }

    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.blocks[block.index()] = self.blank.clone();
        self.erase_generations[block.index()] += 1;
        if !self.unhealthy.is_empty() {
            self.unhealthy
                .retain(|&ppn, _| self.geometry.block_of(Ppn::new(ppn)) != block);
        }
        self.facts[block.index()] = facts;
        self.note(|| Change::Erase { block, facts });
        Ok(())
    }

    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.facts[block.index()] = facts;
        self.note(|| Change::Facts { block, facts });
        Ok(())
    }

    fn tag(&self, ppn: Ppn) -> Option<u32> {
        Some(self.tag_now(ppn))
    }

    fn cells(&mut self, ppn: Ppn) -> io::Result<Option<Cells>> {
        Ok(self.cells_at(ppn))
    }

    fn put_cells(&mut self, ppn: Ppn, cells: &Cells) -> io::Result<()> {
        self.fill(ppn, &cells.data, &cells.oob, cells.tag);
        self.note(|| Change::Cells {
            ppn,
            cells: cells.clone(),
        });
        Ok(())
    }

    fn hour(&self) -> u32 {
        self.hour
    }

    fn set_hour(&mut self, hour: u32) {
        self.hour = hour;
    }
}

#[cfg(test)]
mod tests;
