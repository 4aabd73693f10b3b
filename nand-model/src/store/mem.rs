//! A store in memory, for tests that branch at any operation. Clones share every block until one of
//! them changes it.
//!
//! A store can journal its changes. Replayed onto a clone of the initial state, they give the flash
//! before any operation of a run, without running the scheme again.

use super::contents::{BlockFacts, Cells, Health, TAG_NONE, tag_of};
use super::interface::Store;
use crate::addr::{Pbn, Ppn};
use crate::convert::{index, to_u32};
use crate::geometry::Geometry;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// One change of a store, in the order of [`Store`]'s verbs; a run of programs is one change per
/// page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A page was programmed.
    Program {
        /// The page.
        ppn: Ppn,
        /// The page's data.
        data: Vec<u8>,
        /// The OOB bytes of the program; the rest stays erased.
        oob: Vec<u8>,
    },
    /// OOB bits were cleared.
    AndOob {
        /// The page.
        ppn: Ppn,
        /// The bytes that were programmed over the OOB.
        oob: Vec<u8>,
    },
    /// The health of a page changed.
    Health {
        /// The page.
        ppn: Ppn,
        /// The new health.
        health: Health,
    },
    /// A block was erased.
    Erase {
        /// The block.
        block: Pbn,
        /// Its new facts.
        facts: BlockFacts,
    },
    /// Cells were programmed as a fault left them.
    Cells {
        /// The page.
        ppn: Ppn,
        /// The programmed cells.
        cells: Cells,
    },
    /// A block's facts changed without an erase.
    Facts {
        /// The block.
        block: Pbn,
        /// Its new facts.
        facts: BlockFacts,
    },
}

impl Change {
    /// Whether the change is a program or an erase, in which power can fail.
    pub fn is_operation(&self) -> bool {
        matches!(self, Change::Program { .. } | Change::Erase { .. })
    }
}

/// The pages of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pages {
    /// Data of the programmed pages; undefined for blank pages.
    data: Vec<u8>,
    oob: Vec<u8>,
    programs: Vec<u8>,
    /// Per page; [`TAG_NONE`] while it is blank.
    tags: Vec<u32>,
}

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
}

impl MemStore {
    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        let pages = geometry.block_pages();
        let blank = Pages {
            data: Vec::new(),
            oob: Vec::new(),
            programs: vec![0; pages],
            tags: vec![TAG_NONE; pages],
        };
        let blank = Arc::new(blank);
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
    fn place(&self, ppn: Ppn) -> (usize, usize) {
        (
            self.geometry.block_of(ppn).index(),
            index(self.geometry.offset_of(ppn)),
        )
    }

    fn is_blank(&self, ppn: Ppn) -> bool {
        let (block, page) = self.place(ppn);
        self.blocks[block].programs[page] == 0
    }

    fn tag_now(&self, ppn: Ppn) -> u32 {
        tag_of(
            ppn,
            self.erase_generations[self.geometry.block_of(ppn).index()],
        )
    }

    fn cells_at(&self, ppn: Ppn) -> Option<Cells> {
        let (page_bytes, oob_bytes) = (self.geometry.page_len(), self.geometry.oob_len());
        let (block, page) = self.place(ppn);
        let pages = &self.blocks[block];
        (pages.programs[page] > 0).then(|| Cells {
            data: pages.data[page * page_bytes..][..page_bytes].to_vec(),
            oob: pages.oob[page * oob_bytes..][..oob_bytes].to_vec(),
            tag: if self.unhealthy.get(&ppn.raw()) == Some(&Health::Lost) {
                TAG_NONE
            } else {
                pages.tags[page]
            },
        })
    }

