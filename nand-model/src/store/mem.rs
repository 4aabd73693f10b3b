//! Everything in memory: for tests that branch at any operation. Cloning copies the flash.
//!
//! A store can journal its changes. Played back onto a clone of the state they began with, they give the flash as it was before
//! any operation of a run, without running what issued them again.

use super::{BlockFacts, Cells, Health, NOBODY, Store, tag_of};
use crate::addr::{Pbn, Ppn};
use crate::geometry::Geometry;
use std::collections::HashMap;
use std::io;

/// One change of a store, in the order of [`Store`]'s verbs; a run of programs is one change per page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A page was programmed.
    Program {
        /// Where.
        ppn: Ppn,
        /// The page's data.
        data: Vec<u8>,
        /// The OOB bytes that were given; the rest stays erased.
        oob: Vec<u8>,
    },
    /// OOB bits were cleared.
    AndOob {
        /// Where.
        ppn: Ppn,
        /// The bytes that were programmed over the OOB.
        oob: Vec<u8>,
    },
    /// What can be read of a page changed.
    Health {
        /// Where.
        ppn: Ppn,
        /// What can be read now.
        health: Health,
    },
    /// A block was erased.
    Erase {
        /// Which.
        block: Pbn,
        /// Its facts from then on.
        facts: BlockFacts,
    },
    /// Cells were programmed as a fault left them.
    Cells {
        /// Where.
        ppn: Ppn,
        /// What was programmed.
        cells: Cells,
    },
    /// A block's facts changed without an erase.
    Facts {
        /// Which.
        block: Pbn,
        /// Its facts from then on.
        facts: BlockFacts,
    },
}

/// A store in RAM that keeps data, OOB and health of every page.
#[derive(Clone, Debug)]
pub struct MemStore {
    geometry: Geometry,
    data: Vec<u8>,
    oob: Vec<u8>,
    programs: Vec<u8>,
    /// Per page; [`NOBODY`] while it is blank.
    tags: Vec<u32>,
    facts: Vec<BlockFacts>,
    /// Erases per block that this store saw: with each begins another life.
    lives: Vec<u64>,
    hour: u32,
    /// Pages that are not [`Health::Good`].
    sick: HashMap<u32, Health>,
    journal: Option<Vec<Change>>,
    /// Pages for which the pretended host still has room.
    room: Option<u64>,
}

impl MemStore {
    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        let slots = geometry.page_slots();
        MemStore {
            geometry,
            data: vec![0xFF; slots * geometry.page_bytes as usize],
            oob: vec![0xFF; slots * geometry.oob_bytes as usize],
            programs: vec![0; slots],
            tags: vec![NOBODY; slots],
            facts: vec![BlockFacts::default(); geometry.blocks as usize],
            lives: vec![0; geometry.blocks as usize],
            hour: 0,
            sick: HashMap::new(),
            journal: None,
            room: None,
        }
    }

    /// Pretends that the host has room for this many pages more and is full then, as a file system may be; `None` for room
    /// without end.
    pub fn set_room(&mut self, pages: Option<u64>) {
        self.room = pages;
    }

    /// Begins to journal changes.
    pub fn record(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// Changes since [`MemStore::record`]; empty when nothing is recorded.
    pub fn recorded(&self) -> &[Change] {
        self.journal.as_deref().unwrap_or_default()
    }

    /// Ends the journal and gives it away.
    pub fn take_record(&mut self) -> Vec<Change> {
        self.journal.take().unwrap_or_default()
    }

    /// Repeats a change that another store went through.
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

    fn oob_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        let size = self.geometry.oob_bytes as usize;
        &mut self.oob[ppn.index() * size..][..size]
    }

    fn tag_now(&self, ppn: Ppn) -> u32 {
        tag_of(ppn, self.lives[self.geometry.block_of(ppn).index()])
    }

    fn cells_at(&self, ppn: Ppn) -> Option<Cells> {
        let (page, oob) = (self.geometry.page_bytes as usize, self.geometry.oob_bytes as usize);
        (self.programs[ppn.index()] > 0).then(|| Cells {
            data: self.data[ppn.index() * page..][..page].to_vec(),
            oob: self.oob[ppn.index() * oob..][..oob].to_vec(),
            tag: self.tags[ppn.index()],
        })
    }

    /// Programs one page; `oob` may be shorter than the OOB.
    fn fill(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], tag: u32) {
        let before = self.cells_at(ppn);
        let page = self.geometry.page_bytes as usize;
        self.data[ppn.index() * page..][..page].copy_from_slice(data);
        self.oob_mut(ppn)[..oob.len()].copy_from_slice(oob);
        self.tags[ppn.index()] = tag;
        self.programs[ppn.index()] = self.programs[ppn.index()].max(1);
        if let Some(before) = before {
            let new = self.cells_at(ppn).expect("programmed above").over(&before);
            self.data[ppn.index() * page..][..page].copy_from_slice(&new.data);
            self.oob_mut(ppn).copy_from_slice(&new.oob);
            self.tags[ppn.index()] = new.tag;
        }
    }
}

