//! The interface for an author: a cache over a map on flash, and the scheme that it belongs to.

use super::map::entry_at;
use super::pending::Pending;
use super::policy::Policy;
use super::{PagedFtl, Settings, settings_of};
use crate::addr::Lpn;
use crate::author::contract;
use crate::config::{FtlConfig, Params};
use crate::error::FtlError;
use crate::ftl::{Ftl, Start};
use crate::gc::policy::Device;
use crate::mapping::ram_entry;
use crate::stats::{Evictions, RamEntry, RamPart};
use nand_model::{Chip, Ppn};

/// A scheme whose page map is on flash: its name, and its cache in RAM. The controller does the
/// rest: the mapping pages and when they are written, programs, GC, FLUSH, trims, checkpoints,
/// power-cut recovery. `gc.policy` and `gc.placement` select policies of ftld.
pub trait CachedMapScheme: 'static {
    /// Name of the scheme.
    const NAME: &'static str;

    /// Its cache.
    type Cache: MapCache;
}

/// A cache of entries LPN -> PPN of a map on flash. It never has the only copy of an entry: an
/// entry may leave at any time, and a mount begins with an empty cache.
pub trait MapCache: Send + Sized + 'static {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// [`FtlError::Config`] if a parameter of the scheme has a value it cannot work with; the text
    /// contains parameter and reason.
    fn new(device: &Device, params: &Params) -> Result<Self, FtlError>;

    /// Returns the location of a page if the cache has it (`Some(None)`: it is unmapped), and
    /// records the access.
    fn get(&mut self, lpn: Lpn) -> Option<Option<Ppn>>;

    /// Returns the location like [`MapCache::get`], without recording an access.
    fn peek(&self, lpn: Lpn) -> Option<Option<Ppn>>;

    /// Adds the entry of this page, and others of its mapping page if the cache prefetches. The
    /// request continues for `more` pages after `lpn`.
    fn load(&mut self, page: &MapPage, lpn: Lpn, more: u32);

    /// Sets the entry of a page that the host wrote; adds it if it is not cached.
    fn insert(&mut self, lpn: Lpn, ppn: Ppn);

    /// Sets the entry of a page that was relocated or trimmed, if it is cached. Returns whether it
    /// is.
    fn update(&mut self, lpn: Lpn, ppn: Option<Ppn>) -> bool;

    /// Removes an entry if the cache has too many, and returns its page. If the entry is newer than
    /// the map on flash, its mapping page is written then.
    fn evict(&mut self) -> Option<Lpn>;

    /// Returns the bytes of the cache: as a paper would count them, and as allocated.
    fn bytes(&self) -> (u64, u64);
}

/// A mapping page that was read, with the changes that are not on flash yet.
pub struct MapPage<'a> {
    first: u32,
    end: u32,
    entries: &'a [u8],
    pending: &'a Pending,
}

impl MapPage<'_> {
    /// Returns the location of one of its logical pages.
    ///
    /// # Panics
    /// The entry is in another mapping page.
    pub fn get(&self, lpn: Lpn) -> Option<Ppn> {
        match self.pending.get(lpn.raw()) {
            Some(entry) => entry.ppn(),
            None => entry_at(self.entries, lpn.raw() - self.first),
        }
    }

    /// Returns whether the page has the entry of this logical page.
    pub fn contains(&self, lpn: Lpn) -> bool {
        (self.first..self.end).contains(&lpn.raw())
    }
}

/// An author's cache as the family uses it.
struct Cached<C> {
    cache: C,
    per_page: u32,
    logical_pages: u32,
    steps: u64,
    evictions: Evictions,
    /// By logical page: the last location that the cache was given, checked in debug builds.
    given: Vec<Option<Ppn>>,
}

