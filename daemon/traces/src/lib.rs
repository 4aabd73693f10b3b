//! What hosts ask of their disks: block traces in the formats they are published in, and synthetic
//! workloads, as streams of [`Record`]s.
//!
//! A trace is read as a stream in bounded memory, plain or compressed, and recognised by its
//! content, never by its name: [`Trace::open`]. A line that cannot be read is one error that names
//! file, line, what is wrong and what was expected; nothing after it is read. Nothing in here knows
//! what is behind the disk.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod convert;
mod dialect;
mod error;
mod fields;
mod lines;
mod record;
pub mod size;
mod trace;
pub mod workload;

pub use dialect::{DIALECTS, Dialect};
pub use error::TraceError;
pub use record::{ADDRESS_MAX, LENGTH_MAX, Op, Record};
pub use trace::Trace;
pub use workload::Workload;
