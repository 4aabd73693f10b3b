//! Block requests of hosts: published traces in their formats, and synthetic workloads, as streams
//! of [`Record`]s.
//!
//! [`Trace::open`] reads a trace as a stream in bounded memory, plain or compressed. It detects the
//! format from the content, never from the name. An unreadable line is one error with file, line,
//! reason and expected form; nothing after it is read. Lines with another reading, such as bytes
//! for sectors, are refused until the format is named. This crate is independent of the device
//! behind the disk.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod convert;
mod dialect;
mod error;
mod fields;
mod lines;
mod record;
pub mod recording;
pub mod size;
mod trace;
pub mod workload;

pub use dialect::{BYTES, DIALECTS, SECTORS, TraceFormat, Units};
pub use error::{TraceError, ValueError};
pub use record::{ADDRESS_MAX, LENGTH_MAX, Op, Record, TIME_MAX};
pub use trace::Trace;
pub use workload::Workload;
