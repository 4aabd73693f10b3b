//! Page-level ideal: the whole table LPN -> PPN in RAM ([`page_ram`](crate::families::page_ram)).
//!
//! Not a single paper's scheme but the common reference: any page may be stored anywhere, a lookup
//! does not access flash. Greedy garbage collection at a threshold of free blocks. RAM: 4 bytes per
//! logical page, one bit per physical page, the victim index.
//!
//! Additions where papers are silent: trims leave records (role TRIM) that stay until two
//! checkpoints contain them; checkpoints of the map bound the scan of a mount; a page whose data is
//! lost during relocation stays an error.

use crate::addr::Lpn;
use crate::author::{PageMap, PageMapScheme};
use crate::config::Params;
use crate::error::FtlError;
use crate::families::page_ram;
use crate::format::UNMAPPED;
use crate::int::{index, to_u64};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::Ppn;

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    title: "page-level ideal: the whole map in RAM",
    about: "The whole map is in RAM: any page may be stored anywhere, a lookup reads no flash, and GC selects the block with the \
            fewest valid pages. It is the baseline for the other schemes, and needs the most RAM.",
    paper: "folklore; the reference of every paper here",
    ram: "4 B per logical page + 1 bit per physical page",
    params: page_ram::PARAMS,
    shared_params: &[],
    fidelity: 'A',
    mlc: MlcUse::AsPublished,
    ..Scheme::of_trusted_page_map::<Ideal>()
};

/// The scheme's name and map; its policies are ftld's.
pub(crate) struct Ideal;

impl PageMapScheme for Ideal {
    const NAME: &'static str = "pagemap";
    type Map = FlatMap;
}

/// One entry of 4 bytes per logical page.
pub struct FlatMap {
    /// Physical page by logical page, [`UNMAPPED`] if there is none.
    entries: Vec<u32>,
}

impl PageMap for FlatMap {
    fn new(logical_pages: u32, _: &Params) -> Result<Self, FtlError> {
        let entries = vec![UNMAPPED; index(logical_pages)];
        Ok(FlatMap { entries })
    }

    #[inline(always)]
    fn get(&self, lpn: Lpn) -> Option<Ppn> {
        let entry = self.entries[lpn.index()];
        (entry != UNMAPPED).then(|| Ppn::new(entry))
    }

    #[inline(always)]
    fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        self.entries[lpn.index()] = ppn.map_or(UNMAPPED, Ppn::raw);
    }

    #[inline(always)]
    fn replace(&mut self, lpn: Lpn, from: Ppn, to: Ppn) -> bool {
        let entry = &mut self.entries[lpn.index()];
        let current = *entry == from.raw();
        if current {
            *entry = to.raw();
        }
        current
    }

    fn bytes(&self) -> (u64, u64) {
        let bytes = 4 * to_u64(self.entries.len());
        (bytes, bytes)
    }
}