/// Starts a scheme.
pub(crate) fn start<S: CachedMapScheme>(
    chip: Chip,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl>, FtlError> {
    let (geometry, logical_pages) = (*chip.geometry(), config.logical_pages);
    let device = Device {
        geometry,
        logical_pages,
    };
    let settings = Settings {
        // Twice the entries of a cache of a 16th of the table.
        max_pending: Some((logical_pages / 16).max(256)),
        ..settings_of(&chip, config)?
    };
    let given = if cfg!(debug_assertions) {
        vec![None; logical_pages as usize]
    } else {
        Vec::new()
    };
    let cached = Cached {
        cache: S::Cache::new(&device, &config.params)?,
        per_page: geometry.page_bytes / 4,
        logical_pages,
        steps: 0,
        evictions: Evictions::default(),
        given,
    };
    let ftl = PagedFtl::create(S::NAME, chip, config, settings, cached, start)?;
    Ok(Box::new(ftl))
}

impl<C: MapCache> Cached<C> {
    fn note(&mut self, lpn: u32, ppn: Option<Ppn>) {
        if let Some(given) = self.given.get_mut(lpn as usize) {
            *given = ppn;
        }
    }

    /// Returns the logical pages of a mapping page.
    fn pages_of(&self, vtpn: u32) -> std::ops::Range<u32> {
        let first = vtpn * self.per_page;
        first..(first + self.per_page).min(self.logical_pages)
    }

    /// Checks what the cache has of a page.
    fn check(&self, lpn: u32, got: Option<Option<Ppn>>) -> Option<Option<Ppn>> {
        if let (Some(got), Some(given)) = (got, self.given.get(lpn as usize)) {
            contract::check(got == *given, contract::CACHE, || {
                let place = |ppn: &Option<Ppn>| ppn.map_or("None".into(), |p| format!("PPN {p}"));
                format!(
                    "page {lpn} has {}, it was given {}",
                    place(&got),
                    place(given)
                )
            });
        }
        got
    }
}

impl<C: MapCache> Policy for Cached<C> {
    const LOOKS_UP_WRITES: bool = true;

    fn get(&mut self, lpn: u32, _: bool) -> Option<Option<Ppn>> {
        self.steps += 1;
        let got = self.cache.get(Lpn::new(lpn));
        self.check(lpn, got)
    }

    fn peek(&self, lpn: u32) -> Option<Option<Ppn>> {
        self.check(lpn, self.cache.peek(Lpn::new(lpn)))
    }

    fn load(&mut self, vtpn: u32, page: &[u8], lpn: u32, more: u32, pending: &Pending) {
        let pages = self.pages_of(vtpn);
        let page = MapPage {
            first: pages.start,
            end: pages.end,
            entries: page,
            pending,
        };
        if !self.given.is_empty() {
            pages.for_each(|lpn| self.note(lpn, page.get(Lpn::new(lpn))));
        }
        self.cache.load(&page, Lpn::new(lpn), more);
        self.peek(lpn);
    }

    fn on_relocate(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        self.note(lpn, to);
        let was_cached = self.cache.peek(Lpn::new(lpn)).is_some();
        let is_cached = self.cache.update(Lpn::new(lpn), to);
        contract::check(is_cached == was_cached, contract::UPDATE, || {
            format!("page {lpn} is cached: {was_cached}, update returned {is_cached}")
        });
        self.peek(lpn);
        is_cached
    }

    fn on_write(&mut self, lpn: u32, to: Ppn, _: bool, _: &Pending) {
        self.note(lpn, Some(to));
        self.cache.insert(Lpn::new(lpn), to);
        self.peek(lpn);
    }

    fn evict(&mut self, pending: &Pending) -> Option<u32> {
        while let Some(lpn) = self.cache.evict() {
            let is_dirty = pending.has(lpn.raw());
            self.evictions.note(is_dirty);
            if is_dirty {
                return Some(lpn.raw() / self.per_page);
            }
        }
        None
    }

    fn on_writeback(&mut self, _: u32, _: &[u8], _: &Pending) {}

    fn dropped(&mut self, vtpn: u32) {
        for lpn in self.pages_of(vtpn) {
            self.note(lpn, None);
            self.cache.update(Lpn::new(lpn), None);
        }
    }

    fn copy_page(&mut self, _: u32, _: bool, _: &mut [u8]) -> bool {
        false
    }

    /// One per lookup.
    fn lookup_steps(&self) -> u64 {
        self.steps
    }

    fn evictions(&self) -> Evictions {
        self.evictions
    }

    fn ram(&self) -> Vec<RamEntry> {
        let (paper, real) = self.cache.bytes();
        vec![ram_entry(RamPart::MapCache, 0, paper, real, real)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::Scheme;
    use nand_model::store::MemStore;
    use nand_model::{Chip, Profile};

    /// A cache of one entry that forgets changes: `update` does nothing.
    struct Stale(Option<(Lpn, Option<Ppn>)>);

    impl MapCache for Stale {
        fn new(_: &Device, _: &Params) -> Result<Self, FtlError> {
            Ok(Stale(None))
        }

        fn get(&mut self, lpn: Lpn) -> Option<Option<Ppn>> {
            self.peek(lpn)
        }

        fn peek(&self, lpn: Lpn) -> Option<Option<Ppn>> {
            self.0.filter(|(of, _)| *of == lpn).map(|(_, ppn)| ppn)
        }

        fn load(&mut self, page: &MapPage, lpn: Lpn, _: u32) {
            assert!(page.contains(lpn), "the page was read for this entry");
            self.0 = Some((lpn, page.get(lpn)));
        }

        fn insert(&mut self, lpn: Lpn, ppn: Ppn) {
            self.0 = Some((lpn, Some(ppn)));
        }

        fn update(&mut self, lpn: Lpn, _: Option<Ppn>) -> bool {
            self.peek(lpn).is_some()
        }

        fn evict(&mut self) -> Option<Lpn> {
            None
        }

        fn bytes(&self) -> (u64, u64) {
            (8, 16)
        }
    }

    struct StaleMap;

    impl CachedMapScheme for StaleMap {
        const NAME: &'static str = "stale";
        type Cache = Stale;
    }

    #[test]
    #[should_panic(
        expected = "MapCache must return the last location that it was given: page 3 has "
    )]
    fn a_cache_that_misses_a_trim_breaks_its_contract() {
        let profile = Profile::find("torture").unwrap().with_blocks(80);
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let config = FtlConfig {
            logical_pages: 300,
            params: Params::default(),
        };
        let scheme = Scheme::of_cached_map::<StaleMap>();
        let mut device = scheme.start(chip, &config, Start::Format).unwrap();
        let page = vec![1; profile.geometry.page_bytes as usize];
        device.write(0, Lpn::new(3), &page).unwrap();
        device.trim(0, Lpn::new(3), 1).unwrap();
    }
}
