//! Interface for schemes in other crates.
//!
//! [`PageMap`] is a page map in RAM with four functions. A [`VictimPolicy`] selects the GC victim,
//! a [`Placement`] the open block of a page; both are optional. The controller implements programs,
//! GC, FLUSH, trims, checkpoints, wear levelling and recovery, as for every scheme of the table.
//! `docs/examples/my-scheme` is a crate to start from; docs/SCHEMES.md ("Writing a scheme in a
//! crate of your own") explains it.
//!
//! ```
//! use ftl_core::author::{Candidates, NewPolicy, PageMap, VictimPolicy};
//! use ftl_core::schemes::Scheme;
//! use ftl_core::{FtlConfig, FtlError, Lpn, Params, Start};
//! use nand_model::store::MemStore;
//! use nand_model::{Chip, Cut, FaultPlan, Pbn, Ppn, Profile};
//!
//! /// A page map in RAM whose GC victim is the block that has not changed for longest.
//! struct Oldest(Vec<Option<Ppn>>);
//!
//! impl PageMap for Oldest {
//!     const NAME: &'static str = "oldest";
//!     const POLICIES: &'static [(&'static str, NewPolicy)] =
//!         &[("oldest_block", |_| Ok(Box::new(OldestBlock)))];
//!
//!     fn new(logical_pages: u32, _: &Params) -> Result<Self, FtlError> {
//!         Ok(Oldest(vec![None; logical_pages as usize]))
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
//! impl VictimPolicy for OldestBlock {
//!     fn choose(&mut self, candidates: &Candidates) -> Option<Pbn> {
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

pub use crate::families::page_ram::PageMap;
pub use crate::gc::placement::{NewPlacement, Placement};
pub use crate::gc::policy::{Candidate, Candidates, NewPolicy, VictimPolicy};
