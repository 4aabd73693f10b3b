//! A NAND flash emulator: the rules of real flash, its faults, and its state after a power cut.
//!
//! # Overview
//!
//! [`Chip`] is the interface: read, program, erase and copyback over a [`Geometry`]. It always
//! enforces the rules of the part: breaking one panics. A [`NandError`] is a failure of the
//! hardware, or of the host below. A [`Profile`] describes a part: shape, times, order of pages,
//! word lines, endurance, error correction. Every operation takes the time of its start, and
//! returns the time of its end on that part.
//!
//! A [`Store`] keeps the bytes: [`store::MemStore`], [`store::OobOnlyStore`], or [`FileStore`], an
//! image file that survives crashes of its host. A [`FaultPlan`] decides which operations fail.
//! This crate contains no mapping.
//!
//! # A first chip
//!
//! ```
//! use nand_model::{Cause, Chip, Pbn, Profile, store::MemStore};
//! let profile = Profile::find("torture").unwrap().with_blocks(4);
//! let mut chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
//! let page = chip.geometry().page(Pbn::new(1), 0);
//! let done = chip.program(0, page, &[7; 1024], b"spare", Cause::Host).unwrap();
//! let (mut data, mut oob) = ([0; 1024], [0; 5]);
//! chip.read(done, page, &mut data, &mut oob, Cause::Host).unwrap();
//! assert_eq!((data[0], &oob), (7, b"spare"));
//! ```
//!
//! # A first power cut
//!
//! Page 2 shares its word line with page 0. A cut in the program of page 2 destroys both.
//!
//! ```
//! use nand_model::{
//!     Cause, Chip, Cut, EraseCut, FaultPlan, NandError, PartnerCut, Pbn, Profile, ProgramCut,
//!     store::MemStore,
//! };
//! let profile = Profile::find("mlc-4k").unwrap().with_blocks(4);
//! let mut chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
//! let page = |offset| profile.geometry.page(Pbn::new(0), offset);
//! let data = vec![7; 4096];
//! for offset in 0..2 {
//!     chip.program(0, page(offset), &data, b"", Cause::Host).unwrap();
//! }
//! chip.set_faults(FaultPlan {
//!     cut: Some(Cut {
//!         at_op: 0,
//!         program: ProgramCut::RandomBits,
//!         partner: PartnerCut::Destroyed,
//!         erase: EraseCut::NotStarted,
//!         seed: 1,
//!     }),
//!     ..FaultPlan::default()
//! });
//! let cut = chip.program(0, page(2), &data, b"", Cause::Host);
//! assert_eq!(cut, Err(NandError::PowerLost));
//!
//! chip.power_on();
//! let (mut out, mut oob) = (vec![0; 4096], []);
//! assert!(chip.read(0, page(0), &mut out, &mut oob, Cause::Host).is_err());
//! assert!(chip.read(0, page(1), &mut out, &mut oob, Cause::Host).is_ok());
//! ```
//!
//! # A first image
//!
//! ```
//! use nand_model::{Access, Cause, Chip, FileStore, ImageSpec, Pbn, Profile};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("flash.img");
//! let profile = Profile::find("mlc-4k").unwrap().with_blocks(4);
//! let spec = ImageSpec {
//!     profile,
//!     size: 1 << 20,
//!     scheme: "none".into(),
//!     params: String::new(),
//! };
//! let mut chip = Chip::open(profile, FileStore::create(&path, &spec).unwrap()).unwrap();
//! let page = chip.geometry().page(Pbn::new(0), 0);
//! chip.program(0, page, &vec![7; 4096], b"", Cause::Host).unwrap();
//! chip.into_store().close().unwrap();
//!
//! let (store, report) = FileStore::open(&path, Access::ReadWrite).unwrap();
//! assert!(report.was_clean);
//! let mut chip = Chip::open(profile, store).unwrap();
//! let mut data = vec![0; 4096];
//! chip.read(0, page, &mut data, &mut [], Cause::Host).unwrap();
//! assert_eq!(data[0], 7);
//! ```
#![forbid(unsafe_code)]
// Each function documents its errors and what the caller must do.
#![warn(clippy::missing_errors_doc)]

mod addr;
mod cause;
mod chip;
pub mod convert;
mod counters;
mod decay;
mod energy;
mod error;
mod fault;
mod geometry;
mod image;
mod intern;
mod invalid;
mod pairing;
mod profile;
mod rng;
pub mod store;
mod timing;

pub use addr::{Pbn, Ppn};
pub use cause::Cause;
pub use chip::{Chip, CutHits};
pub use counters::{Counters, OpCounts};
/// The check of all formats, continued over several parts.
pub use crc32c::crc32c_append;
pub use decay::{Ecc, ErrorLaw, ErrorModel};
pub use energy::Energy;
pub use error::{NandError, Part, RunError};
pub use fault::{
    BlockFault, Cut, DieFailure, EraseCut, Fault, FaultPlan, FaultRates, PartnerCut, ProgramCut,
    WrongBits,
};
pub use geometry::{Geometry, MultiPlane, PageSplit, aligned_bytes, atomic_bytes};
pub use image::{
    CacheSection, FORMAT_VERSION, ImageError, ImageInfo, ImageSpec, SHARDS_MAX, ShardSection,
    Striping,
};
pub use invalid::Invalid;
pub use pairing::{PairTable, Pairing};
pub use profile::{
    Cache, Capacity, PROFILES, PageOrder, PageTimes, Profile, SlcRegion, Suspend, Timing,
};
pub use rng::SplitMix;
pub use store::{
    Access, Bad, BlockFacts, CacheArea, Cells, FileStore, Health, OpenReport, PageReader, Pin,
    PlacedRun, Store, SyncError, SyncHandle, SyncStats, Verify, peek,
};
pub use timing::{Nanos, TimeSplit};
