//! The battery: tests of any flash translation layer.
//!
//! A scheme is a [`Scheme`](ftl_core::schemes::Scheme), the descriptor by which `ftl-core` lays out
//! and starts it. This crate names no scheme: the caller provides it. [`judge`] runs everything on
//! it and prints the score, with each contract that was broken:
//!
//! ```no_run
//! use ftl_core::schemes::Scheme;
//! use ftld_battery::{Battery, Budget, judge};
//!
//! let scheme = Scheme::find("pagemap").expect("a scheme of the table");
//! let score = judge(scheme);
//! println!("{} of {} cases passed", score.passed(), score.cases());
//!
//! // A failure names its case. The case alone, again:
//! let budget = Budget {
//!     case: Some("pagemap/mlc/hot_cold/120/3".into()),
//!     ..Budget::default()
//! };
//! let verdicts = Battery::PowerCuts.run(scheme, &budget);
//! verdicts.assert_none_failed();
//! ```
//!
//! # Guarantees under test
//!
//! - The death of the process does not undo a completed operation.
//! - Data that a FLUSH covered survives any number of power cuts of the flash, also inside mounts;
//!   and any crash of the host with the image.
//! - After a cut a page reads as its flushed or one of its newer contents, whole, and keeps it.
//! - A scheme keeps the NAND rules of its chip: the chip panics where hardware would corrupt data.
//! - Wear is spread, and a device at its end of life is read-only with everything readable.
//!
//! # Parts
//!
//! [`payload`] makes self-identifying pages, [`model`] is the one oracle, [`workload`] generates
//! the host's requests, [`rig`] puts a scheme on a small chip, [`host`] runs both with the oracle,
//! [`cuts`] cuts power at every flash operation. The batteries [`conformance`], [`power_cuts`],
//! [`host_crashes`] and [`wear`] are lists of parts, built from [`sweep`] and [`crashes`];
//! [`swarm`] combines faults in generated runs; [`plan_text`] and [`shrink`] serve any such runs.
//! [`verdicts`] collects the failures.
//!
//! # Shapes and units
//!
//! Addresses and lengths are pages of the device, times are emulated nanoseconds since the chip was
//! opened, fault rates are parts per billion, ages are hours. Page contents are bytes of whole
//! pages, whose size is a multiple of 32. Everything follows from a seed of 64 bits: the same seed
//! and [`Budget`] give the same cases.
#![forbid(unsafe_code)]

pub mod classes;
pub mod conformance;
pub mod coverage;
pub mod crashes;
pub mod cuts;
pub mod host;
pub mod host_crashes;
mod judge;
pub mod model;
pub mod parallel;
pub mod payload;
mod place;
pub mod plan_text;
pub mod power_cuts;
pub mod rig;
pub mod shrink;
pub mod swarm;
pub mod sweep;
pub mod verdicts;
pub mod watch;
pub mod wear;
pub mod workload;

pub use judge::{Battery, Broken, Line, Score, judge, judge_within};
pub use verdicts::{Budget, Failure, Length, Share, Verdicts};
