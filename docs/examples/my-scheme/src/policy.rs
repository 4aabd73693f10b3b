//! Where pages go, and which block GC takes; both follow the times at which pages become invalid.
//!
//! A write goes to the hot stream if it replaces a version that lived shorter than most (as in
//! SepBIT, FAST 2022), a relocated page to a stream of its own. GC takes the block with the highest
//! `(1 - u) age / (1 + u)`, as the log-structured file system does (Rosenblum, Ousterhout, SOSP
//! 1991). The age of a hot block grows faster: it is soon as empty as it becomes.

use ftl_core::author::{Candidates, DataBlock, Device, HostWrite, InvalidPage, PageCopy, Policy};
use ftl_core::{FtlError, Params};
use nand_model::Pbn;

const HOT: u32 = 0;
const COLD: u32 = 1;
const COPIES: u32 = 2;

pub(crate) struct MyPolicy {
    /// By block: its stream, and when it was sealed or last lost a valid page.
    blocks: Vec<(u32, u64)>,
    /// Mean age of the pages that became invalid.
    mean_age: f64,
    /// Time of the last write.
    now: u64,
}

impl MyPolicy {
    pub(crate) fn create(device: &Device, _: &Params) -> Result<Box<dyn Policy>, FtlError> {
        Ok(Box::new(MyPolicy {
            blocks: vec![(COLD, 0); device.geometry.block_slots()],
            mean_age: f64::INFINITY,
            now: 0,
        }))
    }
}

impl Policy for MyPolicy {
    fn streams(&self) -> (u32, u32) {
        (2, 1)
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        self.now = write.now;
        match write.lifespan {
            Some(lifespan) if (lifespan as f64) < self.mean_age => HOT,
            _ => COLD,
        }
    }

    fn stream_of_copy(&mut self, _: &PageCopy) -> u32 {
        COPIES
    }

    fn on_invalidate(&mut self, page: &InvalidPage) {
        let age = page.age as f64;
        self.mean_age = match self.mean_age.is_finite() {
            true => self.mean_age + (age - self.mean_age) / 1024.0,
            false => age,
        };
        self.blocks[page.block.index()].1 = page.now;
    }

    fn on_seal(&mut self, block: &DataBlock) {
        self.blocks[block.block.index()] = (block.stream, block.now);
    }

    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        candidates.best_of_all(|block| {
            let (stream, since) = self.blocks[block.block.index()];
            let haste = if stream == HOT { 4.0 } else { 1.0 };
            let age = haste * (self.now.saturating_sub(since) + 1) as f64;
            (1.0 - block.utilisation) * age / (1.0 + block.utilisation)
        })
    }

    fn bytes(&self) -> (u64, u64) {
        let bytes = size_of_val(&self.blocks[..]) as u64;
        (bytes, bytes)
    }
}
