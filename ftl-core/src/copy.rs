//! Room for the live pages of one block on their way to another place.

use crate::error::FtlError;
use crate::format::{Flags, OOB_SLOT, Oob, PageTag, Role, UNMAPPED};
use crate::space::Space;
use nand_model::{Cause, Geometry, Health, Pbn, Ppn, Store};

/// The live pages of a block, in page order: data, records as read, and where they come from.
#[derive(Default)]
pub(crate) struct CopyBuffer {
    pub(crate) data: Vec<u8>,
    pub(crate) records: Vec<[u8; OOB_SLOT]>,
    pub(crate) from: Vec<Ppn>,
    /// Places of the pages whose record is lost.
    unknown: Vec<usize>,
}

impl CopyBuffer {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let data = vec![0; (geometry.pages_per_block * geometry.page_bytes) as usize];
        CopyBuffer { data, records: Vec::new(), from: Vec::new(), unknown: Vec::new() }
    }

    /// Reads every live page of the block. Records say LOST where the data cannot be read; those of pages whose own
    /// record is lost are to be [named](CopyBuffer::name).
    pub(crate) fn load<S: Store>(&mut self, space: &mut Space<S>, block: Pbn, cause: Cause) -> Result<(), FtlError> {
        self.load_first(space, block, u32::MAX, cause)
    }

    /// The same with at most so many of them, the first.
    pub(crate) fn load_first<S: Store>(
        &mut self,
        space: &mut Space<S>,
        block: Pbn,
        most: u32,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.from.clear();
        space.table.live_pages(block, &mut self.from);
        self.from.truncate(most as usize);
        self.unknown.clear();
        if !self.read(space, cause)? {
            self.mend(space.flash.health());
        }
        Ok(())
    }

    /// Reads every programmed page of the block, to no other end than that the chip sees how good it is. Returns how many.
    pub(crate) fn look_at<S: Store>(
        &mut self,
        space: &mut Space<S>,
        block: Pbn,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        let pages = space.flash.chip().frontier(block);
        self.from.clear();
        self.from.extend((0..pages).map(|offset| space.geometry().page(block, offset)));
        self.read(space, cause)?;
        Ok(pages)
    }

    fn read<S: Store>(&mut self, space: &mut Space<S>, cause: Cause) -> Result<bool, FtlError> {
        self.records.resize(self.from.len(), [0; OOB_SLOT]);
        if self.from.is_empty() {
            return Ok(true);
        }
        let bytes = self.from.len() * space.geometry().page_bytes as usize;
        Ok(space.flash.read_pages(&self.from, &mut self.data[..bytes], &mut self.records, cause)?)
    }

    #[cold]
    fn mend(&mut self, health: &[Health]) {
        const UNKNOWN: PageTag = PageTag { role: Role::Pad, flags: Flags::NONE, lpn: UNMAPPED, ver: 0 };
        for (i, (record, health)) in self.records.iter_mut().zip(health).enumerate() {
            let found = Oob::decode(record).filter(|_| health.oob_ok());
            let tag = found.map_or(UNKNOWN, |oob| oob.tag);
            if found.is_none() {
                self.unknown.push(i);
            }
            let lost = if health.data_ok() { Flags::NONE } else { Flags::LOST };
            *record = Oob { tag: PageTag { flags: tag.flags.with(lost), ..tag }, pseq: 0, epoch: 0 }.encode();
        }
    }

    /// Pages whose record is lost: which, and where they come from.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (usize, Ppn)> {
        self.unknown.iter().map(|i| (*i, self.from[*i]))
    }

    /// Gives a page whose record is lost the name of its owner. Its data may be another version than the one that is
    /// wanted, so it stays an error to read; the version is a new one, so that no older one comes back in its place.
    pub(crate) fn name(&mut self, i: usize, role: Role, lpn: u32, ver: u64) {
        let tag = PageTag { role, flags: Flags::LOST, lpn, ver };
        self.records[i] = Oob { tag, pseq: 0, epoch: 0 }.encode();
    }

    /// The logical page, mapping page or the like that a loaded page belongs to.
    #[inline]
    pub(crate) fn owner(&self, i: usize) -> (Role, u32) {
        Oob::owner(&self.records[i])
    }

    /// All that a loaded page's record says.
    pub(crate) fn tag(&self, i: usize) -> PageTag {
        Oob::decode(&self.records[i]).expect("loading leaves records only").tag
    }

    /// Bytes really allocated.
    pub(crate) fn bytes(&self) -> u64 {
        self.data.len() as u64
    }
}

/// What to say when a live page's record contradicts the map.
#[cold]
pub(crate) fn misplaced(ppn: Ppn, lpn: u32) -> FtlError {
    FtlError::Corrupt(format!("the live page {ppn} says that it is logical page {lpn}, which is elsewhere"))
}
