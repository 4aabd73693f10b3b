//! Room for the live pages of one block on their way to another place.

use crate::error::FtlError;
use crate::format::{Flags, Oob, PageTag, Role, UNMAPPED};
use crate::space::Space;
use nand_model::{Cause, Geometry, Pbn, Ppn, Store};

/// The live pages of a block: data, tags for their copies, and where they came from, in page order.
pub(crate) struct CopyBuffer {
    pub(crate) data: Vec<u8>,
    pub(crate) tags: Vec<PageTag>,
    pub(crate) from: Vec<Ppn>,
    /// Scratch of run reads.
    pub(crate) heads: Vec<(Option<Oob>, bool)>,
}

/// The tag of a page whose record is lost: its owner has to be searched for.
const UNKNOWN: PageTag = PageTag { role: Role::Pad, flags: Flags::LOST, lpn: UNMAPPED, ver: 0 };

impl CopyBuffer {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let data = vec![0; (geometry.pages_per_block * geometry.page_bytes) as usize];
        CopyBuffer { data, tags: Vec::new(), from: Vec::new(), heads: Vec::new() }
    }

    /// Reads every live page of the block, a run at a time. Tags say COPY, and LOST where the data cannot be read; pages
    /// whose record cannot be read are [`CopyBuffer::unknown`].
    pub(crate) fn load<S: Store>(&mut self, space: &mut Space<S>, block: Pbn, cause: Cause) -> Result<(), FtlError> {
        let geometry = space.geometry();
        let page = geometry.page_bytes as usize;
        self.tags.clear();
        self.from.clear();
        let mut next = 0;
        while let Some(start) = space.table.next_live(block, next) {
            let is_live = |o: &u32| space.table.is_live(geometry.page(block, *o));
            let run = (start..geometry.pages_per_block).take_while(is_live).count();
            let first = geometry.page(block, start);
            let data = &mut self.data[self.from.len() * page..][..run * page];
            space.flash.read_run(first, data, &mut self.heads, cause)?;
            for (i, (oob, data_ok)) in (0..).zip(&self.heads) {
                let lost = if *data_ok { Flags::NONE } else { Flags::LOST };
                let copy = |tag: PageTag| PageTag { flags: tag.flags.with(Flags::COPY).with(lost), ..tag };
                self.tags.push(oob.map_or(UNKNOWN, |oob| copy(oob.tag)));
                self.from.push(Ppn::new(first.raw() + i));
            }
            next = start + run as u32;
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
