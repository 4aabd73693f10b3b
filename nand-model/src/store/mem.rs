//! Everything in memory: for tests that branch at any operation. Cloning copies the flash.

use super::{BlockFacts, Health, Store};
use crate::addr::{Pbn, Ppn};
use crate::geometry::Geometry;
use std::collections::HashMap;
use std::io;

/// A store in RAM that keeps data, OOB and health of every page.
#[derive(Clone, Debug)]
pub struct MemStore {
    geometry: Geometry,
    data: Vec<u8>,
    oob: Vec<u8>,
    programs: Vec<u8>,
    facts: Vec<BlockFacts>,
    /// Pages that are not [`Health::Good`].
    sick: HashMap<u32, Health>,
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
            facts: vec![BlockFacts::default(); geometry.blocks as usize],
            sick: HashMap::new(),
        }
    }

    fn oob_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        let size = self.geometry.oob_bytes as usize;
        &mut self.oob[ppn.index() * size..][..size]
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
            *health = match self.sick.get_mut(&(index as u32)) {
                None => Health::Good,
                Some(sick) => {
                    let now = *sick;
                    if let Health::Unstable(left) = sick {
                        *left = left.saturating_sub(1);
                    }
                    now
                }
            };
        }
        Ok(())
    }

    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        let page = self.geometry.page_bytes as usize;
        self.data[first.index() * page..][..data.len()].copy_from_slice(data);
        let part = oobs.len() / count as usize;
        for i in 0..count as usize {
            self.programs[first.index() + i] = 1;
            self.oob_mut(Ppn::new(first.raw() + i as u32))[..part].copy_from_slice(&oobs[i * part..][..part]);
        }
        Ok(())
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.programs[ppn.index()] += 1;
        self.oob_mut(ppn).iter_mut().zip(oob).for_each(|(have, new)| *have &= new);
        Ok(())
    }

    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        self.programs[ppn.index()] = self.programs[ppn.index()].max(1);
        self.sick.insert(ppn.raw(), health);
        Ok(())
    }

    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        let pages = self.geometry.pages_per_block as usize;
        let first = self.geometry.page(block, 0).index();
        let (page, oob) = (self.geometry.page_bytes as usize, self.geometry.oob_bytes as usize);
        self.data[first * page..][..pages * page].fill(0xFF);
        self.oob[first * oob..][..pages * oob].fill(0xFF);
        self.programs[first..][..pages].fill(0);
        self.sick.retain(|&ppn, _| self.geometry.block_of(Ppn::new(ppn)) != block);
        self.set_facts(block, facts)
    }

    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.facts[block.index()] = facts;
        Ok(())
    }
}