    /// Programs one page; `oob` may be shorter than the OOB. Overwrites the earlier content.
    fn fill(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], tag: u32) {
        if !self.is_blank(ppn) {
            self.unhealthy.insert(ppn.raw(), Health::Lost);
            return;
        }
        let (page_bytes, oob_bytes) = (self.geometry.page_len(), self.geometry.oob_len());
        assert_eq!(data.len(), page_bytes, "a program writes whole pages");
        assert!(
            oob.len() <= oob_bytes,
            "a program of {} OOB bytes, a page has {oob_bytes}",
            oob.len()
        );
        let (block, page) = self.place(ppn);
        let pages = Arc::make_mut(&mut self.blocks[block]);
        if pages.data.is_empty() {
            pages
                .data
                .reserve_exact(self.geometry.block_pages() * page_bytes);
            pages
                .oob
                .resize(self.geometry.block_pages() * oob_bytes, 0xFF);
        }
        pages
            .data
            .resize(pages.data.len().max((page + 1) * page_bytes), 0xFF);
        pages.data[page * page_bytes..][..page_bytes].copy_from_slice(data);
        pages.oob[page * oob_bytes..][..oob.len()].copy_from_slice(oob);
        pages.tags[page] = tag;
        pages.programs[page] = 1;
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
        let oob = self.geometry.oob_len();
        let (page_bytes, part) = (data.len() / health.len(), oobs.len() / health.len());
        debug_assert!(
            page_bytes == 0 || page_bytes == self.geometry.page_len(),
            "a read of {page_bytes} data bytes per page"
        );
        let pages = first.run(to_u32(health.len()));
        for (i, (ppn, health)) in pages.zip(health).enumerate() {
            let (block, page) = self.place(ppn);
            let pages = &self.blocks[block];
            let (data, oobs) = (
                &mut data[i * page_bytes..][..page_bytes],
                &mut oobs[i * part..][..part],
            );
            if pages.programs[page] == 0 {
                data.fill(0xFF);
                oobs.fill(0xFF);
                *health = Health::Lost;
                continue;
            }
            data.copy_from_slice(&pages.data[page * page_bytes..][..page_bytes]);
            oobs.copy_from_slice(&pages.oob[page * oob..][..part]);
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
        let (oob_bytes, (block, page)) = (self.geometry.oob_len(), self.place(ppn));
        let pages = Arc::make_mut(&mut self.blocks[block]);
        debug_assert!(pages.programs[page] > 0, "page {ppn} is blank");
        pages.programs[page] += 1;
        pages.oob[page * oob_bytes..][..oob.len()]
            .iter_mut()
            .zip(oob)
            .for_each(|(have, new)| *have &= new);
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
mod tests {
    use super::*;
    use crate::{Cause, Chip, Profile};

    #[test]
    fn a_journal_replayed_gives_the_same_flash() {
        let profile = Profile::find("slc-2k").unwrap().with_blocks(4);
        let begin = MemStore::new(profile.geometry);
        let mut chip = Chip::open(profile, begin.clone()).unwrap();
        chip.store_mut().record();
        let first = profile.geometry.page(Pbn::new(1), 0);
        chip.program_run(0, first, 2, &[7; 4096], &[1, 2], Cause::Host)
            .unwrap();
        chip.program_oob(0, first, &[0], Cause::Host).unwrap();
        chip.erase(0, Pbn::new(2), Cause::Gc).unwrap();
        chip.store_mut()
            .set_health(first, Health::Unstable(3))
            .unwrap();
        chip.store_mut()
            .read(first, &mut [], &mut [0; 4], &mut [Health::Good])
            .unwrap();
        chip.mark_factory_bad_block(Pbn::new(3)).unwrap();
        let cells = Cells {
            data: vec![1; 2048],
            oob: vec![2; 64],
            tag: 7,
        };
        chip.store_mut()
            .put_cells(profile.geometry.page(Pbn::new(0), 0), &cells)
            .unwrap();
        let mut end = chip.into_store();
        let recorded = end.recorded().len();
        let journal = end.take_record();
        assert_eq!((recorded, journal.len()), (8, 8), "{journal:?}");
        let mut again = begin;
        journal
            .iter()
            .for_each(|change| again.replay(change).unwrap());
        assert_eq!((again.blocks, again.facts), (end.blocks, end.facts));
        assert_eq!(
            (again.unhealthy, again.erase_generations),
            (end.unhealthy, end.erase_generations)
        );
    }

    #[test]
    fn a_host_without_room_refuses_programs_and_blank_pages_have_no_health() {
        let profile = Profile::find("slc-2k").unwrap().with_blocks(4);
        let mut store = MemStore::new(profile.geometry);
        let page = |offset| profile.geometry.page(Pbn::new(1), offset);
        let programs = |store: &mut MemStore, offset, count: u32| {
            let refused = store
                .program(page(offset), count, &vec![7; count as usize * 2048], &[])
                .err();
            refused.map(|error| error.kind())
        };
        store.set_room(Some(3));
        let full = io::ErrorKind::StorageFull;
        assert_eq!(
            [
                programs(&mut store, 0, 2),
                programs(&mut store, 2, 2),
                programs(&mut store, 2, 1)
            ],
            [None, Some(full), None]
        );
        assert_eq!(
            store
                .program_as(page(3), &[7; 2048], &[], Health::Lost)
                .unwrap_err()
                .kind(),
            full
        );
        store.set_room(None);
        assert_eq!(programs(&mut store, 3, 4), None);
        store.set_health(page(9), Health::Lost).unwrap();
        store.and_oob(page(9), &[0]).unwrap();
        let mut oob = [0; 4];
        let mut health = [Health::Good];
        store.read(page(9), &mut [], &mut oob, &mut health).unwrap();
        assert_eq!(
            (oob, health, store.cells(page(9)).unwrap()),
            ([0xFF; 4], [Health::Lost], None)
        );
        assert_eq!(
            (store.erase_credit(), store.erase_credit_full()),
            (u32::MAX, u32::MAX)
        );
    }
}
