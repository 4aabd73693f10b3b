//! The first bytes of every OOB and no data: for simulation, where only placement matters. No health, no checks.

use super::{BlockFacts, Health, Store};
use crate::addr::{Pbn, Ppn};
use crate::geometry::Geometry;
use std::io;

/// OOB bytes kept per page: the fixed record of every scheme fits.
const KEPT: usize = 32;

/// A store that keeps 32 bytes per page. Data reads leave the caller's buffer as it is.
#[derive(Clone, Debug)]
pub struct OobOnlyStore {
    geometry: Geometry,
    oob: Vec<[u8; KEPT]>,
}

impl OobOnlyStore {
    /// An erased store of this shape.
    pub fn new(geometry: Geometry) -> Self {
        OobOnlyStore { geometry, oob: vec![[0xFF; KEPT]; geometry.page_slots()] }
    }
}

impl Store for OobOnlyStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        let erased = vec![0; self.geometry.pages_per_block as usize];
        self.geometry.all_blocks().for_each(|block| each(block, BlockFacts::default(), &erased));
        Ok(())
    }

    #[inline]
    fn read(&mut self, first: Ppn, _data: &mut [u8], oobs: &mut [u8], health: &mut [Health]) -> io::Result<()> {
        let part = oobs.len() / health.len();
        for (i, health) in health.iter_mut().enumerate() {
            let kept = part.min(KEPT);
            oobs[i * part..][..kept].copy_from_slice(&self.oob[first.index() + i][..kept]);
            *health = Health::Good;
        }
        Ok(())
    }

    #[inline]
    fn program(&mut self, first: Ppn, count: u32, _data: &[u8], oobs: &[u8]) -> io::Result<()> {
        let part = oobs.len() / count as usize;
        for i in 0..count as usize {
            let kept = part.min(KEPT);
            self.oob[first.index() + i][..kept].copy_from_slice(&oobs[i * part..][..kept]);
        }
        Ok(())
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.oob[ppn.index()].iter_mut().zip(oob).for_each(|(have, new)| *have &= new);
        Ok(())
    }

    fn set_health(&mut self, _ppn: Ppn, _health: Health) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn erase(&mut self, _block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        Ok(())
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn set_facts(&mut self, _block: Pbn, _facts: BlockFacts) -> io::Result<()> {
        Ok(())
    }
}
