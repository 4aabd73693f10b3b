//! Where every logical page is stored: a table of one entry per logical page.

use ftl_core::author::PageMap;
use ftl_core::{FtlError, Lpn, Params};
use nand_model::Ppn;

pub(crate) struct MyMap(Vec<Option<Ppn>>);

impl PageMap for MyMap {
    fn new(logical_pages: u32, _params: &Params) -> Result<Self, FtlError> {
        Ok(MyMap(vec![None; logical_pages as usize]))
    }

    fn get(&self, lpn: Lpn) -> Option<Ppn> {
        self.0[lpn.index()]
    }

    fn set(&mut self, lpn: Lpn, place: Option<Ppn>) {
        self.0[lpn.index()] = place;
    }

    fn bytes(&self) -> (u64, u64) {
        let bytes = size_of_val(&self.0[..]) as u64;
        (bytes, bytes)
    }
}
