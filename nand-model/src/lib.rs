//! A NAND flash emulator: the rules of real flash, its faults, and its state after a power cut.
//!
//! [`Chip`] is the interface: read, program, erase and copyback over a [`Geometry`]. It always
//! enforces the rules of the part. A [`Store`] keeps the bytes: [`store::MemStore`],
//! [`store::OobOnlyStore`], or [`FileStore`], an image file. Schemes run on [`Chip::over`] any of
//! them ([`store::AnyStore`]). This crate contains no mapping.
//!
//! ```
//! use nand_model::{Cause, Chip, Profile, store::MemStore};
//! let profile = Profile::find("torture").unwrap().with_blocks(4);
//! let mut chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
//! let page = chip.geometry().page(nand_model::Pbn::new(1), 0);
//! let done = chip.program(0, page, &[7; 1024], b"spare", Cause::Host).unwrap();
//! let (mut data, mut oob) = ([0; 1024], [0; 5]);
//! chip.read(done, page, &mut data, &mut oob, Cause::Host).unwrap();
//! assert_eq!((data[0], &oob), (7, b"spare"));
//! ```
#![forbid(unsafe_code)]
// Each function documents its errors and what the caller must do.
#![warn(clippy::missing_errors_doc)]

mod addr;
mod cause;
mod chip;
pub mod convert;
mod decay;
mod error;
mod fault;
mod geometry;
mod image;
mod intern;
mod pairing;
mod profile;
mod rng;
pub mod store;
mod timing;

pub use addr::{Pbn, Ppn};
pub use cause::{Cause, Counters, OpCounts};
pub use chip::{Chip, CutHits, RunError};
/// The check of all formats, continued over several parts.
pub use crc32c::crc32c_append;
pub use decay::{Ecc, ErrorLaw, ErrorModel};
pub use error::{NandError, Part};
pub use fault::{
    BlockFault, Cut, DieFailure, EraseCut, Fault, FaultPlan, FaultRates, PartnerCut, ProgramCut,
    WrongBits,
};
pub use geometry::{Geometry, PageSplit, aligned_bytes, atomic_bytes};
pub use image::{
    CacheSection, FORMAT_VERSION, ImageError, ImageInfo, ImageSpec, SHARDS_MAX, ShardSection,
    Striping,
};
pub use pairing::{PairTable, Pairing};
pub use profile::{Capacity, PROFILES, PageOrder, PageTimes, Profile, Suspend, Timing};
pub use rng::SplitMix;
pub use store::{
    Access, Bad, BlockFacts, CacheArea, Cells, FileStore, Health, OpenReport, PageReader, Pin,
    PlacedRun, Store, SyncError, SyncHandle, SyncStats, Verify, peek,
};
pub use timing::Nanos;
