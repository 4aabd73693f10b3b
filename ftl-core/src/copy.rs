//! Room for the live pages of one block on their way to another place.

use crate::error::FtlError;
use crate::format::{Flags, OOB_SLOT, Oob, PageTag, Role, UNMAPPED};
use crate::space::Space;
use nand_model::{Cause, Geometry, Pbn, Ppn, Store};

/// The live pages of a block: data, tags for their copies, and where they came from, in page order.
pub(crate) struct CopyBuffer {
    pub(crate) data: Vec<u8>,
    pub(crate) tags: Vec<PageTag>,
    pub(crate) from: Vec<Ppn>,
    /// Scratch of host reads.
    pub(crate) heads: Vec<(Option<Oob>, bool)>,
    records: Vec<[u8; OOB_SLOT]>,
}

/// The tag of a page whose record is lost: its owner has to be searched for.
const UNKNOWN: PageTag = PageTag { role: Role::Pad, flags: Flags::LOST, lpn: UNMAPPED, ver: 0 };

impl CopyBuffer {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let data = vec![0; (geometry.pages_per_block * geometry.page_bytes) as usize];
        CopyBuffer { data, tags: Vec::new(), from: Vec::new(), heads: Vec::new(), records: Vec::new() }
    }

    /// Reads every live page of the block, a run at a time. Tags say COPY, and LOST where the data cannot be read; pages
    /// whose record cannot be read are [`CopyBuffer::unknown`].
    pub(crate) fn load<S: Store>(&mut self, space: &mut Space<S>, block: Pbn, cause: Cause) -> Result<(), FtlError> {
        self.tags.clear();
        self.from.clear();
        space.table.live_pages(block, &mut self.from);
        self.records.resize(self.from.len(), [0; OOB_SLOT]);
        let bytes = self.from.len() * space.geometry().page_bytes as usize;
        space.flash.read_pages(&self.from, &mut self.data[..bytes], &mut self.records, cause)?;
        for (record, health) in self.records.iter().zip(space.flash.health()) {
            let lost = if health.data_ok() { Flags::NONE } else { Flags::LOST };
            let copy = |tag: PageTag| PageTag { flags: tag.flags.with(Flags::COPY).with(lost), ..tag };
            let oob = Oob::decode(record).filter(|_| health.oob_ok());
            self.tags.push(oob.map_or(UNKNOWN, |oob| copy(oob.tag)));
        }
        Ok(())
    }

    /// The pages whose record is lost, for their tags to be filled in.
    pub(crate) fn unknown(&mut self) -> impl Iterator<Item = (&mut PageTag, Ppn)> {
        self.tags.iter_mut().zip(&self.from).filter(|(tag, _)| **tag == UNKNOWN).map(|(tag, ppn)| (tag, *ppn))
    }

    /// Bytes really allocated.
    pub(crate) fn bytes(&self) -> u64 {
        self.data.len() as u64
    }
}
