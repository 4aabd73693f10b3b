//! One type for every store, so that the code above is compiled once.

use super::contents::{BlockFacts, Cells, Health};
use super::file::{PageReader, Pin, PlacedRun};
use super::interface::Store;
use super::oob_only::OobOnlyStore;
use crate::addr::{Pbn, Ppn};
use std::any::Any;
use std::{fmt, io};

/// A store of any type. Calls of a store without data, which simulations make, are direct; calls of
/// others, which copy bytes or enter the kernel, go through a table.
pub struct AnyStore(Kind);

enum Kind {
    OobOnly(OobOnlyStore),
    Other(Box<dyn Store>),
}

impl AnyStore {
    /// Wraps a store; a wrapped store stays as it is.
    pub fn new<S: Store>(store: S) -> AnyStore {
        let mut store = Some(store);
        if let Some(any) = take(&mut store) {
            any
        } else if let Some(oob_only) = take(&mut store) {
            AnyStore(Kind::OobOnly(oob_only))
        } else {
            AnyStore(Kind::Other(Box::new(store.expect("not taken"))))
        }
    }

    /// Returns the store, if it is of this type.
    pub fn downcast_ref<S: Store>(&self) -> Option<&S> {
        match &self.0 {
            Kind::OobOnly(store) => (store as &dyn Any).downcast_ref(),
            Kind::Other(store) => (&**store as &dyn Any).downcast_ref(),
        }
    }

    /// Returns the store, if it is of this type.
    pub fn downcast_mut<S: Store>(&mut self) -> Option<&mut S> {
        match &mut self.0 {
            Kind::OobOnly(store) => (store as &mut dyn Any).downcast_mut(),
            Kind::Other(store) => (&mut **store as &mut dyn Any).downcast_mut(),
        }
    }

    /// Unwraps the store, if it is of this type; otherwise drops it.
    pub fn downcast<S: Store>(self) -> Option<S> {
        match self.0 {
            Kind::OobOnly(store) => take(&mut Some(store)),
            Kind::Other(store) => (store as Box<dyn Any>).downcast().ok().map(|store| *store),
        }
    }
}

/// Takes a store if it is of type `T`.
fn take<S: Store, T: Store>(store: &mut Option<S>) -> Option<T> {
    (store as &mut dyn Any).downcast_mut::<Option<T>>()?.take()
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::OobOnly(_) => "OobOnlyStore",
            Kind::Other(_) => "Store",
        })
    }
}

macro_rules! each {
    ($self:expr, $store:ident => $call:expr) => {
        match $self {
            AnyStore(Kind::OobOnly($store)) => $call,
            AnyStore(Kind::Other($store)) => $call,
        }
    };
}

// A method that is left out would be that of the trait, silently.
#[deny(clippy::missing_trait_methods)]
impl Store for AnyStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        each!(self, store => store.load(each))
    }
    #[inline]
    fn read(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        each!(self, store => store.read(first, data, oobs, health))
    }
    #[inline]
    fn read_pages(
        &mut self,
        pages: &[Ppn],
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        each!(self, store => store.read_pages(pages, data, oobs, health))
    }
    fn expect_scan(&self) {
        each!(self, store => store.expect_scan());
    }
    fn reader(&self) -> Option<PageReader> {
        each!(self, store => store.reader())
    }
    fn pin(&self) -> Option<Pin> {
        each!(self, store => store.pin())
    }
    #[inline]
    fn place(&self, first: Ppn, count: u32) -> Option<PlacedRun> {
        each!(self, store => store.place(first, count))
    }
    #[inline(always)]
    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        each!(self, store => store.program(first, count, data, oobs))
    }
    #[inline]
    fn begin_batch(&mut self) {
        each!(self, store => store.begin_batch())
    }
    #[inline]
    fn end_batch(&mut self) -> io::Result<()> {
        each!(self, store => store.end_batch())
    }
    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()> {
        each!(self, store => store.program_as(ppn, data, oob, health))
    }
    fn spoil(&mut self, by: Ppn, pages: &[(Ppn, Health)]) -> io::Result<()> {
        each!(self, store => store.spoil(by, pages))
    }
    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        each!(self, store => store.and_oob(ppn, oob))
    }
    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        each!(self, store => store.set_health(ppn, health))
    }
    #[inline]
    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        each!(self, store => store.erase(block, facts))
    }
    #[inline]
    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        each!(self, store => store.set_facts(block, facts))
    }
    #[inline]
    fn tag(&self, ppn: Ppn) -> Option<u32> {
        each!(self, store => store.tag(ppn))
    }
    fn cells(&mut self, ppn: Ppn) -> io::Result<Option<Cells>> {
        each!(self, store => store.cells(ppn))
    }
    fn put_cells(&mut self, ppn: Ppn, cells: &Cells) -> io::Result<()> {
        each!(self, store => store.put_cells(ppn, cells))
    }
    #[inline]
    fn hour(&self) -> u32 {
        each!(self, store => store.hour())
    }
    #[inline]
    fn set_hour(&mut self, hour: u32) {
        each!(self, store => store.set_hour(hour))
    }
    #[inline]
    fn keeps_data(&self) -> bool {
        each!(self, store => store.keeps_data())
    }
    fn leave_data(&mut self, pages: Vec<(Ppn, Box<[u8]>)>) {
        each!(self, store => store.leave_data(pages))
    }
    fn take_data(&mut self) -> Vec<(Ppn, Box<[u8]>)> {
        each!(self, store => store.take_data())
    }
    #[inline]
    fn erase_credit(&self) -> u32 {
        each!(self, store => store.erase_credit())
    }
    #[inline]
    fn erase_credit_full(&self) -> u32 {
        each!(self, store => store.erase_credit_full())
    }
    fn trim_free_slots(&mut self, max: usize) -> io::Result<usize> {
        each!(self, store => store.trim_free_slots(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::store::MemStore;

    #[test]
    fn a_store_comes_back_as_what_it_was() {
        let geometry = Profile::default_profile().with_blocks(4).geometry;
        let mut store = AnyStore::new(MemStore::new(geometry));
        assert!(store.downcast_ref::<MemStore>().is_some());
        assert!(store.downcast_mut::<OobOnlyStore>().is_none());
        assert!(store.keeps_data() && AnyStore::new(store).downcast::<MemStore>().is_some());

        let mut store = AnyStore::new(OobOnlyStore::new(geometry));
        assert!(matches!(store.0, Kind::OobOnly(_)), "called directly");
        assert!(store.downcast_ref::<MemStore>().is_none());
        assert!(store.downcast_mut::<OobOnlyStore>().is_some());
        assert!(!store.keeps_data() && store.downcast::<OobOnlyStore>().is_some());
    }
}
