//! Interface for schemes in other crates.
//!
//! A [`PageMapScheme`] names a [`PageMap`] ([`FlatMap`], or four functions over a table in RAM) and
//! optionally a [`Policy`], which chooses the stream of each page and the victims of GC. A
//! [`CachedMapScheme`] has its map on flash, and names the [`MapCache`] in RAM. The controller
//! implements programs, GC, FLUSH, trims, checkpoints, wear levelling and recovery, as for every
//! scheme of the table.
//! `docs/examples/my-scheme` is a crate to start from; docs/SCHEMES.md ("Writing a scheme in a
//! crate of your own") explains it.
//!
//! ```
//! use ftl_core::author::{Candidates, NewPolicy, PageMap, PageMapScheme, Policy};
//! use ftl_core::schemes::Scheme;
//! use ftl_core::{FtlConfig, FtlError, Lpn, Params, Start};
//! use nand_model::store::MemStore;
//! use nand_model::{Chip, Cut, FaultPlan, Pbn, Ppn, Profile};
//!
//! /// A page map in RAM whose GC victim is the block that has not changed for longest.
//! struct Oldest;
//!
//! impl PageMapScheme for Oldest {
//!     const NAME: &'static str = "oldest";
//!     type Map = Map;
//!     const POLICIES: &'static [(&'static str, NewPolicy)] =
//!         &[("oldest_block", |_, _| Ok(Box::new(OldestBlock)))];
//! }
//!
//! /// The location of every logical page.
//! struct Map(Vec<Option<Ppn>>);
//!
//! impl PageMap for Map {
//!     fn new(logical_pages: u32, _: &Params) -> Result<Self, FtlError> {
//!         Ok(Map(vec![None; logical_pages as usize]))
//!     }
//!     fn get(&self, lpn: Lpn) -> Option<Ppn> {
//!         self.0[lpn.index()]
//!     }
//!     fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
//!         self.0[lpn.index()] = ppn;
//!     }
//!     fn bytes(&self) -> (u64, u64) {
//!         (4 * self.0.len() as u64, 8 * self.0.len() as u64)
//!     }
//! }
//!
//! struct OldestBlock;
//!
//! impl Policy for OldestBlock {
//!     fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
//!         candidates.best(|block| block.age)
//!     }
//! }
//!
//! static SCHEME: Scheme = Scheme::of_page_map::<Oldest>();
//!
//! // Format: 300 pages on 40 blocks of multi-level cells.
//! let profile = Profile::find("torture").expect("a profile").with_blocks(40);
//! let config = FtlConfig { logical_pages: 300, params: Params::default() };
//! let chip = Chip::over(profile, MemStore::new(profile.geometry))?;
//! let mut device = SCHEME.start(chip, &config, Start::Format)?;
//!
//! // Write, and cut the power during a write.
//! let page = |n: u8| vec![n; profile.geometry.page_bytes as usize];
//! for n in 0..200 {
//!     device.write(0, Lpn::new(n), &page(1))?;
//! }
//! device.flush(0)?;
//! let cut = Cut::menu(100, 0).pop();
//! device.chip_mut().set_faults(FaultPlan { cut, ..FaultPlan::default() });
//! let end = (0..).find_map(|n| device.write(0, Lpn::new(n % 50), &page(2)).err());
//! assert_eq!(end, Some(FtlError::PowerLost));
//!
//! // Mount, and read: the flushed data is there.
//! let mut chip = device.into_chip();
//! chip.power_on();
//! let mut device = SCHEME.start(chip, &config, Start::Mount)?;
//! let mut out = page(0);
//! for n in 0..200 {
//!     device.read(0, Lpn::new(n), &mut out)?;
//!     assert!(out == page(1) || (n < 50 && out == page(2)), "page {n}");
//! }
//! assert_eq!(device.check()?, Vec::<String>::new());
//! # Ok::<(), FtlError>(())
//! ```

pub use crate::families::page_ram::{PageMap, PageMapScheme};
pub use crate::families::paged::{CachedMapScheme, MapCache, MapPage};
pub use crate::gc::policy::{
    Candidate, Candidates, DataBlock, Device, HostWrite, InvalidPage, NewPolicy, PageCopy, Policy,
};
pub use crate::schemes::FlatMap;

/// What an author's functions must do, in the words of a failure. Debug builds, such as tests,
/// panic with one of these and the values that break it; release builds correct a policy.
pub mod contract {
    /// Contract of a map.
    pub const GET: &str = "PageMap::get must return what set gave";
    /// Contract of a map.
    pub const REPLACE: &str = "PageMap::replace must set the page if it is at `from`, and say so";
    /// Contract of a policy.
    pub const STREAMS: &str =
        "Policy::streams must return 1 to 16 streams of the host and 0 to 16 of copies";
    /// Contract of a policy.
    pub const STREAM_OF_WRITE: &str = "Policy::stream_of_write must return a stream of the host";
    /// Contract of a policy.
    pub const STREAM_OF_COPY: &str = "Policy::stream_of_copy must return a stream of copies";
    /// Contract of a policy.
    pub const CHOOSE_VICTIM: &str = "Policy::choose_victim must return a candidate or none";

    /// Contract of a cache.
    pub const CACHE: &str = "MapCache must return the last location that it was given";
    /// Contract of a cache.
    pub const UPDATE: &str = "MapCache::update must say whether the page is cached";

    /// All of them.
    pub const ALL: [&str; 8] = [
        GET,
        REPLACE,
        CACHE,
        UPDATE,
        STREAMS,
        STREAM_OF_WRITE,
        STREAM_OF_COPY,
        CHOOSE_VICTIM,
    ];

    /// Panics in a debug build if the contract is broken; `values`: those that break it.
    #[inline(always)]
    pub(crate) fn check(is_kept: bool, contract: &str, values: impl FnOnce() -> String) {
        if cfg!(debug_assertions) && !is_kept {
            panic!("{contract}: {}", values());
        }
    }
}
