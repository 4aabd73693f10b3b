//! A NAND flash emulator: what real flash promises, forbids and does when power fails.
//!
//! [`Chip`] is the contract: read, program, erase and copyback over a [`Geometry`], with the law of
//! the part always enforced. A [`Store`] keeps the bytes: [`store::MemStore`],
//! [`store::OobOnlyStore`], or [`FileStore`], an image file. Nothing here knows what a mapping is.
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
// What an error means to the caller stands with each function.
#![warn(clippy::missing_errors_doc)]

mod addr;
mod cause;
mod chip;
mod convert;
mod decay;
mod error;
mod fault;
mod geometry;
mod image;
mod pairing;
mod profile;
mod rng;
pub mod store;
mod timing;

pub use addr::{Pbn, Ppn};
pub use cause::{Cause, Counters, OpCounts};
pub use chip::{Chip, CutHits, RunError};
pub use decay::{Decay, Ecc};
pub use error::{NandError, Part};
pub use fault::{
    Bomb, Chances, Cut, DieFailure, EraseCut, Fault, FaultPlan, PartnerCut, ProgramCut, WrongBits,
};
pub use geometry::{Geometry, PageSplit};
pub use image::{
    FORMAT_VERSION, ImageError, ImageInfo, ImageSpec, NAME_BYTES_MAX, PARAMS_BYTES_MAX,
};
pub use pairing::{PairTable, Pairing};
pub use profile::{Capacity, PROFILES, PageOrder, Profile, Timing};
pub use rng::SplitMix;
pub use store::{
    Access, Bad, BlockFacts, Cells, FileStore, Health, OpenReport, Store, SyncError, SyncHandle,
    SyncStats, peek,
};
pub use timing::Nanos;
