//! Flash translation layers: the code between a host page and a flash page.
//!
//! # Overview
//!
//! A volume calls an [`Ftl`]; the scheme behind it chooses flash pages and programs them through a
//! [`nand_model::Chip`]. [`schemes::SCHEMES`] is a table; all other code iterates over it. Schemes
//! with one mechanism form a family: a page map in RAM, a page map on flash, units that own blocks,
//! data blocks with log blocks. They share garbage collection, wear levelling, scrub, checkpoints,
//! trim records and recovery. [`format`](mod@format) has the bytes of every flash page.
//!
//! The crate has no socket, thread, wall clock or randomness. Every verb takes the time as an
//! argument, so every run is repeatable.
//!
//! # A first device
//!
//! [`Scheme::start`](schemes::Scheme::start) formats a chip, or mounts it after a clean shutdown or
//! a power cut. Data that [`Ftl::flush`] covered is there again.
//!
//! ```
//! use ftl_core::schemes::Scheme;
//! use ftl_core::{FtlConfig, FtlError, Lpn, Params, Start};
//! use nand_model::{Chip, Profile, store::MemStore};
//!
//! let scheme = Scheme::find("lazyftl").expect("a scheme of the table");
//! let profile = Profile::find("mlc-4k").expect("a built-in part").with_blocks(64);
//! let chip = Chip::over(profile, MemStore::new(profile.geometry))?;
//! let mut params = Params::default();
//! params.set("gc.policy", "cost_benefit");
//! let config = FtlConfig { logical_pages: 4000, params };
//! let mut device = scheme.start(chip, &config, Start::Format)?;
//!
//! let page = vec![7; profile.geometry.page_bytes as usize];
//! let written = device.write(0, Lpn::new(42), &page)?;
//! device.flush(written)?;
//!
//! let chip = device.into_chip(); // All tables in RAM are lost.
//! let mut device = scheme.start(chip, &config, Start::Mount)?;
//! let mut out = vec![0; page.len()];
//! device.read(0, Lpn::new(42), &mut out)?;
//! assert_eq!(out, page);
//! # Ok::<(), FtlError>(())
//! ```
//!
//! # A first scheme
//!
//! A scheme of another crate is a [`PageMap`](author::PageMap), and optionally a
//! [`Policy`](author::Policy) for streams and victims. [`author`] has both, with a power cut and a
//! mount.
//!
//! ```
//! use ftl_core::author::{PageMap, PageMapScheme};
//! use ftl_core::schemes::Scheme;
//! use ftl_core::{FtlConfig, FtlError, Lpn, Params, Start};
//! use nand_model::{Chip, Ppn, Profile, store::MemStore};
//!
//! /// The location of every logical page.
//! struct Map(Vec<Option<Ppn>>);
//!
//! struct MyScheme;
//!
//! impl PageMapScheme for MyScheme {
//!     const NAME: &'static str = "my-map";
//!     type Map = Map;
//! }
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
//! static SCHEME: Scheme = Scheme::of_page_map::<MyScheme>();
//!
//! let profile = Profile::find("torture").expect("a built-in part").with_blocks(40);
//! let chip = Chip::over(profile, MemStore::new(profile.geometry))?;
//! let config = FtlConfig { logical_pages: 300, params: Params::default() };
//! let mut device = SCHEME.start(chip, &config, Start::Format)?;
//! let page = vec![1; profile.geometry.page_bytes as usize];
//! for n in 0..2000 {
//!     device.write(0, Lpn::new(n * 7 % 300), &page)?; // Garbage collection keeps up.
//! }
//! assert_eq!(device.check()?, Vec::<String>::new());
//! # Ok::<(), FtlError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod addr;
pub mod author;
mod block_table;
mod checkpoint;
mod config;
mod controller;
mod copy;
mod error;
mod events;
mod families;
mod flash;
pub mod format;
mod ftl;
mod gc;
mod int;
mod layout;
mod map_cache;
mod mapping;
mod ram;
mod recovery;
mod scan;
pub mod schemes;
mod space;
mod stalls;
mod stats;
mod sum;
mod trims;
mod wear;

pub use addr::{Lpn, Span};
pub use config::{FtlConfig, ParamDoc, Params, near_miss};
pub use error::FtlError;
pub use events::{
    EVENTS_KEPT, Event, EventKind, EventLog, EventTotals, GC_PAGE_BOUNDS, GcPageClasses,
};
pub use flash::{DeferredRead, DeferredRun};
pub use ftl::{Ftl, Start};
pub use stalls::StallTotals;
pub use stats::{
    BlockCounts, BlockMark, BlockUse, BlockView, Evictions, Lookups, MountReport, RamEntry,
    RamPart, RamReport, SchemeStats, StreamKind, StreamView,
};
pub use sum::{add_ram, add_streams};
