//! A map whose contract is checked at every call, in debug builds, as in tests.

use super::map::PageMap;
use crate::addr::Lpn;
use crate::author::contract;
use crate::config::Params;
use crate::error::FtlError;
use nand_model::Ppn;

/// An author's map, with what it was given.
pub(super) struct Checked<M> {
    map: M,
    given: Vec<Option<Ppn>>,
}

impl<M: PageMap> PageMap for Checked<M> {
    const SORTED: bool = M::SORTED;
    const PREDICTS: bool = M::PREDICTS;

    fn new(logical_pages: u32, params: &Params) -> Result<Self, FtlError> {
        let map = M::new(logical_pages, params)?;
        let given = vec![None; logical_pages as usize];
        Ok(Checked { map, given })
    }

    fn get(&self, lpn: Lpn) -> Option<Ppn> {
        let (got, given) = (self.map.get(lpn), self.given[lpn.index()]);
        contract::check(got == given, contract::GET, || {
            let place = |ppn: Option<Ppn>| ppn.map_or("None".into(), |ppn| format!("PPN {ppn}"));
            let (got, given) = (place(got), place(given));
            format!("page {lpn} has {got}, set gave {given}")
        });
        got
    }

    fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        self.given[lpn.index()] = ppn;
        self.map.set(lpn, ppn);
    }

    fn replace(&mut self, lpn: Lpn, from: Ppn, to: Ppn) -> bool {
        let given = &mut self.given[lpn.index()];
        let is_current = *given == Some(from);
        if is_current {
            *given = Some(to);
        }
        let replaced = self.map.replace(lpn, from, to);
        contract::check(replaced == is_current, contract::REPLACE, || {
            format!("page {lpn} was at {from}: {is_current}, replace returned {replaced}")
        });
        self.get(lpn);
        replaced
    }

    fn predict(&self, lpn: Lpn) -> Option<(Ppn, u32)> {
        self.map.predict(lpn)
    }

    fn begin_service(&mut self) {
        self.map.begin_service();
    }

    fn bytes(&self) -> (u64, u64) {
        self.map.bytes()
    }

    fn bytes_most(&self) -> u64 {
        self.map.bytes_most()
    }
}