impl Store for MemStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        for block in self.geometry.all_blocks() {
            let first = self.geometry.page(block, 0).index();
            let pages = self.geometry.pages_per_block as usize;
            each(block, self.facts[block.index()], &self.programs[first..first + pages]);
        }
        Ok(())
    }

    fn read(&mut self, first: Ppn, data: &mut [u8], oobs: &mut [u8], health: &mut [Health]) -> io::Result<()> {
        let (page, oob) = (self.geometry.page_bytes as usize, self.geometry.oob_bytes as usize);
        data.copy_from_slice(&self.data[first.index() * page..][..data.len()]);
        let part = oobs.len() / health.len();
        for (i, health) in health.iter_mut().enumerate() {
            let index = first.index() + i;
            oobs[i * part..][..part].copy_from_slice(&self.oob[index * oob..][..part]);
            if self.tags[index] != self.tag_now(Ppn::new(index as u32)) {
                *health = Health::Lost;
                continue;
            }
            *health = self.sick.get(&(index as u32)).copied().unwrap_or_default();
            if let Health::Unstable(left) = *health {
                let (ppn, health) = (Ppn::new(index as u32), Health::Unstable(left.saturating_sub(1)));
                self.sick.insert(ppn.raw(), health);
                self.note(|| Change::Health { ppn, health });
            }
        }
        Ok(())
    }

    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        if let Some(room) = &mut self.room {
            const ENOSPC: i32 = 28;
            *room = room.checked_sub(count as u64).ok_or(io::Error::from_raw_os_error(ENOSPC))?;
        }
        let (page, part) = (self.geometry.page_bytes as usize, oobs.len() / count as usize);
        for i in 0..count as usize {
            let ppn = Ppn::new(first.raw() + i as u32);
            let (data, oob) = (&data[i * page..][..page], &oobs[i * part..][..part]);
            self.fill(ppn, data, oob, self.tag_now(ppn));
            self.note(|| Change::Program { ppn, data: data.to_vec(), oob: oob.to_vec() });
        }
        Ok(())
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        if self.programs[ppn.index()] == 0 {
            return Ok(());
        }
        self.programs[ppn.index()] += 1;
        self.note(|| Change::AndOob { ppn, oob: oob.to_vec() });
        self.oob_mut(ppn).iter_mut().zip(oob).for_each(|(have, new)| *have &= new);
        Ok(())
    }

    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        if self.programs[ppn.index()] == 0 {
            return Ok(());
        }
        self.sick.insert(ppn.raw(), health);
        self.note(|| Change::Health { ppn, health });
        Ok(())
    }

    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        let pages = self.geometry.pages_per_block as usize;
        let first = self.geometry.page(block, 0).index();
        let (page, oob) = (self.geometry.page_bytes as usize, self.geometry.oob_bytes as usize);
        self.data[first * page..][..pages * page].fill(0xFF);
        self.oob[first * oob..][..pages * oob].fill(0xFF);
        self.programs[first..][..pages].fill(0);
        self.tags[first..][..pages].fill(NOBODY);
        self.lives[block.index()] += 1;
        self.sick.retain(|&ppn, _| self.geometry.block_of(Ppn::new(ppn)) != block);
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
        self.note(|| Change::Cells { ppn, cells: cells.clone() });
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
        chip.program_run(0, first, 2, &[7; 4096], &[1, 2], Cause::Host).unwrap();
        chip.program_oob(0, first, &[0], Cause::Host).unwrap();
        chip.erase(0, Pbn::new(2), Cause::Gc).unwrap();
        chip.store_mut().set_health(first, Health::DataLost).unwrap();
        let mut end = chip.into_store();
        let journal = end.take_record();
        assert_eq!(journal.len(), 5, "{journal:?}");
        let mut again = begin;
        journal.iter().for_each(|change| again.replay(change).unwrap());
        assert_eq!((again.data, again.oob, again.programs), (end.data, end.oob, end.programs));
        assert_eq!((again.facts, again.sick), (end.facts, end.sick));
        assert_eq!((again.tags, again.lives), (end.tags, end.lives));
    }
}
